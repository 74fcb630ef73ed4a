"""The aten operators that are rewritten into simpler ones while tracing.

The rules are torch's (torch._decomp); this file picks which apply. Not in the list, on purpose:
operators that a library computes whole (convolution, mm, attention), those that a fused loop
computes in one go (softmax, layer norm, batch norm, gelu, silu, pooling), those whose rule
draws other random numbers than the operator does (bernoulli, native_dropout), and those whose rule
takes arguments that the operator refuses (binary_cross_entropy of other than probabilities,
nll_loss of 32-bit classes, celu of 0).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from fxgraph.aot import columns, foreach, fused
from fxgraph.aot.kernel_types import refused
from fxgraph.fake_results import strides_by_element
from fxgraph.shape_rules import rolled_format

aten = torch.ops.aten

# Packet names; every functional overload that has a rule is meant.
DECOMPOSED = (
    # pointwise
    "addcdiv", "addcmul", "clamp_max", "clamp_min", "deg2rad", "rad2deg", "elu", "frac",
    "glu",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "heaviside", "isneginf", "isposinf",
    "leaky_relu", "lerp", "log_sigmoid_forward", "logaddexp", "logaddexp2", "logit", "masked_fill",
    "mish", "mvlgamma", "nan_to_num", "_prelu_kernel", "relu6", "rsub", "sgn", "sinc", "softplus",
    "softshrink", "special_entr", "special_log_ndtr", "special_xlog1py", "threshold", "xlogy",
    # losses
    "binary_cross_entropy_with_logits", "huber_loss", "l1_loss", "mse_loss", "multi_margin_loss",
    "smooth_l1_loss", "soft_margin_loss",
    # reductions and small linear algebra
    "addr", "baddbmm", "count_nonzero", "dot", "vdot", "mv", "linalg_cross", "logsumexp", "nansum",
    "norm", "renorm", "trace", "aminmax",
    # making tensors
    "block_diag", "diag_embed", "eye", "fill", "linspace", "logspace", "new_empty", "new_full",
    "new_ones", "new_zeros", "ones", "ones_like", "zero", "zeros", "zeros_like", "tril", "triu",
    # moving elements
    "affine_grid_generator", "channel_shuffle", "col2im", "im2col", "isin", "pixel_shuffle",
    "pixel_unshuffle", "roll", "rot90", "stack",
    "take", "unfold_copy", "unsafe_split", "unsafe_split_with_sizes", "_unsafe_index",
    "_unsafe_index_put", "view_copy", "expand_copy",
    "permute_copy", "squeeze_copy", "unsqueeze_copy", "transpose_copy", "t_copy", "diagonal_copy",
    "alias_copy", "slice_copy", "select_copy", "split_copy", "split_with_sizes_copy",
    "as_strided_copy",
    "_safe_softmax", "_weight_norm_interface", "_chunk_cat", "_fused_rms_norm", "rms_norm",
)  # fmt: skip


# Autograd's operators for those above, and for those that stay whole.
DECOMPOSED_BACKWARD = (
    "binary_cross_entropy_backward", "elu_backward", "gelu_backward",
    "glu_backward", "hardshrink_backward", "hardsigmoid_backward", "hardswish_backward",
    "hardtanh_backward", "huber_loss_backward", "leaky_relu_backward", "log_sigmoid_backward",
    "_log_softmax_backward_data", "logit_backward", "mish_backward", "mse_loss_backward",
    "native_dropout_backward", "native_group_norm_backward", "native_layer_norm_backward",
    "_fused_rms_norm_backward", "native_batch_norm_backward",
    "_prelu_kernel_backward", "select_backward", "sigmoid_backward",
    "silu_backward", "slice_backward", "smooth_l1_loss_backward", "soft_margin_loss_backward",
    "_softmax_backward_data", "softplus_backward", "softshrink_backward", "tanh_backward",
    "threshold_backward", "unfold_backward", "_weight_norm_interface_backward",
    "new_empty_strided",
)  # fmt: skip


@functools.cache
def _every_rule(names: tuple[str, ...] = DECOMPOSED) -> dict[Any, Callable[..., Any]]:
    from torch._decomp import get_decompositions

    packets = [getattr(aten, name) for name in names if hasattr(aten, name)]
    rules = get_decompositions(packets)
    return {
        op: _adapted(op, rule)
        for op, rule in rules.items()
        if isinstance(op, torch._ops.OpOverload) and not op._schema.is_mutable
    }


def _adapted(op: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    if op in (aten.baddbmm.default, aten.isin.Tensor_Scalar):
        return _contiguous(rule)
    if op is aten.log_sigmoid_forward.default:
        return _of_contiguous(rule)
    if op in (aten.xlogy.Tensor, aten.special_xlog1py.default):
        return _where(lambda *args: not refused(op, args), _by_element(rule))
    if op in (aten.im2col.default, aten.col2im.default):
        rule = columns.im2col(rule) if op is aten.im2col.default else columns.col2im(rule)
    if op is aten.addr.default:
        return _by_element(rule)
    if op is aten.roll.default:
        return _in_format(rule, rolled_format)
    if op is aten.channel_shuffle.default:
        return _in_format(rule, lambda x, groups: suggest_memory_format(x))
    if op._opname in ("linspace", "logspace"):
        return _into_floats(rule)
    if op is aten.smooth_l1_loss_backward.default:
        return _of_none(_keeping_nan(rule))
    if op in (aten.mse_loss_backward.default, aten.huber_loss_backward.default):
        return _of_none(rule)
    if op is aten.smooth_l1_loss.default:
        rule = _where(lambda x, target, reduction=1, beta=1.0: beta >= 0, rule)
    by_element = torch.Tag.pointwise in op.tags or op._opname in ("tril", "triu")

    def takes(*args: Any, **kwargs: Any) -> bool:
        given = (*args, *kwargs.values())
        # Of an empty result strides alone are seen, which rules have otherwise.
        return not (by_element and any(map(_is_empty, given))) and not refused(op, given)

    return _where(takes, rule)


def _is_empty(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    return any(isinstance(size, int) and size == 0 for size in value.shape)


def _where(takes: Callable[..., bool], rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule for arguments that the operator takes; the operator itself says why it refuses the
    rest.
    """

    @functools.wraps(rule)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        return rule(*args, **kwargs) if takes(*args, **kwargs) else NotImplemented

    return decomposed


def _into_floats(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule where its result is of floats: the kernels for integers cut off the ends first."""

    @functools.wraps(rule)
    def decomposed(*args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        if not (dtype or torch.get_default_dtype()).is_floating_point:
            return NotImplemented
        return rule(*args, dtype=dtype, **kwargs)

    return decomposed


def _contiguous(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule with the operator's layout, where the rule's follows a transposed argument."""

    @functools.wraps(rule)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        return rule(*args, **kwargs).contiguous()

    return decomposed


def _of_contiguous(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule with the layout that the operator has on the CPU, whatever its argument's is."""

    @functools.wraps(rule)
    def decomposed(x: torch.Tensor) -> Any:
        return rule(x.contiguous() if x.device.type == "cpu" else x)

    return decomposed


def _rrelu(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """The functional operator, which follows its argument's layout, of what the kernel reads: a
    contiguous copy on the CPU.
    """
    if x.device.type != "cpu" or x.is_contiguous():
        return NotImplemented
    return aten.rrelu_with_noise_functional.default(x.contiguous(), *args, **kwargs)


def _of_none(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of a loss's backward, which divides by the number of elements: there may be none."""

    @functools.wraps(rule)
    def decomposed(grad: torch.Tensor, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        try:
            return rule(grad, x, *args, **kwargs)
        except ZeroDivisionError:
            return torch.zeros_like(x)

    return decomposed


def _by_element(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule with the operator's layout, that of its first operands of the result's rank: the
    rule asks the others first, or leaves some out.
    """

    @functools.wraps(rule)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        result = rule(*args, **kwargs)
        operands = [x for x in args if isinstance(x, torch.Tensor) and x.dim() == result.dim()]
        stride = strides_by_element(tuple(operands), result) if operands else result.stride()
        if result.stride() == stride:
            return result
        order = sorted(range(result.dim()), key=lambda d: (-stride[d], d))
        back = sorted(range(result.dim()), key=order.__getitem__)
        return result.permute(order).contiguous().permute(back)

    return decomposed


def _keeping_nan(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of a loss's gradient, NaN where the difference is: the rule takes NaN for large."""

    @functools.wraps(rule)
    def decomposed(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, *args: Any) -> Any:
        difference = x - target
        return torch.where(difference == difference, rule(grad, x, target, *args), difference)

    return decomposed


def _in_format(
    rule: Callable[..., Any], layout: Callable[..., torch.memory_format]
) -> Callable[..., Any]:
    """The rule with the operator's layout: channels stay innermost."""

    @functools.wraps(rule)
    def decomposed(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = rule(x, *args, **kwargs)
        if x.dim() not in (4, 5) or x.is_contiguous():
            return result
        return result.contiguous(memory_format=layout(x, *args, **kwargs))

    return decomposed


def training_table(keep: Iterable[Any]) -> dict[Any, Callable[..., Any]]:
    """Overload -> rule, for graphs with their backward."""
    return table(keep, _every_rule(DECOMPOSED_BACKWARD))


def table(
    keep: Iterable[Any] = (), more: dict[Any, Callable[..., Any]] | None = None
) -> dict[Any, Callable[..., Any]]:
    """Overload -> rule.

    keep: overloads or packets that stay whole. more: rules that are added or that replace ours.
    """
    rules = {**_every_rule(), **foreach.rules(), **fused.rules()}
    rules[aten.rrelu_with_noise_functional.default] = _rrelu
    for kept in keep:
        if isinstance(kept, torch._ops.OpOverloadPacket):
            for overload in kept.overloads():
                rules.pop(getattr(kept, overload), None)
        else:
            rules.pop(kept, None)
    rules.update(more or {})
    return rules
