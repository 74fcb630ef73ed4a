"""Views of arrays with negative steps, which torch does not have: image[:, ::-1], np.flip(image);
those of np.broadcast_to, which cannot be written; and arrays from outside, of which those that
refuse writes are treated alike.

The graph computes with a copy of the items as they are; an array that leaves the frame is made by
numpy itself, as a view of its base. Operations that tell the copy from the view break the graph:
writes through it, and uses after the base has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import CallSource, Source
from dynamo.torch.numpy_values import ArrayValue, compute, refuse, view_of_array, view_of_read_only
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.builtins.table import TABLE
from dynamo.values.containers.containers import SequenceValue, TupleValue
from dynamo.values.containers.ranges import SliceValue
from dynamo.values.recipes import Loaded, Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.memory_overlap import version_of
from dynamo.values.tensors.tensor import TensorValue, wrap_tensor

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class ReversedArray(ArrayValue):
    """make(base, *operands), a view; `tensor` has a copy of its items."""

    is_reversed = True

    def __init__(
        self, tensor: TensorValue, base: ArrayValue, make: Callable[..., Any], *operands: Value
    ) -> None:
        self.base = base
        self.memory: TensorValue = base.memory if isinstance(base, ReversedArray) else base.tensor
        self.version = version_of(self.memory.fake)
        self.make = make
        self.operands = operands
        super().__init__(tensor)

    @property
    def tensor(self) -> TensorValue:  # type: ignore[override]
        if version_of(self.memory.fake) != self.version:
            raise refuse("a reversed view of an array that has changed")
        return self._copy

    @tensor.setter
    def tensor(self, tensor: TensorValue) -> None:
        self._copy = tensor

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name in ("strides", "real", "imag"):
            raise refuse(f"ndarray.{name} of a reversed view")
        return super().getattr(tx, name)

    def children(self) -> Sequence[Value]:
        return (self.base, *self.operands)

    def recipe(self) -> Recipe:
        return self.make, self.children()


class ReadOnlyArray(ReversedArray):
    """An array from outside that refuses writes, as its views do; `tensor` has its memory."""

    def __init__(self, tensor: TensorValue, source: Source) -> None:
        self.memory = tensor
        self.version = version_of(tensor.fake)
        ArrayValue.__init__(self, tensor, source)

    def children(self) -> Sequence[Value]:
        return ()

    def recipe(self) -> Recipe:
        assert self.source is not None
        return Loaded(self.source), []


class BroadcastArray(ReversedArray):
    """np.broadcast_to(base, shape), of a base in row-major order, which reshape may copy.

    All else is left to numpy: layouts of results tell a step of zero from another.
    """

    @property
    def tensor(self) -> TensorValue:  # type: ignore[override]
        raise refuse("a use of what numpy.broadcast_to gives")

    @tensor.setter
    def tensor(self, tensor: TensorValue) -> None:
        self._copy = tensor

    def describe(self) -> str:
        return f"array of shape {tuple(self._copy.fake.shape)}"

    def copied_as(self, sizes: tuple[int, ...]) -> TensorValue:
        """The items for a reshape that gives a new array, not a view."""
        sample = np.broadcast_to(np.zeros(self.base.shape, np.int8), self._copy.fake.shape)
        try:
            copied = not np.may_share_memory(sample.reshape(sizes), sample)
        except ValueError:
            copied = False
        if not copied or not sample.size:
            raise refuse("reshape of what numpy.broadcast_to gives")
        return super().tensor


@builder(np.ndarray)
def build_array(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """An array of a dtype that torch has: its memory is an input of the graph."""
    view_of_memory = view_of_array if obj.flags.writeable else view_of_read_only
    view = view_of_memory(obj)
    if view is None:
        raise Unsupported(breaks.UnknownObject("ndarray"))
    if source is None:
        source = tx.output.install("array", obj)
    tx.guard(source, "type", np.ndarray)
    where = CallSource(source, view_of_memory, view_of_memory.__name__)
    tensor = wrap_tensor(tx, view, where, False)
    assert isinstance(tensor, TensorValue)
    kind = ArrayValue if obj.flags.writeable else ReadOnlyArray
    value = kind(tensor, source)
    value.real = obj
    return tx.output.remember(obj, source, value)


def view_of(
    array: ArrayValue, tensor: Value, make: Callable[..., Any], *operands: Value
) -> ArrayValue:
    """make(array, *operands), a view with these items."""
    assert isinstance(tensor, TensorValue)
    if isinstance(array, ReversedArray):
        return ReversedArray(tensor, array, make, *operands)
    return ArrayValue(tensor)


def refuse_reversed(array: Value, what: str) -> None:
    if isinstance(array, ArrayValue) and array.is_reversed:
        raise refuse(f"{what} of a reversed view")


def with_positive_steps(
    tx: Interpreter, array: ArrayValue, key: Value
) -> tuple[Value, tuple[int, ...]] | None:
    """(key with positive steps, dimensions of the result to flip); None: no step is negative."""
    of_tuple = isinstance(key, SequenceValue) and issubclass(key.python_type(), tuple)
    parts = list(key.wrapped()) if of_tuple else [key]  # type: ignore[attr-defined]
    if not any(map(_has_negative_step, parts)):
        return None
    found: list[Value] = []
    flipped: list[int] = []
    given = 0  # dimensions of the result
    used = sum(not _is(part, None) and not _is(part, ...) for part in parts)
    dim = 0
    for part in parts:
        if _is(part, ...):
            given += len(array.shape) - used
            dim += len(array.shape) - used
        elif _is(part, None):
            given += 1
        elif isinstance(part, SliceValue):
            if _has_negative_step(part):
                part = _positive(tx, part, array.shape[dim])
                flipped.append(given)
            given += 1
            dim += 1
        elif part.is_constant() and type(part.as_constant()) is int:
            dim += 1
        else:
            raise refuse("an index array beside a negative step")
        found.append(part)
    return TupleValue(found), tuple(flipped)


def _is(part: Value, constant: Any) -> bool:
    return part.is_constant() and part.as_constant() is constant


def _has_negative_step(part: Value) -> bool:
    if not isinstance(part, SliceValue) or not part.parts[2].is_constant():
        return False
    step = part.parts[2].as_constant()
    return type(step) is int and step < 0


def _positive(tx: Interpreter, part: SliceValue, size: int | torch.SymInt) -> Value:
    """The same items in the other order."""
    start, stop, step = part.parts
    if _is(start, None) and _is(stop, None) and step.as_constant() == -1:
        return SliceValue(start, stop, ConstantValue(None))
    places = range(int(size))[part.as_slice(tx)][::-1]
    first, end, gap = (places[0], places[-1] + 1, places.step) if places else (0, 0, 1)
    return SliceValue(ConstantValue(first), ConstantValue(end), ConstantValue(gap))


def flipped(tx: Interpreter, tensor: Value, dims: tuple[int, ...]) -> Value:
    operands = [tensor, ConstantValue(dims)]
    return compute(tx, "call_function", torch.flip, operands, {})


# -- np.broadcast_to -------------------------------------------------------------------------------
def _broadcast_to(tx: Interpreter, array: Value, shape: Value) -> Value:
    if not isinstance(array, ArrayValue) or array.is_reversed or array.scalar:
        raise refuse("numpy.broadcast_to of what is not an array")
    given = shape.as_constant()
    sizes = (given,) if type(given) is int else given
    if type(sizes) is not tuple or not all(type(n) is int for n in (*array.shape, *sizes)):
        raise refuse("numpy.broadcast_to with a shape that varies")
    try:
        fits = np.broadcast_shapes(array.shape, sizes) == sizes
    except (RuntimeError, ValueError):
        fits = False
    if not fits or not array.tensor.fake.is_contiguous():
        raise refuse("numpy.broadcast_to this shape")
    found = compute(tx, "call_method", "expand", [array.tensor, ConstantValue(sizes)], {})
    kept: dict[str, Value] = {"memory_format": ConstantValue(torch.contiguous_format)}
    found = compute(tx, "call_method", "clone", [found], kept)
    assert isinstance(found, TensorValue)
    return BroadcastArray(found, array, np.broadcast_to, ConstantValue(sizes))


TABLE[np.broadcast_to] = _broadcast_to


# -- np.flip --------------------------------------------------------------------------------------
def _flip(tx: Interpreter, array: Value, axis: Value | None = None) -> Value:
    if not isinstance(array, ArrayValue):
        raise refuse("numpy.flip of what is not an array")
    rank = len(array.shape)
    given = None if axis is None else axis.as_constant()
    axes = tuple(range(rank)) if given is None else given if type(given) is tuple else (given,)
    if not all(type(d) is int and -rank <= d < rank for d in axes):
        raise refuse("numpy.flip of these dimensions")
    steps = [-1 if d in axes or d - rank in axes else 1 for d in range(rank)]
    nothing = ConstantValue(None)
    parts = [SliceValue(nothing, nothing, ConstantValue(step)) for step in steps]
    return array.getitem(tx, TupleValue(parts))


TABLE[np.flip] = _flip
TABLE[np.flipud] = lambda tx, array: _flip(tx, array, ConstantValue(0))
TABLE[np.fliplr] = lambda tx, array: _flip(tx, array, ConstantValue(1))
