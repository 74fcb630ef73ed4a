"""DTensor: a wrapper of this process's part of a tensor, with its placements on a mesh.

Placements and meshes are objects whose methods are pure, called while capturing; functions that
make DTensors, move them, or give their local part are calls of the graph, which backends take apart
like every operator of a wrapper (fxgraph/aot/wrappers.py).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.torch.wrapper_subclass import VALUES, WrapperTensorValue
from dynamo.values.base import Value
from dynamo.values.builder import special_builder
from dynamo.values.builtins.table import TABLE, fold
from dynamo.values.functions.functional import PureObjectValue
from dynamo.values.tensors.tensor import call_in_graph

if TYPE_CHECKING:
    from types import ModuleType

    from dynamo.guards.sources import Source
    from dynamo.interp.interpreter import Interpreter

_kinds: frozenset[type] = frozenset()  # of placements and meshes, once the program has them


def _is_distributed(obj: Any) -> bool:
    module = sys.modules.get("torch.distributed.tensor")
    if module is None:
        return False
    if not _kinds and hasattr(module, "DTensor"):
        _register(module)
    return type(obj) in _kinds


class DistributedObject(PureObjectValue):
    """A placement or a mesh."""

    def as_proxy(self) -> Any:
        return self.real

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        known, real = other.identity()
        if op not in ("==", "!=") or not known:
            return None
        return tx.wrap((self.real == real) is (op == "=="))


@special_builder(_is_distributed)
def build_distributed_object(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "type", type(obj))

    def is_equal(now: Any) -> bool:
        return now is obj or now == obj

    is_equal.__name__ = f"is {obj}"
    tx.guard(source, "predicate", is_equal)
    return tx.output.remember(obj, source, DistributedObject(obj, source))


class DTensorValue(WrapperTensorValue):
    """A DTensor."""

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name in ("placements", "device_mesh"):
            return tx.wrap(getattr(self.fake, name))
        return super().getattr(tx, name)


def _register(module: ModuleType) -> None:
    """The classes and functions of torch.distributed.tensor, which the program has imported."""
    global _kinds
    types = sys.modules["torch.distributed.tensor.placement_types"]
    placements: list[Any] = [
        getattr(types, name)
        for name in ("Shard", "Replicate", "Partial", "_StridedShard")
        if hasattr(types, name)
    ]
    mesh = sys.modules["torch.distributed.device_mesh"].DeviceMesh
    _kinds = frozenset((*placements, mesh))
    for cls in placements:
        TABLE[cls] = functools.partial(_placement, cls)
    tensor = module.DTensor
    VALUES[tensor] = DTensorValue
    for function in (tensor.to_local, tensor.redistribute, tensor.full_tensor):
        TABLE[function] = _in_graph(function)
    TABLE[tensor.from_local] = _from_local(tensor.from_local)
    for name in ("ones", "zeros", "empty", "full", "distribute_tensor"):
        function = getattr(module, name)
        TABLE[function] = _in_graph(function)


def _placement(cls: Any, tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    return fold(tx, cls, args, kwargs)


def _in_graph(function: Callable[..., Any]) -> Callable[..., Value]:
    def call(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        return call_in_graph(tx, "call_function", function, args, kwargs)

    return call


def _from_local(function: Callable[..., Any]) -> Callable[..., Value]:
    def call(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        checks = kwargs.get("run_check")
        told = len(args) > 1 or "device_mesh" in kwargs
        if not told or (checks is not None and checks.truth(tx)):
            raise Unsupported(breaks.UncapturedCall("DTensor.from_local"))
        return call_in_graph(tx, "call_function", function, args, kwargs)

    return call
