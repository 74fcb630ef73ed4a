"""The part of a rewritten frame that makes the graph's checks (see interp/checks.py)."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from dynamo import _hook
from dynamo.framestate.entry_handler import EntryHandler
from dynamo.framestate.materialise import Codegen
from dynamo.framestate.tracebacks import leave_traceback
from dynamo.guards.sources import LocalSource
from dynamo.interp.checks import (
    are_unwritten,
    failed_before_writes,
    is_ordinary,
    note_wrong_guess,
    restore_random,
    restore_written,
    save_random,
    save_written,
    versions_of,
    warn_of_failure,
)

if TYPE_CHECKING:
    from dynamo.bytecode import Label
    from dynamo.interp.root import RootInterpreter

_RANDOM, _WRITTEN, _VERSIONS = "__random", "__written", "__versions"


def _reraise(codegen: Codegen) -> None:
    """exception -- (raised)"""
    codegen.reraise()


class CheckCodegen:
    """`with graph_runs(codegen): ...` around the code that runs the graph, then `emit(codegen)`."""

    def __init__(self, root: RootInterpreter) -> None:
        self.root = root
        self.handler: EntryHandler | None = None
        self.checks = root.output.checks
        self._failed: Label | None = None
        self._draws = self.checks.draws
        copied = self.checks.copied()
        self._written = [item.source for item in copied]
        self._watched = [item.source for item in self.checks.watched()]
        self._is_retried = (
            is_ordinary if len(copied) == len(self.checks.written()) else failed_before_writes
        )
        self._again = False

    def push_values(self, codegen: Codegen) -> None:
        """Push the values, for the run of emission that collects the graph's outputs."""
        for check in self.checks.made:
            codegen(check.value)

    @contextlib.contextmanager
    def graph_runs(self, codegen: Codegen) -> Iterator[None]:
        self._again = self.checks.may_run_again()
        self.handler = EntryHandler.of(self.root.code)
        if not self._again:
            handler = self.handler
            with contextlib.nullcontext() if handler is None else handler.protects(codegen):
                yield
            return
        if self._draws:
            self._push_call(codegen, save_random, self.checks.devices)
            codegen.call(1)
            codegen.store_fast(_RANDOM)
        for function, sources, name in (
            (save_written, self._written, _WRITTEN),
            (versions_of, self._watched, _VERSIONS),
        ):
            if sources:
                self._push_call(codegen, function)
                for source in sources:
                    codegen.load_source(source)
                codegen.call(len(sources))
                codegen.store_fast(name)
        self._failed = codegen.label()
        with codegen.exception_region(self._failed, depth=0):
            yield

    def emit(self, codegen: Codegen) -> None:
        if not self._again:
            return
        again, passed, found = codegen.label(), codegen.label(), codegen.label()
        for check in self.checks.made:
            codegen(check.value)
            (codegen.pop_jump_if_false if check.passes else codegen.pop_jump_if_true)(found)
        codegen.jump(passed)
        if self.checks.made:
            codegen.place(found)
            if any(check.guessed for check in self.checks.made):
                note = partial(note_wrong_guess, self.root.output.symbols.seen)
                codegen.load_callable(lambda: codegen.load_object(note, "note_wrong_guess"))
                codegen.call(0)
                codegen.pop_top()
            codegen.load_const(None)
            codegen.store_fast("__exception")
            codegen.jump(again)
        assert self._failed is not None, "the graph ran before"
        codegen.place(self._failed)
        leave = _reraise if self.handler is None else self.handler.handle
        self.keep_only_exceptions(codegen, self._is_retried, keep=True, leave=leave)
        if self._watched:
            self._push_call(codegen, are_unwritten)
            codegen.load_fast(_VERSIONS)
            codegen.call(1)
            codegen.pop_jump_if_true(again)
            codegen.load_fast("__exception")
            leave(codegen)
        codegen.place(again)
        self._run_again(codegen)
        codegen.place(passed)
        if self._draws:
            codegen.delete_fast(_RANDOM)
        if self._written:
            codegen.delete_fast(_WRITTEN)
        if self._watched:
            codegen.delete_fast(_VERSIONS)

    @property
    def _is_fault(self) -> bool:
        """Whether the graph should not have failed if the program itself goes through."""
        assumes = self.root.output.symbols.data.has_data()
        return not (self.checks.any or assumes) and self._catches_nothing

    @property
    def _is_caught(self) -> bool:
        """Whether the program may go through because exceptions of operations are caught, or
        because what shape rules assumed of sizes that only the call knows did not hold.
        """
        if self.root.output.symbols.data.has_data():
            return True
        if self.checks.noticed is not None:
            return True
        if self._catches_nothing:
            return False
        if self.checks.promised:
            return True
        frames = self.root.output.frames
        return any(i.op == "WITH_EXCEPT_START" for tx in frames for _, i in tx.program)

    @property
    def _catches_nothing(self) -> bool:
        return not any(tx.code.co_exceptiontable for tx in self.root.output.frames)

    @staticmethod
    def keep_only_exceptions(
        codegen: Codegen,
        kept: Callable[[BaseException], bool] = is_ordinary,
        keep: bool = False,
        leave: Callable[[Codegen], None] = _reraise,
    ) -> None:
        """exception -- ; exceptions that are not to be `kept` (KeyboardInterrupt, which no
        operation raises) `leave`. keep: in the variable __exception.
        """
        ordinary = codegen.label()
        codegen.store_fast("__exception")
        codegen.load_callable(lambda: codegen.load_object(kept, kept.__name__))
        codegen.load_fast("__exception")
        codegen.call(1)
        codegen.pop_jump_if_true(ordinary)
        codegen.load_fast("__exception")
        leave(codegen)
        codegen.place(ordinary)
        if not keep:
            codegen.delete_fast("__exception")

    def _run_again(self, codegen: Codegen) -> None:
        """Undo the graph's changes of torch's state and of tensors, and start once more."""
        if self._written:
            self._push_call(codegen, restore_written)
            codegen.load_fast(_WRITTEN)
            codegen.call(1)
            codegen.pop_top()
        if self._draws:
            self._push_call(codegen, restore_random, self.checks.devices)
            codegen.load_fast(_RANDOM)
            codegen.call(2)
            codegen.pop_top()
        if self.checks.changes_state:
            for setter, *args in self.root.modes:
                self._push_call(codegen, setter, *args)
                codegen.call(len(args))
                codegen.pop_top()
        self.run_original(codegen, "raise" if self._is_fault else "warn")

    def run_original(self, codegen: Codegen, then: str = "") -> None:
        """Return the original function's result for the same arguments, with the hook off. then: if
        the function raises nothing, "raise" the exception in the variable __exception, or "warn" of
        that exception.
        """
        code, raised = _of_positional(self.root.code), codegen.label()
        names = code.co_varnames[: code.co_argcount]
        cells = frozenset(code.co_cellvars)
        with codegen.exception_region(raised, depth=0):
            codegen.load_callable(lambda: self._load_function(codegen, code))
            for index, name in enumerate(names):
                codegen.load_source(LocalSource(name, index, name in cells))
            codegen.call(len(names))
        if then == "raise":
            codegen.pop_top()
            codegen.load_fast_and_clear("__exception")
            codegen.reraise()
        else:
            if then == "warn":
                seen = self.root.output.symbols.seen if self.checks.guesses else None
                warn = partial(warn_of_failure, self.root.code, self._is_caught, seen)
                codegen.load_callable(lambda: codegen.load_object(warn, "warn_of_failure"))
                codegen.load_fast_and_clear("__exception")
                codegen.call(1)
                codegen.pop_top()
            codegen.return_value()
        codegen.place(raised)
        leave_traceback(codegen)

    @staticmethod
    def _push_call(codegen: Codegen, function: Any, *args: Any) -> None:
        codegen.load_callable(lambda: codegen.load_object(function, function.__name__))
        for arg in args:
            codegen.load_const(arg)

    def _load_function(self, codegen: Codegen, code: CodeType) -> None:
        if not code.co_freevars:
            function = FunctionType(code, self.root.f_globals)
            codegen.load_object(_hook.disabled(function), code.co_name)
            return
        codegen.load_callable(lambda: codegen.load_const(_hook.disabled))
        codegen.make_function(code)
        codegen.call(1)


def _of_positional(code: CodeType) -> CodeType:
    """The same code with all of its parameters positional: `*args` takes a tuple, `**kwargs` a
    dict.
    """
    stars = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    count = code.co_argcount + code.co_kwonlyargcount + (code.co_flags & stars).bit_count()
    return code.replace(
        co_argcount=count,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~stars,
    )
