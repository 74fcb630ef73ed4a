"""The order of an OrderedDict, which the dict that it is, too, does not tell."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.containers.dicts import DictValue


def order_of(real: collections.OrderedDict) -> list[int]:
    """Where its keys stand in the dict that an OrderedDict is, too; of one that methods of dict
    itself have changed, nothing that is true.
    """
    places = {id(key): place for place, key in enumerate(dict.keys(real))}
    try:
        return [places.get(id(key), -1) for key in collections.OrderedDict.__iter__(real)]
    except KeyError:
        return [-1]


def guarded_order(
    tx: Interpreter, value: DictValue, real: collections.OrderedDict
) -> Sequence[int]:
    """`order_of` an OrderedDict from outside, which `value` stands for."""
    expected = order_of(real)
    if sorted(expected) != list(range(len(real))):
        raise Unsupported(breaks.CannotReconstruct(f"{value.describe()} (its order)"))

    def same_order(value: Any) -> bool:
        return order_of(value) == expected

    same_order.__name__ = "has its keys in the same order"
    tx.guard(value.source, "predicate", same_order)
    return expected
