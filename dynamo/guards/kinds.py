"""Guards: a compiled frame's assumptions about values from outside, and the tree that checks them.

A Guard is a Source, a kind, and the kind's payload. GuardSet collects and deduplicates them while
a frame is captured; `build()` arranges them by their sources into the tree that csrc/guards.cpp
evaluates. The rules by which unchanged objects are skipped stand in csrc/guard_program.h.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynamo._guards import GlobalState, GuardTree, accumulates, has_mark, mark_tensor
from dynamo.guards.classes import ClassAssumptions
from dynamo.guards.sources import Source

if TYPE_CHECKING:
    import torch

__all__ = ["KINDS", "GlobalState", "Guard", "GuardSet", "GuardTree", "KnownTensor", "accumulates"]

# kind -> meaning of `payload`. The names are those that csrc/guard_leaves.cpp knows.
# "Weakly": when the object dies, the tree becomes invalid (`is_valid`) and never passes again. A
# tensor is told by its address and its version counter: weak references would keep the program from
# torch.utils.swap_tensors, after which the tensor counts as another.
KINDS = {
    "type": "type(value) is payload (held weakly)",
    "id": "value is payload (held by weak reference where its type allows, else strongly)",
    "none": "value is None",
    "constant": (
        "type(value) is type(payload) and value == payload (exact at every level: -0.0 != "
        "0.0, nan is nan, 1 is not True; list, dict and set payloads are copied when the "
        "guard is added)"
    ),
    "tensor": (
        "payload is an example tensor: type, dtype, device, sizes, strides, requires_grad, "
        "layout, dispatch keys; or (example, sizes, strides), each None (as the example) or a"
        " sequence of int | None per dimension (None: any)"
    ),
    "static_tensor": (
        "value is the tensor `payload` itself (held weakly), and its sizes, strides, dtype, "
        "device and requires_grad are unchanged"
    ),
    "marks": (
        "the dimensions that the user marked dynamic, dynamic if possible, or static are among "
        "those of payload, three ints with a bit for each dimension; sizes 0 and 1 count as not "
        "marked"
    ),
    "accumulates": (
        "autograd does nothing with the tensor's gradient but to accumulate it: it is a leaf "
        "without hooks, on it or on its AccumulateGrad node"
    ),
    "length": "len(value) == payload, for list, tuple, dict, set, deque",
    "dict_keys": (
        "list(value) == payload, in order; constant keys are compared, others by identity "
        "(held weakly)"
    ),
    "contains": "(key in dict) is payload[1], with payload[0] the key; dict storage, else `in`",
    "has_attr": "hasattr(value, payload[0]) is payload[1]",
    "no_instance_attr": "payload not in value.__dict__ (the class attribute is what was seen)",
    "function_code": (
        "value is a function with the code (held weakly) and the globals of payload, a function"
    ),
    "address": "id(value) == payload: the object is not held at all, so another may take its place",
    "type_attr": (
        "looking payload[0] up in type(value).__mro__ finds the object payload[1]; (name, None): "
        "finds nothing; (name, found, True): finds `found`, which may be None"
    ),
    "type_attr_type": (
        "looking payload[0] up in type(value).__mro__ finds an object of the type payload[1], held "
        "weakly: data, whose value is guarded where it is read"
    ),
    "not_aliased": "no two of the sources in payload (a tuple) have the same object; source None",
    "not_among": (
        "id(value) is not in payload (a tuple): the ids of static tensors, which other guards of "
        "the frame hold"
    ),
    "aliased": "value is the same object as the value of the Source payload",
    "shapes": (
        "payload is a ShapePayload (dynamo/guards/shape_payload.py): conditions on the sizes, "
        "strides and numbers that are symbols; source None"
    ),
    "grad_mode": "global: torch.is_grad_enabled() is payload",
    "globals": (
        "payload: GlobalState() made when the frame began, None: made when the guard is "
        "added. Grad, inference and forward-grad mode, autocast (cpu, cuda: enabled, dtype; "
        "cache), default dtype and backend, default device (a torch function mode), deterministic "
        "algorithms, float32 matmul precision, switches between kernels (mkldnn, cuDNN, "
        "attention), torch function and dispatch modes, and thread-local dispatch keys; not the "
        "number of threads"
    ),
    "lookups": (
        "payload: tuple of (dict or class, name, what it led to); without the last: to nothing. "
        "Names of modules and classes that change rarely: while no such dict or class has "
        "changed, all of them together are one comparison (csrc/guard_lookups.cpp)"
    ),
    "unnoticed": (
        "payload is (names, predicate): there are only literals, and tensors without weak "
        "references, under these keys of the dict value, or of value.__dict__; or predicate(value)"
    ),
    "class": (
        "payload is that of ClassAssumptions (dynamo/guards/classes.py): the MRO of a class, the "
        "special methods in it, and what lookups of other names find are unchanged; source None"
    ),
    "predicate": "payload(value) is true (slow path; payload has a __name__ that explains it)",
}

# Kinds about the whole process, not about a value.
_GLOBAL_KINDS = frozenset({"grad_mode", "globals", "class", "lookups"})
# Kinds whose payloads are told apart by identity: hashing or comparing them could run user code.
_IDENTITY_KINDS = frozenset({"type", "id", "tensor", "static_tensor", "function_code", "predicate"})
_ROOT = 0


@dataclass(frozen=True)
class Guard:
    """An assumption about a program object. `source` is None for the global kinds."""

    source: Source | None
    kind: str
    payload: Any = None

    def key(self) -> Hashable:
        if self.kind in _IDENTITY_KINDS:
            return (self.source, self.kind, id(self.payload))
        try:
            hash(self.payload)
            return (self.source, self.kind, type(self.payload), self.payload)
        except TypeError:
            return (self.source, self.kind, id(self.payload))


@dataclass
class Reads:
    """The places that a part of a capture reads: keys of the guards that it assumes, and sources of
    values that were known before. later: what it does not read, guards on all keys of a dict of
    which it knows some; they are assumed after it.
    """

    keys: set[Hashable] = field(default_factory=set)
    sources: set[Source] = field(default_factory=set)
    later: set[Hashable] = field(default_factory=set)


class GuardSet:
    """The guards of one frame, deduplicated, in the order in which they were assumed."""

    def __init__(self) -> None:
        self._guards: dict[Hashable, Guard] = {}
        self._classes: dict[int, ClassAssumptions] = {}  # by the id of the class
        self._reads: list[Reads] = []  # of the parts that are being captured
        self._noted: list[Reads] = []  # of those before

    @contextlib.contextmanager
    def noting(self) -> Iterator[Reads]:
        """Note the reads in the block."""
        reads = Reads()
        self._reads.append(reads)
        try:
            yield reads
        finally:
            self._reads.pop()
            self._noted.append(reads)

    def note(self, source: Source | None) -> None:
        """Note a value from outside that is known already."""
        for reads in self._reads:
            if source is not None:
                reads.sources.add(source)

    def among(self, reads: Reads) -> dict[Source, list[Guard]]:
        """The guards on those places, by place; none of the process."""
        found: dict[Source, list[Guard]] = {}
        for key, guard in self._guards.items():
            source = guard.source
            known = key in reads.keys or (source in reads.sources and key not in reads.later)
            if source is not None and known:
                found.setdefault(source, []).append(guard)
        return found

    def add(self, source: Source | None, kind: str, payload: Any = None) -> None:
        if kind not in KINDS:
            raise KeyError(f"unknown guard kind {kind!r}")
        if source is not None and source.made_by_frame:
            return
        if kind == "not_aliased":
            payload = tuple(one for one in payload if not one.made_by_frame)
            if len(payload) < 2:
                return
        if kind == "globals" and payload is None:
            payload = GlobalState()
        elif kind == "constant" and isinstance(payload, list | dict | set | bytearray):
            payload = copy.deepcopy(payload)  # the frame may go on to change it
        guard = Guard(source, kind, payload)
        key = guard.key()
        if key not in self._guards:
            self._guards[key] = guard
            for reads in self._noted if kind == "dict_keys" else ():
                reads.later.add(key)
        for reads in self._reads:
            reads.keys.add(key)

    def assume_class(self, cls: type) -> ClassAssumptions:
        """Assume the MRO of a class, and the special methods in it.

        Nothing comes of it for classes that cannot change, and those of trusted packages.
        """
        known = self._classes.get(id(cls))
        if known is None:
            known = self._classes[id(cls)] = ClassAssumptions(cls)
        return known

    def weaken(self, source: Source, kind: str, to: str) -> None:
        """Replace the guards of kind `kind` on `source` by guards of the weaker kind `to`."""
        for key, guard in list(self._guards.items()):
            if guard.kind == kind and guard.source == source:
                del self._guards[key]
                self.add(source, to, guard.payload)

    def __iter__(self) -> Iterator[Guard]:
        yield from self._guards.values()

    def __len__(self) -> int:
        return len(self._guards)

    def drop_all_but(self, kept: set[int]) -> None:
        """Assume no more than the guards with these ids."""
        self._guards = {key: guard for key, guard in self._guards.items() if id(guard) in kept}

    def build(self) -> GuardTree:
        """The tree that checks these guards.

        `check(locals: tuple, globals: dict, builtins: dict | None, closure: tuple | None) -> bool`
        and, with the same arguments, `explain_failure(...) -> list[str]`; `is_valid`, `describe()`,
        `str()`.
        """
        builder = _TreeBuilder()
        for guard in self:
            builder.add(guard)
        for known in self._classes.values():
            if (payload := known.payload()) is not None:
                builder.add(Guard(None, "class", payload))
        return GuardTree(builder.nodes, builder.guards)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A source as the tree's reports name it."""

    source: Source

    @property
    def name(self) -> str:
        return str(self.source)


class _TreeBuilder:
    """Gives each source one node, so that a base shared by sources is fetched once."""

    def __init__(self) -> None:
        self.nodes: list[tuple[int, str, Any, _Shown | None]] = []
        self.guards: list[tuple[int, str, Any]] = []
        self._of_source: dict[Source, int] = {}
        self._of_step: dict[Hashable, int] = {}

    def add(self, guard: Guard) -> None:
        payload = guard.payload
        if guard.kind == "not_aliased":
            payload = [self._node(source) for source in payload]
            self.guards.append((_ROOT, guard.kind, payload))
        elif guard.kind == "aliased":
            assert guard.source is not None, "an 'aliased' guard has a source"
            payload = [self._node(guard.source), self._node(payload)]
            self.guards.append((_ROOT, guard.kind, payload))
        elif guard.kind == "shapes":
            reads = [
                (_ROOT if source is None else self._node(source), *rest)
                for source, *rest in payload.reads
            ]
            self.guards.append((_ROOT, guard.kind, (reads, payload.conditions)))
        elif guard.kind in _GLOBAL_KINDS:
            self.guards.append((_ROOT, guard.kind, payload))
        else:
            assert guard.source is not None, f"a {guard.kind!r} guard has a source"
            self.guards.append((self._node(guard.source), guard.kind, payload))

    def _node(self, source: Source) -> int:
        index = self._of_source.get(source)
        if index is None:
            kind, key = source.accessor
            if source.base is not None:
                parent = self._node(source.base)
            elif kind == "global":
                parent = self._step(_ROOT, "globals", None, None)
            else:
                parent = _ROOT
            index = self._of_source[source] = self._step(parent, kind, key, source)
        return index

    def _step(self, parent: int, kind: str, key: Any, source: Source | None) -> int:
        """The node for one accessor below `parent`; equal sources of different classes share it."""
        step = (parent, kind, type(key), key)
        index = self._of_step.get(step)
        if index is None:
            self.nodes.append((parent, kind, key, None if source is None else _Shown(source)))
            index = self._of_step[step] = len(self.nodes)  # node 0 is the root
        return index


class KnownTensor:
    """Tells a tensor from others as guards do (see KINDS), also after the tensor's end: another
    may then have the address.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.address, self.mark = id(tensor), mark_tensor(tensor)

    def is_(self, tensor: torch.Tensor) -> bool:
        return id(tensor) == self.address and has_mark(tensor, self.mark)
