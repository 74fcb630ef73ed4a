"""Shape rules for the operators that cost most to run on fake tensors (2 ms a call where Python
does it).

A rule gives the metadata of the result, or None where the case is not plain enough; then torch's
rule runs. tests/fxgraph compares each with torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from fxgraph.size_forms import row_major

aten = torch.ops.aten
# dtype, size, stride, storage offset, device
Meta = tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int, torch.device]
Rule = Callable[..., Sequence[Meta | None] | None]


def _meta(like: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> Meta:
    return like.dtype, tuple(size), tuple(stride), 0, like.device


def _contiguous(size: Sequence[int]) -> list[int]:
    strides = [1] * len(size)
    for dim in range(len(size) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * max(size[dim + 1], 1)
    return strides


def _row_major(tensor: torch.Tensor) -> bool:
    """Contiguous, and not to be taken for channels-last, which a tensor of one channel or of one
    pixel may be, too.
    """
    if not row_major(tensor) and (not tensor.is_contiguous() or tensor.numel() == 0):
        return False
    return tensor.stride(1) != 1 or not _is_like_channels_last(tensor)


def _channels_last(tensor: torch.Tensor) -> bool:
    """Whether Tensor.suggest_memory_format says channels-last."""
    return tensor.dim() == 4 and _is_like_channels_last(tensor)


def _is_like_channels_last(tensor: torch.Tensor) -> bool:
    """Whether strides grow in the order of channels-last, those of sizes 1 included, and not in
    that of rows.
    """
    if tensor.stride(1) == 0:
        return False
    least = 0
    for dim in (1, *range(tensor.dim() - 1, 1, -1), 0):
        size, stride = tensor.shape[dim], tensor.stride(dim)
        if size == 0 or stride < least or (dim == 0 and least == tensor.stride(1)):
            return False
        least = stride * size
    return True


def _channels_last_strides(size: Sequence[int]) -> list[int]:
    _, c, h, w = size
    return [c * h * w, 1, c * w, c]


def _convolution_strides(
    x: torch.Tensor, weight: torch.Tensor, dilation: Sequence[int], transposed: bool
) -> Callable[[Sequence[int]], list[int]] | None:
    """The layout of such a convolution's result: whichever kernel serves (which depends on the
    batch size), the order of dimensions is the same.
    """
    plain = x.device.type == "cpu" and x.dtype == weight.dtype
    if not plain or x.dim() < 3 or x.dim() != weight.dim():
        return None
    if _row_major(x) and _row_major(weight):
        return _contiguous
    spread = transposed or any(n != 1 for n in dilation)
    if x.dim() != 4 or x.dtype != torch.float32 or spread:
        return None
    if all(_row_major(t) or _channels_last(t) for t in (x, weight)):
        return _channels_last_strides
    return None


def convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> list[Meta] | None:
    spatial = x.dim() - 2
    strides = _convolution_strides(x, weight, dilation, transposed)
    if strides is None or transposed or not len(stride) == len(padding) == len(dilation) == spatial:
        return None
    size = [x.shape[0], weight.shape[0]]
    for i in range(spatial):
        reach = dilation[i] * (weight.shape[i + 2] - 1) + 1
        size.append((x.shape[i + 2] + 2 * padding[i] - reach) // stride[i] + 1)
    none = type(size[0]) is int and size[0] == 0
    if none or any(n <= 0 for n in size[1:]) or x.shape[1] != weight.shape[1] * groups:
        return None
    return [_meta(x, size, strides(size))]


def convolution_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> list[Meta | None] | None:
    strides = _convolution_strides(x, weight, dilation, transposed)
    if strides is None or grad.dtype != x.dtype or grad.device != x.device:
        return None
    channels = [weight.shape[1] * groups if transposed else weight.shape[0]]
    results = (
        _meta(x, x.shape, strides(x.shape)),
        _meta(weight, weight.shape, strides(weight.shape)),
        _meta(x, channels, (1,)),
    )
    return [meta if wanted else None for meta, wanted in zip(results, output_mask)]


def _normalized(x: torch.Tensor, layout: torch.memory_format | None = None) -> Meta:
    """As x, in the memory format that x suggests: torch's rules keep other orders, too."""
    layout = layout or suggest_memory_format(x)
    stride = torch.empty(x.shape, device="meta", memory_format=layout).stride()
    return _meta(x, x.shape, stride)


def native_batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Meta] | None:
    if x.device.type != "cpu" or x.numel() == 0:
        return None
    if not training:
        if mean is None or var is None or mean.dtype != x.dtype:
            return None
        nothing = _meta(x, (0,), (1,))
        return [_normalized(x), nothing, nothing]
    if x.dtype not in FLOATS or not _all_are(x.dtype, weight, bias, mean, var):
        return None
    channel = _meta(x, (x.shape[1],), (1,))
    return [_normalized(x), channel, channel]


def _all_are(dtype: torch.dtype, *tensors: torch.Tensor | None) -> bool:
    return all(tensor is None or tensor.dtype == dtype for tensor in tensors)


def _batch_norm_inference(x: torch.Tensor, *parameters: Any) -> list[Meta] | None:
    weight, bias, mean, var, momentum, eps = parameters
    return native_batch_norm(x, weight, bias, mean, var, False, momentum, eps)


def _batch_norm_without_statistics(x: torch.Tensor, *parameters: Any) -> list[Meta] | None:
    weight, bias, training, momentum, eps = parameters
    return native_batch_norm(x, weight, bias, None, None, training, momentum, eps)


def _batch_norm_functional(x: torch.Tensor, *parameters: Any) -> list[Meta] | None:
    """As native_batch_norm, with the new statistics."""
    found = native_batch_norm(x, *parameters)
    return found and [*found, *(_meta(t, t.shape, (1,)) for t in parameters[2:4])]


def _batch_norm_update(x: torch.Tensor, *parameters: Any) -> list[Meta] | None:
    """As native_batch_norm in training, with the bytes that cuDNN reserves: none on a CPU."""
    weight, bias, mean, var, momentum, eps = parameters
    found = native_batch_norm(x, weight, bias, mean, var, True, momentum, eps)
    return found and [*found, (torch.uint8, (0,), (1,), 0, x.device)]


def _batch_norm_update_functional(x: torch.Tensor, *parameters: Any) -> list[Meta] | None:
    """As _batch_norm_update, with the new statistics."""
    found = _batch_norm_update(x, *parameters)
    return found and [*found, *(_meta(t, t.shape, (1,)) for t in parameters[2:4])]


def _group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    n: int,
    channels: int,
    spatial: int,
    groups: int,
    eps: float,
) -> list[Meta] | None:
    same = _all_are(x.dtype, weight, bias)
    if x.device.type != "cpu" or not same or x.dtype not in (torch.float32, torch.float64):
        return None
    group = _meta(x, (n, groups), (groups, 1))
    return [_normalized(x), group, group]


def rolled_format(
    x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()
) -> torch.memory_format:
    """Each dimension in turn is cut in two and joined, in the format that both parts suggest: in
    rows where one is empty. All elements together are rolled as one row.
    """
    layout = suggest_memory_format(x) if dims else torch.contiguous_format
    for shift, d in zip(shifts, dims):
        start = -shift % x.shape[d]
        if layout == torch.contiguous_format or start == 0:
            return torch.contiguous_format
        if min(x.shape) < 2:  # the strides of a part may suggest either
            shape = torch.empty_strided(x.shape, x.stride(), device="meta")
            parts = shape.narrow(d, 0, start), shape.narrow(d, 0, x.shape[d] - start)
            if any(suggest_memory_format(part) != layout for part in parts):
                return torch.contiguous_format
    return layout


def _roll(x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> list[Meta] | None:
    if x.device.type != "cpu" or not dims or x.dim() not in (4, 5):
        return None
    least = min(x.shape)
    if least == 0 or (least == 1 and any(type(n) is not int for n in x.shape)):
        return None
    fits = len(shifts) == len(dims) and all(-x.dim() <= d < x.dim() for d in dims)
    return [_normalized(x, rolled_format(x, shifts, dims))] if fits else None


FLOATS = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})


def _unary(x: torch.Tensor) -> list[Meta] | None:
    """Pointwise on a float tensor whose memory is in row-major order."""
    plain = x.dtype in FLOATS and x.is_contiguous() and _strides_are_products(x)
    # Not x's strides: where a size is 1, those may be anything.
    return [_meta(x, x.shape, _contiguous(x.shape))] if plain else None


def _strides_are_products(x: torch.Tensor) -> bool:
    """Whether row-major strides are the products of the sizes behind: none of those is 0."""
    count = x.numel()
    return bool(count > 0 if type(count) is int else math.prod(x.shape[1:]) > 0)


def _clamp(x: torch.Tensor, low: Any = None, high: Any = None) -> list[Meta] | None:
    """Pointwise on a float tensor and two numbers. Also where channels are innermost: torch's rule
    is Python that takes milliseconds.
    """
    if any(type(n) not in (int, float, type(None)) for n in (low, high)):
        return None
    if x.dtype in FLOATS and _channels_last(x) and min(x.shape) > 1 and _is_dense(x):
        return [_meta(x, x.shape, x.stride())]
    return _unary(x)


def _hardtanh(x: torch.Tensor, low: Any = -1.0, high: Any = 1.0) -> list[Meta] | None:
    """As _clamp, but strides are those of x, where a size is 1, too."""
    found = _clamp(x, low, high)
    return found and [_meta(x, x.shape, x.stride())]


def _is_dense(x: torch.Tensor) -> bool:
    return list(x.stride()) == _channels_last_strides(x.shape)


def _binary(x: Any, y: Any) -> list[Meta] | None:
    """Pointwise on a float tensor and a number, or on two tensors alike."""
    if not isinstance(x, torch.Tensor):
        return None
    if isinstance(y, torch.Tensor):
        alike = x.dtype == y.dtype and x.shape == y.shape and x.stride() == y.stride()
        return _unary(x) if alike and x.device == y.device else None
    return _unary(x) if type(y) in (int, float) else None


# Operators whose layout torch's rules take from the order of the input's dimensions.
LAID_OUT: dict[Any, Rule] = {
    aten._native_batch_norm_legit_no_training.default: _batch_norm_inference,
    aten._native_batch_norm_legit.no_stats: _batch_norm_without_statistics,
    aten._native_batch_norm_legit_functional.default: _batch_norm_functional,
    aten.native_batch_norm.default: native_batch_norm,
    aten._batch_norm_with_update.default: _batch_norm_update,
    aten._batch_norm_with_update_functional.default: _batch_norm_update_functional,
    aten.native_group_norm.default: _group_norm,
    aten.roll.default: _roll,
}


def _loss_backward(grad: torch.Tensor, x: torch.Tensor, *_: Any) -> list[Meta] | None:
    """Of no elements, by whose number torch's rule divides."""
    none = type(x.numel()) is int and x.numel() == 0
    return [_meta(x, x.shape, x.stride())] if none else None


def _view(x: torch.Tensor, size: Sequence[int]) -> list[Meta] | None:
    """By the kernel that eager runs; torch's rule goes dimension by dimension, in Python."""
    if x.layout is not torch.strided:
        return None
    shape = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    try:
        made = shape.view(size)
    except RuntimeError:  # which torch's rule raises with its own text
        return None
    offset: Any = x.storage_offset()
    return [(x.dtype, tuple(made.shape), made.stride(), offset, x.device)]


# Overload -> rule over its arguments; the list has one entry per result. For plain sizes; those
# for symbolic ones are in symbolic_rules.py.
RULES: dict[Any, Rule] = {
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    **LAID_OUT,
    **{
        getattr(aten, name).default: _unary
        for name in (
            "relu",
            "sigmoid",
            "tanh",
            "silu",
            "gelu",
            "exp",
            "log",
            "sqrt",
            "rsqrt",
            "neg",
            "abs",
            "sin",
            "cos",
            "erf",
            "reciprocal",
            "hardswish",
            "hardsigmoid",
            "relu6",
        )
        if "default" in getattr(aten, name).overloads()
    },
    aten.view.default: _view,
    aten.hardtanh.default: _hardtanh,
    aten.clamp.default: _clamp,
    **{
        getattr(aten, f"{name}_loss_backward").default: _loss_backward
        for name in ("mse", "huber", "smooth_l1")
    },
    **{getattr(aten, name).Tensor: _binary for name in ("add", "sub", "mul", "div")},
}
