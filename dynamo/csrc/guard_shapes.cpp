#include "guard_shapes.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "../../inductor/runner/integers.h"
#include "guard_tree.h"

namespace guards {

namespace {

// A Python int that fits into 64 bits, or a float.
struct Number {
  bool real;
  union {
    int64_t i;
    double d;
  };

  static Number of(int64_t value) {
    Number number;
    number.real = false;
    number.i = value;
    return number;
  }
  static Number of(double value) {
    Number number;
    number.real = true;
    number.d = value;
    return number;
  }
  // Exact, or the evaluation fails.
  bool as_double(double* out) const {
    if (real) {
      *out = d;
      return true;
    }
    *out = static_cast<double>(i);
    return i <= (int64_t{1} << 53) && i >= -(int64_t{1} << 53);
  }
  bool truth() const { return real ? d != 0 : i != 0; }
};

// Operators of integers, then these; numbered as in dynamo/guards/shape_payload.py.
using integers::Op;
enum MoreOps {
  kRead = integers::kOps, kInt, kFloat, kChoose, kTrueDiv,
  kNot, kNeg, kToFloat, kAbs, kSqrt, kExp, kLog, kLog2, kLog10, kSin, kCos, kTan, kTanh, kSinh, kCosh, kAsin, kAcos, kAtan,
  kFloor, kCeil, kTrunc, kRound,
};

// Rounded towards minus infinity; rest: with the sign of b. As Python's `divmod` of floats.
bool real_floordiv(double a, double b, double* quotient, double* rest) {
  if (b == 0) return false;
  *rest = std::fmod(a, b);
  double whole = (a - *rest) / b;
  if (*rest == 0) {
    *rest = std::copysign(0.0, b);
  } else if ((b < 0) != (*rest < 0)) {
    *rest += b;
    whole -= 1;
  }
  *quotient = whole == 0 ? std::copysign(0.0, a / b) : std::round(whole);
  return true;
}

// What Python's function of a float gives; fails where that raises.
bool real_function(int op, double a, double* out) {
  switch (op) {
    case kAbs: *out = std::fabs(a); break;
    case kSqrt: *out = std::sqrt(a); break;
    case kExp: *out = std::exp(a); break;
    case kLog: *out = std::log(a); break;
    case kLog2: *out = std::log2(a); break;
    case kLog10: *out = std::log10(a); break;
    case kSin: *out = std::sin(a); break;
    case kCos: *out = std::cos(a); break;
    case kTan: *out = std::tan(a); break;
    case kTanh: *out = std::tanh(a); break;
    case kSinh: *out = std::sinh(a); break;
    case kCosh: *out = std::cosh(a); break;
    case kAsin: *out = std::asin(a); break;
    case kAcos: *out = std::acos(a); break;
    case kAtan: *out = std::atan(a); break;
    default: return false;
  }
  return std::isfinite(*out);
}

// A number that eager's operators refuse to convert to float32: a constant of the graph, which raises as well.
bool beyond_single(double value) { return std::isfinite(value) && std::fabs(value) > FLT_MAX; }

bool rounded(int op, double a, int64_t* out) {
  switch (op) {
    case kFloor: a = std::floor(a); break;
    case kCeil: a = std::ceil(a); break;
    case kTrunc: a = std::trunc(a); break;
    default: a = std::nearbyint(a);  // halves to even
  }
  if (!(std::fabs(a) < 0x1p62)) return false;
  *out = static_cast<int64_t>(a);
  return true;
}

bool unary(int op, Number* a) {
  if (op == kNot) {
    *a = Number::of(int64_t{!a->truth()});
    return true;
  }
  if (op == kNeg) {
    if (!a->real && a->i == INT64_MIN) return false;
    *a = a->real ? Number::of(-a->d) : Number::of(-a->i);
    return true;
  }
  double value;
  if (!a->as_double(&value)) return false;
  if (op >= kFloor) {
    int64_t whole;
    if (!rounded(op, value, &whole)) return false;
    *a = Number::of(whole);
    return true;
  }
  if (op != kToFloat && !real_function(op, value, &value)) return false;
  *a = Number::of(value);
  return true;
}

bool of_reals(int op, double a, double b, Number* out) {
  double result = 0, other = 0;
  bool fine = true;
  switch (op) {
    case integers::Pow:
      fine = a > 0 || (a == 0 && b > 0) || (a < 0 && b == std::floor(b));  // else complex, or an exception
      result = std::pow(a, b);
      *out = Number::of(result);
      return fine && std::isfinite(result);
    case integers::FloorDiv: fine = real_floordiv(a, b, &result, &other); *out = Number::of(result); return fine;
    case integers::Mod: fine = real_floordiv(a, b, &other, &result); *out = Number::of(result); return fine;
    case integers::Add: *out = Number::of(a + b); return true;
    case integers::Sub: *out = Number::of(a - b); return true;
    case integers::Mul: *out = Number::of(a * b); return true;
    case kTrueDiv: *out = Number::of(a / b); return b != 0;
    case integers::Max: *out = Number::of(b > a ? b : a); return true;
    case integers::Min: *out = Number::of(b < a ? b : a); return true;
    case integers::Eq: *out = Number::of(int64_t{a == b}); return true;
    case integers::Ne: *out = Number::of(int64_t{a != b}); return true;
    case integers::Le: *out = Number::of(int64_t{a <= b}); return true;
    case integers::Ge: *out = Number::of(int64_t{a >= b}); return true;
    case integers::Lt: *out = Number::of(int64_t{a < b}); return true;
    case integers::Gt: *out = Number::of(int64_t{a > b}); return true;
    case integers::And: *out = Number::of(int64_t{a != 0 && b != 0}); return true;
    case integers::Or: *out = Number::of(int64_t{a != 0 || b != 0}); return true;
    default: return false;
  }
}

// *a becomes a OP b.
bool binary(int op, Number* a, const Number& b) {
  if (!a->real && !b.real && op < integers::kOps) return integers::compute(static_cast<Op>(op), a->i, b.i, &a->i);
  double x, y;
  return a->as_double(&x) && b.as_double(&y) && of_reals(op, x, y, a);
}

// The number that an object is, if of the kind.
bool number_from(PyObject* value, ShapeRead::Kind kind, Number* out) {
  if (kind == ShapeRead::Float) {
    if (!PyFloat_CheckExact(value) || beyond_single(PyFloat_AS_DOUBLE(value))) return false;
    *out = Number::of(PyFloat_AS_DOUBLE(value));
    return true;
  }
  if (!PyLong_CheckExact(value)) return false;
  int overflow = 0;
  *out = Number::of(int64_t{PyLong_AsLongLongAndOverflow(value, &overflow)});
  return overflow == 0;
}

Ref object_of(const Number& number) {
  return Ref::steal(number.real ? PyFloat_FromDouble(number.d) : PyLong_FromLongLong(number.i));
}

// Reads the values of one check; what stands in one tensor is looked up once.
class Reader {
 public:
  explicit Reader(const Slots& slots) : slots_(slots) {}

  bool read(const ShapeRead& from, Number* out) {
    PyObject* value = slots_.get(from.node->slot);
    if (value == nullptr) return false;
    if (from.kind == ShapeRead::Float || from.kind == ShapeRead::Int) return number_from(value, from.kind, out);
    if (value != tensor_) {
      tensor_ = nullptr;
      if (!tensor_extents(value, &extents_)) return false;
      tensor_ = value;
    }
    const int64_t* dims = from.kind == ShapeRead::Stride ? extents_.strides : extents_.sizes;
    if (dims == nullptr || from.dim < 0 || from.dim >= extents_.dims) return false;
    *out = Number::of(dims[from.dim]);
    return true;
  }

 private:
  const Slots& slots_;
  PyObject* tensor_ = nullptr;
  Extents extents_;
};

// The values of all reads, without memory of their own where there are few.
class Values {
 public:
  explicit Values(size_t count) : items_(count <= kFew ? few_ : new Number[count]) {}
  ~Values() {
    if (items_ != few_) delete[] items_;
  }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  Number& operator[](size_t i) { return items_[i]; }
  const Number& operator[](size_t i) const { return items_[i]; }

 private:
  static constexpr size_t kFew = 32;
  Number few_[kFew];
  Number* items_;
};

// The result of the function for numbers read before; false where that raises (the exception stays set), or it is of another type.
bool compute(const ShapeRead& from, const Values& values, Number* out) {
  std::vector<Ref> made;
  std::vector<PyObject*> operands;
  for (size_t index : from.operands) {
    made.push_back(object_of(values[index]));
    operands.push_back(made.back().get());
  }
  const bool complete = std::find(operands.begin(), operands.end(), nullptr) == operands.end();
  Ref result;
  if (complete) result = Ref::steal(PyObject_Vectorcall(from.function.get(), operands.data(), operands.size(), nullptr));
  return result && number_from(result.get(), from.kind, out);
}

// The numbers of all reads; false, and which one, where it cannot be read.
bool read_all(const std::vector<ShapeRead>& reads, const Slots& slots, Values* values, size_t* failed) {
  Reader reader(slots);
  for (size_t& i = *failed = 0; i < reads.size(); i++) {
    Number* out = &(*values)[i];
    if (!(reads[i].function ? compute(reads[i], *values, out) : reader.read(reads[i], out))) return false;
  }
  return true;
}

constexpr size_t kDepth = 64;

// False where the value cannot be computed.
bool evaluate(const std::vector<ShapeCode>& code, const Values& values, Number* out) {
  Number stack[kDepth];
  size_t top = 0;
  for (const ShapeCode& step : code) {
    if (top >= kDepth) return false;
    switch (step.op) {
      case kRead: stack[top++] = values[static_cast<size_t>(step.operand)]; break;
      case kInt: stack[top++] = Number::of(step.operand); break;
      case kFloat: {
        double value;
        std::memcpy(&value, &step.operand, sizeof value);
        stack[top++] = Number::of(value);
        break;
      }
      case kChoose:
        top -= 2;
        stack[top - 1] = stack[top - 1].truth() ? stack[top] : stack[top + 1];
        break;
      default:
        if (step.op >= kNot) {
          if (!unary(step.op, &stack[top - 1])) return false;
          break;
        }
        top--;
        if (!binary(step.op, &stack[top - 1], stack[top])) return false;
    }
  }
  *out = stack[0];
  return top == 1;
}

// The same of a condition that is `whole`.
bool evaluate_whole(const std::vector<ShapeCode>& code, const Values& values, int64_t* out) {
  int64_t stack[kDepth];
  size_t top = 0;
  for (const ShapeCode& step : code) {
    if (step.op == kRead || step.op == kInt) {
      if (top >= kDepth) return false;
      stack[top++] = step.op == kRead ? values[static_cast<size_t>(step.operand)].i : step.operand;
      continue;
    }
    top--;
    int64_t& left = stack[top - 1];
    if (step.op == integers::Mul) {  // the most frequent
      if (__builtin_mul_overflow(left, stack[top], &left)) return false;
    } else if (!integers::compute(static_cast<Op>(step.op), left, stack[top], &left)) {
      return false;
    }
  }
  *out = stack[0];
  return top == 1;
}

bool is_whole(const std::vector<ShapeCode>& code, const std::vector<ShapeRead>& reads) {
  int depth = 0;
  for (const ShapeCode& step : code) {
    if (step.op == kInt) {
      depth++;
    } else if (step.op == kRead) {
      if (reads.at(static_cast<size_t>(step.operand)).kind == ShapeRead::Float) return false;
      depth++;
    } else if (step.op >= integers::kOps || --depth < 1) {
      return false;
    }
  }
  return depth == 1;
}

// The comparison that the program amounts to: [read, int or read, OP], or with a sum on its right.
ShapeComparison comparison_of(const std::vector<ShapeCode>& code) {
  const auto is = [&code](size_t i, int op) { return code[i].op == op; };
  const size_t n = code.size();
  ShapeComparison found;
  if ((n != 3 && n != 5) || !is(0, kRead) || code[n - 1].op < integers::Eq || code[n - 1].op > integers::Gt) return found;
  if (n == 3 && is(1, kInt)) {
    found.constant = code[1].operand;
  } else if (n == 3 && is(1, kRead)) {
    found.right = static_cast<int>(code[1].operand);
  } else if (n == 5 && is(3, integers::Add) && ((is(1, kInt) && is(2, kRead)) || (is(1, kRead) && is(2, kInt)))) {
    found.right = static_cast<int>(code[is(1, kRead) ? 1 : 2].operand);
    found.constant = code[is(1, kRead) ? 2 : 1].operand;
  } else {
    return found;
  }
  found.left = static_cast<int>(code[0].operand);
  found.op = code[n - 1].op;
  return found;
}

bool holds(const ShapeCondition& condition, const Values& values) {
  const ShapeComparison& quick = condition.comparison;
  if (quick.op >= 0) {
    const Number& left = values[static_cast<size_t>(quick.left)];
    const Number zero = Number::of(int64_t{0});
    const Number& right = quick.right < 0 ? zero : values[static_cast<size_t>(quick.right)];
    int64_t sum;
    if (!left.real && !right.real && !__builtin_add_overflow(right.i, quick.constant, &sum))
      return integers::compare(static_cast<Op>(quick.op), left.i, sum);
  }
  if (condition.whole) {
    int64_t truth;
    return evaluate_whole(condition.code, values, &truth) && truth != 0;
  }
  Number result;
  return evaluate(condition.code, values, &result) && result.truth();
}

std::string text_of(const Number& number) {
  return short_repr(object_of(number).get());
}

PyObject* item(PyObject* row, Py_ssize_t index) {
  PyObject* found = PyTuple_Check(row) && index < PyTuple_GET_SIZE(row) ? PyTuple_GET_ITEM(row, index) : nullptr;
  if (found == nullptr) PyErr_SetString(PyExc_TypeError, "a row of a 'shapes' guard is a tuple");
  return checked(found);
}

int64_t integer(PyObject* row, Py_ssize_t index) {
  int64_t value = PyLong_AsLongLong(item(row, index));
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

}  // namespace

ShapeCheck ShapeCheck::from(PyObject* payload, const std::vector<Node*>& nodes) {
  ShapeCheck made;
  Ref reads = Ref::steal(checked(PySequence_List(item(payload, 0))));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(reads.get()); i++) {
    PyObject* row = PyList_GET_ITEM(reads.get(), i);
    auto kind = static_cast<ShapeRead::Kind>(integer(row, 1));
    ShapeRead read{kind, nodes.at(static_cast<size_t>(integer(row, 0))), integer(row, 2), Ref(), {}};
    made.names.push_back(utf8(item(row, 3)));
    PyObject* computed = item(row, 4);
    for (Py_ssize_t j = 0; PyTuple_Check(computed) && j < PyTuple_GET_SIZE(computed); j++) {
      if (j == 0) {
        read.function = Ref::borrow(item(computed, j));
      } else {
        auto operand = static_cast<size_t>(integer(computed, j));
        if (operand >= made.reads.size()) throw std::out_of_range("an operand that is read later");
        read.operands.push_back(operand);
      }
    }
    made.reads.push_back(std::move(read));
  }
  Ref conditions = Ref::steal(checked(PySequence_List(item(payload, 1))));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(conditions.get()); i++) {
    PyObject* row = PyList_GET_ITEM(conditions.get(), i);
    ShapeCondition condition;
    Ref code = Ref::steal(checked(PySequence_List(item(row, 0))));
    for (Py_ssize_t j = 0; j < PyList_GET_SIZE(code.get()); j++) {
      PyObject* step = PyList_GET_ITEM(code.get(), j);
      condition.code.push_back({static_cast<int>(integer(step, 0)), integer(step, 1)});
      if (condition.code.back().op == kRead) condition.uses.push_back(static_cast<int>(integer(step, 1)));
    }
    condition.comparison = comparison_of(condition.code);
    condition.whole = is_whole(condition.code, made.reads);
    condition.text = utf8(item(row, 1));
    made.conditions.push_back(std::move(condition));
  }
  return made;
}

int ShapeCheck::traverse(visitproc visit, void* arg) const {
  for (const ShapeRead& read : reads) Py_VISIT(read.function.get());
  return 0;
}

bool ShapeCheck::check(const Slots& slots) const {
  Values values(reads.size());
  size_t failed;
  if (!read_all(reads, slots, &values, &failed)) return false;
  for (const ShapeCondition& condition : conditions)
    if (!holds(condition, values)) return false;
  return true;
}

std::string ShapeCheck::explain(const Slots& slots) const {
  Values values(reads.size());
  size_t failed;
  if (!read_all(reads, slots, &values, &failed)) {
    PyErr_Clear();
    return names[failed] + ": cannot be read";
  }
  for (const ShapeCondition& condition : conditions) {
    if (holds(condition, values)) continue;
    std::string numbers;
    for (int use : condition.uses) {
      auto index = static_cast<size_t>(use);
      std::string shown = names[index] + " is " + text_of(values[index]);
      if (numbers.find(shown) == std::string::npos) numbers += (numbers.empty() ? "" : ", ") + shown;
    }
    return condition.text + " does not hold: " + numbers;
  }
  return "";
}

}  // namespace guards
