"""Collectives of torch.distributed, ranks and sizes of process groups, and settings of torch's
packages.

Those that write their tensors (`dist.all_reduce(x)`) are captured as the functional operators of
torch.distributed._functional_collectives and a copy. Autograd does not look at such a write, but
at a copy: where gradients are asked for, the collective breaks the graph.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.utils._config_module import ConfigModule

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, GlobalsSource
from dynamo.values.base import Forwarded, Value, is_none
from dynamo.values.builder import builder, special_builder, subclass_builder
from dynamo.values.builtins.table import handles
from dynamo.values.containers.containers import SequenceValue
from dynamo.values.functions.function import OpaqueFunctionValue, UserFunctionValue
from dynamo.values.functions.functional import PureObjectValue
from dynamo.values.objects.exceptions import call_real
from dynamo.values.objects.known_objects import KnownObject
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.guards.sources import Source
    from dynamo.interp.interpreter import Interpreter

# Attributes of a process group that never change; the others communicate.
_FIXED = frozenset({"rank", "size", "name", "group_name", "group_desc", "bound_device_id"})
# Each is captured as the function of the same name in dynamo.polyfills.collectives.
_CAPTURED = frozenset(
    ["all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor"]
    + ["all_gather_single", "reduce_scatter_single", "all_to_all_single"]
)
# Their own code makes objects of C++ and calls methods of these, each of which would be a break.
_NATIVE = frozenset(
    ["all_gather_coalesced", "all_gather_object", "all_reduce_coalesced", "all_to_all", "barrier"]
    + ["batch_isend_irecv", "broadcast", "broadcast_object_list", "gather", "gather_object"]
    + ["irecv", "isend", "monitored_barrier", "recv", "recv_object_list", "reduce"]
    + ["reduce_scatter", "scatter", "scatter_object_list", "send", "send_object_list"]
)


class ProcessGroupValue(PureObjectValue):
    """A process group."""

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name not in _FIXED:
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        return super().getattr(tx, name)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        if name not in _FIXED:
            raise Unsupported(breaks.UncapturedCall(f"ProcessGroup.{name}"))
        return super().call_method(tx, name, args, kwargs)


if dist.is_available():

    @builder(dist.ProcessGroup)
    def build_process_group(tx: Interpreter, obj: Any, source: Source | None) -> Value:
        tx.guard(source, "id", obj)
        return tx.output.remember(obj, source, ProcessGroupValue(obj, source))

    @handles(dist.distributed_c10d._resolve_process_group)
    def _resolve_process_group(tx, name):
        resolve, text = dist.distributed_c10d._resolve_process_group, name.as_constant()
        group = call_real(tx, resolve, text)

        def is_the_same(_: Any) -> bool:
            try:
                return resolve(text) is group
            except Exception:  # destroyed: the frame raises its own
                return False

        is_the_same.__name__ = f"the process group {text!r} is the same"
        tx.guard(GlobalsSource(), "predicate", is_the_same)
        return tx.wrap(group)


class ConfigModuleValue(KnownObject):
    """The settings of a package of torch's, each of which is guarded by its value."""

    def getattr(self, tx: Interpreter, name: str) -> Value:
        source = None if self.source is None else AttrSource(self.source, name)
        return tx.wrap(call_real(tx, getattr, self.known, name), source)


@subclass_builder(ConfigModule)
def build_config_module(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, ConfigModuleValue(obj, source))


class CollectiveValue(OpaqueFunctionValue):
    """A function that communicates; some are captured where their arguments are plain."""

    def __init__(self, function: Any, source: Source | None) -> None:
        super().__init__(function, breaks.UncapturedCall(f"dist.{function.__name__}"), source)

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Forwarded | None:
        if self.function.__name__ not in _CAPTURED:
            return None
        signature = inspect.signature(self.function)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return None
        group, told = given.get("group"), given.get("async_op")
        if (told is not None and told.truth(tx)) or dist.distributed_c10d._world.pg_coalesce_state:
            return None
        if not _are_plain(given) or not (is_none(group) or isinstance(group, ProcessGroupValue)):
            return None
        if not _fills_list(given, group):
            return None
        if "op" in signature.parameters:
            name = _name_of_reduction(given.get("op"))
            if name is None:
                return None
            given["op"] = ConstantValue(name)
        given.pop("async_op", None)
        from dynamo.polyfills import collectives

        return UserFunctionValue(getattr(collectives, self.function.__name__)), [], given


def _are_plain(given: dict[str, Value]) -> bool:
    """Whether the tensors are plain, contiguous ones of one dtype without gradients; those of a
    list, of one shape. Others the collective may refuse, or read as if they were.
    """
    one = [value for value in given.values() if isinstance(value, TensorValue)]
    lists = [value.wrapped() for value in given.values() if isinstance(value, SequenceValue)]
    several = [value for items in lists for value in items if isinstance(value, TensorValue)]
    values = [*one, *several]
    if not all(type(v) is TensorValue and not v.fake.is_complex() for v in values):
        return False
    if torch.is_grad_enabled() and any(v.fake.requires_grad for v in values):
        return False
    if len({v.fake.dtype for v in values}) > 1 or not all(v.fake.is_contiguous() for v in values):
        return False
    if several:
        return all(value.fake.shape == values[0].fake.shape for value in values)
    return len(one) == 1 or all(value.fake.ndim > 0 for value in one)


def _fills_list(given: dict[str, Value], group: Value | None) -> bool:
    """Whether a list of results has a tensor for each process of the group."""
    results = given.get("tensor_list")
    if not isinstance(results, SequenceValue):
        return results is None
    real = group.identity()[1] if isinstance(group, ProcessGroupValue) else None
    return dist.is_initialized() and len(results.wrapped()) == dist.get_world_size(real)


def _name_of_reduction(op: Value | None) -> str | None:
    """The name that functional operators have for a reduction; None: they don't have it."""
    from torch.distributed._functional_collectives import REDUCE_OP_TO_STR

    if op is None:
        return "sum"
    known, real = op.identity()
    names: dict[Any, str] = REDUCE_OP_TO_STR
    return names.get(real) if known and type(real) is type(dist.ReduceOp.SUM) else None


@functools.cache
def _functions() -> frozenset[Any]:
    module = dist.distributed_c10d
    names = [name for name in _CAPTURED | _NATIVE if hasattr(module, name)]
    return frozenset([getattr(module, name) for name in names])


def _communicates(obj: Any) -> bool:
    return type(obj) is types.FunctionType and dist.is_available() and obj in _functions()


@special_builder(_communicates)
def build_collective(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, CollectiveValue(obj, source))
