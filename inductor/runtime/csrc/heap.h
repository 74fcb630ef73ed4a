// A heap for large blocks, whose free memory can be given back to the system page by page.
//
// malloc mixes tensors with small objects that outlive them: memory between cannot be given back, nor serve a tensor
// that is a little larger. Here each block is whole pages; neighbours that are free are one hole again; a block goes
// into the smallest hole that holds it. A hole may be cold: the system has taken its pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace framegraph {

// Not thread-safe. Sizes are those of `rounded`.
class Heap {
 public:
  static size_t rounded(size_t bytes);

  // A block with undefined contents, or null if the system has no memory.
  void* acquire(size_t size);

  void release(void* block, size_t size);

  // Gives memory of holes back to the system until at most `spare` bytes of them are not cold.
  void give_back(size_t spare);

  // Bytes of holes that are not cold.
  size_t idle_bytes() const { return idle_; }

 private:
  using Address = uintptr_t;

  // Address space of one mapping: [start, used) has been handed out once, [used, ready) is writable, the rest reserved.
  struct Region {
    Address start, used, ready, end;
  };

  bool grow(Region& region, Address used);
  bool reserve(size_t size);
  void* extend(size_t size);
  void add_hole(Address start, Address end);
  void remove_hole(std::map<Address, Address>::iterator hole);
  size_t cool(Address start, Address end);   // returns how many bytes were warm
  size_t warm(Address start, Address end);   // returns how many bytes were cold

  std::vector<Region> regions_;
  std::map<Address, Address> holes_;              // start -> end
  std::set<std::pair<size_t, Address>> by_size_;  // of the holes
  std::map<Address, Address> cold_;               // start -> end; within holes, never adjacent
  size_t idle_ = 0;
};

}  // namespace framegraph
