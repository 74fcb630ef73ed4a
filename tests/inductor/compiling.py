"""Compile a plain function through the inductor pipeline, without frame capture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxgraph import GraphModule, symbolic_trace
from inductor.pipeline import Compilation, new_compilation, run_stages


def clones(args: Sequence[Any]) -> list[Any]:
    """Fresh tensors of the same sizes, strides and values."""
    return [
        torch.empty_strided(a.shape, a.stride(), dtype=a.dtype).copy_(a)
        if isinstance(a, torch.Tensor)
        else a
        for a in args
    ]


def staged(
    fn: Callable[..., Any], args: Sequence[Any], until: str | None = None, **options: Any
) -> Compilation:
    """`fn` (of tensors, returning a tuple) run through the stages."""
    with torch.no_grad():
        return run_stages(new_compilation(symbolic_trace(fn), args, options), until=until)


def run_twice(
    fn: Callable[..., Any], *args: Any, close: dict[str, float], steps: int | None = None
) -> Compilation:
    """`fn` compiled, whose results are eager's within `close`; steps: how many its plan has."""
    c = staged(fn, args)
    assert c.spec is not None
    for _ in range(2):
        got, expected = c.compiled(*args), fn(*args)
        torch.testing.assert_close(list(got), list(expected), equal_nan=True, **close)
    if steps is not None:
        assert len(c.spec.steps) == steps, c.spec.steps
    return c


def moved(x: torch.Tensor, device: str | torch.device) -> torch.Tensor:
    """A copy on a device, of the same strides: Tensor.to packs what has gaps."""
    ends = [(n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)]
    flat = x.as_strided((1 + sum(ends) if x.numel() else 0,), (1,))
    return flat.to(device, copy=True).as_strided(x.shape, x.stride(), 0)


def traced_on(device: str | torch.device, fn: Callable[..., Any]) -> GraphModule:
    """The graph of `fn`, with the tensors that it makes while it is traced on a device."""
    gm = symbolic_trace(fn)
    for name in {node.target for node in gm.graph.nodes if node.op == "get_attr"}:
        setattr(gm, name, moved(getattr(gm, name), device))
    return gm


def kernels(c: Compilation) -> int:
    assert c.spec is not None
    return sum(s.kind == "kernel" for s in c.spec.steps)


def check(
    fn: Callable[..., Any],
    *args: Any,
    rtol: float | None = None,
    atol: float | None = None,
    fallbacks: Sequence[str] = (),
    names: Sequence[str] = (),
    **options: Any,
) -> Compilation:
    """Compile, run, and compare results and written arguments with eager: values, dtypes, sizes,
    strides.

    fallbacks: the operators that may stay aten calls.
    """
    c = staged(fn, clones(args), **options)
    assert c.program is not None
    assert set(c.program.fallbacks) <= set(fallbacks), c.program.fallbacks
    theirs, ours = clones(args), clones(args)
    with torch.no_grad():
        expected, got = fn(*theirs), c.compiled(*ours)
    assert len(expected) == len(got)
    if rtol is not None and atol is None:
        atol = 1e-5
    labels = names or [str(k) for k in range(len(got))]
    for label, e, g in zip(
        [*labels, *(f"argument {k}" for k in range(len(args)))],
        [*expected, *theirs],
        [*got, *ours],
        strict=True,
    ):
        if not isinstance(e, torch.Tensor):
            assert e == g
            continue
        assert (e.dtype, e.shape) == (g.dtype, g.shape), label
        assert e.numel() < 2 or same_layout(e, g), (label, e.stride(), g.stride())
        try:
            torch.testing.assert_close(g, e, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            raise AssertionError(f"{label}: {error}") from None
    return c


def same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal strides where they matter."""
    return all(n == 1 or x == y for n, x, y in zip(a.shape, a.stride(), b.stride(), strict=True))
