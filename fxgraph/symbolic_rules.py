"""Shape rules for symbolic sizes, where torch's ask dozens of questions about them (2 to 30 ms).

Each decides by the form of the expressions only: it assumes nothing, so it adds no guard, but that
sizes by which strides are computed are not 0. Undecided cases go to torch's own rule.
tests/fxgraph/test_symbolic_rules.py compares them.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Sequence
from typing import Any

import torch

from fxgraph import expressions, shape_rules
from fxgraph.pointwise_rules import POINTWISE
from fxgraph.shape_rules import (
    FLOATS,
    Meta,
    Rule,
    aten,
    convolution,
    convolution_backward,
)
from fxgraph.size_forms import (
    assume_elements,
    at_least,
    at_least_one,
    contiguous,
    equal,
    row_major,
    same,
)
from fxgraph.symbolic_values import depends_on_data, expr_of


def _new(like: torch.Tensor, size: Sequence[Any]) -> list[Meta] | None:
    """A new row-major tensor."""
    strides = contiguous(size)
    return None if strides is None else [_meta(like, size, strides, 0)]


def _meta(like: torch.Tensor, size: Sequence[Any], strides: Sequence[Any], offset: Any) -> Meta:
    return like.dtype, tuple(size), tuple(strides), offset, like.device


def _viewed(x: torch.Tensor, size: Sequence[Any], strides: Sequence[Any]) -> list[Meta]:
    offset: Any = x.storage_offset()
    return [_meta(x, size, strides, offset)]


def _unary(x: torch.Tensor) -> list[Meta] | None:
    return _new(x, x.shape) if x.dtype in FLOATS and row_major(x) else None


def _clone(x: torch.Tensor) -> list[Meta] | None:
    return _new(x, x.shape) if row_major(x) else None


def _converted(x: torch.Tensor, dtype: torch.dtype) -> list[Meta] | None:
    metas = _clone(x)
    return metas and [(dtype, *meta[1:]) for meta in metas]


def _triangle(x: torch.Tensor, diagonal: int = 0) -> list[Meta] | None:
    return _clone(x) if x.dim() >= 2 else None


def _cumsum(x: torch.Tensor, dim: int) -> list[Meta] | None:
    if not -x.dim() <= dim < x.dim():
        return None
    exact = not (x.is_floating_point() or x.is_complex())
    return _converted(x, torch.int64 if exact else x.dtype)


def _drawn(x: torch.Tensor, *others: torch.Tensor) -> list[Meta] | None:
    """Random numbers of a distribution whose parameters are tensors of one shape."""
    alike = all(same(x.shape, other.shape) for other in others)
    return _new(x, x.shape) if alike and x.dtype in FLOATS else None


def _layer_norm(
    x: torch.Tensor, normalized: Sequence[int], weight: Any, bias: Any, eps: float
) -> list[Meta] | None:
    alike = all(t is None or t.dtype == x.dtype for t in (weight, bias))
    fits = all(t is None or same(t.shape, normalized) for t in (weight, bias))
    count = len(normalized)
    kept = x.shape[: x.dim() - count]
    if not alike or not fits or x.dtype not in (torch.float32, torch.float64) or not count:
        return None
    if x.device.type != "cpu" or not row_major(x) or not same(x.shape[len(kept) :], normalized):
        return None
    made, sums = _new(x, x.shape), _new(x, [*kept, *[1] * count])
    return None if made is None or sums is None else [*made, *sums, *sums]


def _mm(x: torch.Tensor, y: torch.Tensor) -> list[Meta] | None:
    if not x.dim() == y.dim() == 2 or x.dtype != y.dtype or x.device != y.device:
        return None
    return _new(x, [x.shape[0], y.shape[1]]) if equal(x.shape[1], y.shape[0]) else None


def _addmm(bias: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> list[Meta] | None:
    if bias.dim() != 1 or bias.dtype != x.dtype or bias.device != x.device:
        return None
    return _mm(x, y) if y.dim() == 2 and equal(bias.shape[0], y.shape[1]) else None


def _bmm(x: torch.Tensor, y: torch.Tensor) -> list[Meta] | None:
    if not x.dim() == y.dim() == 3 or x.dtype != y.dtype or x.device != y.device:
        return None
    fits = equal(x.shape[0], y.shape[0]) and equal(x.shape[2], y.shape[1])
    return _new(x, [x.shape[0], x.shape[1], y.shape[2]]) if fits else None


def _view(x: torch.Tensor, size: Sequence[Any]) -> list[Meta] | None:
    """Of a row-major tensor whose number of elements is that of `size` by its form."""
    if not row_major(x):
        return None
    size = list(size)
    total = functools.reduce(operator.mul, x.shape, 1)
    open_dims = [dim for dim, n in enumerate(size) if type(n) is int and n == -1]
    known = functools.reduce(operator.mul, (n for n in size if type(n) is not int or n != -1), 1)
    if len(open_dims) > 1:
        return None
    if open_dims:
        if not at_least_one(known):  # of no elements, the open one is undecided
            return None
        if expressions.Mod(expr_of(total), expr_of(known)) != 0:
            return None
        size[open_dims[0]] = total // known
    elif not equal(total, known):
        return None
    strides = contiguous(size)
    return None if strides is None else _viewed(x, size, strides)


def _unsafe_view(x: torch.Tensor, size: Sequence[Any]) -> list[Meta] | None:
    metas = _view(x, size)
    return None if metas is None else _new(x, metas[0][1])


def _permuted(x: torch.Tensor, order: Sequence[int]) -> list[Meta]:
    return _viewed(x, [x.shape[d] for d in order], [x.stride(d) for d in order])


def _transpose(x: torch.Tensor, one: int, other: int) -> list[Meta] | None:
    count = x.dim()
    if not (-count <= one < count and -count <= other < count):
        return None
    order = list(range(count))
    order[one], order[other] = order[other], order[one]
    return _permuted(x, order)


def _permute(x: torch.Tensor, order: Sequence[int]) -> list[Meta] | None:
    count = x.dim()
    if not all(type(dim) is int and -count <= dim < count for dim in order):
        return None
    order = [dim % count for dim in order]
    return _permuted(x, order) if sorted(order) == list(range(count)) else None


def _unsqueeze(x: torch.Tensor, dim: int) -> list[Meta] | None:
    count = x.dim() + 1
    if not -count <= dim < count:
        return None
    dim %= count
    size, strides = list(x.shape), list(x.stride())
    inner = size[dim] * strides[dim] if dim < x.dim() else 1
    return _viewed(x, [*size[:dim], 1, *size[dim:]], [*strides[:dim], inner, *strides[dim:]])


def _select(x: torch.Tensor, dim: int, index: Any) -> list[Meta] | None:
    """At a position that depends on data, which the graph checks; torch's rule has a number of its
    own for the offset of each, that nobody computes.
    """
    count = x.dim()
    if not depends_on_data(index) or not -count <= dim < count:
        return None
    dim %= count
    size, strides = list(x.shape), list(x.stride())
    length, step = size.pop(dim), strides.pop(dim)
    if not at_least_one(length):
        return None
    return [_meta(x, size, strides, x.storage_offset() + index % length * step)]


def _slice(
    x: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> list[Meta] | None:
    """Between positions that depend on data and whose signs are known: torch 2.11's rule has
    numbers of its own for the size and the offset.
    """
    count = x.dim()
    if not any(map(depends_on_data, (start, end))) or not -count <= dim < count:
        return None
    if type(step) is not int or step < 1:
        return None
    dim %= count
    size, strides = list(x.shape), list(x.stride())
    length = size[dim]
    first = 0 if start is None else _position(start, length)
    unbounded = end is None or (type(end) is int and end == sys.maxsize)
    last = length if unbounded else _position(end, length)
    if first is None or last is None:
        return None
    size[dim] = (torch.sym_max(last - first, 0) + step - 1) // step
    offset = x.storage_offset() + first * strides[dim]
    strides[dim] *= step
    return [_meta(x, size, strides, offset)]


def _position(index: Any, length: Any) -> Any:
    """The element at which an index stands, within the length; None: its sign is unknown."""
    if at_least(index, 0):
        return index if at_least(length, index) else torch.sym_min(index, length)
    if at_least(-1, index):
        return torch.sym_max(index + length, 0)
    return None


def _scattered(x: torch.Tensor, *_: Any) -> list[Meta] | None:
    """A copy with its strides and offset: torch's rule checks that the memory of no elements, which
    data may choose, has a size.
    """
    overlaps = any(type(step) is int and step == 0 for step in x.stride())
    return None if overlaps else _viewed(x, x.shape, x.stride())


def _diagonal_backward(grad: torch.Tensor, size: Sequence[Any], *_: Any) -> list[Meta] | None:
    return _scattered(grad.new_empty(size))


def _expand(x: torch.Tensor, size: Sequence[Any], implicit: bool = False) -> list[Meta] | None:
    """Dimensions that are given, kept or a plain 1 before."""
    added = len(size) - x.dim()
    if added < 0 or any(type(n) is not int or n == 1 for n in size[:added]):
        return None
    sizes, strides = list(size), [0] * added + list(x.stride())
    for dim in range(added, len(size)):
        before = x.shape[dim - added]
        if (type(sizes[dim]) is int and sizes[dim] == -1) or equal(sizes[dim], before):
            sizes[dim] = before
        elif type(before) is int and before == 1 and type(sizes[dim]) is int:
            strides[dim] = 0  # not of a symbol, which may be 1 too
        else:
            return None
    return _viewed(x, sizes, strides) if all(map(at_least_one, sizes)) else None


def _softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> list[Meta] | None:
    fits = x.dim() > 0 and -x.dim() <= dim < x.dim() and not half_to_float
    return _unary(x) if fits else None


def _laid_out(rule: Rule) -> Rule:
    """The rule, for an input whose layout is not row-major: of that, torch's says the same."""

    def symbolic(x: torch.Tensor, *args: Any) -> Sequence[Meta | None] | None:
        plain = row_major(x) or not assume_elements(x.shape)
        return None if plain else rule(x, *args)

    return symbolic


# Overload -> rule over its arguments, as in shape_rules.RULES.
RULES: dict[Any, Rule] = {
    **{
        getattr(aten, name).default: _unary
        for name in ("relu", "sigmoid", "tanh", "silu", "exp", "log", "sqrt", "rsqrt", "neg")
        + ("abs", "sin", "cos", "erf", "gelu")
    },
    **POINTWISE,
    # torch has no rules for these.
    aten._sample_dirichlet.default: _drawn,
    aten._dirichlet_grad.default: _drawn,
    aten.binomial.default: _drawn,
    aten.native_layer_norm.default: _layer_norm,
    aten.clone.default: _clone,
    torch.ops.prims.convert_element_type.default: _converted,
    aten.tril.default: _triangle,
    aten.triu.default: _triangle,
    aten.cumsum.default: _cumsum,
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _softmax,
    aten.expand.default: _expand,
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.bmm.default: _bmm,
    aten.view.default: _view,
    aten._unsafe_view.default: _unsafe_view,
    aten.transpose.int: _transpose,
    aten.permute.default: _permute,
    aten.unsqueeze.default: _unsqueeze,
    aten.select.int: _select,
    aten.slice.Tensor: _slice,
    aten.slice_scatter.default: _scattered,
    aten.select_scatter.default: _scattered,
    aten.diagonal_scatter.default: _scattered,
    aten.as_strided_scatter.default: _scattered,
    aten.diagonal_backward.default: _diagonal_backward,
    # torch's guard the batch size, by which they would choose among kernels.
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    **{op: _laid_out(rule) for op, rule in shape_rules.LAID_OUT.items()},
}


def rules_for(mode: Any) -> dict[Any, Rule]:
    """The rules that a FakeTensorMode may use: those for plain sizes, or for symbolic ones."""
    return shape_rules.RULES if mode.shape_env is None else RULES
