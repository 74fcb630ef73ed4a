// Tensors derived from static inputs: made by a callable, kept, and made again when a source has changed.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace framegraph {

// The state of a source when it was read. Two looks are equal if the tensor still has its storage, address and
// version, and the same bytes where they are sampled: writes by way of `.data` or of numpy move no version.
struct Look {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // weak, so that no other storage gets its address meanwhile
  const void* data;
  uint32_t version;
  uint64_t sample;
};

struct Derived {
  std::vector<at::Tensor> tensors;
  std::vector<Look> looks;  // at the sources, before `tensors` were made
  size_t sampled_words = 0;
};

// The GIL guards the members; a call in flight holds the Derived that was made or found for it.
class Derivation {
 public:
  // `make` takes the sources and returns a sequence of tensors; a new reference that this object owns.
  Derivation(PyObject* make, std::vector<uint32_t> sources) : make_(make), sources_(std::move(sources)) {}
  ~Derivation() { Py_DECREF(make_); }
  Derivation(const Derivation&) = delete;
  Derivation& operator=(const Derivation&) = delete;

  // The derived tensors of the sources as they are now. Throws the errors of `make`.
  std::shared_ptr<const Derived> get(const std::vector<PyObject*>& statics);

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(make_);
    return 0;
  }

 private:
  bool holds(const std::vector<PyObject*>& statics) const;
  std::shared_ptr<const Derived> made(const std::vector<PyObject*>& statics) const;

  PyObject* make_;
  std::vector<uint32_t> sources_;  // into the plan's statics
  std::shared_ptr<const Derived> current_;
};

}  // namespace framegraph
