"""The configuration of a `dynamo.compile(...)` call. Cache entries are keyed by (code object,
context).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch

from dynamo import stances
from dynamo.bytecode.cache import CodeMap, IdentityMap
from dynamo.config import config
from dynamo.guards.filters import Filter
from dynamo.guards.history import History
from dynamo.records import FrameRecord


@dataclass(eq=False)
class CompileContext:
    """`backend(gm, example_inputs) -> callable` is already resolved; records grow as frames are
    compiled.
    """

    backend: Callable[..., Any]
    backend_name: str = "custom"
    fullgraph: bool = False
    dynamic: bool | None = None
    export: bool = False
    # The arguments of dynamo.compile that made it, to compile the same way again (explain,
    # pickling).
    settings: dict[str, Any] = field(default_factory=dict)
    again: Callable[..., Any] | None = None  # api.compile.compile_again
    records: list[FrameRecord] = field(default_factory=list)
    history: History = field(default_factory=History)  # the sizes seen, by code object
    # How often in a row a function and its continuations were captured without a graph.
    without_graph: CodeMap[int] = field(default_factory=CodeMap)
    # Seconds of captures of library frames that gave no graph, less those of all captures with one.
    in_vain: float = 0.0
    raised: set[str] = field(default_factory=set)  # compile ids of entries for calls that raise
    # Sources of numbers that are symbols from the first capture on.
    varying: frozenset[str] = frozenset()
    guard_filter: Filter | None = None  # options["guard_filter_fn"]
    recompile_limit: int | None = None  # in place of config.recompile_limit
    # The functions or modules whose compilations share the context (dynamo/api/shared_contexts.py),
    # and their numbers from 1 on.
    sharers: IdentityMap[Any, int] = field(default_factory=IdentityMap)
    _joined: int = 0
    takes_any: bool = False  # parameters that sharers hold: none is known to the code
    is_crowded: bool = False  # by code that serves one sharer each
    hooks: Any = None  # static_graph.hooks.BuildHooks of a static graph
    _resets: int = field(default_factory=lambda: History.resets)  # before

    @property
    def is_unused(self) -> bool:
        return not self.records and self.history.is_empty

    def forget(self) -> None:
        """Forget the reports of what dynamo.reset() has ended: their graphs hold memory."""
        if self._resets != History.resets:
            self.records, self.raised, self._resets = [], set(), History.resets

    def reduced(self, fn: Any) -> Any:
        """The value of `__reduce__` for `fn`, compiled: the name of a function that a decorator
        compiled, else the function that has the name, or what is no function, to compile again.
        """
        if type(fn) is FunctionType and not _has_its_name(fn):
            return fn.__qualname__  # pickle refuses it where the name leads elsewhere
        return self.again, (fn, self.settings)

    def join(self, target: Any) -> None:
        """A function or module for which the context compiles, too."""
        if self.sharers.get(target) is None:
            self._joined += 1
            self.sharers.set(target, self._joined)

    def module_among(self, values: Iterable[Any]) -> tuple[int, int] | None:
        """The first place of a module for which the context compiles, and its number."""
        for index, value in enumerate(values):
            number = self.sharers.get(value)
            if number is not None and issubclass(type(value), torch.nn.Module):
                return index, number
        return None

    @property
    def targets(self) -> int:
        """How many functions or modules share the context."""
        return max(1, len(self.sharers))

    @property
    def limit(self) -> int:
        """How many versions of one code object are compiled, for each that shares the context."""
        each = config.recompile_limit if self.recompile_limit is None else self.recompile_limit
        return each * self.targets

    @property
    def names_backend(self) -> bool:
        """Whether the user gave the backend by its name."""
        return isinstance(self.settings.get("backend"), str)

    @property
    def backend_now(self) -> Callable[..., Any]:
        """The backend, unless set_stance() has all functions compiled with another."""
        return stances.current().backend or self.backend


def _has_its_name(fn: FunctionType) -> bool:
    """Whether the name of a function leads to it, and not to what a decorator made of it."""
    found: Any = sys.modules.get(fn.__module__)
    for name in fn.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is fn
