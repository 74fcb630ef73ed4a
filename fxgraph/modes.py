"""torch's modes that a graph finds and may change: for graphs that run once more, later, and for a
compilation that an interrupt ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

# Each gives the modes as they are: (setter, arguments that set it). Capture adds its own.
READERS: list[Callable[[], list[tuple[Any, ...]]]] = []


def read_modes() -> list[tuple[Any, ...]]:
    """The modes as they are, each as (setter, arguments that set it)."""
    return [mode for read in READERS for mode in read()]


@contextlib.contextmanager
def under(modes: Sequence[tuple[Any, ...]]) -> Iterator[None]:
    """Run a block under these modes, and undo what it changes of them."""
    before = read_modes()
    try:
        _set(modes)
        yield
    finally:
        _set(before)
        if modes != before:  # casts under autocast belong to its region
            torch.clear_autocast_cache()


def _set(modes: Sequence[tuple[Any, ...]]) -> None:
    for setter, *args in modes:
        setter(*args)


@contextlib.contextmanager
def undone_by_interrupts() -> Iterator[None]:
    """Leave, when KeyboardInterrupt ends the block, the modes that it is in the midst of: raised in
    the first line of an `__exit__` of Python, it keeps a mode from being left.
    """
    c = torch._C
    before, overrides, dispatch = (
        read_modes(),
        _function_modes(),
        _get_current_dispatch_mode_stack(),
    )
    depth = c._functorch.get_dynamic_layer_stack_depth()
    keys = c._dispatch_tls_local_include_set(), c._dispatch_tls_local_exclude_set()
    with c._ForceDispatchKeyGuard(*keys):  # as they are, and again at the end
        try:
            yield
        except BaseException as error:  # or what an `__exit__` on its way raises instead
            while c._len_torch_dispatch_stack():
                c._pop_torch_dispatch_stack(None)
            for mode in dispatch:
                c._push_on_torch_dispatch_stack(mode)
            c._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
            while c._len_torch_function_stack():
                c._pop_torch_function_stack()
            for mode in overrides:
                c._push_on_torch_function_stack(mode)
            if isinstance(error, KeyboardInterrupt):  # others leave what they mean to
                _set(before)
            raise


def _function_modes() -> list[Any]:
    count = torch._C._len_torch_function_stack()
    return [torch._C._get_function_stack_at(i) for i in range(count)]
