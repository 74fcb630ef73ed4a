// Conditions on sizes, strides and numbers: "2*x.size(0) <= y.size(1)", checked after all other guards.
//
// A condition is a program for a stack of numbers, made by dynamo/guards/shape_payload.py: opcodes in order of
// evaluation, each with its operand. What would overflow, or divide by zero, fails the guard.
#pragma once

#include <string>
#include <vector>

#include "guard_support.h"

namespace guards {

struct Node;

// What is read of the value of a node, or, with a function, of its result for the values of earlier reads.
struct ShapeRead {
  enum Kind { Int, Float, Size, Stride } kind;
  Node* node;
  int64_t dim;
  Ref function;
  std::vector<size_t> operands;
};

struct ShapeCode {
  int op;
  int64_t operand;
};

// "read OP read + constant" is decided without the stack: nearly all conditions are.
struct ShapeComparison {
  int op = -1;  // -1: it is none
  int left = -1, right = -1;  // numbers of reads of ints; right < 0: only the constant
  int64_t constant = 0;
};

struct ShapeCondition {
  std::vector<ShapeCode> code;
  ShapeComparison comparison;
  bool whole = false;  // only reads of ints, ints, and operators of two ints
  std::string text;
  std::vector<int> uses;  // the reads that take part in it
};

class ShapeCheck {
 public:
  std::vector<ShapeRead> reads;
  std::vector<std::string> names;  // parallel to reads
  std::vector<ShapeCondition> conditions;

  // Payload: (reads: [(node index, kind, dim, name, () or (function, *operands))], conditions: [([(op, operand)], text)]).
  static ShapeCheck from(PyObject* payload, const std::vector<Node*>& nodes);
  int traverse(visitproc visit, void* arg) const;
  bool check(const Slots& slots) const;
  // The first condition that fails, with the numbers in it; "" if all hold.
  std::string explain(const Slots& slots) const;
};

// Sizes and strides of a tensor, as they are until it changes.
struct Extents {
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  int64_t dims = 0;
};

// Implemented in guard_tensor.cpp; false for what is no tensor, or has no sizes to look at.
bool tensor_extents(PyObject* tensor, Extents* out);

}  // namespace guards
