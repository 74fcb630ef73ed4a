#include "plan.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace fg {
namespace {

constexpr int64_t kFormat = 1;
constexpr size_t kDimensions = 64;
constexpr int64_t kMost = int64_t{1} << 48;  // bytes, elements: more than any machine has

constexpr Type kTypes[] = {
    {{2, 32, 1}, 4, "float32"}, {{2, 64, 1}, 8, "float64"}, {{2, 16, 1}, 2, "float16"}, {{4, 16, 1}, 2, "bfloat16"},
    {{0, 8, 1}, 1, "int8"},     {{0, 16, 1}, 2, "int16"},   {{0, 32, 1}, 4, "int32"},   {{0, 64, 1}, 8, "int64"},
    {{1, 8, 1}, 1, "uint8"},    {{1, 16, 1}, 2, "uint16"},  {{1, 32, 1}, 4, "uint32"},  {{1, 64, 1}, 8, "uint64"},
    {{6, 8, 1}, 1, "bool"},     {{5, 64, 1}, 8, "complex64"}, {{5, 128, 1}, 16, "complex128"}};

template <class Kind>
struct Named {
  const char* name;
  Kind kind;
};

template <class Kind, size_t N>
Kind by_name(const Named<Kind> (&table)[N], const std::string& name) {
  for (const auto& row : table) {
    if (name == row.name) return row.kind;
  }
  throw Error("'" + name.substr(0, 80) + "' is nothing that this runner knows");
}

// The instruction sets that kernels are compiled for, the best first, and whether this processor has them.
std::vector<std::string> instruction_sets() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v4) found.push_back("x86-64-v4");
  if (v3) found.push_back("x86-64-v3");
  if (v2) found.push_back("x86-64-v2");
#endif
  return found;
}

}  // namespace

const Type& type_of(const std::string& name) {
  for (const Type& type : kTypes) {
    if (name == type.name) return type;
  }
  throw Error("no type of elements '" + name.substr(0, 80) + "'");
}

const Type* type_of(DLDataType wanted) {
  for (const Type& type : kTypes) {
    if (type.dl.code == wanted.code && type.dl.bits == wanted.bits && wanted.lanes == 1) return &type;
  }
  return nullptr;
}

int64_t Expression::get(const std::vector<int64_t>& symbols) const {
  const auto arg = [&](size_t i) { return args[i].get(symbols); };
  switch (kind) {
    case Constant: return value;
    case Symbol: return symbols[static_cast<size_t>(value)];
    case Truth: return arg(0) != 0;
    case Not: return arg(0) == 0;
    case Choose: return arg(0) != 0 ? arg(1) : arg(2);
    case Computed: break;
  }
  int64_t total = arg(0);
  for (size_t i = 1; i < args.size(); ++i) {
    if (op == integers::And && total == 0) return 0;
    if (op == integers::Or && total != 0) return 1;
    const int64_t next = arg(i);
    if (!integers::compute(op, total, next, &total)) {
      throw Error("a size in it does not fit into 64 bits: its inputs, or numbers in them, are too large");
    }
  }
  return total;
}

// One reading of a plan. Throws Error for a contradiction: nothing is believed.
class Reader {
 public:
  Reader(Program& program, File& file, const fg_operators* operators)
      : program_(program), file_(file), operators_(operators) {}

  void read() {
    const Json plan = Json::parse(file_.section("plan"));
    if (plan["format"].integer() != kFormat) {
      throw Error("plan format " + std::to_string(plan["format"].integer()) + "; this runner reads " +
                  std::to_string(kFormat));
    }
    for (const Json& row : plan["symbols"].items()) symbol(row);
    for (const Json& row : plan["inputs"].items()) input(row);
    for (const Symbol& symbol : program_.symbols) check_place(symbol);
    for (const Json& row : plan["conditions"].items()) {
      program_.conditions.push_back({expression(row["holds"]), row["text"].string()});
    }
    for (const Json& row : plan["given"].items()) program_.given.push_back(source(row));
    for (const Json& row : plan["registers"].items()) add_register(row);
    program_.sizes = numbers(plan["sizes"]);
    program_.arena = count(plan["arena"]);
    for (const Json& row : plan["statics"].items()) statics_.push_back(memory(row));
    for (const Json& row : plan["values"].items()) value(row);
    for (const Json& row : plan["written"].items()) program_.written.push_back(index(row, program_.values.size()));
    load_kernels(plan["kernels"]);
    for (const Json& row : plan["steps"].items()) step(row);
    for (const Json& row : plan["outputs"].items()) output(row);
    for (const Json& row : plan["results"].items()) {
      program_.results.push_back({row["path"].string(), source(row["source"])});
    }
  }

 private:
  // -- numbers
  static uint32_t index(const Json& row, size_t limit) {
    const int64_t found = row.integer();
    if (found < 0 || static_cast<uint64_t>(found) >= limit) throw Error("a number of nothing");
    return static_cast<uint32_t>(found);
  }

  Number number(const Json& row) const {
    if (row.kind != Json::Array) return {row.integer(), -1};
    return {0, static_cast<int32_t>(index(row[size_t{0}], program_.registers.size()))};
  }

  // One that is no less than 0 and no absurd one, as far as it is known.
  Number count(const Json& row) const {
    const Number found = number(row);
    if (found.value < 0 || found.value > kMost) throw Error("an absurd size, " + std::to_string(found.value));
    return found;
  }

  std::vector<Number> numbers(const Json& rows) const {
    std::vector<Number> found;
    for (const Json& row : rows.items()) found.push_back(number(row));
    return found;
  }

  std::vector<Number> counts(const Json& rows) const {
    std::vector<Number> found;
    for (const Json& row : rows.items()) found.push_back(count(row));
    if (found.size() > kDimensions) throw Error("a tensor of " + std::to_string(found.size()) + " dimensions");
    return found;
  }

  void add_register(const Json& row) {
    static const Named<Register::Kind> kinds[] = {
        {"int", Register::Int}, {"dim", Register::Dim}, {"const", Register::Const}, {"result", Register::Result}};
    const bool late = row.items().size() > 3;
    const std::string& name = row[size_t{0}].string();
    Register made{Register::Computed, row[1].integer(), row[2].integer(), late ? row[3].integer() : 0, integers::Add};
    if (!integers::op_named(name.c_str(), &made.op)) made.kind = by_name(kinds, name);
    if (made.kind == Register::Int || made.kind == Register::Dim) {
      const Source& from = program_.given.at(index(row[1], program_.given.size()));
      const bool tensor = from.kind == Source::Leaf;
      if (tensor != (made.kind == Register::Dim)) throw Error("a size of no tensor");
      if (tensor) index(row[2], program_.inputs[from.index].size.size());
    } else if (made.kind == Register::Computed) {
      for (size_t i : {1, 2}) {
        const Register& operand = program_.registers[index(row[i], program_.registers.size())];
        if (operand.stage > made.stage) throw Error("a number of one that is known later");
      }
    }
    if (made.stage < 0 || (made.kind == Register::Result) > made.stage) throw Error("a number that is never known");
    program_.registers.push_back(made);
  }

  // -- symbols and inputs
  void symbol(const Json& row) {
    static const Named<decltype(Symbol::where)> places[] = {
        {"size", Symbol::Size}, {"stride", Symbol::Stride}, {"number", Symbol::Given}, {"fixed", Symbol::Fixed}};
    names_.emplace(row["name"].string(), static_cast<int64_t>(names_.size()));
    const Json& read = row["read"];
    Symbol made{row["label"].string(), bound(row["low"], INT64_MIN), bound(row["high"], INT64_MAX),
                by_name(places, read[size_t{0}].string()), read[1].integer(), 0};
    if (made.where == Symbol::Size || made.where == Symbol::Stride) made.dim = read[2].integer();
    program_.symbols.push_back(made);
    if (names_.size() != program_.symbols.size()) throw Error("two symbols have one name");
  }

  static int64_t bound(const Json& row, int64_t none) { return row.kind == Json::Null ? none : row.integer(); }

  void check_place(const Symbol& symbol) const {
    if (symbol.where == Symbol::Fixed) return;
    const auto& inputs = program_.inputs;
    const bool known = symbol.leaf >= 0 && static_cast<uint64_t>(symbol.leaf) < inputs.size();
    if (!known) throw Error("a size of no input");
    const Input& input = inputs[static_cast<size_t>(symbol.leaf)];
    const bool dims = symbol.where == Symbol::Given ||
                      (symbol.dim >= 0 && static_cast<uint64_t>(symbol.dim) < input.size.size());
    if (input.number != (symbol.where == Symbol::Given) || !dims) throw Error("a size of no input");
  }

  void input(const Json& row) {
    Input made{row["path"].string(), &type_of(row["dtype"].string()), row["number"].boolean(), {}, {}};
    for (const Json& size : row["size"].items()) made.size.push_back(expression(size));
    for (const Json& stride : row["stride"].items()) made.stride.push_back(expression(stride));
    if (made.size.size() != made.stride.size() || made.size.size() > kDimensions) throw Error("a tensor of no size");
    if (made.number && (!made.size.empty() || made.type->dl.code != 0 || made.type->bytes != 8)) {
      throw Error("a number that is no int64");
    }
    program_.inputs.push_back(std::move(made));
  }

  Expression expression(const Json& row) const {
    using Op = integers::Op;
    static const Named<Op> ops[] = {
        {"Add", Op::Add}, {"Mul", Op::Mul}, {"Pow", Op::Pow}, {"FloorDiv", Op::FloorDiv}, {"Mod", Op::Mod}, {"Max", Op::Max},
        {"Min", Op::Min}, {"Eq", Op::Eq},   {"Ne", Op::Ne},   {"Le", Op::Le},             {"Ge", Op::Ge},   {"Lt", Op::Lt},
        {"Gt", Op::Gt},   {"And", Op::And}, {"Or", Op::Or}};
    static const Named<Expression::Kind> others[] = {
        {"Truth", Expression::Truth}, {"Choose", Expression::Choose}, {"Not", Expression::Not}};
    if (row.kind == Json::Int) return {Expression::Constant, row.integer(), {}};
    if (row.kind == Json::Bool) return {Expression::Constant, row.boolean(), {}};
    if (row.kind == Json::String) {
      const auto found = names_.find(row.string());
      if (found == names_.end()) throw Error("no symbol '" + row.string().substr(0, 80) + "'");
      return {Expression::Symbol, found->second, {}};
    }
    const std::string& name = row[size_t{0}].string();
    Expression made{Expression::Computed, 0, {}};
    const auto* named = std::find_if(std::begin(ops), std::end(ops), [&](auto& op) { return name == op.name; });
    if (named != std::end(ops)) {
      made.op = named->kind;
    } else {
      made.kind = by_name(others, name);
    }
    for (size_t i = 1; i < row.items().size(); ++i) made.args.push_back(expression(row[i]));
    const size_t wanted = made.kind == Expression::Computed ? 2 : made.kind == Expression::Choose ? 3 : 1;
    const bool any = made.kind == Expression::Computed && (made.op == Op::Add || made.op == Op::Mul || made.op == Op::And || made.op == Op::Or);
    if (any ? made.args.empty() : made.args.size() != wanted) throw Error("a function of other arguments");
    return made;
  }

  Source source(const Json& row) const {
    static const Named<Source::Kind> kinds[] = {
        {"leaf", Source::Leaf}, {"number", Source::Computed}, {"output", Source::Plan}, {"held", Source::Held}};
    Source made;
    made.kind = by_name(kinds, row[size_t{0}].string());
    switch (made.kind) {
      case Source::Computed:
        made.number = expression(row[1]);
        break;
      case Source::Leaf:
        made.index = index(row[1], program_.inputs.size());
        if (program_.inputs[made.index].number) throw Error("a tensor that is a number");
        break;
      case Source::Plan:
        made.index = index(row[1], program_.outputs.size());
        break;
      case Source::Held:
        made.index = index(row[1], program_.values.size());
        if (program_.values[made.index].kind != Value::Static) throw Error("a result that nothing holds");
        break;
    }
    return made;
  }

  // -- memory
  struct Memory {
    const char* data;
    int64_t bytes;
  };

  // From a tensor's first element to the end of its memory.
  Memory memory(const Json& row) {
    const std::string_view section = file_.section(row["section"].string());
    const int64_t start = count(row["start"]).value, bytes = count(row["bytes"]).value;
    const auto size = static_cast<int64_t>(section.size());
    const int64_t offset = count(row["offset"]).value;
    if (start > size || bytes > size - start || offset > bytes) throw Error("a tensor beyond the end of its section");
    return {section.data() + start + offset, bytes - offset};
  }

  void value(const Json& row) {
    static const Named<Value::Kind> kinds[] = {{"input", Value::Input}, {"static", Value::Static}, {"own", Value::Own},
                                               {"arena", Value::Arena}, {"view", Value::View},     {"produced", Value::Produced}};
    Value made{by_name(kinds, row[size_t{0}].string()), row[1].string(), &type_of(row[2].string()), counts(row[3]),
               counts(row[4]), count(row[5]), count(row[6]), count(row[7])};
    if (made.size.size() != made.stride.size()) throw Error("a tensor of no size");
    if (made.kind == Value::Static) place_static(made);
    if (made.kind == Value::Input) {
      const Source& from = program_.given.at(index(row[5], program_.given.size()));
      if (from.kind != Source::Leaf) throw Error("an input that is no tensor");
      if (program_.inputs[from.index].type != made.type) throw Error("an input of two types");
      if (program_.inputs[from.index].size.size() != made.size.size()) throw Error("an input of two sizes");
    }
    if (made.kind == Value::View) {
      const Value& base = program_.values[index(row[5], program_.values.size())];
      if (base.kind == Value::View) throw Error("a view of a view");
    }
    if (made.kind == Value::Arena && made.where.reg < 0 && made.nbytes.reg < 0 && program_.arena.reg < 0 &&
        made.where.value + made.nbytes.value > program_.arena.value) {
      throw Error("a tensor outside of the call's memory");
    }
    if (extent(made) > made.nbytes.value && made.nbytes.reg < 0) throw Error("a tensor that is larger than its memory");
    program_.values.push_back(std::move(made));
  }

  // Bytes of a tensor of known size; 0 of others.
  static int64_t extent(const Value& value) {
    int64_t last = 0;
    for (size_t d = 0; d < value.size.size(); ++d) {
      const Number size = value.size[d], stride = value.stride[d];
      if (size.reg >= 0 || stride.reg >= 0 || size.value == 0) return 0;
      int64_t step = 0;
      if (__builtin_mul_overflow(size.value - 1, stride.value, &step) || __builtin_add_overflow(last, step, &last)) {
        throw Error("an absurd size");
      }
    }
    int64_t bytes = 0;
    if (__builtin_mul_overflow(last + 1, value.type->bytes, &bytes) || bytes > kMost) throw Error("an absurd size");
    return bytes;
  }

  void place_static(Value& value) {
    for (const auto* all : {&value.size, &value.stride}) {
      for (const Number& n : *all) {
        if (n.reg >= 0) throw Error("a tensor of the file whose size varies");
      }
    }
    if (value.where.reg >= 0 || static_cast<size_t>(value.where.value) >= statics_.size()) {
      throw Error("a tensor in no place");
    }
    const Memory& at = statics_[static_cast<size_t>(value.where.value)];
    const bool aligned = reinterpret_cast<uintptr_t>(at.data) % static_cast<uintptr_t>(value.type->bytes) == 0;
    if (std::max(extent(value), value.nbytes.value) > at.bytes || !aligned) {
      throw Error("a tensor that is larger than its memory");
    }
    value.data = const_cast<char*>(at.data);
  }

  // -- steps
  void load_kernels(const Json& digest) {
    if (digest.kind == Json::Null) return;
    std::string known;
    for (const std::string& target : instruction_sets()) {
      const std::string name = "kernels/" + target + "/" + digest.string();
      if (!file_.has(name)) continue;
      program_.library_ = std::make_unique<Library>(file_.section(name));
      return;
    }
    for (const std::string& name : file_.names()) {
      if (name.rfind("kernels/", 0) == 0 && name.find(digest.string()) != std::string::npos) {
        known += (known.empty() ? "" : ", ") + name.substr(8, name.find('/', 8) - 8);
      }
    }
    throw Error("no kernels for this processor" + (known.empty() ? "" : ": the file has those for " + known));
  }

  KernelArg address(const Json& row) const {
    const int64_t base = row[size_t{0}].integer();
    if (base == -1) return {program_.sizes_base(), {}};
    const uint32_t found = index(row[size_t{0}], program_.values.size());
    const Value& value = program_.values[found];
    const Number offset = count(row[1]);
    if (value.kind == Value::View) throw Error("the address of a view");
    const Number limit = value.kind == Value::Arena ? program_.arena : value.nbytes;
    if (offset.reg < 0 && limit.reg < 0 && offset.value > limit.value) throw Error("an address outside of a tensor");
    return {value.kind == Value::Arena ? program_.arena_base() : found, offset};
  }

  void step(const Json& row) {
    static const Named<Step::Kind> kinds[] = {
        {"alloc", Step::Alloc}, {"free", Step::Free}, {"kernel", Step::Run}, {"check", Step::Test},
        {"operator", Step::Call}};
    const std::string& name = row[size_t{0}].string();
    Step made{by_name(kinds, name), 0};
    if (made.kind == Step::Run) {
      made.index = static_cast<uint32_t>(program_.kernels.size());
      kernel(row);
    } else if (made.kind == Step::Test) {
      made.index = static_cast<uint32_t>(program_.checks.size());
      program_.checks.push_back({address(row[1]), row[3].string(), numbers(row[4])});
    } else if (made.kind == Step::Call) {
      made.index = static_cast<uint32_t>(program_.calls.size());
      call(row);
    } else {
      made.index = index(row[1], program_.values.size());
      const Value::Kind kind = program_.values[made.index].kind;
      if (made.kind == Step::Free && kind != Value::Own && kind != Value::Produced) return;
      if (made.kind == Step::Alloc && kind != Value::Own) throw Error("memory for a tensor that has its own");
    }
    program_.steps.push_back(made);
  }

  void kernel(const Json& row) {
    const std::string& name = row[1].string();
    Kernel made{program_.library_ ? program_.library_->find(name) : nullptr, {}, count(row[3]), count(row[4])};
    if (made.function == nullptr) throw Error("no kernel '" + name.substr(0, 80) + "' in its library");
    for (const Json& arg : row[2].items()) made.args.push_back(address(arg));
    program_.kernels.push_back(std::move(made));
  }

  void call(const Json& row) {
    const std::string &name = row[1].string(), &overload = row[2].string();
    const auto failed = [&](const std::string& reason) {
      return Error("the operator " + name.substr(0, 80) + (overload.empty() ? "" : "." + overload.substr(0, 80)) + ": " + reason);
    };
    if (operators_ == nullptr) throw failed("it is of libtorch, which fg_options.operators is to give");
    OperatorCall made;
    std::vector<Argument> args;
    for (const Json& arg : row[3].items()) args.push_back(argument(arg, made));
    for (const auto& [keyword, arg] : row[4].members()) {
      args.push_back(argument(arg, made));
      args.back().keyword = keyword;
    }
    for (const Json& result : row[5].items()) {
      const bool read = result.integer() != -1;
      if (read && program_.values[index(result, program_.values.size())].kind != Value::Produced) {
        throw failed("its result has another place");
      }
      made.results.push_back(result.integer());
    }
    if (row.items().size() > 6) binds(row[6], made);
    try {
      made.function = operators_->find(name.c_str(), overload.c_str(), args);
    } catch (const std::exception& error) {
      throw failed(error.what());
    }
    program_.calls.push_back(std::move(made));
  }

  // Registers belong to one operator each, in the order of their stages.
  void binds(const Json& rows, OperatorCall& call) {
    call.stage = ++stages_;
    for (const Json& row : rows.items()) {
      Bind made{index(row[size_t{0}], program_.registers.size()), index(row[1], call.results.size()), row[2].integer()};
      const Register& found = program_.registers[made.reg];
      if (found.kind != Register::Result || found.stage != call.stage) throw Error("a number that is no operator's");
      call.binds.push_back(made);
    }
  }

  Argument argument(const Json& row, OperatorCall& call) const {
    static const Named<Argument::Kind> kinds[] = {
        {"value", Argument::Tensor}, {"register", Argument::Number}, {"real", Argument::Real},
        {"dtype", Argument::DType},  {"device", Argument::Device},   {"layout", Argument::Layout},
        {"memory_format", Argument::MemoryFormat}};
    Argument made;
    switch (row.kind) {
      case Json::Null: return made;
      case Json::Bool: made.kind = Argument::Bool, made.integer = row.boolean(); return made;
      case Json::Int: made.kind = Argument::Int, made.integer = row.integer(); return made;
      case Json::String: made.kind = Argument::String, made.text = row.string(); return made;
      case Json::Array:
        made.kind = Argument::List;
        for (const Json& item : row.items()) made.items.push_back(argument(item, call));
        return made;
      default: break;
    }
    if (row.members().size() != 1) throw Error("an argument of no kind");
    const auto& [tag, value] = row.members()[0];
    made.kind = by_name(kinds, tag);
    if (made.kind == Argument::Tensor) {
      made.integer = static_cast<int64_t>(call.tensors.size());
      call.tensors.push_back(index(value, program_.values.size()));
    } else if (made.kind == Argument::Number) {
      made.integer = static_cast<int64_t>(call.numbers.size());
      call.numbers.push_back({0, static_cast<int32_t>(index(value, program_.registers.size()))});
    } else if (made.kind == Argument::Real) {
      const int64_t bits = value.integer();
      std::memcpy(&made.real, &bits, sizeof made.real);
    } else {
      made.text = value.string();
    }
    return made;
  }

  void output(const Json& row) {
    const std::string& kind = row[size_t{0}].string();
    const uint32_t found = index(row[1], program_.values.size());
    const Value& value = program_.values[found];
    if (value.kind == Value::Arena || value.kind == Value::View) throw Error("a result in a call's own memory");
    if (kind == "view") {
      program_.outputs.push_back({found, counts(row[2]), counts(row[3]), count(row[4])});
      const Output& made = program_.outputs.back();
      if (made.size.size() != made.stride.size()) throw Error("a tensor of no size");
    } else if (kind == "tensor" || kind == "same") {
      program_.outputs.push_back({found, value.size, value.stride, {}});
    } else {
      throw Error("'" + kind.substr(0, 80) + "' is nothing that this runner knows");
    }
  }

  Program& program_;
  File& file_;
  const fg_operators* const operators_;
  std::vector<Memory> statics_;
  std::map<std::string, int64_t> names_;
  int64_t stages_ = 0;  // operators so far that give numbers
};

Program::Program(File& file, const fg_operators* operators) {
  if (!file.has("plan")) {
    throw Error("it has no plan for this runner: save it with standalone=True");
  }
  for (const std::string& name : file.names()) {
    if (name.rfind("kernels/", 0) != 0) file.section(name);
  }
  Reader(*this, file, operators).read();
}

}  // namespace fg
