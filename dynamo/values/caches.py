"""functools.lru_cache: caches from outside, and those that the captured code makes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.sources import AttrSource, CallSource, Source
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.builtins import handles, is_none
from dynamo.values.constant import ConstantValue
from dynamo.values.exceptions import call_real, raise_python
from dynamo.values.keys import key_of

if TYPE_CHECKING:
    from dynamo.capture.interpreter import Interpreter
    from dynamo.reconstruct import Codegen

_CACHE_METHODS = frozenset(["cache_info", "cache_clear", "cache_parameters"])


class CallOf:
    """A call with these arguments, of whatever is given: how a frame asks a cache each time."""

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


class LruCacheValue(Value):
    """A function behind functools.lru_cache.

    With constant arguments the answer is a value from outside: each time the guards are checked,
    the cache is asked for it, as eager asks it. Otherwise the function is captured each time anew;
    if it changes anything that exists already, that would happen too often, and the call breaks the
    graph.
    """

    def __init__(self, real: Any, wrapped: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.real = real
        self.wrapped = wrapped
        self.answers: dict[Hashable, Value] = {}  # to calls with other arguments than constants

    def python_type(self) -> type:
        return type(self.real)

    def identity(self) -> tuple[bool, Any]:
        return True, self.real

    def truth(self, tx: Interpreter) -> bool:
        return True

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "__wrapped__":
            return self.wrapped
        if name in _CACHE_METHODS and hasattr(self.real, name):
            return CacheMethod(self, name)
        return self.wrapped.getattr(tx, name)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return hasattr(self.real, name)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if self.source is not None and all(a.is_constant() for a in (*args, *kwargs.values())):
            asked = CallOf(
                tuple(a.as_constant() for a in args),
                {k: v.as_constant() for k, v in kwargs.items()},
            )
            answer = call_real(tx, asked, self.real)
            return tx.wrap(answer, CallSource(self.source, asked, "call"))
        key = (*(key_of(tx, a) for a in args), *((k, key_of(tx, v)) for k, v in kwargs.items()))
        if key in self.answers:
            return self.answers[key]
        name = getattr(self.real, "__qualname__", "a function")
        with tx.output.side_effects.fenced(
            lambda what: breaks.UncapturedCall(f"the cached {name}, which {what}")
        ):
            result = self.answers[key] = tx.call_function(self.wrapped, args, kwargs)
        return result

    def reconstruct(self, codegen: Codegen) -> None:
        codegen.load_object(self.real, "cached")


class CacheMethod(Value):
    """cache_info, cache_clear, cache_parameters of a cached function."""

    def __init__(self, owner: Value, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def children(self) -> Sequence[Value]:
        return (self.owner,)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if isinstance(self.owner, NewCacheValue) and not args and not kwargs:
            return self.owner.answer(tx, self.name)
        raise Unsupported(breaks.UncapturedCall(self.name))

    def reconstruct(self, codegen: Codegen) -> None:
        codegen(self.owner)
        codegen.load_attr(self.name)


@builder(functools._lru_cache_wrapper)
def build_lru_cache(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    inner = None if source is None else AttrSource(source, "__wrapped__")
    if not hasattr(obj, "__wrapped__"):
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    wrapped = tx.wrap(obj.__wrapped__, inner)
    return tx.output.remember(obj, source, LruCacheValue(obj, wrapped, source))


class NewCacheValue(Value):
    """A cached function that the captured code made: its cache is known while capturing."""

    def __init__(self, wrapped: Value, maxsize: int | None, typed: bool) -> None:
        super().__init__()
        self.wrapped = wrapped
        self.maxsize = maxsize
        self.typed = typed
        self.answers: dict[Hashable, Value] = {}
        self.hits = self.misses = 0

    def python_type(self) -> type:
        return functools._lru_cache_wrapper

    def children(self) -> Sequence[Value]:
        return (self.wrapped, *self.answers.values())

    def truth(self, tx: Interpreter) -> bool:
        return True

    def getattr(self, tx: Interpreter, name: str) -> Value:
        stored = tx.output.side_effects.load_attr(self, name)
        if isinstance(stored, Value):
            return stored
        return CacheMethod(self, name) if name in _CACHE_METHODS else self.wrapped.getattr(tx, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        tx.output.side_effects.store_attr(self, name, value)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return name in _CACHE_METHODS or self.wrapped.hasattr(tx, name)

    def answer(self, tx: Interpreter, method: str) -> Value:
        from dynamo.values.containers import NamedTupleValue, from_constant

        tx.output.side_effects.touch()
        if method == "cache_clear":
            self.answers.clear()
            self.hits = self.misses = 0
            return ConstantValue(None)
        if method == "cache_parameters":
            from dynamo.values.dicts import DictValue

            known: dict[str, Value] = {
                "maxsize": ConstantValue(self.maxsize),
                "typed": ConstantValue(self.typed),
            }
            return tx.output.side_effects.track_new(DictValue.of(tx, known))
        numbers = (self.hits, self.misses, self.maxsize, len(self.answers))
        kind = type(functools.lru_cache(abs).cache_info())
        return NamedTupleValue(kind, from_constant(numbers).unpack(tx))

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        tx.output.side_effects.touch()
        key = (*(key_of(tx, a) for a in args), *((k, key_of(tx, v)) for k, v in kwargs.items()))
        if self.typed:
            key = (*key, *(v.python_type() for v in (*args, *kwargs.values())))
        if key in self.answers:
            self.hits += 1
            found = self.answers[key] = self.answers.pop(key)  # the latest one now
            return found
        self.misses += 1
        result = tx.call_function(self.wrapped, args, kwargs)
        if self.maxsize == 0:
            return result
        self.answers[key] = result
        if self.maxsize is not None and len(self.answers) > self.maxsize:
            del self.answers[next(iter(self.answers))]
        return result


@handles(functools._lru_cache_wrapper)
def _new_cache(tx, function, maxsize, typed, cache_info):
    limit = None if is_none(maxsize) else maxsize.as_constant()
    if not function.hasattr(tx, "__call__"):
        raise_python(tx, TypeError, "the first argument must be callable")
    return tx.output.side_effects.track_new(NewCacheValue(function, limit, typed.truth(tx)))
