"""Calls that aten refuses for the types of their tensors, where torch's rules and our loops would
take them: such a call stays whole, so that the operator itself refuses them in its own words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

_Types = set[torch.dtype]
_HALVES = {torch.float16, torch.bfloat16}


def _has_bools(types: _Types) -> bool:
    return torch.bool in types


def _has_complex(types: _Types) -> bool:
    return any(t.is_complex for t in types)


def _has_integers(types: _Types) -> bool:
    return any(t != torch.bool and not (t.is_floating_point or t.is_complex) for t in types)


def _no_single_float(types: _Types) -> bool:
    return len(types) != 1 or not all(t.is_floating_point for t in types)


def _no_single_float_beside_indices(types: _Types) -> bool:
    return _no_single_float(types - {torch.int64})


def _bools_or_several(types: _Types) -> bool:
    return len(types) > 1 or torch.bool in types


def _several(types: _Types) -> bool:
    return len(types) > 1


def _integers_but_bytes(types: _Types) -> bool:
    return _has_bools(types) or _has_integers(types - {torch.uint8})


def _has_wide_unsigned(types: _Types) -> bool:
    return bool(types & {torch.uint16, torch.uint32, torch.uint64})


_Refusals = dict[str, list[Callable[[_Types], bool]]]


def _by_name(*rows: tuple[Callable[[_Types], bool], tuple[str, ...]]) -> _Refusals:
    refusals: _Refusals = {}
    for refuses, names in rows:
        for name in names:
            refusals.setdefault(name, []).append(refuses)
    return refusals


_REFUSED = _by_name(
    (
        _no_single_float,
        (
            "addcdiv", "binary_cross_entropy_with_logits", "elu", "frac", "glu", "hardshrink",
            "hardsigmoid", "hardswish", "huber_loss", "leaky_relu", "lerp", "log_sigmoid_forward",
            "logaddexp", "logaddexp2", "logit", "mish", "mvlgamma", "nansum", "_prelu_kernel",
            "renorm", "smooth_l1_loss", "soft_margin_loss", "softplus", "softshrink",
            "special_entr", "special_log_ndtr", "special_xlog1py", "upsample_linear1d",
            "upsample_trilinear3d", "xlogy",
        ),
    ),
    (_no_single_float_beside_indices, ("multi_margin_loss", "nll_loss_forward")),
    (
        _has_bools,
        ("addcmul", "dot", "vdot", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
         "sub", "threshold", "trace"),
    ),
    (_has_complex, ("aminmax", "heaviside", "mse_loss", "nan_to_num")),
    (_has_integers, ("col2im", "im2col")),
    (_integers_but_bytes, ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")),
    (_bools_or_several, ("linalg_cross",)),
    (_several, ("heaviside",)),
    (_has_wide_unsigned, ("isin",)),  # whose parts refuse them, though aten does not
)  # fmt: skip

_NO_HALVES_ON_CPU = frozenset(["avg_pool3d", "multi_margin_loss", "special_log_ndtr"])


def refused(op: Any, args: Iterable[Any]) -> bool:
    """Whether aten's kernels refuse these arguments, by their types.

    args: those that are tensors count, of any class with a dtype and a device.
    """
    name = op._opname
    refusals = _REFUSED.get(name)
    on_cpu = name in _NO_HALVES_ON_CPU
    if refusals is None and not on_cpu:
        return False
    tensors = [arg for arg in args if isinstance(getattr(arg, "dtype", None), torch.dtype)]
    types = {tensor.dtype for tensor in tensors}
    if any(refuses(types) for refuses in refusals or ()):
        return True
    return on_cpu and bool(types & _HALVES) and all(t.device.type == "cpu" for t in tensors)
