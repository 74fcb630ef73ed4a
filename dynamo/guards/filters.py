"""options={"guard_filter_fn": choose}: the user says which guards of a frame are kept.

`choose` gets a list of GuardFilterEntry and gives as many bools. A dropped guard is not compared
any more: that the assumption holds is the user's promise. The filters below are those of
torch.compiler, whose own read these entries, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dynamo.errors import InvalidOption
from dynamo.guards.kinds import Guard
from dynamo.guards.sources import INSTALLED, GlobalSource, GlobalsSource, InstalledSource, Source

Filter = Callable[[list["GuardFilterEntry"]], Sequence[bool]]

# Our kinds under the names that filters written for torch.compile compare.
_TYPES = {
    "type": "TYPE_MATCH",
    "id": "ID_MATCH",
    "none": "CONSTANT_MATCH",
    "constant": "CONSTANT_MATCH",
    "tensor": "TENSOR_MATCH",
    "static_tensor": "TENSOR_MATCH",
    "length": "SEQUENCE_LENGTH",
    "dict_keys": "DICT_KEYS_MATCH",
    "contains": "DICT_CONTAINS",
    "has_attr": "HASATTR",
    "no_instance_attr": "NOT_PRESENT_IN_GENERIC_DICT",
    "function_code": "CLOSURE_MATCH",
    "shapes": "SHAPE_ENV",
    "grad_mode": "GRAD_MODE",
    "globals": "GLOBAL_STATE",
    "aliased": "DUPLICATE_INPUT",
}
_WITH_VALUE = frozenset(["id", "none", "constant", "static_tensor", "function_code"])


@dataclass(frozen=True)
class GuardFilterEntry:
    """A guard as filters see it: its source and the value it compares with."""

    name: str
    has_value: bool
    value: Any
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: OriginalGuard


@dataclass(frozen=True)
class OriginalGuard:
    """The guard under the attributes that filters written for torch.compile read."""

    guard: Guard
    source: GuardedPlace


@dataclass(frozen=True)
class GuardedPlace:
    """Where a guard looks. module: the class of the innermost module that holds the place."""

    name: str
    module: type | None

    def is_unspecialized_nn_module(self) -> bool:
        return self.module is not None

    def is_unspecialized_builtin_nn_module(self) -> bool:
        return self.module is not None and self.module.__module__.startswith(
            ("torch.nn.", "torch.ao.")
        )


def skip_guard_on_inbuilt_nn_modules_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """A guard_filter_fn (True for each guard to keep): attributes of torch's own modules stay as
    they are.
    """
    return [not e.orig_guard.source.is_unspecialized_builtin_nn_module() for e in entries]


def skip_guard_on_all_nn_modules_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """A guard_filter_fn: attributes of all modules stay as they are."""
    return [not e.orig_guard.source.is_unspecialized_nn_module() for e in entries]


def keep_tensor_guards_unsafe(
    entries: Sequence[GuardFilterEntry], keep_parameters: bool = False
) -> list[bool]:
    """A guard_filter_fn: nothing changes but tensors; with keep_parameters, parameters are compared
    too.
    """
    return [
        entry.guard_type == "TENSOR_MATCH"
        and (keep_parameters or not isinstance(entry.value, torch.nn.Parameter))
        for entry in entries
    ]


def keep_portable_guards_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """A guard_filter_fn: nothing changes but tensors, their sizes and torch's global modes."""
    return [
        entry.guard_type in ("GLOBAL_STATE", "SHAPE_ENV", "TENSOR_MATCH")
        and not isinstance(entry.value, torch.nn.Parameter)
        for entry in entries
    ]


def skip_guard_on_globals_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """A guard_filter_fn: global variables stay as they are."""
    return [not entry.is_global for entry in entries]


def skip_all_guards_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """A guard_filter_fn: all calls are as the first one."""
    return [False for _ in entries]


def kept(guards: Iterable[Guard], choose: Filter) -> set[int]:
    """ids of the guards that stay: those that `choose` keeps, and those without which the new code
    could not be loaded.
    """
    guards = list(guards)
    offered = [guard for guard in guards if not _is_needed(guard.source)]
    try:
        modules = _modules(guards)
        answers = list(choose([_entry(guard, modules) for guard in offered]))
    except Exception as error:
        raise InvalidOption(f"guard_filter_fn raised {type(error).__name__}: {error}") from error
    if len(answers) != len(offered):
        raise InvalidOption(
            f"guard_filter_fn returned {len(answers)} bools for {len(offered)} guards: "
            "return one for each, in order"
        )
    dropped = {id(guard) for guard, answer in zip(offered, answers) if not answer}
    return {id(guard) for guard in guards} - dropped


def _is_needed(source: Source | None) -> bool:
    if source is None:
        return False
    if isinstance(source, GlobalSource):
        return source.variable == INSTALLED
    root = _root(source)
    return isinstance(root, GlobalsSource) or isinstance(source, InstalledSource)


def _root(source: Source) -> Source:
    while source.base is not None:
        source = source.base
    return source


def _modules(guards: Iterable[Guard]) -> dict[Source, type]:
    """The places of modules, and their classes, as the guards of their types tell."""
    typed = ((guard.source, guard.payload) for guard in guards if guard.kind == "type")
    return {
        source: cls
        for source, cls in typed
        if source is not None and isinstance(cls, type) and issubclass(cls, torch.nn.Module)
    }


def _holder(source: Source | None, modules: dict[Source, type]) -> type | None:
    while source is not None and source not in modules:
        source = source.base
    return None if source is None else modules[source]


def _entry(guard: Guard, modules: dict[Source, type]) -> GuardFilterEntry:
    source, payload = guard.source, guard.payload
    name = "" if source is None else source.name
    has_value = guard.kind in _WITH_VALUE or guard.kind == "tensor"
    value = payload[0] if guard.kind == "tensor" and isinstance(payload, tuple) else payload
    return GuardFilterEntry(
        name=name,
        has_value=has_value,
        value=value if has_value else None,
        guard_type=_TYPES.get(guard.kind, guard.kind.upper()),
        derived_guard_types=(),
        is_global=source is not None and isinstance(_root(source), GlobalSource),
        orig_guard=OriginalGuard(guard, GuardedPlace(name, _holder(source, modules))),
    )
