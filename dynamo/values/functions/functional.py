"""functools and operator objects: partial, lru_cache wrappers, itemgetter, attrgetter,
methodcaller; typing.
"""

from __future__ import annotations

import collections
import datetime
import functools
import gc
import operator
import re
import types
import typing
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, CallSource, DictItemSource, SequenceItemSource, Source
from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.values.base import Value
from dynamo.values.builder import builder, special_builder
from dynamo.values.builtins import program_code
from dynamo.values.builtins.polyfill_calls import reads_code, run_polyfill
from dynamo.values.builtins.table import TABLE, BuiltinMethod, fold, handles
from dynamo.values.classes.lookup import type_holds
from dynamo.values.containers.containers import TupleValue
from dynamo.values.containers.dicts import DictValue, DictView, Entry
from dynamo.values.containers.mapping_proxies import MappingProxyValue
from dynamo.values.dummy_operands import fail_as
from dynamo.values.functions.caches import LruCacheValue
from dynamo.values.functions.function import MethodValue, UserFunctionValue
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.descriptors import attribute_of_type
from dynamo.values.objects.exceptions import call_real
from dynamo.values.objects.instance_dict import InstanceDictValue
from dynamo.values.objects.known_objects import KnownObject
from dynamo.values.recipes import Attribute, Existing, Recipe, arguments, exact
from dynamo.values.scalars.constant import ConstantValue, is_literal

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class PartialValue(Value):
    """functools.partial."""

    cls = functools.partial

    def __init__(
        self,
        function: Value,
        args: Sequence[Value],
        kwargs: dict[str, Value],
        source: Source | None = None,
    ) -> None:
        super().__init__(source)
        self.inner = function
        self.args = list(args)
        self.kwargs = kwargs
        self.receiver: Value | None = None  # the object that a partialmethod is bound to
        self.keywords: KeywordsValue | None = None  # made at its first read

    def python_type(self) -> type:
        return functools.partial

    def getattr(self, tx: Interpreter, name: str) -> Value:
        stored = tx.output.side_effects.load_attr(self, name)
        if isinstance(stored, Value):
            return stored
        if name == "func":
            return self.inner
        if name == "__self__" and self.receiver is not None:
            return self.receiver
        if name == "args":
            return TupleValue(self.args)
        if name == "keywords":
            if self.outside is not None and self.source is not None:
                return tx.wrap(self.outside.keywords, AttrSource(self.source, name))
            if self.keywords is None:
                self.keywords = KeywordsValue(self)
            return self.keywords
        if name == "__dict__":
            return InstanceDictValue(self)
        if stored is None and self._has_outside(tx, name):
            source = None if self.source is None else AttrSource(self.source, name)
            return tx.wrap(getattr(self.outside, name), source)
        if not self.hasattr(tx, name):
            call_real(tx, getattr, functools.partial(abs), name)
        return attribute_of_type(tx, self, name)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        stored = tx.output.side_effects.load_attr(self, name)
        if isinstance(stored, Value) or type_holds(functools.partial, name):
            return True
        if name == "__self__" and self.receiver is not None:
            return True
        return stored is None and self._has_outside(tx, name)

    def _has_outside(self, tx: Interpreter, name: str) -> bool:
        """Whether the partial was hung such an attribute on before; guarded."""
        if self.outside is None or type_holds(functools.partial, name):
            return False
        present = hasattr(self.outside, name)
        tx.guard(self.source, "has_attr", (name, present))
        return present

    def instance_dict(self) -> dict[str, Any] | None:
        return None if self.outside is None else super().instance_dict()

    def own_attr(self, tx: Interpreter, name: str) -> Value | None:
        """The attribute in the dict of a partial that the frame made."""
        self.instance_dict()
        stored = tx.output.side_effects.load_attr(self, name)
        return stored if isinstance(stored, Value) else None

    def is_bare(self, tx: Interpreter) -> bool:
        """Whether the partial has no attributes of its own, so that partial() flattens it."""
        return not tx.output.side_effects.stored_attrs(self)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        if name in ("func", "args", "keywords"):
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        tx.output.side_effects.store_attr(self, name, value)

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]]:
        return self.inner, [*self.args, *args], {**self._named(tx), **kwargs}

    def _named(self, tx: Interpreter) -> dict[str, Value]:
        """The keyword arguments, which the frame may have changed in a partial from outside."""
        real: Any = self.outside
        known = None if real is None else tx.output.values_by_id.get(id(real.keywords))
        if known is None:
            return self.kwargs
        keywords = known[1]
        assert isinstance(keywords, DictValue), "a partial has a dict"
        return keywords.constant_keys(tx)

    def recipe(self) -> Recipe:
        parts = [self.inner, *arguments(self.args, self.kwargs)]
        if self.receiver is None:
            return make_partial, parts
        return make_bound_partial, [*parts, self.receiver]


class KeywordsValue(DictValue):
    """partial.keywords: a write of it, which later calls would see, is a graph break."""

    can_be_bare = False

    def __init__(self, owner: PartialValue) -> None:
        super().__init__({name: (ConstantValue(name), v) for name, v in owner.kwargs.items()})
        self.owner = owner

    def children(self) -> Sequence[Value]:
        return (self.owner,)

    def changing(self, tx: Interpreter) -> None:
        raise Unsupported(breaks.ItemMutation(self.describe()))

    def fresh(self, entries: dict[Hashable, Entry]) -> DictValue:
        return DictValue(entries)

    def recipe(self) -> Recipe:
        return Attribute("keywords"), [self.owner]


def make_partial(function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return functools.partial(function, *args, **kwargs)


def make_bound_partial(function: Any, args: tuple, kwargs: dict[str, Any], receiver: Any) -> Any:
    """The partial that a partialmethod makes for an instance."""
    made: Any = make_partial(function, args, kwargs)
    made.__self__ = receiver
    return made


@handles(functools.partial)
def _partial(tx, function, *args, **kwargs):
    if not TABLE[callable](tx, function).as_constant():  # type: ignore[union-attr]
        fail_as(tx, functools.partial, function)
    if isinstance(function, PartialValue):
        if function.is_bare(tx):
            args, kwargs = [*function.args, *args], {**function.kwargs, **kwargs}
            function = function.inner
    elif issubclass(function.python_type(), functools.partial):  # of a subclass
        raise Unsupported(breaks.UncapturedCall("functools.partial"))
    return tx.output.side_effects.track_new(PartialValue(function, args, kwargs))


def _chained(source: Source | None, *names: str) -> Source | None:
    for name in names:
        source = None if source is None else AttrSource(source, name)
    return source


def wrap_arguments(
    tx: Interpreter, obj: Any, source: Source | None
) -> tuple[list[Value], dict[str, Value]]:
    """The arguments that a partial or partialmethod holds."""
    args_source, kwargs_source = _chained(source, "args"), _chained(source, "keywords")
    tx.guard(args_source, "length", len(obj.args))
    if source is not None:
        tx.guard(kwargs_source, "dict_keys", list(obj.keywords))
    args = [
        tx.wrap(a, None if args_source is None else SequenceItemSource(args_source, i))
        for i, a in enumerate(obj.args)
    ]
    kwargs = {
        k: tx.wrap(v, None if kwargs_source is None else DictItemSource(kwargs_source, k))
        for k, v in obj.keywords.items()
    }
    return args, kwargs


@builder(functools.partial)
def build_partial(tx: Interpreter, obj: functools.partial, source: Source | None) -> Value:
    tx.guard(source, "type", functools.partial)
    args, kwargs = wrap_arguments(tx, obj, source)
    function = tx.wrap(obj.func, _chained(source, "func"))
    value = PartialValue(function, args, kwargs, source)
    tx.output.side_effects.track_existing(value)
    return tx.output.remember(obj, source, value)


@bound_late
def partial_method(
    tx: Interpreter, method: MethodValue, found: functools.partialmethod, source: Source | None
) -> PartialValue:
    """The partial of a partialmethod for an instance, to which `method` is bound."""
    bound = PartialValue(method, *wrap_arguments(tx, found, source))
    bound.receiver = method.receiver
    return bound


class GetterValue(Value):
    """operator.itemgetter, attrgetter, methodcaller."""

    is_guarded_distinct = True

    def __init__(self, kind: type, args: Sequence[Value], kwargs: dict[str, Value]) -> None:
        super().__init__()
        self.kind = kind
        self.args = list(args)
        self.kwargs = kwargs

    def python_type(self) -> type:
        return self.kind

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) != 1 or kwargs:
            raise Unsupported(breaks.UncapturedCall(f"operator.{self.kind.__name__}"))
        (owner,) = args
        if self.kind is operator.methodcaller:
            name, *rest = self.args
            return owner.getattr(tx, name.as_constant()).call(tx, rest, self.kwargs)
        read = _item if self.kind is operator.itemgetter else _attribute
        found = [read(tx, owner, key) for key in self.args]
        return found[0] if len(found) == 1 else TupleValue(found)

    def tail_call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        made = self._polyfill(tx, *args) if len(args) == 1 and not kwargs else None
        return self.call(tx, args, kwargs) if made is None else made

    def _polyfill(self, tx: Interpreter, owner: Value) -> Value | None:
        if self.kind is operator.methodcaller:
            name, *rest = self.args
            if not program_code.is_method_of_program(owner, name.as_constant()):
                return None
            named = tx.output.side_effects.track_new(DictValue.of(tx, self.kwargs))
            return run_polyfill(
                tx, builtin_polyfills.call_method, [owner, name, TupleValue(rest), named]
            )
        if len(self.args) > 1 or (
            self.kind is operator.attrgetter and "." in self.args[0].as_constant()
        ):
            return None
        (key,) = self.args
        if self.kind is operator.itemgetter:
            if not program_code.runs(owner, ("__getitem__", "__missing__")):
                return None
            return run_polyfill(tx, builtin_polyfills.get_item, [owner, key])
        if not reads_code(owner, key):
            return None
        return run_polyfill(tx, builtin_polyfills.get_attribute, [owner, key])

    def recipe(self) -> Recipe:
        return make_getter, [exact(self.kind), *arguments(self.args, self.kwargs)]


def make_getter(kind: type, args: tuple, kwargs: dict[str, Any]) -> Any:
    return kind(*args, **kwargs)


def _item(tx: Interpreter, owner: Value, key: Value) -> Value:
    return owner.getitem(tx, key)


def _attribute(tx: Interpreter, owner: Value, path: Value) -> Value:
    for name in path.as_constant().split("."):
        owner = owner.getattr(tx, name)
    return owner


def _getter(kind: type, tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    named = args if kind is operator.attrgetter else args[: kind is operator.methodcaller]
    fits = bool(args) and (not kwargs or kind is operator.methodcaller)
    if not fits or not all(a.is_constant() and a.python_type_is(str) for a in named):
        raise Unsupported(breaks.UncapturedCall(f"operator.{kind.__name__}"))
    return GetterValue(kind, args, kwargs)


def _register_getters() -> None:
    for kind in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
        handles(kind)(functools.partial(_getter, kind))


_register_getters()


@builder(operator.itemgetter, operator.attrgetter, operator.methodcaller)
def build_getter(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    args, kwargs = _arguments(obj)
    if all(map(is_literal, (*args, *kwargs.values()))):
        _guard_alike(tx, obj, source)
    else:
        tx.guard(source, "id", obj)
    value = GetterValue(
        type(obj), [tx.wrap(a) for a in args], {k: tx.wrap(v) for k, v in kwargs.items()}
    )
    value.source = source
    return tx.output.remember(obj, source, value)


def _guard_alike(tx: Interpreter, obj: Any, source: Source | None) -> None:
    """Guard what a getter reads: an equal one may be made for each call."""
    tx.guard(source, "type", type(obj))
    args, kwargs = _arguments(obj)
    read = _described((*args, *kwargs.items()))

    def reads_alike(value: Any) -> bool:
        if value is obj:
            return True
        args, kwargs = _arguments(value)
        return _described((*args, *kwargs.items())) == read

    tx.guard(source, "predicate", reads_alike)


def _arguments(getter: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that a getter was made with."""
    function, args = getter.__reduce__()
    if isinstance(function, functools.partial):
        return (*function.args, *args), function.keywords
    return args, {}


def _described(arg: Any) -> Any:
    """The types and texts of literals: 1, True and an int of the program's differ."""
    inner = tuple(map(_described, arg)) if type(arg) is tuple else repr(arg)
    return type(arg), inner


_MAPPINGS = (dict, collections.OrderedDict)
_VIEW_KINDS = {
    type(getattr(kind(), name)()): name
    for kind in _MAPPINGS
    for name in ("keys", "values", "items")
}


@builder(types.MappingProxyType, *_VIEW_KINDS)
def build_view_of_dict(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """Read-only view of a dict, which the program may change elsewhere."""
    kind = type(obj)
    tx.guard(source, "type", kind)
    held = gc.get_referents(obj)
    if len(held) != 1 or type(held[0]) not in _MAPPINGS:
        raise Unsupported(breaks.UnknownObject(kind.__name__))  # of a mapping with methods
    inner = None if source is None else CallSource(source, _viewed, "mapping of ")
    target = tx.wrap(held[0], inner)
    if kind is types.MappingProxyType:
        value: Value = MappingProxyValue(target, source)
    else:
        if not isinstance(target, DictValue):  # such as that of globals
            raise Unsupported(breaks.UnknownObject(kind.__name__))
        value = DictView(target, _VIEW_KINDS[kind], source)
    return tx.output.remember(obj, source, value)


def _viewed(view: Any) -> Any:
    return gc.get_referents(view)[0]


# Class of a pure object -> (tx, value, name, args, kwargs): what a method gives that is more than a
# call of the real one; None: it is no such method.
METHODS_OF_PURE: dict[type, Callable[..., Value | None]] = {}


class PureObjectValue(KnownObject):
    """An immutable C object whose methods are pure (compiled patterns, matches, time zones):
    called now, on constants.
    """

    def __init__(self, real: Any, source: Source | None = None) -> None:
        super().__init__(real, source)
        self.real = real

    def truth(self, tx: Interpreter) -> bool:
        return bool(self.real)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if op not in ("==", "!=") or not isinstance(other, PureObjectValue):
            return None
        return ConstantValue((self.real == other.real) is (op == "=="))

    def getattr(self, tx: Interpreter, name: str) -> Value:
        found = call_real(tx, getattr, self.real, name)
        if is_literal(found) or not callable(found):
            return tx.wrap(found)

        return BuiltinMethod(self, name)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        methods = METHODS_OF_PURE.get(type(self.real))
        if methods is not None:
            result = methods(tx, self, name, args, kwargs)
            if result is not None:
                return result
        return fold(tx, call_real(tx, getattr, self.real, name), args, kwargs)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        return fold(tx, operator.getitem, [self, key], {})

    def recipe(self) -> Recipe:
        return Existing(self.real, type(self.real).__name__), []


@builder(re.Pattern, re.Match, datetime.timezone)
def build_pure_object(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, PureObjectValue(obj, source))


class SingleDispatchValue(LruCacheValue):
    """A functools.singledispatch function: the implementation for the type of the first
    argument, which is guarded: more can be registered.
    """

    def chosen(self, tx: Interpreter, cls: type) -> Value:
        for state in _dispatch_state(self.real):
            known = tx.output.values_by_id.get(id(state))
            if known is not None and tx.output.side_effects.is_dirty(known[1]):
                raise Unsupported(breaks.UncapturedCall(self.real.__qualname__))
        real = call_real(tx, self.real.dispatch, cls)

        def dispatches_as_captured(function: Any) -> bool:
            return function.dispatch(cls) is real

        tx.guard(self.source, "predicate", dispatches_as_captured)
        return tx.wrap(real)

    call = Value.call

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]]:
        """The Python function of the dispatcher, without its `dispatch`, which is not captured."""
        function = UserFunctionValue(self.real, self.source)
        cells = dict(zip(function.code.co_freevars, function.closure(tx)))
        cells["dispatch"].contents = DispatchValue(self)
        return function, args, kwargs

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "dispatch":
            return DispatchValue(self)
        if name == "registry":
            return tx.wrap(self.real.registry, _chained(self.source, name))
        if name in ("register", "_clear_cache"):
            raise Unsupported(breaks.AttributeAccess(self.real.__qualname__, name))
        return super().getattr(tx, name)


class DispatchValue(Value):
    """function.dispatch of a singledispatch function."""

    def __init__(self, owner: SingleDispatchValue) -> None:
        super().__init__()
        self.owner = owner

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        known, real = args[0].identity() if len(args) == 1 and not kwargs else (False, None)
        if not known or not isinstance(real, type):
            raise Unsupported(breaks.UncapturedCall("singledispatch.dispatch"))
        return self.owner.chosen(tx, real)

    def recipe(self) -> Recipe:
        return Attribute("dispatch"), [self.owner]


_SINGLE_DISPATCH_CODE = functools.singledispatch(_chained).__code__  # type: ignore[attr-defined]


def _dispatch_state(function: Any) -> Iterator[Any]:
    """The state of a singledispatch function: the variables that `dispatch` and `register` share,
    and the dicts in them.
    """
    dispatch = dict(zip(function.__code__.co_freevars, function.__closure__))["dispatch"]
    for cell in dispatch.cell_contents.__closure__:
        yield cell
        yield cell.cell_contents
        if type(cell.cell_contents) is weakref.WeakKeyDictionary:
            yield vars(cell.cell_contents)["data"]


def _is_single_dispatch(obj: Any) -> bool:
    """Whether the function is of functools, with the standard cache: another cache sees each
    lookup.
    """
    if type(obj) is not types.FunctionType or obj.__code__ is not _SINGLE_DISPATCH_CODE:
        return False
    return any(type(state) is weakref.WeakKeyDictionary for state in _dispatch_state(obj))


@special_builder(_is_single_dispatch)
def build_single_dispatch(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    value = SingleDispatchValue(obj, tx.wrap(obj.__wrapped__), source)
    return tx.output.remember(obj, source, value)


@handles(typing.cast)
def _cast(tx, kind, value):
    return value
