"""Generators: an interpreter that is suspended at its yield."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dynamo import breaks
from dynamo.bytecode import versions
from dynamo.bytecode.liveness import live_before
from dynamo.continuations.generators import make_generator_code
from dynamo.continuations.parts import Item
from dynamo.continuations.resume import CannotResume, origin
from dynamo.errors import Unsupported
from dynamo.polyfills import rematerialise
from dynamo.values.base import Value, is_none
from dynamo.values.classes.lookup import class_lookup, type_of_bound
from dynamo.values.effects.lifetimes import SuspendedGenerator, cleans_up, must_stay_alive
from dynamo.values.effects.side_effects import SERIALS
from dynamo.values.objects.exception_objects import make_exception
from dynamo.values.objects.exceptions import (
    RaisedException,
    call_handler,
    is_exception,
    new_raised,
    raise_python,
)
from dynamo.values.recipes import TUPLE, Attribute, GlobalsOf, Made, Part, Recipe, exact
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.stack_items import NULL, UNBOUND, PreviousException

if TYPE_CHECKING:
    from dynamo.framestate.materialise import Codegen
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.functions.function import FunctionValue

NONE = ConstantValue(None)
_DELEGATING = 2  # the low bits of RESUME's argument behind `yield from`


class Resumable(Value):
    """A receiver of `yield from`: resume gives the next item, or None at the end, when
    return_value is the value of the expression.
    """

    return_value: Value = NONE

    def resume(self, tx: Interpreter, sent: Value) -> Value | None:
        raise NotImplementedError

    def throw(self, tx: Interpreter, exception: Value) -> Value | None:
        raise NotImplementedError

    def close(self, tx: Interpreter) -> Value:
        raise NotImplementedError

    methods: ClassVar[dict[str, Callable[..., Value]]] = {}

    def step_runs_code(self) -> bool:
        return True

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name in self.methods:
            return GeneratorMethodValue(self, name)
        return super().getattr(tx, name)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        method = self.methods.get(name)
        if method is None or kwargs:
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        return call_handler(tx, name, functools.partial(method, self), args, {}) or NONE


class GeneratorValue(Resumable):
    """A generator object made by the captured code."""

    def __init__(
        self,
        frame: Interpreter,
        call: tuple[FunctionValue, Sequence[Value], dict[str, Value]],
    ) -> None:
        super().__init__()
        self.serial = next(SERIALS)
        self.frame = frame
        self.call_that_made_it = call  # function, args, kwargs
        self.started = False
        self.running = False
        self.is_delegate_alone = False  # only the generator that delegates to it holds it

    def python_type(self) -> type:
        return types.GeneratorType

    def describe(self) -> str:
        return f"generator {self.frame.code.co_name}"

    def iterate(self, tx: Interpreter) -> Value:
        return self

    def next_value(self, tx: Interpreter) -> Value | None:
        return self.resume(tx, NONE)

    # -- running --------------------------------------------------------------------------------
    def resume(self, tx: Interpreter, sent: Value) -> Value | None:
        """Run to the next yield with `sent` as the value of the current one; None: it returned."""
        self._check_idle(tx)
        if self.frame.done:
            self.return_value = NONE
            return None
        tx.output.side_effects.touch(self)  # before the frame changes: a side may be given up here
        if self.started:
            self.frame.push(sent)
        elif not is_none(sent):
            raise_python(tx, TypeError, "can't send non-None value to a just-started generator")
        self.started = True
        return self._run(tx, None)

    def throw(self, tx: Interpreter, exception: Value) -> Value | None:
        """Raise `exception` at the current yield, or in the delegate of `yield from`."""
        self._check_idle(tx)
        if self.frame.done:
            tx.raise_exception(exception)
        if not self.started:
            tx.output.side_effects.touch(self)
            self.frame.done = True
            error = RaisedException(exception)
            if is_exception(error, StopIteration):  # which becomes a RuntimeError
                raise Unsupported(breaks.UncapturedCall("generator.throw"))
            error.linked = True
            self.frame.trace(error, self.frame.current)
            raise error
        delegate = self.delegate()
        if delegate is None:
            return self._run(tx, RaisedException(exception))
        try:
            item = self._throw_to(tx, delegate, exception)
        except RaisedException as error:
            if not (is_exception(error, StopIteration) and error.value is not exception):
                return self._run(tx, error)
            self._delegate_returned(error.value.getattr(tx, "value"))
            return self._run(tx, None)
        if item is None:
            self._delegate_returned(delegate.return_value)  # type: ignore[attr-defined]
            return self._run(tx, None)
        self.frame.result = item
        return item

    def delegate(self) -> Value | None:
        """The iterator of the `yield from` at which the frame is suspended."""
        frame = self.frame
        if frame.done or not self.started or self.running:
            return None
        resume = frame.program[frame.index][1]
        return frame.peek() if resume.op == "RESUME" and resume.arg & 3 == _DELEGATING else None

    def _throw_to(self, tx: Interpreter, delegate: Value, exception: Value) -> Value | None:
        self.running = True
        try:
            if issubclass(exception.python_type(), GeneratorExit):
                if isinstance(delegate, Resumable):
                    delegate.close(tx)
                elif self._can_be_closed(tx, delegate):
                    delegate.call_method(tx, "close", [], {})
            elif isinstance(delegate, Resumable):
                return delegate.throw(tx, exception)
            elif delegate.hasattr(tx, "throw"):
                return delegate.call_method(tx, "throw", [exception], {})
        finally:
            self.running = False
        raise RaisedException(exception)

    @staticmethod
    def _can_be_closed(tx: Interpreter, delegate: Value) -> bool:
        try:
            return delegate.hasattr(tx, "close")
        except RaisedException:  # is shown by sys.unraisablehook
            raise Unsupported(breaks.AttributeAccess(delegate.describe(), "close")) from None

    def _delegate_returned(self, result: Value) -> None:
        frame = self.frame
        send = frame.program[frame.index][1]
        while send.op != "SEND":
            send = send.target or frame.program[send.index + 1][1]
        frame.push(result)
        frame.jump(send)

    def close(self, tx: Interpreter) -> Value:
        self._check_idle(tx)
        if self.frame.done or not self.started:
            tx.output.side_effects.touch(self)
            self.frame.done = True
            return NONE
        try:
            yielded = self.throw(tx, tx.wrap(GeneratorExit).call(tx, [], {}))
        except RaisedException as error:
            if not is_exception(error, GeneratorExit, StopIteration):
                raise
            return NONE
        if yielded is not None:
            raise_python(tx, RuntimeError, "generator ignored GeneratorExit")
        return self.return_value if versions.CLOSE_RETURNS_VALUE else NONE

    def drop(self, tx: Interpreter) -> None:
        """The last reference goes away."""
        self.close(tx)

    def _check_idle(self, tx: Interpreter) -> None:
        if self.running:
            raise_python(tx, ValueError, "generator already executing")

    def _run(self, tx: Interpreter, error: RaisedException | None) -> Value | None:
        """Go on, with `error` raised where the frame is suspended, if there is one."""
        frame = self.frame
        frame.parent = tx
        frame.depth = tx.depth + 1
        frame.resumed_by(tx, self)
        tx.output.side_effects.touch(self)
        tx.output.finalizable.pop(id(self), None)
        self.running = True
        try:
            if error is not None:
                # Only the exception that the generator itself is handling becomes the context.
                error.linked = frame.exc_info is None
                frame.trace(error, frame.current)
                frame.unwind(error, frame.current)
            frame.run()
        except RaisedException as raised:
            if is_exception(raised, StopIteration):
                self._forbid(tx, raised)
            raise
        finally:
            self.running = False
        if frame.yielded:
            if cleans_up(frame.current) or self._delegates_to_observable(tx):
                tx.output.finalizable[id(self)] = SuspendedGenerator(self)
            return frame.result
        assert frame.result is not None
        self.return_value = frame.result
        return None

    def _delegates_to_observable(self, tx: Interpreter) -> bool:
        """Whether the end of the generator, which closes its delegate, may be noticed by that."""
        delegate = self.delegate()
        if isinstance(delegate, GeneratorValue) and delegate.is_delegate_alone:
            return id(delegate) in tx.output.finalizable
        return isinstance(delegate, Resumable)

    def _forbid(self, tx: Interpreter, raised: RaisedException) -> None:
        """PEP 479: StopIteration leaves a generator as RuntimeError."""
        text = ConstantValue("generator raised StopIteration")
        error: Any = make_exception(tx, RuntimeError, [text])
        for name in ("__cause__", "__context__"):
            error.setattr(tx, name, raised.value)
        changed = RaisedException(error)
        changed.linked = True
        raise changed

    # -- attributes -----------------------------------------------------------------------------
    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name in ("__name__", "__qualname__"):
            return self.call_that_made_it[0].getattr(tx, name)
        prefix, _, attribute = name.partition("_")
        if prefix == "gi":
            if attribute == "code":
                function = origin(self.frame.code)
                code = self.frame.code if function is None else function.code
                return tx.wrap(code or self.frame.code)
            if attribute == "running":
                return ConstantValue(self.running)
            if attribute == "yieldfrom":
                return self.delegate() or NONE
            if attribute == "suspended":
                idle = self.running or self.frame.done
                return ConstantValue(self.started and not idle)
            if attribute == "frame" and self.frame.done:
                return NONE
        return super().getattr(tx, name)

    # -- code -----------------------------------------------------------------------------------
    def children(self) -> Sequence[Value]:
        if not self.started:
            function, args, kwargs = self.call_that_made_it
            return [function, *args, *kwargs.values()]
        held = [*self.frame.stack, *self.frame.locals.values(), *self.frame.cells.values()]
        return [value for value in held if isinstance(value, Value)]

    def recipe(self) -> Recipe:
        """By a function of polyfills/rematerialise.py. Not started: by the same call again.
        Suspended: by a function that starts there.
        """
        if self.running or self.resumed:
            raise Unsupported(breaks.CannotReconstruct(self.describe()))
        if self.frame.done and self.started:
            return self.recipe_when_finished()
        if not self.started:
            made_by, args, kwargs = self.call_that_made_it
            call = [made_by, ConstantValue(tuple(kwargs)), *args, *kwargs.values()]
            return (make_closed if self.frame.done else rematerialise.call_again), call
        return self._recipe_when_suspended()

    def recipe_when_finished(self) -> Recipe:
        code = self.frame.code
        return finished_generator, [ConstantValue(code.co_name), ConstantValue(code.co_qualname)]

    @property
    def resumed(self) -> bool:
        return self.started and not (self.frame.done or self.frame.yielded)

    def _recipe_when_suspended(self) -> Recipe:
        frame = self.frame
        at = frame.index - 1
        live = live_before(frame.code)[at + 1]
        names = sorted(
            name
            for name, value in frame.locals.items()
            if name in live or must_stay_alive(frame.output, value, {})
        )
        items = [_item_of(value) for value in frame.stack]
        try:
            code = make_generator_code(frame.code, at, stack=items, local_names=names)
        except CannotResume:
            raise Unsupported(breaks.CannotReconstruct(self.describe())) from None
        kept = [v for item, v in zip(items, frame.stack) if item in (Item.VALUE, Item.HANDLING)]
        stack = [getattr(value, "handled", value) for value in kept]
        return rematerialise.start, [
            GeneratorFunction(frame, code),
            *stack,
            *(frame.locals[name] for name in names),
        ]


class GeneratorFunction(Part):
    """A function over the cells of a generator's frame."""

    def __init__(self, frame: Interpreter, code: types.CodeType) -> None:
        self.frame = frame
        self.code = code

    def cells(self) -> list[Value]:
        return [self.frame.cells[name] for name in self.code.co_freevars]

    def operands(self) -> Sequence[Value]:
        return self.cells()

    def push(self, codegen: Codegen) -> None:
        namespace = Made(GlobalsOf(self.frame.f_globals))
        parts = [exact(self.code), namespace, exact(self.code.co_name), exact(None)]
        codegen.make(types.FunctionType, [*parts, Made(TUPLE, *self.cells())])


def _item_of(value: Any) -> Item:
    if value is NULL:
        return Item.NULL
    if value is UNBOUND:
        return Item.UNBOUND
    return Item.HANDLING if isinstance(value, PreviousException) else Item.VALUE


def make_closed(function: Any, names: tuple[str, ...], *args: Any) -> Any:
    made = rematerialise.call_again(function, names, *args)
    made.close()
    return made


def finished_generator(name: str, qualname: str) -> Any:
    """A generator that has run to its end."""
    made: Any = (None for _ in ())
    made.close()
    made.__name__, made.__qualname__ = name, qualname
    return made


class GeneratorMethodValue(Value):
    """generator.send and so on, not yet called."""

    def __init__(self, generator: Resumable, name: str) -> None:
        super().__init__()
        self.generator = generator
        self.name = name

    def python_type(self) -> type:
        return type_of_bound(class_lookup(self.generator.python_type(), self.name))

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "__self__":
            return self.generator
        return ConstantValue(self.name) if name == "__name__" else super().getattr(tx, name)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.generator.call_method(tx, self.name, args, kwargs)

    def tail_call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if not kwargs:
            drive(self.name, tx, self.generator, *args)
        return self.call(tx, args, kwargs)

    def recipe(self) -> Recipe:
        return Attribute(self.name), [self.generator]


def drive(name: str, tx: Interpreter, generator: Value, *args: Value) -> None:
    """Prepare the resumption of generator.name(*args), if the current instruction is that call:
    after a graph break inside, a call of rematerialise's functions takes its place.
    """
    if tx.current.op != "CALL" or not isinstance(generator, Resumable):
        return
    if name != "__next__" and name not in SENDING:
        return
    kind: Any = generator.python_type()
    rest = [NONE for _ in args]
    again: Any = rematerialise.proceed
    if name == "close":
        again = rematerialise.finish_closing
    elif len(args) < 2:
        again = kind.send if args else kind.__next__
    if tx.current.arg == len(args):  # generator.name(*args)
        tx.resumes(generator, [tx.wrap(again), generator, *rest])
    elif tx.current.arg == len(args) + 1:  # type(generator).name(generator, *args)
        tx.resumes(generator, [tx.wrap(again), NULL, generator, *rest])


# -- methods --------------------------------------------------------------------------------------
def _stop_unless(tx: Interpreter, generator: Resumable, value: Value | None) -> Value:
    if value is not None:
        return value
    result = generator.return_value
    tx.raise_exception(tx.wrap(StopIteration).call(tx, [] if is_none(result) else [result], {}))


def next_method(generator: Resumable, tx: Interpreter) -> Value:
    return _stop_unless(tx, generator, generator.resume(tx, NONE))


def send_method(generator: Resumable, tx: Interpreter, value: Value) -> Value:
    return _stop_unless(tx, generator, generator.resume(tx, value))


def throw_method(generator: Resumable, tx: Interpreter, kind: Value, *rest: Value) -> Value:
    return _stop_unless(tx, generator, generator.throw(tx, thrown(tx, kind, *rest)))


def thrown(tx: Interpreter, kind: Value, *rest: Value) -> Value:
    """The exception that throw(value), throw(type) or throw(type, value, traceback) raises."""
    if rest and versions.THROW_OF_PARTS_WARNS:
        text = "the (type, exc, tb) signature of throw() is deprecated, "
        text += "use the single-arg signature instead."
        arguments = [ConstantValue(text), tx.wrap(DeprecationWarning)]
        tx.wrap(warnings.warn).call(tx, arguments, {})
    frames = getattr(rest[0], "frames", ()) if rest else ()
    if len(rest) > 1 and not is_none(rest[1]) and getattr(rest[1], "frames", None) is not frames:
        raise Unsupported(breaks.AttributeMutation(kind.describe(), "__traceback__"))
    known, cls = kind.identity()
    if known and isinstance(cls, type) and issubclass(cls, BaseException):
        if rest and _is_exception(rest[0]):
            return rest[0]
        return new_raised(tx, kind, [] if not rest or is_none(rest[0]) else rest[:1])
    if not _is_exception(kind):
        name = kind.python_type().__name__
        text = f"exceptions must be classes or instances deriving from BaseException, not {name}"
        raise_python(tx, TypeError, text)
    return kind


def _is_exception(value: Value) -> bool:
    return issubclass(value.python_type(), BaseException)


def close_method(generator: Resumable, tx: Interpreter) -> Value:
    return generator.close(tx)


def itself(generator: Resumable, tx: Interpreter) -> Value:
    return generator


SENDING: dict[str, Callable[..., Value]] = {
    "send": send_method,
    "throw": throw_method,
    "close": close_method,
}
GeneratorValue.methods = {"__next__": next_method, "__iter__": itself, **SENDING}
