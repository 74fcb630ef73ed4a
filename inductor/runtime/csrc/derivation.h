// Tensors derived from parameters: made by a callable, kept, and made again when a source has changed. Where the
// parameters are arguments of a call, as of code that several modules share, those of each module are kept.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "content.h"

namespace framegraph {

// The state of a source when it was read. Two looks are equal if the tensor still has its storage, address, counter of
// versions and version, its memory no writes that move no version, and the same bytes where they are sampled: another process, or
// an alias that nobody saw handed out, may write too. Of a GPU's memory, nothing is read: a program's own device graph
// (watched by link.py) and an alias that was handed out count as writes, whether they are or not.
struct Look {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // weak, so that no other storage gets its address meanwhile
  const void* data;
  Counter counter;
  uint32_t version;
  uint64_t sample;
  std::shared_ptr<Content> content;  // null for a small source, which is sampled whole
  uint64_t writes;                   // version of the content
  uint64_t replays;                  // of graphs of the program's, so far
};

struct Derived {
  std::vector<at::Tensor> tensors;
  std::vector<Look> looks;  // at the sources, before `tensors` were made

  // Whether the sources are as they were.
  bool holds(c10::ArrayRef<const at::Tensor*> sources) const;
  // Whether the memory of a source is gone.
  bool is_of_the_past() const;
};

// The GIL guards the members; a call in flight holds the Derived that was made or found for it.
class Derivation {
 public:
  // `make` takes the sources and returns a sequence of tensors. `capturing`, for tensors on a GPU: a function without
  // parameters, whether the program captures a graph of its own; null for others. New references that this object owns.
  // sources: values of the plan. most: sets of tensors that are kept, for so many modules whose parameters are arguments
  // of calls; 0: no source is one.
  Derivation(PyObject* make, std::vector<uint32_t> sources, PyObject* capturing, size_t most);
  ~Derivation();
  Derivation(const Derivation&) = delete;
  Derivation& operator=(const Derivation&) = delete;

  const std::vector<uint32_t>& sources() const { return sources_; }
  bool is_of_statics() const { return most_ == 0; }

  // The derived tensors of the sources as they are now. While the program captures a graph, they are made in each call
  // and not kept: its replays read the sources of their time. Throws the errors of `make`.
  std::shared_ptr<const Derived> get(c10::ArrayRef<const at::Tensor*> sources);

  // Those that `get` gave last: for a graph that is captured right after, and replayed after further calls of `get`.
  std::shared_ptr<const Derived> last(c10::ArrayRef<const at::Tensor*> sources);

  // Whether a set of tensors would not be kept, unless it is one of those that are.
  bool is_full() const { return most_ != 0 && kept_.size() >= most_; }

  // Whether the tensors of these sources are kept, or would be. Some may end meanwhile.
  bool has_room_for(c10::ArrayRef<const at::Tensor*> sources);

  // Moves what no call can ask for any more to `gone`.
  void drop_past(std::vector<std::shared_ptr<const Derived>>& gone);

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(make_);
    Py_VISIT(capturing_);
    return 0;
  }

 private:
  std::shared_ptr<const Derived> made(c10::ArrayRef<const at::Tensor*> sources) const;
  void keep(uint64_t key, const std::shared_ptr<const Derived>& fresh);
  // Of one memory, the tensors of one module are kept, though other parameters come with it in each call.
  uint64_t key_of(c10::ArrayRef<const at::Tensor*> sources) const;

  PyObject* make_;
  PyObject* capturing_;
  std::vector<uint32_t> sources_;
  size_t most_;
  std::unordered_map<uint64_t, std::shared_ptr<const Derived>> kept_;  // by the addresses of the sources' data
};

// Lets go what is derived from parameters that are gone, in all plans.
void drop_past();

// A graph that the program captured is replayed: it may write any memory of a GPU without a new version.
void note_replay();

}  // namespace framegraph
