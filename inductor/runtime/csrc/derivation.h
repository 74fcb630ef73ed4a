// Tensors derived from static inputs: made by a callable, kept, and made again when a source has changed.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "content.h"

namespace framegraph {

// The state of a source when it was read. Two looks are equal if the tensor still has its storage, address and
// version, its memory no writes that move no version, and the same bytes where they are sampled: another process, or
// an alias that nobody saw handed out, may write too. Of a GPU's memory, nothing is read: a program's own device graph
// (watched by link.py) and an alias that was handed out count as writes, whether they are or not.
struct Look {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // weak, so that no other storage gets its address meanwhile
  const void* data;
  uint32_t version;
  uint64_t sample;
  std::shared_ptr<Content> content;  // null for a small source, which is sampled whole
  uint64_t writes;                   // version of the content
  uint64_t replays;                  // of graphs of the program's, so far
};

struct Derived {
  std::vector<at::Tensor> tensors;
  std::vector<Look> looks;  // at the sources, before `tensors` were made
};

// The GIL guards the members; a call in flight holds the Derived that was made or found for it.
class Derivation {
 public:
  // `make` takes the sources and returns a sequence of tensors. `capturing`, for tensors on a GPU: a function without
  // parameters, whether the program captures a graph of its own; null for others. New references that this object owns.
  Derivation(PyObject* make, std::vector<uint32_t> sources, PyObject* capturing)
      : make_(make), capturing_(capturing), sources_(std::move(sources)) {}
  ~Derivation() {
    Py_DECREF(make_);
    Py_XDECREF(capturing_);
  }
  Derivation(const Derivation&) = delete;
  Derivation& operator=(const Derivation&) = delete;

  // The derived tensors of the sources as they are now. While the program captures a graph, they are made in each call
  // and not kept: its replays read the sources of their time. Throws the errors of `make`.
  std::shared_ptr<const Derived> get(const std::vector<PyObject*>& statics);

  // Those that `get` gave last: for a graph that is captured right after, and replayed after further calls of `get`.
  std::shared_ptr<const Derived> last(const std::vector<PyObject*>& statics) { return current_ ? current_ : get(statics); }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(make_);
    Py_VISIT(capturing_);
    return 0;
  }

 private:
  bool holds(const std::vector<PyObject*>& statics) const;
  std::shared_ptr<const Derived> made(const std::vector<PyObject*>& statics) const;

  PyObject* make_;
  PyObject* capturing_;
  std::vector<uint32_t> sources_;  // into the plan's statics
  std::shared_ptr<const Derived> current_;
};

// A graph that the program captured is replayed: it may write any memory of a GPU without a new version.
void note_replay();

}  // namespace framegraph
