// Python's integers in 64 bits: the one evaluator of guards on sizes, of the sizes that a plan computes,
// and of those of a saved program. It lies here because the runner is compiled from this folder alone.
#pragma once

#include <cstdint>
#include <cstring>

namespace integers {

enum Op : uint8_t {
  Add, Sub, Mul, Pow, FloorDiv, Mod, Max, Min, Eq, Ne, Le, Ge, Lt, Gt, And, Or, BitAnd, BitOr, BitXor, LeftShift, RightShift,
};
constexpr int kOps = RightShift + 1;

// As plans write them (inductor/runtime/size_program.py).
constexpr const char* kNames[kOps] = {"add", "sub", "mul", "pow", "//", "%",   "max", "min", "==", "!=", "<=",
                                      ">=",  "<",   ">",   "and", "or", "&",   "|",   "^",   "<<", ">>"};

inline const char* name_of(Op op) { return kNames[op]; }

inline bool op_named(const char* name, Op* op) {
  for (int i = 0; i < kOps; ++i) {
    if (std::strcmp(kNames[i], name) == 0) return *op = static_cast<Op>(i), true;
  }
  return false;
}

// Rounded towards minus infinity; the rest has the sign of b.
inline bool divide(int64_t a, int64_t b, int64_t* quotient, int64_t* rest) {
  if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  *quotient = a / b;
  *rest = a % b;
  if (*rest != 0 && (*rest < 0) != (b < 0)) {
    *quotient -= 1;
    *rest += b;
  }
  return true;
}

inline bool power(int64_t base, int64_t exponent, int64_t* out) {
  *out = 1;
  if (exponent < 0) return false;
  if (exponent > 63 && base >= -1 && base <= 1) exponent = 2 + exponent % 2;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(*out, base, out)) return false;
  }
  return true;
}

inline bool shift_left(int64_t a, int64_t by, int64_t* out) {
  if (by < 0 || (by > 63 && a != 0)) return false;
  return !__builtin_mul_overflow(a, uint64_t{1} << (by & 63), out);
}

// One of the six comparisons.
inline bool compare(Op op, int64_t a, int64_t b) {
  switch (op) {
    case Eq: return a == b;
    case Ne: return a != b;
    case Le: return a <= b;
    case Ge: return a >= b;
    case Lt: return a < b;
    default: return a > b;
  }
}

// *out = a OP b, 1 and 0 for true and false; returns false where Python raises, or the result has more than 64 bits.
inline bool compute(Op op, int64_t a, int64_t b, int64_t* out) {
  int64_t unused = 0;
  switch (op) {
    case Add: return !__builtin_add_overflow(a, b, out);
    case Sub: return !__builtin_sub_overflow(a, b, out);
    case Mul: return !__builtin_mul_overflow(a, b, out);
    case Pow: return power(a, b, out);
    case FloorDiv: return divide(a, b, out, &unused);
    case Mod:
      if (b == -1) return *out = 0, true;
      return divide(a, b, &unused, out);
    case Max: return *out = a > b ? a : b, true;
    case Min: return *out = a < b ? a : b, true;
    case Eq: case Ne: case Le: case Ge: case Lt: case Gt: return *out = compare(op, a, b), true;
    case And: return *out = a != 0 && b != 0, true;
    case Or: return *out = a != 0 || b != 0, true;
    case BitAnd: return *out = a & b, true;
    case BitOr: return *out = a | b, true;
    case BitXor: return *out = a ^ b, true;
    case LeftShift: return shift_left(a, b, out);
    case RightShift:
      if (b < 0) return false;
      return *out = a >> (b < 63 ? b : 63), true;
  }
  return false;
}

}  // namespace integers
