"""Tensors that the frame makes of numbers alone: their values are known while capturing.

`torch.tensor([3, 5]).max().item()` is 5, a constant, and no graph breaks for it. The operations
stay in the graph, where they are dead code if nothing else reads their results. Of numbers that
vary, the values of this call are known: a read of them makes constants of the numbers.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from dynamo.values.tensors.memory_overlap import version_of
from fxgraph import Node, effects
from fxgraph.args import leaves, map_aggregate
from fxgraph.tensor_state import set_data_

MOST_ELEMENTS = 256  # of a tensor that is computed while capturing
_PLAIN = (int, float, complex, str, slice, torch.dtype, torch.device, torch.layout)
_PLAIN_OR_NONE = (*_PLAIN, torch.memory_format, type(None), type(...))


class _Refused(Exception):
    """The operation does not compute the same each time, or writes."""


class _OnlyComputes(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        random = torch.Tag.nondeterministic_seeded in func.tags
        if random or func._schema.is_mutable or "empty" in func.__name__:
            raise _Refused
        if func.namespace not in ("aten", "prims"):  # Python of the program's, perhaps
            raise _Refused
        return func(*args, **(kwargs or {}))


_VARYING = (torch.SymInt, torch.SymFloat)


@dataclass(frozen=True)
class _Known:
    """The values of a fake tensor, as long as its version is this. numbers: nodes of those that
    vary, of which the values are made.
    """

    fake: torch.Tensor
    real: torch.Tensor
    version: int
    numbers: frozenset[Any]

    def read(self) -> torch.Tensor:
        for node in self.numbers:
            node.shape_env.specialise(node.expr)
        return self.real


class KnownTensors:
    """Fake tensors whose values are known, until something writes them."""

    def __init__(self) -> None:
        self._held: dict[int, _Known] = {}  # by the fake's id
        self._first: dict[int, _Known] = {}  # by the id of a fake of whose elements one is known

    def real_of(self, fake: torch.Tensor) -> torch.Tensor | None:
        """The tensor with the values, which are guarded; not to be written."""
        known = self._find(fake, self._held)
        return None if known is None else known.read()

    def _find(self, fake: Any, table: dict[int, _Known]) -> _Known | None:
        known = table.get(id(fake))
        current = known and known.fake is fake and version_of(fake) == known.version
        return known if current else None

    def hold(self, fake: torch.Tensor, real: torch.Tensor) -> None:
        """Keep the values of a fake tensor that the frame has just made of constants."""
        self._held[id(fake)] = _Known(fake, real, version_of(fake), frozenset())

    def hold_first(self, fake: torch.Tensor, value: int) -> None:
        """Keep the first element of a vector that the frame has just made."""
        real = torch.tensor(value, dtype=fake.dtype)
        self._first[id(fake)] = _Known(fake, real, version_of(fake), frozenset())

    def first_of(self, fake: Any) -> torch.Tensor | None:
        known = self._find(fake, self._first)
        return None if known is None else known.real

    def forget(self) -> None:
        """Writes may go unnoticed from here on."""
        self._held.clear()
        self._first.clear()

    def node_added(self, node: Node) -> None:
        """A node of the graph may write: tensors that share memory with its arguments are not known
        then, also where the write raises no version counter.
        """
        if not self._held and not self._first:
            return
        found = effects.of(node)
        if found.other:
            self.forget()
        elif found.writes:
            nodes = [leaf for leaf in leaves((node.args, node.kwargs)) if isinstance(leaf, Node)]
            fakes = [fake for node in nodes for fake in leaves(node.meta.get("val"))]
            written = {_memory(fake) for fake in fakes if _has_memory(fake)}
            for table in (self._held, self._first):
                for key in [k for k, held in table.items() if _memory(held.fake) in written]:
                    del table[key]

    def note(self, result: Any, op: str, target: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        """Keep the values of the fake result of an operation, if its arguments tell them."""
        if target in (getattr, set_data_):  # writes of x.data do not count as those of x
            self.forget()
            return
        if target is operator.getitem and self._first and isinstance(args[0], Node):
            takes_first = type(args[1]) is int and args[1] == 0
            first = self.first_of(args[0].meta.get("val")) if takes_first else None
            if first is not None:
                self.hold(result, first)
                return
        if not self._may_be_known(target, (args, kwargs)):
            return
        fakes = list(result) if type(result) in (list, tuple) else [result]
        if not all(map(_is_small, fakes)):
            return
        found = self._run(op, target, args, kwargs)
        numbers = self._numbers_of((args, kwargs))
        reals = list(found) if isinstance(found, (list, tuple)) else [found]
        if len(reals) == len(fakes) and all(map(_is_plain, reals)):
            for fake, real in zip(fakes, reals):
                if (real.shape, real.dtype) == (fake.shape, fake.dtype):
                    self._held[id(fake)] = _Known(fake, real, version_of(fake), numbers)
                    fake.constant = None  # or torch would tell operators the number by itself

    def _may_be_known(self, target: Any, nest: Any) -> bool:
        nodes = 0
        for leaf in leaves(nest):
            if isinstance(leaf, Node):
                if self._to_real(leaf) is None:
                    return False
                nodes += not isinstance(leaf.meta.get("val"), _VARYING)
            elif not isinstance(leaf, _PLAIN_OR_NONE):
                return False
        return nodes > 0 or callable(target)

    def _numbers_of(self, nest: Any) -> frozenset[Any]:
        """The numbers that vary of which tensors are made."""
        found: set[Any] = set()
        for leaf in leaves(nest):
            val = leaf.meta.get("val") if isinstance(leaf, Node) else None
            if isinstance(val, _VARYING):
                found.add(val.node)
            elif isinstance(val, torch.Tensor):
                known = self._find(val, self._held)
                found |= frozenset() if known is None else known.numbers
        return frozenset(found)

    def computed(
        self, op: str, target: Any, args: tuple, kwargs: dict[str, Any]
    ) -> torch.Tensor | None:
        """The result of an operation on known tensors; None: no result, or one that varies by
        call.
        """
        if not self._may_be_known(target, (args, kwargs)):
            return None
        real = self._run(op, target, args, kwargs)
        if not _is_plain(real) or real.numel() > MOST_ELEMENTS:
            return None
        return _Known(real, real, 0, self._numbers_of((args, kwargs))).read()

    def _run(self, op: str, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        real_args, real_kwargs = map_aggregate((args, kwargs), self._to_real)
        function: Callable[..., Any] = target
        of_target = effects.of_method if op == "call_method" else effects.of_function
        if of_target(target, args, kwargs).impure():
            return None
        try:
            if op == "call_method":
                function, real_args = getattr(real_args[0], target), real_args[1:]
            with alone():
                return function(*real_args, **real_kwargs)
        except Exception:  # of the program, which raises when the graph runs
            return None

    def _to_real(self, leaf: Any) -> Any:
        """The leaf's value in this call; None: not known."""
        if not isinstance(leaf, Node):
            return leaf
        val = leaf.meta.get("val")
        if isinstance(val, _VARYING):
            return val.node.hint
        known = self._find(val, self._held)
        return None if known is None else known.real


def _has_memory(fake: Any) -> bool:
    return isinstance(fake, torch.Tensor) and torch._C._has_storage(fake)


def _memory(fake: torch.Tensor) -> int:
    return fake.untyped_storage()._cdata


def _is_small(fake: Any) -> bool:
    if type(fake) is not FakeTensor or fake.requires_grad or fake.is_inference():
        return False
    static = all(type(size) is int for size in fake.shape)
    return static and fake.numel() <= MOST_ELEMENTS


def _is_plain(real: Any) -> bool:
    strided = type(real) is torch.Tensor and real.layout is torch.strided
    return strided and real.device.type == "cpu"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Without the program's modes, which would notice."""
    with (
        _disable_current_modes(),
        torch._C.DisableTorchFunction(),
        torch.no_grad(),
        _OnlyComputes(),
    ):
        yield
