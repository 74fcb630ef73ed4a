"""Regions of code in which a graph break is an error, or is none."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from dynamo.polyfills import mark

mark(globals(), breakable=True)


class _Regions(threading.local):
    flags: tuple[bool, ...] = ()


_regions = _Regions()


def regions() -> tuple[bool, ...]:
    """The flags of the regions that this thread is inside of, outermost first."""
    return _regions.flags


def set_regions(flags: tuple[bool, ...]) -> None:
    _regions.flags = flags


def enter_region(flag: bool) -> None:
    _regions.flags = (*_regions.flags, flag)


def leave_region() -> None:
    _regions.flags = _regions.flags[:-1]


def break_is_error() -> bool:
    return bool(_regions.flags) and _regions.flags[-1]


class error_on_graph_break:
    """With True, a graph break inside is an error (dynamo.errors.Unsupported); with False, it is
    allowed again. A context manager and a decorator, for compiled code.

    Unlike fullgraph=True, a region of True does not promise one graph: the break of a region of
    False inside of it still splits the graph. With fullgraph=True every break is an error.
    """

    def __init__(self, error: bool) -> None:
        if not isinstance(error, bool):
            raise TypeError(f"dynamo.error_on_graph_break takes True or False, not {error!r}")
        self.error = error

    def __enter__(self) -> None:
        enter_region(self.error)

    def __exit__(self, *exc: object) -> None:
        leave_region()

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(fn):
            raise TypeError(f"dynamo.error_on_graph_break decorates a callable, not {fn!r}")

        @functools.wraps(fn)
        def in_region(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return in_region


_Region = error_on_graph_break


def region_for(error_on_graph_break: bool) -> _Region:
    """The region for a call of torch.compile's function of the same name."""
    return _Region(error_on_graph_break)
