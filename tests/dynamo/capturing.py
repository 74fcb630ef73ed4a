"""Run a function eagerly and compiled on equal arguments: value, exceptions, mutations, graphs and
breaks.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynamo import _hook
from dynamo.api.context import CompileContext
from dynamo.api.convert import convert_frame


class Captured:
    """What compilation of a function recorded."""

    def __init__(self, context: CompileContext) -> None:
        self.context = context

    @property
    def op_counts(self) -> list[int]:
        return [graph.op_count for record in self.context.records for graph in record.graphs]

    @property
    def codes(self) -> list[str]:
        return [b.code for record in self.context.records for b in record.breaks]


def compiled(fn: Callable[..., Any], **settings: Any) -> tuple[Any, Captured]:
    """`fn` compiled with a backend that runs the graph as it is."""
    context = CompileContext(backend=lambda gm, inputs: gm.forward, **settings)
    return _hook.compiled(fn, context, convert_frame), Captured(context)


def same(left: Any, right: Any) -> bool:
    """Equal in type, structure and value."""
    if isinstance(left, torch.Tensor):
        return (
            isinstance(right, torch.Tensor)
            and left.requires_grad == right.requires_grad
            and left.shape == right.shape
            and torch.equal(left.nan_to_num(), right.nan_to_num())
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[k], right[k]) for k in left)
    if isinstance(left, types.FunctionType):
        return left.__code__ is right.__code__
    if isinstance(left, BaseException):
        return same(left.args, right.args)
    if hasattr(left, "__dict__") and not isinstance(left, (type, types.ModuleType)):
        return same(vars(left), vars(right))
    return bool(left == right)


def outcome(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    try:
        return fn(*args)
    except Exception as error:
        return error


def check(
    fn: Callable[..., Any],
    *args: Any,
    ops: Sequence[int] | None = None,
    breaks: Sequence[str] = (),
    calls: int = 2,
) -> Captured:
    """Compare `calls` compiled calls with eager ones. `ops`: operations of each graph, in order of
    compilation;
    `breaks`: the codes of the breaks, in order."""
    function, captured = compiled(fn)
    for _ in range(calls):
        eager_args, compiled_args = copy.deepcopy(args), copy.deepcopy(args)
        expected = outcome(fn, eager_args)
        result = outcome(function, compiled_args)
        assert same(expected, result), f"{expected!r} != {result!r}"
        assert same(list(eager_args), list(compiled_args)), f"{eager_args!r} != {compiled_args!r}"
    assert captured.codes == list(breaks), [
        (b.code, b.reason, b.location) for r in captured.context.records for b in r.breaks
    ]
    if ops is not None:
        assert captured.op_counts == list(ops)
    return captured
