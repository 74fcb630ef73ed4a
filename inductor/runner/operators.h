// Operators that a plan calls by name, of a library that the program is linked with (libtorch: libtorch/operators.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fg {

// One argument as the plan has it. Tensors and Numbers stand for those that a call brings, in their order.
struct Argument {
  enum Kind : uint8_t { None, Bool, Int, Real, String, DType, Device, Layout, MemoryFormat, List, Tensor, Number };
  Kind kind = None;
  int64_t integer = 0;           // Bool, Int; Tensor and Number: which
  double real = 0;               // Real
  std::string text;              // String, and the names of DType to MemoryFormat
  std::vector<Argument> items;   // List
  std::string keyword;           // empty: by position
};

// A tensor that an operator reads or writes, or the shape that one of its results has in the plan.
struct Window {
  void* data = nullptr;
  const char* type = nullptr;  // of the elements; nullptr: a result that nobody reads
  std::vector<int64_t> size, stride;
};

// A result: memory that shares nothing with the arguments', laid out as its Window says.
struct Made {
  std::shared_ptr<void> owner;
  void* data = nullptr;
};

// The results of one call of an operator. Both throw std::exception for results that are others.
class Results {
 public:
  virtual ~Results() = default;
  // A size of a result; -1: the result itself, a number.
  virtual int64_t number(size_t result, int64_t dim) const = 0;
  // All of them, each laid out as its window says. Once.
  virtual std::vector<Made> keep(const std::vector<Window>& windows) = 0;
};

class Operator {
 public:
  virtual ~Operator() = default;
  // By any number of threads at once. Throws std::exception.
  virtual std::unique_ptr<Results> call(const std::vector<Window>& tensors, const std::vector<int64_t>& numbers) const = 0;
};

}  // namespace fg

// The target of fg_options.operators.
struct fg_operators {
  const char* library;
  // Throws std::exception for a name that the library lacks, and for arguments that the operator does not take.
  std::unique_ptr<fg::Operator> (*find)(const char* name, const char* overload, const std::vector<fg::Argument>& args);
};
