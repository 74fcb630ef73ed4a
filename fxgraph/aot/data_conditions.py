"""Conditions on arguments that depend on data, which operators check and torch's shape rules do
not.

before                                 after
    select = aten.select.int(x, 0, u0)     lt = operator.lt(u0, 6)
                                           aten._assert_scalar.default(lt, ...)
                                           select = aten.select.int(x, 0, u0)

Generated code takes such arguments as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fxgraph.symbolic_values import depends_on_data

aten = torch.ops.aten


def _inside(x: torch.Tensor, dim: int, position: Any) -> Iterator[Any]:
    if depends_on_data(position) or depends_on_data(x.shape[dim]):
        yield -x.shape[dim] <= position
        yield position < x.shape[dim]


def _inside_scattered(x: torch.Tensor, source: Any, dim: int, position: Any) -> Iterator[Any]:
    return _inside(x, dim, position)


def _cut(x: torch.Tensor, pad: Sequence[Any], value: Any = 0) -> Iterator[Any]:
    """A negative pad takes no more than there is."""
    for k in range(len(pad) // 2):
        low, high = pad[2 * k : 2 * k + 2]
        if depends_on_data(low) or depends_on_data(high):
            cut = torch.sym_min(low, 0) + torch.sym_min(high, 0)
            yield x.shape[x.dim() - 1 - k] + cut >= 0


_CONDITIONS: dict[Any, Callable[..., Iterator[Any]]] = {
    aten.select.int: _inside,
    aten.select_scatter.default: _inside_scattered,
    aten.constant_pad_nd.default: _cut,
}


def conditions_of(op: Any, args: Sequence[Any]) -> Iterator[Any]:
    """Conditions (expressions) on data under which `op` takes these arguments."""
    rule = _CONDITIONS.get(op)
    for condition in rule(*args) if rule is not None else ():
        if isinstance(condition, torch.SymBool):
            env = condition.node.shape_env
            if env.statically(condition) is None:
                yield condition.node.expr
