// Conditions on sizes, strides and numbers: "2*x.size(0) <= y.size(1)", checked after all other guards.
//
// A condition is a program for a stack of numbers, made by dynamo/shape_guards.py: opcodes in order of
// evaluation, each with its operand. What would overflow, or divide by zero, fails the guard.
#pragma once

#include <string>
#include <vector>

#include "guard_support.h"

namespace guards {

struct Node;

// What is read of the value of a node.
struct ShapeRead {
  enum Kind { Int, Float, Size, Stride } kind;
  Node* node;
  int64_t dim;
};

struct ShapeCode {
  int op;
  int64_t operand;
};

struct ShapeCondition {
  std::vector<ShapeCode> code;
  std::string text;
  std::vector<int> uses;  // the reads that take part in it
};

class ShapeCheck {
 public:
  std::vector<ShapeRead> reads;
  std::vector<std::string> names;  // parallel to reads
  std::vector<ShapeCondition> conditions;

  // Payload: (reads: [(node index, kind, dim, name)], conditions: [([(op, operand)], text)]).
  static ShapeCheck from(PyObject* payload, const std::vector<Node*>& nodes);
  bool check(const std::vector<Ref>& slots) const;
  // The first condition that fails, with the numbers in it; "" if all hold.
  std::string explain(const std::vector<Ref>& slots) const;
};

// Implemented in guard_tensor.cpp: tensor.size(dim) or tensor.stride(dim); false if there is none.
bool tensor_extent(PyObject* tensor, bool stride, int64_t dim, int64_t* out);

}  // namespace guards
