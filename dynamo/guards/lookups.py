"""Lookups of names in modules and classes that change rarely: those of torch, of the standard
library, and builtins.

Such a name has no guard of its own. One guard of the kind "lookups" covers all names of a frame,
at the cost of a comparison while none of these modules and classes has changed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from dynamo.guards.classes import (
    HEAP_TYPE,
    MISSING,
    NAMESPACE,
    TRUSTED_PACKAGES,
    is_named,
    is_trusted_class,
    may_appear,
)
from dynamo.guards.sources import AttrSource, ModuleSource, Source

# Data that classes hold, which captured code may change.
_DATA = (bool, int, float, complex, str, bytes, type(None))


def is_trusted(source: Source) -> bool:
    """A name in a module of torch or the standard library, read by attribute access only."""
    while isinstance(source, AttrSource):
        source = source.origin
    return isinstance(source, ModuleSource) and source.module.split(".")[0] in TRUSTED_PACKAGES


class Lookups:
    """The names that one capture has looked up, and the objects found."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], tuple[Any, ...]] = {}
        self._led_to: dict[Source, Any] = {}
        self._lasting: dict[int, bool] = {}  # by the id of a class
        # (id of a class, name) -> the class, and the object that its MRO holds under the name.
        self._in_classes: dict[tuple[int, str], tuple[type, Any]] = {}
        # id of a function of torch -> whether it runs the program's code
        # (values/functions/monkey_patches.py).
        self.analyzed: dict[int, bool] = {}

    def add(self, holder: Any, name: str, found: Any = MISSING) -> None:
        """`name` in a dict, or looked up through the MRO of a class."""
        row = (holder, name) if found is MISSING else (holder, name, found)
        self._found.setdefault((id(holder), name), row)

    def add_in_class(self, cls: type, name: str, found: Any) -> None:
        """`name` in a class that the source code of a trusted package defines; no other class."""
        if type(found) not in _DATA and self._lasts(cls):
            self.add(cls, name, found)

    def in_class(self, cls: type, name: str) -> Any:
        """As in_mro, recorded: looked up once."""
        known = self._in_classes.get((id(cls), name))
        if known is not None:
            return known[1]
        found = in_mro(cls, name)
        self.add_in_class(cls, name, found)
        if not may_appear(name):
            self._in_classes[id(cls), name] = cls, found
        return found

    def _lasts(self, cls: type) -> bool:
        known = self._lasting.get(id(cls))
        if known is None:
            known = bool(cls.__flags__ & HEAP_TYPE) and is_trusted_class(cls) and is_named(cls)
            self._lasting[id(cls)] = known
        return known

    def add_source(self, source: Source) -> Any:
        """The names by which a trusted source leads to its object; that object, or MISSING where
        more than names decides.
        """
        if source in self._led_to:
            return self._led_to[source]
        if isinstance(source, ModuleSource):
            found = sys.modules.get(source.module, MISSING)
            self.add(sys.modules, source.module, found)
        else:
            assert isinstance(source, AttrSource), "a trusted source has no other steps"
            found = self._attribute(self.add_source(source.origin), source.attr)
        self._led_to[source] = found
        return found

    def _attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, types.ModuleType):
            return self._of_module(owner, name)
        if not isinstance(owner, type):
            return MISSING
        found = in_mro(owner, name)
        self.add_in_class(owner, name, found)
        return found if isinstance(found, (types.FunctionType, type)) else MISSING

    def _of_module(self, module: types.ModuleType, name: str) -> Any:
        if type(module) is not types.ModuleType:
            descriptor = in_mro(type(module), name)
            if hasattr(type(descriptor), "__set__"):
                self.add_in_class(type(module), name, descriptor)
                return MISSING
        namespace = vars(module)
        found = namespace.get(name, MISSING)
        self.add(namespace, name, found)
        return found

    def payload(self) -> tuple[tuple[Any, ...], ...]:
        """The payload of the guard of kind "lookups"."""
        return tuple(self._found.values())


def in_mro(cls: type, name: str) -> Any:
    """The object under `name` in the first class of the MRO that has the name, or MISSING."""
    for owner in cls.__mro__ or ():
        namespace = NAMESPACE.__get__(owner)
        if name in namespace:
            return namespace[name]
    return MISSING


_recording = threading.local()


@contextlib.contextmanager
def recording(lookups: Lookups) -> Iterator[None]:
    """Lookups through classes in this block are added to `lookups`."""
    before = getattr(_recording, "lookups", None)
    _recording.lookups = lookups
    try:
        yield
    finally:
        _recording.lookups = before


def class_lookup(cls: type, name: str) -> Any:
    """The object that the MRO of `cls` holds under `name`, unbound, or MISSING; recorded among the
    lookups of the capture.
    """
    lookups = getattr(_recording, "lookups", None)
    return in_mro(cls, name) if lookups is None else lookups.in_class(cls, name)
