// framegraph::recurrent_layer: one direction of one recurrent layer over all of time, and its backward.
//
// In training, the products with the inputs of all steps are one matrix product before, those of the weights' gradients
// one after it: operators of the graph (recurrent.py). In inference, the first are made here, of a few steps at a time. A
// step is one kernel (steps.h): the product with the state before, and the cell.
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
constexpr int64_t ROWS = 64;           // of inputs whose products are made at a time, at least
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

// Weights [gates * columns, rows] of a kind, or with `natural` [rows, columns], packed for products. Those in bfloat16
// are widened on the way.
template <class T> int64_t packed_size(const Tensor& weights, Kind kind, bool natural) {
  const int64_t gates = natural ? 1 : gate_count(kind), columns = weights.size(natural ? 1 : 0) / gates;
  return blocks_of<T>(columns, kind) * kernels<T>().width(kind) * gates * weights.size(natural ? 0 : 1);
}

template <class T>
Tensor packed(const Tensor& weights, Kind kind, bool natural, const Tensor* into = nullptr) {
  int64_t gates = natural ? 1 : gate_count(kind), rows = weights.size(natural ? 0 : 1);
  int64_t columns = weights.size(natural ? 1 : 0) / gates, blocks = blocks_of<T>(columns, kind);
  const auto options = weights.options().dtype(c10::CppTypeToScalarType<T>::value);
  TORCH_CHECK(!into || (into->numel() == packed_size<T>(weights, kind, natural) && into->is_contiguous()),
              "recurrent_weights: memory of another form");
  Tensor result = into ? *into : at::empty({packed_size<T>(weights, kind, natural)}, options);
  int64_t grain = std::max<int64_t>(1, blocks * 16384 / std::max<int64_t>(1, weights.numel()));
  auto pack = [&](auto* source, auto* run) {
    const Packing<T, std::remove_const_t<std::remove_pointer_t<decltype(source)>>> p{
        source, pointer<T>(result), rows, columns, natural ? columns : 1, natural ? 1 : rows, columns * rows};
    at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) { run(p, kind, begin, end); });
  };
  if (weights.scalar_type() == at::kBFloat16)
    pack(static_cast<const uint16_t*>(weights.const_data_ptr()), kernels<T>().pack_narrow);
  else pack(static_cast<const T*>(pointer<T>(weights)), kernels<T>().pack);
  return result;
}

// As packed() makes them of contiguous weights, or made before.
template <class T> Tensor packed_or(const Maybe& kept, const Tensor& weights, Kind kind, bool natural = false) {
  if (!kept) return packed<T>(weights, kind, natural);
  const int64_t size = packed_size<T>(weights, kind, natural);
  TORCH_CHECK(kept->numel() == size && kept->is_contiguous() && kept->scalar_type() == c10::CppTypeToScalarType<T>::value,
              "recurrent_layer: packed weights of another form");
  return *kept;
}

Tensor pack(const Tensor& weights, int64_t kind, bool natural, const Tensor* into) {
  auto run = weights.scalar_type() == at::kDouble ? packed<double> : packed<float>;
  return run(weights.contiguous(), static_cast<Kind>(kind), natural, into);
}

Tensor pack_weights(const Tensor& weights, int64_t kind, bool natural) { return pack(weights, kind, natural, nullptr); }

void pack_weights_out(const Tensor& weights, int64_t kind, bool natural, Tensor packed) {
  at::AutoDispatchBelowADInplaceOrView guard;
  pack(weights, kind, natural, &packed);
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
// every row at every step, `others` once in a few steps.
void run_steps(const Order& order, bool forward, int64_t weights, int64_t others, int64_t size,
               const std::vector<Phase>& phases) {
  const int64_t steps = order.steps, batch = order.batch;
  int64_t work = 2 * (weights + others) * batch, threads = at::in_parallel_region() ? 1 : at::get_num_threads();
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
// Each row as it is at its last step.
void copy_last(const Tensor& all, const Order& order, const Tensor& result) {
  if (!order.rows) {
    result.copy_(all.select(0, order.time(order.steps - 1)));
    return;
  }
  const std::vector<int64_t> last = order.last();
  for (int64_t row = 0; row < order.batch; ++row) result.select(0, row).copy_(all.select(0, last[row]).select(0, row));
}

// --- tensors in bfloat16 -------------------------------------------------------------------------

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

bool is_narrow(const Tensor& t) { return t.defined() && t.scalar_type() == at::kBFloat16; }

// A tensor [time, batch, gates * columns] in bfloat16, of which kernels see one step at a time in float32, contiguous.
// A part's columns are those of its blocks, of `width`, in each gate. (Layers in float64 have none.)
class Narrow {
 public:
  Narrow() = default;
  Narrow(const Tensor& all, int64_t gates, int64_t width)
      : data_(static_cast<uint16_t*>(all.data_ptr())), time_(all.stride(0)), row_(all.stride(1)), gates_(gates),
        size_(all.size(2) / gates), width_(width) {}

  template <class T> void read(int64_t time, Part part, T* wide) const {
    each(time, part, [&](uint16_t& narrow, int64_t at, int64_t) { wide[at] = widened(narrow); });
  }
  template <class T> void read_with(const T* bias, int64_t time, Part part, T* wide) const {
    each(time, part, [&](uint16_t& narrow, int64_t at, int64_t column) { wide[at] = widened(narrow) + bias[column]; });
  }
  template <class T> void keep(int64_t time, Part part, const T* wide) const {
    each(time, part, [&](uint16_t& narrow, int64_t at, int64_t) { narrow = narrowed(static_cast<float>(wide[at])); });
  }

 private:
  template <class F> void each(int64_t time, Part part, const F& f) const {
    const int64_t begin = part.block * width_, end = std::min(part.block_end * width_, size_);
    for (int64_t row = part.row; row < part.row_end; ++row)
      for (int64_t gate = 0; gate < gates_; ++gate) {
        uint16_t* narrow = data_ + time * time_ + row * row_;
        for (int64_t column = gate * size_ + begin, last = column + end - begin; column < last; ++column)
          f(narrow[column], row * gates_ * size_ + column, column);
      }
  }

  uint16_t* data_ = nullptr;
  int64_t time_ = 0, row_ = 0, gates_ = 0, size_ = 0, width_ = 0;
};

// --- forward -------------------------------------------------------------------------------------

struct Layer {
  Tensor inputs, h0, c0, w_hh, b_hh, w_hr, b_ih;
  Maybe sizes, packed, packed_hr, packed_ih;  // packed_ih: of inputs that are not yet gates'
  Kind kind;
  bool reverse, save;
};

// Contiguous; those that a kind has not, or that nothing wants, have no elements. c: of a layer in the dtype of its
// steps that saves no cells, the memory of its cell.
struct Results {
  Tensor y, h, c, gates, cells;
};

// The gates' parts of inputs, made of the rows of a few steps at a time. A part's columns are read by itself alone.
template <class T> class InputProducts {
 public:
  InputProducts(const Layer& g, const Order& order, const Tensor& bias, const at::TensorOptions& options)
      : x_(g.inputs), packed_(*g.packed_ih), bias_(bias), order_(order), kind_(g.kind),
        hidden_(g.w_hh.size(0) / gate_count(g.kind)), columns_(g.w_hh.size(0)),
        span_(std::clamp<int64_t>(ROWS / order.batch, 1, order.steps)),
        made_(at::empty({span_, order.batch, columns_}, options)) {
    TORCH_CHECK(!order.rows && packed_.is_contiguous() && packed_.scalar_type() == made_.scalar_type() &&
                packed_.numel() == blocks_of<T>(hidden_, kind_) * kernels<T>().width(kind_) * gate_count(kind_) * x_.size(2),
                "recurrent_layer: packed weights of another form");
  }
  // The first time whose inputs `data` has where it has those of a step.
  int64_t begin(int64_t step) const {
    const int64_t first = step - step % span_, last = std::min(first + span_, order_.steps) - 1;
    return std::min(order_.time(first), order_.time(last));
  }
  const T* data() const { return pointer<T>(made_); }
  void make(int64_t step, Part part) const {
    if (step % span_) return;
    const int64_t steps = std::min(span_, order_.steps - step), k = x_.size(2), rows = part.row_end - part.row;
    Inputs<T> p{nullptr, pointer<T>(packed_), pointer<T>(bias_), pointer<T>(made_), k, hidden_, steps,
                x_.stride(0), x_.stride(1), order_.batch * columns_, columns_};
    const int64_t at = begin(step) * p.x_time;
    if (!is_narrow(x_)) {
      p.x = pointer<T>(x_) + at;
      return kernels<T>().inputs(p, kind_, part);
    }
    std::vector<T> wide(steps * rows * k);
    const uint16_t* x = static_cast<const uint16_t*>(x_.const_data_ptr()) + at + part.row * p.x_row;
    for (int64_t i = 0; i < steps * rows; ++i)
      for (int64_t j = 0; j < k; ++j) wide[i * k + j] = widened(x[i / rows * p.x_time + i % rows * p.x_row + j]);
    p.x_time = rows * k, p.x_row = k;
    p.x = wide.data() - part.row * k;
    kernels<T>().inputs(p, kind_, part);
  }

 private:
  const Tensor x_, packed_, bias_;
  const Order& order_;
  const Kind kind_;
  const int64_t hidden_, columns_, span_;
  const Tensor made_;
};

template <class T> void forward(const Layer& g, const Results& out) {
  const Sizes n(g.inputs, g.w_hh, g.kind);
  const Order order = order_of(n.time, n.batch, g.reverse, g.sizes);
  const bool narrow = is_narrow(g.inputs), gated = g.kind == LSTM || g.kind == GRU, keeps = g.save && gated;
  const auto dtype = c10::CppTypeToScalarType<T>::value;
  const auto options = g.inputs.options().dtype(dtype);
  if (g.sizes)  // what stands behind the end of a sequence is read by products
    for (const Tensor& t : {out.y, out.gates, out.cells}) t.zero_();
  auto steps = [&](bool used, at::IntArrayRef size) { return used ? at::empty(size, options) : Tensor(); };
  const Tensor bias = g.b_hh.defined() ? g.b_hh.to(dtype) : at::zeros({g.w_hh.size(0)}, options);
  const bool multiplies = g.packed_ih.has_value(), reads = narrow && !multiplies;
  const Tensor b_ih = g.b_ih.defined() ? g.b_ih.to(dtype)
                                       : at::zeros({reads || multiplies ? g.w_hh.size(0) : 0}, options);
  const Tensor h0 = g.h0.to(dtype);
  Tensor wide_in = steps(reads, {n.batch, g.w_hh.size(0)}), wide_y = steps(narrow, {2, n.batch, n.state});
  Tensor wide_gates = steps(narrow && keeps, {n.batch, n.gates});
  Tensor cells = g.kind != LSTM ? Tensor() : narrow ? g.c0.to(dtype) : g.save ? out.cells : out.c;
  const bool packing = packs(n.time, n.batch, g.w_hh.numel() * sizeof(T));
  const Tensor weights = packing ? packed_or<T>(g.packed, g.w_hh, g.kind) : Tensor();
  const Tensor plain = packing ? Tensor() : g.w_hh.to(dtype);
  Tensor full, projection;
  if (g.w_hr.defined()) {
    full = at::empty({n.batch, n.hidden}, options);
    projection = packed_or<T>(g.packed_hr, g.w_hr, TANH);
  }
  const int64_t width = kernels<T>().width(g.kind);
  Narrow of_inputs, of_y, of_gates, of_cells;
  if (narrow) {
    if (reads) of_inputs = Narrow(g.inputs, gate_count(g.kind), width);
    of_y = Narrow(out.y, 1, g.w_hr.defined() ? kernels<T>().width(TANH) : width);
    if (keeps) of_gates = Narrow(out.gates, 4, width);
    if (g.kind == LSTM && g.save) of_cells = Narrow(out.cells, 1, width);
  }
  auto y_of = [&](int64_t step) {
    return narrow ? pointer<T>(wide_y) + step % 2 * n.batch * n.state
                  : pointer<T>(out.y) + order.time(step) * n.batch * n.state;
  };
  const std::optional<InputProducts<T>> products =
      multiplies ? std::make_optional<InputProducts<T>>(g, order, b_ih, options) : std::nullopt;
  const int64_t columns = g.w_hh.size(0);
  Forward<T> f{g.kind, keeps, n.batch, n.hidden, n.state,
               multiplies ? n.batch * columns : narrow ? 0 : g.inputs.stride(0),
               multiplies || narrow ? columns : g.inputs.stride(1), 0, n.gates,
               n.batch * n.gates, g.save ? n.batch * n.hidden : 0,
               products ? products->data() : narrow ? pointer<T>(wide_in) : pointer<T>(g.inputs), pointer<T>(h0),
               narrow ? pointer<T>(cells) : pointer<T>(g.c0), pointer<T>(bias), pointer<T>(plain), pointer<T>(weights),
               keeps ? pointer<T>(narrow ? wide_gates : out.gates) : nullptr, pointer<T>(cells),
               narrow ? nullptr : pointer<T>(out.y), pointer<T>(full)};
  auto narrow_step = [&](int64_t step, Part part) {
    const int64_t t = order.time(step);
    Forward<T> now = f;
    if (products) now.inputs += (t - products->begin(step)) * f.input_time;
    else of_inputs.read_with(pointer<T>(b_ih), t, part, pointer<T>(wide_in));
    now.h0 = step ? y_of(step - 1) : f.h0;
    now.y = y_of(step);
    kernels<T>().forward(now, 0, -1, part);
    if (keeps) of_gates.keep(t, part, now.gates);
    if (g.kind == LSTM && g.save) of_cells.keep(t, part, now.cells);
    if (!g.w_hr.defined()) of_y.keep(t, part, now.y);
  };
  std::vector<Phase> phases{{blocks_of<T>(n.hidden, g.kind), [&](int64_t step, Part part) {
                               if (products) products->make(step, part);
                               if (narrow) return narrow_step(step, part);
                               Forward<T> now = f;
                               if (products) now.input_begin = products->begin(step);
                               kernels<T>().forward(now, order.time(step), order.before(step), part);
                             }}};
  if (g.w_hr.defined())
    phases.push_back({blocks_of<T>(n.state, TANH), [&](int64_t step, Part part) {
                        T* y = y_of(step);
                        Product<T> p{f.full, pointer<T>(projection), nullptr, nullptr, y, n.hidden, n.hidden, n.state};
                        kernels<T>().product(p, part);
                        if (narrow) of_y.keep(order.time(step), part, y);
                      }});
  const int64_t of_inputs_once = multiplies ? g.packed_ih->numel() : 0;
  run_steps(order, true, g.w_hh.numel() + (g.w_hr.defined() ? g.w_hr.numel() : 0), of_inputs_once, sizeof(T), phases);
  copy_last(out.y, order, out.h);
  if (g.kind == LSTM && narrow) out.c.copy_(cells);
  else if (g.kind == LSTM && g.save) copy_last(cells, order, out.c);
}

void run_forward(const Tensor& inputs, const Tensor& h0, const Maybe& c0, const Tensor& w_hh, const Maybe& b_hh,
                 const Maybe& w_hr, int64_t kind, bool reverse, bool save, const Maybe& sizes, const Maybe& packed,
                 const Maybe& packed_hr, const Maybe& b_ih, const Maybe& w_ih, const Maybe& packed_ih,
                 const Results& out) {
  TORCH_CHECK(inputs.size(0) > 0, "Expected sequence length to be larger than 0 in RNN");
  TORCH_CHECK(!b_ih || w_ih || is_narrow(inputs), "recurrent_layer: only inputs in bfloat16 are without their bias");
  TORCH_CHECK(!packed_ih || w_ih, "recurrent_layer: packed weights of no inputs");
  // Weights that are not packed yet are read as they are, once, for all steps; not in bfloat16, for which processors may
  // have no instructions.
  const bool narrow = is_narrow(inputs), whole = w_ih && !packed_ih && !narrow;
  const Tensor given = whole ? at::linear(inputs, *w_ih, b_ih) : inputs;
  const Maybe packed_now = w_ih && !packed_ih && narrow
                               ? Maybe(framegraph::recurrent::packed<float>(w_ih->contiguous(), static_cast<Kind>(kind), false))
                               : packed_ih;
  const Layer g{given.stride(2) == 1 ? given : given.contiguous(), h0.contiguous(), dense(c0), w_hh.contiguous(),
                dense(b_hh), dense(w_hr), whole ? Tensor() : dense(b_ih), contiguous(sizes), packed, packed_hr,
                packed_now, static_cast<Kind>(kind), reverse, save};
  (inputs.scalar_type() == at::kDouble ? forward<double> : forward<float>)(g, out);
}

using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

Five layer(const Tensor& inputs, const Tensor& h0, const Maybe& c0, const Tensor& w_hh, const Maybe& b_hh,
           const Maybe& w_hr, int64_t kind, bool reverse, bool save, const Maybe& sizes, const Maybe& packed,
           const Maybe& packed_hr, const Maybe& b_ih, const Maybe& w_ih, const Maybe& packed_ih) {
  at::AutoDispatchBelowADInplaceOrView guard;
  const Sizes n(inputs, w_hh, static_cast<Kind>(kind));
  const bool lstm = kind == LSTM, gates = save && (lstm || kind == GRU);
  auto made = [&](bool wanted, std::vector<int64_t> size) {
    return at::empty(wanted ? size : std::vector<int64_t>{0}, inputs.options());
  };
  const Results out{made(true, {n.time, n.batch, n.state}), made(true, {n.batch, n.state}),
                    made(lstm, {n.batch, n.hidden}), made(gates, {n.time, n.batch, n.gates}),
                    made(save && lstm, {n.time, n.batch, n.hidden})};
  run_forward(inputs, h0, c0, w_hh, b_hh, w_hr, kind, reverse, save, sizes, packed, packed_hr, b_ih, w_ih, packed_ih,
              out);
  return {out.y, out.h, out.c, out.gates, out.cells};
}

void layer_out(const Tensor& inputs, const Tensor& h0, const Maybe& c0, const Tensor& w_hh, const Maybe& b_hh,
               const Maybe& w_hr, int64_t kind, bool reverse, bool save, const Maybe& sizes, const Maybe& packed,
               const Maybe& packed_hr, const Maybe& b_ih, const Maybe& w_ih, const Maybe& packed_ih, Tensor y,
               Tensor h, Tensor c, Tensor gates, Tensor cells) {
  at::AutoDispatchBelowADInplaceOrView guard;
  run_forward(inputs, h0, c0, w_hh, b_hh, w_hr, kind, reverse, save, sizes, packed, packed_hr, b_ih, w_ih, packed_ih,
              {y, h, c, gates, cells});
}

// --- backward ------------------------------------------------------------------------------------

struct Given {
  Tensor h0, c0, w_hh, w_hr, y, gates, cells, dy, dh, dc;
  Maybe sizes, packed, packed_hr;
  Kind kind;
  bool reverse, states;
};

// Of the gates (GRU: of n by the input, r, z, n by the state), of both states, and of a projected layer's results; as
// Results are.
struct Gradients {
  Tensor gates, h0, c0, projected;
};

template <class T> void backward(const Given& g, const Gradients& out) {
  const Sizes n(g.y, g.w_hh, g.kind);
  const Order order = order_of(n.time, n.batch, g.reverse, g.sizes);
  const bool projected = g.w_hr.defined(), narrow = is_narrow(g.y), gated = g.kind == LSTM || g.kind == GRU;
  const int64_t skipped = g.kind == GRU ? n.hidden : 0, given = n.gates - skipped, row = n.batch * n.state;
  const auto dtype = c10::CppTypeToScalarType<T>::value;
  const auto options = g.y.options().dtype(dtype);
  if (g.sizes)
    for (const Tensor& t : {out.gates, out.projected}) t.zero_();
  auto in_steps = [&](const Tensor& t) { return t.defined() ? t.to(dtype) : t; };
  auto steps = [&](bool used, at::IntArrayRef size) { return used ? at::empty(size, options) : Tensor(); };
  const Tensor h0 = in_steps(g.h0), c0 = in_steps(g.c0), dh = in_steps(g.dh);
  const Tensor weights = packed_or<T>(g.packed, g.w_hh, TANH, true);
  const Tensor projection = projected ? packed_or<T>(g.packed_hr, g.w_hr, TANH, true) : Tensor();
  // Wide ones of two steps at a time: those that a step makes, and those of the step after, which it reads.
  const Tensor dgates = narrow ? at::empty({2, n.batch, n.gates}, options) : out.gates;
  auto dgates_of = [&](int64_t step) {
    return pointer<T>(dgates) + (narrow ? step % 2 : order.time(step)) * n.batch * n.gates;
  };
  Tensor carry = g.kind == LSTM && !narrow ? out.c0 : steps(gated, {n.batch, n.hidden});
  if (g.kind == LSTM && g.dc.defined()) carry.copy_(g.dc);
  else if (g.kind == LSTM) carry.zero_();
  const Tensor dstate = narrow ? steps(projected, {n.batch, n.state}) : out.projected;
  auto dstate_of = [&](int64_t t) { return pointer<T>(dstate) + (narrow ? 0 : t * row); };

  // One step of what is narrow: at the step, and before it.
  const int64_t width = kernels<T>().width(TANH);
  Narrow of_gates, of_cells, of_y, of_dy, of_dgates, of_dstate;
  Tensor gates = g.gates, cells = g.cells, cells_before, y = g.y, dy = g.dy;
  if (narrow) {
    of_dgates = Narrow(out.gates, gated ? 4 : 1, width);
    of_y = Narrow(g.y, 1, width);
    if (gated) of_gates = Narrow(g.gates, 4, width);
    if (g.kind == LSTM) of_cells = Narrow(g.cells, 1, width);
    if (dy.defined()) of_dy = Narrow(g.dy, 1, width);
    if (projected) of_dstate = Narrow(out.projected, 1, width);
    gates = steps(gated, {n.batch, n.gates});
    cells = steps(g.kind == LSTM, {n.batch, n.hidden});
    cells_before = steps(g.kind == LSTM, {n.batch, n.hidden});
    y = steps(g.kind != LSTM, {n.batch, n.state});
    dy = steps(dy.defined(), {n.batch, n.state});
  }
  Backward<T> b{g.kind, n.batch, n.hidden, n.state, given, n.gates, n.batch * n.gates, n.gates, pointer<T>(h0),
                pointer<T>(c0), gated ? pointer<T>(gates) : nullptr, g.kind == LSTM ? pointer<T>(cells) : nullptr,
                pointer<T>(y), pointer<T>(weights), pointer<T>(dy), pointer<T>(dh), nullptr, pointer<T>(carry)};
  // The product of the step after, by which the gradient comes back to this step's state.
  auto after = [&](int64_t step, bool last) -> const T* { return last ? nullptr : dgates_of(step + 1) + skipped; };
  // Rows that have a step after this one, and those that have none.
  auto split = [&](int64_t step, Part part, auto&& run) {
    const int64_t cut = std::clamp(order.active(step + 1), part.row, part.row_end);
    if (part.row < cut) run(Part{part.row, cut, part.block, part.block_end}, false);
    if (cut < part.row_end) run(Part{cut, part.row_end, part.block, part.block_end}, true);
  };
  auto state_gradient = [&](int64_t step, Part part) {
    const int64_t t = order.time(step);
    if (narrow && b.dy) of_dy.read(t, part, pointer<T>(dy));
    const T* dy_step = b.dy && !narrow ? b.dy + t * row : b.dy;
    split(step, part, [&](Part rows, bool last) {
      Product<T> p{after(step, last), b.packed, dy_step, last ? b.dh : nullptr, dstate_of(t), given, n.gates, n.state};
      kernels<T>().product(p, rows);
    });
    if (narrow) of_dstate.keep(t, part, dstate_of(t));
  };
  Backward<T> cell = b;
  if (projected) {
    cell.given = cell.given_row = n.state;
    cell.packed = pointer<T>(projection);
    cell.dy = cell.dh = nullptr;
  }
  auto widen_step = [&](int64_t t, int64_t before, Part part, Backward<T>& now) {
    if (gated) of_gates.read(t, part, pointer<T>(gates));
    if (now.dy) of_dy.read(t, part, pointer<T>(dy));
    if (g.kind == LSTM) of_cells.read(t, part, pointer<T>(cells));
    if (g.kind == LSTM && before >= 0) of_cells.read(before, part, pointer<T>(cells_before));
    if (g.kind == LSTM && before >= 0) now.c0 = pointer<T>(cells_before);
    if (!gated) of_y.read(t, part, pointer<T>(y));
    if (g.kind == GRU && before >= 0) of_y.read(before, part, pointer<T>(y));
    if (g.kind == GRU && before >= 0) now.h0 = now.y;
  };
  std::vector<Phase> phases;
  if (projected)
    phases.push_back({blocks_of<T>(n.state, TANH),
                      [&](int64_t i, Part part) { state_gradient(n.time - 1 - i, part); }});
  phases.push_back({blocks_of<T>(n.hidden, TANH), [&](int64_t i, Part part) {
                      const int64_t step = n.time - 1 - i, t = order.time(step), before = order.before(step);
                      Backward<T> now = cell;
                      now.dgates = dgates_of(step);
                      if (narrow) widen_step(t, before, part, now);
                      split(step, part, [&](Part rows, bool last) {
                        const T* a = projected ? dstate_of(t) : after(step, last);
                        kernels<T>().backward(now, narrow ? 0 : t, narrow ? -1 : before, a, last, rows);
                      });
                      if (narrow) of_dgates.keep(t, part, now.dgates);
                    }});
  run_steps(order, false, g.w_hh.numel() + (projected ? g.w_hr.numel() : 0), 0, sizeof(T), phases);
  if (g.states) {
    const Tensor made = narrow ? at::empty({n.batch, n.state}, options) : out.h0;
    Product<T> p{dgates_of(0) + skipped, b.packed, g.kind == GRU ? b.carry : nullptr,
                 nullptr, pointer<T>(made), given, n.gates, n.state};
    kernels<T>().product(p, {0, n.batch, 0, blocks_of<T>(n.state, TANH)});
    if (narrow) out.h0.copy_(made);
  }
  if (g.kind == LSTM && narrow) out.c0.copy_(carry);
}

void run_backward(const Tensor& h0, const Maybe& c0, const Tensor& w_hh, const Maybe& w_hr, const Tensor& y,
                  const Tensor& gates, const Tensor& cells, const Maybe& dy, const Maybe& dh, const Maybe& dc,
                  int64_t kind, bool reverse, bool states, const Maybe& sizes, const Maybe& packed,
                  const Maybe& packed_hr, const Gradients& out) {
  const Given g{h0.contiguous(), dense(c0), w_hh.contiguous(), dense(w_hr), y.contiguous(), gates.contiguous(),
                cells.contiguous(), dense(dy), dense(dh), dense(dc), contiguous(sizes), packed, packed_hr,
                static_cast<Kind>(kind), reverse, states};
  (y.scalar_type() == at::kDouble ? backward<double> : backward<float>)(g, out);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> layer_backward(
    const Tensor& h0, const Maybe& c0, const Tensor& w_hh, const Maybe& w_hr, const Tensor& y, const Tensor& gates,
    const Tensor& cells, const Maybe& dy, const Maybe& dh, const Maybe& dc, int64_t kind, bool reverse, bool states,
    const Maybe& sizes, const Maybe& packed, const Maybe& packed_hr) {
  at::AutoDispatchBelowADInplaceOrView guard;
  const Sizes n(y, w_hh, static_cast<Kind>(kind));
  auto made = [&](bool wanted, std::vector<int64_t> size) {
    return at::empty(wanted ? size : std::vector<int64_t>{0}, y.options());
  };
  const Gradients out{made(true, {n.time, n.batch, n.gates}), made(states, {n.batch, n.state}),
                      made(kind == LSTM, {n.batch, n.hidden}), made(w_hr.has_value(), {n.time, n.batch, n.state})};
  run_backward(h0, c0, w_hh, w_hr, y, gates, cells, dy, dh, dc, kind, reverse, states, sizes, packed, packed_hr, out);
  return {out.gates, out.h0, out.c0, out.projected};
}

void layer_backward_out(const Tensor& h0, const Maybe& c0, const Tensor& w_hh, const Maybe& w_hr, const Tensor& y,
                        const Tensor& gates, const Tensor& cells, const Maybe& dy, const Maybe& dh, const Maybe& dc,
                        int64_t kind, bool reverse, bool states, const Maybe& sizes, const Maybe& packed,
                        const Maybe& packed_hr, Tensor of_gates, Tensor of_h0, Tensor of_c0, Tensor of_projected) {
  at::AutoDispatchBelowADInplaceOrView guard;
  run_backward(h0, c0, w_hh, w_hr, y, gates, cells, dy, dh, dc, kind, reverse, states, sizes, packed, packed_hr,
               {of_gates, of_h0, of_c0, of_projected});
}

TORCH_LIBRARY_IMPL(framegraph, CPU, m) {
  m.impl("recurrent_layer", layer);
  m.impl("recurrent_layer.out", layer_out);
  m.impl("recurrent_weights", pack_weights);
  m.impl("recurrent_weights.out", pack_weights_out);
  m.impl("recurrent_layer_backward", layer_backward);
  m.impl("recurrent_layer_backward.out", layer_backward_out);
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
