"""Functions of torch.compiler that programs call around compiled code, under the same names."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch

from dynamo.directives import check_callable, is_compiling


def is_dynamo_compiling() -> bool:
    """As is_compiling: True inside code that is being captured."""
    return is_compiling()


def is_exporting() -> bool:
    """Whether code runs for torch.export: never inside captured code."""
    return torch.compiler.is_exporting()


def cudagraph_mark_step_begin() -> None:
    """A new step of inference or training begins. Nothing depends on it: memory of a result that is
    alive is never written by a later replay of a device graph.
    """


def nested_compile_region(
    fn: Callable[..., Any] | None = None,
    *,
    options: Any = None,
    max_reuse_entries: int = 8,
    reuse_hash_fn: Callable[..., Any] | None = None,
) -> Any:
    """Mark a function that is called often with the same structure. Captured code has its
    operations in the graph each time, and kernels that are equal are compiled once in any case: the
    arguments change nothing. Raises TypeError for an object that cannot be called.
    """
    if fn is None:
        return nested_compile_region
    check_callable("nested_compile_region", fn)
    return fn


_collectives = False


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Whether ranks of a distributed program agree on compilations before each call; returns what
    was set before. Ranks always compile on their own: with several, True gives a warning. Raises
    TypeError unless `enabled` is a bool.
    """
    global _collectives
    if not isinstance(enabled, bool):
        raise TypeError(f"enabled must be True or False, not {enabled!r}")
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if enabled and distributed and torch.distributed.get_world_size() > 1:
        warnings.warn(
            "framegraph does not synchronise ranks around guards: each compiles on its own",
            stacklevel=2,
        )
    before, _collectives = _collectives, enabled
    return before


def save_cache_artifacts() -> tuple[bytes, Any] | None:
    """(an archive of the compiled kernels and plans that this process made or used, the names of
    its entries); None if there are none. See load_cache_artifacts.
    """
    return _cache().save_used()


def load_cache_artifacts(serialized_artifacts: bytes) -> Any:
    """Put the entries of such an archive into this machine's cache folder, so that compiling the
    same graphs takes what is there; returns their names, or None if it holds none.

    The archive has machine code: load what you trust as you trust a program. Raises ValueError for
    bytes that are no such archive, or damaged.
    """
    if not isinstance(serialized_artifacts, bytes | bytearray | memoryview):
        raise TypeError(f"an archive is bytes, not {type(serialized_artifacts).__name__}")
    return _cache().load_archive(bytes(serialized_artifacts))


def _cache() -> Any:
    return importlib.import_module("backends.inductor")
