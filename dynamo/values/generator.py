"""Generators: an interpreter that is suspended at its yield."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.constant import ConstantValue
from dynamo.values.exceptions import RaisedException, is_exception, raise_python

if TYPE_CHECKING:
    from dynamo.capture.interpreter import Interpreter
    from dynamo.reconstruct import Codegen


class GeneratorValue(Value):
    """A generator object made by the captured code."""

    def __init__(
        self, frame: Interpreter, call: tuple[Value, Sequence[Value], dict[str, Value]]
    ) -> None:
        super().__init__()
        self.frame = frame
        self.call_that_made_it = call  # function, args, kwargs
        self.started = False
        self.return_value: Value = ConstantValue(None)

    def python_type(self) -> type:
        return types.GeneratorType

    def describe(self) -> str:
        return f"generator {self.frame.code.co_name}"

    def truth(self, tx: Interpreter) -> bool:
        return True

    def iterate(self, tx: Interpreter) -> Value:
        return self

    def next_value(self, tx: Interpreter) -> Value | None:
        return self.resume(tx, ConstantValue(None))

    def resume(self, tx: Interpreter, sent: Value) -> Value | None:
        """Run to the next yield with `sent` as the value of the current one; None: the generator
        returned.
        """
        if self.frame.done:
            return None
        if self.started:
            self.frame.push(sent)
        self.started = True
        return self._run(tx)

    def throw(self, tx: Interpreter, exception: Value) -> Value | None:
        """Raise `exception` at the current yield."""
        frame = self.frame
        if frame.done or not self.started:
            frame.done = True
            tx.raise_exception(exception)
        frame.parent = tx
        tx.output.side_effects.touch()
        frame.unwind(RaisedException(exception), frame.current)
        return self._run(tx)

    def close(self, tx: Interpreter) -> None:
        if self.frame.done or not self.started:
            self.frame.done = True
            return
        try:
            yielded = self.throw(tx, tx.wrap(GeneratorExit).call(tx, [], {}))
        except RaisedException as error:
            if not is_exception(error, GeneratorExit, StopIteration):
                raise
            return
        if yielded is not None:
            raise_python(tx, RuntimeError, "generator ignored GeneratorExit")

    def _run(self, tx: Interpreter) -> Value | None:
        frame = self.frame
        frame.parent = tx
        frame.depth = tx.depth + 1
        tx.output.side_effects.touch()
        try:
            frame.run()
        except RaisedException as error:
            if is_exception(error, StopIteration):
                raise_python(tx, RuntimeError, "generator raised StopIteration")
            raise
        if frame.yielded:
            return frame.result
        assert frame.result is not None
        self.return_value = frame.result
        return None

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name in _METHODS:
            return GeneratorMethodValue(self, name)
        raise Unsupported(breaks.AttributeAccess(self.describe(), name))

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return hasattr(types.GeneratorType, name)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        method = _METHODS.get(name)
        if method is None:
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        return method(self, tx, *args)

    def reconstruct(self, codegen: Codegen) -> None:
        """A generator that has not started is made by the same call again."""
        if self.started:
            raise Unsupported(breaks.CannotReconstruct(self.describe()))
        function, args, kwargs = self.call_that_made_it
        codegen.load_callable(lambda: codegen.load_const(make_generator))
        codegen(function)
        for arg in args:
            codegen(arg)
        codegen.build_tuple(len(args))
        for name, value in kwargs.items():
            codegen.load_const(name)
            codegen(value)
        codegen.build_map(len(kwargs))
        codegen.call(3)

    def children(self) -> Sequence[Value]:
        if not self.started:
            function, args, kwargs = self.call_that_made_it
            return [function, *args, *kwargs.values()]
        held = [*self.frame.stack, *self.frame.locals.values(), *self.frame.cells.values()]
        return [value for value in held if isinstance(value, Value)]


def make_generator(function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


class GeneratorMethodValue(Value):
    """generator.send and so on, not yet called."""

    def __init__(self, generator: GeneratorValue, name: str) -> None:
        super().__init__()
        self.generator = generator
        self.name = name

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.generator.call_method(tx, self.name, args, kwargs)

    def children(self) -> Sequence[Value]:
        return (self.generator,)


def _stop_unless(tx: Interpreter, generator: GeneratorValue, value: Value | None) -> Value:
    if value is not None:
        return value
    result = generator.return_value
    is_none = result.is_constant() and result.as_constant() is None
    tx.raise_exception(tx.wrap(StopIteration).call(tx, [] if is_none else [result], {}))


def _next(generator: GeneratorValue, tx: Interpreter) -> Value:
    return _stop_unless(tx, generator, generator.next_value(tx))


def _send(generator: GeneratorValue, tx: Interpreter, value: Value) -> Value:
    return _stop_unless(tx, generator, generator.resume(tx, value))


def _throw(generator: GeneratorValue, tx: Interpreter, exception: Value, *rest: Value) -> Value:
    known, obj = exception.identity()
    if known and isinstance(obj, type):
        given = rest[:1] if rest and not _is_none(rest[0]) else ()
        exception = given[0] if given and _is_exception(given[0]) else exception.call(tx, given, {})
    return _stop_unless(tx, generator, generator.throw(tx, exception))


def _is_none(value: Value) -> bool:
    return value.is_constant() and value.as_constant() is None


def _is_exception(value: Value) -> bool:
    return issubclass(value.python_type(), BaseException)


def _close(generator: GeneratorValue, tx: Interpreter) -> Value:
    generator.close(tx)
    return ConstantValue(None)


def _iter(generator: GeneratorValue, tx: Interpreter) -> Value:
    return generator


_METHODS: dict[str, Callable[..., Value]] = {
    "__next__": _next,
    "__iter__": _iter,
    "send": _send,
    "throw": _throw,
    "close": _close,
}
