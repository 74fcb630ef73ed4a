"""Contexts that compilations which are alike share: code compiled for one serves the others.

    for block in blocks:                # equal blocks: two graphs, however many there are
        block.call = dynamo.compile(block)

    def step(x):
        return dynamo.compile(f)(x)     # one graph, not one for each call

Alike are compilations of one function, of closures of one code over numbers, texts and functions,
or of modules of one class with the same submodules and sizes of parameters, by the same settings
and configuration. The first of several modules has a context of its own: its code may know its
parameters, as that of a closure over a model does. Code that was compiled keeps the cells of the
last call alive, so closures over tensors and other objects share with no other closure. Contexts
are kept for the latest families that had a second member, until the function or class is gone.
"""

from __future__ import annotations

import sys
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from dynamo.api.context import CompileContext
from dynamo.config import config

_MOST_FAMILIES = 128


@dataclass
class _Family:
    """Compilations that are alike. anchor: the object whose id stands in the key."""

    anchor: weakref.ref[Any]
    first: weakref.ref[CompileContext]
    shared: CompileContext | None = None


_families: OrderedDict[Hashable, _Family] = OrderedDict()
_lock = threading.RLock()  # comparing keys may call the program, which may compile


def context_of(
    target: Any, settings: dict[str, Any], make: Callable[[dict[str, Any]], CompileContext]
) -> CompileContext:
    """The context for compiling `target`: make(settings), or that of an earlier target like it."""
    owner = _owner(target)
    key = None if owner is None else _key(target, owner, settings)
    if key is None:
        return make(settings)
    with _lock:
        anchor, family = _anchor(target, owner), _families.get(key)
        if family is None or family.anchor() is not anchor:
            context = make(settings)
            _families[key] = _Family(_watched(anchor, key), weakref.ref(context))
            if len(_families) > _MOST_FAMILIES:
                _families.popitem(last=False)
        else:
            _families.move_to_end(key)
            if family.shared is None:
                first = None if isinstance(owner, torch.nn.Module) else family.first()
                family.shared = first or make(settings)
            context = family.shared
        context.sharers.set(owner, None)
    return context


def _watched(anchor: Any, key: Hashable) -> weakref.ref[Any]:
    """A reference to the anchor, with whose end the family ends: compiled code of closures holds
    what they close over.
    """

    def forget(ref: weakref.ref[Any]) -> None:
        family = _families.get(key)
        if family is not None and family.anchor is ref:
            _families.pop(key, None)

    return weakref.ref(anchor, forget)


def forget_all() -> None:
    with _lock:
        _families.clear()


def _owner(target: Any) -> Any:
    """The module, the object of a method, or the function that is compiled; None: another kind."""
    if isinstance(target, types.MethodType):
        target = target.__self__ if isinstance(target.__self__, torch.nn.Module) else None
    return target if isinstance(target, (torch.nn.Module, types.FunctionType)) else None


def _anchor(target: Any, owner: Any) -> Any:
    if isinstance(target, types.MethodType):
        return target.__func__
    if isinstance(owner, torch.nn.Module):
        return type(owner)
    plain = all(_is_plain(cell, owner.__globals__) for cell in owner.__closure__ or ())
    return owner.__code__ if plain else owner


_PLAIN = frozenset([int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device])


def _is_plain(cell: types.CellType, namespace: dict[str, Any]) -> bool:
    """Whether a cell holds nothing of which compiled code knows the inside, and nothing large.
    `namespace`: the globals of the closure.
    """
    try:
        value = cell.cell_contents
    except ValueError:  # empty
        return False
    if isinstance(value, types.FunctionType):
        if value.__closure__ or value.__defaults__ or value.__kwdefaults__:
            return False
        # Globals of a call of exec would live as long as the compiled code.
        return value.__globals__ is namespace or _is_of_module(value.__globals__)
    if isinstance(value, types.BuiltinFunctionType):  # a method's object may be anything
        return value.__self__ is None or isinstance(value.__self__, type | types.ModuleType)
    return type(value) in _PLAIN


def _is_of_module(namespace: dict[str, Any]) -> bool:
    name = namespace.get("__name__")
    module = sys.modules.get(name) if type(name) is str else None
    return isinstance(module, types.ModuleType) and module.__dict__ is namespace


def _key(target: Any, owner: Any, settings: dict[str, Any]) -> Hashable | None:
    """The properties that two compilations with one context have alike; None: one of its own."""
    options = settings["options"]
    module = _structure(owner) if isinstance(owner, torch.nn.Module) else ()
    if module is None:
        return None
    try:
        key = (
            id(_anchor(target, owner)),
            isinstance(target, types.MethodType) and type(owner),
            module,
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


def _structure(module: torch.nn.Module) -> Hashable | None:
    """Names and classes of submodules, and types and sizes of parameters and buffers; read without
    the program's methods, which would notice.
    """
    found: list[Hashable] = []
    seen: set[int] = set()
    rest: list[tuple[str, Any]] = [("", module)]
    with torch._C.DisableTorchFunctionSubclass():
        while rest:
            name, part = rest.pop()
            found.append((name, type(part)))
            if id(part) in seen or not isinstance(part, torch.nn.Module):
                continue
            seen.add(id(part))
            members = part.__dict__
            if not members.keys() >= {"_parameters", "_buffers", "_modules"}:
                return None  # Module.__init__ did not run yet
            for key, tensor in [*members["_parameters"].items(), *members["_buffers"].items()]:
                if torch.nn.parameter.is_lazy(tensor) or getattr(tensor, "is_nested", False):
                    return None
                if tensor is not None:
                    found.append((f"{name}.{key}", tensor.shape, tensor.dtype, tensor.device))
            rest += [(f"{name}.{key}", child) for key, child in members["_modules"].items()]
    return tuple(found)
