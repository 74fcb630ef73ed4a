"""Integers in tensors of which a bound is known: places that argmax, topk and sort give. Such
integers are counted by torch.bincount(places, minlength=n) in n counts, and those that torch.unique
finds are among the first n numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo.values.base import Value
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.deferred_places import DeferredPlaces, deferrable, deferred_places
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from dynamo.values.tensors.tensor_functions import function_and_method
from fxgraph import Node

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_VIEWS = frozenset(
    ["view", "reshape", "flatten", "ravel", "squeeze", "unsqueeze", "contiguous", "clone"]
    + ["detach", "long", "t", "transpose", "permute"]
)
# Operation -> the place of its dimension among the arguments.
_GIVES_PLACES = {"topk": 2, "sort": 1, "argsort": 1, "argmax": 1, "argmin": 1, "max": 1, "min": 1}


def elements_of(node: Node) -> Node:
    """The node with the same elements, in another shape, from which a node is made."""
    while node.op.startswith("call_") and _name(node) in _VIEWS:
        node = node.args[0]  # type: ignore[assignment]
    return node


def _chain(node: Node) -> Iterator[Node]:
    """The nodes that a node's elements come from, itself first, as long as they are tensors."""
    while True:
        yield node
        parts = _name(node) == "getitem" or _name(node) in _VIEWS
        source: Any = node.args[0] if parts and node.op.startswith("call_") else None
        whole = source.meta.get("example_value") if isinstance(source, Node) else None
        if not isinstance(whole, torch.Tensor):
            return
        node = source


def bound_of(node: Node) -> int | None:
    """The number that all elements, none of which is negative, are smaller than, as the operation
    gives them from which they come; None: unknown.
    """
    *_, node = _chain(node)
    name = _name(node)
    if name == "getitem" and isinstance(node.args[0], Node):
        if node.args[1] != 1:
            return None
        node, name = node.args[0], _name(node.args[0])
        if name not in ("topk", "sort", "max", "min"):
            return None
    elif name not in ("argsort", "argmax", "argmin"):
        return None
    source: Any = node.args[0]
    place, default = _GIVES_PLACES[name], None if name.startswith("arg") and "m" in name else -1
    dim = node.args[place] if len(node.args) > place else node.kwargs.get("dim", default)
    fake = source.meta.get("example_value") if isinstance(source, Node) else None
    if type(dim) is not int or not isinstance(fake, torch.Tensor) or not fake.ndim:
        return None
    size = fake.shape[dim]
    return size if type(size) is int else None


def _name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _bounded(tx: Interpreter, value: Value) -> int | None:
    if type(value) is not TensorValue or value.fake.dtype is not torch.int64:
        return None
    fakes = [node.meta["example_value"] for node in _chain(value.node)]
    return None if any(map(tx.output.checks.has_written, fakes)) else bound_of(value.node)


def _count(tx: Interpreter, places: TensorValue, size: int) -> Value:
    """How often each of the first numbers is in a vector."""
    options: dict[str, Value] = {"dtype": ConstantValue(torch.int64)}
    ones = call_in_graph(tx, "call_function", torch.ones_like, [places], options)
    options = {**options, "device": ConstantValue(places.fake.device)}
    zeros = call_in_graph(tx, "call_function", torch.zeros, [ConstantValue(size)], options)
    operands = [zeros, ConstantValue(0), places, ones]
    return call_in_graph(tx, "call_method", "scatter_add", operands, {})


@function_and_method("bincount")
def fold_bincount(
    tx: Interpreter, op: str, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """torch.bincount."""
    size = kwargs.get("minlength") if len(args) == 1 and len(kwargs) == 1 else None
    bound = _bounded(tx, args[0]) if args else None
    length = size.as_constant() if size is not None and size.is_constant() else None
    if bound is not None and type(length) is int and length >= bound:
        places: Any = args[0]
        if places.fake.ndim == 1:
            return _count(tx, places, length)
    return call_in_graph(tx, op, target, args, kwargs)


def deferred_unique(tx: Interpreter, tensor: Value) -> DeferredPlaces | None:
    """torch.unique(tensor), sorted, if a loop may be all that is interested."""
    bound = _bounded(tx, tensor)
    if bound is None or not isinstance(tensor, TensorValue) or not deferrable(tx, bound):
        return None
    flat = call_in_graph(tx, "call_method", "flatten", [tensor], {})
    assert isinstance(flat, TensorValue)
    mask = _count(tx, flat, bound).compare(tx, ">", ConstantValue(0))
    found = deferred_places(tx, mask) if mask is not None else None
    return None if found is None else found.numbers_in(tensor)


@function_and_method("unique")
def fold_unique(
    tx: Interpreter, op: str, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """torch.unique."""
    found = deferred_unique(tx, args[0]) if len(args) == 1 and not kwargs else None
    return call_in_graph(tx, op, target, args, kwargs) if found is None else found
