"""Batch norms while tracing: those whose schemas hide that the running statistics are written, of
the CPU and of the libraries of GPUs, become the operators that tell, and so do their backwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxgraph.aot.inplace import bind

aten = torch.ops.aten


def _forward(tracer: Any, op: Any, args: Any, kwargs: Any) -> Any:
    given = bind(op, args, kwargs)
    x, weight, bias, mean, var = (
        given[name] for name in ("input", "weight", "bias", "running_mean", "running_var")
    )
    momentum = given["momentum"] if "momentum" in given else given["exponential_average_factor"]
    eps = given["eps"] if "eps" in given else given["epsilon"]
    if not given["training"]:
        legit = aten._native_batch_norm_legit_no_training.default
        return tracer.dispatch(legit, (x, weight, bias, mean, var, momentum, eps), {})
    if mean is None:
        legit = aten._native_batch_norm_legit.no_stats
        return tracer.dispatch(legit, (x, weight, bias, True, momentum, eps), {})
    legit = aten._native_batch_norm_legit.default
    return tracer.dispatch(legit, (x, weight, bias, mean, var, True, momentum, eps), {})


def _with_reserve(tracer: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """With what cuDNN's forward leaves to its backward: nothing."""
    results = _forward(tracer, op, args, kwargs)
    options = {"dtype": torch.uint8, "device": results[0].device}
    return (*results, tracer.record(aten.empty.memory_format, ([0],), options))


def _backward(tracer: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """Of training, in which alone a library's backward is called."""
    given = bind(op, args, kwargs)
    x, grad, weight, mean, rstd = (
        given[name] for name in ("input", "grad_output", "weight", "save_mean", "save_var")
    )
    rest = (None, None, mean, rstd, True, given["epsilon"], [True, True, True])
    return tracer.dispatch(aten.native_batch_norm_backward.default, (grad, x, weight, *rest), {})


RULES: dict[Any, Callable[[Any, Any, Any, Any], Any]] = {
    aten.native_batch_norm.default: _forward,
    aten.cudnn_batch_norm.default: _with_reserve,
    aten.cudnn_batch_norm_backward.default: _backward,
    aten.miopen_batch_norm.default: _forward,
    aten.miopen_batch_norm_backward.default: _backward,
}
