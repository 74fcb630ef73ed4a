"""dynamo.error_on_graph_break in captured code: the regions are entered and left while capturing,
and by the rewritten frame where it breaks inside of one, like torch's modes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamo.break_regions import enter_region, leave_region, regions
from dynamo.guards.sources import GlobalsSource
from dynamo.values.builtins.table import handles

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.base import Value


def _guard_regions(tx: Interpreter) -> None:
    """Guard the regions that are active at the frame's entry, which the rewritten frame changes."""
    if not tx.output.regions_guarded:
        tx.output.regions_guarded = True
        tx.output.guards.add(GlobalsSource(), "predicate", _Same(regions()))


class _Same:
    """Whether the thread is inside of these regions."""

    def __init__(self, flags: tuple[bool, ...]) -> None:
        self.flags = flags
        self.__name__ = f"error_on_graph_break regions are {flags}"

    def __call__(self, _: Any) -> bool:
        return regions() == self.flags


@handles(enter_region)
def _enter_region(tx: Interpreter, flag: Value) -> None:
    _guard_regions(tx)
    enter_region(flag.as_constant())


@handles(leave_region)
def _leave_region(tx: Interpreter) -> None:
    _guard_regions(tx)
    leave_region()
