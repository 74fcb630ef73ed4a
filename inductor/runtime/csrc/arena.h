// Arenas: reusable memory for the temporaries and the large outputs of plans.
//
// A fresh large malloc costs a page fault per page on every call, which for a memory-bound kernel is more than its
// work. So blocks are kept warm in one process-wide pool that all plans and threads share; large ones are cut out of a
// heap of the pool's own (heap.h). The pool never makes the process larger than 9/8 of what its blocks in use once were,
// since the newest plan was made (or kSpare, if that is more): compiling measures, with more. The rest goes back to the
// system.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstddef>

namespace framegraph {

// A block of at least `bytes`, aligned to 64 bytes, with undefined contents.
c10::Storage acquire_arena(size_t bytes);

// Gives a block back. One that some tensor still refers to is left to that tensor.
void release_arena(c10::Storage&& arena) noexcept;

// A storage of `bytes` whose memory goes back to the pool when its last tensor dies, in any thread.
c10::Storage pooled_storage(size_t bytes);

// Whether a tensor's memory that this function frees came from the pool.
bool is_of_results(c10::DeleterFnPtr deleter);

// What was used so far is no measure of what the calls of a new plan will use.
void expect_another_plan();

// The most bytes that idle arenas may hold. Frees the excess at once.
void set_arena_limit(size_t bytes);

// Bytes held by idle arenas now.
size_t idle_arena_bytes();

// An arena for one scope: of the pool, or from torch's allocator for another device.
class ArenaLease {
 public:
  ArenaLease(size_t bytes, c10::Device device) : of_pool_(device.is_cpu()) {
    if (bytes > 0) storage_ = of_pool_ ? acquire_arena(bytes) : device_arena(bytes, device);
  }
  ~ArenaLease() {
    if (storage_ && of_pool_) release_arena(std::move(storage_));
  }
  ArenaLease(const ArenaLease&) = delete;
  ArenaLease& operator=(const ArenaLease&) = delete;

  const c10::Storage& storage() const { return storage_; }
  char* data() const { return storage_ ? static_cast<char*>(storage_.mutable_data()) : nullptr; }

 private:
  static c10::Storage device_arena(size_t bytes, c10::Device device);

  bool of_pool_;
  c10::Storage storage_;
};

}  // namespace framegraph
