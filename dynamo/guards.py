"""Guards: what a compiled frame assumed about values from outside, and the tree that checks it.

A Guard is a Source, a kind, and what the kind needs. GuardSet collects and deduplicates them while a frame is captured;
`build()` arranges them by their sources into the tree that csrc/guards.cpp evaluates.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from dynamo.sources import Source

# kind -> meaning of `payload`. The names are those that csrc/guards.cpp knows.
KINDS = {
    "type": "type(value) is payload",
    "id": "value is payload (held by weak reference where that is possible)",
    "none": "value is None",
    "constant": "type(value) is type(payload) and value == payload (exact: -0.0 != 0.0, nan is nan, 1 is not True)",
    "tensor": "payload is an example tensor: type, dtype, device, sizes, strides, requires_grad, layout, dispatch keys",
    "static_tensor": "value is the tensor `payload` itself, and its sizes, strides, dtype and requires_grad are unchanged",
    "length": "len(value) == payload, for list, tuple, dict, set, deque",
    "dict_keys": "list(value) == payload, in order; constant keys are compared, others by identity",
    "contains": "(key in dict) is payload[1], with payload[0] the key; exact dict or mapping storage",
    "has_attr": "hasattr(value, payload[0]) is payload[1]",
    "no_instance_attr": "payload not in value.__dict__ (the class attribute is what was seen)",
    "function_code": "value.__code__ is payload",
    "type_attr": "looking payload[0] up in type(value).__mro__ finds the object payload[1] (None: nothing)",
    "not_aliased": "no two of the tensor sources in payload are the same object",
    "aliased": "value is the same object as the value of the Source payload",
    "grad_mode": "global: torch.is_grad_enabled() is payload; likewise the other globals below",
    "globals": "payload: snapshot of grad mode, inference mode, autocast (per device, dtype, cache), default dtype, default device, "
    "deterministic algorithms, num threads not included, torch function mode stack empty",
    "predicate": "payload(value) is true (slow path; payload has a __name__ that explains it)",
}


@dataclass(frozen=True)
class Guard:
    """One assumption. `source` is None for the global kinds."""

    source: Source | None
    kind: str
    payload: Any = None
    user_frame: str | None = None  # "file:line in function" that made us assume it, for reports

    def key(self) -> Hashable:
        try:
            hash(self.payload)
            return (self.source, self.kind, type(self.payload), self.payload)
        except TypeError:
            return (self.source, self.kind, id(self.payload))


class GuardSet:
    """The guards of one frame, deduplicated, in the order in which they were assumed."""

    def __init__(self) -> None:
        self._guards: dict[Hashable, Guard] = {}

    def add(self, source: Source | None, kind: str, payload: Any = None) -> None:
        if kind not in KINDS:
            raise KeyError(f"unknown guard kind {kind!r}")
        guard = Guard(source, kind, payload)
        self._guards.setdefault(guard.key(), guard)

    def __iter__(self):
        return iter(self._guards.values())

    def __len__(self) -> int:
        return len(self._guards)
