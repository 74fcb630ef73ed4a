"""Markers on a frame's stack beside the program's values, and continuations of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo.values.base import Value

if TYPE_CHECKING:
    from dynamo.values.builder import Lazy

# The classes that an except clause may name.
Errors = type[BaseException] | tuple[type[BaseException], ...]


class NullValue(Value):
    """The NULL that PUSH_NULL and LOAD_METHOD put on the stack."""

    def describe(self) -> str:
        return "NULL"


NULL = NullValue()
RESULT = NullValue()  # stands for the result of a call, see Interpreter.pushed


class ReturnContinuation(NullValue):
    """Stands for function(result of a call, *operands), see Interpreter.pushed."""

    def __init__(
        self, function: Callable[..., Any] | None, operands: Sequence[Value | Lazy] = ()
    ) -> None:
        super().__init__()
        self.function = function
        self.operands = operands

    def children(self) -> Sequence[Value]:
        return [operand for operand in self.operands if isinstance(operand, Value)]

    @property
    def form(self) -> tuple[Any, ...]:
        """See dynamo.resume_parts.Pushed."""
        return self.function, len(self.operands)


class CatchContinuation(ReturnContinuation):
    """Stands for the result of a call, or for function(*operands) where the call raises `error`;
    without a function, an error ends the loop whose FOR_ITER it is.
    """

    def __init__(
        self,
        error: Errors,
        function: Callable[..., Any] | None = None,
        operands: Sequence[Value | Lazy] = (),
    ) -> None:
        super().__init__(function, operands)
        self.error = error

    @property
    def form(self) -> tuple[Any, ...]:
        return (*super().form, self.error)


UNBOUND = NullValue()  # LOAD_FAST_AND_CLEAR of a local without a value


class PreviousException(Value):
    """The item that PUSH_EXC_INFO puts below the exception: the one that was being handled before,
    or None.
    """

    def __init__(self, exception: Value | None, handled: Value) -> None:
        super().__init__()
        self.exception = exception
        self.handled = handled  # the one that is being handled from here on

    def children(self) -> list[Value]:
        return [value for value in (self.exception, self.handled) if value is not None]
