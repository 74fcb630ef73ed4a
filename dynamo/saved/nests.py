"""Nests of containers as data: the inputs and results of a program.

    {"leaf": n}                                 a tensor, a number, or a constant (see signature.py)
    {"tuple": [...]}  {"list": [...]}           with nests in them
    {"dict": [[key, nest], ...]}                keys are strings, ints, ...
    {"named": "Point", "fields": [...], "tuple": [...]}    a named tuple
    {"record": "BaseModelOutput", "fields": [...], "values": [...]}    an object with these fields

Loading knows no classes of the model's: a named tuple becomes a tuple with attributes, an object
with fields a Record. Those of torch.return_types are torch's own.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from dynamo.errors import ProgramError

_KEYS = (str, int, bool, type(None))
_MOST_FIELDS = 1000


class Record(dict[str, Any]):
    """An object with fields, read as attributes, by name or by number."""

    def __getattr__(self, name: str) -> Any:
        try:
            return dict.__getitem__(self, name)
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}") from None

    def __getitem__(self, key: Any) -> Any:
        return self.to_tuple()[key] if isinstance(key, int | slice) else super().__getitem__(key)

    def to_tuple(self) -> tuple[Any, ...]:
        """The values."""
        return tuple(self.values())


class NamedTuple(tuple[Any, ...]):
    """A tuple whose items have names."""

    _fields: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name in self._fields:
            return self[self._fields.index(name)]
        raise AttributeError(f"{type(self).__name__} has no field {name!r}")

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        items = ", ".join(f"{name}={item!r}" for name, item in self._asdict().items())
        return f"{type(self).__name__}({items})"


# -- objects to data ------------------------------------------------------------------------------
def nest_of(value: Any, leaf: Callable[[Any, str], int], path: str) -> dict[str, Any]:
    """The nest of an object. `leaf` numbers an object that is no container, found at `path`."""

    def items(values: Any) -> list[Any]:
        return [nest_of(item, leaf, f"{path}[{i}]") for i, item in enumerate(values)]

    kind = type(value)
    if kind is tuple or kind is torch.Size:
        return {"tuple": items(value)}
    if kind is list:
        return {"list": items(value)}
    if isinstance(value, tuple):
        fields = _fields_of(value)
        if fields is not None:
            return {"named": _named(kind), "fields": fields, "tuple": items(value)}
    if kind in (dict, OrderedDict):
        return {
            "dict": [[_key(k, path), nest_of(v, leaf, f"{path}[{k!r}]")] for k, v in value.items()]
        }
    record = _record_fields(value)
    if record is not None:
        values = [nest_of(v, leaf, f"{path}.{name}") for name, v in record.items()]
        return {"record": kind.__name__, "fields": list(record), "values": values}
    return {"leaf": leaf(value, path)}


def _key(key: Any, path: str) -> Any:
    if type(key) not in _KEYS:
        raise ProgramError(f"{path} is a dict with the key {key!r}: a saved program has no such")
    return key


def _fields_of(value: Any) -> list[str] | None:
    """The names of a tuple's items."""
    if type(value).__module__ == "torch.return_types":
        return list(map(str, range(len(value))))  # torch knows its own
    fields = getattr(value, "_fields", None)
    return list(fields) if isinstance(fields, tuple) and len(fields) == len(value) else None


def _named(kind: type) -> str:
    if kind.__module__ == "torch.return_types":
        return f"torch.return_types.{kind.__name__}"
    return kind.__name__


def _record_fields(value: Any) -> dict[str, Any] | None:
    """The fields of a dataclass instance, or the items of a mapping with string keys."""
    if isinstance(value, type):
        return None
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value.items())
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return None


# -- data to objects ------------------------------------------------------------------------------
def check_nest(nest: Any, count: int) -> None:
    """Raise ValueError, TypeError or KeyError for data that is no nest of `count` leaves."""
    if not isinstance(nest, dict):
        raise TypeError("no nest")
    if "leaf" in nest:
        if type(nest["leaf"]) is not int or not 0 <= nest["leaf"] < count:
            raise ValueError("no leaf")
        return
    for name in nest.get("fields", ()):
        if not isinstance(name, str) or (not name.isidentifier() and not name.isdigit()):
            raise ValueError("no name of a field")
    if len(nest.get("fields", ())) > _MOST_FIELDS:
        raise ValueError("too many fields")
    for inner in _inner(nest):
        check_nest(inner, count)


def _inner(nest: Any) -> list[Any]:
    if "dict" in nest:
        for key, _ in nest["dict"]:
            if type(key) not in _KEYS:
                raise TypeError("no key")
        return [value for _, value in nest["dict"]]
    found = nest.get("tuple", nest.get("list", nest.get("values")))
    if not isinstance(found, list) or ("fields" in nest and len(nest["fields"]) != len(found)):
        raise TypeError("no nest")
    return found


def leaf_numbers(nest: Any) -> Iterator[int]:
    """The numbers of the leaves, in order."""
    if "leaf" in nest:
        yield nest["leaf"]
        return
    for inner in _inner(nest):
        yield from leaf_numbers(inner)


def maker(nest: Any) -> Callable[[list[Any]], Any]:
    """A function from leaves to the object."""
    if "leaf" in nest:
        number = nest["leaf"]
        return lambda leaves: leaves[number]
    inner = [maker(item) for item in _inner(nest)]
    if "dict" in nest:
        keys = [key for key, _ in nest["dict"]]
        return lambda leaves: {key: make(leaves) for key, make in zip(keys, inner, strict=True)}
    if "list" in nest:
        return lambda leaves: [make(leaves) for make in inner]
    if "record" in nest:
        cls, fields = _class(nest["record"], Record, nest["fields"]), nest["fields"]
        return lambda leaves: cls(
            (field, make(leaves)) for field, make in zip(fields, inner, strict=True)
        )
    kind: Any = tuple
    if "named" in nest:
        kind = _tuple_class(nest["named"], nest["fields"])
    return lambda leaves: kind([make(leaves) for make in inner])


def _tuple_class(name: str, fields: list[str]) -> Any:
    home, _, short = name.rpartition(".")
    known = getattr(torch.return_types, short, None) if home == "torch.return_types" else None
    if isinstance(known, type) and issubclass(known, tuple):
        return known
    return _class(name, NamedTuple, fields)


def _class(name: str, base: Any, fields: list[str]) -> Any:
    namespace = {"_fields": tuple(fields)} if base is NamedTuple else {}
    return type(name if name.isidentifier() else base.__name__, (base,), namespace)


def collector(nest: Any, path: str) -> Callable[[Any, list[Any]], None]:
    """A function that puts the leaves of an object into a list, at their numbers; ProgramError for
    an object of another form.
    """
    if "leaf" in nest:
        number = nest["leaf"]

        def store(value: Any, leaves: list[Any]) -> None:
            leaves[number] = value

        return store
    if "dict" in nest:
        return _of_items(
            [(key, f"{path}[{key!r}]", inner) for key, inner in nest["dict"]], path, dict
        )
    if "record" in nest:
        pairs = zip(nest["fields"], nest["values"], strict=True)
        return _of_items([(key, f"{path}.{key}", inner) for key, inner in pairs], path, None)
    inner = [collector(item, f"{path}[{i}]") for i, item in enumerate(_inner(nest))]
    kind: Any = list if "list" in nest else tuple

    def walk(value: Any, leaves: list[Any]) -> None:
        if not isinstance(value, kind) or len(value) != len(inner):
            found = f"{type(value).__name__}"
            if isinstance(value, kind):
                found = f"one of {len(value)}"
            raise ProgramError(
                f"{path} is to be a {kind.__name__} of {len(inner)} items, not {found}"
            )
        for collect, item in zip(inner, value, strict=True):
            collect(item, leaves)

    return walk


def _of_items(
    rows: list[tuple[Any, str, Any]], path: str, kind: Any
) -> Callable[[Any, list[Any]], None]:
    inner = [(key, collector(nest, place)) for key, place, nest in rows]
    keys = {key for key, _ in inner}

    def walk(value: Any, leaves: list[Any]) -> None:
        fields = value if isinstance(value, Mapping) else None
        if fields is None and kind is None:
            fields = _record_fields(value)
        if fields is None or set(fields) != keys:
            names = ", ".join(map(str, keys))
            has = (
                type(value).__name__
                if fields is None
                else f"one with {', '.join(map(str, fields))}"
            )
            raise ProgramError(f"{path} is to be a dict with {names or 'nothing'}, not {has}")
        for key, collect in inner:
            collect(fields[key], leaves)

    return walk


def paths(nest: Any, path: str) -> list[tuple[int, str]]:
    """(number of a leaf, where it stands)"""
    if "leaf" in nest:
        return [(nest["leaf"], path)]
    if "dict" in nest:
        items = [(f"{path}[{key!r}]", value) for key, value in nest["dict"]]
    elif "fields" in nest:
        values = nest.get("tuple", nest.get("values"))
        items = [
            (f"{path}.{key}", value) for key, value in zip(nest["fields"], values, strict=True)
        ]
    else:
        values = nest.get("tuple", nest.get("list"))
        items = [(f"{path}[{i}]", value) for i, value in enumerate(values)]
    return [found for place, inner in items for found in paths(inner, place)]
