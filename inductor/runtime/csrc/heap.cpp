#include "heap.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

namespace framegraph {
namespace {

constexpr size_t kPage = size_t{4} << 10;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kHugeBlock = 4 * kHugePage;  // from here on of huge pages: fewer faults, fewer TLB misses
constexpr size_t kStep = size_t{32} << 20;    // by which a region's writable part grows
constexpr size_t kRegion = size_t{1} << 38;   // of address space, where there is as much

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

#if defined(__unix__) || defined(__APPLE__)
#if !defined(MAP_NORESERVE)
#define MAP_NORESERVE 0
#endif

void* map(size_t size) {
  void* found = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return found == MAP_FAILED ? nullptr : found;
}

bool make_ready(uintptr_t start, size_t size) {
  return mprotect(reinterpret_cast<void*>(start), size, PROT_READ | PROT_WRITE) == 0;
}

bool take_pages(uintptr_t start, size_t size) {
  return madvise(reinterpret_cast<void*>(start), size, MADV_DONTNEED) == 0;
}

void use_huge_pages(uintptr_t start, size_t size) {
#if defined(__linux__)
  madvise(reinterpret_cast<void*>(start), size, MADV_HUGEPAGE);
#endif
}
#else
void use_huge_pages(uintptr_t, size_t) {}
void* map(size_t) { return nullptr; }
bool make_ready(uintptr_t, size_t) { return false; }
bool take_pages(uintptr_t, size_t) { return false; }
#endif

}  // namespace

size_t Heap::rounded(size_t bytes) { return round_up(std::max<size_t>(bytes, 1), kPage); }

void* Heap::acquire(size_t size) {
  const auto best = by_size_.lower_bound({size, 0});
  if (best == by_size_.end()) return extend(size);
  const Address start = best->second;
  const auto hole = holes_.find(start);
  const Address end = hole->second;
  remove_hole(hole);
  if (start + size < end) {
    holes_.emplace(start + size, end);
    by_size_.emplace(end - start - size, start + size);
  }
  idle_ -= size - warm(start, start + size);
  return reinterpret_cast<void*>(start);
}

void Heap::release(void* block, size_t size) {
  const auto start = reinterpret_cast<Address>(block);
  idle_ += size;
  add_hole(start, start + size);
}

// From the end of the address space that was used: low addresses are used again first.
void Heap::give_back(size_t spare) {
  for (auto hole = holes_.rbegin(); idle_ > spare && hole != holes_.rend(); ++hole) {
    Address high = hole->second;
    while (idle_ > spare && high > hole->first) {
      const size_t size = std::min<size_t>(round_up(idle_ - spare, kPage), high - hole->first);
      high -= size;
      if (!take_pages(high, size)) return;
      idle_ -= cool(high, high + size);
    }
  }
}

// A block from unused address space, together with the hole before it.
void* Heap::extend(size_t size) {
  if (regions_.empty() && !reserve(size)) return nullptr;
  for (int attempt = 0; attempt < 2; ++attempt) {
    Region& region = regions_.back();
    auto last = holes_.lower_bound(region.used);
    last = last == holes_.begin() || std::prev(last)->second != region.used ? holes_.end() : std::prev(last);
    const Address start = last == holes_.end() ? region.used : last->first;
    if (grow(region, start + size)) {
      if (last != holes_.end()) {
        const size_t before = last->second - start;
        remove_hole(last);
        idle_ -= before - warm(start, start + before);
      }
      region.used = start + size;
      if (size >= kHugeBlock) use_huge_pages(start, size);
      return reinterpret_cast<void*>(start);
    }
    if (attempt == 0 && !reserve(size)) return nullptr;
  }
  return nullptr;
}

bool Heap::grow(Region& region, Address used) {
  if (used > region.end) return false;
  if (used <= region.ready) return true;
  const Address ready = std::min<Address>(region.end, region.start + round_up(used - region.start, kStep));
  if (!make_ready(region.ready, ready - region.ready)) return false;
  region.ready = ready;
  return true;
}

bool Heap::reserve(size_t size) {
  const size_t least = round_up(size, kHugePage) + kHugePage;
  for (size_t bytes = std::max(kRegion, least);; bytes = std::max(bytes / 4, least)) {
    if (void* found = map(bytes)) {
      const Address start = round_up(reinterpret_cast<Address>(found), kHugePage);
      regions_.push_back({start, start, start, reinterpret_cast<Address>(found) + bytes});
      return true;
    }
    if (bytes == least) return false;
  }
}

void Heap::add_hole(Address start, Address end) {
  const auto next = holes_.lower_bound(start);
  if (next != holes_.end() && next->first == end) {
    end = next->second;
    remove_hole(next);
  }
  const auto after = holes_.lower_bound(start);
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    if (before->second == start) {
      start = before->first;
      remove_hole(before);
    }
  }
  holes_.emplace(start, end);
  by_size_.emplace(end - start, start);
}

void Heap::remove_hole(std::map<Address, Address>::iterator hole) {
  by_size_.erase({hole->second - hole->first, hole->first});
  holes_.erase(hole);
}

size_t Heap::cool(Address start, Address end) {
  const size_t warm_bytes = end - start - warm(start, end);
  const auto next = cold_.find(end);
  if (next != cold_.end()) {
    end = next->second;
    cold_.erase(next);
  }
  const auto after = cold_.lower_bound(start);
  if (after != cold_.begin() && std::prev(after)->second == start) {
    std::prev(after)->second = end;
  } else {
    cold_.emplace(start, end);
  }
  return warm_bytes;
}

size_t Heap::warm(Address start, Address end) {
  size_t found = 0;
  auto it = cold_.upper_bound(start);
  if (it != cold_.begin()) --it;
  while (it != cold_.end() && it->first < end) {
    const Address low = std::max(it->first, start), high = std::min(it->second, end);
    const auto [first, last] = *it;
    if (low >= high) {
      ++it;
      continue;
    }
    found += high - low;
    it = cold_.erase(it);
    if (first < low) cold_.emplace(first, low);
    if (high < last) it = cold_.emplace(high, last).first;
  }
  return found;
}

}  // namespace framegraph
