// One call of a program at a time, or several: each call changes a State of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "plan.h"
#include "pool.h"

namespace fg {

// Memory that results hold together.
class Block {
 public:
  explicit Block(int64_t bytes);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  char* data() const { return data_; }

 private:
  char* data_;
};

// Everything that a call changes; kept for the next one.
struct State {
  std::vector<int64_t> symbols, registers, sizes;
  std::vector<char*> base;  // of each value, of the arena, of the sizes
  std::vector<std::shared_ptr<void>> own;  // owners of the memory of separate values, and of results of operators
  std::vector<void*> pointers;
  std::unique_ptr<Block> arena;
  int64_t arena_bytes = 0;
};

class Runner {
 public:
  Runner(const char* path, int threads, const fg_operators* operators);

  const Program& program() const { return program_; }
  // Throws Error; `results` are as they were then.
  void run(DLTensor* const* inputs, int input_count, DLManagedTensor** results, int result_count) const;

 private:
  std::unique_ptr<State> lease() const;

  File file_;
  Program program_;
  mutable Pool pool_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<State>> idle_;
};

}  // namespace fg
