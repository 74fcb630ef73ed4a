"""A differential test of one small program: eager against captured, in value, mutation, exception
and graph count.
"""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dynamo.api.compile import compile


class CountingBackend:
    """Runs graphs as they are; counts graphs and their operations."""

    def __init__(self) -> None:
        self.graphs = 0
        self.ops = 0

    def __call__(self, gm: Any, example_inputs: Any) -> Callable[..., Any]:
        self.graphs += 1
        self.ops += sum(node.op.startswith("call_") for node in gm.graph.nodes)
        return gm.forward


PROGRAMS: dict[str, list[Any]] = {}


def program(*args: Any, graphs: int = 1, ops: int | None = None) -> Callable[..., Any]:
    """Decorator: register a program of the module. `args`: what it is called with (callables are
    factories).

    graphs 1 also demands that nothing breaks (fullgraph=True).
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        case = pytest.param(function, args, graphs, ops, id=function.__name__)
        PROGRAMS.setdefault(function.__module__, []).append(case)
        return function

    return register


_PLAIN_EQ = (object.__eq__, types.SimpleNamespace.__eq__)


def same(left: Any, right: Any) -> bool:
    """Deep equality of what programs return."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.shape == right.shape and torch.equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if dataclasses.is_dataclass(left) and not isinstance(left, type):
        return same(left.__dict__, right.__dict__)
    if isinstance(left, torch.nn.Module):
        return same(left.state_dict(), right.state_dict())
    if isinstance(left, BaseException):
        return same(left.args, right.args)
    if (
        hasattr(left, "__dict__")
        and not callable(left)
        and not isinstance(left, (str, torch.Tensor))
        and type(left).__eq__ in _PLAIN_EQ
    ):
        return same(vars(left), vars(right))
    if type(left).__name__ in ("dict_keys", "dict_values", "dict_items", "deque"):
        return same(list(left), list(right))
    return callable(left) or left == right


def settled(value: Any) -> Any:
    """The value with iterators in it replaced by what they yield, so that it can be compared
    again.
    """
    if hasattr(value, "__next__"):
        return [type(value).__name__, *map(settled, value)]
    if type(value) in (list, tuple):
        return type(value)(map(settled, value))
    return value


def outcome(function: Callable[..., Any], args: Any) -> tuple[str, Any]:
    try:
        return "returned", settled(function(*args))
    except Exception as error:
        return "raised", error


def make_args(args: Any) -> list[Any]:
    torch.manual_seed(0)
    return [
        a() if callable(a) and not isinstance(a, (type, torch.nn.Module)) else copy.deepcopy(a)
        for a in args
    ]


def check(function: Callable[..., Any], args: Any, graphs: int = 1, ops: int | None = None) -> None:
    """Run eager, captured, and captured again, and compare."""
    backend = CountingBackend()
    eager_args = make_args(args)
    expected = outcome(function, eager_args)
    eager_args = settled(eager_args)
    captured = compile(function, backend=backend, fullgraph=graphs == 1)
    for _ in range(2):
        captured_args = make_args(args)
        found = outcome(captured, captured_args)
        if found[0] == "raised" and expected[0] == "returned":
            raise found[1]
        assert found[0] == expected[0], f"expected {expected}, got {found}"
        assert same(found[1], expected[1]), f"expected {expected}, got {found}"
        assert same(settled(captured_args), eager_args), (
            f"arguments: {eager_args}, got {captured_args}"
        )
    assert backend.graphs <= graphs, f"{backend.graphs} graphs"
    if ops is not None:
        assert backend.ops == ops
