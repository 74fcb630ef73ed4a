"""Coroutines and asynchronous generators of the captured code, and `await`."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dynamo import breaks
from dynamo.continuations.resume import SUSPENDING
from dynamo.errors import Unsupported
from dynamo.plans import BreakBefore, Retry
from dynamo.values.base import Value
from dynamo.values.builtins import handles
from dynamo.values.dummy_operands import fail_as
from dynamo.values.exceptions import RaisedException, is_exception, raise_python
from dynamo.values.generator import (
    NONE,
    SENDING,
    GeneratorValue,
    Resumable,
    is_none,
    itself,
    next_method,
    thrown,
)
from dynamo.values.lifetimes import SuspendedGenerator
from dynamo.values.lookup import type_holds
from dynamo.values.recipes import Recipe

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.function import FunctionValue


class CoroutineValue(GeneratorValue):
    """The coroutine that a call of an `async def` function gives."""

    noun = "coroutine"
    kind = types.CoroutineType
    prefix = "cr"

    def __init__(
        self,
        frame: Interpreter,
        call: tuple[FunctionValue, Sequence[Value], dict[str, Value]],
    ) -> None:
        super().__init__(frame, call)
        assert frame.parent is not None, "a call made it"
        self.made_at = frame.parent.began
        frame.output.finalizable[id(self)] = SuspendedGenerator(self)

    def drop(self, tx: Interpreter) -> None:
        if not self.started and not self.frame.done:
            reason = breaks.NeverAwaited(self.frame.code.co_qualname)
            raise Retry(tx.output.plan.breaking(BreakBefore(self.made_at, reason)))
        super().drop(tx)

    def iterate(self, tx: Interpreter) -> Value:
        raise_python(tx, TypeError, "'coroutine' object is not iterable")

    def resume_finished(self, tx: Interpreter) -> Value | None:
        raise_python(tx, RuntimeError, "cannot reuse already awaited coroutine")

    def throw_finished(self, tx: Interpreter, exception: Value) -> None:
        raise_python(tx, RuntimeError, "cannot reuse already awaited coroutine")


class CoroutineIterator(Resumable):
    """coroutine.__await__()"""

    def __init__(self, coroutine: CoroutineValue) -> None:
        super().__init__()
        self.coroutine = coroutine

    def python_type(self) -> type:
        return _COROUTINE_WRAPPER

    def children(self) -> Sequence[Value]:
        return (self.coroutine,)

    def iterate(self, tx: Interpreter) -> Value:
        return self

    def next_value(self, tx: Interpreter) -> Value | None:
        return self.resume(tx, NONE)

    def resume(self, tx: Interpreter, sent: Value) -> Value | None:
        item = self.coroutine.resume(tx, sent)
        self.return_value = self.coroutine.return_value
        return item

    def throw(self, tx: Interpreter, exception: Value) -> Value | None:
        item = self.coroutine.throw(tx, exception)
        self.return_value = self.coroutine.return_value
        return item

    def close(self, tx: Interpreter) -> Value:
        return self.coroutine.close(tx)


async def _coroutine() -> None:
    """To be looked at."""


def _wrapper_type() -> type:
    made = _coroutine()
    kind = type(made.__await__())
    made.close()
    return kind


_COROUTINE_WRAPPER = _wrapper_type()
CoroutineIterator.methods = {"__next__": next_method, "__iter__": itself, **SENDING}


def _await_method(coroutine: CoroutineValue, tx: Interpreter) -> Value:
    return CoroutineIterator(coroutine)


CoroutineValue.methods = {"__await__": _await_method, **SENDING}


# -- asynchronous generators ----------------------------------------------------------------------
class AsyncYield(Value):
    """A value that an asynchronous generator yields; other items come from awaited objects."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value

    def children(self) -> Sequence[Value]:
        return (self.value,)


class AsyncGeneratorValue(GeneratorValue):
    """The async generator that a call of an `async def` function with a yield gives."""

    noun = "async generator"
    kind = types.AsyncGeneratorType
    prefix = "ag"
    forbidden = (StopIteration, StopAsyncIteration)
    stepping = False  # a step has begun and not come to its yield yet

    def iterate(self, tx: Interpreter) -> Value:
        raise_python(tx, TypeError, "'async_generator' object is not iterable")

    def recipe(self) -> Recipe:
        if self.stepping:  # Python has no way to make a generator that a step is running
            raise Unsupported(breaks.CannotReconstruct(self.describe()))
        return super().recipe()


class AsyncStep(Resumable):
    """asend(), athrow() and aclose() of an asynchronous generator: awaited, it runs that to its
    next yield.
    """

    def __init__(self, generator: AsyncGeneratorValue, name: str, value: Value, kind: type) -> None:
        super().__init__()
        self.generator = generator
        self.name = name
        self.value = value  # sent, or raised
        self.kind = kind
        self.state = "new"

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Sequence[Value]:
        return (self.generator, self.value)

    def iterate(self, tx: Interpreter) -> Value:
        return self

    def next_value(self, tx: Interpreter) -> Value | None:
        return self.resume(tx, NONE)

    def resume(self, tx: Interpreter, sent: Value) -> Value | None:
        if self.state == "done":
            self._reused(tx)
        if self.state == "new":
            self._start(tx, sent)
            return self._step(tx, self._begin)
        return self._step(tx, lambda: self.generator.resume(tx, sent))

    def _start(self, tx: Interpreter, sent: Value = NONE) -> None:
        if self.generator.stepping:
            self.state = "done"
            name = "anext" if self.name == "asend" else self.name
            raise_python(tx, RuntimeError, f"{name}(): asynchronous generator is already running")
        if not is_none(sent):
            self._send_first(tx, sent)
        self.state = "awaited"
        self.generator.stepping = True

    def throw(self, tx: Interpreter, exception: Value) -> Value | None:
        if self.state == "done":
            self._reused(tx)
        if self.state == "new":
            self._start(tx)
        return self._step(tx, lambda: self.generator.throw(tx, exception))

    def close(self, tx: Interpreter) -> Value:
        if self.state == "awaited":
            self.generator.close(tx)
            self.generator.stepping = False
        self.state = "done"
        return NONE

    def _reused(self, tx: Interpreter) -> None:
        name = "__anext__()/asend()" if self.name == "asend" else "aclose()/athrow()"
        raise_python(tx, RuntimeError, f"cannot reuse already awaited {name}")

    def _send_first(self, tx: Interpreter, sent: Value) -> None:
        if self.name != "asend":
            text = "can't send non-None value to a just-started coroutine"
            raise_python(tx, RuntimeError, text)
        self.value = sent

    def _begin(self) -> Value | None:
        tx, generator = self.tx, self.generator
        if self.name == "asend":
            return generator.resume(tx, self.value)
        if self.name == "aclose" and (generator.frame.done or not generator.started):
            generator.frame.done = True
            return None
        return generator.throw(tx, self.value)

    def _step(self, tx: Interpreter, run: Callable[[], Value | None]) -> Value | None:
        self.tx = tx
        self.asking = None if self.name == "aclose" else self.generator
        try:
            item = run()
        except RaisedException as error:
            self.asking = None
            self.state = "done"
            self.generator.stepping = False
            quiet = (StopAsyncIteration, GeneratorExit)
            if self.name == "aclose" and is_exception(error, *quiet):
                return None
            raise
        self.asking = None
        if item is not None and not isinstance(item, AsyncYield):
            return item  # something that the generator awaits
        self.state = "done"
        self.generator.stepping = False
        if self.name == "aclose":
            if item is not None:
                raise_python(tx, RuntimeError, "async generator ignored GeneratorExit")
            return None
        if item is None:
            tx.raise_exception(tx.wrap(StopAsyncIteration).call(tx, [], {}))
        self.return_value = item.value
        return None


AsyncStep.methods = {"__next__": next_method, "__iter__": itself, "__await__": itself, **SENDING}


async def _async_generator():
    """To be looked at."""
    yield


def _step_types() -> dict[str, type]:
    made = _async_generator()
    steps = {"asend": made.asend(None), "athrow": made.athrow(ValueError), "aclose": made.aclose()}
    for step in steps.values():
        step.close()
    return {name: type(step) for name, step in steps.items()}


_STEPS = _step_types()


def _asend(generator: AsyncGeneratorValue, tx: Interpreter, value: Value = NONE) -> Value:
    return AsyncStep(generator, "asend", value, _STEPS["asend"])


def _athrow(generator: AsyncGeneratorValue, tx: Interpreter, kind: Value, *rest: Value) -> Value:
    return AsyncStep(generator, "athrow", thrown(tx, kind, *rest, name="athrow"), _STEPS["athrow"])


def _aclose(generator: AsyncGeneratorValue, tx: Interpreter) -> Value:
    leave = tx.wrap(GeneratorExit).call(tx, [], {})
    return AsyncStep(generator, "aclose", leave, _STEPS["aclose"])


AsyncGeneratorValue.methods = {
    "__aiter__": itself,
    "__anext__": _asend,
    "asend": _asend,
    "athrow": _athrow,
    "aclose": _aclose,
}

KINDS: dict[int, type[GeneratorValue]] = {
    inspect.CO_GENERATOR: GeneratorValue,
    inspect.CO_COROUTINE: CoroutineValue,
    inspect.CO_ASYNC_GENERATOR: AsyncGeneratorValue,
}


def generator_class(code: types.CodeType) -> type[GeneratorValue] | None:
    """The type of object that a call of a function with this code makes; None: the call runs the
    code.
    """
    return KINDS.get(code.co_flags & SUSPENDING)


# -- await ----------------------------------------------------------------------------------------
_RECEIVED = {
    0: "object {0} can't be used in 'await' expression",
    1: "'async with' received an object from __aenter__ that does not implement __await__: {0}",
    2: "'async with' received an object from __aexit__ that does not implement __await__: {0}",
    3: "'async for' received an invalid object from __anext__: {0}",
}


def awaitable(tx: Interpreter, value: Value, place: int) -> Value:
    """The iterator that `await value` sends to."""
    if isinstance(value, CoroutineValue):
        if value.delegate() is not None:
            raise_python(tx, RuntimeError, "coroutine is being awaited already")
        return value
    if is_iterable_coroutine(value):
        return value
    kind = value.python_type()
    if not type_holds(kind, "__await__"):
        raise_python(tx, TypeError, _RECEIVED[place].format(kind.__name__))
    iterator = value.call_method(tx, "__await__", [], {})
    if isinstance(iterator, CoroutineValue) or is_iterable_coroutine(iterator):
        raise_python(tx, TypeError, "__await__() returned a coroutine")
    if not type_holds(iterator.python_type(), "__next__"):
        name = iterator.python_type().__name__
        raise_python(tx, TypeError, f"__await__() returned non-iterator of type '{name}'")
    return iterator


def is_iterable_coroutine(value: Value) -> bool:
    """A generator of a function that types.coroutine made awaitable."""
    if not isinstance(value, GeneratorValue):
        return False
    return bool(value.frame.code.co_flags & inspect.CO_ITERABLE_COROUTINE)


def async_iterator(tx: Interpreter, value: Value) -> Value:
    """value.__aiter__(), as `async for` calls it."""
    kind = value.python_type()
    if not type_holds(kind, "__aiter__"):
        text = f"'async for' requires an object with __aiter__ method, got {kind.__name__}"
        raise_python(tx, TypeError, text)
    iterator = value.call_method(tx, "__aiter__", [], {})
    kind = iterator.python_type()
    if not type_holds(kind, "__anext__"):
        text = "'async for' received an object from __aiter__ that does not implement __anext__: "
        raise_python(tx, TypeError, text + kind.__name__)
    return iterator


@handles(aiter)
def _aiter(tx, value):
    kind = value.python_type()
    if not type_holds(kind, "__aiter__"):
        fail_as(tx, aiter, value)
    return value.call_method(tx, "__aiter__", [], {})


@handles(anext)
def _anext(tx, value):
    kind = value.python_type()
    if not type_holds(kind, "__anext__"):
        fail_as(tx, anext, value)
    return value.call_method(tx, "__anext__", [], {})
