"""Operators that take a float which varies from call to call, over fake tensors.

Under autograd torch would ask for the float's value, and the graph would hold for that alone: its
formulas take numbers. Here operator and gradient are written in operators that keep the symbol:

    x.clamp(min=s)      where(x >= s, grad, 0) as its gradient
    torch.add(x, y, alpha=s)      x + y * s

A dropout that drops nothing is its input, one that drops everything zeros: torch's form for
symbolic sizes would be a copy, or draw random numbers. And matrix_rank leaves its `out` as it was,
wherever operators are seen one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from fxgraph.args import leaves

Rule = Callable[..., Any]


def call(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`target(*args, **kwargs)` by one of the rules below; NotImplemented where none is for it.

    target: a function of torch's, or the name of a method.
    """
    name = _name(target)
    if name in _DROPOUTS and not kwargs.keys() - _DROPOUTS[name]:
        if _drops_nothing(*args, **kwargs):
            return args[0] if args else kwargs["input"]
        if _drops_everything(*args, **kwargs):
            x = args[0] if args else kwargs["input"]
            return x * torch.zeros((), dtype=x.dtype, device=x.device)
    if name == "linalg_matrix_rank" and kwargs.get("out") is not None:
        rank = target(*args, **{key: value for key, value in kwargs.items() if key != "out"})
        return torch.sum(rank[..., None], -1, out=kwargs["out"])
    rule = _RULES.get(name.removesuffix("_"))
    if rule is None or not any(isinstance(leaf, torch.SymFloat) for leaf in leaves((args, kwargs))):
        return NotImplemented
    tensors = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if {tensor.dtype for tensor in tensors} not in _DTYPES:
        return NotImplemented
    args, kwargs, inplace = _without_inplace(name, args, kwargs)
    given = (args[0].clone(), *args[1:]) if inplace else args
    try:
        result = rule(*given, **kwargs)
    except TypeError:  # other arguments than those of a rule
        return NotImplemented
    return args[0].copy_(result) if inplace else result


# With the names of their arguments; F.dropout and torch.dropout, whose `train` has no default.
_DROPOUTS = {"dropout": {"input", "p", "training", "train", "inplace"}}


def _drops_nothing(
    input: Any, p: Any = 0.5, training: bool = True, inplace: Any = False, train: bool = True
) -> bool:
    known = type(p) in (int, float) and 0 <= p <= 1
    return known and (p == 0 or not (training and train))


def _drops_everything(
    input: Any, p: Any = 0.5, training: bool = True, inplace: Any = False, train: bool = True
) -> bool:
    """Whether p is 1: eager draws no random numbers then."""
    number = isinstance(p, (int, float, torch.SymFloat))
    return number and training and train and not inplace and bool(p == 1)


_INPLACE_AT = {"leaky_relu": 2, "elu": 2, "hardtanh": 3, "threshold": 3}


def _without_inplace(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Arguments without `inplace`, and the value of `inplace`."""
    rest = {key: value for key, value in kwargs.items() if key != "inplace"}
    at = _INPLACE_AT.get(name, len(args))
    if len(args) == at + 1 and isinstance(args[at], bool):
        return args[:at], rest, args[at]
    return args, rest, kwargs.get("inplace") is True or name.endswith("_")


_DTYPES: tuple[set[torch.dtype], ...] = ({torch.float32}, {torch.float64})


def _name(target: Any) -> str:
    if isinstance(target, str):
        return target
    if getattr(target, "__module__", None) == F.__name__:
        return target.__name__.removeprefix("_")
    builtin = type(target) in (type(torch.clamp), type(torch.Tensor.clamp))
    return target.__name__ if builtin else ""


class _Elementwise(torch.autograd.Function):
    """value(x, *numbers), whose gradient is gradient(grad, x, *numbers)."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, value: Rule, gradient: Rule, x: torch.Tensor, *numbers: Any
    ) -> torch.Tensor:
        ctx.gradient, ctx.numbers = gradient, numbers
        ctx.save_for_backward(x)
        return value(x, *numbers)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        found = ctx.gradient(grad, x, *ctx.numbers)
        return None, None, found, *[None for _ in ctx.numbers]


def _clamp(x: torch.Tensor, min: Any = None, max: Any = None) -> torch.Tensor:
    if isinstance(min, torch.Tensor) or isinstance(max, torch.Tensor):
        raise TypeError
    return _Elementwise.apply(_clamped, _where_inside, x, min, max)


def _clamped(x: torch.Tensor, low: Any, high: Any) -> torch.Tensor:
    bounds = [
        None if n is None else torch.scalar_tensor(n, dtype=x.dtype, device="cpu")
        for n in (low, high)
    ]
    return torch.clamp(x, *bounds)


def _where_inside(grad: torch.Tensor, x: torch.Tensor, low: Any, high: Any) -> torch.Tensor:
    inside = x >= low if low is not None else x <= high
    if low is not None and high is not None:
        inside = inside & (x <= high)
    return torch.where(inside, grad, 0.0)


def _leaky_relu(input: torch.Tensor, negative_slope: Any = 0.01) -> torch.Tensor:
    def value(x: torch.Tensor, slope: Any) -> torch.Tensor:
        return torch.where(x > 0, x, x * slope)

    def gradient(grad: torch.Tensor, x: torch.Tensor, slope: Any) -> torch.Tensor:
        return torch.where(x > 0, grad, grad * slope)

    return _Elementwise.apply(value, gradient, input, negative_slope)


def _elu(input: torch.Tensor, alpha: Any = 1.0) -> torch.Tensor:
    def value(x: torch.Tensor, alpha: Any) -> torch.Tensor:
        return torch.where(x > 0, x, torch.expm1(x) * alpha)

    def gradient(grad: torch.Tensor, x: torch.Tensor, alpha: Any) -> torch.Tensor:
        return torch.where(x <= 0, grad * alpha * torch.exp(x), grad)

    return _Elementwise.apply(value, gradient, input, alpha)


def _softplus(input: torch.Tensor, beta: Any = 1.0, threshold: Any = 20.0) -> torch.Tensor:
    def value(x: torch.Tensor, beta: Any, threshold: Any) -> torch.Tensor:
        scaled = x * beta
        return torch.where(scaled > threshold, x, torch.log1p(torch.exp(scaled)) / beta)

    def gradient(grad: torch.Tensor, x: torch.Tensor, beta: Any, threshold: Any) -> torch.Tensor:
        scaled = x * beta
        power = torch.exp(scaled)
        return torch.where(scaled > threshold, grad, grad * power / (power + 1))

    return _Elementwise.apply(value, gradient, input, beta, threshold)


def _hardtanh(input: torch.Tensor, min_val: Any = -1.0, max_val: Any = 1.0) -> torch.Tensor:
    if min_val > max_val:
        raise TypeError

    def gradient(grad: torch.Tensor, x: torch.Tensor, low: Any, high: Any) -> torch.Tensor:
        return torch.where((x <= low) | (x >= high), 0.0, grad)

    return _Elementwise.apply(_clamped, gradient, input, min_val, max_val)


def _threshold(input: torch.Tensor, threshold: Any, value: Any) -> torch.Tensor:
    def chosen(x: torch.Tensor, threshold: Any, value: Any) -> torch.Tensor:
        return torch.where(x <= threshold, value, x)

    def gradient(grad: torch.Tensor, x: torch.Tensor, threshold: Any, value: Any) -> torch.Tensor:
        return torch.where(x <= threshold, 0.0, grad)

    return _Elementwise.apply(chosen, gradient, input, threshold, value)


def _pow(input: torch.Tensor, exponent: Any) -> torch.Tensor:
    if not isinstance(exponent, torch.SymFloat) or exponent == 0.0:
        raise TypeError

    def gradient(grad: torch.Tensor, x: torch.Tensor, exponent: Any) -> torch.Tensor:
        return grad * (x.pow(exponent - 1) * exponent)

    return _Elementwise.apply(torch.pow, gradient, input, exponent)


def _lerp(input: torch.Tensor, end: torch.Tensor, weight: Any) -> torch.Tensor:
    return torch.lerp(input, end, torch.scalar_tensor(weight, dtype=input.dtype, device="cpu"))


def _add(input: torch.Tensor, other: torch.Tensor, *, alpha: Any) -> torch.Tensor:
    return torch.add(input, other * alpha)


def _sub(input: torch.Tensor, other: torch.Tensor, *, alpha: Any) -> torch.Tensor:
    return torch.sub(input, other * alpha)


def _addcmul(
    input: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, *, value: Any
) -> torch.Tensor:
    return input + tensor1 * value * tensor2


def _addcdiv(
    input: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, *, value: Any
) -> torch.Tensor:
    return input + tensor1 * value / tensor2


def _layer_norm(
    input: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: Any = 1e-5,
    cudnn_enable: bool = True,
) -> torch.Tensor:
    shape = tuple(normalized_shape)
    scaled = [t for t in (weight, bias) if t is not None]
    if not shape or input.shape[-len(shape) :] != shape or any(t.shape != shape for t in scaled):
        raise TypeError
    dims = tuple(range(-len(shape), 0))
    variance, mean = torch.var_mean(input, dims, correction=0, keepdim=True)
    result = (input - mean) * torch.rsqrt(variance + eps)
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


def _normalize(input: torch.Tensor, p: Any = 2.0, dim: int = 1, eps: Any = 1e-12) -> torch.Tensor:
    return input / _clamp(input.norm(p, dim, keepdim=True), eps)


_RULES: dict[str, Rule] = {
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": lambda input, min: _clamp(input, min),
    "clamp_max": lambda input, max: _clamp(input, None, max),
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "softplus": _softplus,
    "hardtanh": _hardtanh,
    "threshold": _threshold,
    "pow": _pow,
    "lerp": _lerp,
    "add": _add,
    "sub": _sub,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "layer_norm": _layer_norm,
    "normalize": _normalize,
}
