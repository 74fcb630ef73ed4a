"""Parts of continuations (see resume.py): items of the stack, values that are made again at the
start, and the call of a callee's continuation.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any

from dynamo._hook import call_stealing_args
from dynamo.bytecode.decode import Native, Positions, Region
from dynamo.bytecode.emit import Emitter
from dynamo.bytecode.normalize import real_order


class Item(enum.Enum):
    """The kinds of items on the canonical stack."""

    VALUE = enum.auto()  # an object; a parameter
    NULL = enum.auto()  # of a call (PUSH_NULL, LOAD_METHOD); no parameter
    UNBOUND = enum.auto()  # a local that had no value (LOAD_FAST_AND_CLEAR); no parameter
    # The exception state that PUSH_EXC_INFO saved below the exception, until POP_EXCEPT. The
    # parameter is the exception being handled in between: the continuation makes it the one that
    # `raise` and sys.exc_info() find. (Code may copy what was saved and pop the copy; what stays
    # then is a VALUE, None will do.)
    HANDLING = enum.auto()


# An item that a call leaves on the stack. True: its result. False: a parameter. (function, count):
# function(result, *parameters), of so many parameters. (function, count, error): the result, or
# function(*parameters) where the call raises `error`; None for a function ends the loop.
# Item.NULL: a NULL.
Pushed = (
    bool
    | Item
    | tuple[Callable[..., Any], int]
    | tuple[Callable[..., Any] | None, int, type[BaseException] | tuple[type[BaseException], ...]]
)


@dataclass(frozen=True)
class Rematerialised:
    """A value that a continuation makes at its start: function(*arguments). An argument is a
    parameter (None), the number of another one that was made before, or the name of a cell that is
    the continuation's own (others are shared with the frame that goes on in it). kind: generators
    that stand elsewhere are of another; continuations that make these are different codes. places:
    those of the parameters that it is instead of. names: its parameters' names for the user.
    """

    function: Callable[..., Any]
    arguments: tuple[int | str | None, ...]
    kind: int = 0
    places: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


Rematerialisations = tuple[Rematerialised, ...]
REMATERIALISED = ".made"  # how the parameters are called of which something is made


def parameters_of(pushed: Sequence[Pushed]) -> list[str]:
    """The parameters from which a call pushes its values besides the result."""
    counts = [item[1] if isinstance(item, tuple) else item is False for item in pushed]
    return [f".pushed{i}" for i in range(sum(counts))]


@dataclass(frozen=True)
class Callee:
    """The continuation that a frame in the middle of a call calls.

    arguments: how many. pushed: the items that the call leaves on the stack.
    """

    code: CodeType
    namespace: dict[str, Any]
    arguments: int
    pushed: tuple[Pushed, ...] = (True,)

    @property
    def key(self) -> tuple:
        return id(self.code), id(self.namespace), self.arguments, self.pushed


def rematerialised_parameters(made: Rematerialisations) -> list[str]:
    return [f"{REMATERIALISED}{i}" for i in range(sum(item.arguments.count(None) for item in made))]


def rematerialising(
    made: Rematerialisations, parameters: Sequence[str], lineno: int | None
) -> list[Native]:
    """The start of a continuation's body: rematerialise values."""
    emit = Emitter()
    emit.set_location(lineno)
    operands = iter(rematerialised_parameters(made))
    uses = [argument for item in made for argument in item.arguments if isinstance(argument, int)]
    for number, item in enumerate(made):
        emit.load_callable(partial(emit.load_const, item.function))
        for argument in item.arguments:
            if argument is None:
                emit.load_fast_and_clear(next(operands))
                continue
            if isinstance(argument, str):
                emit.load_closure(argument)
                continue
            uses.remove(argument)
            load = emit.load_fast if argument in uses else emit.load_fast_and_clear
            load(f".part{argument}")
        emit.call(len(item.arguments))
        stored = [parameters[place] for place in item.places]
        stored += [f".part{number}"] if number in uses else []
        for _ in stored[1:]:
            emit.copy(1)
        for name in stored:
            emit.store_fast(name)
        if not stored:  # it was called for its effect
            emit.pop_top()
    return emit.natives


class Call:
    """The natives that call the callee's continuation, push the results of the call, and jump.

    goes_on: the jumps to the instruction behind the call; ends_loop: the one to the end of the
    loop. depth: of the stack below the call.
    """

    def __init__(
        self,
        callee: Callee,
        arguments: Sequence[str],
        handler: Region | None,
        positions: Positions,
        depth: int,
    ) -> None:
        self.emit = Emitter()
        self.handler = handler
        self.goes_on: list[Native] = []
        self.ends_loop: Native | None = None
        self.uses = 0  # of the result, that are still to come
        self.emit.set_location(None, positions)
        caught = next((i for i in callee.pushed if isinstance(i, tuple) and len(i) == 3), None)
        failed = self.emit.label()
        self._load_callee(callee, arguments)
        if caught is None:
            self._call(1 + len(arguments))
        else:
            with self.emit.exception_region(failed, depth):
                self.emit.call(1 + len(arguments))
        if callee.pushed != (True,):
            self.emit.store_fast(".result")
            for name in parameters_of(callee.pushed)[: caught[1] if caught else 0]:
                self.emit.delete_fast(name)  # was for the exception
            self._push(callee.pushed)
        self._jump()
        if caught is not None:
            self.emit.place(failed)
            self._catch(*caught, callee.pushed)

    @property
    def natives(self) -> list[Native]:
        return self.emit.natives

    def _load_callee(self, callee: Callee, arguments: Sequence[str]) -> None:
        emit = self.emit
        emit.load_callable(lambda: emit.load_const(call_stealing_args))
        if callee.code.co_freevars:
            emit.load_fast_and_clear(".callee")
        else:
            emit.load_const(FunctionType(callee.code, callee.namespace))
        for name in arguments:
            emit.load_fast_and_clear(name)

    def _call(self, count: int) -> None:
        self.emit.call(count)
        self.natives[-1].handler = self.handler

    def _jump(self) -> None:
        self.emit.jump(self.emit.label())
        self.goes_on.append(self.natives[-1])

    def _push(self, pushed: Sequence[Pushed]) -> None:
        """Push the results of a call."""
        self.uses = sum(bool(item) and item is not Item.NULL for item in pushed)
        emit, parameters = self.emit, iter(parameters_of(pushed))
        for item in real_order(pushed, lambda item: item is Item.NULL):
            if isinstance(item, tuple) and len(item) == 2:
                function, count = item
                emit.load_callable(lambda: emit.load_const(call_stealing_args))
                emit.load_const(function)
                self._load_result()
                for _ in range(count):
                    emit.load_fast_and_clear(next(parameters))
                self._call(2 + count)
            elif item is Item.NULL:
                emit.push_null()
            elif item is False:
                emit.load_fast_and_clear(next(parameters))
            else:
                self._load_result()
        if not any(pushed):
            emit.delete_fast(".result")

    def _load_result(self) -> None:
        self.uses -= 1
        if self.uses:
            self.emit.load_fast(".result")
        else:
            self.emit.load_fast_and_clear(".result")

    def _catch(
        self,
        function: Callable[..., Any] | None,
        count: int,
        error: type[BaseException] | tuple[type[BaseException], ...],
        pushed: Sequence[Pushed],
    ) -> None:
        """exception -- the values pushed instead, or the end of the loop."""
        emit, matches = self.emit, self.emit.label()
        start = len(self.natives)
        emit.store_fast(".error")
        emit.load_callable(lambda: emit.load_const(isinstance))
        emit.load_fast(".error")
        emit.load_const(error)
        emit.call(2)
        emit.pop_jump_if_true(matches)
        emit.load_fast_and_clear(".error")
        emit.reraise()
        emit.place(matches)
        emit.delete_fast(".error")
        if function is None:
            emit.pop_top()  # the iterator
            emit.jump(emit.label())
            self.ends_loop = self.natives[-1]
        else:
            emit.load_callable(lambda: emit.load_const(function))
            for name in parameters_of(pushed)[:count]:
                emit.load_fast_and_clear(name)
            emit.call(count)
            emit.store_fast(".result")
            self._push([True if isinstance(item, tuple) else item for item in pushed])
            self._jump()
        for native in self.natives[start:]:
            if native.op in ("CALL", "RERAISE"):
                native.handler = self.handler
