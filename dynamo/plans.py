"""Plans: the directives of one attempt to capture a frame, and of one emission of its new code.

A frame is captured in attempts (framestate/attempts.py). Each follows an immutable Plan, and either
succeeds, leaves the frame as it is (SkipFrame), or asks for another attempt: `raise Retry(plan)`
with the changed plan and the cause of the change. Emission of the rewritten frame does the same
with an EmissionPlan, within one attempt.

(Exceptions of the captured program travel as dynamo.values.objects.exceptions.RaisedException.)
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

MOST_ATTEMPTS = 2000  # at one frame: a net under capture, not a limit of programs


@dataclass(frozen=True)
class BreakBefore:
    """The graph breaks before instruction number `step`, counted over all interpreters.

    forbidden: inside of dynamo.error_on_graph_break(True). loop: begins there and runs natively as
    a whole. assumed: guards of the break, see dynamo.errors.Unsupported.
    """

    step: int
    reason: Any
    user_stack: Sequence[traceback.FrameSummary] = ()
    forbidden: bool = False
    loop: Any = None
    assumed: Sequence[tuple[Any, str, Any]] = ()


@dataclass(frozen=True)
class Search:
    """The search for the latest instruction before which a break can stand, where the values at the
    first break cannot be made again.

    fits: the last of the frame's own steps at which a break is known to fit. too_late: the first at
    which it does not; None: nothing is searched. stride: how far to go back next. step_log: the
    steps at which the frame's own instructions began, in the attempt that came furthest.
    """

    fits: int = -1
    too_late: int | None = None
    stride: int = 1
    step_log: Sequence[int] = field(default=(), repr=False)


@dataclass(frozen=True)
class Plan:
    """The directives of one attempt.

    stop: where the graph breaks; None: nowhere, as far as is known. unrolls: loops that broke in an
    earlier iteration may be captured to their end (values/iterators/resumed_iterators.py).
    leaves_loops: loops that read tensors may run natively (interp/data_dependent_loops.py).
    fixes_numbers: cached functions are asked with the numbers of this call
    (values/functions/caches.py). fixes_inputs: numbers in inputs are those of this call
    (values/tensors/captured_scalars.py). skipped_regions: the steps of jumps that break the graph
    (interp/empty_regions.py), and of loops (interp/loops_on_places.py). captures_data: numbers and
    sizes that are data are captured, whatever the options say; False: that was of no use. numbers:
    so many at most, also without any sizes (0: as loops may have). without_data: the plan that
    follows where capturing data is of no use. cause: of this attempt.
    """

    stop: BreakBefore | None = None
    search: Search = Search()
    unrolls: bool = True
    leaves_loops: bool = True
    fixes_numbers: bool = False
    fixes_inputs: bool = False
    skipped_regions: frozenset[int] = frozenset()
    captures_data: bool | None = None
    numbers: int = 0
    without_data: Plan | None = None
    cause: str = "the first attempt"

    def breaking(self, stop: BreakBefore, search: Search | None = None) -> Plan:
        """The same, with a break before an instruction."""
        cause = f"break before step {stop.step}: {stop.reason}"
        return replace(self, stop=stop, search=search or self.search, cause=cause)

    def without_unrolling(self) -> Plan:
        return replace(self.anew("an unrolled loop breaks in each turn"), unrolls=False)

    def capturing_loops(self) -> Plan:
        return replace(self.anew("a loop cannot run natively as a whole"), leaves_loops=False)

    def fixing_numbers(self) -> Plan:
        cause = "a cached function makes more than numbers of numbers that vary"
        return replace(self.anew(cause), fixes_numbers=True)

    def fixing_inputs(self) -> Plan:
        cause = "a number that a tensor of the frame's holds decides what the one graph is"
        return replace(self.anew(cause), fixes_inputs=True)

    def skipping(self, step: int) -> Plan:
        cause = f"what step {step} may skip leaves something behind"
        return replace(self.anew(cause), skipped_regions=self.skipped_regions | {step})

    def capturing_data(self) -> Plan:
        cause = "sizes or numbers that are data are asked for"
        return replace(self.anew(cause), captures_data=True, without_data=self)

    def capturing_numbers(self, count: int) -> Plan:
        cause = "a loop reads numbers that are data"
        return replace(self.anew(cause), captures_data=True, numbers=count, without_data=self)

    def not_capturing_data(self, more: bool) -> Plan:
        """more: it may be of use to capture more numbers than this plan does."""
        count = self.numbers if self.numbers and more else sys.maxsize
        cause = "data breaks the graph anyway"
        plan = self.without_data or self.anew(cause)
        return replace(plan, captures_data=False, numbers=count, without_data=None, cause=cause)

    def anew(self, cause: str) -> Plan:
        """A plan from the start, without the findings of earlier attempts, which no longer hold."""
        names = ["unrolls", "leaves_loops", "fixes_numbers", "fixes_inputs", "skipped_regions"]
        names += ["captures_data", "numbers", "without_data"]
        kept = {name: getattr(self, name) for name in names}
        return Plan(**kept, cause=cause)

    def after(self, step_log: Sequence[int]) -> Plan:
        """The plan once its attempt has executed these steps."""
        if len(step_log) <= len(self.search.step_log):
            return self
        return replace(self, search=replace(self.search, step_log=tuple(step_log)))


@dataclass(frozen=True)
class EmissionPlan:
    """The directives of one emission, by the ids of values.

    filled_later: containers that are made empty, and filled once all values are made. escaping:
    values that cannot stay virtual over the break (framestate/virtual_objects.py).
    """

    filled_later: frozenset[int] = frozenset()
    escaping: frozenset[int] = frozenset()

    def filling(self, value: int) -> EmissionPlan:
        return replace(self, filled_later=self.filled_later | {value})

    def materialising(self, values: Iterable[int]) -> EmissionPlan:
        return replace(self, escaping=self.escaping.union(values))


class Retry(Exception):
    """The attempt, or the emission, is given up: the next one follows `plan`."""

    def __init__(self, plan: Plan | EmissionPlan) -> None:
        super().__init__(plan)
        self.plan = plan


class AttemptEnded(BaseException):
    """The attempt ends before the next instruction of `interpreter`: there its plan breaks the
    graph, or a trial has seen enough (interp/data_dependent_loops.py).
    """

    def __init__(self, interpreter: Interpreter) -> None:
        super().__init__()
        self.interpreter = interpreter


class SkipFrame(Exception):
    """A control exception: nothing to gain in this frame, which runs as it is."""
