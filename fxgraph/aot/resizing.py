"""Resizes of images stay whole where sizes are symbols.

The C++ forms with `scale_factors` read sizes as numbers. torch's Python forms, which its dispatcher
takes in their place, spell a resize by indexing: an image of bytes is rounded otherwise, the
gradient is a scatter, and the lowering finds no resize. The forms here compute the size and call
the operator itself, on this project's behalf alone.

The same for a few others: torch's form of multilabel_margin_loss counts labels behind the first -1,
those of shrinks have other gradients at NaN; fill_diagonal_ reads strides as numbers.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey

from fxgraph.fake_results import RESIZES

aten = torch.ops.aten
OTHERS = ("hardshrink", "softshrink", "multilabel_margin_loss_forward")
_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
_active = threading.local()


@contextmanager
def whole_resizes() -> Iterator[None]:
    """In this thread, until the end, the forms below are taken."""
    _install()
    before = getattr(_active, "on", False)
    _active.on = True
    try:
        yield
    finally:
        _active.on = before


@functools.cache
def _install() -> None:
    # The import registers torch's forms, which those below stand before.
    from torch._decomp.decompositions import upsample_compute_output_size

    of_factors: Callable[..., Any] = functools.partial(_of_factors, upsample_compute_output_size)
    for name in (*RESIZES, *OTHERS):
        packet = getattr(aten, name)
        forms: list[tuple[Any, Any, Callable[..., Any]]]
        forms = [(packet.vec, key, of_factors) for key in _KEYS if name in RESIZES]
        forms.append((packet.default, DispatchKey.Autograd, _recorded))
        for op, key, form in forms:
            theirs = op.py_kernels.get(key)
            if theirs is not None:
                op.py_kernels[key] = _either(functools.partial(form, packet.default), theirs)
                op._dispatch_cache.clear()
    composite = DispatchKey.CompositeImplicitAutograd
    op = aten.fill_diagonal_.default
    theirs = op.py_kernels.get(composite, functools.partial(op._op_dk, composite))
    op.py_kernels[composite] = _either(functools.partial(_fill_diagonal, theirs), theirs)
    op._dispatch_cache.clear()


def _either(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    def form(*args: Any, **kwargs: Any) -> Any:
        return (ours if getattr(_active, "on", False) else theirs)(*args, **kwargs)

    return form


def _recorded(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """By autograd's own kernel, the same for every device."""
    return op._op_dk(DispatchKey.Autograd, *args, **kwargs)


def _fill_diagonal(
    theirs: Callable[..., Any], x: torch.Tensor, value: Any, wrap: bool = False
) -> torch.Tensor:
    if x.dim() != 2:
        return theirs(x, value, wrap)
    x.diagonal().fill_(value)
    rest = x.shape[1] + 1  # rows, behind which the diagonal begins again
    if wrap and x.shape[0] > rest:
        _fill_diagonal(theirs, x[rest:], value, wrap)
    return x


@functools.cache
def resizes_without_rules() -> frozenset[torch._ops.OpOverload]:
    """The resizing operators, with their gradients, for which torch has no shape rule in Python."""
    from torch._decomp import meta_table

    packets = [getattr(aten, name + end) for name in RESIZES for end in ("", "_backward")]
    return frozenset(p.default for p in packets if p.default not in meta_table)


def _of_factors(
    size_of: Callable[..., Any],
    op: torch._ops.OpOverload,
    input: torch.Tensor,
    output_size: Any,
    *corners: bool,
    scale_factors: Any = None,
    align_corners: bool | None = None,
) -> Any:
    rest = list(corners) if align_corners is None else [*corners, align_corners]
    if len(rest) > len(op._schema.arguments) - 2 - (input.dim() - 2):
        scale_factors = rest.pop()
    size = size_of(input.size(), output_size, scale_factors)
    scales = scale_factors or [None] * len(size)
    return op(input, size, *rest, *scales)
