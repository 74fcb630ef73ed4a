"""Exception groups of the captured program, and what `except*` does with them.

try: raise ExceptionGroup("g", [ValueError(), TypeError()])
except* ValueError as e: ...          CHECK_EG_MATCH: split the group, handle one part
                                      PREP_RERAISE_STAR: what is left, and what was raised
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.constant import ConstantValue
from dynamo.values.containers import ListValue, TupleValue
from dynamo.values.dummy_operands import dummy_operand, fail_as
from dynamo.values.exception_objects import ExceptionValue, TracebackOf
from dynamo.values.exceptions import call_real, caught_classes, is_caught, raise_python
from dynamo.values.lookup import type_holds
from dynamo.values.objects import ClassOf
from dynamo.values.recipes import TUPLE, Made, Recipe

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

Matches = Callable[[Value], bool]
NONE = ConstantValue(None)


class GroupValue(ExceptionValue):
    """An ExceptionGroup that the frame makes; its exceptions are a tuple of their own."""

    def __init__(self, cls: type, args: list[Value], exceptions: list[Value]) -> None:
        super().__init__(cls, args)
        self.message = args[0]
        self.exceptions = TupleValue(exceptions)

    def children(self) -> Sequence[Value]:
        return [*super().children(), self.exceptions]

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "message":
            return self.message
        return self.exceptions if name == "exceptions" else super().getattr(tx, name)

    def text(self) -> str:
        count = len(self.exceptions.contents)
        return f"{self.message.as_constant()} ({count} sub-exception{'s' if count > 1 else ''})"

    def py_derive(self, tx: Interpreter, exceptions: Value) -> Value:
        return make_group(tx, BaseExceptionGroup, [self.message, exceptions])

    def py_split(self, tx: Interpreter, condition: Value) -> Value:
        match, rest = split(tx, self, _condition(tx, condition))
        return TupleValue([match or NONE, rest or NONE])

    def py_subgroup(self, tx: Interpreter, condition: Value) -> Value:
        return split(tx, self, _condition(tx, condition))[0] or NONE

    def recipe(self) -> Recipe:
        traceback = TracebackOf(self.frames, self.tail)
        parts = [Made(TUPLE, *self.args), self.message, self.exceptions, traceback]
        return new_group, [ClassOf(self.cls), *parts]


def new_group(
    cls: type[BaseExceptionGroup],
    args: tuple,
    message: str,
    exceptions: tuple,
    traceback: types.TracebackType | None,
) -> BaseException:
    """A group without its class's own __init__ (that was captured)."""
    group = BaseExceptionGroup.__new__(cls, message, exceptions)
    group.args = args
    return group.with_traceback(traceback)


def make_group(tx: Interpreter, cls: type, args: Sequence[Value]) -> Value:
    """BaseExceptionGroup.__new__(cls, message, exceptions)."""
    if type_holds(cls, "__del__"):  # of the dummy group
        raise Unsupported(breaks.UncapturedCall(f"{cls.__name__}()"))
    if len(args) != 2 or not type_holds(args[1].python_type(), "__getitem__"):
        fail_as(tx, BaseExceptionGroup, *args)
    message = "" if issubclass(args[0].python_type(), str) else dummy_operand(args[0])
    exceptions = args[1].unpack(tx)
    group = call_real(tx, BaseExceptionGroup.__new__, cls, message, [*map(_dummy, exceptions)])
    return tx.output.side_effects.track_new(GroupValue(type(group), list(args), exceptions))


def _dummy(item: Value) -> Any:
    """An exception of the same kind, plain or not; for others, a dummy operand."""
    for kind in (Exception, BaseException):
        if issubclass(item.python_type(), kind):
            return kind()
    return dummy_operand(item)


# -- splitting ------------------------------------------------------------------------------------
def _condition(tx: Interpreter, value: Value) -> Matches:
    """What split() and subgroup() take: classes of exceptions, or a predicate."""
    known, cls = value.identity()
    if (known and isinstance(cls, type)) or issubclass(value.python_type(), tuple):
        classes = caught_classes(tx, value)
        return lambda item: is_caught(item.python_type(), classes)
    return lambda item: tx.call_function(value, [item], {}).truth(tx)


def split(tx: Interpreter, item: Value, matches: Matches) -> tuple[Value | None, Value | None]:
    """(the part of the exception that matches, the rest)."""
    if matches(item):
        return item, None
    if not isinstance(item, GroupValue):
        if issubclass(item.python_type(), BaseExceptionGroup):
            raise Unsupported(breaks.UnknownType(item.describe()))
        return None, item
    parts = [split(tx, inner, matches) for inner in item.exceptions.wrapped()]
    found = [match for match, _ in parts if match is not None]
    rest = [other for _, other in parts if other is not None]
    return _subset(tx, item, found), _subset(tx, item, rest)


def _subset(tx: Interpreter, group: GroupValue, exceptions: list[Value]) -> Value | None:
    if not exceptions:
        return None
    held = tx.output.side_effects.track_new(ListValue(exceptions))
    part = group.call_method(tx, "derive", [held], {})
    if not isinstance(part, GroupValue):
        raise Unsupported(breaks.UnknownType(part.describe()))
    part.frames = group.frames
    for name in ("__context__", "__cause__"):
        part.setattr(tx, name, group.getattr(tx, name))
    notes = tx.output.side_effects.load_attr(group, "__notes__")
    if isinstance(notes, Value):
        copied = tx.output.side_effects.track_new(ListValue(notes.unpack(tx)))
        part.setattr(tx, "__notes__", copied)
    return part


def match_group(tx: Interpreter, item: Value, classes: tuple[type, ...]) -> tuple[Value, Value]:
    """(what `except* classes` handles, what it leaves), each None if there is nothing."""
    if any(issubclass(cls, BaseExceptionGroup) for cls in classes):
        text = "catching ExceptionGroup with except* is not allowed. Use except instead."
        raise_python(tx, TypeError, text)
    match, rest = split(tx, item, lambda inner: is_caught(inner.python_type(), classes))
    if match is item and not isinstance(item, GroupValue):
        held = tx.output.side_effects.track_new(ListValue([item]))
        match = make_group(tx, BaseExceptionGroup, [ConstantValue(""), held])
    return match or NONE, rest or NONE


# -- raising again --------------------------------------------------------------------------------
def prepare_reraise(tx: Interpreter, original: Value, exceptions: Sequence[Value]) -> Value:
    """What a try with except* raises at its end: `exceptions` are what the clauses raised, and what
    none of them handled; None: nothing.
    """
    left = [item for item in exceptions if not (item.is_constant() and item.as_constant() is None)]
    if not isinstance(original, GroupValue):
        return left[0] if left else NONE
    again = [item for item in left if _same_metadata(tx, item, original)]
    raised = [item for item in left if not _same_metadata(tx, item, original)]
    unhandled = _projection(tx, original, again) if again else None
    if not raised:
        return unhandled or NONE
    if unhandled is not None:
        raised.append(unhandled)
    if len(raised) == 1:
        return raised[0]
    held = tx.output.side_effects.track_new(ListValue(raised))
    return make_group(tx, BaseExceptionGroup, [ConstantValue(""), held])


def _same_metadata(tx: Interpreter, item: Value, original: GroupValue) -> bool:
    if not isinstance(item, ExceptionValue) or item.frames is not original.frames:
        return False

    def linked(value: ExceptionValue, name: str) -> Any:
        link = value.getattr(tx, name)
        return None if link.is_constant() else link

    return all(linked(item, n) is linked(original, n) for n in ("__cause__", "__context__"))


def _projection(tx: Interpreter, original: Value, kept: Sequence[Value]) -> Value | None:
    """The part of `original` whose leaves are those of `kept`."""
    leaves = {id(leaf) for item in kept for leaf in _leaves(item)}
    return split(tx, original, lambda item: id(item) in leaves)[0]


def _leaves(item: Value) -> list[Value]:
    if not isinstance(item, GroupValue):
        return [item]
    return [leaf for inner in item.exceptions.wrapped() for leaf in _leaves(inner)]
