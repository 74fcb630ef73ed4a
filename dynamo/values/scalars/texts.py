"""The text of symbolic values: str(), repr(), format() and % with values inside.

Python itself writes the text, of real objects in which everything that is not a literal is a Shown:
asked for its text, it runs the value's own method symbolically. So formats, recursion marks and the
order of calls are those of the running Python.
"""

from __future__ import annotations

import collections
import types
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.builtins.table import TABLE
from dynamo.values.classes.lookup import type_holds
from dynamo.values.containers.containers import NamedTupleValue, SequenceValue
from dynamo.values.containers.dicts import DictValue, DictView
from dynamo.values.containers.mapping_proxies import MappingProxyValue
from dynamo.values.containers.sets import FrozenSetValue
from dynamo.values.late_bound import bound_late
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.conversions import text_of

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class Text:
    """Stands for `value` where only its text is asked for."""

    def __init__(self, tx: Interpreter, value: Value) -> None:
        self._tx = tx
        self._value = value

    def __str__(self) -> str:
        return text_of(self._tx, self._value, str, "__str__")

    def __repr__(self) -> str:
        return text_of(self._tx, self._value, repr, "__repr__")

    def __format__(self, spec: str) -> str:
        text = TABLE[format](self._tx, self._value, ConstantValue(spec))
        assert text is not None, "format() gives a text"
        return text.as_constant()

    def __getattr__(self, name: str) -> Any:
        """For "{0.name}".format(value)."""
        if name.startswith("__"):
            raise Unsupported(breaks.UncapturedCall(f"{self._value.describe()}.{name}"))
        return shown(self._tx, self._value.getattr(self._tx, name))

    def __call__(self) -> Any:  # the factory of a defaultdict has to be callable
        raise Unsupported(breaks.UncapturedCall(self._value.describe()))


@bound_late
class Shown(Text):
    """The same for one that may have items."""

    def __getitem__(self, key: Any) -> Any:
        return shown(self._tx, self._value.getitem(self._tx, ConstantValue(key)))


@bound_late
def shown_operand(tx: Interpreter, value: Value) -> Any:
    """The operand of `text % value`: an object with items counts as a mapping there, even if
    unnamed.
    """
    real, kind = shown(tx, value), value.python_type()
    # A deque has items as a sequence of C has them, its subclasses inherit that.
    of_deque = getattr(kind, "__getitem__", None) is collections.deque.__getitem__
    has_items = type_holds(kind, "__getitem__") and not (issubclass(kind, str) or of_deque)
    return real if has_items or type(real) is not Shown else Text(tx, value)


@bound_late
def shown(tx: Interpreter, value: Value, made: dict[int, Any] | None = None) -> Any:
    """A real object with the text of `value`. `made`: the containers around it, by id."""
    made = {} if made is None else made
    if value.is_constant() or value.is_symbolic():
        return value.as_constant()
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, SequenceValue) and not isinstance(value, NamedTupleValue):
        return _shown_sequence(tx, value, made)
    if isinstance(value, DictValue):
        return _shown_dict(tx, value, made)
    if isinstance(value, DictView):
        return getattr(shown(tx, value.owner, made), value.kind)()
    if isinstance(value, MappingProxyValue):
        return types.MappingProxyType(shown(tx, value.target, made))
    if isinstance(value, FrozenSetValue):
        real = value.known_real(tx) if value.length(tx) > 1 else None
        if real is not None:  # not a copy, which may have another order
            return real if type(real) is value.cls else value.cls(real)
        return value.cls(shown(tx, v, made) for v in value.ordered(tx))
    return Shown(tx, value)


def _shown_sequence(tx: Interpreter, value: Any, made: dict[int, Any]) -> Any:
    if issubclass(value.cls, tuple):
        items = [shown(tx, v, made) for v in value.items(tx)]
        if value.cls is torch.Size and any(isinstance(item, Text) for item in items):
            raise Unsupported(breaks.UncapturedCall("the text of a ragged size"))
        return value.cls(items)
    real = made[id(value)] = value.make_real([])
    real += [shown(tx, v, made) for v in value.items(tx)]
    return real


def _shown_dict(tx: Interpreter, value: Any, made: dict[int, Any]) -> Any:
    real = made[id(value)] = _empty(tx, value)
    for key, item in zip(value.keys(tx), value.values(tx)):
        real[shown(tx, key, made)] = shown(tx, item, made)
    return real


def _empty(tx: Interpreter, value: Any) -> Any:
    factory = getattr(value, "factory", None)
    return value.cls() if factory is None else value.cls(shown(tx, factory))
