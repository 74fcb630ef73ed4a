"""Differential programs about transforms and gradients: values, metadata, gradients of everything
that has one, exceptions, and the exact number of graphs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import dynamo

PROGRAMS: dict[str, list[Any]] = {}
BACKENDS = ("eager", "aot_eager")


@dataclass
class Program:
    function: Callable[..., Any]
    args: Callable[[], tuple[Any, ...]]
    graphs: int
    codes: tuple[str, ...]


def program(
    args: Callable[[], tuple[Any, ...]],
    *,
    graphs: int = 1,
    codes: tuple[str, ...] = (),
    inductor: bool = False,
) -> Callable[..., Any]:
    """Register a program of the module. `args` makes its arguments; `codes`: the breaks, in order;
    with no codes the program must not break at all.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        case = Program(function, args, graphs, codes)
        backends = (*BACKENDS, "inductor") if inductor else BACKENDS
        cases = PROGRAMS.setdefault(function.__module__, [])
        cases += [pytest.param(case, b, id=f"{function.__name__}-{b}") for b in backends]
        return function

    return register


def plain(*shapes: Any) -> Callable[[], tuple[Any, ...]]:
    """Random tensors of these shapes."""
    return lambda: tuple(torch.randn(*shape) for shape in _shapes(shapes))


def grads(*shapes: Any) -> Callable[[], tuple[Any, ...]]:
    """The same, leaves that require grad."""
    return lambda: tuple(torch.randn(*shape, requires_grad=True) for shape in _shapes(shapes))


def _shapes(shapes: Any) -> Any:
    return [(shape,) if isinstance(shape, int) else (shape or ((),)) for shape in shapes]


@dataclass
class Outcome:
    result: Any
    error: tuple[type, str] | None
    args: Any
    gradients: list[Any]
    random: float


def outcome(function: Callable[..., Any], make_args: Any) -> Outcome:
    """Call it, then differentiate the sum of what it returns."""
    torch.manual_seed(3)
    args = make_args()
    error, result = None, None
    try:
        result = function(*args)
    except Exception as raised:
        error = type(raised), str(raised).partition("\n")[0]
    leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    wanted = [leaf for leaf in leaves if leaf.requires_grad and leaf.is_floating_point()]
    if wanted:
        sum(leaf.sum() * (i + 1) for i, leaf in enumerate(wanted)).backward()
    everything = [part for arg in args for part in _tensors(arg)]
    gradients = [part.grad for part in everything]
    return Outcome(result, error, everything, gradients, torch.rand(()).item())


def _tensors(arg: Any) -> list[torch.Tensor]:
    if isinstance(arg, torch.nn.Module):
        return [*arg.parameters(), *arg.buffers()]
    return [leaf for leaf in pytree.tree_leaves(arg) if isinstance(leaf, torch.Tensor)]


def assert_same(left: Any, right: Any, close: bool, strides: bool = True) -> None:
    """Equal in structure, types, metadata and values; values may differ by rounding if `close`."""
    assert type(left) is type(right), (left, right)
    if isinstance(left, torch.Tensor):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert left.requires_grad == right.requires_grad
        if strides:
            assert left.stride() == right.stride(), (left.stride(), right.stride())
        if close:
            torch.testing.assert_close(left, right, equal_nan=True)
        else:
            torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key, value in left.items():
            assert_same(value, right[key], close, strides)
    elif isinstance(left, (tuple, list)):
        assert len(left) == len(right)
        for one, other in zip(left, right):
            assert_same(one, other, close, strides)
    elif not callable(left):
        assert left == right


def check(case: Program, backend: str) -> None:
    """Eager against captured, twice."""
    dynamo.reset()
    expected = outcome(case.function, case.args)
    compiled = dynamo.compile(case.function, backend=backend)
    for turn in range(2):
        found = outcome(compiled, case.args)
        if turn == 0:
            records = list(compiled.context.records)
        assert (found.error and found.error[0]) == (expected.error and expected.error[0]), found
        assert found.error == expected.error
        assert found.random == expected.random
        close = backend != "eager"  # sums of gradients may be in another order
        for one, other in (
            (expected.result, found.result),
            (expected.args, found.args),
            (expected.gradients, found.gradients),
        ):
            assert_same(one, other, close)
    broken = [entry for record in records for entry in record.breaks]
    assert tuple(entry.code for entry in broken) == case.codes, [
        str(entry.reason) for entry in broken
    ]
    graphs = sum(len(record.graphs) for record in records)
    assert graphs == case.graphs, f"{graphs} graphs"


def recompiles(function: Callable[..., Any], *calls: Callable[[], tuple[Any, ...]]) -> int:
    """Call the compiled function with each of these arguments, compare with eager, and count how
    often it was compiled.
    """
    dynamo.reset()
    compiled = dynamo.compile(function, backend="eager")
    for make_args in calls:
        args = make_args()
        expected = function(*copy.deepcopy(args))
        assert_same(expected, compiled(*args), False)
    return len(compiled.context.records)
