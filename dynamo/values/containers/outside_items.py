"""Items of a sequence from outside, and its length, which may be a symbol.

A list of losses grows with every call. Where the frame appends to one, or asks for its length,
nothing is made of its items; once two lengths were seen, len() is a symbol, as an int attribute
that varies is.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import CallSource, Source
from dynamo.values.base import Value
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import compare_op
from dynamo.values.scalars.symbol import number_value

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.containers.containers import SequenceValue
    from dynamo.values.objects.builtin_object import Pending


MOST_ITEMS = 50_000  # about a second of the processor


def refuse_many(tx: Interpreter, count: int) -> None:
    """Break where so many items from outside would become Values, each with its guard."""
    if count > MOST_ITEMS and not tx.output.context.fullgraph:
        raise Unsupported(breaks.ManyItems(count))


def refuse_long(tx: Interpreter, *sequences: SequenceValue) -> None:
    """Break where very many items of these may be compared, one by one."""
    for one in sequences:
        refuse_many(tx, 0 if one.behind is None else one.behind.length)


class OutsideItems:
    """The items of a sequence from outside of which the frame has not asked for all: nothing is
    made of the others.
    """

    def __init__(self, tx: Interpreter, real: Sequence[Any], base: Any) -> None:
        self.tx = tx
        self.real = real
        self.length: int = base.__len__(real)
        # Of a deque; a list's class may have another `maxlen`.
        self.most = collections.deque.maxlen.__get__(real) if base is collections.deque else None
        self.used: dict[int, Value] = {}
        self.appended: list[Value | Pending] = []  # by the frame

    def length_value(self, source: Source | None) -> Value | None:
        """The length with what the frame appended, as a symbol; None: it did not vary."""
        return varying_length(self.tx, self.real, source, len(self.appended), self.most)

    def surely_has(self, index: int, source: Source | None) -> bool:
        """Whether there is an item at the index, which is not asked of a length that varies."""
        if self.appended and self.most is not None:
            return False  # items may have gone
        if index < 0:
            return -index <= len(self.appended)
        if index >= self.length:
            return False
        length = varying_length(self.tx, self.real, source)
        if length is None:
            return False
        return compare_op(self.tx, ">", length, ConstantValue(index)).truth(self.tx)

    def last(self, index: int) -> Value | None:
        """The item at a negative index, if the frame appended the item."""
        if index >= 0 or -index > len(self.appended):
            return None
        value = self.appended[index]
        if not isinstance(value, Value):
            value = self.appended[index] = value.wrap()
        return value


def varying_length(
    tx: Interpreter, real: Any, source: Source | None, more: int = 0, most: int | None = None
) -> Value | None:
    """The length of an object from outside, and of `more` items that the frame added, of which at
    most `most` stay, as a symbol; None: no other length was seen.
    """
    if source is None or not any(type(real).__len__ is cls.__len__ for cls in _SIZED):
        return None
    number = tx.output.symbols.number(len(real), CallSource(source, len, "len"))
    if number is None:
        return None
    number = number + more
    return number_value(tx, number if most is None else torch.sym_min(number, most))


_SIZED = (list, dict, collections.OrderedDict, collections.deque)
