"""list.sort and sorted: Python's own sort, over values that are compared symbolically."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynamo.values.base import Value, is_none
from dynamo.values.builtins.program_code import call_natively
from dynamo.values.scalars.operators import as_index, compare_op

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def sort_in_place(
    tx: Interpreter, items: list[Value], key: Value | None, reverse: Value | None
) -> None:
    """items.sort(key=key, reverse=reverse), comparing through the items' own `<`. A comparison that
    raises leaves the items in the order that Python leaves them in.
    """
    if key is None or is_none(key):
        keys = list(items)
    else:
        keys = [call_natively(tx, key, [item]) for item in items]
    sort_by_keys(tx, items, keys, reverse)


def sort_by_keys(
    tx: Interpreter, items: list[Value], keys: Sequence[Value], reverse: Value | None
) -> None:
    """The same, where the items' keys are known."""

    class Ordered:
        def __init__(self, index: int) -> None:
            self.index = index

        def __lt__(self, other: Ordered) -> bool:
            return compare_op(tx, "<", keys[self.index], keys[other.index]).truth(tx)

    backwards = reverse is not None and bool(as_index(tx, reverse))
    before, order = list(items), [Ordered(i) for i in range(len(items))]
    try:
        order.sort(reverse=backwards)
    finally:
        items[:] = [before[o.index] for o in order]
