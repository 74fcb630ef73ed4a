#include "arena.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "heap.h"

namespace framegraph {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kSpare = size_t{4} << 20;
// Blocks from this size on are cut out of the heap; smaller ones are kept whole.
constexpr size_t kCut = size_t{64} << 10;

struct Pool {
  std::mutex mutex;
  Heap heap;
  std::vector<c10::Storage> idle;  // small blocks, least recently used first
  size_t idle_bytes = 0;           // of those
  size_t used_bytes = 0;           // of blocks in use, of both kinds
  size_t most_used_bytes = 0;      // the maximum of used_bytes since there is the newest plan
  size_t limit = size_t{1} << 30;
};

Pool& pool() {
  // Never destroyed: a daemon thread may still release an arena while the process exits.
  static Pool* instance = new Pool;
  return *instance;
}

// Small sizes are rounded so that plans of similar size can share a block, at a waste of at most 1/8.
size_t block_size(size_t bytes) {
  size_t unit = kCacheLine;
  while (unit * 8 < bytes) unit *= 2;
  return (bytes + unit - 1) / unit * unit;
}

c10::Storage storage_of(size_t bytes, c10::DataPtr data, bool resizable) {
  return c10::Storage(c10::Storage::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)), std::move(data),
                      c10::GetCPUAllocator(), resizable);
}

void free_block(void* block) { std::free(block); }

c10::Storage allocate(size_t bytes) {
  void* data = std::aligned_alloc(kCacheLine, bytes);
  TORCH_CHECK(data != nullptr, "framegraph: no memory for an arena of ", bytes, " bytes");
  return storage_of(bytes, {data, data, free_block, c10::Device(c10::DeviceType::CPU)}, false);
}

// Drops the least recently used blocks into `dropped`, whose memory the caller frees without the lock.
void trim(Pool& p, std::vector<c10::Storage>& dropped) {
  // An eighth more: free memory is not always where the next block fits, and what is cold then faults page by page.
  const size_t total = std::max(kSpare, p.most_used_bytes + p.most_used_bytes / 8);
  const size_t spare = std::min(p.limit, total > p.used_bytes ? total - p.used_bytes : 0);
  p.heap.give_back(spare);
  while (!p.idle.empty() && p.idle_bytes + p.heap.idle_bytes() > spare) {
    p.idle_bytes -= p.idle.front().nbytes();
    dropped.push_back(std::move(p.idle.front()));
    p.idle.erase(p.idle.begin());
  }
}

void count_used(Pool& p, size_t bytes) {
  p.used_bytes += bytes;
  p.most_used_bytes = std::max(p.most_used_bytes, p.used_bytes);
}

// A block cut out of the heap, which its last tensor gives back.
struct Cut {
  void* data;
  size_t bytes;
};

void give_back(void* context) {
  auto* cut = static_cast<Cut*>(context);
  std::vector<c10::Storage> dropped;
  {
    Pool& p = pool();
    std::lock_guard<std::mutex> lock(p.mutex);
    p.heap.release(cut->data, cut->bytes);
    p.used_bytes -= cut->bytes;
    trim(p, dropped);
  }
  delete cut;
}

c10::Storage cut(size_t bytes, bool resizable) {
  const size_t size = Heap::rounded(bytes);
  auto* made = new Cut{nullptr, size};
  std::vector<c10::Storage> dropped;
  {
    Pool& p = pool();
    std::lock_guard<std::mutex> lock(p.mutex);
    made->data = p.heap.acquire(size);
    if (made->data != nullptr) {
      count_used(p, size);
      trim(p, dropped);
    }
  }
  if (made->data == nullptr) {
    delete made;
    TORCH_CHECK(false, "framegraph: no memory for a block of ", bytes, " bytes");
  }
  return storage_of(bytes, {made->data, made, give_back, c10::Device(c10::DeviceType::CPU)}, resizable);
}

}  // namespace

bool is_of_results(c10::DeleterFnPtr deleter) { return deleter == give_back || deleter == free_block; }

c10::Storage acquire_arena(size_t bytes) {
  if (bytes >= kCut) return cut(bytes, /*resizable=*/false);
  const size_t size = block_size(bytes);
  Pool& p = pool();
  std::vector<c10::Storage> dropped;
  {
    std::lock_guard<std::mutex> lock(p.mutex);
    auto best = p.idle.end();
    for (auto it = p.idle.begin(); it != p.idle.end(); ++it) {
      // A block far too large is left for a plan that needs it.
      if (it->nbytes() < bytes || it->nbytes() > 4 * size) continue;
      if (best == p.idle.end() || it->nbytes() <= best->nbytes()) best = it;
    }
    if (best != p.idle.end()) {
      c10::Storage found = std::move(*best);
      p.idle.erase(best);
      p.idle_bytes -= found.nbytes();
      count_used(p, found.nbytes());
      return found;
    }
    count_used(p, size);
    trim(p, dropped);
  }
  dropped.clear();
  return allocate(size);
}

void release_arena(c10::Storage&& arena) noexcept {
  c10::Storage mine = std::move(arena);
  if (mine.nbytes() >= kCut) return;  // its last tensor gives it back
  std::vector<c10::Storage> dropped;
  Pool& p = pool();
  std::lock_guard<std::mutex> lock(p.mutex);
  p.used_bytes -= mine.nbytes();
  if (!mine.unique()) return;
  p.idle_bytes += mine.nbytes();
  p.idle.push_back(std::move(mine));
  trim(p, dropped);
}

c10::Storage pooled_storage(size_t bytes) { return cut(bytes, /*resizable=*/true); }

c10::Storage ArenaLease::device_arena(size_t bytes, c10::Device device) {
  return at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(device).dtype(at::kByte)).storage();
}

void expect_another_plan() {
  Pool& p = pool();
  std::lock_guard<std::mutex> lock(p.mutex);
  p.most_used_bytes = p.used_bytes;
}

void set_arena_limit(size_t bytes) {
  std::vector<c10::Storage> dropped;
  Pool& p = pool();
  std::lock_guard<std::mutex> lock(p.mutex);
  p.limit = bytes;
  trim(p, dropped);
}

size_t idle_arena_bytes() {
  Pool& p = pool();
  std::lock_guard<std::mutex> lock(p.mutex);
  return p.idle_bytes + p.heap.idle_bytes();
}

}  // namespace framegraph
