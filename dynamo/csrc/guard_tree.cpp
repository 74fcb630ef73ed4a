// Building and checking a tree.
#include "guard_tree.h"

#include <algorithm>
#include <stdexcept>

#include "guard_program.h"

namespace guards {

namespace {

// A subtree smaller than this is walked faster than a program is replayed.
constexpr int kMinRecordedWeight = 4;
// A container that changed so often, each time within so many checks, is no longer recorded.
constexpr int kVolatileChanges = 3;
constexpr uint64_t kVolatileChecks = 8;
constexpr int kMaxCredit = 16;
constexpr uint64_t kCreditPeriod = 256;

Py_ssize_t row_index(PyObject* row, Py_ssize_t column) {
  Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(row, column));
  if (index == -1 && PyErr_Occurred()) throw PythonError();
  return index;
}

PyObject* row_of(PyObject* list, Py_ssize_t index, Py_ssize_t columns) {
  PyObject* row = PyList_GET_ITEM(list, index);
  if (PyTuple_Check(row) && PyTuple_GET_SIZE(row) == columns) return row;
  PyErr_Format(PyExc_TypeError, "a row is a tuple of %zd items", columns);
  throw PythonError();
}

[[noreturn]] void fail(const std::string& message) {
  PyErr_SetString(PyExc_ValueError, message.c_str());
  throw PythonError();
}

}  // namespace

std::string Node::name() const {
  if (!source || source.get() == Py_None) return parent == nullptr ? "global state" : "globals";
  Ref name = Ref::steal(PyObject_GetAttrString(source.get(), "name"));
  if (!name) PyErr_Clear();
  return utf8(name.get());
}

// ---- building ---------------------------------------------------------------------------------

Tree::Tree(PyObject* nodes, PyObject* guards) : liveness_(make_liveness()) {
  if (!PyList_Check(nodes) || !PyList_Check(guards)) {
    PyErr_SetString(PyExc_TypeError, "a guard tree is built from two lists");
    throw PythonError();
  }
  nodes_.push_back(std::make_unique<Node>());
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(nodes); i++) add_node(row_of(nodes, i, 4));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(guards); i++) add_guard(row_of(guards, i, 3));
  finish();
}

Tree::~Tree() = default;

void Tree::add_node(PyObject* row) {
  auto parent = static_cast<size_t>(row_index(row, 0));
  if (parent >= nodes_.size()) fail("the parent of a node comes before it");
  auto node = std::make_unique<Node>();
  std::string kind = utf8(PyTuple_GET_ITEM(row, 1));
  node->accessor = make_accessor(kind, PyTuple_GET_ITEM(row, 2));
  if (node->accessor == nullptr) fail("unknown accessor kind '" + kind + "'");
  node->source = Ref::borrow(PyTuple_GET_ITEM(row, 3));
  node->parent = nodes_[parent].get();
  node->depth = node->parent->depth + 1;
  node->parent->children.push_back(node.get());
  nodes_.push_back(std::move(node));
}

void Tree::add_guard(PyObject* row) {
  auto index = static_cast<size_t>(row_index(row, 0));
  if (index >= nodes_.size()) fail("a guard on a node that does not exist");
  std::string kind = utf8(PyTuple_GET_ITEM(row, 1));
  PyObject* payload = PyTuple_GET_ITEM(row, 2);
  if (kind == "aliased" || kind == "not_aliased") {
    Relation relation{kind == "aliased", {}};
    Ref indexes = Ref::steal(checked(PySequence_List(payload)));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(indexes.get()); i++) {
      size_t other = PyLong_AsSize_t(PyList_GET_ITEM(indexes.get(), i));
      if (other >= nodes_.size()) fail("an aliasing guard on a node that does not exist");
      Node* node = nodes_[other].get();
      if (node->slot < 0) node->slot = slot_count_++;
      relation.nodes.push_back(node);
    }
    relations_.push_back(std::move(relation));
    return;
  }
  if (kind == "shapes") return add_shapes(payload);
  auto leaf = make_leaf(kind, payload, liveness_state());
  if (leaf == nullptr) fail("unknown guard kind '" + kind + "'");
  nodes_[index]->leaves.push_back(std::move(leaf));
}

void Tree::add_shapes(PyObject* payload) {
  std::vector<Node*> nodes;
  for (const auto& node : nodes_) nodes.push_back(node.get());
  ShapeCheck made;
  try {
    made = ShapeCheck::from(payload, nodes);
  } catch (const std::out_of_range&) {
    fail("a shape guard on a node that does not exist");
  }
  for (const ShapeRead& read : made.reads)
    if (!read.function && read.node->slot < 0) read.node->slot = slot_count_++;
  shapes_.push_back(std::move(made));
}

bool Tree::check_shapes(const Frame& frame) const {
  for (const ShapeCheck& shapes : shapes_)
    if (!shapes.check(*frame.slots)) return false;
  return true;
}

void Tree::finish() {
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    (*node)->weight += 1 + static_cast<int>((*node)->leaves.size());
    if ((*node)->parent != nullptr) (*node)->parent->weight += (*node)->weight;
    std::stable_sort((*node)->leaves.begin(), (*node)->leaves.end(), [](auto& a, auto& b) {
      return a->runs_python() < b->runs_python();
    });
  }
}

int Tree::traverse(visitproc visit, void* arg) const {
  Py_VISIT(liveness_.get());
  for (const auto& node : nodes_) {
    Py_VISIT(node->source.get());
    if (node->accessor)
      if (int stop = node->accessor->traverse(visit, arg)) return stop;
    for (const auto& leaf : node->leaves)
      if (int stop = leaf->traverse(visit, arg)) return stop;
  }
  for (const ShapeCheck& shapes : shapes_)
    if (int stop = shapes.traverse(visit, arg)) return stop;
  return 0;
}

// ---- checking ---------------------------------------------------------------------------------

int Tree::check(Frame& frame) {
  if (!is_valid()) return 0;
  Slots slots(static_cast<size_t>(slot_count_));
  frame.slots = &slots;
  active_++;
  checks++;
  int result = check_node(*nodes_[0], nullptr, frame);
  if (result == 1 && !relations_.empty()) result = check_relations(frame);
  if (result == 1 && !shapes_.empty()) result = check_shapes(frame) ? 1 : settle_error();
  active_--;
  // A guard that ran Python code may have let an object die that an earlier one compared with.
  return result == 1 ? is_valid() : result;
}

int Tree::check_node(Node& node, PyObject* value, Frame& frame) {
  for (size_t i = 0; i < node.leaves.size(); i++) {
    int result = node.leaves[i]->check(value);
    if (result == 1) continue;
    if (result < 0) result = settle_error();
    auto &leaf = node.leaves[i], &before = node.leaves[i > 0 ? i - 1 : 0];
    leaf->failures++;
    if (active_ == 1 && leaf->failures > before->failures &&
        leaf->runs_python() == before->runs_python())
      std::swap(leaf, before);
    return result;
  }
  if (node.slot >= 0) frame.slots->keep(node.slot, value);
  if (is_recordable(node)) return check_recorded(node, value, frame);
  return check_children(node, value, frame);
}

int Tree::check_child(Node& child, PyObject* base, Frame& frame) {
  Ref value = Ref::steal(child.accessor->get(base, frame));
  if (!value) return settle_error();
  return check_node(child, value.get(), frame);
}

int Tree::check_children(Node& node, PyObject* value, Frame& frame) {
  for (size_t i = 0; i < node.children.size(); i++) {
    int result = check_child(*node.children[i], value, frame);
    if (result == 1) continue;
    node.children[i]->failures++;
    // Only the one check that runs may reorder: another might be in the middle of this very list.
    if (active_ == 1) move_forward(node.children, i);
    return result;
  }
  return 1;
}

void Tree::move_forward(std::vector<Node*>& siblings, size_t index) {
  for (; index > 0 && siblings[index]->failures > siblings[index - 1]->failures; index--)
    std::swap(siblings[index], siblings[index - 1]);
}

int Tree::check_relations(Frame& frame) {
  for (const Relation& relation : relations_)
    if (relation.same ? !all_same(relation, *frame.slots) : !all_differ(relation, *frame.slots)) return 0;
  return 1;
}

bool Tree::all_same(const Relation& relation, const Slots& slots) {
  for (const Node* node : relation.nodes)
    if (slots.get(node->slot) != slots.get(relation.nodes[0]->slot)) return false;
  return true;
}

bool Tree::all_differ(const Relation& relation, const Slots& slots) {
  constexpr size_t kFew = 8;  // compared one by one faster than sorted
  const size_t n = relation.nodes.size();
  if (n <= kFew) {
    for (size_t i = 1; i < n; i++)
      for (size_t j = 0; j < i; j++)
        if (slots.get(relation.nodes[i]->slot) == slots.get(relation.nodes[j]->slot)) return false;
    return true;
  }
  std::vector<PyObject*> values;
  values.reserve(n);
  for (const Node* node : relation.nodes) values.push_back(slots.get(node->slot));
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) == values.end();
}

// ---- checking by program ----------------------------------------------------------------------

// Where a program may start: values that the frame brings, and those in containers that change all the time.
bool Tree::is_recordable(const Node& node) const {
  if (!use_programs || node.parent == nullptr || node.weight < kMinRecordedWeight) return false;
  return !node.is_volatile && !node.children.empty() &&
         (node.depth == 1 || node.parent->is_volatile);
}

void Tree::container_changed(Node& node) {
  if (checks - node.last_change > kVolatileChecks) node.changes = 0;
  node.last_change = checks;
  if (++node.changes >= kVolatileChanges) node.is_volatile = true;
}

int Tree::check_recorded(Node& node, PyObject* value, Frame& frame) {
  // The tuple of a *args parameter is another one on each call: what it holds is recorded instead.
  if (node.depth == 1 && PyTuple_CheckExact(value)) {
    if (active_ == 1) node.is_volatile = true;
    return check_children(node, value, frame);
  }
  if (node.program != nullptr && node.program->root == value) {
    Node* changed = node.program->changed(frame, &node);
    if (changed == nullptr) {
      replays++;
      if (node.credit < kMaxCredit) node.credit++;
      return run_residuals(*node.program, frame);
    }
    if (active_ == 1) container_changed(*changed);
  } else if (node.program != nullptr && checks % kCreditPeriod == 0) {
    node.credit = kMaxCredit / 2;
  } else if (node.program != nullptr && node.credit > 0) {
    node.credit--;
  }
  // A program is exchanged only by the one check that runs: another might be inside it.
  if (active_ != 1 || node.is_volatile || node.credit <= 0) {
    walks++;
    return check_children(node, value, frame);
  }
  auto program = std::make_unique<Program>();
  program->root = value;
  recordings++;
  if (!Recorder(*program, frame).program(node, value)) return 0;
  if (program->changed(frame, &node) != nullptr) return check_children(node, value, frame);
  node.program = std::move(program);
  return run_residuals(*node.program, frame);
}

int Tree::run_residuals(Program& program, Frame& frame) {
  for (auto [leaf, object] : program.leaves) {
    int result = leaf->check(object);
    if (result != 1) return result < 0 ? settle_error() : 0;
  }
  for (auto [slot, object] : program.slots) frame.slots->keep(slot, object);
  if (program.residuals.empty()) return 1;
  // The first one may run code that makes the others' objects go away.
  std::vector<Ref> alive;
  alive.reserve(program.residuals.size());
  for (const Residual& residual : program.residuals) alive.push_back(Ref::borrow(residual.object));
  for (size_t i = 0; i < program.residuals.size(); i++) {
    const Residual& residual = program.residuals[i];
    int result = residual.leaf != nullptr ? residual.leaf->check(residual.object)
                                          : check_child(*residual.child, residual.object, frame);
    if (result == 1) continue;
    if (result < 0) result = settle_error();
    if (i > 0 && active_ == 1) std::swap(program.residuals[i], program.residuals[i - 1]);
    return result;
  }
  return 1;
}

}  // namespace guards
