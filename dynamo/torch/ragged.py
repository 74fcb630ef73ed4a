"""Sequences whose lengths are symbols, mostly data: functions that torch runs by the values of
lengths are captured as Python of ours (polyfills/ragged.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo.polyfills import ragged
from dynamo.values.base import Value
from dynamo.values.builtins.table import polyfill
from dynamo.values.containers.containers import SequenceValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from dynamo.values.tensors.tensor_functions import function_and_method
from fxgraph.size_forms import same
from fxgraph.symbolic_values import depends_on_data, is_symbolic

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_BATCH = "_packed_batch"  # of the fake tensor with the batch sizes: how many sequences there are


def fold_pad_sequence(function: Any) -> Callable[..., Value]:
    """torch.nn.utils.rnn.pad_sequence, which asks which sequence is the longest."""

    def fold(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if args and _vary(args[0]):
            return polyfill(tx, ragged.pad_sequence, *args, **kwargs)
        return call_in_graph(tx, "call_function", function, args, kwargs)

    return fold


def _vary(sequences: Value) -> bool:
    """Whether these are tensors alike but for their lengths, and lengths are symbols."""
    items = sequences.wrapped() if isinstance(sequences, SequenceValue) else ()
    fakes = [item.fake for item in items if isinstance(item, TensorValue) and item.fake.dim()]
    if not fakes or len(fakes) != len(items):
        return False
    alike = all(
        fake.dtype == fakes[0].dtype and same(fake.shape[1:], fakes[0].shape[1:]) for fake in fakes
    )
    return alike and any(is_symbolic(fake.shape[0]) for fake in fakes)


@function_and_method("tensor_split")
def fold_tensor_split(
    tx: Interpreter, op: str, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """torch.tensor_split, whose places, or number of pieces, may be in a tensor."""
    places = args[1] if len(args) > 1 else None
    if isinstance(places, TensorValue) and tx.output.symbols.data.reads_captured():
        fake = places.fake
        plain = fake.dtype is torch.int64 and fake.device.type == "cpu"
        if plain and fake.dim() == 1 and not kwargs.keys() - {"dim"}:
            return polyfill(tx, ragged.tensor_split, *args, **kwargs)
        if plain and not fake.dim():
            args = [args[0], places.call_method(tx, "item", [], {}), *args[2:]]
    return call_in_graph(tx, op, target, args, kwargs)


def fold_pack(function: Any) -> Callable[..., Value]:
    """torch._pack_padded_sequence. (torch's rule for it gives wrong sizes.)"""

    def fold(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if not tx.output.symbols.data.sizes_captured() or len(args) != 3 or kwargs:
            return call_in_graph(tx, "call_function", function, args, kwargs)
        x, lengths, batch_first = args
        if not isinstance(lengths, TensorValue) or not _fits(x, lengths, batch_first):
            return call_in_graph(tx, "call_function", function, args, kwargs)
        packed = polyfill(tx, ragged.pack_padded_sequence, x, lengths, batch_first)
        batch_sizes: Any = packed.unpack(tx)[1]
        batch = lengths.fake.shape[0]
        setattr(batch_sizes.fake, _BATCH, batch)
        if type(batch) is int:
            tx.output.known_tensors.hold_first(batch_sizes.fake, batch)
        return packed

    return fold


def fold_sized(function: Any) -> Callable[..., Value]:
    """torch.zeros and its like, of sizes that may be tensors: if their numbers are known, the graph
    has the numbers. (Read from a tensor, each is a size of its own.)
    """

    def fold(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        sizes = [_with_known_number(tx, arg) for arg in args]
        return call_in_graph(tx, "call_function", function, sizes, kwargs)

    return fold


def _with_known_number(tx: Interpreter, size: Value) -> Value:
    if not isinstance(size, TensorValue) or size.fake.dtype is not torch.int64 or size.fake.dim():
        return size
    real = tx.output.known_tensors.real_of(size.fake)
    return size if real is None else ConstantValue(int(real))


def _fits(x: Value, lengths: TensorValue, batch_first: Value) -> bool:
    if not isinstance(x, TensorValue) or x.fake.dim() < 2 or not batch_first.is_constant():
        return False
    fake = lengths.fake
    batch = x.fake.shape[0 if batch_first.as_constant() else 1]
    plain = fake.dim() == 1 and fake.dtype is torch.int64 and fake.device.type == "cpu"
    return plain and same(fake.shape, [batch]) and not depends_on_data(batch)


def fold_unpack(function: Any) -> Callable[..., Value]:
    """torch._pad_packed_sequence of a sequence that was packed in the graph."""

    def fold(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        batch_sizes = args[1] if len(args) == 5 and not kwargs else None
        fake = batch_sizes.fake if isinstance(batch_sizes, TensorValue) else None
        batch = getattr(fake, _BATCH, None)
        if batch is None:
            return call_in_graph(tx, "call_function", function, args, kwargs)
        return polyfill(tx, ragged.pad_packed_sequence, *args, tx.wrap(batch))

    return fold
