"""One compiled function over several sizes, against eager, with the number of compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

import dynamo
from backends.aot_eager import aot_eager


class Counting:
    """A backend that counts what it hands on."""

    def __init__(self, backend: Callable[..., Any] = aot_eager) -> None:
        self.backend = backend
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Any) -> Callable[..., Any]:
        self.graphs.append(gm)
        compiled = self.backend(gm, example_inputs)
        report = getattr(compiled, "compile_report", None) or {}
        assert not any("op by op" in note for note in report.get("notes") or ()), report
        return compiled


def same(one: Any, other: Any) -> None:
    """Values, types, dtypes, sizes and strides."""
    first, spec = pytree.tree_flatten(one)
    second, other_spec = pytree.tree_flatten(other)
    assert spec == other_spec
    for a, b in zip(first, second):
        assert type(a) is type(b), (a, b)
        if isinstance(a, torch.Tensor):
            assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
            torch.testing.assert_close(a, b, equal_nan=True)
        else:
            assert a == b, (a, b)


def check(
    fn: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    compiles: int | None,
    *,
    backend: Callable[..., Any] = aot_eager,
    **options: Any,
) -> Counting:
    """Call `fn` compiled and plain with each of `calls`; the inputs must be changed alike.
    compiles: how many there are; None: any number.
    """
    counting = Counting(backend)
    compiled = dynamo.compile(fn, backend=counting, fullgraph=True, **options)
    for args in calls:
        mine = pytree.tree_map_only(torch.Tensor, torch.clone, args)
        theirs = pytree.tree_map_only(torch.Tensor, torch.clone, args)
        same(fn(*theirs), compiled(*mine))
        same(theirs, mine)
    assert compiles is None or len(counting.graphs) == compiles, [
        record.recompile_reason for record in compiled.context.records
    ]
    return counting
