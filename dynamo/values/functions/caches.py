"""functools.lru_cache from outside: entries are guarded, new answers are kept by the new code."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.classes import is_trusted_function
from dynamo.guards.sources import AttrSource, CallSource, SequenceItemSource, Source
from dynamo.plans import Retry
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.classes.classes import ClassValue, ObjectConstant
from dynamo.values.classes.lookup import class_lookup
from dynamo.values.containers.containers import (
    ListValue,
    SizeValue,
    TupleValue,
)
from dynamo.values.containers.dicts import DictValue
from dynamo.values.containers.hash_keys import key_of
from dynamo.values.containers.identity_keys import IdentityKey
from dynamo.values.effects.hoisted_modules import can_be_first
from dynamo.values.effects.random_state import program_draws
from dynamo.values.functions import cache_entries
from dynamo.values.functions.function import UserFunctionValue
from dynamo.values.objects.descriptors import SLOT_TYPES
from dynamo.values.objects.exceptions import RaisedException, call_real
from dynamo.values.recipes import Attribute, Existing, Recipe
from dynamo.values.scalars.constant import ConstantValue, is_literal
from dynamo.values.scalars.symbol import SymbolValue
from dynamo.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_CACHE_METHODS = frozenset(["cache_info", "cache_clear", "cache_parameters"])


class CallOf:
    """A call with these arguments, of any function: the form in which a frame asks a cache."""

    def __init__(self, args: tuple, kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs

    def _key(self) -> Hashable:
        typed = [(type(v), v) for v in (*self.args, *self.kwargs.values())]
        return (*typed, *self.kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallOf) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __call__(self, function: Callable[..., Any]) -> Any:
        return function(*self.args, **self.kwargs)


class AnswerOf(CallOf):
    """The answer that a cache holds for a call, without the call."""

    def _key(self) -> Hashable:
        return (AnswerOf, super()._key())

    def __call__(self, cache: Any) -> Any:
        if type(cache) is not functools._lru_cache_wrapper:
            return None
        values = (*self.args, *self.kwargs.values()) if cache.cache_parameters()["typed"] else ()
        key = cache_entries.elements(self.args, self.kwargs, [type(value) for value in values])
        return cache_entries.answer_to(cache, key)


class LruCacheValue(Value):
    """A function behind functools.lru_cache.

    Entries of the cache are guarded; other calls are captured, and the rewritten frame has the
    cache keep it. A function of torch's, or of the standard library's, is called by the guards,
    with constants, classes and forms of typing: nobody sees when.
    """

    def __init__(self, real: Any, wrapped: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.real = real
        self.wrapped = wrapped
        self.answers: dict[Hashable, Value] = {}  # those that the captured code made
        self.cleared = False

    def identity(self) -> tuple[bool, Any]:
        return True, self.real

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "__wrapped__":
            return self.wrapped
        if name in _CACHE_METHODS and hasattr(self.real, name):
            return CacheMethod(self, name)
        if isinstance(class_lookup(type(self.real), name), SLOT_TYPES):
            return super().getattr(tx, name)
        found = call_real(tx, getattr, self.real, name)
        return tx.wrap(found, None if self.source is None else AttrSource(self.source, name))

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        present = hasattr(self.real, name)
        tx.guard(self.source, "has_attr", (name, present))
        return present

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        values = (*args, *kwargs.values())
        if self.source is None or not all(map(_is_known, values)):
            return self._call_of_values(tx, args, kwargs)
        call = tuple(map(_real, args)), {k: _real(v) for k, v in kwargs.items()}
        objects = list(_objects_of(values))
        for value in objects:  # the cache holds them, too
            tx.guard(value.source, "id", value.outside)
        if not objects and _is_trusted(self.real):
            asked = CallOf(*call)
            return tx.wrap(call_real(tx, asked, self.real), CallSource(self.source, asked, "call"))
        held = AnswerOf(*call)
        wanted = CallSource(self.source, held, "answer")
        early = tx.output.side_effects.epoch == 0 and can_be_first(tx, None)
        try:
            return self._call_of_values(tx, args, kwargs, wanted)
        except Unsupported as error:
            if self.cleared or call_real(tx, held, self.real) is not cache_entries.ABSENT:
                raise
            error.assumed = [(wanted, "id", cache_entries.ABSENT)]
            if not (tx.output.context.fullgraph and early):
                raise
            # Nothing that the frame does comes before: as good as in its place.
            with program_draws():
                call_real(tx, CallOf(*call), self.real)
            if held(self.real) is cache_entries.ABSENT:
                raise
        raise Retry(tx.output.plan.anew("a cache has remembered an answer"))

    def _call_of_values(
        self,
        tx: Interpreter,
        args: Sequence[Value],
        kwargs: dict[str, Value],
        answer: CallSource | None = None,
    ) -> Value:
        """answer: where that of a call with known arguments is."""
        if not cache_entries.readable():
            raise Unsupported(breaks.UncapturedCall(self._name()))
        effects, names = tx.output.side_effects, tuple(kwargs)
        typed = self.real.cache_parameters()["typed"]
        kinds = [v.python_type() for v in (*args, *kwargs.values())] if typed else []
        wanted = cache_entries.elements(args, kwargs, kinds)
        varies = not tx.output.plan.fixes_numbers and any(map(_varies, wanted))
        keys = functools.partial(_expressions if varies else key_of, tx)
        key = tuple(keys(e) if isinstance(e, Value) else e for e in wanted)
        found = self.answers.get(key)
        if found is None and not varies:
            new = any(isinstance(k, IdentityKey) and _is_new(tx, k.value) for k in key)
            if answer is not None and not self.cleared:
                found = self._known_answer(tx, answer)
            else:
                found = None if new or self.cleared else self._look_up(tx, wanted)
        if found is not None:
            effects.call_later(cache_entries.hit, self, names, *args, *kwargs.values())
            return found
        if not (type(self.wrapped) is UserFunctionValue and self.wrapped.is_plain_function()):
            raise Unsupported(breaks.UncapturedCall(self._name()))
        if varies:
            result = self._computed(tx, args, kwargs)
        else:
            try:
                result = tx.call_function(self.wrapped, args, kwargs)
            except RaisedException:  # counts as a call that the cache could not answer
                raise Unsupported(breaks.UncapturedCall(self._name())) from None
        self._make_room(tx)
        self.answers[key] = result
        effects.call_later(cache_entries.store, self, names, result, *args, *kwargs.values())
        return result

    def _computed(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """The answer for numbers that vary, whatever the cache holds: those that a function without
        effects makes of its arguments alone are equal to an answer that is held.
        """
        effects = tx.output.side_effects
        try:
            with effects.fenced(), effects.untouched():
                result = tx.call_function(self.wrapped, args, kwargs)
            if _is_plain(tx, result):
                return result
        except (RaisedException, Unsupported):
            pass
        raise Retry(tx.output.plan.fixing_numbers())

    def _make_room(self, tx: Interpreter) -> None:
        """No answer is dropped for the one that the cache is given now."""
        has_room = cache_entries.HasRoom(len(self.answers) + 1, self.cleared)
        if self.source is None or not has_room(self.real):
            raise Unsupported(breaks.UncapturedCall(f"{self._name()}, which has no room"))
        tx.guard(self.source, "predicate", has_room)

    def clear(self, tx: Interpreter) -> Value:
        if type(self.wrapped) is not UserFunctionValue:
            raise Unsupported(breaks.UncapturedCall("cache_clear"))
        tx.output.side_effects.call_later(cache_entries.clear, self)
        self.answers.clear()
        self.cleared = True
        return ConstantValue(None)

    def _name(self) -> str:
        return f"the cached {getattr(self.real, '__qualname__', 'function')}"

    def _known_answer(self, tx: Interpreter, source: CallSource) -> Value | None:
        answer = call_real(tx, source.fn, self.real)
        if answer is not cache_entries.ABSENT:
            return tx.wrap(answer, source)
        tx.guard(source, "id", answer)
        return None

    def _look_up(self, tx: Interpreter, wanted: cache_entries.Elements) -> Value | None:
        """The answer that was in the cache before the frame."""
        found = cache_entries.entries(self.real)
        if self.source is None or len(found) > _MANY:
            raise Unsupported(breaks.UncapturedCall(f"{self._name()}, which holds {len(found)}"))
        base = CallSource(self.source, cache_entries.entries, "entries")
        tx.guard(base, "length", len(found))
        for index, (key, answer) in enumerate(found):
            entry = SequenceItemSource(base, index)
            if _guard_key(tx, SequenceItemSource(entry, 0), key, wanted):
                return tx.wrap(answer, SequenceItemSource(entry, 1))
        return None

    def recipe(self) -> Recipe:
        return Existing(self.real, "cached"), []


def _is_trusted(cache: Any) -> bool:
    function = cache.__wrapped__
    return isinstance(function, types.FunctionType) and is_trusted_function(function)


def _varies(element: Any) -> bool:
    if type(element) in (TupleValue, SizeValue):
        return any(map(_varies, element.wrapped()))
    return isinstance(element, SymbolValue)


def _expressions(tx: Interpreter, value: Value) -> Hashable:
    """As key_of, numbers that vary told by their expressions."""
    if type(value) in (TupleValue, SizeValue):
        return tuple(_expressions(tx, item) for item in value.wrapped())  # type: ignore[attr-defined]
    if isinstance(value, SymbolValue):
        return SymbolValue, value.symbolic.node.expr
    return key_of(tx, value)


def _is_plain(tx: Interpreter, value: Value) -> bool:
    """Whether the value is numbers, texts, parts of the arguments, and new containers of these."""
    if value.source is not None:
        return True
    if type(value) is DictValue:
        return all(_is_plain(tx, pair) for pair in value.pairs(tx))
    if type(value) in (ListValue, TupleValue, SizeValue):
        return all(_is_plain(tx, item) for item in value.items(tx))  # type: ignore[attr-defined]
    return value.is_constant() or isinstance(value, SymbolValue)


def _is_literal(value: Value) -> bool:
    if type(value) is TupleValue:
        return all(map(_is_literal, value.wrapped()))
    return value.is_constant()


def _literal(value: Value) -> Any:
    if type(value) is TupleValue:
        return tuple(map(_literal, value.wrapped()))
    return value.as_constant()


def _is_known(value: Value) -> bool:
    """Whether the argument is the same object whenever the guards hold, or may be guarded to be."""
    if type(value) in (TupleValue, SizeValue):
        return all(map(_is_known, value.wrapped()))  # type: ignore[attr-defined]
    return value.is_constant() or type(value) in (ClassValue, ObjectConstant) or _is_object(value)


def _is_object(value: Value) -> bool:
    """Whether the value is an object from outside that its identity tells from others."""
    outside = value.outside
    if value.source is None or outside is None or isinstance(outside, torch.Tensor):
        return False
    return type(value) is not ClassValue and _hashes_by_identity(outside)


def _objects_of(values: Iterable[Value]) -> Iterator[Value]:
    """The arguments that are objects, in tuples as well."""
    for value in values:
        if type(value) in (TupleValue, SizeValue):
            yield from _objects_of(value.wrapped())  # type: ignore[attr-defined]
        elif not (value.is_constant() or type(value) in (ClassValue, ObjectConstant)):
            yield value


def _real(value: Value) -> Any:
    if type(value) in (TupleValue, SizeValue):
        return value.python_type()(map(_real, value.wrapped()))  # type: ignore[attr-defined]
    if value.is_constant():
        return value.as_constant()
    return value.outside if _is_object(value) else value.identity()[1]


_MANY = 16  # entries of which each is guarded


def _is_new(tx: Interpreter, value: Any) -> bool:
    """Whether the frame made the object, so that no key of the cache has it."""
    if not isinstance(value, Value) or value.outside is not None or value.source is not None:
        return False  # an object of torch's, an operator say, is its own key
    return isinstance(value, TensorValue) or tx.output.side_effects.is_new(value)


def _guard_key(
    tx: Interpreter, source: Source, key: cache_entries.Elements, wanted: cache_entries.Elements
) -> bool:
    """Whether a key of the cache has these elements; a match is guarded."""
    tx.guard(source, "length", len(key))
    if len(key) != len(wanted):
        return False
    pairs = [(SequenceItemSource(source, i), *both) for i, both in enumerate(zip(key, wanted))]
    return all(_guard_element(tx, *pair) for pair in pairs)


def _guard_element(tx: Interpreter, place: Source, element: Any, value: Any) -> bool:
    if not isinstance(value, Value):  # the mark, or a type
        tx.guard(place, "id", element)
        return element is value
    if _is_literal(value):
        constant = _literal(value)
        if not is_literal(element) and isinstance(element, torch.Tensor):
            tx.guard(place, "type", type(element))
            return False
        tx.guard(place, "constant" if is_literal(element) else "id", element)
        return element is constant or (is_literal(element) and bool(element == constant))
    if value.outside is None or value.source is None or not _hashes_by_identity(value.outside):
        raise Unsupported(breaks.UncapturedCall(f"a cached function of {value.describe()}"))
    if element is value.outside:
        tx.guard(place, "aliased", value.source)
        return True
    if not (is_literal(element) or _hashes_by_identity(element)):
        raise Unsupported(breaks.UncapturedCall(f"a cached function of {type(element).__name__}"))
    tx.guard(None, "not_aliased", (place, value.source))
    return False


def _hashes_by_identity(obj: Any) -> bool:
    kind = type(obj)
    if isinstance(obj, torch.Tensor):
        return kind.__hash__ is torch.Tensor.__hash__
    return kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__


class CacheMethod(Value):
    """cache_info, cache_clear, cache_parameters of a cached function."""

    def __init__(self, owner: LruCacheValue, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if not args and not kwargs and self.name == "cache_clear":
            return self.owner.clear(tx)
        raise Unsupported(breaks.UncapturedCall(self.name))

    def recipe(self) -> Recipe:
        return Attribute(self.name), [self.owner]


@builder(functools._lru_cache_wrapper)
def build_lru_cache(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    inner = None if source is None else AttrSource(source, "__wrapped__")
    if not hasattr(obj, "__wrapped__"):
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    wrapped = tx.wrap(obj.__wrapped__, inner)
    return tx.output.remember(obj, source, LruCacheValue(obj, wrapped, source))
