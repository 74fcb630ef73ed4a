"""Hooks of tensors: `register_hook`, `register_post_accumulate_grad_hook`, `retain_grad`.

A hook runs in a backward that starts after the frame, so the rewritten frame registers it once the
graph has run; an intermediate becomes a result of the graph, whose gradient autograd hands to its
hooks whole. A backward inside the frame, and a write to the tensor behind the registration, break
the graph: then the hook is in place before. (In the step of a static graph, backward computes the
gradients that are retained along with those of leaves.)
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.hooks import RemovableHandle

from dynamo import breaks
from dynamo.break_regions import break_is_error
from dynamo.errors import Unsupported
from dynamo.plans import BreakBefore, Retry
from dynamo.polyfills import module_hooks
from dynamo.values.base import Value
from dynamo.values.builtins.table import handles
from dynamo.values.objects.builtin_object import BuiltinObject
from dynamo.values.recipes import Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.autograd_state import ask_leaf
from dynamo.values.tensors.memory_overlap import is_fragile
from dynamo.values.tensors.tensor import SPECIAL_METHODS, TensorValue
from dynamo.values.tensors.tensor_calls import check_usable
from fxgraph import Node
from fxgraph.aot.history import memory_of
from fxgraph.args import leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamo.interp.interpreter import Interpreter


class HookHandleValue(BuiltinObject):
    """The handle of a registered hook: made empty, and filled when the hook is registered."""

    def python_type(self) -> type:
        return RemovableHandle

    def describe(self) -> str:
        return "the handle of a hook"

    def recipe(self) -> Recipe:
        return new_handle, []

    def py_remove(self, tx: Interpreter) -> None:
        tx.output.side_effects.call_later(RemovableHandle.remove, self)


def new_handle() -> RemovableHandle:
    """A handle of nothing yet."""
    return RemovableHandle.__new__(RemovableHandle)


def add_hook(handle: RemovableHandle, tensor: torch.Tensor, hook: Any) -> None:
    """tensor.register_hook(hook), into a handle that is there already."""
    vars(handle).update(vars(tensor.register_hook(hook)))


def add_accumulated_hook(handle: RemovableHandle, tensor: torch.Tensor, hook: Any) -> None:
    """tensor.register_post_accumulate_grad_hook(hook), likewise."""
    vars(handle).update(vars(tensor.register_post_accumulate_grad_hook(hook)))


def _registration(name: str, register: Callable[..., None]) -> Callable[..., Value]:
    def call(tx: Interpreter, tensor: TensorValue, hook: Value) -> Value:
        of_leaf = name == "register_post_accumulate_grad_hook"
        if of_leaf and not ask_leaf(tx, tensor):
            raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}()"))  # raises its own error
        _check(tx, tensor, name)
        handle = tx.output.side_effects.track_new(HookHandleValue())
        tx.output.side_effects.call_later(register, handle, tensor, hook)
        tensor.node.meta["hooked"] = True
        tx.output.watched.watch_history(tensor)
        return handle

    return call


def _retain_grad(tx: Interpreter, tensor: TensorValue) -> Value:
    _check(tx, tensor, "retain_grad")
    if not ask_leaf(tx, tensor) and not tensor.fake.retains_grad:
        hooks = tx.output.context.hooks
        if hooks is None or not hooks.detaches:  # else its gradient is read before the end only
            tx.output.side_effects.call_later(torch.Tensor.retain_grad, tensor)
        tensor.fake.retain_grad()
        tx.output.watched.watch_history(tensor)
    return ConstantValue(None)


@handles(module_hooks.own_history)
def _own_history(tx, tensor):
    if type(tensor) is not TensorValue:
        raise Unsupported(breaks.UncapturedCall("a hook of a module"))
    copy = tensor.call_method(tx, "clone", [], {})
    reason = breaks.UncapturedCall("a hook of a module on memory that is written or seen outside")
    refusal = native(tx, tx.breakable_chain()[-1].began, reason)
    tx.output.watched.copy_for_view(tensor, copy, refusal)
    return copy


@handles(module_hooks.watch_gradient)
def _watch_gradient(tx, tensor, hook):
    _check(tx, tensor, "register_hook")
    tx.output.side_effects.call_later(module_hooks.watch_gradient, tensor, hook)
    tensor.node.meta["hooked"] = True
    tx.output.watched.watch_history(tensor)
    return ConstantValue(None)


def _check(tx: Interpreter, tensor: TensorValue, name: str) -> None:
    """Break where the tensor's gradient is not whole behind the graph, or eager raises."""
    fake, graph = tensor.fake, tx.output.graph
    check_usable(fake)
    outside = tensor.real is not None
    if not fake.requires_grad or type(tensor) is not TensorValue or tx.output.bodies:
        raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}()"))
    if not outside and (not tensor.node.op.startswith("call_") or _is_view_of_input(tx, tensor)):
        raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}()"))
    # A write may come before the hook is registered.
    if tensor.real is not None and is_fragile(tensor.real):
        raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}() of a view without gradients"))
    if not outside and _is_one_of_several(tensor):
        tx.output.watched.keep_alone(tensor, _native_maker(tx, tensor, name))
    if any(node.target is torch.autograd.grad for node in graph.nodes):
        raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}() behind a backward"))


def _is_view_of_input(tx: Interpreter, tensor: TensorValue) -> bool:
    """Whether the tensor looks at the memory of an input: its hooks run for gradients of both."""
    if not tensor.fake._is_view():
        return False
    memory = memory_of(tensor.fake)
    inputs = [item.node.meta["example_value"] for item in tx.output.inputs]
    return any(memory_of(fake) == memory for fake in inputs if isinstance(fake, torch.Tensor))


def _is_one_of_several(tensor: TensorValue) -> bool:
    """Whether the tensor is one of several results of an operation that have gradients: autograd
    runs the hooks of all of them at once, in the order in which they were registered.
    """
    node = tensor.node
    if node.target is not operator.getitem or not isinstance(node.args[0], Node):
        return False
    made = node.args[0].meta["example_value"]
    results = [] if isinstance(made, torch.Tensor) else leaves(made)
    return sum(isinstance(one, torch.Tensor) and one.requires_grad for one in results) > 1


def _native_maker(tx: Interpreter, tensor: TensorValue, name: str) -> Exception:
    """The exception that has the operation that makes the tensor run natively, so that autograd
    knows its results as those of one operation.
    """
    began = tensor.node.args[0].meta.get("began")  # type: ignore[union-attr]
    return native(tx, began, breaks.UncapturedCall(f"Tensor.{name}()"))


def native(tx: Interpreter, began: int | None, reason: breaks.Break) -> Exception:
    """The exception that has the instruction at step `began` run natively; in a function of one
    graph, a break here.
    """
    if began is None or tx.output.context.fullgraph or break_is_error():
        return Unsupported(reason)
    return Retry(tx.output.plan.breaking(BreakBefore(began, reason, tx.user_stack())))


SPECIAL_METHODS["register_hook"] = _registration("register_hook", add_hook)
SPECIAL_METHODS["register_post_accumulate_grad_hook"] = _registration(
    "register_post_accumulate_grad_hook", add_accumulated_hook
)
SPECIAL_METHODS["retain_grad"] = _retain_grad
