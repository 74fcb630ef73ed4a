"""Immutable objects of the standard library: dates and times, Decimal, Fraction; and the texts
(once they have varied) and named tuples that operations with them give.

An operation with them is pure, and done while capturing. What an operation gives of an object from
outside is again a function of that object (`origin`, a CallSource): guards ask no more of the
object than the program has asked, and a number that a method gives may vary. Of two objects from
outside in one operation, one is guarded to be as it was; an operation of two that vary breaks the
graph. A clock is read before the graph, or breaks it (values/effects/drawn_numbers.py).
"""

from __future__ import annotations

import copy
import datetime
import decimal
import fractions
import functools
import hashlib
import operator
import sys
import types
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, CallSource, ModuleSource, Source
from dynamo.values.base import Value
from dynamo.values.builder import special_builder
from dynamo.values.builtins.table import TABLE, BuiltinMethod, real_object
from dynamo.values.classes.lookup import MISSING, class_lookup
from dynamo.values.containers.containers import TupleValue
from dynamo.values.effects.drawn_numbers import hoist_clock
from dynamo.values.objects.descriptors import class_value
from dynamo.values.objects.exceptions import call_real
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.recipes import Existing, Loaded, Recipe, exact
from dynamo.values.scalars.constant import is_literal
from dynamo.values.scalars.operators import BINARY_FUNCTIONS, COMPARE_FUNCTIONS, UNARY_FUNCTIONS
from dynamo.values.scalars.symbol import SymbolValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_DATES = (datetime.date, datetime.datetime, datetime.time, datetime.timedelta)
_KINDS = frozenset((*_DATES, decimal.Decimal, fractions.Fraction))
_WEEK = type(datetime.date.min.isocalendar())
_CLOCKS = ("now", "utcnow", "today")
# Methods that ask for the local time zone or the locale.
_IN_EACH_CALL = frozenset(
    ["timestamp", "astimezone", "strftime", "strptime", "fromtimestamp", "ctime", "__format__"]
)


def _is_zone(zone: Any) -> bool:
    """Whether a tzinfo runs no code of the program's."""
    zoneinfo = sys.modules.get("zoneinfo")
    return type(zone) is datetime.timezone or (
        zoneinfo is not None and type(zone) is zoneinfo.ZoneInfo
    )


def _is_immutable(obj: Any) -> bool:
    if type(obj) not in _KINDS:
        return False
    zone = getattr(obj, "tzinfo", None)
    return zone is None or _is_zone(zone)


@dataclass(frozen=True)
class _Reached:
    """An operand that is a function of the one object from outside: the last of these steps."""

    steps: tuple[Callable[[Any], Any], ...]

    def __call__(self, base: Any) -> Any:
        return functools.reduce(lambda reached, step: step(reached), self.steps, base)


@dataclass(frozen=True)
class Operation:
    """function(*args, **kwargs), of operands of which some are functions of one object from
    outside. Operations of one text are one.
    """

    text: str
    function: Callable[..., Any] = field(compare=False)
    args: tuple[Any, ...] = field(compare=False)
    kwargs: dict[str, Any] = field(compare=False)

    @functools.cached_property
    def cost(self) -> int:
        """The number of operations that one evaluation runs."""
        operands = [*self.args, *self.kwargs.values()]
        reached = (operand for operand in operands if type(operand) is _Reached)
        return 1 + sum(getattr(step, "cost", 1) for one in reached for step in one.steps)

    def __call__(self, base: Any) -> Any:
        args = [arg(base) if type(arg) is _Reached else arg for arg in self.args]
        named = self.kwargs.items()
        kwargs = {name: arg(base) if type(arg) is _Reached else arg for name, arg in named}
        return self.function(*args, **kwargs)


class ImmutableValue(Value):
    """An object that cannot change. origin: how the rewritten frame and guards come by the object;
    None: the object is known, by the guards that there are.
    """

    is_guarded_distinct = True

    def __init__(
        self, tx: Interpreter, real: Any, source: Source | None, origin: Source | None
    ) -> None:
        super().__init__(source)
        self.output = tx.output
        self.real = real
        self.origin = origin

    def python_type(self) -> type:
        return type(self.real)

    def describe(self) -> str:
        return repr(self.real)

    def as_constant(self) -> Any:
        self.pin()
        return self.real

    def as_proxy(self) -> Any:
        raise Unsupported(breaks.NotGraphArgument(self.describe()))

    def pin(self) -> None:
        """Guard that the object is as now, unless another one was seen before."""
        origin = self.origin
        if origin is None:
            return
        if self.varies():
            raise Unsupported(breaks.NotConstant(self.describe()))
        kind, text = type(self.real), repr(self.real)

        def is_as_captured(now: Any) -> bool:
            return type(now) is kind and repr(now) == text

        is_as_captured.__name__ = f"is {text}"
        self.output.guard(origin, "predicate", is_as_captured)
        self.origin = None

    def varies(self) -> bool:
        """Whether another such object was seen."""
        origin = self.origin
        if origin is None:
            return False
        return origin.made_by_frame or self.output.symbols.is_another(repr(self.real), origin)

    def has_special(self, tx: Interpreter, name: str) -> bool:
        held = class_lookup(type(self.real), name)
        return held is not MISSING and held is not class_lookup(object, name)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return hasattr(self.real, name)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        held = class_lookup(type(self.real), name)
        if name == "__class__" or held is MISSING:
            return super().getattr(tx, name)
        of_class = isinstance(held, classmethod | types.ClassMethodDescriptorType)
        if of_class or not hasattr(type(held), "__get__"):
            return class_value(tx, type(self.real), self.source).getattr(tx, name)
        if isinstance(held, types.FunctionType):  # of Fraction
            return ImmutableMethod(self, name)
        if callable(held):
            return super().getattr(tx, name)
        return operate(tx, getattr, [self, tx.constant(name)], {}, name)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        held = class_lookup(type(self.real), name)
        if held is MISSING or isinstance(held, classmethod | types.ClassMethodDescriptorType):
            return super().call_method(tx, name, args, kwargs)
        if not callable(held):
            return super().call_method(tx, name, args, kwargs)
        return operate(tx, held, [self, *args], kwargs, name)

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        if op.endswith("=") or not self._answers(other):
            return None
        operands = (other, self) if reflected else (self, other)
        return operate(tx, BINARY_FUNCTIONS[op], operands, {}, op)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if not self._answers(other):
            return None
        return operate(tx, COMPARE_FUNCTIONS[op], [self, other], {}, op)

    def _answers(self, other: Value) -> bool:
        """Whether the class's own methods know such an operand; others are asked themselves."""
        if isinstance(other, ObjectValue) and type(self.real) is fractions.Fraction:
            raise Unsupported(breaks.UncapturedCall("an operator of Fraction"))
        return isinstance(other, ImmutableValue) or other.is_constant() or other.is_symbolic()

    def unary(self, tx: Interpreter, op: str) -> Value | None:
        return operate(tx, UNARY_FUNCTIONS[op], [self], {}, op)

    def truth(self, tx: Interpreter) -> bool:
        return operate(tx, bool, [self], {}, "bool").as_constant()

    def length(self, tx: Interpreter) -> int:
        return self.length_value(tx).as_constant()

    def length_value(self, tx: Interpreter) -> Value:
        return operate(tx, len, [self], {}, "len")

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        return operate(tx, operator.getitem, [self, key], {}, "item")

    def unpack(self, tx: Interpreter) -> list[Value]:
        if not isinstance(self.real, tuple | str):
            raise Unsupported(breaks.NotIterable(self.describe()))
        return [self.getitem(tx, tx.constant(i)) for i in range(self.length(tx))]

    def iterate(self, tx: Interpreter) -> Value:
        return tx.new_tuple(self.unpack(tx)).iterate(tx)

    def contains(self, tx: Interpreter, item: Value) -> Value:
        return operate(tx, operator.contains, [self, item], {}, "contains")

    def hash_key(self, tx: Interpreter) -> Hashable:
        return self.as_constant()

    def copied(self, tx: Interpreter) -> Value:
        """copy.copy(value): of some types a new object."""
        return operate(tx, copy.copy, [self], {}, "copy")

    def recipe(self) -> Recipe:
        if self.origin is not None:
            return Loaded(self.origin), []
        if self.outside is not None:
            return Existing(self.real, type(self.real).__name__), []
        return _again, [exact(self.real)]


def _again(obj: Any) -> Any:
    """An equal new object."""
    if type(obj) is _WEEK:  # of which copies are plain tuples
        return datetime.date.fromisocalendar(*obj).isocalendar()
    make, args = obj.__reduce_ex__(2)[:2]
    return make(*args)


class ImmutableMethod(BuiltinMethod):
    """A bound method that is said in Python, and called while capturing."""

    def python_type(self) -> type:
        return types.MethodType


def operate(
    tx: Interpreter,
    function: Callable[..., Any],
    args: Sequence[Value],
    kwargs: dict[str, Value],
    name: str,
) -> Value:
    """The result of a pure function of immutable objects and constants."""
    values = [*args, *kwargs.values()]
    objects = [value for value in values if isinstance(value, ImmutableValue)]
    base = _base_of(objects)
    real = [_operand(value) for value in args]
    named = {key: _operand(value) for key, value in kwargs.items()}
    if base is None and _depends_on_surroundings(name, function, [*real, *named.values()]):
        base = ModuleSource("decimal")
    source = None if base is None else _step(base, function, args, kwargs, name)
    if base is not None and source is not None and source.fn.cost > _COSTLY:
        for value in objects:
            value.pin()
        of_call = isinstance(base, ModuleSource)
        source = _step(base, function, args, kwargs, name) if of_call else None
    try:
        result = function(*real, **named)
    except Exception:
        if function is decimal.Decimal or any(type(one) is decimal.Decimal for one in real):
            raise Unsupported(breaks.UncapturedCall(name)) from None  # the context sets traps
        for value in objects:
            value.pin()
        return call_real(tx, function, *real, **named)
    for value in objects:
        if value.real is result:
            return value
    return _wrapped(tx, result, source, name, objects)


_LONG_TEXT = 200
_COSTLY = 32  # operations that a guard runs for one result


def _operand(value: Value) -> Any:
    return value.real if isinstance(value, ImmutableValue) else real_object(value)


def _step(
    base: Source,
    function: Callable[..., Any],
    args: Sequence[Value],
    kwargs: dict[str, Value],
    name: str,
) -> CallSource:
    """The source of the operation's result."""

    def operand(value: Value) -> tuple[Any, str]:
        origin = value.origin if isinstance(value, ImmutableValue) else None
        if origin is None:
            real = _operand(value)
            return real, repr(real)
        chain = _chain(origin)
        steps = [step.fn for step in chain[: chain.index(base)] if isinstance(step, CallSource)]
        return _Reached(tuple(reversed(steps))), steps[0].text if steps else "_"

    positional = [operand(value) for value in args]
    named = {key: operand(value) for key, value in kwargs.items()}
    texts = [*(text for _, text in positional), *(f"{k}={text}" for k, (_, text) in named.items())]
    text = f"{name}({', '.join(texts)})"
    if len(text) > _LONG_TEXT:
        text = f"{name}({hashlib.sha256(text.encode()).hexdigest()})"
    given = {key: real for key, (real, _) in named.items()}
    made = Operation(text, function, tuple(real for real, _ in positional), given)
    return CallSource(base, made, text)


def _chain(origin: Source) -> list[Source]:
    """The sources through which operations lead to this one, and the object from outside."""
    chain = [origin]
    while isinstance(origin, CallSource) and isinstance(origin.fn, Operation):
        origin = origin.origin
        chain.append(origin)
    return chain


def _base_of(objects: Sequence[ImmutableValue]) -> Source | None:
    """The source of which those are functions that stay open; the others are guarded, as far as
    they have not varied.
    """
    open_ones = [value for value in objects if value.origin is not None]
    open_ones.sort(key=lambda value: not value.varies())
    base: Source | None = None
    for value in open_ones:
        assert value.origin is not None, "it is open"
        chain = _chain(value.origin)
        if base is None:
            base = chain[0]
            continue
        shared = next((step for step in _chain(base) if step in chain), None)
        if shared is None:
            value.pin()
        else:
            base = shared
    return base


def _depends_on_surroundings(name: str, function: Any, operands: Sequence[Any]) -> bool:
    """Whether the result may be another one in a later call: by the decimal context, the local time
    zone, the locale.
    """
    if any(type(operand) is decimal.Decimal for operand in operands):
        return True
    return function is decimal.Decimal or name.rpartition(".")[2] in _IN_EACH_CALL


def _wrapped(
    tx: Interpreter,
    result: Any,
    source: Source | None,
    name: str,
    objects: Sequence[ImmutableValue],
) -> Value:
    if _is_immutable(result) or (isinstance(result, tuple) and type(result) is not tuple):
        _guard_kind(tx, result, source)
        return ImmutableValue(tx, result, None, source)
    if source is not None and source.made_by_frame:
        return _of_clock(tx, result, source, name)
    if _is_zone(result) and isinstance(source, CallSource):
        held = source.fn.function is getattr and not isinstance(source.origin, CallSource)
        if held:  # by an object from outside, in each call the same one
            return tx.wrap(result, source)
    if is_literal(result) and type(result) is not tuple:
        if type(result) is str and source is not None and _text_varies(result, source, objects):
            tx.guard(source, "type", str)
            return ImmutableValue(tx, result, None, source)
        return tx.wrap(result, source)
    for value in objects:
        value.pin()
    known = type(result) is tuple or _is_zone(result)
    if not known or (source is not None and not objects):
        raise Unsupported(breaks.UncapturedCall(name))
    if type(result) is tuple:
        return TupleValue([_wrapped(tx, item, None, name, ()) for item in result])
    return tx.wrap(result)


def _text_varies(text: str, source: Source, objects: Sequence[ImmutableValue]) -> bool:
    """Whether an operand is a text that varies, or other texts were seen."""
    if any(type(value.real) is str and value.origin is not None for value in objects):
        return True
    return objects[0].output.symbols.is_another(text, source) if objects else False


def _of_clock(tx: Interpreter, result: Any, source: Source, name: str) -> Value:
    """The result of an operation with a time that each call reads anew."""
    if type(result) is str:
        return ImmutableValue(tx, result, None, source)
    if type(result) is not float or not tx.output.symbols.allowed:
        raise Unsupported(breaks.UncapturedCall(name))
    return SymbolValue(tx.output, tx.output.symbols.drawn(float, None, None, source), source)


def _guard_kind(tx: Interpreter, obj: Any, source: Source | None) -> None:
    tx.guard(source, "type", type(obj))
    if type(obj) in (datetime.datetime, datetime.time) and source is not None:
        zone = obj.tzinfo
        kind = "none" if zone is None else "type"
        tx.guard(AttrSource(source, "tzinfo"), kind, None if zone is None else type(zone))


@special_builder(_is_immutable)
def build_immutable(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    _guard_kind(tx, obj, source)
    return tx.output.remember(obj, source, ImmutableValue(tx, obj, source, source))


def _maker(function: Callable[..., Any], name: str) -> Callable[..., Value]:
    """A constructor or class method."""

    def make(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        return operate(tx, function, args, kwargs, name)

    return make


def _clock(function: Callable[..., Any]) -> Callable[..., Value]:
    def read(tx: Interpreter, *args: Value) -> Value:
        zones = [real_object(value) for value in args]
        if not all(zone is None or _is_zone(zone) for zone in zones):
            raise Unsupported(breaks.UncapturedCall(function.__qualname__))
        call = functools.partial(function, *zones)
        return ImmutableValue(tx, call(), None, hoist_clock(tx, call, function.__qualname__))

    return read


def _register() -> None:
    for cls in (*_KINDS, datetime.timezone):
        TABLE[cls] = _maker(cls, cls.__name__)
        for name in dir(cls):
            held = class_lookup(cls, name)
            if not isinstance(held, types.ClassMethodDescriptorType) or name.startswith("__"):
                continue
            function = getattr(cls, name)
            of_clock = name in _CLOCKS
            named = f"{cls.__name__}.{name}"
            TABLE[function] = _clock(function) if of_clock else _maker(function, named)


_register()
