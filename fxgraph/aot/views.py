"""View operators: which there are, and how a write through a view reaches its base.

A row of INVERSE says, for `view = op(base, ...)`, which functional operator gives base's new value
when the view's new value is known:

    select(base, dim, index)    ->    select_scatter(base, new, dim, index)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from fxgraph.aot.functional import Unfunctionalizable
from fxgraph.node import Node

aten = torch.ops.aten
Emit = Callable[..., Node]


class ViewCall(NamedTuple):
    """`op(base, *args, **kwargs)`."""

    op: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


# The same memory, sizes and strides: no operation at all in a functional graph.
IDENTITY = frozenset({aten.detach.default, aten.alias.default})


def _permute_of_t(x: torch.Tensor) -> ViewCall:
    return ViewCall(aten.permute.default, (list(range(x.dim()))[::-1],), {})


def _permute_of_transpose(x: torch.Tensor, dim0: int, dim1: int) -> ViewCall:
    dims = list(range(x.dim()))
    if dims:
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return ViewCall(aten.permute.default, (dims,), {})


def _view_of_alias(x: torch.Tensor, size: Any, stride: Any) -> ViewCall:
    return ViewCall(aten.view.default, (list(size),), {})


# Views with a simpler spelling, so that later stages meet fewer operators.
RESPELLED: dict[Any, Callable[..., ViewCall]] = {
    aten.t.default: _permute_of_t,
    aten.transpose.int: _permute_of_transpose,
    aten._reshape_alias.default: _view_of_alias,
}


def _split(x: torch.Tensor, size: int, dim: int = 0) -> list[ViewCall]:
    length = x.shape[dim]
    if length == 0 or size == 0:
        return [_slice(dim, 0, length)]
    count = int((length + size - 1) // size)  # of a symbolic length only this is guarded
    starts = [index * size for index in range(count)]
    return [_slice(dim, start, stop) for start, stop in zip(starts, [*starts[1:], length])]


def _split_with_sizes(x: torch.Tensor, sizes: list[int], dim: int = 0) -> list[ViewCall]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [_slice(dim, start, start + size) for start, size in zip(starts, sizes)]


def _unbind(x: torch.Tensor, dim: int = 0) -> list[ViewCall]:
    return [ViewCall(aten.select.int, (dim, index), {}) for index in range(x.shape[dim])]


def _slice(dim: int, start: int, stop: int) -> ViewCall:
    return ViewCall(aten.slice.Tensor, (dim, start, stop), {})


# Views that return several tensors, as several views.
SEVERAL: dict[Any, Callable[..., list[ViewCall]]] = {
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
    aten.unbind.int: _unbind,
}


def write_through(emit: Emit, call: ViewCall, base: Node, new: Node) -> Node:
    """The new value of `base` when its view `call` has been overwritten by `new`."""
    rule = INVERSE.get(call.op)
    if rule is None:
        raise Unfunctionalizable(f"a write through {call.op}")
    return rule(emit, base, new, *call.args, **call.kwargs)


def _to_base_size(emit: Emit, base: Node, new: Node, *args: Any, **kwargs: Any) -> Node:
    return reshape(emit, new, list(base.meta["val"].shape))


def _expand(emit: Emit, base: Node, new: Node, size: Any, **kwargs: Any) -> Node:
    if tuple(new.meta["val"].shape) != tuple(base.meta["val"].shape):
        raise Unfunctionalizable("a write through an expanded view")
    return new


def _permute(emit: Emit, base: Node, new: Node, dims: Any) -> Node:
    rank = len(dims)
    inverse = [0] * rank
    for position, dim in enumerate(dims):
        inverse[dim % rank] = position
    return emit(aten.permute.default, new, inverse)


def _scatter(op: Any) -> Callable[..., Node]:
    def rule(emit: Emit, base: Node, new: Node, *args: Any, **kwargs: Any) -> Node:
        return emit(op, base, new, *args, **kwargs)

    return rule


def _back_by(op: Any) -> Callable[..., Node]:
    return lambda emit, base, new, *args, **kwargs: emit(op, new)


def _view_dtype(emit: Emit, base: Node, new: Node, dtype: torch.dtype) -> Node:
    return emit(aten.view.dtype, new, base.meta["val"].dtype)


INVERSE: dict[Any, Callable[..., Node]] = {
    aten.view.default: _to_base_size,
    aten.unsqueeze.default: _to_base_size,
    aten.squeeze.default: _to_base_size,
    aten.squeeze.dim: _to_base_size,
    aten.squeeze.dims: _to_base_size,
    aten.expand.default: _expand,
    aten.permute.default: _permute,
    aten.slice.Tensor: _scatter(aten.slice_scatter.default),
    aten.select.int: _scatter(aten.select_scatter.default),
    aten.diagonal.default: _scatter(aten.diagonal_scatter.default),
    aten.as_strided.default: _scatter(aten.as_strided_scatter.default),
    aten.view_as_real.default: _back_by(aten.view_as_complex.default),
    aten.view_as_complex.default: _back_by(aten.view_as_real.default),
    aten._conj.default: _back_by(aten._conj.default),
    aten._neg_view.default: _back_by(aten._neg_view.default),
    aten.view.dtype: _view_dtype,
}


def reshape(emit: Emit, node: Node, size: list[int]) -> Node:
    """`node` with another size: a view if its strides allow one, else a copy."""
    try:
        return emit(aten.view.default, node, size)
    except (RuntimeError, ValueError):
        copied = emit(aten.clone.default, node, memory_format=torch.contiguous_format)
        return emit(aten.view.default, copied, size)


def replay(emit: Emit, call: ViewCall, base: Node) -> Node:
    """The view `call` of the new value `base`."""
    if call.op is aten.view.default:
        return reshape(emit, base, call.args[0])
    return emit(call.op, base, *call.args, **call.kwargs)
