"""The symbolic interpreter: executes canonical instructions of one frame over Values.

An Interpreter is a frame: code, stack, locals, cells, exception state. The root interpreter belongs
to the frame that is being compiled; calls to Python functions run in child interpreters
(interp/inlining.py), which share the root's OutputGraph. State is explicit, so a generator is an
Interpreter that is resumed.

Its interface for Values (`tx` in their methods):
  tx.wrap(obj, source)                 real object -> Value (builder)
  tx.guard(source, kind, payload)      assume something about an outside value
  tx.call_function(fn, args, kwargs)   fn(*args, **kwargs) for Values
  tx.inline(fn, args, kwargs)          the same for a FunctionValue, always by interpreting its code
  tx.raise_exception(value)            raise a symbolic exception in the captured code
  tx.output                            OutputGraph: create_node, side_effects, install, ...
"""

from __future__ import annotations

import itertools
import linecache
import re
import sys
import traceback
import types
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from dynamo import breaks
from dynamo.break_regions import break_is_error
from dynamo.bytecode import Instruction, normalize
from dynamo.bytecode.cache import CodeMap
from dynamo.errors import Unsupported
from dynamo.guards.lookups import is_trusted
from dynamo.guards.sources import (
    AttrSource,
    DictItemSource,
    GlobalSource,
    GlobalsSource,
    ModuleSource,
    Source,
)
from dynamo.interp import inlining
from dynamo.interp.registry import HANDLERS, Handler, unhandled
from dynamo.plans import AttemptEnded
from dynamo.polyfills import frame_kind
from dynamo.values.base import Value
from dynamo.values.builder import Lazy, build
from dynamo.values.builtins.table import BuiltinMethod
from dynamo.values.containers.containers import TupleValue
from dynamo.values.effects.lifetimes import finalize_unreachable, left_by
from dynamo.values.iterators.polyfill_fast_paths import FAST_PATHS, FastPath
from dynamo.values.objects.exceptions import Entry, RaisedException
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.literals import from_constant
from dynamo.values.stack_items import RESULT

if TYPE_CHECKING:
    from dynamo.interp.long_loops import LoopEntry
    from dynamo.interp.output import OutputGraph
    from dynamo.values.functions.cell import CellValue
    from dynamo.values.functions.function import FunctionValue

# How many frames deep a break stands at most.
CHAIN_LIMIT = 32
# Instructions that act on their own frame: no other can execute them in its place.
_BOUND_TO_FRAME = frozenset(
    ["LOAD_FAST", "LOAD_FAST_AND_CLEAR", "STORE_FAST", "DELETE_FAST", "LOAD_DEREF", "STORE_DEREF"]
    + ["DELETE_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "MAKE_CELL", "COPY_FREE_VARS", "NOP"]
    + ["RETURN_VALUE", "JUMP", "PUSH_EXC_INFO", "POP_EXCEPT", "RESUME", "PUSH_NULL", "LOAD_CONST"]
    + ["RETURN_GENERATOR", "YIELD_VALUE", "SEND", "LOAD_LOCALS", "WITH_EXCEPT_START", "RERAISE"]
    + ["LOAD_SUPER_METHOD", "LOAD_FROM_DICT_OR_DEREF", "CHECK_EG_MATCH"]
)

Program = list[tuple[Handler, "Instruction"]]


class Resumption(NamedTuple):
    """See Interpreter.resumes."""

    resumed: Value  # the generator, or an iterator that asks it
    operands: Sequence[Value]
    generator: Value | None = None


# Of code that programs write; generated code (a named tuple of 100,000 fields) goes beyond.
_MOST_VARIABLES = 10_000


def refused_code(code: types.CodeType) -> breaks.Break | None:
    """The reason why code is not captured at all; None: it may be."""
    if not {*code.co_cellvars}.isdisjoint(code.co_freevars):  # a table of names holds one cell each
        name = "MAKE_CELL (of a name that is also free: a comprehension's own variable)"
        return breaks.UnsupportedOpcode(name)
    if code.co_nlocals > _MOST_VARIABLES:  # which are live where takes memory of their square
        return breaks.UnsupportedOpcode(f"RESUME (of a function with {code.co_nlocals} variables)")
    return None


_programs: CodeMap[Program] = CodeMap()


def program_of(code: types.CodeType) -> Program:
    """The canonical instructions of `code`, each with its handler."""
    return _programs.computed(code, lambda: _program_of(code))


def _program_of(code: types.CodeType) -> Program:
    refused = refused_code(code)
    if refused is not None:
        raise Unsupported(refused)
    program = [(HANDLERS.get(instr.op, unhandled), instr) for instr in normalize(code)]
    fast_path = FAST_PATHS.get(code)
    if fast_path is not None:
        program = [
            (_with_fast_path(handler, instr, fast_path), instr) for handler, instr in program
        ]
    return program


def _with_fast_path(handler: Handler, instr: Instruction, fast_path: FastPath) -> Handler:
    """The handler of an instruction of a polyfill whose loops take native iterations."""
    if instr.op != "FOR_ITER":
        return handler

    def for_iter(tx: Interpreter, instr: Instruction) -> None:
        handler(tx, instr)
        if tx.index == instr.index + 1 and fast_path(tx, tx.peek()):
            tx.stack.pop()
            tx.index = instr.index

    return for_iter


# Not to be executed apart from what follows: a function without its closure yet, and entries of the
# stack that are no values.
_WITH_THE_NEXT = frozenset(["MAKE_FUNCTION", "SWAP", "COPY", "PUSH_EXC_INFO", "POP_EXCEPT"])
# No object ends by these.
_DROP_NOTHING = frozenset(
    ["RESUME", "NOP", "CACHE", "PUSH_NULL", "COPY", "SWAP", "PRECALL", "KW_NAMES", "EXTENDED_ARG"]
    + ["JUMP_FORWARD", "JUMP_BACKWARD", "LOAD_CONST", "LOAD_FAST", "LOAD_FAST_CHECK"]
    + ["LOAD_FAST_LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLOSURE"]
)


class Interpreter:
    """A symbolic frame."""

    exc_info: Value | None = None  # the exception being handled here (sys.exc_info)
    entry: Entry | None = None  # of the last exception that was raised here
    # The items that the caller's instruction pushes for this call, bottom first, where it does no
    # more: RESULT, ReturnContinuation, or Values. None: it does more, so that a break cannot stand
    # in here.
    pushed: Sequence[Value] | None = None
    # Values of the caller's stack meanwhile: `pushed`, whether or not a break may stand in here.
    # None: a handler calls, with values that no frame shows.
    held_by_caller: Sequence[Value] | None = None
    # (step, value, special method -> values pushed for its call): see in_tail_position. A call of
    # one of these methods is the last act of the instruction that began at `step`.
    _tail_calls: tuple[int, Value, dict[str, Sequence[Value]]] | None = None
    # Of a generator's frame: the instruction that resumed it, if a break can stand in this frame
    # (see `resumes`).
    resumption: Resumption | None = None
    _resumption: tuple[int, Resumption] | None = None
    namespace: dict[str, Value] | None = None  # of the body of a class statement
    as_value: Value | None = None  # the result of sys._getframe
    done = False
    yielded = False  # stopped at YIELD_VALUE; `result` is the yielded value
    result: Value | None = None

    def __init__(
        self,
        output: OutputGraph,
        code: types.CodeType,
        f_globals: dict[str, Any],
        parent: Interpreter | None = None,
        function_source: Source | None = None,
    ) -> None:
        self.output = output
        output.frames.add(self)
        self.code = code
        self.program = program_of(code)
        self.f_globals = f_globals
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.function_source = function_source  # the function's own source, for its globals
        self.index = 0  # of the next instruction
        self.current: Instruction = self.program[0][1]
        self.stack: list[Value | Lazy] = []
        self.locals: dict[str, Value | Lazy] = {}
        self.cells: dict[str, CellValue] = {}  # cell and free variables
        self.locals_dict: Any = None  # what the program got of locals()
        self.loop_entries: dict[int, LoopEntry] = {}  # by the index of the loop's FOR_ITER
        self.began = output.steps  # the step at which the current instruction began
        self._modules: dict[str, tuple[str, type]] | None = None

    # -- used by values ------------------------------------------------------------------------
    def wrap(self, obj: Any, source: Source | None = None) -> Value:
        """The Value for a real object reached through `source` (None: a constant of the code, or of
        ours).
        """
        return build(self, obj, source)

    def constant(self, real: Any) -> Value:
        """A literal that the frame made."""
        return ConstantValue(real)

    def from_constant(self, real: Any) -> Value:
        """Containers of literals that the frame made, free to change."""
        return from_constant(real)

    def new_tuple(self, items: Sequence[Value]) -> Value:
        return TupleValue(items)

    def builtin_method(self, owner: Value, name: str, found: Any = None) -> Value:
        """owner.name, a method of a C type; `found` is the slot that a type lookup gave."""
        return BuiltinMethod(owner, name, found)

    def guard(self, source: Source | None, kind: str, payload: Any = None) -> None:
        """Assume `kind` (see dynamo.guards.KINDS) about the value at `source`; no-op if source is
        None.
        """
        self.output.guard(source, kind, payload)

    def call_function(
        self, function: Value, args: Sequence[Value], kwargs: dict[str, Value] | None = None
    ) -> Value:
        """function(*args, **kwargs)."""
        return function.call(self, args, kwargs or {})

    def inline(
        self, function: Value, args: Sequence[Value], kwargs: dict[str, Value] | None = None
    ) -> Value:
        """Interpret the body of a function value (see interp/inlining.py)."""
        return inlining.inline_call(self, function, args, kwargs or {})  # type: ignore[arg-type]

    def finish_call(
        self,
        function: Value,
        args: Sequence[Value],
        kwargs: dict[str, Value],
        pushed: Sequence[Value] = (RESULT,),
    ) -> Value:
        """function(*args, **kwargs), after which the current instruction only pushes `pushed`."""
        return inlining.finish_call(self, function, args, kwargs, pushed)

    def call_at_end(
        self,
        value: Value,
        name: str,
        method: Value,
        args: Sequence[Value],
        kwargs: dict[str, Value] | None = None,
        instead: Value = RESULT,
    ) -> Value:
        """method(*args, **kwargs), which may be all that is left of the instruction that asks
        `value` for `name` (see in_tail_position). instead: what is pushed for the result.
        """
        pushed = self.tail_pushes(value, name)
        if pushed is None or (instead is not RESULT and RESULT not in pushed):
            return self.call_function(method, args, kwargs)
        pushed = [instead if item is RESULT else item for item in pushed]
        return self.finish_call(method, args, kwargs or {}, pushed)

    def run_class_body(self, function: FunctionValue) -> dict[str, Value]:
        """The names that the body of a class statement defines, in order."""
        body = self.child(function)
        body.namespace = {}
        body.cells.update(zip(function.code.co_freevars, function.closure(self)))
        body.run()
        return body.namespace

    def child(self, function: FunctionValue) -> Interpreter:
        """The frame of a call of `function`, made here."""
        return Interpreter(self.output, function.code, function.globals, self, function.source)

    def breakable_chain(self) -> list[Interpreter]:
        """The frames from the root on, to the innermost in which a break can stand."""
        return breakable_chain(self)

    def raise_exception(self, value: Value) -> NoReturn:
        """Raise the exception that `value` stands for in the captured code."""
        raise RaisedException(value)

    def in_tail_position(
        self, value: Value, name: str, pushed: Sequence[Value] = (RESULT,)
    ) -> None:
        """If the current instruction calls this special method of `value` (or the getter of this
        property), it does nothing behind it but to push `pushed`.
        """
        if (
            self._tail_calls is None
            or self._tail_calls[0] != self.began
            or self._tail_calls[1] is not value
        ):
            self._tail_calls = (self.began, value, {})
        self._tail_calls[2][name] = pushed

    def tail_pushes(self, value: Value, name: str) -> Sequence[Value] | None:
        """The values that `in_tail_position` gave for this call; None: the call is not in tail
        position, or has been asked about before.
        """
        if (
            self._tail_calls is None
            or self._tail_calls[0] != self.began
            or self._tail_calls[1] is not value
        ):
            return None
        return self._tail_calls[2].pop(name, None)

    def resumes(self, resumed: Value, operands: Sequence[Value] = ()) -> None:
        """The current instruction may resume the generator `resumed`, or an iterator that draws
        from a generator. Behind a break in that generator the instruction is executed again, on the
        stack below its operands and these `operands`.
        """
        self._resumption = self.began, Resumption(resumed, operands)

    def resumption_of(self, asked: Value) -> Resumption | None:
        """The resumption that the current instruction has announced, if `asked` is asked in it."""
        step, resumption = self._resumption or (-1, None)
        if step != self.began or resumption is None:
            return None
        asking: Value | None = resumption.resumed
        while asking is not asked and asking is not None:
            asking = asking.asking
        return None if asking is None else resumption

    def resumed_by(self, tx: Interpreter, generator: Value) -> None:
        """The current instruction of `tx` resumes this frame, that of `generator`."""
        found = tx.resumption_of(generator)
        self.resumption = None if found is None else found._replace(generator=generator)

    @property
    def hidden(self) -> bool:
        """Whether the frame is one of ours that stands for a C function."""
        kind = frame_kind(self.f_globals)
        return kind is not None and kind.hidden

    def release(self) -> None:
        """Let go of all values: capture has ended."""
        vars(self).clear()

    # -- stack ----------------------------------------------------------------------------------
    def push(self, value: Value | Lazy) -> None:
        self.stack.append(value)

    def pop(self) -> Value:
        value = self.stack.pop()
        return value.realize(self) if isinstance(value, Lazy) else value

    def popn(self, n: int) -> list[Value]:
        """The top n values, deepest first."""
        if n == 0:
            return []
        values = [v.realize(self) if isinstance(v, Lazy) else v for v in self.stack[-n:]]
        del self.stack[-n:]
        return values

    def peek(self, n: int = 1) -> Value:
        """The n-th value from the top."""
        value = self.stack[-n]
        if isinstance(value, Lazy):
            value = self.stack[-n] = value.realize(self)
        return value

    def jump(self, instr: Instruction) -> None:
        assert instr.target is not None, "jumps have targets"
        self.index = instr.target.index

    # -- execution ------------------------------------------------------------------------------
    def step(self) -> None:
        """Execute one instruction; a symbolic exception goes to the frame's handler, if it has
        one.
        """
        handler, instr = self.program[self.index]
        self.current = instr
        self.index += 1
        try:
            handler(self, instr)
            if self.output.finalizable and not (
                instr.op in _DROP_NOTHING and self.output.looked_in is self
            ):
                finalize_unreachable(self)
                self.output.looked_in = self
        except RaisedException as error:
            self.trace(error, instr)
            self.unwind(error, instr)
            if self.output.finalizable:
                finalize_unreachable(self)

    def run(self) -> None:
        """Execute until the frame returns or yields. Unsupported gets the user's stack attached."""
        output, step = self.output, self.step
        self.yielded = False
        caller, output.running = output.running, self
        try:
            while not (self.done or self.yielded):
                self.began = began = output.steps
                if began >= output.next_event:
                    self.arrive()
                output.steps += 1
                step()
        except Unsupported as error:
            self.annotate(error)
            raise
        finally:
            output.running = caller

    def arrive(self) -> None:
        """Step `output.next_event` comes next."""
        self.current = self.program[self.index][1]
        if self.output.trial is not None:
            self.output.trial.observe(self)
        if self.began == self.output.stop_at:
            raise AttemptEnded(self)
        if self.output.written.function:
            self.output.written.observe(self)
        if self.began >= self.output.limit_at and self.current.op not in _WITH_THE_NEXT:
            self.output.go_on_behind_limit(self.began)

    def annotate(self, error: Unsupported) -> None:
        """Remember where an Unsupported was raised: the innermost frame comes first."""
        if error.user_stack is None:
            error.user_stack = self.user_stack()
        if error.step is None:
            error.forbidden = break_is_error() and not isinstance(error.reason, breaks.NextTurn)
            error.step = breakable_chain(self)[-1].began

    def trace(self, error: RaisedException, instr: Instruction) -> None:
        """Set the exception's __context__, and add this frame to its traceback."""
        value: Any = error.value  # an ObjectValue
        raised_again = instr.op == "RERAISE" or (instr.op == "RAISE_VARARGS" and instr.arg == 0)
        if not raised_again:
            if not error.linked:
                value.link_context(self, self.handled_exception())
            if self.hidden:
                error.linked = True
                return
            positions = self.current.positions
            self.entry = Entry(self.code, self.f_globals, positions, positions[0])
            value.frames = (self.entry, *value.frames)
            error.grew = True
        elif value.frames and value.frames[0] is self.entry:
            self.entry.left = self.line_left(instr)
        error.linked = True

    def line_left(self, instr: Instruction, above: int = 0) -> int | None:
        """The line at which an exception that `instr` raises again leaves the frame."""
        lasti = self.raised_at(instr, above)
        if lasti == instr.offset // 2:
            return instr.positions[0]
        # A continuation that was handed a place in another code does not know the line.
        place = next(itertools.islice(self.code.co_positions(), lasti, None), instr.positions)
        return place[0]

    def raised_at(self, instr: Instruction, above: int = 0) -> int:
        """The place of the instruction that raised the exception which `instr` raises again: as in
        Python, not the RERAISE of a clean-up, which has no line. above: the number of its operands
        still on the stack.
        """
        lasti = self.peek(instr.arg + above) if instr.op == "RERAISE" and instr.arg else None
        if lasti is None or lasti.source is not None or not lasti.is_constant():
            return instr.offset // 2
        return lasti.as_constant()

    def unwind(self, error: RaisedException, instr: Instruction) -> None:
        """Go to the handler of `instr`, or leave the frame with the exception."""
        handler = instr.handler
        if handler is None:
            self.done = True
            error.value.left = (*error.value.left, *left_by(self))
            try:
                raise error
            finally:
                del error  # whose traceback holds this frame: no cycle keeps arguments alive
        if error.grew and not self.output.side_effects.is_new(error.value):
            # Whoever catches an exception from outside may look at its traceback.
            value: Any = error.value
            raise Unsupported(breaks.AttributeMutation(value.describe(), "__traceback__"))
        lasti = self.raised_at(instr) if handler.push_lasti else None
        del self.stack[handler.depth :]
        if lasti is not None:
            self.push(ConstantValue(lasti))
        self.push(error.value)
        self.index = handler.target.index

    def handled_exception(self) -> Value | None:
        """The exception that a bare `raise` raises: the one being handled here or in a caller."""
        tx: Interpreter | None = self
        while tx is not None:
            if tx.exc_info is not None:
                return tx.exc_info
            tx = tx.parent
        self.output.assume_nothing_handled()
        return None

    # -- names ----------------------------------------------------------------------------------
    def global_source(self, name: str) -> Source:
        """The source of a global of this frame."""
        known = self.output.global_sources.get((id(self.f_globals), name))
        if known is not None:
            return known[1]
        source = self._global_source(name)
        if not isinstance(source, DictItemSource):  # which depends on the function
            self.output.global_sources[id(self.f_globals), name] = self.f_globals, source
        return source

    def _global_source(self, name: str) -> Source:
        if self.f_globals is self.output.frame_globals:
            return GlobalSource(name)
        module = self.f_globals.get("__name__")
        if isinstance(module, str) and getattr(sys.modules.get(module), "__dict__", None) is (
            self.f_globals
        ):
            return AttrSource(ModuleSource(module), name)
        namespace = self.globals_dict_source()
        assert namespace is not None, "the frame's own globals have a source of their own"
        return DictItemSource(namespace, name)

    def globals_dict_source(self) -> Source | None:
        """The source of the globals dict itself; None for the compiled frame's own."""
        if self.f_globals is self.output.frame_globals:
            return None
        module = self.f_globals.get("__name__")
        if isinstance(module, str) and getattr(sys.modules.get(module), "__dict__", None) is (
            self.f_globals
        ):
            return AttrSource(ModuleSource(module), "__dict__")
        if self.function_source is not None:
            return AttrSource(self.function_source, "__globals__")
        return self.output.install("globals", self.f_globals)

    def guard_no_global(self, name: str) -> None:
        """Assume that no global hides the builtin (or the NameError) behind `name`."""
        if (id(self.f_globals), name) in self.output.absent_globals:
            return
        source = self.globals_dict_source() or GlobalsSource()
        if is_trusted(source):
            self.output.lookups.add(self.f_globals, name)
            self.output.absent_globals[id(self.f_globals), name] = self.f_globals
        else:
            self.guard(source, "contains", (name, False))

    # -- where we are ---------------------------------------------------------------------------
    @property
    def lineno(self) -> int:
        positions = self.current.positions
        return (positions and positions[0]) or self.code.co_firstlineno

    def user_stack(self) -> list[traceback.FrameSummary]:
        """The frames of the captured code from the root to here; the last is where we stand."""
        frames: list[traceback.FrameSummary] = []
        tx: Interpreter | None = self
        while tx is not None:
            if not tx.hidden:
                frames.append(_frame_summary(tx.code, tx.current.positions, tx.lineno))
            tx = tx.parent
        frames.reverse()
        return frames

    def stack_trace(self) -> str:
        """The user's stack as text, innermost line last (node.meta["stack_trace"])."""
        parts: list[str] = []
        tx: Interpreter | None = self
        while tx is not None:
            if not tx.hidden:
                parts.append(_frame_text(tx.code, tx.lineno))
            tx = tx.parent
        return "".join(reversed(parts))

    def module_stack(self) -> dict[str, tuple[str, type]]:
        """The modules below the frame's own whose `forward` we are in, outermost first
        (node.meta["nn_module_stack"]): by path, the path and the class.
        """
        if self._modules is None:
            self._modules = {} if self.parent is None else self.parent.module_stack()
            if self.code.co_name == "forward" and self.code.co_argcount:
                module = self.locals.get(self.code.co_varnames[0])
                own = _path_and_class(module)
                if own is not None:
                    self._modules = {**self._modules, own[0]: own}
        return self._modules


def _path_and_class(module: Value | Lazy | None) -> tuple[str, type] | None:
    """The path and class of an nn.Module; None: of an argument of the frame, or another value."""
    if not isinstance(module, ObjectValue) or not issubclass(module.cls, torch.nn.Module):
        return None
    if module.source is None:  # made by the frame
        return module.cls.__name__, module.cls
    if module.source.base is None:
        return None
    return _INDEX.sub(r".\1", str(module.source)), module.cls


_INDEX = re.compile(r"\[(\d+)\]")  # of a module in a list, whose path has its number as a name


def _is_bound_to_frame(tx: Interpreter) -> bool:
    instr = tx.current
    is_super = instr.op == "CALL" and instr.arg == 0 and instr.index > 1
    is_super = is_super and tx.program[instr.index - 2][1].argval == "super"
    return is_super or instr.op in _BOUND_TO_FRAME


def breakable_chain(tx: Interpreter) -> list[Interpreter]:
    """The frames from the root on, to the innermost in which a break can stand instead of in `tx`.

    The callers in between can go on behind their calls: they only push the result.
    """
    return _seen(_resumable_frames(tx))


def _resumable_frames(tx: Interpreter) -> list[Interpreter]:
    frames: list[Interpreter] = []
    frame: Interpreter | None = tx
    while frame is not None:
        frames.append(frame)
        frame = frame.parent
    frames.reverse()
    end = 1
    while end < min(len(frames), CHAIN_LIMIT) and _can_go_on(frames[end]):
        resumes = end + 1 < len(frames) and frames[end + 1].resumption is not None
        if _is_bound_to_frame(frames[end]) and not resumes:
            break
        end += 1
    frames = frames[:end]
    while len(frames) > 1 and _is_bound_to_frame(frames[-1]):
        frames.pop()
    return frames


def _can_go_on(callee: Interpreter) -> bool:
    """Whether the caller can, behind its call or (a generator's) with the call again."""
    return callee.pushed is not None or callee.resumption is not None


def _seen(frames: list[Interpreter]) -> list[Interpreter]:
    """The frames that a traceback shows: callees of hidden frames, which stand for C functions, are
    dropped. An iterator that FOR_ITER calls has no such frame.
    """
    while frames[-1].hidden and frames[-1].current.op != "FOR_ITER":
        frames.pop()
    return frames


def _frame_summary(code: types.CodeType, positions: Any, lineno: int) -> traceback.FrameSummary:
    end_lineno, colno, end_colno = positions[1:4] if positions else (None, None, None)
    return traceback.FrameSummary(
        code.co_filename,
        lineno,
        display_name(code),
        lookup_line=False,
        end_lineno=end_lineno,
        colno=colno,
        end_colno=end_colno,
    )


def display_name(code: types.CodeType) -> str:
    """The name of the user's function, for continuations of it too."""
    return code.co_name


@lru_cache(maxsize=8192)
def _frame_text(code: types.CodeType, lineno: int) -> str:
    line = linecache.getline(code.co_filename, lineno).strip()
    text = f'  File "{code.co_filename}", line {lineno}, in {display_name(code)}\n'
    return f"{text}    {line}\n" if line else text
