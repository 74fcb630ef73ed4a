// Tensor checks, on at::TensorImpl.
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>

#include "../../fxgraph/csrc/version_counter.h"
#include "guard_program.h"

namespace guards {

bool is_tensor(PyObject* object) {
  return THPVariableClass != nullptr &&
         PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyTypeObject*>(THPVariableClass));
}

bool is_plain_tensor(PyObject* object) {
  return THPVariableClass != nullptr && THPVariable_CheckExact(object);
}

// What `tensor.grad` gives, without asking a __torch_function__ of the program's.
PyObject* tensor_grad(PyObject* tensor) {
  try {
    return THPVariable_Wrap(THPVariable_Unpack(tensor).grad());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

namespace {

c10::TensorImpl* impl_of(PyObject* tensor) {
  return THPVariable_Unpack(tensor).unsafeGetTensorImpl();
}

// A tensor's version counter, which only tensors detached from the tensor share. While it is held, no other tensor gets
// it: at the address of the one there may be a tensor that was detached meanwhile, with the same memory.
class VersionCounter final : public TensorMark {
 public:
  explicit VersionCounter(const c10::VariableVersion& counter) : held_(counter) { address = held_.address(); }
  ~VersionCounter() override { known().erase(address); }
  bool is_on(PyObject* object) const override {
    if (!THPVariable_CheckExact(object) && !guards::is_tensor(object)) return false;
    c10::TensorImpl* impl = impl_of(object);
    return !impl->is_inference() && held_.is(impl->version_counter());
  }
  bool is_in_use() const override { return held_.users() > 0; }

  // One for all trees.
  static std::unordered_map<const void*, std::weak_ptr<const TensorMark>>& known() {
    static auto* map = new std::unordered_map<const void*, std::weak_ptr<const TensorMark>>();
    return *map;
  }

 private:
  framegraph::Counter held_;
};

// Sizes or strides to compare with; a dimension may be left out.
struct Dims {
  std::vector<int64_t> values;
  std::vector<bool> skipped;  // empty: none is
  std::vector<uint32_t> compared;  // the others, if any is

  void set(c10::IntArrayRef dims) { values = dims.vec(); }

  // `only`: a sequence of int or None (not compared) in place of what the example has.
  void restrict_to(PyObject* only) {
    Ref items = Ref::steal(checked(PySequence_List(only)));
    if (static_cast<size_t>(PyList_GET_SIZE(items.get())) != values.size()) {
      PyErr_SetString(PyExc_ValueError, "one entry per dimension, an int or None");
      throw PythonError();
    }
    std::vector<bool> skip(values.size());
    for (size_t i = 0; i < values.size(); i++) {
      PyObject* item = PyList_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i));
      skip[i] = item == Py_None;
      if (skip[i]) continue;
      values[i] = PyLong_AsLongLong(item);
      if (values[i] == -1 && PyErr_Occurred()) throw PythonError();
    }
    if (std::find(skip.begin(), skip.end(), true) == skip.end()) return;
    for (size_t i = 0; i < skip.size(); i++)
      if (!skip[i]) compared.push_back(static_cast<uint32_t>(i));
    skipped = skip;
  }

  bool match(c10::IntArrayRef now) const {
    size_t n = values.size();
    if (now.size() != n) return false;
    if (C10_LIKELY(skipped.empty())) {
      for (size_t i = 0; i < n; i++)
        if (now[i] != values[i]) return false;
      return true;
    }
    for (uint32_t i : compared)
      if (now[i] != values[i]) return false;
    return true;
  }

  std::string text() const {
    std::string out = "(";
    for (size_t i = 0; i < values.size(); i++) {
      out += i ? ", " : "";
      out += !skipped.empty() && skipped[i] ? "*" : std::to_string(values[i]);
    }
    return out + (values.size() == 1 ? ",)" : ")");
  }

  // "size of dimension 0 was 4, is 5"; "" if they match.
  std::string difference(const char* what, c10::IntArrayRef now) const {
    if (now.size() != values.size())
      return "number of dimensions was " + std::to_string(values.size()) + ", is " +
             std::to_string(now.size());
    for (size_t i = 0; i < values.size(); i++)
      if (now[i] != values[i] && (skipped.empty() || !skipped[i]))
        return std::string(what) + " of dimension " + std::to_string(i) + " was " +
               std::to_string(values[i]) + ", is " + std::to_string(now[i]);
    return "";
  }
};

template <typename T>
std::string as_text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

const char* yes(bool value) { return value ? "True" : "False"; }

class TensorCheck {
 public:
  explicit TensorCheck(PyObject* example) {
    c10::TensorImpl* impl = impl_of(example);
    keys_ = impl->key_set();
    dtype_ = impl->dtype();
    device_ = impl->device();
    requires_grad_ = impl->requires_grad();
    layout_ = impl->layout();
    sizes_.set(impl->sizes());
    has_strides_ = layout_ == c10::kStrided;
    if (has_strides_) strides_.set(impl->strides());
  }

  Dims& sizes() { return sizes_; }
  Dims& strides() { return strides_; }

  // The layout is a function of the dispatch keys, so comparing those covers it, and conj, neg, inference,
  // Python-dispatch and functorch-wrapper tensors too.
  bool match(c10::TensorImpl* impl) const {
    if (impl->key_set() != keys_ || impl->dtype() != dtype_ ||
        impl->requires_grad() != requires_grad_ || !sizes_.match(impl->sizes()))
      return false;
    if (has_strides_ && !strides_.match(impl->strides())) return false;
    return impl->device() == device_;
  }

  std::string text() const {
    return std::string("dtype ") + as_text(dtype_.name()) + ", sizes " + sizes_.text() +
           (has_strides_ ? ", strides " + strides_.text() : "") +
           ", device " + as_text(device_) + ", requires_grad " + yes(requires_grad_);
  }

  std::string difference(c10::TensorImpl* impl) const {
    auto was = [](const std::string& what, const std::string& a, const std::string& b) {
      return what + " was " + a + ", is " + b;
    };
    if (impl->dtype() != dtype_)
      return was("dtype", as_text(dtype_.name()), as_text(impl->dtype().name()));
    if (impl->device() != device_) return was("device", as_text(device_), as_text(impl->device()));
    if (impl->layout() != layout_) return was("layout", as_text(layout_), as_text(impl->layout()));
    if (impl->requires_grad() != requires_grad_)
      return was("requires_grad", yes(requires_grad_), yes(impl->requires_grad()));
    std::string sizes = sizes_.difference("size", impl->sizes());
    if (!sizes.empty()) return sizes;
    if (has_strides_) {
      std::string strides = strides_.difference("stride", impl->strides());
      if (!strides.empty()) return strides;
    }
    if (impl->key_set() != keys_)
      return was("dispatch keys", c10::toString(keys_ - impl->key_set()) + " among others",
                 c10::toString(impl->key_set() - keys_) + " instead");
    return "has changed";
  }

 private:
  c10::DispatchKeySet keys_;
  caffe2::TypeMeta dtype_;
  c10::Device device_ = c10::kCPU;
  c10::Layout layout_ = c10::kStrided;
  bool requires_grad_ = false;
  bool has_strides_ = true;
  Dims sizes_, strides_;
};

PyObject* tensor_payload(PyObject* payload) {
  if (is_tensor(payload)) return payload;
  PyErr_SetString(PyExc_TypeError, "the payload of a tensor guard is a tensor");
  throw PythonError();
}

// Payload: an example tensor, or (example, sizes, strides), the last two None or sequences of int or None.
class TensorLeaf : public Leaf {
 public:
  TensorLeaf(PyObject* payload, Liveness* liveness) : TensorLeaf(example_of(payload), liveness, 0) {
    if (!PyTuple_Check(payload)) return;
    if (PyTuple_GET_ITEM(payload, 1) != Py_None)
      check_.sizes().restrict_to(PyTuple_GET_ITEM(payload, 1));
    if (PyTuple_GET_ITEM(payload, 2) != Py_None)
      check_.strides().restrict_to(PyTuple_GET_ITEM(payload, 2));
  }
  int check(PyObject* value) const override {
    if (!type_.is(reinterpret_cast<PyObject*>(Py_TYPE(value)))) return 0;
    try {
      return check_.match(impl_of(value));
    } catch (const std::exception&) {
      return PyErr_Occurred() ? -1 : 0;
    }
  }
  std::string subject() const override { return "tensor "; }
  std::string expected() const override {
    return "has type " + type_.text() + ", " + check_.text();
  }
  std::string difference(PyObject* value) const override {
    if (!type_.is(reinterpret_cast<PyObject*>(Py_TYPE(value))))
      return "type was " + type_.text() + ", is " +
             short_repr(reinterpret_cast<PyObject*>(Py_TYPE(value)));
    try {
      return check_.difference(impl_of(value));
    } catch (const std::exception& error) {
      PyErr_Clear();
      return std::string("cannot be inspected: ") + error.what();
    }
  }
  // A subclass may answer for its sizes in Python.
  bool runs_python() const override { return !plain_; }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    return plain_ ? recorder.every_time(this, value) : Verdict::Residual;
  }
  int traverse(visitproc visit, void* arg) const override { return type_.traverse(visit, arg); }

 private:
  static PyObject* example_of(PyObject* payload) {
    bool tuple = PyTuple_Check(payload) && PyTuple_GET_SIZE(payload) == 3;
    return tensor_payload(tuple ? PyTuple_GET_ITEM(payload, 0) : payload);
  }
  TensorLeaf(PyObject* example, Liveness* liveness, int)
      : type_(reinterpret_cast<PyObject*>(Py_TYPE(example)), liveness),
        check_(example),
        plain_(THPVariable_CheckExact(example)) {}

  Held type_;
  TensorCheck check_;
  bool plain_;
};

// One certain tensor, a parameter or buffer, which may have changed in place (`.data =`, requires_grad_()).
class StaticTensorLeaf : public Leaf {
 public:
  StaticTensorLeaf(PyObject* payload, Liveness* liveness)
      : tensor_(tensor_payload(payload), liveness),
        type_(reinterpret_cast<PyObject*>(Py_TYPE(payload)), liveness),
        check_(payload),
        mark_(tensor_.mark_address()) {}
  int check(PyObject* value) const override {
    // As tensor_.is(value), of a value with the type of a tensor.
    if (value != tensor_.address() || !type_.is(reinterpret_cast<PyObject*>(Py_TYPE(value)))) return 0;
    c10::TensorImpl* impl = impl_of(value);
    if (mark_ != nullptr && framegraph::Counter::address_of(impl->version_counter()) != mark_) return 0;
    try {
      return check_.match(impl);
    } catch (const std::exception&) {
      return PyErr_Occurred() ? -1 : 0;
    }
  }
  std::string subject() const override { return "tensor "; }
  std::string expected() const override { return "is the same tensor, " + check_.text(); }
  std::string difference(PyObject* value) const override {
    if (tensor_.is(value) && !type_.is(reinterpret_cast<PyObject*>(Py_TYPE(value))))
      return "type was " + type_.text() + ", is " +
             short_repr(reinterpret_cast<PyObject*>(Py_TYPE(value)));
    if (!tensor_.is(value)) return "was " + tensor_.text() + ", is another object: " + short_repr(value);
    try {
      return check_.difference(impl_of(value));
    } catch (const std::exception& error) {
      PyErr_Clear();
      return std::string("cannot be inspected: ") + error.what();
    }
  }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    if (!tensor_.is(value)) return Verdict::Fail;
    return THPVariable_CheckExact(value) ? recorder.every_time(this, value) : Verdict::Residual;
  }
  int traverse(visitproc visit, void* arg) const override {
    int stop = tensor_.traverse(visit, arg);
    return stop ? stop : type_.traverse(visit, arg);
  }

 private:
  Held tensor_, type_;
  TensorCheck check_;
  const void* mark_;
};

// What the user marked of a tensor's dimensions (dynamo/guards/shapes.py), a bit for each.
struct Marks {
  uint64_t dynamic = 0, maybe = 0, fixed = 0;
};

uint64_t marked(PyObject* dict, PyObject* name) {
  PyObject* dims = PyDict_GetItemWithError(dict, name);
  if (dims == nullptr || !PyAnySet_Check(dims)) return 0;
  uint64_t found = 0;
  Ref items = Ref::steal(PySequence_List(dims));
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); i++) {
    const long dim = PyLong_Check(PyList_GET_ITEM(items.get(), i)) ? PyLong_AsLong(PyList_GET_ITEM(items.get(), i)) : -1;
    if (dim >= 0 && dim < 64) found |= uint64_t{1} << dim;
  }
  return found;
}

Marks marks_of(PyObject* tensor) {
  static PyObject* const dynamic = PyUnicode_InternFromString("_dynamo_dynamic_indices");
  static PyObject* const maybe = PyUnicode_InternFromString("_dynamo_weak_dynamic_indices");
  static PyObject* const fixed = PyUnicode_InternFromString("_dynamo_static_indices");
  Marks marks;
  if (!compat_may_have_attributes(tensor)) return marks;
  PyObject* dict = compat_instance_dict(tensor);
  if (dict != nullptr && PyDict_Check(dict) && PyDict_GET_SIZE(dict) > 0)
    marks = {marked(dict, dynamic), marked(dict, maybe), marked(dict, fixed)};
  PyErr_Clear();
  return marks;
}

// Payload: for each kind of mark the dimensions that may have it, as bits; the compiled code is what they ask for.
class MarksLeaf : public Leaf {
 public:
  explicit MarksLeaf(PyObject* payload) {
    unsigned long long dynamic = 0, maybe = 0, fixed = 0;
    Ref dims = Ref::steal(checked(PySequence_Tuple(payload)));
    if (!PyArg_ParseTuple(dims.get(), "KKK", &dynamic, &maybe, &fixed)) throw PythonError();
    may_have_ = {dynamic, maybe, fixed};
  }
  int check(PyObject* value) const override {
    if (C10_LIKELY(!compat_may_have_attributes(value))) return 1;
    const Marks found = beyond(value);
    return (found.dynamic | found.maybe | found.fixed) == 0;
  }
  std::string expected() const override { return ""; }
  std::string difference(PyObject* value) const override {
    const Marks found = beyond(value);
    const uint64_t dims = found.dynamic | found.maybe | found.fixed;
    int dim = 0;
    while (dim < 64 && !(dims >> dim & 1)) dim++;
    return "dimension " + std::to_string(dim) + " is marked " + (found.fixed >> dim & 1 ? "static" : "dynamic") +
           ", the code was not compiled for that";
  }
  Verdict record(PyObject* value, Recorder& recorder) const override { return recorder.every_time(this, value); }

 private:
  // Marks that the compiled code does not answer. Sizes 0 and 1 are constants, whatever their marks.
  Marks beyond(PyObject* tensor) const {
    Marks found = marks_of(tensor);
    Extents extents;
    if ((found.dynamic | found.maybe | found.fixed) == 0 || !tensor_extents(tensor, &extents)) return {};
    for (int64_t dim = 0; dim < 64; dim++)
      if (dim >= extents.dims || extents.sizes[dim] < 2) {
        found.dynamic &= ~(uint64_t{1} << dim);
        found.maybe &= ~(uint64_t{1} << dim);
      }
    return {found.dynamic & ~found.fixed & ~may_have_.dynamic, found.maybe & ~found.fixed & ~may_have_.maybe,
            found.fixed & ~may_have_.fixed};
  }
  Marks may_have_;
};

bool has_items(PyObject* dict) {  // hooks that were removed leave an empty one
  return dict != nullptr && PyDict_Check(dict) && PyDict_GET_SIZE(dict) > 0;
}

// 1, 0, or -1 with an exception set.
int only_accumulates(PyObject* tensor) {
  if (!is_tensor(tensor)) return 0;
  auto* variable = reinterpret_cast<THPVariable*>(tensor);
  if (has_items(variable->backward_hooks) || has_items(variable->post_accumulate_grad_hooks)) return 0;
  try {
    const at::Tensor& unpacked = THPVariable_Unpack(tensor);
    if (unpacked.grad_fn()) return 0;
    auto* meta = torch::autograd::impl::get_autograd_meta(unpacked);
    if (meta == nullptr) return 1;
    if (meta->cpp_hooks_list_ != nullptr && !meta->cpp_hooks_list_->empty()) return 0;
    auto node = torch::autograd::impl::try_get_grad_accumulator(unpacked);
    return !node || (node->pre_hooks().empty() && node->post_hooks().empty());
  } catch (const std::exception& error) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
    return -1;
  }
}

class AccumulatesLeaf : public Leaf {
 public:
  int check(PyObject* value) const override { return only_accumulates(value); }
  std::string expected() const override {
    return "is a leaf of autograd without hooks, its AccumulateGrad node has none";
  }
  std::string difference(PyObject*) const override {
    return "has a history now, or hooks on it or on its AccumulateGrad node";
  }
};

}  // namespace

std::shared_ptr<const TensorMark> tensor_mark(PyObject* object) {
  if (!is_tensor(object) || impl_of(object)->is_inference()) return nullptr;
  const c10::VariableVersion& counter = impl_of(object)->version_counter();
  auto& known = VersionCounter::known()[framegraph::Counter::address_of(counter)];
  std::shared_ptr<const TensorMark> mark = known.lock();
  if (mark == nullptr) known = mark = std::make_shared<VersionCounter>(counter);
  return mark;
}

namespace {

using MarkOwner = std::shared_ptr<const TensorMark>;
constexpr const char* kMarkCapsule = "dynamo._guards.tensor_mark";

void free_mark(PyObject* capsule) {
  delete static_cast<MarkOwner*>(PyCapsule_GetPointer(capsule, kMarkCapsule));
}

}  // namespace

PyObject* mark_tensor(PyObject*, PyObject* tensor) {
  MarkOwner mark = tensor_mark(tensor);
  if (mark == nullptr) Py_RETURN_NONE;
  auto* owner = new MarkOwner(std::move(mark));
  PyObject* capsule = PyCapsule_New(owner, kMarkCapsule, free_mark);
  if (capsule == nullptr) delete owner;
  return capsule;
}

PyObject* has_mark(PyObject*, PyObject* args) {
  PyObject *tensor, *capsule;
  if (!PyArg_ParseTuple(args, "OO", &tensor, &capsule)) return nullptr;
  if (capsule == Py_None) return PyBool_FromLong(tensor_mark(tensor) == nullptr);
  auto* owner = static_cast<MarkOwner*>(PyCapsule_GetPointer(capsule, kMarkCapsule));
  return owner == nullptr ? nullptr : PyBool_FromLong((*owner)->is_on(tensor));
}

PyObject* accumulates(PyObject*, PyObject* tensor) {
  int answer = only_accumulates(tensor);
  return answer < 0 ? nullptr : PyBool_FromLong(answer);
}

std::unique_ptr<Leaf> make_tensor_leaf(const std::string& kind, PyObject* payload,
                                       Liveness* liveness) {
  try {
    if (kind == "tensor") return std::make_unique<TensorLeaf>(payload, liveness);
    if (kind == "static_tensor") return std::make_unique<StaticTensorLeaf>(payload, liveness);
    if (kind == "marks") return std::make_unique<MarksLeaf>(payload);
    if (kind == "accumulates") return std::make_unique<AccumulatesLeaf>();
  } catch (const std::exception& error) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, error.what());
    throw PythonError();
  }
  return nullptr;
}

std::string tensor_summary(PyObject* object) {
  if (!is_tensor(object)) return "";
  std::string text = std::string("a ") + Py_TYPE(object)->tp_name;
  try {
    c10::TensorImpl* impl = impl_of(object);
    text += " of dtype " + as_text(impl->dtype().name());
    Dims sizes;
    sizes.set(impl->sizes());
    text += ", sizes " + sizes.text();
  } catch (const std::exception&) {
    PyErr_Clear();
  }
  return text;
}

bool tensor_extents(PyObject* tensor, Extents* out) {
  if (!THPVariable_CheckExact(tensor) && !is_tensor(tensor)) return false;
  try {
    c10::TensorImpl* impl = impl_of(tensor);
    const c10::IntArrayRef sizes = impl->sizes();
    *out = {sizes.data(), impl->layout() == c10::kStrided ? impl->strides().data() : nullptr,
            static_cast<int64_t>(sizes.size())};
    return true;
  } catch (const std::exception&) {
    PyErr_Clear();
    return false;
  }
}

bool is_immutable_torch_constant(PyObject* object) {
  return THPDtype_Check(object) || THPDevice_Check(object) || THPLayout_Check(object) ||
         THPMemoryFormat_Check(object);
}

}  // namespace guards
