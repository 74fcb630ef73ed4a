"""weakref.ref and its subclasses. The target is alive while capturing, which is guarded."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import (
    AttrSource,
    ProxyTargetSource,
    Source,
    TargetSource,
    proxy_target,
)
from dynamo.plans import Retry
from dynamo.polyfills.type_names import type_name
from dynamo.values.base import Value, is_none
from dynamo.values.builder import builder, subclass_builder
from dynamo.values.builtins.table import handles
from dynamo.values.containers.hash_keys import EqualityKey
from dynamo.values.effects.lifetimes import known_alive, track_weak_target
from dynamo.values.objects.exceptions import call_real, raise_python
from dynamo.values.recipes import Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import compare_op

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class WeakRefValue(Value):
    """A weak reference. `real`: the reference itself, where it came from outside; `callback` and
    `key` (of a WeakValueDictionary's reference) are for one that the frame makes.
    """

    def __init__(
        self,
        target: Value,
        source: Source | None = None,
        real: weakref.ref | None = None,
        callback: Value | None = None,
        key: Value | None = None,
    ) -> None:
        super().__init__(source)
        self.target = target
        self.real = real
        self.callback = callback
        self.key = key
        self.hashed = False

    is_weakly_held = True

    def python_type(self) -> type:
        if self.real is not None:
            return type(self.real)
        return weakref.ref if self.key is None else weakref.KeyedRef

    def identity(self) -> tuple[bool, Any]:
        return self.real is not None, self.real

    def children(self) -> Sequence[Value]:
        return [v for v in (self.target, self.callback, self.key) if v is not None]

    def held(self) -> Sequence[Value]:
        return [v for v in (self.callback, self.key) if v is not None]

    def die(self) -> None:
        """The target has ended."""
        if self.hashed:  # a dead reference keeps its hash, and equals itself only
            raise Unsupported(breaks.ObjectDies(self.target.describe()))
        self.target = ConstantValue(None)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "key" and self.key is not None:
            return self.key
        if name == "__callback__" and self.real is None:
            return ConstantValue(None) if self.callback is None else self.callback
        if self.real is None or name.startswith("__"):
            return super().getattr(tx, name)
        found = call_real(tx, getattr, self.real, name)
        return tx.wrap(found, None if self.source is None else AttrSource(self.source, name))

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        if self.real is None:
            return super().hasattr(tx, name)
        present = hasattr(self.real, name)
        tx.guard(self.source, "has_attr", (name, present))
        return present

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            raise Unsupported(breaks.UncapturedCall("a weak reference with arguments"))
        if not known_alive(tx, self.target):
            raise Unsupported(breaks.ObjectDies(self.target.describe()))
        return self.target

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if op not in ("==", "!=") or not isinstance(other, WeakRefValue):
            return None
        if is_none(self.target) or is_none(other.target):  # dead references equal themselves only
            return ConstantValue((self is other) is (op == "=="))
        same = compare_op(tx, "==", self.target, other.target)  # asked of one object, too
        return same.truth_value(tx, op == "!=")

    def hash_key(self, tx: Interpreter) -> Hashable:
        if is_none(self.target):
            return self.hash_key_by_identity()
        self.hashed = True
        key = self.target.hash_key(tx)
        if isinstance(key, EqualityKey):
            return EqualityKey(tx, self, key.hashed, key.exact)
        return (weakref.ref, key)

    def recipe(self) -> Recipe:
        if is_none(self.target):
            return dead_reference, []
        operands = [self.target, ConstantValue(None) if self.callback is None else self.callback]
        if self.key is None:
            return weakref.ref, operands
        return weakref.KeyedRef, [*operands, self.key]


@builder(weakref.ref)
def build_weakref(tx: Interpreter, obj: weakref.ref, source: Source | None) -> Value:
    inner = None if source is None else TargetSource(source)
    tx.guard(source, "type", type(obj))
    target = tx.wrap(obj(), inner)
    value: Value = WeakRefValue(target, source, obj)
    if type(obj) is weakref.ref and source is not None and not is_none(target):
        callback = tx.wrap(obj.__callback__, AttrSource(source, "__callback__"))
        if is_none(callback):  # there is no other
            value = tx.output.plain_references.setdefault(id(target), value)
    return tx.output.remember(obj, source, value)


@subclass_builder(weakref.ref)
def build_weakref_subclass(tx: Interpreter, obj: weakref.ref, source: Source | None) -> Value:
    """A reference with attributes (weakref.KeyedRef); one with methods of its own is not known."""
    if type(obj) is not weakref.KeyedRef:
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    return build_weakref(tx, obj, source)


class ProxyValue(Value):
    """A weak proxy from outside: whatever is asked of it is asked of its target. Its own type is
    not told, since isinstance() and type() see two.
    """

    is_weakly_held = True

    def __init__(self, target: Value, source: Source, real: Any) -> None:
        super().__init__(source)
        self.target = target
        self.real = real

    def children(self) -> Sequence[Value]:
        return (self.target,)

    def held(self) -> Sequence[Value]:
        return ()

    def getattr(self, tx: Interpreter, name: str) -> Value:
        return self._alive(tx).getattr(tx, name)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return self._alive(tx).hasattr(tx, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        self._alive(tx).setattr(tx, name, value)

    def delattr(self, tx: Interpreter, name: str) -> None:
        self._alive(tx).delattr(tx, name)

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]]:
        return self._alive(tx), args, kwargs

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        return self._alive(tx).call_method(tx, name, args, kwargs)

    def _alive(self, tx: Interpreter) -> Value:
        if is_none(self.target):
            raise_python(tx, ReferenceError, "weakly-referenced object no longer exists")
        if not known_alive(tx, self.target):
            raise Unsupported(breaks.ObjectDies(self.target.describe()))
        return self.target


@builder(weakref.ProxyType, weakref.CallableProxyType)
def build_proxy(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    target = proxy_target(obj)
    if source is None:
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    tx.guard(source, "type", type(obj))
    inner = tx.wrap(target, ProxyTargetSource(source))
    return tx.output.remember(obj, source, ProxyValue(inner, source, obj))


class _Target:
    __slots__ = ("__weakref__",)


def dead_reference() -> weakref.ref:
    return weakref.ref(_Target())


@handles(weakref.ref)
def _weakref(tx, target, callback=None, /):
    """An object has one reference without a callback."""
    cls = target.python_type()
    if not cls.__weakrefoffset__:
        raise_python(tx, TypeError, f"cannot create weak reference to {type_name(cls)!r} object")
    if not is_none(callback):
        return _with_callback(target, callback, None)
    known = tx.output.plain_references.get(id(target))
    varied = tx.output.conditionals.varied
    if varied is not None and target.source is None and hasattr(target, "fake"):
        raise Retry(tx.output.plan.breaking(varied))  # whether a list holds the tensor is not known
    if known is None:
        known = tx.output.plain_references[id(target)] = WeakRefValue(target)
        track_weak_target(tx.output, target, known)
    return known


@handles(weakref.KeyedRef)
def _keyed_ref(tx, target, callback, key, /):
    return _with_callback(target, callback, key)


def _with_callback(target: Value, callback: Value, key: Value | None) -> Value:
    if target.outside is None and not target.identity()[0]:
        # The target may go while captured code runs, which would have to call the callback.
        raise Unsupported(breaks.UncapturedCall("weakref.ref with a callback"))
    return WeakRefValue(target, callback=callback, key=key)
