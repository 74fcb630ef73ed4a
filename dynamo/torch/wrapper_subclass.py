"""Tensors of classes that wrap other tensors (__tensor_flatten__, __torch_dispatch__).

In the graph they are what they are to the program: tensors of their class, whose fake is an
instance of the class around fake tensors. Backends take their operators apart
(fxgraph/aot/wrappers.py).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import (
    is_traceable_wrapper_subclass,
    is_traceable_wrapper_subclass_type,
)

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, Source
from dynamo.torch.overrides import override_of, overrides_by_default
from dynamo.torch.tensor_subclass import SubclassTensorValue
from dynamo.values.base import Value
from dynamo.values.constant import is_constant_type
from dynamo.values.descriptors import MISSING
from dynamo.values.tensor import TensorValue, call_in_graph
from dynamo.values.tensor_functions import tensor_function

if TYPE_CHECKING:
    from dynamo.framestate.materialise import Codegen
    from dynamo.interp.interpreter import Interpreter
    from fxgraph import Node


class WrapperTensorValue(SubclassTensorValue):
    """A tensor of class `cls`: `fake` is an instance of the class, and `node` gives one."""

    def __init__(self, node: Node, fake: torch.Tensor, source: Source | None = None) -> None:
        super().__init__(node, fake, type(fake), source)
        self.plain = self

    def getattr(self, tx: Interpreter, name: str) -> Value:
        inner, _ = self.fake.__tensor_flatten__()  # type: ignore[attr-defined]
        if name in inner and tx.output.side_effects.load_attr(self, name) is None:
            return call_in_graph(tx, "call_function", getattr, [self, tx.wrap(name)], {})
        return super().getattr(tx, name)

    def _instance_attr(self, tx: Interpreter, name: str) -> Value | None:
        if self.source is not None:
            return super()._instance_attr(tx, name)
        held = self.fake.__dict__.get(name, MISSING)
        if held is MISSING:
            return None
        if not is_constant_type(type(held)):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        return tx.wrap(held)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        raise Unsupported(breaks.AttributeMutation(self.describe(), name))

    def reconstruct(self, codegen: Codegen) -> None:
        codegen.graph_output(self)


class SameContext:
    """Whether a tensor is flattened as an example was: into tensors of the same names, with the
    same context.
    """

    def __init__(self, example: torch.Tensor) -> None:
        names, context = example.__tensor_flatten__()  # type: ignore[attr-defined]
        self._names = list(names)
        try:
            self._context = copy.deepcopy(context)
        except Exception:  # an object that cannot be copied; a change inside is not seen
            self._context = context
        self._compare = getattr(type(example), "__metadata_guard__", None)
        self.__name__ = f"has the context {context!r}"

    def __call__(self, value: Any) -> bool:
        names, context = value.__tensor_flatten__()
        if list(names) != self._names:
            return False
        if self._compare is not None:
            return bool(self._compare(self._context, context))
        return bool(context == self._context)


@tensor_function
def is_wrapper(obj: torch.Tensor) -> bool:
    """Whether capture knows a tensor as a wrapper of others."""
    if obj.is_nested or not is_traceable_wrapper_subclass(obj):
        return False
    return is_wrapper_class(type(obj))


@tensor_function
def is_wrapper_class(cls: type) -> bool:
    if not is_traceable_wrapper_subclass_type(cls) or cls.__module__.startswith(_NOT_KNOWN):
        return False
    return override_of(cls) is MISSING or overrides_by_default(cls)


_NOT_KNOWN = ("torch.distributed", "torch.nested", "torch._subclasses")


@tensor_function
def make_wrapper(
    tx: Interpreter, cls: type, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """A wrapper that the program makes: the class is called in the graph."""
    return call_in_graph(tx, "call_function", cls, args, kwargs)


@tensor_function
def build_wrapper_tensor(tx: Interpreter, obj: torch.Tensor, source: Source | None) -> Value:
    """A wrapper from outside: an input of the graph."""
    if not _is_whole(obj):
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    if source is None:
        source = tx.output.install("tensor", obj)
    guard_wrapper(tx, obj, source)
    node = tx.output.add_input(obj, source, static=False)
    value = WrapperTensorValue(node, node.meta["example_value"], source)
    if type(value.fake) is not type(obj):  # unflattened as an instance of a base
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    value.real = obj
    tx.output.adopt(value.fake, value)
    return tx.output.remember(obj, source, value)


def _is_whole(obj: torch.Tensor) -> bool:
    """Whether the tensors inside are there: __new__ gives one in which __init__ puts them later."""
    try:
        names, _ = obj.__tensor_flatten__()  # type: ignore[attr-defined]
    except AttributeError:
        return False
    return all(hasattr(obj, name) for name in names)


def guard_wrapper(tx: Interpreter, obj: torch.Tensor, source: Source) -> None:
    """The class, what the tensor says of itself, the context, and the same of what is inside."""
    tx.guard(source, "type", type(obj))
    tx.guard(source, "tensor", obj)
    tx.guard(source, "predicate", SameContext(obj))
    names, _ = obj.__tensor_flatten__()  # type: ignore[attr-defined]
    for name in names:
        inner: Any = getattr(obj, name)
        place = AttrSource(source, name)
        kind = type(inner)
        if is_traceable_wrapper_subclass_type(kind):
            guard_wrapper(tx, inner, place)
        elif kind in (torch.Tensor, torch.nn.Parameter) and inner.layout is torch.strided:
            tx.guard(place, "tensor", inner)
        else:
            raise Unsupported(breaks.UnknownObject(kind.__name__))


@tensor_function
def wrapper_result(node: Node, fake: torch.Tensor) -> TensorValue:
    """The Value of a wrapper that an operator gave."""
    return WrapperTensorValue(node, fake)
