"""Classes of named tuples: those of collections and typing, and structseqs of C code."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

from dynamo.guards.classes import is_special, is_trusted_class

_SAMPLE: Any = collections.namedtuple("_SAMPLE", "field")
# Made anew for each class, or of its fields.
_OWN = ("__new__", "__match_args__")


def is_named_tuple(cls: type) -> bool:
    """A namedtuple class itself (not a subclass with its own constructor), or a structseq class."""
    if not issubclass(cls, tuple):
        return False
    if cls.__bases__ != (tuple,):
        return False
    if not hasattr(cls, "_fields"):
        return hasattr(cls, "n_sequence_fields")
    return is_trusted_class(cls) or _is_generated(cls)


def _is_generated(cls: Any) -> bool:
    """Whether fields and special methods are as collections.namedtuple makes them."""
    held, sample = vars(cls), vars(_SAMPLE)
    for name in filter(is_special, held):
        if name not in _OWN and _code(held[name]) is not _code(sample.get(name)):
            return False
    getters = [held.get(name) for name in held.get("_fields", ())]
    places = [g.__reduce__()[1][0] if type(g) is type(sample["field"]) else -1 for g in getters]
    return places == list(range(len(getters)))


def _code(function: Any) -> Any:
    return getattr(function, "__code__", function)


def field_names(cls: type) -> Sequence[str]:
    """The fields of a named tuple or structseq class, in order."""
    fields = getattr(cls, "_fields", None)
    if fields is not None:
        return fields
    names = [n for n, d in vars(cls).items() if type(d).__name__ == "member_descriptor"]
    return names[: vars(cls)["n_sequence_fields"]]
