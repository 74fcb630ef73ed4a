// The guard tree: nodes that fetch values (accessors) and the checks on them (leaves).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "guard_shapes.h"
#include "guard_support.h"

namespace guards {

class Recorder;
struct Program;

// What the frame brings; all borrowed.
struct Frame {
  PyObject* const* locals = nullptr;
  Py_ssize_t local_count = 0;
  PyObject* globals = nullptr;
  PyObject* builtins = nullptr;
  PyObject* closure = nullptr;  // tuple of cells or nullptr
  Slots* slots = nullptr;  // values of the nodes that relations compare
};

// What recording (guard_program.h) found out about a step.
enum class Verdict {
  Fail,      // the guard does not hold
  Covered,   // it holds, and will for as long as the recorded words are unchanged
  Residual,  // it must be evaluated on every check
};

// One check of one value. Order in which the leaves of a node run: by `cost`, then by failures.
class Leaf {
 public:
  virtual ~Leaf() = default;
  // 1, 0, or -1 with an exception set. `value` is nullptr at the root of the tree.
  virtual int check(PyObject* value) const = 0;
  // "is 4", "has 3 items": what follows the name of the source; "" for what lists of guards leave out.
  virtual std::string expected() const = 0;
  // "was 4, is 5" for a value that fails.
  virtual std::string difference(PyObject* value) const = 0;
  // "tensor " and the like, in front of the name of the source.
  virtual std::string subject() const { return ""; }
  // May run Python code, so that it goes after the checks that do not.
  virtual bool runs_python() const { return false; }
  virtual Verdict record(PyObject*, Recorder&) const { return Verdict::Residual; }
  virtual int traverse(visitproc, void*) const { return 0; }

  uint64_t failures = 0;
};

// One step from a value to another.
class Accessor {
 public:
  virtual ~Accessor() = default;
  // A new reference; nullptr if it cannot be fetched (with or without an exception set).
  virtual PyObject* get(PyObject* base, const Frame& frame) const = 0;
  // Fills *value with a new reference if the verdict is Covered.
  virtual Verdict record(PyObject*, const Frame&, Recorder&, Ref*) const {
    return Verdict::Residual;
  }
  virtual int traverse(visitproc, void*) const { return 0; }
};

struct Node {
  std::unique_ptr<Accessor> accessor;  // null at the root
  std::vector<std::unique_ptr<Leaf>> leaves;
  std::vector<Node*> children;
  Node* parent = nullptr;
  Ref source;      // for its name
  int slot = -1;   // where relations find the value
  int depth = 0;
  int weight = 0;  // nodes and leaves in the subtree
  uint64_t failures = 0;

  // The skipping of unchanged containers (guard_program.cpp).
  std::unique_ptr<Program> program;
  uint64_t last_change = 0;  // number of the check that found the container changed
  int changes = 0;           // in close succession
  bool is_volatile = false;  // a container that changes all the time: not recorded
  int credit = 8;            // spent by recordings for yet another object, earned by replays

  std::string name() const;
};

// A guard between several nodes, checked after all others.
struct Relation {
  bool same;  // the first node's value is the second's; else: all values differ
  std::vector<Node*> nodes;
};

class Tree {
 public:
  // nodes: list of (parent index, accessor kind, key, source), parents first, node 0 the root;
  // guards: list of (node index, kind, payload).
  Tree(PyObject* nodes, PyObject* guards);
  ~Tree();

  int check(Frame& frame);
  bool is_valid() const { return !liveness_state()->dead; }
  Liveness* liveness_state() const { return reinterpret_cast<Liveness*>(liveness_.get()); }
  // Text of the first guard that fails; "" if all hold.
  std::string explain(Frame& frame);
  std::vector<std::string> describe() const;
  std::string print() const;
  int traverse(visitproc visit, void* arg) const;

  bool use_programs = true;
  uint64_t checks = 0;
  // Counters for tests and benchmarks.
  uint64_t recordings = 0, replays = 0, walks = 0;

 private:
  friend class Recorder;
  int check_node(Node& node, PyObject* value, Frame& frame);
  int check_child(Node& child, PyObject* base, Frame& frame);
  int check_children(Node& node, PyObject* value, Frame& frame);
  int check_recorded(Node& node, PyObject* value, Frame& frame);
  int run_residuals(Program& program, Frame& frame);
  int check_relations(Frame& frame);
  static bool all_same(const Relation& relation, const Slots& slots);
  static bool all_differ(const Relation& relation, const Slots& slots);
  bool check_shapes(const Frame& frame) const;
  bool is_recordable(const Node& node) const;
  void container_changed(Node& node);
  void move_forward(std::vector<Node*>& siblings, size_t index);
  std::string explain_node(Node& node, PyObject* value, Frame& frame);
  std::string explain_relations(Frame& frame);
  void print_node(const Node& node, std::string indent, std::string& out) const;
  void add_node(PyObject* row);
  void add_guard(PyObject* row);
  void add_shapes(PyObject* payload);
  void finish();

  Ref liveness_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Relation> relations_;
  std::vector<ShapeCheck> shapes_;
  int slot_count_ = 0;
  int active_ = 0;  // checks that are running: reentrant, or other threads at a Python-level guard
};

// guard_leaves.cpp, guard_tensor.cpp, guard_classes.cpp, guard_lookups.cpp, guard_globals.cpp; nullptr for an unknown
// kind.
std::unique_ptr<Leaf> make_leaf(const std::string& kind, PyObject* payload, Liveness* liveness);
std::unique_ptr<Leaf> make_tensor_leaf(const std::string& kind, PyObject* payload, Liveness* liveness);
std::unique_ptr<Leaf> make_class_leaf(const std::string& kind, PyObject* payload, Liveness* liveness);
PyObject* accumulates(PyObject* module, PyObject* tensor);
PyObject* mark_tensor(PyObject* module, PyObject* tensor);
PyObject* has_mark(PyObject* module, PyObject* args);
bool is_tensor(PyObject* object);
bool is_plain_tensor(PyObject* object);  // not of a subclass, except for torch's own Parameter
PyObject* tensor_grad(PyObject* tensor);
std::unique_ptr<Leaf> make_global_leaf(const std::string& kind, PyObject* payload);
bool init_global_state(PyObject* module);
std::unique_ptr<Leaf> make_lookups_leaf(const std::string& kind, PyObject* payload, Liveness* liveness);

// guard_accessors.cpp; nullptr for an unknown kind.
std::unique_ptr<Accessor> make_accessor(const std::string& kind, PyObject* key);

}  // namespace guards
