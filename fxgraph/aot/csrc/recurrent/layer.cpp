// framegraph::recurrent_layer: one direction of one recurrent layer over all of time, and its backward.
//
// The products with the inputs of all steps are one matrix product before, those of the weights' gradients one after it:
// operators of the graph (recurrent.py). A step is one kernel (steps.h): the product with the state before, and the cell.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <Python.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "../../../csrc/built_from.h"
#include "kernels.h"

namespace framegraph::recurrent {
namespace {

using at::Tensor;
using Maybe = std::optional<Tensor>;

constexpr int64_t CACHE = 256 << 10;   // bytes of weights that each thread may read at every step by itself
constexpr int64_t MANY = 32;           // rows for which each thread may read other weights, too
constexpr int64_t SMALL = 1 << 17;     // floating-point operations of a step that threads are not worth while for

// Of a batch of 1, weights are packed if that pays: for more than a few steps, unless memory bounds a step.
constexpr int64_t FEW = 12;
constexpr size_t FAR = 2 << 20;

bool packs(int64_t time, int64_t batch, size_t bytes) { return batch > 1 || (time >= FEW && bytes <= FAR); }

enum class Isa { PLAIN, AVX2, AVX512 };

// As ATen chooses its own kernels.
Isa isa() {
  static const Isa found = [] {
    const std::string name = at::get_cpu_capability();
#if defined(__x86_64__)
    if (name == "AVX512") return Isa::AVX512;
    if (name == "AVX2") return Isa::AVX2;
#endif
    return Isa::PLAIN;
  }();
  return found;
}

template <class T> const Kernels<T>& kernels() {
  constexpr bool single = std::is_same_v<T, float>;
#define FRAMEGRAPH_OF(ISA) \
  if constexpr (single) return ISA::float_kernels; \
  else return ISA::double_kernels
#if defined(__x86_64__)
  if (isa() == Isa::AVX512) { FRAMEGRAPH_OF(avx512); }
  if (isa() == Isa::AVX2) { FRAMEGRAPH_OF(avx2); }
#endif
  FRAMEGRAPH_OF(plain);
}

template <class T> T* pointer(const Tensor& t) { return t.defined() ? t.data_ptr<T>() : nullptr; }
template <class T> int64_t blocks_of(int64_t columns, Kind kind) {
  int64_t width = kernels<T>().width(kind);
  return (columns + width - 1) / width;
}

// Weights [gates * columns, rows] of a kind, or with `natural` [rows, columns], packed for products.
template <class T> Tensor packed(const Tensor& weights, Kind kind, bool natural) {
  int64_t gates = natural ? 1 : gate_count(kind), rows = weights.size(natural ? 0 : 1);
  int64_t columns = weights.size(natural ? 1 : 0) / gates, blocks = blocks_of<T>(columns, kind);
  Tensor result = at::empty({blocks * kernels<T>().width(kind) * gates * rows}, weights.options());
  Packing<T> p{pointer<T>(weights), pointer<T>(result), rows, columns, natural ? columns : 1, natural ? 1 : rows,
               columns * rows};
  int64_t grain = std::max<int64_t>(1, blocks * 16384 / std::max<int64_t>(1, weights.numel()));
  at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) { kernels<T>().pack(p, kind, begin, end); });
  return result;
}

// As packed() makes them of contiguous weights, or made and kept before.
template <class T> Tensor packed_or(const Maybe& kept, const Tensor& weights, Kind kind) {
  if (!kept) return packed<T>(weights, kind, false);
  const int64_t columns = weights.size(0) / gate_count(kind);
  const int64_t size = blocks_of<T>(columns, kind) * kernels<T>().width(kind) * gate_count(kind) * weights.size(1);
  TORCH_CHECK(kept->numel() == size && kept->is_contiguous() && kept->scalar_type() == weights.scalar_type(),
              "recurrent_layer: packed weights of another form");
  return *kept;
}

Tensor pack_weights(const Tensor& weights, int64_t kind) {
  auto run = weights.scalar_type() == at::kFloat ? packed<float> : packed<double>;
  return run(weights.contiguous(), static_cast<Kind>(kind), false);
}

// A part of every step: its blocks of columns, which may be done in parallel, and the function that does some of them.
struct Phase {
  int64_t blocks;
  std::function<void(int64_t step, Part)> run;
};

// The order of the steps in time. Of packed sequences, sorted by their lengths, `rows` are how many a step has.
struct Order {
  int64_t steps, batch;
  bool reverse;
  const int64_t* rows;
  int64_t time(int64_t step) const { return reverse ? steps - 1 - step : step; }
  int64_t before(int64_t step) const { return step == 0 ? -1 : time(step - 1); }
  int64_t active(int64_t step) const { return step >= steps ? 0 : rows ? rows[step] : batch; }

  // The last step of each row, which take longest for the first ones.
  std::vector<int64_t> last() const {
    std::vector<int64_t> found(batch);
    for (int64_t step = 0; step < steps; ++step)
      for (int64_t row = active(step + 1); row < active(step); ++row) found[row] = step;
    return found;
  }

  // Where the rows of each of several threads begin, and where all end: about as many steps for each.
  std::vector<int64_t> cuts(int64_t threads) const {
    std::vector<int64_t> found{0};
    const std::vector<int64_t> ends = last();
    int64_t total = batch, done = 0;
    for (int64_t end : ends) total += end;
    for (int64_t row = 0; row < batch; ++row) {
      if (done * threads >= total * static_cast<int64_t>(found.size())) found.push_back(row);
      done += ends[row] + 1;
    }
    found.resize(threads + 1, batch);
    return found;
  }
};

Order order_of(int64_t steps, int64_t batch, bool reverse, const Maybe& sizes) {
  if (!sizes) return {steps, batch, reverse, nullptr};
  TORCH_CHECK(sizes->scalar_type() == at::kLong && sizes->is_contiguous() && sizes->dim() == 1 &&
              sizes->numel() == steps && !reverse, "recurrent_layer: sizes of another form");
  const int64_t* rows = sizes->const_data_ptr<int64_t>();
  for (int64_t step = 0, before = batch; step < steps; before = rows[step++])
    TORCH_CHECK(rows[step] > 0 && (step ? rows[step] <= before : rows[step] == batch),
                "recurrent_layer: sizes that are not sorted, or not of this batch");
  return {steps, batch, reverse, rows};
}

// The parts of one parallel region wait for one another. A thread may do several parts, where the region got fewer threads
// than it asked for. Where threads are more than processors, one that waits hands over its own.
class Barrier {
 public:
  explicit Barrier(int64_t parts) : parts_(parts) {}
  void wait(int64_t done) {
    const uint64_t round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(done, std::memory_order_acq_rel) + done == parts_) {
      arrived_.store(0, std::memory_order_relaxed);
      return round_.store(round + 1, std::memory_order_release);
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round;)
      if (spins < SPINS) ++spins, pause();
      else std::this_thread::yield();
  }

 private:
  static constexpr int SPINS = 1000;  // about 20 us
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }
  const int64_t parts_;
  alignas(64) std::atomic<int64_t> arrived_{0};
  alignas(64) std::atomic<uint64_t> round_{0};
};

// How many parts can run at once, of so many threads. More would spin while others have the processors.
int64_t at_once(int64_t threads) {
#if AT_PARALLEL_OPENMP
  return std::min<int64_t>(threads, omp_get_num_procs());
#else
  return threads;
#endif
}

// phase.run(step, its part of the blocks) for every step and phase. Each thread reads the same blocks at every step,
// which stay in its cache.
template <class Active>
void run_in_step(const std::vector<Phase>& phases, int64_t steps, int64_t threads, const Active& active) {
  auto blocks = [&](const Phase& phase, int64_t part) { return phase.blocks * part / threads; };
#if AT_PARALLEL_OPENMP
  Barrier barrier(threads);
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t step = 0; step < steps; ++step)
      for (const Phase& phase : phases) {
        const Part part{0, active(step), blocks(phase, begin), blocks(phase, end)};
        if (part.block < part.block_end) phase.run(step, part);
        barrier.wait(end - begin);
      }
  });
#else  // parts of other pools may be done one after the other
  for (int64_t step = 0; step < steps; ++step)
    for (const Phase& phase : phases)
      at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
        const Part part{0, active(step), blocks(phase, begin), blocks(phase, end)};
        if (part.block < part.block_end) phase.run(step, part);
      });
#endif
}

// The phases of each step in their order; `forward`: from the first step on. `weights` elements of `size` bytes meet
// every row at every step.
void run_steps(const Order& order, bool forward, int64_t weights, int64_t size, const std::vector<Phase>& phases) {
  const int64_t steps = order.steps, batch = order.batch;
  int64_t work = 2 * weights * batch, threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  auto active = [&](int64_t i) { return order.active(forward ? i : steps - 1 - i); };
  auto rows = [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < steps; ++i)
      if (int64_t last = std::min(end, active(i)); begin < last)
        for (const Phase& phase : phases) phase.run(i, {begin, last, 0, phase.blocks});
  };
  const int64_t least = weights * size <= CACHE ? 4 : MANY;
  if (threads > 1 && batch >= least * threads && work * steps >= 8 * SMALL) {
    const std::vector<int64_t> cuts = order.cuts(threads);
    return at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) { rows(cuts[begin], cuts[end]); });
  }
  if (threads == 1 || work < SMALL) return rows(0, batch);
  int64_t blocks = 0;
  for (const Phase& phase : phases) blocks = std::max(blocks, phase.blocks);
  const int64_t parts = std::min({at_once(threads), blocks, work / (SMALL / 2)});
  if (parts <= 1) return rows(0, batch);
  run_in_step(phases, steps, parts, active);
}

struct Sizes {
  int64_t time, batch, hidden, state, gates;
  Sizes(const Tensor& x, const Tensor& w_hh, Kind kind)
      : time(x.size(0)), batch(x.size(1)), hidden(w_hh.size(0) / gate_count(kind)), state(w_hh.size(1)),
        gates(kind == GRU ? 4 * hidden : gate_count(kind) * hidden) {}
};

Maybe contiguous(const Maybe& t) { return t ? Maybe(t->contiguous()) : t; }
Tensor dense(const Maybe& t) { return t ? t->contiguous() : Tensor(); }
// Weights, which may be narrower than the steps, in their dtype.
Tensor weights_of(const Maybe& t, at::ScalarType dtype) { return t ? t->contiguous().to(dtype) : Tensor(); }

Tensor new_zeros(at::IntArrayRef size, const at::TensorOptions& options) { return at::zeros(size, options); }
Tensor new_empty(at::IntArrayRef size, const at::TensorOptions& options) { return at::empty(size, options); }

// Each row as it is at its last step.
Tensor last_of(const Tensor& all, const Order& order) {
  if (!order.rows) return all.select(0, order.time(order.steps - 1)).clone();
  Tensor result = at::empty({order.batch, all.size(2)}, all.options());
  const std::vector<int64_t> last = order.last();
  for (int64_t row = 0; row < order.batch; ++row) result.select(0, row).copy_(all.select(0, last[row]).select(0, row));
  return result;
}

// --- gates in bfloat16 ---------------------------------------------------------------------------

// What a forward keeps for its backward: nothing, all, or all with the gates in bfloat16.
enum Kept : int64_t { NOTHING = 0, WIDE = 1, NARROW = 2 };

uint16_t narrowed(float x) {  // rounded to even; a NaN stays one
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}

float widened(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// The wide gates of one step, between a kernel and those of all steps in bfloat16.
struct NarrowGates {
  Tensor all, step;
  int64_t hidden, width;  // width: columns of a block

  NarrowGates(const Tensor& gates, int64_t width)
      : all(gates), step(at::empty({gates.size(1), gates.size(2)}, gates.options().dtype(at::kFloat))),
        hidden(gates.size(2) / 4), width(width) {}

  void keep(int64_t time, Part part) const { keep_in(all, step.data_ptr<float>(), time, part); }
  // `wide`, of one step, among those of all steps. (Layers in float64 have none.)
  template <class T> void keep_in(const Tensor& steps, T* wide, int64_t time, Part part) const {
    each(steps, wide, time, part, [](uint16_t& narrow, T& wide) { narrow = narrowed(static_cast<float>(wide)); });
  }
  void read(int64_t time, Part part) const {
    each(all, step.data_ptr<float>(), time, part, [](uint16_t& narrow, float& wide) { wide = widened(narrow); });
  }

 private:
  template <class T, class F> void each(const Tensor& steps, T* wide, int64_t time, Part part, const F& f) const {
    const int64_t row_size = 4 * hidden, begin = part.block * width, end = std::min(part.block_end * width, hidden);
    auto* narrow = static_cast<uint16_t*>(steps.data_ptr()) + time * step.numel();
    for (int64_t row = part.row; row < part.row_end; ++row)
      for (int64_t gate = 0; gate < 4; ++gate)
        for (int64_t i = row * row_size + gate * hidden + begin, last = i + end - begin; i < last; ++i)
          f(narrow[i], wide[i]);
  }
};

// --- forward -------------------------------------------------------------------------------------

using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

template <class T>
Results forward(const Tensor& inputs, const Tensor& h0, const Tensor& c0, const Tensor& w_hh, const Tensor& b_hh,
                const Tensor& w_hr, Kind kind, bool reverse, Kept save, const Maybe& sizes, const Maybe& kept,
                const Maybe& kept_hr) {
  const Sizes n(inputs, w_hh, kind);
  const Order order = order_of(n.time, n.batch, reverse, sizes);
  auto options = inputs.options();
  const bool keeps = save && (kind == LSTM || kind == GRU);
  Tensor bias = b_hh.defined() ? b_hh : at::zeros({w_hh.size(0)}, options), none = at::empty({0}, options);
  auto made = sizes ? new_zeros : new_empty;  // what stands behind the end of a sequence is read by products
  Tensor gates = keeps ? made({n.time, n.batch, n.gates}, save == NARROW ? options.dtype(at::kBFloat16) : options) : none;
  std::optional<NarrowGates> narrow;
  if (keeps && save == NARROW) narrow.emplace(gates, kernels<T>().width(kind));
  Tensor y = made({n.time, n.batch, n.state}, options), cells, full;
  if (kind == LSTM) cells = made({save ? n.time : 1, n.batch, n.hidden}, options);
  Tensor weights = packs(n.time, n.batch, w_hh.nbytes()) ? packed_or<T>(kept, w_hh, kind) : Tensor(), projection;
  if (w_hr.defined()) {
    full = at::empty({n.batch, n.hidden}, options);
    projection = packed_or<T>(kept_hr, w_hr, TANH);
  }
  Forward<T> f{kind, keeps, n.batch, n.hidden, n.state, inputs.stride(0), inputs.stride(1), n.gates,
               narrow ? 0 : n.batch * n.gates, save ? n.batch * n.hidden : 0, pointer<T>(inputs), pointer<T>(h0), pointer<T>(c0), pointer<T>(bias),
               pointer<T>(w_hh), pointer<T>(weights), pointer<T>(narrow ? narrow->step : gates), pointer<T>(cells),
               pointer<T>(y), pointer<T>(full)};
  std::vector<Phase> phases{{blocks_of<T>(n.hidden, kind), [&](int64_t step, Part part) {
                               kernels<T>().forward(f, order.time(step), order.before(step), part);
                               if (narrow) narrow->keep(order.time(step), part);
                             }}};
  if (w_hr.defined())
    phases.push_back({blocks_of<T>(n.state, TANH), [&](int64_t step, Part part) {
                        T* out = f.y + order.time(step) * n.batch * n.state;
                        Product<T> p{f.full, pointer<T>(projection), nullptr, nullptr, out, n.hidden, n.hidden, n.state};
                        kernels<T>().product(p, part);
                      }});
  run_steps(order, true, w_hh.numel() + (w_hr.defined() ? w_hr.numel() : 0), sizeof(T), phases);
  Tensor h = last_of(y, order), c = kind == LSTM ? (save ? last_of(cells, order) : cells.squeeze(0)) : none;
  return {y, h, c, gates, save && kind == LSTM ? cells : none};
}

Results layer(const Tensor& inputs, const Tensor& h0, const Maybe& c0, const Tensor& w_hh, const Maybe& b_hh,
              const Maybe& w_hr, int64_t kind, bool reverse, int64_t save, const Maybe& sizes, const Maybe& kept,
              const Maybe& kept_hr) {
  at::AutoDispatchBelowADInplaceOrView guard;
  TORCH_CHECK(save != NARROW || inputs.scalar_type() == at::kFloat, "recurrent_layer: only gates in float32 are narrowed");
  TORCH_CHECK(inputs.size(0) > 0, "Expected sequence length to be larger than 0 in RNN");
  auto run = inputs.scalar_type() == at::kFloat ? forward<float> : forward<double>;
  return run(inputs.stride(2) == 1 ? inputs : inputs.contiguous(), h0.contiguous(), dense(c0), w_hh.contiguous(),
             dense(b_hh), dense(w_hr), static_cast<Kind>(kind), reverse, static_cast<Kept>(save), contiguous(sizes), kept, kept_hr);
}

// --- backward ------------------------------------------------------------------------------------

struct Given {
  Tensor h0, c0, w_hh, w_hr, y, gates, cells, dy, dh, dc;
  Maybe sizes;
  Kind kind;
  bool reverse, states;
};

// Of the gates (GRU: of n by the input, r, z, n by the state), of both states, and of a projected layer's results.
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor>;

template <class T> Gradients backward(const Given& g) {
  const Sizes n(g.y, g.w_hh, g.kind);
  const Order order = order_of(n.time, n.batch, g.reverse, g.sizes);
  const bool projected = g.w_hr.defined();
  const int64_t skipped = g.kind == GRU ? n.hidden : 0, given = n.gates - skipped;
  auto options = g.y.options();
  auto made = g.sizes ? new_zeros : new_empty;
  Tensor weights = packed<T>(weights_of(g.w_hh, g.y.scalar_type()), TANH, true);
  const bool narrows = g.gates.scalar_type() == at::kBFloat16;
  Tensor dgates = made({n.time, n.batch, n.gates}, narrows ? options.dtype(at::kBFloat16) : options);
  // Narrow ones of two steps are wide at a time: those that a step makes, and those of the step after, which it reads.
  Tensor wide = narrows ? at::empty({2, n.batch, n.gates}, options) : dgates;
  auto dgates_of = [&](int64_t step) {
    return pointer<T>(wide) + (narrows ? step % 2 : order.time(step)) * n.batch * n.gates;
  };
  Tensor none = at::empty({0}, options), carry = none, dh0 = none, dstate = none, projection;
  if (g.kind == LSTM) carry = g.dc.defined() ? g.dc.clone() : at::zeros({n.batch, n.hidden}, options);
  if (g.kind == GRU) carry = at::empty({n.batch, n.hidden}, options);
  if (projected) {
    projection = packed<T>(weights_of(g.w_hr, g.y.scalar_type()), TANH, true);
    dstate = made({n.time, n.batch, n.state}, options);
  }
  std::optional<NarrowGates> narrow;
  if (narrows) narrow.emplace(g.gates, kernels<T>().width(TANH));
  Backward<T> b{g.kind, n.batch, n.hidden, n.state, given, n.gates, narrow ? 0 : n.batch * n.gates, n.gates,
                pointer<T>(g.h0), pointer<T>(g.c0), pointer<T>(narrow ? narrow->step : g.gates), pointer<T>(g.cells), pointer<T>(g.y), pointer<T>(weights), pointer<T>(g.dy),
                pointer<T>(g.dh), nullptr, pointer<T>(carry)};
  // The product of the step after, by which the gradient comes back to this step's state.
  auto after = [&](int64_t step, bool last) -> const T* {
    return last ? nullptr : dgates_of(step + 1) + skipped;
  };
  // Rows that have a step after this one, and those that have none.
  auto split = [&](int64_t step, Part part, auto&& run) {
    const int64_t cut = std::clamp(order.active(step + 1), part.row, part.row_end);
    if (part.row < cut) run(Part{part.row, cut, part.block, part.block_end}, false);
    if (cut < part.row_end) run(Part{cut, part.row_end, part.block, part.block_end}, true);
  };
  auto state_gradient = [&](int64_t step, Part part) {
    int64_t at = order.time(step) * n.batch * n.state;
    split(step, part, [&](Part rows, bool last) {
      Product<T> p{after(step, last), b.packed, b.dy ? b.dy + at : nullptr, last ? b.dh : nullptr,
                   pointer<T>(dstate) + at, given, n.gates, n.state};
      kernels<T>().product(p, rows);
    });
  };
  Backward<T> cell = b;
  if (projected) {
    cell.given = cell.given_row = n.state;
    cell.packed = pointer<T>(projection);
    cell.dy = cell.dh = nullptr;
  }
  std::vector<Phase> phases;
  if (projected)
    phases.push_back({blocks_of<T>(n.state, TANH), [&](int64_t i, Part part) { state_gradient(n.time - 1 - i, part); }});
  phases.push_back({blocks_of<T>(n.hidden, TANH), [&](int64_t i, Part part) {
                      int64_t step = n.time - 1 - i, t = order.time(step);
                      const T* state = projected ? pointer<T>(dstate) + t * n.batch * n.state : nullptr;
                      if (narrow) narrow->read(t, part);
                      Backward<T> of_step = cell;
                      of_step.dgates = dgates_of(step);
                      split(step, part, [&](Part rows, bool last) {
                        const T* a = projected ? state : after(step, last);
                        kernels<T>().backward(of_step, t, order.before(step), a, last, rows);
                      });
                      if (narrow) narrow->keep_in(dgates, of_step.dgates, t, part);
                    }});
  run_steps(order, false, g.w_hh.numel() + (projected ? g.w_hr.numel() : 0), sizeof(T), phases);
  if (g.states) {
    dh0 = at::empty({n.batch, n.state}, options);
    Product<T> p{dgates_of(0) + skipped, b.packed, g.kind == GRU ? b.carry : nullptr,
                 nullptr, pointer<T>(dh0), given, n.gates, n.state};
    kernels<T>().product(p, {0, n.batch, 0, blocks_of<T>(n.state, TANH)});
  }
  return {dgates, dh0, g.kind == LSTM ? carry : none, dstate};
}

Gradients layer_backward(const Tensor& h0, const Maybe& c0, const Tensor& w_hh, const Maybe& w_hr, const Tensor& y,
                         const Tensor& gates, const Tensor& cells, const Maybe& dy, const Maybe& dh, const Maybe& dc,
                         int64_t kind, bool reverse, bool states, const Maybe& sizes) {
  at::AutoDispatchBelowADInplaceOrView guard;
  Given g{h0.contiguous(), dense(c0), w_hh, w_hr ? *w_hr : Tensor(), y.contiguous(), gates.contiguous(),
          cells.contiguous(), dense(dy), dense(dh), dense(dc), contiguous(sizes), static_cast<Kind>(kind), reverse, states};
  return y.scalar_type() == at::kFloat ? backward<float>(g) : backward<double>(g);
}

TORCH_LIBRARY_IMPL(framegraph, CPU, m) {
  m.impl("recurrent_layer", layer);
  m.impl("recurrent_weights", pack_weights);
  m.impl("recurrent_layer_backward", layer_backward);
}

// width(kind, double) -> columns of a block of packed weights
PyObject* width(PyObject*, PyObject* args) {
  int kind = 0, wide = 0;
  if (!PyArg_ParseTuple(args, "ip", &kind, &wide)) return nullptr;
  const Kind of = static_cast<Kind>(kind);
  return PyLong_FromLongLong(wide ? kernels<double>().width(of) : kernels<float>().width(of));
}

// packs(time, batch, bytes) -> whether the steps read w_hh, of so many bytes, packed
PyObject* reads_packed(PyObject*, PyObject* args) {
  long long time = 0, batch = 0, bytes = 0;
  if (!PyArg_ParseTuple(args, "LLL", &time, &batch, &bytes)) return nullptr;
  return PyBool_FromLong(packs(time, batch, static_cast<size_t>(bytes)));
}

PyMethodDef methods[] = {{"width", width, METH_VARARGS, "Columns of a block of packed weights."},
                         {"packs", reads_packed, METH_VARARGS, "Whether the steps read w_hh packed."},
                         {}};

PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "_recurrent", "Kernels of recurrent layers.", -1,
                          methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace framegraph::recurrent

PyMODINIT_FUNC PyInit__recurrent() { return PyModule_Create(&framegraph::recurrent::module_def); }
