// The plan of a program as it is run: read from the section `plan` (section.py describes it), checked, and immutable.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "file.h"
#include "framegraph.h"
#include "integers.h"
#include "json.h"
#include "operators.h"

namespace fg {

using KernelFunction = void (*)(void* const* pointers, int64_t begin, int64_t end);

// A library of kernels, loaded from the bytes of a section.
class Library {
 public:
  explicit Library(std::string_view bytes);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  KernelFunction find(const std::string& name) const;

 private:
  void* handle_ = nullptr;
  int file_ = -1;  // open as long as the library is: its name is that of the file descriptor
};

// A number of the plan: known, or in a register of the call.
struct Number {
  int64_t value = 0;
  int32_t reg = -1;

  int64_t get(const int64_t* registers) const { return reg < 0 ? value : registers[reg]; }
};

struct Register {
  enum Kind : uint8_t { Int, Dim, Const, Computed, Result };  // Result: an operator's
  Kind kind;
  int64_t a, b;      // Computed: registers
  int64_t stage;     // computed after so many operators that give numbers
  integers::Op op;   // Computed
};

struct Type {
  DLDataType dl;
  int64_t bytes;
  const char* name;
};

struct Value {
  enum Kind : uint8_t { Input, Static, Own, Arena, Produced, View };  // Produced: by an operator
  Kind kind;
  std::string name;
  const Type* type;
  std::vector<Number> size, stride;
  Number where;   // Input: of a call; Static: of the statics; Arena: byte offset; View: the value that it is a window of
  Number offset;  // View: elements
  Number nbytes;  // from the first to past the last element
  char* data = nullptr;  // Static
};

struct KernelArg {
  uint32_t base;  // a value, or one of the two behind them: the arena, the sizes
  Number offset;  // bytes
};

struct Kernel {
  KernelFunction function;
  std::vector<KernelArg> args;
  Number total, grain;
};

// A kernel's finding about wrong data: an int64 that is INT64_MIN, or a number to report.
struct Check {
  KernelArg found;
  std::string message;  // "{}" stands for the number found, "{0}", "{1}", ... for sizes
  std::vector<Number> sizes;
};

// A register that has its value from an operator: from a size of a result, or (-1) from the result itself.
struct Bind {
  uint32_t reg;
  size_t result;
  int64_t dim;
};

// An operator of a library, with the values and numbers of its call.
struct OperatorCall {
  std::unique_ptr<Operator> function;
  std::vector<uint32_t> tensors;
  std::vector<Number> numbers;
  std::vector<int64_t> results;  // values; -1: nobody reads it
  std::vector<Bind> binds;
  int64_t stage = 0;  // of the registers that can be computed then
};

struct Step {
  enum Kind : uint8_t { Alloc, Free, Run, Test, Call };
  Kind kind;
  uint32_t index;  // of a value, a kernel, a check or an operator's call
};

// A window that the plan returns; its memory is the value's, or a copy.
struct Output {
  uint32_t value;
  std::vector<Number> size, stride;
  Number offset;  // elements
};

// An expression over the symbols, and a condition on them.
struct Expression {
  // Computed: an operator of integers, of two operands, or of more from the left.
  enum Kind : uint8_t { Constant, Symbol, Computed, Truth, Choose, Not };
  Kind kind;
  int64_t value = 0;  // Constant; Symbol: which
  std::vector<Expression> args;
  integers::Op op = integers::Add;  // Computed

  // Throws Error for a number that does not fit into 64 bits.
  int64_t get(const std::vector<int64_t>& symbols) const;
};

struct Input {
  std::string path;
  const Type* type;
  bool number;  // an int64 of no dimensions, in place of a tensor
  std::vector<Expression> size, stride;
};

struct Symbol {
  std::string label;
  int64_t low, high;
  enum Where : uint8_t { Size, Stride, Given, Fixed } where;
  int64_t leaf, dim;  // Fixed: the value
};

struct Condition {
  Expression holds;
  std::string text;
};

// A value that a call brings to the plan, or returns besides its outputs.
struct Source {
  enum Kind : uint8_t { Leaf, Computed, Plan, Held };
  Kind kind = Leaf;
  uint32_t index = 0;  // of an input, an output or a value
  Expression number{Expression::Constant, 0, {}};
};

struct Result {
  std::string path;
  Source source;
};

class Program {
 public:
  Program(File& file, const fg_operators* operators);

  std::vector<Input> inputs;
  std::vector<Symbol> symbols;
  std::vector<Condition> conditions;
  std::vector<Source> given;  // the values that a call brings to the plan
  std::vector<Register> registers;
  std::vector<Number> sizes;
  Number arena;
  std::vector<Value> values;
  std::vector<Step> steps;
  std::vector<Kernel> kernels;
  std::vector<Check> checks;
  std::vector<OperatorCall> calls;
  std::vector<Output> outputs;
  std::vector<uint32_t> written;  // inputs that the program writes
  std::vector<Result> results;

  uint32_t arena_base() const { return static_cast<uint32_t>(values.size()); }
  uint32_t sizes_base() const { return static_cast<uint32_t>(values.size()) + 1; }

 private:
  friend class Reader;
  std::unique_ptr<Library> library_;
};

// The type of a tensor's elements, by its name; by DLPack's: nullptr if there is none.
const Type& type_of(const std::string& name);
const Type* type_of(DLDataType type);

}  // namespace fg
