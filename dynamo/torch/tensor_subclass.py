"""Tensors of a user's subclass of torch.Tensor: in the graph they are plain tensors; their class is
kept here, and put on them again where they leave the frame.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import CallSource, DictItemSource, InstanceDictSource, Source
from dynamo.torch.overrides import (
    dispatch,
    is_enabled,
    override_of,
    overrides_by_default,
    unseen,
)
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.builtins.table import TABLE, handles, real_object
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.descriptors import (
    MISSING,
    bind,
    class_lookup,
    guarded_lookup,
    is_data_descriptor,
)
from dynamo.values.recipes import Existing, GraphOutput, Made, Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import COMPARE_DUNDERS, UNARY_DUNDERS, binary_dunder
from dynamo.values.tensors.tensor import (
    METADATA_ATTRIBUTES,
    SPECIAL_METHODS,
    TensorValue,
    call_in_graph,
    constant_sizes,
)
from fxgraph import Node

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class SubclassTensorValue(TensorValue):
    """A tensor of class `cls`; `node` and `fake` are those of the plain tensor with its content."""

    is_wrapper = False

    def __init__(
        self, node: Node, fake: torch.Tensor, cls: type, source: Source | None = None
    ) -> None:
        super().__init__(node, fake, source)
        self.cls = cls
        self.plain = TensorValue(node, fake)

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"{self.cls.__name__} {super().describe()}"

    # -- attributes -----------------------------------------------------------------------------
    def _own(self, tx: Interpreter, name: str) -> Any:
        """The attribute as defined below torch.Tensor; MISSING if Tensor's own is found."""
        found = guarded_lookup(tx, self, name)
        base = class_lookup(torch.nn.Parameter, name)
        same = found is class_lookup(torch.Tensor, name) or (found is base and self._is_parameter)
        return MISSING if same else found

    @property
    def _is_parameter(self) -> bool:
        return issubclass(self.cls, torch.nn.Parameter)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        for special in ("__getattribute__", "__getattr__"):
            if self._own(tx, special) is not MISSING:
                raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        stored = tx.output.side_effects.load_attr(self, name)
        found = self._own(tx, name)
        if found is not MISSING and (stored is None or is_data_descriptor(found)):
            held = self._instance_attr(tx, name)
            if is_data_descriptor(found) or held is None:
                return bind(tx, self, found, name)
            return held
        if stored is None:
            dispatched = self._dispatched(tx, name)
            if dispatched is not None:
                return dispatched
        return super().getattr(tx, name)

    def _dispatched(self, tx: Interpreter, name: str) -> Value | None:
        if name in METADATA_ATTRIBUTES and overrides_by_default(self.cls):
            return None
        return dispatch(tx, "call_function", getattr, [self, ConstantValue(name)], {})

    def _instance_attr(self, tx: Interpreter, name: str) -> Value | None:
        own = {} if self.real is None else self.real.__dict__
        if name not in own:
            tx.guard(self.source, "no_instance_attr", name)
            return None
        source = self.source
        item = None if source is None else DictItemSource(InstanceDictSource(source), name)
        return tx.wrap(own[name], item)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        if self._own(tx, name) is not MISSING:
            return True
        return super().hasattr(tx, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        if self._own(tx, "__setattr__") is not MISSING or self._own(tx, name) is not MISSING:
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        super().setattr(tx, name, value)

    # -- methods and operators ------------------------------------------------------------------
    def has_special(self, tx: Interpreter, name: str) -> bool:
        return isinstance(self._own(tx, name), types.FunctionType)

    def _special(self, tx: Interpreter, name: str, *args: Value) -> Value | None:
        """The class's own special method; None if it has none."""
        if not self.has_special(tx, name):
            return None
        return tx.call_at_end(self, name, bind(tx, self, self._own(tx, name), name), args)

    def _answer(self, tx: Interpreter, name: str, *args: Value) -> tuple[bool, Value | None]:
        """(the class has the operator, its result or None for NotImplemented)."""
        result = self._special(tx, name, *args)
        if result is None:
            return False, None
        refused = result.is_constant() and result.as_constant() is NotImplemented
        return True, None if refused else result

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        if self._own(tx, name) is not MISSING:
            return self.getattr(tx, name).call(tx, args, kwargs)
        if name == "requires_grad_" and not self.is_wrapper:
            # The leaf would be the plain tensor in the graph.
            raise Unsupported(breaks.TensorMetadata("Tensor.requires_grad_()"))
        if not overrides_by_default(self.cls):
            dispatched = dispatch(tx, "call_method", name, [self, *args], kwargs)
            if dispatched is not None:
                return dispatched
        return super().call_method(tx, name, args, kwargs)

    def getattr_inherited(self, tx: Interpreter, name: str) -> Value:
        """Tensor's own attribute, past the class: `super().shape`."""
        dispatched = self._dispatched(tx, name)
        return super().getattr(tx, name) if dispatched is None else dispatched

    def call_inherited(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        if not overrides_by_default(self.cls):
            dispatched = dispatch(tx, "call_method", name, [self, *args], kwargs)
            if dispatched is not None:
                return dispatched
        return super().call_method(tx, name, args, kwargs)

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        own, result = self._answer(tx, binary_dunder(op, reflected), other)
        return result if own else super().binary(tx, op, other, reflected)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        own, result = self._answer(tx, COMPARE_DUNDERS[op], other)
        return result if own else super().compare(tx, op, other)

    def unary(self, tx: Interpreter, op: str) -> Value:
        result = self._special(tx, UNARY_DUNDERS[op])
        return super().unary(tx, op) if result is None else result

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        result = self._special(tx, "__getitem__", key)
        return super().getitem(tx, key) if result is None else result

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        if self._special(tx, "__setitem__", key, value) is None:
            super().setitem(tx, key, value)

    def length(self, tx: Interpreter) -> int:
        self._refuse(tx, "__len__")
        return super().length(tx)

    def length_value(self, tx: Interpreter) -> Value:
        self._refuse(tx, "__len__")
        return super().length_value(tx)

    def truth(self, tx: Interpreter) -> bool:
        self._refuse(tx, "__bool__")
        return super().truth(tx)

    def truth_value(self, tx: Interpreter, negated: bool = False) -> Value:
        self._refuse(tx, "__bool__")
        return super().truth_value(tx, negated)

    def deferred_truth(self, tx: Interpreter) -> Any:
        self._refuse(tx, "__bool__")
        return super().deferred_truth(tx)

    def contains(self, tx: Interpreter, item: Value) -> Value:
        self._refuse(tx, "__contains__")
        return super().contains(tx, item)

    def hash_key(self, tx: Interpreter) -> Hashable:
        self._refuse(tx, "__hash__")
        return super().hash_key(tx)

    def iterate(self, tx: Interpreter) -> Value:
        self._refuse(tx, "__iter__")
        return super().iterate(tx)

    def unpack(self, tx: Interpreter) -> list[Value]:
        self._refuse(tx, "__iter__")
        return super().unpack(tx)

    def _refuse(self, tx: Interpreter, name: str) -> None:
        """A graph break where an operation of the language calls a method of the class, or asks its
        __torch_function__.
        """
        asks = is_enabled(tx) and not overrides_by_default(self.cls)
        asks = asks and override_of(self.cls) is not MISSING
        if asks or self._own(tx, name) is not MISSING:
            raise Unsupported(breaks.UncapturedCall(f"{self.cls.__name__}.{name}"))

    # -- code -----------------------------------------------------------------------------------
    def recipe(self) -> Recipe:
        cls = Made(Existing(self.cls, self.cls.__name__))
        return with_class, [Made(GraphOutput(self.plain)), cls]


def with_class(tensor: torch.Tensor, cls: type) -> torch.Tensor:
    """The tensor's content as an instance of a subclass, with its history in any grad mode."""
    with torch._C.DisableTorchFunctionSubclass(), torch.enable_grad():
        return tensor.as_subclass(cls)


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The content of a subclass's instance, for the graph, with its history in any grad mode."""
    with torch._C.DisableTorchFunctionSubclass(), torch.enable_grad():
        return tensor.as_subclass(torch.Tensor)


def _example(obj: torch.Tensor) -> torch.Tensor:
    """The content of a subclass's instance: a leaf where that is one."""
    with torch._C.DisableTorchFunctionSubclass():
        if obj.requires_grad and not obj.is_leaf:
            return plain_tensor(obj)
        plain = obj.detach().as_subclass(torch.Tensor)
        return plain.requires_grad_(obj.requires_grad)


# Modules of torch whose subclasses are as a user's: only their __torch_function__ is special.
_AS_A_USERS = ("torch.nn.attention.bias",)


@bound_late
def is_known_subclass(cls: type) -> bool:
    """A subclass made in Python that changes nothing below torch's Python interface."""
    if cls.__module__.split(".")[0] == "torch" and cls.__module__ not in _AS_A_USERS:
        return False
    unchanged = class_lookup(torch.Tensor, "__torch_dispatch__")
    return class_lookup(cls, "__torch_dispatch__") is unchanged


@bound_late
def build_subclass_tensor(tx: Interpreter, obj: torch.Tensor, source: Source | None) -> Value:
    """A tensor from outside whose class is a user's."""
    if source is None:
        source = tx.output.install("tensor", obj)
    inner = CallSource(source, plain_tensor, "plain")
    node = tx.output.add_input(_example(obj), inner, static=False)
    fake = node.meta["example_value"]
    tx.guard(source, "tensor", constant_sizes(obj, fake))
    value = SubclassTensorValue(node, fake, type(obj), source)
    value.real = obj
    tx.output.adopt(value.fake, value)
    tx.output.tensors_override = True
    return tx.output.remember(obj, source, value)


@bound_late
def new_subclass_tensor(
    tx: Interpreter, cls: type, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """torch.Tensor.__new__(cls, *args): of sizes or data, or a view; None for other classes."""
    if kwargs or not is_known_subclass(cls):
        return None
    made = TABLE[torch.Tensor](tx, *args)
    assert isinstance(made, TensorValue)
    return as_subclass(tx, made, cls)


@bound_late
def as_subclass(tx: Interpreter, tensor: TensorValue, cls: type) -> TensorValue:
    """A fresh result, as a tensor of the class."""
    if late_bound.is_wrapper(tensor.fake) and not isinstance(tensor.fake, cls):  # torch refuses
        raise Unsupported(breaks.UncapturedCall("Tensor.as_subclass"))
    if cls is not torch.Tensor and not is_known_subclass(cls):
        raise Unsupported(breaks.UncapturedCall(f"Tensor.as_subclass({cls.__name__})"))
    made = (
        TensorValue(tensor.node, tensor.fake)
        if cls is torch.Tensor
        else SubclassTensorValue(tensor.node, tensor.fake, cls)
    )
    tx.output.tensors_override = True
    tx.output.adopt(made.fake, made)
    return made


def _as_subclass(tx: Interpreter, tensor: TensorValue, cls: Value) -> Value:
    """tensor.as_subclass(cls): another tensor that shares the storage."""
    with unseen(tx):
        alias = call_in_graph(tx, "call_function", torch.ops.aten.alias.default, [tensor], {})
    assert isinstance(alias, TensorValue)
    return as_subclass(tx, alias, real_object(cls))


@handles(torch.Tensor._make_subclass)
def _make_subclass(tx, cls, data, require_grad=None, *rest, **kwargs):
    if rest or kwargs or (require_grad is not None and require_grad.as_constant()):
        raise Unsupported(breaks.UncapturedCall("torch.Tensor._make_subclass"))
    with unseen(tx):
        detached = call_in_graph(tx, "call_method", "detach", [data], {})
    return as_subclass(tx, detached, real_object(cls))


_METHODS: dict[str, Callable[..., Value]] = {"as_subclass": _as_subclass}
SPECIAL_METHODS.update(_METHODS)
