"""The interpreter of the compiled frame itself: where capture stops, and why."""

from __future__ import annotations

import traceback
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch

from dynamo import _hook, breaks
from dynamo.break_regions import regions, set_regions
from dynamo.continuations.resume import origin
from dynamo.errors import ConstraintViolation, Unsupported
from dynamo.guards.sources import ClosureCellSource, LocalSource
from dynamo.interp.argument_names import renamed
from dynamo.interp.interpreter import Interpreter, breakable_chain
from dynamo.plans import AttemptEnded, BreakBefore, Retry, SkipFrame
from dynamo.torch.autocast import autocast_nesting
from dynamo.torch.devices import (
    entered_devices,
    global_device,
    set_devices,
    set_global_device,
)
from dynamo.torch.torch_state import settings, settle_attention
from dynamo.values.builder import Lazy, load
from dynamo.values.effects.lifetimes import track_arguments
from dynamo.values.functions.cell import CellValue, build_cell
from dynamo.values.objects.exceptions import RaisedException
from fxgraph import modes
from fxgraph.symbols import DataDependent

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.output import OutputGraph

# Instructions that change nothing before an operation that may break: they can be broken at in
# place.
_BREAK_IN_PLACE = frozenset(
    [
        "POP_JUMP_IF_TRUE",
        "POP_JUMP_IF_FALSE",
        "JUMP_IF_TRUE_OR_POP",
        "JUMP_IF_FALSE_OR_POP",
        "TO_BOOL",
        "CALL",
        "CALL_KW",
        "CALL_FUNCTION_EX",
        "FOR_ITER",
        "LOAD_ATTR",
        "LOAD_GLOBAL",
        "STORE_ATTR",
        "BINARY_SUBSCR",
        "RAISE_VARARGS",
    ]
)


@dataclass
class Stop:
    """Where capture of the frame stopped.

    instr None: it returned. `terminal`: the instruction raised an exception that left the frame.
    It is not counted as a graph break, but goes on like one: its assumptions are not guarded.
    `chain`: the frames from the root to the one whose instruction it is.
    """

    instr: Instruction | None = None
    reason: Any = None
    user_stack: list[traceback.FrameSummary] = field(default_factory=list)
    terminal: bool = False
    chain: list[Interpreter] = field(default_factory=list)
    forbidden: bool = False  # inside of dynamo.error_on_graph_break(True)
    loop: Any = None  # instr begins this loop, which runs natively as a whole

    @property
    def is_break(self) -> bool:
        return self.instr is not None and not self.terminal


class RootInterpreter(Interpreter):
    """Interprets the frame until it returns or has to break."""

    def __init__(self, output: OutputGraph, frame: Any) -> None:
        load()
        super().__init__(output, frame.f_code, frame.f_globals)
        output.root_frame = self
        output.running = self
        self.frame = frame
        self.state_changes: list[
            tuple
        ] = []  # (setter, *args) that leave torch as captured code did
        self.step_log: list[int] = []  # the steps at which the root's own instructions began
        self.modes = read_modes()  # at the frame's entry
        self.nesting = autocast_nesting()
        self.arguments: dict[str, Lazy] = {}
        self._bind_locals(frame)
        self._bind_closure(frame)

    def _bind_locals(self, frame: Any) -> None:
        """Arguments are looked at when they are used."""
        code = frame.f_code
        null = frame_null()
        cells = frozenset(code.co_cellvars)
        for index, name in enumerate(code.co_varnames):
            if index >= len(frame.f_locals_array):
                break
            obj = frame.f_locals_array[index]
            if obj is not null:
                source = LocalSource(name, index, name in cells, renamed(frame, name))
                self.locals[name] = self.arguments[name] = Lazy(obj, source)
        self.output.continues = origin(code) is not None
        track_arguments(self.output, self.arguments.values())

    def _bind_closure(self, frame: Any) -> None:
        for index, (name, cell) in enumerate(zip(frame.f_code.co_freevars, frame.closure or ())):
            source = ClosureCellSource(name, index)
            self.cells[name] = cast(CellValue, build_cell(self, cell, source))

    @property
    def steps(self) -> int:
        """How many of its own instructions were executed to the end."""
        return len(self.step_log) - (not self.done)

    def execute(self) -> Stop:
        """Run to the end, or to the instruction before which the frame breaks."""
        stop = self._execute()
        before, after = self.modes, read_modes()
        self.state_changes = [setter for setter in after if setter not in before]
        entered = autocast_nesting() - self.nesting
        if entered:
            self.state_changes.append((change_autocast_nesting, entered))
        return stop

    def _execute(self) -> Stop:
        try:
            while not self.done:
                stop = self._step()
                if stop is not None:
                    return stop
        except AttemptEnded as ended:
            planned = self.output.plan.stop
            if planned is None:
                raise  # of a trial
            return self._planned_stop(planned, ended.interpreter)
        return Stop()

    def _planned_stop(self, planned: BreakBefore, tx: Interpreter) -> Stop:
        chain = breakable_chain(tx)
        if chain[-1] is not tx:
            self._break_before(replace(planned, step=chain[-1].began, loop=None))
        for source, kind, payload in planned.assumed:
            tx.guard(source, kind, payload)
        terminal = isinstance(planned.reason, breaks.UncaughtException)
        user_stack = list(planned.user_stack) or tx.user_stack()
        return Stop(
            tx.current, planned.reason, user_stack, terminal, chain, planned.forbidden, planned.loop
        )

    def _break_before(self, stop: BreakBefore) -> NoReturn:
        raise Retry(self.output.plan.breaking(stop)) from None

    def _break_at_read(self, reason: breaks.Break) -> None:
        """Break before the graph's first number from data rather than at the decision that uses it,
        if nothing is computed before: the next graph then has all operations.
        """
        output = self.output
        broken, data = output.symbols.data.first_read, isinstance(reason, breaks.DataDependentValue)
        if broken is not None and data and not output.context.fullgraph and output.trial is None:
            self._break_before(broken)

    def _step(self) -> Stop | None:
        output = self.output
        stack, epoch, assumed = self.stack[:], output.epoch, len(output.guards)
        self.began = step = output.steps
        self.step_log.append(step)
        guarded: list[tuple[Any, str, Any]] = []
        try:
            if step >= output.next_event:
                self.arrive()
            output.steps += 1
            self.step()
            return None
        except Unsupported as error:
            self.annotate(error)
            reason, user_stack, terminal = error.reason, error.user_stack or [], False
            guarded = error.assumed
            self._break_at_read(reason)
            if error.forbidden:
                return Stop(self.current, reason, user_stack, chain=[self], forbidden=True)
            if error.step is not None and error.step > step:
                self._break_before(BreakBefore(error.step, reason, user_stack, assumed=guarded))
        except (Retry, SkipFrame, ConstraintViolation):
            raise
        except RaisedException as error:
            # The program's own exception: the instruction runs natively and raises the real one.
            error.value.frames = error.value.frames[1:]
            reason = breaks.UncaughtException(error.value.describe())
            user_stack, terminal = self.user_stack(), True
        except RecursionError:
            reason, user_stack, terminal = (
                breaks.RecursionLimit(self.code.co_name),
                self.user_stack(),
                False,
            )
            output.side_effects.touch()
        except DataDependent as error:
            # A size that is data decides what capture does.
            reason, user_stack, terminal = (
                breaks.DataDependentValue(str(error)),
                self.user_stack(),
                False,
            )
            output.side_effects.touch()
        except Exception as error:
            # A fault of ours must not be the user's: the instruction runs natively.
            reason, user_stack, terminal = (
                breaks.InternalFault(repr(error)),
                self.user_stack(),
                False,
            )
            _report_fault(error, user_stack)
            output.side_effects.touch()
        # The assumptions of an instruction that runs natively must not be guarded.
        unchanged = output.epoch == epoch and len(output.guards) == assumed
        if unchanged and self.current.op in _BREAK_IN_PLACE:
            self.stack = stack
            self.index = self.current.index
            self.done = False
            return Stop(self.current, reason, user_stack, terminal, [self])
        self._break_before(BreakBefore(step, reason, user_stack, assumed=guarded))


def read_modes() -> list[tuple]:
    """torch's modes that captured code may change, each as (setter, arguments that set it)."""
    settle_attention()
    found: list[tuple] = [(torch._C._set_grad_enabled, torch.is_grad_enabled())]
    for device in ("cpu", "cuda"):
        found.append((torch.set_autocast_enabled, device, torch.is_autocast_enabled(device)))
        found.append((torch.set_autocast_dtype, device, torch.get_autocast_dtype(device)))
    found.append((set_regions, regions()))
    found.append((torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled()))
    found.append((set_global_device, global_device()))
    found.append((set_devices, *entered_devices()))
    found.append((torch._C._set_default_dtype, torch.get_default_dtype()))  # type: ignore[attr-defined]
    found += [(setter, read()) for setter, read in settings()]
    return found


modes.READERS.append(read_modes)


def change_autocast_nesting(entered: int) -> None:
    """As the calls of so many `__enter__`, or (negative) `__exit__`, of autocast do."""
    for _ in range(entered):
        torch.autocast_increment_nesting()
    for _ in range(-entered):
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()


def _report_fault(error: Exception, user_stack: list[traceback.FrameSummary]) -> None:
    where = traceback.format_list(user_stack[-1:])[0].strip()
    ours = "".join(traceback.format_exception(error))
    warnings.warn(
        f"a fault in capture; the graph breaks here instead. Please report it.\n{where}\n{ours}",
        RuntimeWarning,
        stacklevel=2,
    )


def frame_null() -> Any:
    """The hook's marker of an unbound local."""
    return _hook.NULL
