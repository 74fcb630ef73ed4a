#include "run.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fg {
namespace {

constexpr size_t kCacheLine = 64;

std::string text(const int64_t* numbers, size_t count) {
  std::string made = "(";
  for (size_t i = 0; i < count; ++i) made += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return made + ")";
}

std::string text(const std::vector<int64_t>& numbers) { return text(numbers.data(), numbers.size()); }

// Arithmetic that notes where a number overflows.
struct Checked {
  bool fits = true;

  int64_t of(integers::Op op, int64_t a, int64_t b) {
    int64_t result = 0;
    fits = integers::compute(op, a, b, &result) && fits;
    return result;
  }
  int64_t add(int64_t a, int64_t b) { return of(integers::Add, a, b); }
  int64_t mul(int64_t a, int64_t b) { return of(integers::Mul, a, b); }
};

// Bytes from the first element to past the last; -1 if that is more than there can be.
int64_t extent(const int64_t* size, const int64_t* stride, size_t dims, int64_t element) {
  Checked number;
  int64_t last = 0;
  for (size_t d = 0; d < dims; ++d) {
    if (size[d] == 0) return 0;
  }
  for (size_t d = 0; d < dims; ++d) last = number.add(last, number.mul(size[d] - 1, stride[d]));
  const int64_t bytes = number.mul(number.add(last, 1), element);
  return number.fits ? bytes : -1;
}

// A result in the hands of the caller.
struct Owned {
  DLManagedTensor tensor;
  std::shared_ptr<void> memory;
  std::vector<int64_t> size, stride;
};

void release(DLManagedTensor* tensor) { delete static_cast<Owned*>(tensor->manager_ctx); }

class Call {
 public:
  Call(const Program& program, State& state, Pool& pool, DLTensor* const* inputs)
      : program_(program), state_(state), pool_(pool), inputs_(inputs) {}

  void run(DLManagedTensor** results) {
    for (size_t i = 0; i < program_.inputs.size(); ++i) check_type(i);
    find_symbols();
    for (size_t i = 0; i < program_.inputs.size(); ++i) check_size(i);
    for (const Condition& condition : program_.conditions) {
      if (condition.holds.get(state_.symbols) == 0) throw Error("its sizes are to keep: " + condition.text);
    }
    compute(0);
    bind();
    for (const Step& step : program_.steps) take(step);
    give(results);
  }

 private:
  // -- inputs
  Error refused(size_t i, const std::string& text) const {
    return Error("input " + program_.inputs[i].path + " is to be " + text);
  }

  void check_type(size_t i) const {
    const Input& input = program_.inputs[i];
    const DLTensor* const tensor = inputs_[i];
    const std::string name = input.number ? "an int64 number" : input.type->name;
    if (tensor == nullptr) throw refused(i, "a tensor, not NULL");
    if (tensor->device.device_type != 1) {
      throw refused(i, "in CPU memory, not on DLPack's device " + std::to_string(tensor->device.device_type));
    }
    const Type* const type = type_of(tensor->dtype);
    if (type != input.type) {
      const DLDataType& other = tensor->dtype;
      throw refused(i, name + ", not " + (type != nullptr ? type->name : "of DLPack's type " + std::to_string(other.code) +
                                          " of " + std::to_string(other.bits) + " bits and " +
                                          std::to_string(other.lanes) + " lanes"));
    }
    const auto dims = static_cast<int32_t>(input.size.size());
    if (tensor->ndim != dims || (dims > 0 && tensor->shape == nullptr)) {
      const bool known = tensor->ndim >= 0 && tensor->ndim <= 64 && tensor->shape != nullptr;
      throw refused(i, "of " + std::to_string(dims) + " dimensions, not " + std::to_string(tensor->ndim) +
                           (known ? ": " + text(tensor->shape, static_cast<size_t>(tensor->ndim)) : ""));
    }
    for (int32_t d = 0; d < dims; ++d) {
      if (tensor->shape[d] < 0) throw refused(i, "of a size, not " + text(tensor->shape, static_cast<size_t>(dims)));
    }
    const auto address = reinterpret_cast<uintptr_t>(tensor->data) + tensor->byte_offset;
    if (address % static_cast<uintptr_t>(input.type->bytes) != 0) {
      throw refused(i, "aligned to its elements of " + std::to_string(input.type->bytes) + " bytes");
    }
    if (input.number && tensor->data == nullptr) throw refused(i, "a tensor with memory");
  }

  int64_t stride_of(const DLTensor& tensor, size_t dim) const {
    if (tensor.strides != nullptr) return tensor.strides[dim];
    Checked number;
    int64_t stride = 1;
    for (size_t d = static_cast<size_t>(tensor.ndim) - 1; d > dim; --d) {
      stride = number.mul(stride, std::max<int64_t>(1, tensor.shape[d]));
    }
    return number.fits ? stride : -1;
  }

  const char* data(size_t i) const { return static_cast<const char*>(inputs_[i]->data) + inputs_[i]->byte_offset; }

  void find_symbols() {
    for (size_t i = 0; i < program_.symbols.size(); ++i) {
      const Symbol& symbol = program_.symbols[i];
      int64_t& value = state_.symbols[i];
      const DLTensor* const tensor = symbol.where == Symbol::Fixed ? nullptr : inputs_[symbol.leaf];
      if (symbol.where == Symbol::Fixed) value = symbol.leaf;
      if (symbol.where == Symbol::Size) value = tensor->shape[symbol.dim];
      if (symbol.where == Symbol::Stride) value = stride_of(*tensor, static_cast<size_t>(symbol.dim));
      if (symbol.where == Symbol::Given) std::memcpy(&value, data(static_cast<size_t>(symbol.leaf)), sizeof value);
      if (value < symbol.low) {
        throw Error(symbol.label + " is " + std::to_string(value) + "; the least is " + std::to_string(symbol.low));
      }
      if (value > symbol.high) {
        throw Error(symbol.label + " is " + std::to_string(value) + "; the most is " + std::to_string(symbol.high));
      }
    }
  }

  void check_size(size_t i) const {
    const Input& input = program_.inputs[i];
    const DLTensor& tensor = *inputs_[i];
    const size_t dims = input.size.size();
    std::vector<int64_t> size, stride, given;
    bool fits = true, empty = false;
    for (size_t d = 0; d < dims; ++d) {
      size.push_back(input.size[d].get(state_.symbols));
      fits = fits && tensor.shape[d] == size[d];
      empty = empty || tensor.shape[d] == 0;
    }
    if (!fits) throw refused(i, "of the size " + text(size) + ", not " + text(tensor.shape, dims));
    for (size_t d = 0; d < dims; ++d) {
      stride.push_back(input.stride[d].get(state_.symbols));
      given.push_back(stride_of(tensor, d));
      fits = fits && (empty || size[d] == 1 || stride[d] == given[d]);
    }
    if (!fits) throw refused(i, "of the stride " + text(stride) + ", not " + text(given));
    if (!empty && tensor.data == nullptr) throw refused(i, "a tensor with memory, not one without");
    if (extent(size.data(), stride.data(), dims, input.type->bytes) < 0) {
      throw refused(i, "of a size that memory can hold, not " + text(size));
    }
  }

  // -- sizes
  int64_t number(const Number& n) const { return n.get(state_.registers.data()); }

  // Those of a stage.
  void compute(int64_t stage) {
    Checked checked;
    auto& registers = state_.registers;
    for (size_t i = 0; i < registers.size(); ++i) {
      const Register& item = program_.registers[i];
      if (item.stage != stage || item.kind == Register::Result) continue;
      int64_t& result = registers[i];
      const auto place = static_cast<size_t>(item.a);
      if (item.kind == Register::Int) result = program_.given[place].number.get(state_.symbols);
      if (item.kind == Register::Dim) result = inputs_[program_.given[place].index]->shape[item.b];
      if (item.kind == Register::Const) result = item.a;
      if (item.kind != Register::Computed) continue;
      const int64_t a = registers[place], b = registers[static_cast<size_t>(item.b)];
      const bool divided = item.op == integers::FloorDiv || item.op == integers::Mod;
      result = divided && b == 0 ? 0 : checked.of(item.op, a, b);  // 0 stands where nothing is computed
    }
    if (!checked.fits) throw Error("a size in it does not fit into 64 bits: its inputs, or numbers in them, are too large");
    for (size_t i = 0; i < program_.sizes.size(); ++i) state_.sizes[i] = number(program_.sizes[i]);
  }

  // -- memory
  void bind() {
    const int64_t arena = number(program_.arena);
    if (state_.arena == nullptr || arena > state_.arena_bytes) {
      state_.arena.reset();
      state_.arena = std::make_unique<Block>(arena);
      state_.arena_bytes = arena;
    }
    state_.base[program_.arena_base()] = state_.arena->data();
    state_.base[program_.sizes_base()] = reinterpret_cast<char*>(state_.sizes.data());
    for (size_t v = 0; v < program_.values.size(); ++v) {
      const Value& value = program_.values[v];
      if (value.kind == Value::Static) state_.base[v] = value.data;
      if (value.kind == Value::Input) state_.base[v] = bound(value);
    }
    for (uint32_t v : program_.written) check_apart(v);
  }

  size_t leaf_of(const Value& value) const { return program_.given[static_cast<size_t>(value.where.value)].index; }

  // The plan's own idea of an input, which the signature has described before: both have to hold.
  char* bound(const Value& value) const {
    const size_t leaf = leaf_of(value);
    const DLTensor& tensor = *inputs_[leaf];
    bool empty = false, fits = true;
    for (size_t d = 0; d < value.size.size(); ++d) {
      empty = empty || tensor.shape[d] == 0;
      fits = fits && tensor.shape[d] == number(value.size[d]);
    }
    for (size_t d = 0; d < value.size.size(); ++d) {
      fits = fits && (empty || tensor.shape[d] == 1 || stride_of(tensor, d) == number(value.stride[d]));
    }
    if (!fits) throw Error("input " + program_.inputs[leaf].path + " has a size or stride that its kernels exclude");
    return const_cast<char*>(data(leaf));
  }

  int64_t bytes_of(size_t leaf) const {
    const DLTensor& tensor = *inputs_[leaf];
    int64_t last = 0;
    for (size_t d = 0; d < static_cast<size_t>(tensor.ndim); ++d) {
      if (tensor.shape[d] == 0) return 0;
      last += (tensor.shape[d] - 1) * stride_of(tensor, d);
    }
    return (last + 1) * program_.inputs[leaf].type->bytes;
  }

  // An input that is written shares no memory with another.
  void check_apart(uint32_t v) const {
    const size_t leaf = leaf_of(program_.values[v]);
    const char* const begin = data(leaf);
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      if (i != leaf && begin < data(i) + bytes_of(i) && data(i) < begin + bytes_of(leaf)) {
        throw Error("input " + program_.inputs[leaf].path + " is written, and shares memory with input " +
                    program_.inputs[i].path);
      }
    }
  }

  // -- steps
  void take(const Step& step) {
    switch (step.kind) {
      case Step::Alloc:
        return allocate(step.index);
      case Step::Free:
        return state_.own[step.index].reset();
      case Step::Run:
        return kernel(program_.kernels[step.index]);
      case Step::Test:
        return check(program_.checks[step.index]);
      case Step::Call:
        return call(program_.calls[step.index]);
    }
  }

  void allocate(uint32_t v) {
    auto block = std::make_shared<Block>(number(program_.values[v].nbytes));
    state_.base[v] = block->data();
    state_.own[v] = std::move(block);
  }

  void call(const OperatorCall& call) {
    std::vector<Window> tensors, windows;
    for (uint32_t v : call.tensors) tensors.push_back(window(v));
    const auto results = call.function->call(tensors, all(call.numbers));
    for (const Bind& bind : call.binds) state_.registers[bind.reg] = results->number(bind.result, bind.dim);
    if (!call.binds.empty()) compute(call.stage);
    for (int64_t v : call.results) windows.push_back(v < 0 ? Window() : shape(program_.values[static_cast<size_t>(v)]));
    auto made = results->keep(windows);
    for (size_t i = 0; i < call.results.size(); ++i) {
      if (call.results[i] < 0) continue;
      const auto v = static_cast<size_t>(call.results[i]);
      state_.own[v] = std::move(made[i].owner);
      state_.base[v] = static_cast<char*>(made[i].data);
    }
  }

  Window shape(const Value& value) const { return {nullptr, value.type->name, all(value.size), all(value.stride)}; }

  Window window(uint32_t v) const {
    const Value& value = program_.values[v];
    Window made = shape(value);
    const auto root = value.kind == Value::View ? static_cast<uint32_t>(value.where.value) : v;
    const Value& base = program_.values[root];
    if (base.kind == Value::Produced && state_.own[root] == nullptr) throw Error("damaged: an argument has no memory");
    char* start = base.kind == Value::Arena ? state_.base[program_.arena_base()] + number(base.where) : state_.base[root];
    if (start != nullptr) start += number(value.offset) * value.type->bytes;
    made.data = start;
    return made;
  }

  char* address(const KernelArg& arg) const {
    char* const base = state_.base[arg.base];
    const int64_t offset = number(arg.offset);
    return offset == 0 ? base : base + offset;
  }

  void kernel(const Kernel& kernel) {
    void** const pointers = state_.pointers.data();
    for (size_t i = 0; i < kernel.args.size(); ++i) pointers[i] = address(kernel.args[i]);
    const auto body = [&](int64_t begin, int64_t end) { kernel.function(pointers, begin, end); };
    pool_.share(number(kernel.total), number(kernel.grain), body);
  }

  void check(const Check& point) const {
    int64_t found = 0;
    std::memcpy(&found, address(point.found), sizeof found);
    if (found == INT64_MIN) return;
    std::string message = point.message;
    const auto fill = [&](const std::string& hole, int64_t n) {
      const size_t at = message.find(hole);
      if (at != std::string::npos) message.replace(at, hole.size(), std::to_string(n));
    };
    fill("{}", found);
    for (size_t i = 0; i < point.sizes.size(); ++i) fill("{" + std::to_string(i) + "}", number(point.sizes[i]));
    throw Error(message);
  }

  // -- results
  void give(DLManagedTensor** results) {
    std::vector<std::unique_ptr<Owned>> made;
    for (const Result& result : program_.results) made.push_back(result_of(result.source));
    for (size_t i = 0; i < made.size(); ++i) results[i] = &made[i].release()->tensor;
  }

  std::unique_ptr<Owned> result_of(const Source& source) {
    if (source.kind == Source::Computed) {
      const int64_t value = source.number.get(state_.symbols);
      return copied(type_of("int64"), {}, {}, reinterpret_cast<const char*>(&value));
    }
    if (source.kind == Source::Leaf) {
      const DLTensor& tensor = *inputs_[source.index];
      std::vector<int64_t> size(tensor.shape, tensor.shape + tensor.ndim), stride;
      for (size_t d = 0; d < size.size(); ++d) stride.push_back(stride_of(tensor, d));
      return copied(*program_.inputs[source.index].type, size, stride, data(source.index));
    }
    if (source.kind == Source::Held) {
      const Value& value = program_.values[source.index];
      return copied(*value.type, all(value.size), all(value.stride), value.data);
    }
    return output(program_.outputs[source.index]);
  }

  std::vector<int64_t> all(const std::vector<Number>& numbers) const {
    std::vector<int64_t> found;
    for (const Number& n : numbers) found.push_back(number(n));
    return found;
  }

  std::unique_ptr<Owned> output(const Output& out) {
    const Value& value = program_.values[out.value];
    auto size = all(out.size), stride = all(out.stride);
    const int64_t bytes = extent(size.data(), stride.data(), size.size(), value.type->bytes);
    const int64_t offset = number(out.offset) * value.type->bytes;
    if (bytes < 0 || offset < 0 || (bytes > 0 && offset + bytes > number(value.nbytes))) {
      throw Error("damaged: a result is larger than its memory");
    }
    char* const base = state_.base[out.value];
    if (value.kind != Value::Own && value.kind != Value::Produced) return copied(*value.type, size, stride, base + offset);
    if (state_.own[out.value] == nullptr) throw Error("damaged: a result has no memory");
    return owned(*value.type, std::move(size), std::move(stride), state_.own[out.value], base, offset);
  }

  static std::unique_ptr<Owned> copied(
      const Type& type, std::vector<int64_t> size, std::vector<int64_t> stride, const char* from) {
    const int64_t bytes = extent(size.data(), stride.data(), size.size(), type.bytes);
    auto block = std::make_shared<Block>(bytes);
    if (bytes > 0) std::memcpy(block->data(), from, static_cast<size_t>(bytes));
    char* const base = block->data();
    return owned(type, std::move(size), std::move(stride), std::move(block), base, 0);
  }

  static std::unique_ptr<Owned> owned(const Type& type, std::vector<int64_t> size, std::vector<int64_t> stride,
                                      std::shared_ptr<void> memory, char* base, int64_t offset) {
    auto made = std::make_unique<Owned>();
    made->memory = std::move(memory);
    made->size = std::move(size);
    made->stride = std::move(stride);
    const auto dims = static_cast<int32_t>(made->size.size());
    made->tensor = {{base, {1, 0}, dims, type.dl, made->size.data(), made->stride.data(),
                     static_cast<uint64_t>(offset)},
                    made.get(), release};
    return made;
  }

  const Program& program_;
  State& state_;
  Pool& pool_;
  DLTensor* const* inputs_;
};

}  // namespace

Block::Block(int64_t bytes) {
  // To whole cache lines, which kernels may read.
  const size_t rounded = (static_cast<size_t>(std::max<int64_t>(bytes, 1)) + kCacheLine - 1) / kCacheLine * kCacheLine;
  data_ = static_cast<char*>(std::aligned_alloc(kCacheLine, rounded));
  if (data_ == nullptr) throw Error("no memory: " + std::to_string(bytes) + " bytes are needed");
}

Block::~Block() { std::free(data_); }

Runner::Runner(const char* path, int threads, const fg_operators* operators)
    : file_(path), program_(file_, operators), pool_(threads) {}

std::unique_ptr<State> Runner::lease() const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      auto state = std::move(idle_.back());
      idle_.pop_back();
      return state;
    }
  }
  auto state = std::make_unique<State>();
  size_t most = 0;
  for (const Kernel& kernel : program_.kernels) most = std::max(most, kernel.args.size());
  state->symbols.resize(program_.symbols.size());
  state->registers.resize(program_.registers.size());
  state->sizes.resize(std::max<size_t>(1, program_.sizes.size()));
  state->base.resize(program_.values.size() + 2);
  state->own.resize(program_.values.size());
  state->pointers.resize(most);
  return state;
}

void Runner::run(DLTensor* const* inputs, int input_count, DLManagedTensor** results, int result_count) const {
  const auto wrong = [](const char* what, size_t wanted, int given) {
    return Error("it " + std::string(what) + " " + std::to_string(wanted) + " tensors, not " + std::to_string(given));
  };
  if (input_count < 0 || static_cast<size_t>(input_count) != program_.inputs.size()) {
    throw wrong("takes", program_.inputs.size(), input_count);
  }
  if (result_count < 0 || static_cast<size_t>(result_count) != program_.results.size()) {
    throw wrong("returns", program_.results.size(), result_count);
  }
  if ((inputs == nullptr && input_count > 0) || (results == nullptr && result_count > 0)) {
    throw Error("no array of inputs or of results");
  }
  auto state = lease();
  Call(program_, *state, pool_, inputs).run(results);  // after an Error, the state is not used again
  std::fill(state->own.begin(), state->own.end(), nullptr);
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(state));
}

}  // namespace fg
