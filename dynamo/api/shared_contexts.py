"""Contexts that compilations which are alike share: code compiled for one serves the others.

    for block in blocks:                # equal blocks: two graphs, however many there are
        block.call = dynamo.compile(block)

    def step(x):
        return dynamo.compile(f)(x)     # one graph, not one for each call

Alike are compilations of one function, of closures or partials of one code over values of the same
kinds, of one method of objects of a class with attributes of the same kinds, or of modules of one
class with the same submodules and sizes of parameters, by the same settings and configuration. The
first of several that hold parameters has a context of its own, if it was called before the second
one came: its code may know its parameters; that which the others share takes any, and the backend
packs those of each module (inductor/derive.py). Where their code
differs so that each call needs its own, new ones have contexts of their own again. Contexts are
kept for the latest families that had a second member, until the function or class is gone.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch

from dynamo.api.context import CompileContext
from dynamo.api.kinds_of_values import Kinds
from dynamo.bytecode.cache import IdentityMap
from dynamo.config import config
from dynamo.guards.history import LatestGraphs

_MOST_FAMILIES = 128


@dataclass
class _Family:
    """Compilations that are alike.

    anchor: the object whose id stands in the key. first: the first one's context. own: the contexts
    of single objects that are compiled again, by object. shared: that of the others. graphs: the
    latest of all of them.
    """

    anchor: weakref.ref[Any]
    first: weakref.ref[CompileContext]
    graphs: weakref.ref[LatestGraphs]
    own: IdentityMap[Any, CompileContext] = field(default_factory=IdentityMap)
    shared: CompileContext | None = None

    def context(self, owner: Any, knows: bool, takes_any: bool, make: _Make) -> CompileContext:
        """The context for one more compilation. knows: its code might know parameters."""
        first = self.first()
        if first is not None and first is not self.shared and first.sharers.get(owner):
            return self.own.set(owner, first)
        if self.shared is None:
            serves = not knows or (takes_any and first is not None and first.is_unused)
            self.shared = first if serves and first is not None else self._made(make)
            self.shared.takes_any = knows and takes_any
        if self.shared.is_crowded and not self.shared.sharers.get(owner):
            return self.own.computed(owner, lambda: self._made(make))
        return self.shared

    def _made(self, make: _Make) -> CompileContext:
        context = make()
        context.history.graphs = self.graphs() or context.history.graphs
        return context


_Make = Callable[[], CompileContext]
_families: OrderedDict[Hashable, _Family] = OrderedDict()
_lock = threading.RLock()  # comparing keys may call the program, which may compile


def context_of(
    target: Any, settings: dict[str, Any], make: Callable[[dict[str, Any]], CompileContext]
) -> CompileContext:
    """The context for compiling `target`: make(settings), or that of an earlier target like it."""
    owner, anchor = _owner_and_anchor(target)
    if anchor is None:
        return make(settings)
    kinds = Kinds()
    kind = kinds.of(target)
    if kind is None or "guard_filter_fn" in (settings["options"] or ()):
        anchor = owner  # of a family of its own: dropped guards would tell others apart
    key, knows = _key(anchor, kind, settings), kinds.holds_parameters
    if key is None:
        return make(settings)
    with _lock:
        family = _families.get(key)
        if family is None or family.anchor() is not anchor:
            context = make(settings)
            _families[key] = _Family(
                _watched(anchor, key), weakref.ref(context), weakref.ref(context.history.graphs)
            )
            if len(_families) > _MOST_FAMILIES:
                _families.popitem(last=False)
        else:
            _families.move_to_end(key)
            takes_any = _may_take_any(settings)
            context = family.context(owner, knows, takes_any, lambda: make(settings))
        context.join(owner)
    return context


def _may_take_any(settings: dict[str, Any]) -> bool:
    """Whether code of a shared context takes any parameters from the start. Modes and options ask
    for what is known of parameters, as the places where graphs of a device read them.
    """
    return settings["mode"] in (None, "default") and not settings["options"]


def _watched(anchor: Any, key: Hashable) -> weakref.ref[Any]:
    """A reference to the anchor, with whose end the family ends."""

    def forget(ref: weakref.ref[Any]) -> None:
        family = _families.get(key)
        if family is not None and family.anchor is ref:
            _families.pop(key, None)

    return weakref.ref(anchor, forget)


def forget_all() -> None:
    with _lock:
        _families.clear()


def _owner_and_anchor(target: Any) -> tuple[Any, Any]:
    """The object that code is compiled for, of which all others may be another in its family, and
    that which is the same one in all of them; None: of no family.
    """
    owner = target.__self__ if isinstance(target, types.MethodType) else target
    if issubclass(type(owner), torch.optim.Optimizer) or not type(owner).__weakrefoffset__:
        return owner, None
    while isinstance(target, functools.partial):
        target = target.func
    if isinstance(target, torch.nn.Module):
        return owner, type(target)
    if not isinstance(target, types.FunctionType | types.MethodType | type):
        target = inspect.getattr_static(type(target), "__call__", None)
    function = target.__func__ if isinstance(target, types.MethodType) else target
    return owner, function.__code__ if isinstance(function, types.FunctionType) else None


def _key(anchor: Any, kind: Hashable, settings: dict[str, Any]) -> Hashable | None:
    """The properties that two compilations with one context have alike; None: one of its own."""
    options = settings["options"]
    try:
        key = (
            id(anchor),
            kind,
            _weakly(settings["backend"]),
            tuple([settings[name] for name in settings if name not in ("options", "backend")]),
            None if options is None else tuple(sorted(options.items(), key=repr)),
            config.describe(),
        )
        hash(key)
    except TypeError:
        return None
    return key


def _weakly(backend: Any) -> Hashable:
    """The backend as a part of a key, which does not keep it alive: often one holds graphs."""
    if isinstance(backend, str):
        return backend
    return (weakref.WeakMethod if isinstance(backend, types.MethodType) else weakref.ref)(backend)
