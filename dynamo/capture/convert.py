"""convert_frame: one frame from the hook to its rewritten code.

The frame is interpreted from its start. Where capture cannot go on, the analysis starts again and
stops before that
instruction; the rewritten code then runs the graph so far, performs the instruction natively, and
calls a
continuation function, which is a frame of its own for the hook.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import inspect
import itertools
import logging
import sys
import sysconfig
import time
import traceback
import types
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import DeviceContext

from dynamo import _hook, breaks, directives
from dynamo.break_regions import enter_region, leave_region, set_regions
from dynamo.bytecode import Instruction, normalize
from dynamo.bytecode.cache import CodeMap, when_gone
from dynamo.bytecode.opcodes import NO_FALLTHROUGH, stack_effect
from dynamo.capture import class_body, handlers_calls, handlers_data, handlers_flow  # noqa: F401
from dynamo.capture.control import RestartAnalysis, SkipFrame, SpellOut, StartAgain, TrialOver
from dynamo.capture.data_dependent_loops import trial_for
from dynamo.capture.draws import preserved_draws
from dynamo.capture.inlining import PACKED, RECURRENT, packed_argument
from dynamo.capture.interpreter import refused_code
from dynamo.capture.lifetimes import uniquely_referenced
from dynamo.capture.lookups import recording
from dynamo.capture.output import OutputGraph
from dynamo.capture.overwrite_guards import guard_overwrites
from dynamo.capture.relied_on import WHILE_REPLACED, something_is_replaced
from dynamo.capture.rewrite import FrameRewriter, Rewritten, rewrite
from dynamo.capture.root import (
    RootInterpreter,
    Stop,
    autocast_nesting,
    change_autocast_nesting,
    read_modes,
)
from dynamo.capture.shim_frames import is_shim
from dynamo.config import config
from dynamo.errors import (
    BackendCompilerFailed,
    ConstraintViolation,
    InternalError,
    RecompileLimitExceeded,
    Unsupported,
)
from dynamo.guards import GuardSet
from dynamo.records import BreakRecord, FrameRecord
from dynamo.resume import origin
from dynamo.sources import GlobalsSource, LocalSource
from dynamo.values.function import is_opaque_module
from dynamo.values.inference import leave_all
from dynamo.values.managers import METHODS
from dynamo.values.resumed_iterators import breaks_again

if TYPE_CHECKING:
    from dynamo.context import CompileContext

log_breaks = logging.getLogger("dynamo.breaks")
log_guards = logging.getLogger("dynamo.guards")

log_times = logging.getLogger("dynamo.times")
log_recompiles = logging.getLogger("dynamo.recompiles")

_fake_log = logging.getLogger("torch._subclasses.fake_tensor")
_frame_counter = itertools.count()
_frame_numbers: CodeMap[int] = CodeMap()
# Frames between a module and its forward: all modules share them, so they would be compiled for
# each.
_LEFT_ALONE_CODE = [
    torch.nn.Module._wrapped_call_impl.__code__,
    torch.nn.Module._call_impl.__code__,
    torch.autograd.Function.apply.__func__.__code__,  # type: ignore[attr-defined]
    *(f.__code__ for f in (enter_region, leave_region, set_regions)),
]
_LEFT_ALONE = frozenset(map(id, _LEFT_ALONE_CODE))  # a program's code may hold what has no hash
# Captured where they are called, or not at all.
_RUN_WHOLE = ("torch._higher_order_ops.", "torch.autograd.functional", "torch.utils.checkpoint")
_LIBRARIES = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
_BUILTINS = vars(builtins)
# Builtins that see the caller's locals when they get fewer arguments than this.
_LOCALS_READERS = {"locals": 1, "eval": 2, "exec": 2, "vars": 1, "dir": 1}
# Calls that raise may say little about those that do not: so many of them count as one entry.
_RAISED_PER_ENTRY = 4
# The flag that redispatch_function sets, since torch 2.13.
_skips_overrides: Any = getattr(torch._C, "_peek_should_skip_torch_function", lambda: False)
_ENDS_TRIAL = (TrialOver, RestartAnalysis, SkipFrame, SpellOut, StartAgain)
_NOT_CAPTURED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def convert_frame(frame: Any, context: CompileContext) -> Any:
    """GuardedCode for the frame, or None: it runs as it is from now on.

    Raises Unsupported if context.fullgraph and the graph breaks, BackendCompilerFailed if the
    backend fails.
    """
    code = frame.f_code
    module = frame.f_globals.get("__name__")
    if is_opaque_module(module) or str(module).startswith(_RUN_WHOLE):
        return _hook.SKIP_RECURSIVELY
    if (
        is_shim(code)
        or not code.co_flags & inspect.CO_OPTIMIZED  # of a module, or a class body
        or id(code) in _LEFT_ALONE
        or METHODS.get(code) is not None
        or directives.SKIPPED_CODE.get(code) is not None
    ):
        return None
    if isinstance(module, str) and (_is_helper_module(module) or _makes_module(module, code)):
        return None  # inlined where it helps, but not compiled for its own sake
    if code.co_flags & _NOT_CAPTURED:
        return leave_generator(code, context)
    if module == RECURRENT and code.co_name != "forward":
        return None  # parts of a layer that runs as it is
    packed = packed_argument(frame.f_globals, code)
    if packed is not None and type(frame.f_locals_array[packed]) is PACKED:
        return _keep_for_packed(code, packed)
    if something_is_replaced():
        return _hook.GuardedCode(code, WHILE_REPLACED, True, None)
    older = _hook.cache_entries(code, context)
    if _inside_transform():
        return _keep_inside_transform(code)
    if inside_mode():
        return _keep_inside_mode(code)
    record = FrameRecord(
        f"{_frame_number(code)}/{len(older)}", code.co_name, code.co_filename, code.co_firstlineno
    )
    if older:
        record.recompile_reason = _recompile_reason(frame, older[0])
        log_recompiles.debug("%s %s: %s", record.compile_id, record.name, record.recompile_reason)
    raised = sum(entry.compile_id in context.raised for entry in older)
    if max(len(older) - raised, raised // _RAISED_PER_ENTRY) >= config.recompile_limit:
        _limit_reached(record, context, older)
        return None
    left = None if context.fullgraph else _left_as_it_is(frame, context)
    if left is not None:
        stack = [traceback.FrameSummary(code.co_filename, code.co_firstlineno, code.co_name)]
        record.breaks.append(BreakRecord(left.code, str(left), left.hint, stack, False))
        context.records.append(record)
        return None
    start = time.perf_counter()
    capture = Capture(frame, context, record)
    with preserved_state():
        try:
            rewritten = capture.run()
            if capture.raises:
                context.raised.add(record.compile_id)
            if rewritten.code is code:
                return _keep_original(frame, context, rewritten, record, capture.only_now)
            guarded = finish(frame, rewritten, record)
            _count_without_graph(code, context, record)
        except SkipFrame:
            return None
        except (Unsupported, BackendCompilerFailed, ConstraintViolation, RecursionError):
            raise
        except Exception as error:
            _report_fault(record, context, error)
            return None
        finally:
            capture.release()
    record.times["total"] = time.perf_counter() - start
    if log_times.isEnabledFor(logging.DEBUG):
        spent = ", ".join(f"{phase} {seconds:.4f} s" for phase, seconds in record.times.items())
        log_times.debug("%s %s: %s", record.compile_id, record.name, spent)
    context.records.append(record)
    return guarded


def leave_generator(code: types.CodeType, context: CompileContext) -> None:
    """A generator's or coroutine's frame that uncaptured code enters again and again."""
    if not code.co_filename.startswith(_LIBRARIES) and origin(code) is None:
        _leave(breaks.GeneratorFrame(code.co_name), code, context)


def leave_at_limit(code: types.CodeType, context: CompileContext) -> None:
    """Capture came to the recursion limit, where the program's own call may still fit: the function
    runs as it is, where no older entry serves. The hook calls this with a few calls to spare.
    """
    _leave(breaks.RecursionLimit(code.co_name), code, context)


def _leave(reason: breaks.Break, code: types.CodeType, context: CompileContext) -> None:
    """Have explain() say why a frame runs as it is; with fullgraph=True, that is an error."""
    stack = [traceback.FrameSummary(code.co_filename, code.co_firstlineno, code.co_name)]
    record = FrameRecord(
        f"{_frame_number(code)}/0", code.co_name, code.co_filename, code.co_firstlineno
    )
    record.breaks.append(BreakRecord(reason.code, str(reason), reason.hint, stack, False))
    context.records.append(record)
    if context.fullgraph:
        raise Unsupported(FullGraphReason(Stop(reason=reason, user_stack=stack)))


convert_frame.at_limit = leave_at_limit  # type: ignore[attr-defined]


def _inside_transform() -> bool:
    """A transform of torch.func, or forward-mode autograd, is at work around the frame."""
    transforms = torch._C._functorch.peek_interpreter_stack() is not None
    return transforms or torch.autograd.forward_ad._current_level >= 0


def _keep_for_packed(code: types.CodeType, index: int) -> Any:
    guards = GuardSet()
    guards.add(LocalSource(code.co_varnames[index], index), "type", PACKED)
    return _hook.GuardedCode(code, guards.build(), True, None)


def _keep_inside_transform(code: types.CodeType) -> Any:
    """There, tensors are more than what a graph is told of: the frame runs as it is. Elsewhere it
    may be captured.
    """
    guards = GuardSet()
    guards.add(None, "globals")
    return _hook.GuardedCode(code, guards.build(), True, None)


def _keep_inside_mode(code: types.CodeType) -> Any:
    """A mode sees every call of torch, those of capture, too: under any of them, the frame runs
    as it is.
    """
    guards = GuardSet()
    guards.add(GlobalsSource(), "predicate", inside_mode)
    return _hook.GuardedCode(code, guards.build(), True, None)


def inside_mode(_: Any = None) -> bool:
    """A torch function or dispatch mode is active, other than that of `with torch.device(...)`; or
    the next call of torch that asks an override is not to ask it, which no other call may use up.
    """
    if torch._C._len_torch_dispatch_stack() or _skips_overrides():
        return True
    count = torch._C._len_torch_function_stack()
    modes = (torch._C._get_function_stack_at(i) for i in range(count))
    return any(type(mode) is not DeviceContext for mode in modes)


def asks_overrides(_: Any = None) -> bool:
    """The next call of torch asks the overrides of its arguments: redispatch_function has it skip
    them.
    """
    return not _skips_overrides()


def _left_as_it_is(frame: Any, context: CompileContext) -> breaks.Break | None:
    """Why the frame is not captured at all, if it is not."""
    code = frame.f_code
    refused = refused_code(code)
    if refused is not None:
        return refused
    if _reads_locals(frame):
        return breaks.ReadsLocals(code.co_name)
    if origin(code) is not None:
        without_graph = context.without_graph.get(_function_of(code)) or 0
        if without_graph >= config.no_graph_limit:
            return breaks.NoGraphs(code.co_name, without_graph)
    return None


def _function_of(code: types.CodeType) -> types.CodeType:
    """The code of the function that a continuation continues, or `code` itself."""
    made_by = origin(code)
    return code if made_by is None or made_by.code is None else made_by.code


def _count_without_graph(
    code: types.CodeType, context: CompileContext, record: FrameRecord
) -> None:
    function = _function_of(code)
    before = context.without_graph.get(function) or 0
    context.without_graph.set(function, 0 if record.graphs else before + 1)


def _reads_locals(frame: Any) -> bool:
    """The code names a builtin that sees the frame's locals; a rewritten frame has others."""
    named = _LOCALS_READERS.keys() & set(frame.f_code.co_names)
    names = frozenset(n for n in named if frame.f_globals.get(n, _BUILTINS[n]) is _BUILTINS[n])
    if not names:
        return False
    program = normalize(frame.f_code)
    loads = [i for i in program if i.op == "LOAD_GLOBAL" and i.argval in names]
    return any(_argument_count(program, i.index) < _LOCALS_READERS[i.argval] for i in loads)


def _argument_count(program: list[Instruction], load: int) -> int:
    """With how many arguments what program[load] loads is called; 0 where that is not plain."""
    depth = 1  # of the stack from the callable upwards
    for instr in program[load + 1 :]:
        if instr.op == "CALL" and depth <= instr.arg + 2:
            return instr.arg
        if instr.target is not None or instr.op in NO_FALLTHROUGH:
            return 0
        popped, pushed = stack_effect(instr.op, instr.arg)
        depth += pushed - popped
        if depth < 1:
            return 0
    return 0


# Where torch makes single tensors: their functions are called once for each.
_CONSTRUCTORS = frozenset(["__init__", "reset_parameters", "initialize_parameters"])
_MAKING_TENSORS = frozenset(["torch.nn.parameter", "torch.nn.init", "torch._utils"])


def _is_helper_module(name: str) -> bool:
    """The standard library, what makes parameters, and what rewritten frames call of ours."""
    if name.startswith(("dynamo.polyfills.", "dynamo.values.")) or name in _MAKING_TENSORS:
        return True
    return name.partition(".")[0] in sys.stdlib_module_names and not config.rewrite_all_frames


def _makes_module(module: str, code: types.CodeType) -> bool:
    """Parameters, which no graph can make, are most of what torch's constructors do."""
    return module.startswith("torch.nn.modules.") and code.co_name in _CONSTRUCTORS


def _report_fault(record: FrameRecord, context: CompileContext, error: Exception) -> None:
    """A fault of ours: the frame runs eagerly, and the user hears of it once."""
    message = (
        f"a fault while compiling {record.name} ({record.filename}:{record.lineno}). "
        "Please report it with this text."
    )
    if context.fullgraph:
        raise InternalError(message) from error
    trace = "".join(traceback.format_exception(error))
    warnings.warn(f"{message} The function runs eagerly.\n{trace}", RuntimeWarning, stacklevel=3)


def _frame_number(code: types.CodeType) -> int:
    known = _frame_numbers.get(code)
    return known if known is not None else _frame_numbers.set(code, next(_frame_counter))


def _recompile_reason(frame: Any, entry: Any) -> str:
    """Which guard of the newest older entry failed, with the values."""
    failures = entry.guard_tree.explain_failure(
        frame.f_locals_array, frame.f_globals, frame.f_builtins, frame.closure
    )
    return "; ".join(failures) or "the guards hold, but the entry is no longer valid"


def _limit_reached(record: FrameRecord, context: CompileContext, older: Sequence[Any]) -> None:
    """The function runs eagerly where no entry serves; worth a word if one has a graph."""
    ids = {entry.compile_id for entry in older}
    if ids <= context.raised:
        reason = breaks.RaisingCalls(record.name, len(older))
        stack = [traceback.FrameSummary(record.filename, record.lineno, record.name)]
        record.breaks.append(BreakRecord(reason.code, str(reason), reason.hint, stack, False))
        context.records.append(record)
    compiled = any(known.graphs for known in context.records if known.compile_id in ids)
    message = (
        f"{record.name} ({record.filename}:{record.lineno}) was compiled "
        f"{config.recompile_limit} times (dynamo.config.recompile_limit); "
        f"other calls run eagerly. The last reason to compile again: {record.recompile_reason}"
    )
    if context.fullgraph:
        raise RecompileLimitExceeded(message)
    if compiled:
        warnings.warn(message, stacklevel=3)


def _keep_original(
    frame: Any, context: CompileContext, rewritten: Rewritten, record: FrameRecord, only_now: bool
) -> Any:
    """A frame without tensor operations runs as it is for arguments like these; others may lead to
    some. `only_now`: what sets these apart is not known.

    Library frames below the compiled function are left alone for good: most of them are helpers.
    """
    if context.records and frame.f_code.co_filename.startswith(_LIBRARIES):
        return None
    _guard_symbols(rewritten.output, record)
    if rewritten.output.installed:  # guards lead through it
        rewritten.output.publish()
    if only_now:
        rewritten.output.guards.add(GlobalsSource(), "predicate", _never)
    _guard_lookups(rewritten.output)
    tree = rewritten.output.guards.build()
    return _hook.GuardedCode(frame.f_code, tree, True, record.compile_id)


def finish(frame: Any, rewritten: Rewritten, record: FrameRecord) -> Any:
    """Build the guard tree, publish what the new code loads by name, and make the cache entry."""
    start = time.perf_counter()
    output = rewritten.output
    output.guards.add(None, "globals")
    output.guards.add(GlobalsSource(), "address", id(frame.f_globals))
    if output.has_overrides:
        output.guards.add(GlobalsSource(), "predicate", asks_overrides)
    published = output.publish() if output.installed else None
    sources = output.not_aliased_sources()
    if len(sources) > 1:
        output.guards.add(None, "not_aliased", tuple(sources))
    statics = output.static_ids()
    for source in sources if statics else ():
        output.guards.add(source, "not_among", statics)
    guard_overwrites(output)
    for group in (*output.side_effects.distinct_sources(), *output.distinct_groups()):
        output.guards.add(None, "not_aliased", group)
    _guard_symbols(output, record)
    _guard_marks(output)
    _guard_lookups(output)
    tree = output.guards.build()
    record.guards = list(tree.describe())
    record.times["guards"] = time.perf_counter() - start
    if log_guards.isEnabledFor(logging.DEBUG):
        log_guards.debug("%s %s\n%s", record.compile_id, record.name, "\n".join(record.guards))
    if published is not None:
        names = list(output.installed)
        when_gone(rewritten.code, functools.partial(_unpublish, published, names))
    return _hook.GuardedCode(rewritten.code, tree, rewritten.needs_hook, record.compile_id)


def _guard_lookups(output: OutputGraph) -> None:
    """What names of torch, the standard library and builtins led to."""
    names = output.lookups.payload()
    if names:
        output.guards.add(None, "lookups", names)


def _guard_marks(output: OutputGraph) -> None:
    """Tensors that come later may be marked otherwise (mark_dynamic, mark_static)."""
    for item in output.inputs:
        if not item.static and isinstance(item.example, torch.Tensor):
            answered = output.symbols.answered_marks(item.example, item.source)
            if answered is not None:
                output.guards.add(item.source, "marks", answered)


def _never(_: Any) -> bool:
    return False


def _guard_symbols(output: OutputGraph, record: FrameRecord) -> None:
    """What was assumed of the sizes and numbers that vary."""
    if not output.symbols.active:
        return
    output.symbols.check_marks()
    output.guards.add(None, "shapes", output.symbols.guard_payload())
    record.symbols = list(dict.fromkeys(output.symbols.reasons))
    for text in record.symbols:
        log_recompiles.debug("%s %s: %s", record.compile_id, record.name, text)


def _unpublish(published: dict[str, Any], names: list[str]) -> None:
    """The new code is gone: so is what only it loads."""
    for name in names:
        published.pop(name, None)


class Capture:
    """The attempts to capture one frame."""

    def __init__(self, frame: Any, context: CompileContext, record: FrameRecord) -> None:
        self.frame = frame
        self.context = context
        self.record = record
        self.unique = uniquely_referenced(frame.f_locals_array)
        self.outputs: list[OutputGraph] = []  # of all attempts
        self.restart: RestartAnalysis | None = None
        self.backoff = 1
        self.raises = False  # the call that is captured ends in an exception
        self.only_now = False  # and no guard says which other calls do
        # While backing off: the last step at which a break is known to fit, and the first at
        # which it does not.
        self.fits = -1
        self.too_late: int | None = None
        self.polyfilled: frozenset[int] = frozenset()  # see OutputGraph
        self.step_log: list[int] = []  # of the attempt that came furthest
        # Unrolled, a loop is captured for the place where it stands: only the first time.
        older = _hook.cache_entries(frame.f_code, context)
        self.unrolls = not older
        self.leaves_loops = True  # see capture/data_dependent_loops.py
        self.seen = context.history.frame(frame.f_code, fresh=not older)
        self.seen.general = self.seen.general or len(older) >= max(config.recompile_limit - 1, 1)

    def release(self) -> None:
        """Let go of the program's objects: what is left of an attempt is freed by the garbage
        collector, later than the program wants to see them go.
        """
        for output in self.outputs:
            output.release()
        if self.restart is not None:
            self.restart.__traceback__ = self.restart.__context__ = None

    def run(self) -> Rewritten:
        """Attempt until one succeeds."""
        while True:
            output = OutputGraph(self.context, self.frame.f_globals, self.seen)
            output.unrolls, output.unique = self.unrolls, self.unique
            output.polyfilled = self.polyfilled
            self.outputs.append(output)
            start = time.perf_counter()
            try:
                with restored_state(), recording(output.lookups):
                    root = RootInterpreter(output, self.frame, self.restart)
                    stop = root.execute()
            except RestartAnalysis as restart:
                self.restart = restart
                continue
            except StartAgain:
                self._start_over()
                continue
            except SpellOut as spell:
                polyfilled = self.polyfilled | {spell.step}
                self._start_over()
                self.polyfilled = polyfilled
                continue
            finally:
                spent = time.perf_counter() - start
                self.record.times["capture"] = self.record.times.get("capture", 0.0) + spent
            if stop.instr is not None and breaks_again(output.unrolled, stop):
                # From the start, and without unrolling.
                self.unrolls = False
                self._start_over()
                continue
            self._check_fullgraph(stop)
            if isinstance(stop.reason, breaks.DebuggerEntered):
                self._leave_to_debugger(stop)
                continue
            too_long = isinstance(stop.reason, breaks.LoopLimit) and not output.op_count
            if too_long and origin(self.frame.f_code) is not None:
                # It goes on behind such a break, and still no tensor operation is in sight.
                self._record_break(stop, graph_break=False)
                self.context.records.append(self.record)
                raise SkipFrame
            if self._leaves_loop(stop):
                continue
            if len(root.step_log) > len(self.step_log):
                self.step_log = root.step_log
            try:
                if self._could_break_later(root, stop):
                    continue
                rewritten = self._rewrite(root, stop)
            except RestartAnalysis as restart:  # see values/deferred_scalar.py
                self.restart = restart
                continue
            except Unsupported as error:
                if stop.loop:
                    self.leaves_loops = False
                    self._start_over()
                else:
                    self._back_off(root, stop, error)
                continue
            if stop.is_break:
                self._record_break(stop)
            self.raises = stop.terminal
            # What an instruction assumed that raises is not guarded.
            self.only_now = stop.terminal and self._instr_decides(stop)
            return rewritten

    def _start_over(self) -> None:
        """From the start, in another way: what earlier attempts found does not hold any more."""
        self.restart, self.too_late, self.step_log = None, None, []
        self.polyfilled = frozenset()
        self.fits, self.backoff = -1, 1

    def _leaves_loop(self, stop: Stop) -> bool:
        """Break before the loop that reads at `stop`, if it is better left as it is."""
        trial = trial_for(stop) if self.leaves_loops and self.too_late is None else None
        if trial is None:
            return False
        output = OutputGraph(self.context, self.frame.f_globals, self.seen)
        output.unrolls, output.polyfilled = self.unrolls, self.polyfilled
        output.observe(trial)
        self.outputs.append(output)
        with contextlib.suppress(*_ENDS_TRIAL), restored_state():
            RootInterpreter(output, self.frame).execute()
        if not trial.says_whole:
            return False
        reason = breaks.DataDependentLoop(trial.operations)
        self.restart = RestartAnalysis(trial.entered, reason, stop.user_stack, loop=trial.loop)
        return True

    @staticmethod
    def _instr_decides(stop: Stop) -> bool:
        return stop.instr is not None and stop.instr.op not in ("RAISE_VARARGS", "RERAISE")

    def _rewrite(self, root: RootInterpreter, stop: Stop) -> Rewritten:
        try:
            return rewrite(root, stop, self.record)
        except RecursionError:  # a value is nested too deeply to be made again
            raise Unsupported(breaks.InlineDepth(config.inline_depth_limit)) from None

    def _check_fullgraph(self, stop: Stop) -> None:
        if stop.is_break and (self.context.fullgraph or stop.forbidden):
            self._record_break(stop)
            self.context.records.append(self.record)
            if origin(self.frame.f_code) is not None:
                set_regions(())  # the continuation that would leave them does not run
            raise Unsupported(FullGraphReason(stop))

    def _leave_to_debugger(self, stop: Stop) -> None:
        """The frame that stops in a debugger runs as it is: this one, or a callee as a frame of its
        own.
        """
        if len(stop.chain) > 1:
            self.restart = RestartAnalysis(
                stop.chain[-2].began, breaks.UncapturedCall(stop.chain[-1].code.co_name), []
            )
            return
        self._record_break(stop, graph_break=False)
        self.context.records.append(self.record)
        raise SkipFrame

    def _back_off(self, root: RootInterpreter, stop: Stop, error: Unsupported) -> None:
        """Something that lives at the break cannot be made again: break earlier."""
        if self.context.fullgraph:
            stack = getattr(error, "user_stack", None) or root.user_stack()
            self._check_fullgraph(Stop(root.current, error.reason, stack))
        reason = stop.reason if stop.reason is not None else error.reason
        if len(stop.chain) > 1:
            # The callee runs natively, as a frame of its own.
            self.restart = RestartAnalysis(stop.chain[-2].began, reason, stop.user_stack)
            return
        here = root.steps
        self.too_late = here
        step = max(here - self.backoff, (self.fits + here) // 2)
        if step <= self.fits < here:
            step = self.fits
        if step < 0 or here == self.fits:
            self._record_break(stop, graph_break=False)
            self.context.records.append(self.record)
            raise SkipFrame
        self.backoff *= 2
        self.restart = RestartAnalysis(root.step_log[step], reason, stop.user_stack)

    def _could_break_later(self, root: RootInterpreter, stop: Stop) -> bool:
        """Having backed off, look for the latest place that fits; else Unsupported."""
        here = root.steps
        if self.too_late is None or here == self.fits:
            return False
        FrameRewriter(root, stop, self.record).check()
        self.fits = here
        if self.too_late - here <= 1:
            return False
        step = (self.too_late + here) // 2
        self.restart = RestartAnalysis(self.step_log[step], stop.reason, stop.user_stack)
        return True

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


# -- torch's state --------------------------------------------------------------------------------
@contextlib.contextmanager
def restored_state() -> Iterator[None]:
    """Undo what captured code does to torch's modes while it is captured."""
    modes, nesting = read_modes(), autocast_nesting()
    try:
        yield
    finally:
        leave_all()
        change_autocast_nesting(nesting - autocast_nesting())
        for setter, *args in modes:
            setter(*args)


@contextlib.contextmanager
def preserved_state() -> Iterator[None]:
    """Compilation leaves no trace in torch's random numbers, and errors on fake tensors none in the
    log. The garbage collector waits: a full collection in a process with torch in it takes longer
    than capturing a frame.
    """
    disabled, _fake_log.disabled = _fake_log.disabled, True
    # The user's hooks for saved tensors, and a checkpoint's, are for what runs.
    deferred = torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    collecting = gc.isenabled()
    gc.disable()
    try:
        with preserved_draws():
            yield
    finally:
        if collecting:
            gc.enable()
        _fake_log.disabled = disabled
        torch._C._autograd._saved_tensors_hooks_set_tracing(deferred)
