#include "guard_shapes.h"

#include <cmath>
#include <cstring>

#include "guard_tree.h"

namespace guards {

namespace {

// A Python int that fits into 64 bits, or a float.
struct Number {
  bool real = false;
  int64_t i = 0;
  double d = 0;

  static Number of(int64_t value) { return {false, value, 0}; }
  static Number of(double value) { return {true, 0, value}; }
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

// Numbered as in dynamo/shape_guards.py.
enum Op {
  kRead, kInt, kFloat, kAdd, kSub, kMul, kPow, kFloorDiv, kMod, kMax, kMin, kEq, kNe, kLe, kGe, kLt, kGt,
  kAnd, kOr, kNot, kChoose, kBitAnd, kBitOr, kBitXor, kTrueDiv, kNeg, kToFloat,
};

bool int_floordiv(int64_t a, int64_t b, int64_t* quotient, int64_t* rest) {
  if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  *quotient = a / b;
  *rest = a % b;
  if (*rest != 0 && (*rest < 0) != (b < 0)) {
    *quotient -= 1;
    *rest += b;
  }
  return true;
}

bool int_power(int64_t base, int64_t exponent, int64_t* out) {
  if (exponent < 0 || exponent > 63) return false;
  *out = 1;
  for (; exponent > 0; exponent--)
    if (__builtin_mul_overflow(*out, base, out)) return false;
  return true;
}

bool of_ints(int op, int64_t a, int64_t b, Number* out) {
  int64_t result = 0, other = 0;
  bool fine = true;
  switch (op) {
    case kAdd: fine = !__builtin_add_overflow(a, b, &result); break;
    case kSub: fine = !__builtin_sub_overflow(a, b, &result); break;
    case kMul: fine = !__builtin_mul_overflow(a, b, &result); break;
    case kPow: fine = int_power(a, b, &result); break;
    case kFloorDiv: fine = int_floordiv(a, b, &result, &other); break;
    case kMod: fine = int_floordiv(a, b, &other, &result); break;
    case kMax: result = a > b ? a : b; break;
    case kMin: result = a < b ? a : b; break;
    case kEq: result = a == b; break;
    case kNe: result = a != b; break;
    case kLe: result = a <= b; break;
    case kGe: result = a >= b; break;
    case kLt: result = a < b; break;
    case kGt: result = a > b; break;
    case kAnd: result = a != 0 && b != 0; break;
    case kOr: result = a != 0 || b != 0; break;
    case kBitAnd: result = a & b; break;
    case kBitOr: result = a | b; break;
    case kBitXor: result = a ^ b; break;
    default: return false;
  }
  *out = Number::of(result);
  return fine;
}

bool of_reals(int op, double a, double b, Number* out) {
  switch (op) {
    case kAdd: *out = Number::of(a + b); return true;
    case kSub: *out = Number::of(a - b); return true;
    case kMul: *out = Number::of(a * b); return true;
    case kTrueDiv: *out = Number::of(a / b); return b != 0;
    case kMax: *out = Number::of(a > b ? a : b); return true;
    case kMin: *out = Number::of(a < b ? a : b); return true;
    case kEq: *out = Number::of(int64_t{a == b}); return true;
    case kNe: *out = Number::of(int64_t{a != b}); return true;
    case kLe: *out = Number::of(int64_t{a <= b}); return true;
    case kGe: *out = Number::of(int64_t{a >= b}); return true;
    case kLt: *out = Number::of(int64_t{a < b}); return true;
    case kGt: *out = Number::of(int64_t{a > b}); return true;
    case kAnd: *out = Number::of(int64_t{a != 0 && b != 0}); return true;
    case kOr: *out = Number::of(int64_t{a != 0 || b != 0}); return true;
    default: return false;
  }
}

bool binary(int op, const Number& a, const Number& b, Number* out) {
  if (!a.real && !b.real && op != kTrueDiv) return of_ints(op, a.i, b.i, out);
  double x, y;
  return a.as_double(&x) && b.as_double(&y) && of_reals(op, x, y, out);
}

bool read(const ShapeRead& from, const std::vector<Ref>& slots, Number* out) {
  PyObject* value = slots[static_cast<size_t>(from.node->slot)].get();
  if (value == nullptr) return false;
  switch (from.kind) {
    case ShapeRead::Float:
      if (!PyFloat_CheckExact(value)) return false;
      *out = Number::of(PyFloat_AS_DOUBLE(value));
      return true;
    case ShapeRead::Int: {
      if (!PyLong_CheckExact(value)) return false;
      int overflow = 0;
      *out = Number::of(int64_t{PyLong_AsLongLongAndOverflow(value, &overflow)});
      return overflow == 0;
    }
    default: {
      int64_t extent = 0;
      if (!tensor_extent(value, from.kind == ShapeRead::Stride, from.dim, &extent)) return false;
      *out = Number::of(extent);
      return true;
    }
  }
}

constexpr size_t kDepth = 64;

// False where the value cannot be computed.
bool evaluate(const std::vector<ShapeCode>& code, const std::vector<Number>& values, Number* out) {
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
      case kNot: stack[top - 1] = Number::of(int64_t{!stack[top - 1].truth()}); break;
      case kNeg: {
        Number& a = stack[top - 1];
        if (!a.real && a.i == INT64_MIN) return false;
        a = a.real ? Number::of(-a.d) : Number::of(-a.i);
        break;
      }
      case kToFloat: {
        double value;
        if (!stack[top - 1].as_double(&value)) return false;
        stack[top - 1] = Number::of(value);
        break;
      }
      case kChoose:
        top -= 2;
        stack[top - 1] = stack[top - 1].truth() ? stack[top] : stack[top + 1];
        break;
      default:
        top--;
        if (!binary(step.op, stack[top - 1], stack[top], &stack[top - 1])) return false;
    }
  }
  *out = stack[0];
  return top == 1;
}

bool holds(const ShapeCondition& condition, const std::vector<Number>& values) {
  Number result;
  return evaluate(condition.code, values, &result) && result.truth();
}

std::string text_of(const Number& number) {
  Ref object = Ref::steal(number.real ? PyFloat_FromDouble(number.d) : PyLong_FromLongLong(number.i));
  return short_repr(object.get());
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
    made.reads.push_back({kind, nodes.at(static_cast<size_t>(integer(row, 0))), integer(row, 2)});
    made.names.push_back(utf8(item(row, 3)));
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
    condition.text = utf8(item(row, 1));
    made.conditions.push_back(std::move(condition));
  }
  return made;
}

bool ShapeCheck::check(const std::vector<Ref>& slots) const {
  std::vector<Number> values(reads.size());
  for (size_t i = 0; i < reads.size(); i++)
    if (!read(reads[i], slots, &values[i])) return false;
  for (const ShapeCondition& condition : conditions)
    if (!holds(condition, values)) return false;
  return true;
}

std::string ShapeCheck::explain(const std::vector<Ref>& slots) const {
  std::vector<Number> values(reads.size());
  for (size_t i = 0; i < reads.size(); i++)
    if (!read(reads[i], slots, &values[i])) return names[i] + ": cannot be read";
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
