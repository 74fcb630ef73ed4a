// Small pieces that all files of the guard tree use: references, weak holding, text. No torch here.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace guards {

// An owned reference.
class Ref {
 public:
  Ref() = default;
  static Ref steal(PyObject* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  static Ref borrow(PyObject* object) {
    Py_XINCREF(object);
    return steal(object);
  }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    Ref old = steal(std::exchange(object_, std::exchange(other.object_, nullptr)));
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Values that guards between several sources compare, by number; without memory of its own where there are few.
class Slots {
 public:
  explicit Slots(size_t count) : count_(count), items_(count <= kFew ? few_ : new PyObject*[count]) {
    for (size_t i = 0; i < count; i++) items_[i] = nullptr;
  }
  ~Slots() {
    for (size_t i = 0; i < count_; i++) Py_XDECREF(items_[i]);
    if (items_ != few_) delete[] items_;
  }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  PyObject* get(int number) const { return items_[number]; }
  void keep(int number, PyObject* value) {
    PyObject* old = items_[number];
    items_[number] = Py_NewRef(value);
    Py_XDECREF(old);
  }

 private:
  static constexpr size_t kFew = 16;
  size_t count_;
  PyObject* few_[kFew];
  PyObject** items_;
};

// Thrown while a tree is built, with a Python exception set.
struct PythonError {};

inline PyObject* checked(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return object;
}

// What tells a tensor from others (guard_tensor.cpp): a weak reference, of Python or of C++, would keep the program from
// torch.utils.swap_tensors, with which Module.to may put other contents into parameters.
class TensorMark {
 public:
  virtual ~TensorMark() = default;
  // Whether `object` is a tensor with this mark.
  virtual bool is_on(PyObject* object) const = 0;
  // Whether a tensor has it still: the one, or what was detached from the one.
  virtual bool is_in_use() const = 0;
  // The address of the version counter.
  const void* address = nullptr;
};

// nullptr if `object` is no tensor, or one without a mark.
std::shared_ptr<const TensorMark> tensor_mark(PyObject* object);

// Whether all objects that a tree holds weakly still live. A Python object of its own, so that the
// callbacks of the weak references need not refer to the tree.
struct Liveness {
  PyObject_HEAD
  bool dead;  // noticed at once for objects with weak references
  std::vector<std::shared_ptr<const TensorMark>>* tensors;
  PyObject* callback;  // called with a dying weak reference; refers to this object (traversed)
};

bool init_liveness();
Ref make_liveness();
// Looks for tensors that have died, too.
bool all_live(Liveness* liveness);

// Holds an object for comparison by identity: weakly where its type allows, else strongly. While the
// tree's Liveness is not dead the address belongs to the same object; that of a tensor, together with the mark.
class Held {
 public:
  Held() = default;
  Held(PyObject* object, Liveness* liveness);
  bool is(PyObject* other) const {
    return other == object_ && (mark_ == nullptr || mark_->is_on(other));
  }
  // Whether another object may have the address while the Liveness is not dead.
  bool has_mark() const { return mark_ != nullptr; }
  PyObject* address() const { return object_; }
  const void* mark_address() const { return mark_ == nullptr ? nullptr : mark_->address; }
  // "<class 'x.Y'>", or the name of the type if the object has died.
  std::string text() const;
  int traverse(visitproc visit, void* arg) const;

 private:
  PyObject* object_ = nullptr;
  Ref keep_;  // the weak reference, or the object; nothing if there is a mark
  std::shared_ptr<const TensorMark> mark_;
  Liveness* liveness_ = nullptr;
  std::string type_name_;
};

// repr(object), shortened, without code of the program for modules, classes and instances; tensors by their type and
// shape; never raises.
std::string short_repr(PyObject* object);
// The text of the current exception, which it clears.
std::string take_error_text();
std::string utf8(PyObject* text);

// Is the current exception one that must propagate: no Exception, or out of memory?
bool is_interrupt();
// Turns "-1 with an exception set" into a guard failure, unless the exception must propagate.
int settle_error();

// value == payload exactly: types equal at every level, -0.0 != 0.0, nan is nan.  1, 0 or -1.
int exactly_equal(PyObject* payload, PyObject* value);
// Of an immutable builtin type all the way down, so that an equal object stays equal.
bool is_immutable_constant(PyObject* value);

// Implemented in guard_tensor.cpp: text for tensors, "" for other objects.
std::string tensor_summary(PyObject* object);
bool is_immutable_torch_constant(PyObject* object);

}  // namespace guards
