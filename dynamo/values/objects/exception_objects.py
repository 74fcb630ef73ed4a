"""Exception objects of the captured program."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.continuations.shim_frames import showing
from dynamo.errors import Unsupported
from dynamo.values.base import Value, is_none
from dynamo.values.builder import subclass_builder
from dynamo.values.classes.builtin_bases import builtin_base
from dynamo.values.containers.containers import ListValue, TupleValue
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.descriptors import class_lookup
from dynamo.values.objects.exceptions import Frames, call_real, raise_python
from dynamo.values.objects.objects import ClassOf, ObjectValue, build_object
from dynamo.values.recipes import (
    LIST,
    TUPLE,
    Made,
    Part,
    Recipe,
    arguments,
    attribute_stores,
    exact,
)
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.framestate.materialise import Codegen
    from dynamo.guards.sources import Source
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph
# A function that returns its frame, and the offset of the instruction that did so.
Shown = tuple[types.FunctionType, int]
_LINKS = ("__cause__", "__context__", "__suppress_context__", "__traceback__")


class ExceptionValue(ObjectValue):
    """An exception that the frame makes: its class, its arguments, and its context."""

    def __init__(self, cls: type, args: list[Value]) -> None:
        super().__init__(cls)
        self.args = args
        # The arguments of the last call of the C class's own __init__; None: there was none.
        self.init: tuple[list[Value], dict[str, Value]] | None = None
        self.complete = True  # False: Python would have set fields that are not known here
        self.links: dict[str, Value] = {}
        self.frames: Frames = ()
        self.tail: TracebackValue | None = None  # that it was given: the last of the frames
        self.args_tuple: tuple[list[Value], Value] | None = None
        self.kept: Sequence[Value] = ()  # objects that the traceback alone holds

    def children(self) -> Sequence[Value]:
        args, kwargs = self.init or ((), {})
        return [*self.args, *self.links.values(), *args, *kwargs.values(), *self.kept]

    def keep(self, output: OutputGraph, values: Sequence[Value]) -> None:
        """Have a frame of the traceback hold `values`."""
        traceback = traceback_of(output, self.frames, self.tail)
        if isinstance(traceback, TracebackValue):
            self.kept = traceback.kept = values

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "args":
            return self._args_tuple()
        if name == "__traceback__":
            return traceback_of(tx.output, self.frames, self.tail)
        if name in _LINKS:
            default = ConstantValue(False if name == "__suppress_context__" else None)
            return self.links.get(name, default)
        if name in ("with_traceback", "add_note"):
            return tx.builtin_method(self, name)
        if is_own_field(self.cls, name):
            stored = tx.output.side_effects.load_attr(self, name)
            return stored if isinstance(stored, Value) else self._field(tx, name)
        return super().getattr(tx, name)

    def _field(self, tx: Interpreter, name: str) -> Value:
        """A field that __init__ of the C class set from its arguments (StopIteration.value, errno,
        ...).
        """
        if self.init is None or not self.complete:
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        args, kwargs = self.init
        if name in kwargs:
            return kwargs[name]
        if name in _FIRST_ARGUMENT and len(args) == 1 and not kwargs:
            return args[0]
        real = builtin_base(self.cls)(*(a.as_constant() for a in args))
        return tx.wrap(call_real(tx, getattr, real, name))

    def _args_tuple(self) -> Value:
        """`args`, one object until the program assigns another."""
        held = self.args_tuple
        if held is None or held[0] is not self.args:
            held = self.args_tuple = (self.args, TupleValue(self.args))
        return held[1]

    def py_with_traceback(self, tx, traceback):
        self.setattr(tx, "__traceback__", traceback)
        return self

    def py_add_note(self, tx, note):
        if not issubclass(note.python_type(), str):
            kind = note.python_type().__name__
            raise_python(tx, TypeError, f"note must be a str, not '{kind}'")
        if not self.hasattr(tx, "__notes__"):
            self.setattr(tx, "__notes__", tx.output.side_effects.track_new(ListValue([])))
        self.getattr(tx, "__notes__").call_method(tx, "append", [note], {})

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        if name == "__traceback__":
            self._set_traceback(tx, value)
        elif name in _LINKS:
            tx.output.side_effects.mark(self)
            self.links[name] = value
            if name == "__cause__":
                self.links["__suppress_context__"] = ConstantValue(True)
        elif name == "args":
            tx.output.side_effects.mark(self)
            self.args = value.unpack(tx)
        else:
            super().setattr(tx, name, value)

    def _set_traceback(self, tx: Interpreter, value: Value) -> None:
        if isinstance(value, TracebackValue):
            self.frames, self.tail = value.frames, value
        elif is_none(value):
            self.frames, self.tail = (), None
        else:
            raise Unsupported(breaks.AttributeMutation(self.describe(), "__traceback__"))

    def link_context(self, tx: Interpreter, handled: Value | None) -> None:
        """Raised while `handled` is handled: that becomes the __context__, without a cycle."""
        if handled is None or handled is self or self.links.get("__context__") is handled:
            return
        link: Value | None = handled
        seen: list[Value] = []  # a program may have made a cycle
        while isinstance(link, ExceptionValue) and link not in seen:
            seen.append(link)
            if link.links.get("__context__") is self:
                link.setattr(tx, "__context__", ConstantValue(None))
            link = link.links.get("__context__")
        self.setattr(tx, "__context__", handled)

    def text(self) -> str:
        """str(exception), for constant arguments."""
        real = [a.as_constant() for a in self.args]
        if make_natively(self.cls, self.args):
            return str(builtin_base(self.cls)(*real))
        if issubclass(self.cls, KeyError) and len(real) == 1:
            return repr(real[0])
        return str(real[0]) if len(real) == 1 else str(tuple(real)) if real else ""

    def describe(self) -> str:
        try:
            return f"{self.cls.__name__}({self.text()})"
        except Unsupported:
            return self.cls.__name__

    def recipe(self) -> Recipe:
        if not self.complete:
            raise Unsupported(breaks.CannotReconstruct(self.describe()))
        parts = [ClassOf(self.cls), self._args_tuple(), TracebackOf(self.frames, self.tail)]
        if self.init is not None and has_own_fields(self.cls):
            parts += arguments(*self.init)
        return new_exception, parts

    def fill(self) -> Sequence[Recipe]:
        links = reversed(self.links.items())  # that of __cause__ comes before what it implies
        stores = (attribute_stores(self, name, value) for name, value in links)
        return [*itertools.chain.from_iterable(stores), *super().fill()]


class TracebackValue(Value):
    """A __traceback__ of exceptions that the frame made; the same tuple of frames is the same
    object. `tail`: another, which the last of the frames are.
    """

    def __init__(self, frames: Frames, tail: TracebackValue | None = None) -> None:
        super().__init__()
        self.frames = frames
        self.tail = tail
        self.kept: Sequence[Value] = ()

    def python_type(self) -> type:
        return types.TracebackType

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "tb_lineno":
            return ConstantValue(self.frames[0].positions[0])
        if name == "tb_next" and len(self.frames) == 1:
            return ConstantValue(None)
        return super().getattr(tx, name)

    def recipe(self) -> Recipe:
        own = len(self.frames) - (len(self.tail.frames) if self.tail is not None else 0)
        shown = [showing(e.code, e.namespace, e.positions, e.left) for e in self.frames[:own]]
        tail = self.tail if self.tail is not None else ConstantValue(None)
        if not self.kept:
            return make_traceback, [exact(tuple(shown)), tail]
        kept = Made(LIST, tail, Made(TUPLE, *self.kept))
        return make_holding_traceback, [exact(tuple(shown)), kept]

    def children(self) -> Sequence[Value]:
        return self.kept if self.tail is None else (self.tail, *self.kept)


def traceback_of(output: OutputGraph, frames: Frames, tail: TracebackValue | None) -> Value:
    """The traceback of an exception that went through `frames`; None for one not yet raised."""
    if not frames:
        return ConstantValue(None)
    known = output.tracebacks.get(id(frames))
    if known is None:
        if tail is not None and len(tail.frames) >= len(frames):
            tail = None
        known = output.tracebacks[id(frames)] = TracebackValue(frames, tail)
    return known


class TracebackOf(Part):
    """The traceback of an exception that went through `frames`."""

    def __init__(self, frames: Frames, tail: TracebackValue | None) -> None:
        self.frames = frames
        self.tail = tail

    def push(self, codegen: Codegen) -> None:
        codegen(traceback_of(codegen.output, self.frames, self.tail))


def new_exception(
    cls: type[BaseException],
    args: tuple[Any, ...],
    traceback: types.TracebackType | None = None,
    init_args: tuple[Any, ...] | None = None,
    init_kwargs: dict[str, Any] | None = None,
) -> BaseException:
    """An exception with these arguments, by the C class's __new__ and, where that was called, its
    __init__: one that a class defines in Python was captured.
    """
    base: Any = builtin_base(cls)
    exception = base.__new__(cls, *args)
    if init_args is not None:
        base.__init__(exception, *init_args, **(init_kwargs or {}))
    exception.args = args
    return exception.with_traceback(traceback)


_FIELDS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_OF_ALL = frozenset(vars(BaseException))
# Fields that hold the first argument as it is.
_FIRST_ARGUMENT = frozenset(["value", "code", "msg"])


def is_own_field(cls: type, name: str) -> bool:
    """Whether `name` is storage of a C exception class: errno, value, name, ..."""
    found = class_lookup(cls, name)
    return name not in _OF_ALL and isinstance(found, _FIELDS) and _is_c(found.__objclass__)


def has_own_fields(cls: type) -> bool:
    base: Any = builtin_base(cls)
    return base.__init__ not in (BaseException.__init__, Exception.__init__)


def _is_c(cls: type) -> bool:
    return issubclass(cls, BaseException) and builtin_base(cls) is cls


def make_natively(cls: type, args: Sequence[Value]) -> bool:
    """Whether the class may turn its arguments into others, or itself into a subclass, in a way
    unknown to capture.
    """
    if issubclass(cls, OSError):
        return len(args) > 1
    return issubclass(cls, (SyntaxError, UnicodeError)) and len(args) > 1


@functools.cache
def init_keywords(base: type[BaseException]) -> frozenset[str]:
    """The keywords that the __init__ of a C exception class takes."""
    fields = [name for name, field in vars(base).items() if isinstance(field, _FIELDS)]
    return frozenset(name for name in fields if _takes(base, name))


def _takes(base: Any, keyword: str) -> bool:
    try:
        base(**{keyword: None})
    except TypeError:
        return False
    return True


def make_traceback(
    frames: Sequence[Shown], traceback: types.TracebackType | None
) -> types.TracebackType | None:
    """A traceback that shows `frames`, followed by `traceback`."""
    for function, offset in reversed(frames):
        traceback = types.TracebackType(traceback, function(None), offset, -1)
    return traceback


def make_holding_traceback(frames: Sequence[Shown], parts: list[Any]) -> types.TracebackType:
    """The same. parts: `traceback`, and the objects that the first of the frames is to hold. It
    ends with the traceback: the frames hold this one, where nothing may stay.
    """
    for place in reversed(range(len(frames))):
        function, offset = frames[place]
        frame = [function(None if place else parts.pop())]
        parts[0] = types.TracebackType(parts[0], frame.pop(), offset, -1)
    return parts.pop()


@bound_late
def make_exception(
    tx: Interpreter,
    cls: type[BaseException],
    args: Sequence[Value],
    fields: Mapping[str, Value] | None = None,
) -> Value:
    """The Value of a new exception of a built-in class, which Python itself raises."""
    value = ExceptionValue(cls, list(args))
    value.init = list(args), dict(fields or {})
    # Exceptions of these classes name the object that they complain of, too.
    tells = cls is NameError or issubclass(cls, (AttributeError, ImportError))
    value.complete = bool(fields) or not tells
    return tx.output.side_effects.track_new(value)


@subclass_builder(BaseException)
def build_exception(tx: Interpreter, obj: BaseException, source: Source | None) -> Value:
    return build_object(tx, obj, source)


def name_attribute(tx: Interpreter, error: Any, owner: Value, name: str) -> None:
    """Set `owner` and `name` of an AttributeError that leaves `owner.name`, unless they are set."""
    if not isinstance(error, ExceptionValue) or not issubclass(error.cls, AttributeError):
        return
    effects = tx.output.side_effects
    given = error.init[1] if error.init is not None else {}
    if {"name", "obj"} & (given.keys() | effects.stored_attrs(error).keys()):
        return
    effects.store_attr(error, "name", ConstantValue(name))
    effects.store_attr(error, "obj", owner)
    error.complete = True
