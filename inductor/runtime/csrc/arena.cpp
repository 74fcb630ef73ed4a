#include "arena.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace framegraph {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kCacheLine = 64;
constexpr size_t kSpare = size_t{64} << 20;

// Idle blocks, least recently used first.
struct Pool {
  std::mutex mutex;
  std::vector<c10::Storage> idle;
  size_t idle_bytes = 0;
  size_t used_bytes = 0;       // of blocks in use
  size_t most_used_bytes = 0;  // what used_bytes once was
  size_t limit = size_t{1} << 30;
};

Pool& pool() {
  // Never destroyed: a daemon thread may still release an arena while the process exits.
  static Pool* instance = new Pool;
  return *instance;
}

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Blocks from this size on are made of huge pages: fewer faults, fewer TLB misses.
constexpr size_t kHugeBlock = 4 * kHugePage;

// Small sizes are rounded so that plans of similar size can share a block, at a waste of at most 1/8.
size_t block_size(size_t bytes) {
  if (bytes >= kHugeBlock) return round_up(bytes, kHugePage);
  size_t unit = kCacheLine;
  while (unit * 8 < bytes) unit *= 2;
  return round_up(bytes, unit);
}

c10::Storage allocate(size_t bytes) {
  const bool large = bytes >= kHugeBlock;
  void* data = std::aligned_alloc(large ? kHugePage : kCacheLine, bytes);
  TORCH_CHECK(data != nullptr, "framegraph: no memory for an arena of ", bytes, " bytes");
#if defined(__linux__)
  if (large) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  c10::DataPtr pointer(data, data, [](void* p) { std::free(p); }, c10::Device(c10::DeviceType::CPU));
  return c10::Storage(c10::Storage::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)), std::move(pointer),
                      c10::GetCPUAllocator(), /*resizable=*/false);
}

// Drops the least recently used blocks into `dropped`, whose memory the caller frees without the lock.
void trim(Pool& p, std::vector<c10::Storage>& dropped) {
  const size_t total = std::max(kSpare, p.most_used_bytes);
  while (!p.idle.empty() && (p.idle_bytes > p.limit || p.idle_bytes + p.used_bytes > total)) {
    p.idle_bytes -= p.idle.front().nbytes();
    dropped.push_back(std::move(p.idle.front()));
    p.idle.erase(p.idle.begin());
  }
}

void count_used(Pool& p, size_t bytes) {
  p.used_bytes += bytes;
  p.most_used_bytes = std::max(p.most_used_bytes, p.used_bytes);
}

}  // namespace

c10::Storage acquire_arena(size_t bytes) {
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
  std::vector<c10::Storage> dropped;
  Pool& p = pool();
  std::lock_guard<std::mutex> lock(p.mutex);
  p.used_bytes -= mine.nbytes();
  if (!mine.unique()) return;
  p.idle_bytes += mine.nbytes();
  p.idle.push_back(std::move(mine));
  trim(p, dropped);
}

c10::Storage pooled_storage(size_t bytes) {
  auto* block = new c10::Storage(acquire_arena(bytes));
  c10::DataPtr pointer(
      block->mutable_data(), block,
      [](void* context) {
        auto* held = static_cast<c10::Storage*>(context);
        release_arena(std::move(*held));
        delete held;
      },
      c10::Device(c10::DeviceType::CPU));
  return c10::Storage(c10::Storage::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)), std::move(pointer),
                      c10::GetCPUAllocator(), /*resizable=*/true);
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
  return p.idle_bytes;
}

}  // namespace framegraph
