"""convert_frame: one frame from the hook to its rewritten code.

The frame is interpreted from its start. Where capture cannot go on, the next attempt stops before
that instruction: the rewritten code runs the graph so far, performs the instruction natively, and
calls a continuation, which is a frame of its own for the hook.
"""

from __future__ import annotations

import builtins
import inspect
import itertools
import logging
import sys
import time
import traceback
import types
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import _hook, breaks, directives, stances
from dynamo.api.vain_frames import is_vain, note_time
from dynamo.break_regions import enter_region, leave_region, set_regions
from dynamo.bytecode import Instruction, normalize
from dynamo.bytecode.cache import CodeMap
from dynamo.bytecode.opcodes import NO_FALLTHROUGH, stack_effect
from dynamo.config import config
from dynamo.continuations.resume import origin
from dynamo.continuations.shim_frames import is_shim
from dynamo.errors import (
    BackendCompilerFailed,
    ConstraintViolation,
    InternalError,
    InvalidOption,
    RecompileLimitExceeded,
    Unsupported,
)
from dynamo.framestate.attempts import Capture, FullGraphReason
from dynamo.framestate.cache_entry import (
    LIBRARIES,
    finish,
    is_cut_by_early_stop,
    keep_original,
    never,
)
from dynamo.framestate.entry_handler import EntryHandler
from dynamo.framestate.modes import (
    inside_early_stop,
    inside_mode,
    inside_transform,
    preserved_state,
)
from dynamo.guards.history import SeenTensor
from dynamo.guards.kinds import GuardSet
from dynamo.guards.sources import GlobalsSource, LocalSource
from dynamo.interp.inlining import PACKED, RECURRENT, packed_argument
from dynamo.interp.interpreter import refused_code
from dynamo.interp.opcodes import (  # they fill HANDLERS
    calls,  # noqa: F401
    class_bodies,  # noqa: F401
    data,  # noqa: F401
    flow,  # noqa: F401
)
from dynamo.interp.patched_builtins import WHILE_REPLACED, something_is_replaced
from dynamo.interp.root import Stop
from dynamo.plans import SkipFrame
from dynamo.records import BreakRecord, FrameRecord
from dynamo.torch import (
    context_managers,  # noqa: F401  (fills INTRINSICS)
    settings_calls,  # noqa: F401  (fills TABLE)
)
from dynamo.values.functions.function import is_opaque_module
from dynamo.values.functions.intrinsics import INTRINSICS
from fxgraph.modes import undone_by_interrupts
from fxgraph.notices import notify

if TYPE_CHECKING:
    from dynamo.api.context import CompileContext

log_breaks = logging.getLogger("dynamo.breaks")
log_guards = logging.getLogger("dynamo.guards")
log_times = logging.getLogger("dynamo.times")
log_recompiles = logging.getLogger("dynamo.recompiles")

_frame_counter = itertools.count()
_frame_numbers: CodeMap[int] = CodeMap()
# Frames between a module and its forward: all modules share them, so they would be compiled for
# each; sizes alone.
_LEFT_ALONE_CODE = [
    torch.broadcast_shapes.__code__,
    torch.nn.Module._wrapped_call_impl.__code__,
    torch.nn.Module._call_impl.__code__,
    torch.autograd.Function.apply.__func__.__code__,  # type: ignore[attr-defined]
    *(f.__code__ for f in (enter_region, leave_region, set_regions)),
]
_LEFT_ALONE = frozenset(map(id, _LEFT_ALONE_CODE))  # a program's code may hold unhashable constants
# Captured where they are called, or not at all.
_RUN_WHOLE = (
    *("torch._higher_order_ops.", "torch.autograd.functional", "torch.utils.checkpoint"),
    # Parts of an operator that aten calls in Python, often with its dispatcher switched.
    *("torch._refs", "torch._prims", "torch._decomp", "torch._meta_registrations"),
    "torch.utils._python_dispatch",
    *("torch.distributed.tensor._", "torch.distributed.device_mesh"),
    *("torch.distributed.distributed_c10d", "torch.distributed.c10d_logger"),
)
_BUILTINS = vars(builtins)
# Builtins that see the caller's locals when they get fewer arguments than this.
_LOCALS_READERS = {"locals": 1, "eval": 2, "exec": 2, "vars": 1, "dir": 1}
# Calls that raise may say little about those that do not: so many of them count as one entry.
_RAISED_PER_ENTRY = 4
# With more entries of one code object, those who share it rather do not.
_SHARING = 4
# The exceptions that a compilation raises to the caller of the function.
_FOR_THE_USER = (Unsupported, BackendCompilerFailed, ConstraintViolation, InvalidOption)
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
        or INTRINSICS.get(code) is not None
        or directives.SKIPPED_CODE.get(code) is not None
        or directives.LEFT_TO_PYTHON.get(code) is not None
    ):
        return None
    if isinstance(module, str) and (_is_helper_module(module) or _makes_module(module, code)):
        return None  # inlined where it helps, but not compiled for its own sake
    if code.co_flags & _NOT_CAPTURED:
        return skip_generator(code, context)
    if module == RECURRENT and code.co_name != "forward":
        return None  # parts of a layer that runs as it is
    packed = packed_argument(frame.f_globals, code)
    if packed is not None and type(frame.f_locals_array[packed]) is PACKED:
        return _skip_packed(code, packed)
    if something_is_replaced():
        return _hook.GuardedCode(code, WHILE_REPLACED, True, None)
    context.forget()
    older = _hook.cache_entries(code, context)
    if inside_transform():
        return _skip_inside_transform(code)
    if inside_mode():
        return _skip_inside_mode(code)
    record = FrameRecord(
        f"{_frame_number(code)}/{len(older)}", code.co_name, code.co_filename, code.co_firstlineno
    )
    if older:
        record.recompile_reason = _recompile_reason(frame, older[0])
        log_recompiles.debug("%s %s: %s", record.compile_id, record.name, record.recompile_reason)
        if config.error_on_recompile and len(older) >= context.targets:
            raise RecompileLimitExceeded(
                f"{record.name} ({record.filename}:{record.lineno}) would be compiled again, and "
                f"dynamo.config.error_on_recompile is True. The reason: {record.recompile_reason}"
            )
    raised = sum(entry.compile_id in context.raised for entry in older)
    context.is_crowded = context.is_crowded or len(older) - raised > _SHARING
    if max(len(older) - raised, raised // _RAISED_PER_ENTRY) >= context.limit:
        _limit_reached(record, context, older)
        return None
    if is_vain(frame, context):
        return None
    if not older and stances.current().eager_first and origin(code) is None:
        return _run_once(frame, context)
    reason = None if context.fullgraph else _skip_reason(frame, context)
    if reason is not None:
        _record_skip(record, reason, context)
        return None
    return _captured(frame, context, record)


def _captured(frame: Any, context: CompileContext, record: FrameRecord) -> Any:
    """GuardedCode of the frame by capture; None for a frame that capture leaves to Python."""
    code = frame.f_code
    start, began = time.perf_counter(), time.process_time()
    capture = Capture(frame, context, record)
    with preserved_state():
        try:
            with undone_by_interrupts():
                rewritten = capture.run()
                if capture.raises:
                    context.raised.add(record.compile_id)
                if rewritten.code is code:
                    return keep_original(frame, context, rewritten, record, capture.only_now)
                if inside_early_stop() and is_cut_by_early_stop(rewritten.output, record):
                    return _skip_inside_early_stop(code, context)
                guarded = finish(frame, rewritten, record)
            capture.seen.compiled += 1
            _count_without_graph(code, context, record)
        except SkipFrame:
            return None
        except Exception as error:
            if not isinstance(error, (*_FOR_THE_USER, RecursionError)):
                _report_fault(record, context, error)
                return None
            if (left := _leaving_blocks(code, error)) is None:
                raise
            return left
        except BaseException as error:  # KeyboardInterrupt
            if (left := _leaving_blocks(code, error)) is None:
                raise
            return left
        finally:
            capture.release()
            note_time(context, record, time.process_time() - began)
    record.times["total"] = time.perf_counter() - start
    if log_times.isEnabledFor(logging.DEBUG):
        spent = ", ".join(f"{phase} {seconds:.4f} s" for phase, seconds in record.times.items())
        log_times.debug("%s %s: %s", record.compile_id, record.name, spent)
    context.records.append(record)
    return guarded


def _leaving_blocks(code: types.CodeType, error: BaseException) -> Any:
    """GuardedCode, for this call alone, that raises the exception inside of the blocks in which a
    continuation begins; None: there are none.
    """
    handler = EntryHandler.of(code)
    if handler is None:
        return None
    return _hook.GuardedCode(handler.raising(error), None)


def skip_generator(code: types.CodeType, context: CompileContext) -> None:
    """A generator's or coroutine's frame that uncaptured code enters again and again."""
    if not code.co_filename.startswith(LIBRARIES) and origin(code) is None:
        _skip(breaks.GeneratorFrame(code.co_name), code, context)


def skip_at_recursion_limit(code: types.CodeType, context: CompileContext) -> None:
    """Skip a function whose capture came to the recursion limit, where the program's own call may
    still fit: older entries serve, else the function runs eagerly. The hook calls this with a few
    calls to spare.
    """
    _skip(breaks.RecursionLimit(code.co_name), code, context)


def _skip(reason: breaks.Break, code: types.CodeType, context: CompileContext) -> None:
    """Record, for explain(), the reason why a frame runs as it is; with fullgraph=True, raise."""
    record = FrameRecord(
        f"{_frame_number(code)}/0", code.co_name, code.co_filename, code.co_firstlineno
    )
    stack = _record_skip(record, reason, context)
    if context.fullgraph:
        raise Unsupported(FullGraphReason(Stop(reason=reason, user_stack=stack)))


def _record_skip(
    record: FrameRecord, reason: breaks.Break, context: CompileContext
) -> list[traceback.FrameSummary]:
    """Add the record of a skipped frame; the result is the place that explain() names."""
    stack = [traceback.FrameSummary(record.filename, record.lineno, record.name)]
    record.breaks.append(BreakRecord(reason.code, str(reason), reason.hint, stack, False))
    context.records.append(record)
    return stack


convert_frame.at_limit = skip_at_recursion_limit  # type: ignore[attr-defined]


def _skip_packed(code: types.CodeType, index: int) -> Any:
    guards = GuardSet()
    guards.add(LocalSource(code.co_varnames[index], index), "type", PACKED)
    return _hook.GuardedCode(code, guards.build(), True, None)


def _skip_inside_transform(code: types.CodeType) -> Any:
    """Guarded skip inside of a transform, where tensors carry levels that no graph knows. Outside
    of transforms, the frame may be captured.
    """
    guards = GuardSet()
    guards.add(None, "globals")
    return _hook.GuardedCode(code, guards.build(), True, None)


def _skip_inside_mode(code: types.CodeType) -> Any:
    """A mode sees every call of torch, those of capture, too: under any of them, the frame runs
    as it is, with all that it calls. The mode's own handlers would be compiled for each operator.
    """
    guards = GuardSet()
    guards.add(GlobalsSource(), "predicate", inside_mode)
    return _hook.GuardedCode(code, guards.build(), False, None)


def _skip_inside_early_stop(code: types.CodeType, context: CompileContext) -> Any:
    """The frame runs as it is, in both runs of the checkpoint; what it calls may be captured."""
    _skip(breaks.StopsEarly(code.co_name), code, context)
    guards = GuardSet()
    guards.add(GlobalsSource(), "predicate", inside_early_stop)
    return _hook.GuardedCode(code, guards.build(), True, None)


def _run_once(frame: Any, context: CompileContext) -> Any:
    """Run this call as eager code, to learn which sizes vary until the next call, which is
    compiled.
    """
    code = frame.f_code
    seen = context.history.frame(code, 0)
    for index, (name, value) in enumerate(zip(code.co_varnames, frame.f_locals_array)):
        source = LocalSource(name, index, name in code.co_cellvars)
        if isinstance(value, torch.Tensor):
            seen.tensors[source.name] = SeenTensor.of(value)
        elif type(value) in (int, float):
            seen.numbers[source.name] = value
    guards = GuardSet()
    guards.add(GlobalsSource(), "predicate", never)
    return _hook.GuardedCode(code, guards.build(), True, None)


def _skip_reason(frame: Any, context: CompileContext) -> breaks.Break | None:
    """The reason to skip the frame; None: capture it."""
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
    """The number of arguments with which the object loaded at program[load] is called; 0 if
    unknown.
    """
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
    """Whether a module belongs to the standard library, initialises parameters, finds operators,
    or is one of ours that rewritten frames call.
    """
    if (
        name.startswith(("dynamo.polyfills.", "dynamo.values.", "dynamo.torch."))
        or name in _MAKING_TENSORS
        or name == "torch._ops"
    ):
        return True
    return name.partition(".")[0] in sys.stdlib_module_names and not config.rewrite_all_frames


def _makes_module(module: str, code: types.CodeType) -> bool:
    """Whether a constructor of torch makes parameters, which no graph can make."""
    return module.startswith("torch.nn.modules.") and code.co_name in _CONSTRUCTORS


def _report_fault(record: FrameRecord, context: CompileContext, error: Exception) -> None:
    """Run the frame eagerly after a fault of ours, and tell the user once."""
    message = (
        f"a fault while compiling {record.name} ({record.filename}:{record.lineno}). "
        "Please report it with this text."
    )
    if context.fullgraph:
        raise InternalError(message) from error
    trace = "".join(traceback.format_exception(error))
    warnings.warn(f"{message} The function runs eagerly.\n{trace}", RuntimeWarning, stacklevel=3)


def _frame_number(code: types.CodeType) -> int:
    return _frame_numbers.computed(code, lambda: next(_frame_counter))


def _recompile_reason(frame: Any, entry: Any) -> str:
    """The guard of the newest older entry that failed, with the values."""
    failures = entry.guard_tree.explain_failure(
        frame.f_locals_array, frame.f_globals, frame.f_builtins, frame.closure
    )
    return "; ".join(failures) or "the guards hold, but the entry is no longer valid"


def _limit_reached(record: FrameRecord, context: CompileContext, older: Sequence[Any]) -> None:
    """The function runs eagerly where no entry serves; worth a word if one has a graph."""
    ids = {entry.compile_id for entry in older}
    if ids <= context.raised:
        _record_skip(record, breaks.RaisingCalls(record.name, len(older)), context)
    compiled = any(known.graphs for known in context.records if known.compile_id in ids)
    message = (
        f"{record.name} ({record.filename}:{record.lineno}) was compiled "
        f"{context.limit} times (dynamo.config.recompile_limit); "
        f"other calls run eagerly. The last reason to compile again: {record.recompile_reason}"
    )
    if context.fullgraph or config.fail_on_recompile_limit_hit:
        raise RecompileLimitExceeded(message)
    if compiled:
        notify(message, stacklevel=3)
