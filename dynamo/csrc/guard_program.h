// Skipping what has not changed.
//
// Walking the tree below a value that the frame passes (a module with all its submodules, say) reads mostly
// dicts that nobody touched since the last check. A Program is that walk, recorded as a flat list:
//
//   words      addresses with the bytes that were there: types of objects, dict pointers of instances, list storage,
//              cell contents, version tags of types (a changed class attribute, of a base too, changes the tag), and
//              on 3.11 the version tags of dicts
//   watched    on 3.12+, dicts whose change clears `valid` through CPython's dict watchers
//   leaves     checks of objects that can change in place without a trace in a container: tensors
//   residuals  leaves and subtrees that have to be evaluated as ever, on the objects that the walk found
//
// Soundness:
// - A word is compared only after the words that keep its address alive: parents are recorded before children, and
//   nothing between two words runs Python code.
// - Every verdict recorded as Covered depends on nothing but words and watched dicts.
// - An address may be used again by another object. What is reached through an unchanged dict, or an unchanged type,
//   was held by it all the time and is the same object ("pinned"). What is reached through a list, a cell or a
//   field is only at the same address: its type is compared, even if it cannot change, and nothing is inferred from its
//   immutability (constants are kept alive instead, so that their address is theirs).
// - Residuals run last, on objects that the run holds a reference to.
#pragma once

#include <unordered_set>

#include "guard_compat.h"
#include "guard_tree.h"

namespace guards {

// Eight bytes, or four if the lowest bit of the address is set.
struct Word {
  uintptr_t address;
  uintptr_t expected;

  bool holds() const {
    if (address & 1) return *reinterpret_cast<const uint32_t*>(address - 1) == expected;
    return *reinterpret_cast<const uintptr_t*>(address) == expected;
  }
};

struct Residual {
  const Leaf* leaf;  // check `object`; or
  Node* child;       // fetch the child from `object` and check it
  PyObject* object;
};

struct Program {
  Program() = default;
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // nullptr if nothing recorded has changed, else the node whose container has.
  Node* changed(const Frame& frame, Node* root) const;

  PyObject* root = nullptr;      // compared, never dereferenced before
  PyObject* builtins = nullptr;  // if looking up a global went on to them
  bool valid = true;
  Node* invalidated_by = nullptr;
  std::vector<Word> words;
  std::vector<Node*> word_nodes;  // parallel to words
  std::vector<std::pair<const Leaf*, PyObject*>> leaves;
  std::vector<Residual> residuals;
  std::vector<std::pair<int, PyObject*>> slots;
  std::vector<PyObject*> watched;
  std::vector<Ref> constants;
};

// What object.__getattribute__ finds before it calls any descriptor.
struct Found {
  enum Where { InInstance, InClass, Nowhere, Unknown } where;
  PyObject* object;  // borrowed
};

// Could this object, found in a class, be a descriptor now or later?
bool may_be_descriptor(PyObject* object);

// Walks a subtree without running Python code; fills a Program.
class Recorder {
 public:
  Recorder(Program& program, const Frame& frame) : program_(program), frame_(frame) {}

  // False if a guard below `node` fails, whose value the frame brings. Its own leaves are the caller's business.
  bool program(Node& node, PyObject* value);

  // -- what leaves and accessors say that their verdict depends on; false: it cannot be recorded ---------
  void pointer(const void* address, const void* now);
  void number(const Py_ssize_t* address) {
    word(reinterpret_cast<uintptr_t>(address), static_cast<uintptr_t>(*address));
  }
  bool dict_content(PyObject* dict);
  bool dict_order(PyObject* dict);
  bool type_of(PyObject* object);
  bool attributes_of_type(PyTypeObject* type);
  // Looks an attribute up as object.__getattribute__ begins to, and records what that depends on. Unknown: the type
  // has another lookup, or a data descriptor is in the way. Nowhere: __getattr__ may yet have an answer.
  Found find_attribute(PyObject* object, PyObject* name);
  // The instance dict of an object (borrowed), pinned; nullptr if it has none.
  PyObject* instance_dict(PyObject* object);
  void uses_builtins(PyObject* builtins) { program_.builtins = builtins; }
  // For accessors: is the base known to be the object that was recorded, and not another at its address?
  bool is_base_pinned() const { return base_pinned_; }
  // For accessors: the value is reached by its address only.
  void unpinned() { pinned_ = false; }
  // For leaves: the verdict rests on `value`, an immutable constant, being the same object.
  void same_constant(PyObject* value) {
    if (!pinned_) program_.constants.push_back(Ref::borrow(value));
  }
  bool is_pinned() const { return pinned_; }
  // A leaf that runs no Python code and is to be checked every time.
  Verdict every_time(const Leaf* leaf, PyObject* value);

 private:
  void word(uintptr_t address, uintptr_t expected);
  bool shared_values(PyObject* dict);
  bool child(Node& parent, Node& node, PyObject* base, bool pinned);
  bool children(Node& node, PyObject* value, bool pinned);
  bool leaves(Node& node, PyObject* value);

  Program& program_;
  const Frame& frame_;
  Node* current_ = nullptr;  // whose container is being read
  bool base_pinned_ = false;
  bool pinned_ = false;  // of the value being recorded
  std::unordered_set<const void*> seen_;
};

// dict[key] read from the storage without running Python code, borrowed; sets *safe to false when that cannot be
// promised.
PyObject* plain_dict_item(PyObject* dict, PyObject* key, bool* safe);

bool init_watchers();

}  // namespace guards
