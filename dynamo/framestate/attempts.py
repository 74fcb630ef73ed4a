"""The attempts to capture one frame, plan after plan (dynamo/plans.py)."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo import _hook, breaks
from dynamo.break_regions import set_regions
from dynamo.config import config
from dynamo.continuations.resume import origin
from dynamo.errors import InternalError, Unsupported
from dynamo.framestate.modes import restored_state
from dynamo.framestate.rewrite import FrameRewriter, Rewritten, rewrite
from dynamo.guards.data_symbols import MOST_DATA, MOST_IN_LOOPS
from dynamo.guards.lookups import recording
from dynamo.interp.data_dependent_loops import (
    asks_for_data,
    is_alone,
    is_data,
    is_of_data,
    loops_over_data,
    reads_numbers,
    trial_for,
)
from dynamo.interp.long_loops import before_long_loop
from dynamo.interp.output import OutputGraph
from dynamo.interp.root import RootInterpreter, Stop
from dynamo.plans import (
    MOST_ATTEMPTS,
    AttemptEnded,
    BreakBefore,
    Plan,
    Retry,
    SkipFrame,
)
from dynamo.records import BreakRecord
from dynamo.values.effects.lifetimes import uniquely_referenced
from dynamo.values.iterators.resumed_iterators import breaks_again

if TYPE_CHECKING:
    from dynamo.api.context import CompileContext
    from dynamo.records import FrameRecord

log_breaks = logging.getLogger("dynamo.breaks")
log_plans = logging.getLogger("dynamo.plans")


class Capture:
    """The attempts to capture one frame."""

    def __init__(self, frame: Any, context: CompileContext, record: FrameRecord) -> None:
        self.frame = frame
        self.context = context
        self.record = record
        self.unique = uniquely_referenced(frame.f_locals_array)
        self.outputs: list[OutputGraph] = []  # of all attempts
        self.raises = False  # the call that is captured ends in an exception
        self.only_now = False  # and no guard says which other calls do
        # Unrolled, a loop is captured for the place where it stands: only the first time.
        older = _hook.cache_entries(frame.f_code, context)
        self.seen = context.history.frame(frame.f_code, len(older))
        self.seen.module = context.module_among(frame.f_locals_array)
        data, numbers = self.seen.data
        self.first_plan = Plan(unrolls=not older, captures_data=data, numbers=numbers)
        self.seen.general = self.seen.general or len(older) >= max(context.limit - 1, 1)

    def release(self) -> None:
        """Drop the references to the program's objects. The attempts themselves are cyclic: the
        garbage collector would free the objects with them, later than the program expects.
        """
        for output in self.outputs:
            output.release()

    def run(self) -> Rewritten:
        """Attempt plan after plan until one succeeds."""
        plan = self.first_plan
        for number in range(1, MOST_ATTEMPTS + 1):
            log_plans.debug("%s attempt %d: %s", self.record.compile_id, number, plan.cause)
            try:
                return self._attempt(plan)
            except Retry as retry:
                assert isinstance(retry.plan, Plan), "emission ends its own retries"
                plan = self._without_vain_data(plan, retry.plan)
        raise InternalError(f"no end after {MOST_ATTEMPTS} attempts; the last: {plan}")

    def _without_vain_data(self, plan: Plan, following: Plan) -> Plan:
        """The plan that follows: without data where `plan` captures data, and a number that is data
        breaks the graph in a callee all the same.
        """
        stop, data = following.stop, self.outputs[-1].symbols.data
        if stop is None or stop is plan.stop or not is_data(stop.reason):
            return following
        if not plan.captures_data or plan.numbers or data.are_sizes():
            return following
        return plan.not_capturing_data(more=False)

    def _attempt(self, plan: Plan) -> Rewritten:
        """Follow one plan; raises Retry with the next one where this leads to no code."""
        output = self._output(plan)
        output.unique = self.unique
        root, stop = self._execute(output)
        if stop.instr is not None and breaks_again(output.unrolled, stop):
            raise Retry(plan.without_unrolling())
        self._check_small(output, self._may_be_of_many(stop))
        if self._decides_inputs(output, stop):
            raise Retry(plan.fixing_inputs())
        self._check_fullgraph(stop)
        if isinstance(stop.reason, breaks.DebuggerEntered):
            self._leave_to_debugger(plan, stop)
        self._capture_data(output, stop)
        self._capture_numbers(plan, stop, MOST_DATA)
        self._leave_loop(plan, stop)
        too_long = isinstance(stop.reason, breaks.LoopLimit) and not stop.loop
        if too_long and not output.op_count and origin(self.frame.f_code) is not None:
            # The frame continues behind such a break, and still no tensor operation is in sight.
            self._skip(stop)
        self._capture_numbers(plan, stop, MOST_IN_LOOPS)
        plan = output.plan = plan.after(root.step_log)
        try:
            self._break_later(plan, root, stop)
            rewritten = self._rewrite(root, stop)
        except Unsupported as error:
            if isinstance(error.reason, breaks.ReadsLocals):
                self._skip(replace(stop, reason=error.reason))
            if stop.loop:
                raise Retry(plan.capturing_loops()) from None
            self._break_earlier(root, stop, error)
        self._check_small(output)
        if stop.is_break:
            self._record_break(stop)
        notes = {k: v for output in self.outputs for k, v in output.conditionals.notes.items()}
        self.record.branches = [f"{place}: {note}" for place, note in notes.items()]
        self.seen.data = plan.captures_data, plan.numbers
        self.raises = stop.terminal
        # The assumptions of an instruction that raises are not guarded.
        self.only_now = stop.terminal and self._instr_decides(stop)
        return rewritten

    def _output(self, plan: Plan) -> OutputGraph:
        output = OutputGraph(self.context, self.frame.f_globals, self.seen, plan)
        self.outputs.append(output)
        return output

    def _execute(self, output: OutputGraph) -> tuple[RootInterpreter, Stop]:
        start = time.perf_counter()
        try:
            with restored_state(), recording(output.lookups):
                root = RootInterpreter(output, self.frame)
                return root, root.execute()
        finally:
            spent = time.perf_counter() - start
            self.record.times["capture"] = self.record.times.get("capture", 0.0) + spent

    def _capture_data(self, output: OutputGraph, stop: Stop) -> None:
        """Have data captured where the frame asks for sizes or numbers (asks_for_data), or reads
        numbers in a loop (reads_numbers), if then no loop breaks at data, and there are sizes, of
        more than one operation, or no break at data, and numbers that serve operations or no break.
        """
        plan = output.plan
        if plan.captures_data is None and asks_for_data(stop):
            raise Retry(plan.capturing_data())
        data = output.symbols.data
        whole = not stop.is_break or (data.are_used() and not is_of_data(stop))
        found = plan.numbers or data.are_sizes() or whole
        in_vain = loops_over_data(stop) or not found or is_alone(stop, output)
        if plan.captures_data and in_vain:
            raise Retry(plan.not_capturing_data(more=not data.has_room_for(1)))

    @staticmethod
    def _capture_numbers(plan: Plan, stop: Stop, count: int) -> None:
        """Have up to `count` numbers captured, if the frame breaks where a loop reads one, and more
        than were captured may be of use.
        """
        if not plan.captures_data and plan.numbers < count and reads_numbers(stop):
            raise Retry(plan.capturing_numbers(count))

    def _leave_loop(self, plan: Plan, stop: Stop) -> None:
        """Break before the loop around `stop`, if the loop should run natively."""
        if not plan.leaves_loops or plan.search.too_late is not None:
            return
        long = before_long_loop(stop)
        if long is not None:
            raise Retry(plan.breaking(long))
        trial = trial_for(stop)
        if trial is None:
            return
        output = self._output(replace(plan, stop=None, cause="a trial of a loop"))
        output.observe(trial)
        with contextlib.suppress(AttemptEnded, Retry, SkipFrame), restored_state():
            RootInterpreter(output, self.frame).execute()
        if trial.says_whole:
            reason = breaks.DataDependentLoop(trial.operations)
            found = BreakBefore(trial.entered, reason, stop.user_stack, loop=trial.loop)
            raise Retry(plan.breaking(found))

    @staticmethod
    def _instr_decides(stop: Stop) -> bool:
        return stop.instr is not None and stop.instr.op not in ("RAISE_VARARGS", "RERAISE")

    def _rewrite(self, root: RootInterpreter, stop: Stop) -> Rewritten:
        try:
            return rewrite(root, stop, self.record)
        except RecursionError:  # a value is nested too deeply to be made again
            raise Unsupported(breaks.InlineDepth(config.inline_depth_limit)) from None

    def _decides_inputs(self, output: OutputGraph, stop: Stop) -> bool:
        """Whether the graph breaks, and must not, where a number from an input may be needed."""
        needed = stop.is_break and isinstance(stop.reason, breaks.DataDependentValue)
        return (
            needed
            and self.context.fullgraph
            and output.reads_inputs
            and not output.plan.fixes_inputs
        )

    def _may_be_of_many(self, stop: Stop) -> bool:
        """Whether a stop may be due to sizes of many in place of 0 or 1."""
        fails = stop.is_break and isinstance(stop.reason, breaks.OpError)
        return stop.terminal or fails or (stop.is_break and self.context.fullgraph)

    def _check_small(self, output: OutputGraph, refused: bool = False) -> None:
        """Capture sizes of 0 and 1 for themselves where what was captured for many does not fit."""
        if output.symbols.small and (refused or not output.symbols.fits_small()):
            self.seen.asks_small = True
            del self.record.graphs[:]
            raise Retry(output.plan.anew("sizes of 0 or 1 decide what is captured"))

    def _check_fullgraph(self, stop: Stop) -> None:
        if stop.is_break and (self.context.fullgraph or stop.forbidden):
            self._record_break(stop)
            self.context.records.append(self.record)
            if origin(self.frame.f_code) is not None:
                set_regions(())  # the continuation that would leave them does not run
            raise Unsupported(FullGraphReason(stop))

    def _leave_to_debugger(self, plan: Plan, stop: Stop) -> NoReturn:
        """The frame that stops in a debugger runs as it is: this one, or a callee as a frame of its
        own.
        """
        if len(stop.chain) > 1:
            reason = breaks.UncapturedCall(stop.chain[-1].code.co_name)
            raise Retry(plan.breaking(BreakBefore(stop.chain[-2].began, reason)))
        self._skip(stop)

    def _skip(self, stop: Stop) -> NoReturn:
        """Skip the frame."""
        self._record_break(stop, graph_break=False)
        self.context.records.append(self.record)
        raise SkipFrame

    # -- where the values at a break cannot be made again ---------------------------------------
    def _break_earlier(self, root: RootInterpreter, stop: Stop, error: Unsupported) -> NoReturn:
        if self.context.fullgraph:
            stack = getattr(error, "user_stack", None) or root.user_stack()
            self._check_fullgraph(Stop(root.current, error.reason, stack))
        plan = root.output.plan
        search, here = plan.search, root.steps
        reason = stop.reason if stop.reason is not None else error.reason
        if len(stop.chain) > 1:
            # The callee runs natively, as a frame of its own.
            found = BreakBefore(stop.chain[-2].began, reason, stop.user_stack)
            raise Retry(plan.breaking(found)) from None
        step = max(here - search.stride, (search.fits + here) // 2)
        if step <= search.fits < here:
            step = search.fits
        if step < 0 or here == search.fits:
            self._skip(stop)
        search = replace(search, too_late=here, stride=2 * search.stride)
        found = BreakBefore(root.step_log[step], reason, stop.user_stack)
        raise Retry(plan.breaking(found, search)) from None

    def _break_later(self, plan: Plan, root: RootInterpreter, stop: Stop) -> None:
        """Having gone back, look for the latest place that fits; else Unsupported."""
        here, too_late = root.steps, plan.search.too_late
        if too_late is None or here == plan.search.fits:
            return
        FrameRewriter(root, stop, self.record).check()
        search = replace(plan.search, fits=here)
        root.output.plan = replace(plan, search=search)
        if too_late - here > 1:
            step = (too_late + here) // 2
            found = BreakBefore(search.step_log[step], stop.reason, stop.user_stack)
            raise Retry(plan.breaking(found, search))

    def _record_break(self, stop: Stop, graph_break: bool = True) -> None:
        reason = stop.reason
        if reason is None:
            return
        entry = BreakRecord(reason.code, str(reason), reason.hint, stop.user_stack, graph_break)
        if not isinstance(reason, breaks.NextTurn):
            self.record.breaks.append(entry)
        log_breaks.debug("%s: %s", self.record.compile_id, entry)


class FullGraphReason:
    """Why fullgraph=True or a region of error_on_graph_break(True) fails: the text with the user's
    hint.
    """

    def __init__(self, stop: Stop) -> None:
        reason = stop.reason
        self.what = "fullgraph=True" if not stop.forbidden else "error_on_graph_break(True)"
        self.record = BreakRecord(reason.code, str(reason), reason.hint, stop.user_stack)
        self.code = reason.code
        self.hint = reason.hint

    def __str__(self) -> str:
        return f"{self.what}, and the graph breaks: {self.record}"
