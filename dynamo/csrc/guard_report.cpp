// What a tree says about itself: the first guard that fails, all guards, the tree as text.
#include "guard_program.h"

namespace guards {

namespace {

// The text of the exception that a guard raised; one that must propagate does.
std::string guard_error_text() {
  if (!PyErr_Occurred()) return "";
  if (is_interrupt()) throw PythonError();
  return take_error_text();
}

}  // namespace

std::string Tree::explain(Frame& frame) {
  if (!is_valid()) return "an object that the guards refer to no longer exists";
  Slots slots(static_cast<size_t>(slot_count_));
  frame.slots = &slots;
  std::string text;
  active_++;
  try {
    text = explain_node(*nodes_[0], nullptr, frame);
    if (text.empty()) text = explain_relations(frame);
    for (const ShapeCheck& shapes : shapes_)
      if (text.empty()) text = shapes.explain(slots);
  } catch (const PythonError&) {
    active_--;
    throw;
  }
  active_--;
  return text;
}

// The same walk as check_node, without programs and without reordering.
std::string Tree::explain_node(Node& node, PyObject* value, Frame& frame) {
  for (const auto& leaf : node.leaves) {
    int result = leaf->check(value);
    if (result == 1) continue;
    std::string error = result < 0 ? guard_error_text() : "";
    std::string start = leaf->subject() + node.name() + ": ";
    if (result < 0) return start + "cannot tell whether it " + leaf->expected() + " (" + error + ")";
    return start + leaf->difference(value);
  }
  if (node.slot >= 0) frame.slots->keep(node.slot, value);
  // By index: user code in a nested check may not reorder, but a copy of the list costs nothing here.
  std::vector<Node*> children = node.children;
  for (Node* child : children) {
    Ref next = Ref::steal(child->accessor->get(value, frame));
    if (!next) {
      std::string error = guard_error_text();
      return child->name() + ": cannot be read" + (error.empty() ? ", it is not bound" : " (" + error + ")");
    }
    std::string text = explain_node(*child, next.get(), frame);
    if (!text.empty()) return text;
  }
  return "";
}

std::string Tree::explain_relations(Frame& frame) {
  for (const Relation& relation : relations_) {
    const auto& nodes = relation.nodes;
    for (size_t i = 0; i < nodes.size(); i++) {
      for (size_t j = i + 1; j < nodes.size(); j++) {
        bool same = frame.slots->get(nodes[i]->slot) == frame.slots->get(nodes[j]->slot);
        if (same == relation.same) continue;
        return nodes[i]->name() + " and " + nodes[j]->name() +
               (same ? ": were different objects, are the same" : ": were the same object, are different");
      }
    }
  }
  return "";
}

static std::string relation_text(const Relation& relation) {
  std::string text;
  for (const Node* node : relation.nodes) text += (text.empty() ? "" : ", ") + node->name();
  return text + (relation.same ? ": the same object" : ": different objects");
}

std::vector<std::string> Tree::describe() const {
  std::vector<std::string> lines;
  for (const auto& node : nodes_) {
    if (node->leaves.empty()) continue;
    std::string name = node->name();
    for (const auto& leaf : node->leaves)
      if (std::string expected = leaf->expected(); !expected.empty())
        lines.push_back(leaf->subject() + name + " " + expected);
  }
  for (const Relation& relation : relations_) lines.push_back(relation_text(relation));
  for (const ShapeCheck& shapes : shapes_)
    for (const ShapeCondition& condition : shapes.conditions) lines.push_back(condition.text);
  return lines;
}

void Tree::print_node(const Node& node, std::string indent, std::string& out) const {
  out += indent + node.name() + "\n";
  indent += "  ";
  for (const auto& leaf : node.leaves)
    if (std::string expected = leaf->expected(); !expected.empty()) out += indent + "- " + expected + "\n";
  for (const Node* child : node.children) print_node(*child, indent, out);
}

std::string Tree::print() const {
  std::string out = is_valid() ? "GuardTree\n" : "GuardTree (invalid)\n";
  print_node(*nodes_[0], "  ", out);
  for (const Relation& relation : relations_) out += "  " + relation_text(relation) + "\n";
  for (const ShapeCheck& shapes : shapes_)
    for (const ShapeCondition& condition : shapes.conditions) out += "  " + condition.text + "\n";
  return out;
}

}  // namespace guards
