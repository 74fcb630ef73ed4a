"""The fused steps of optimizers, in the arithmetic of ATen's kernels, one tensor at a time.

before                                                after
    _fused_sgd_([p], [g], [], lr=0.1, ...)                p.copy_(p - 0.1 * g)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from fxgraph.aot.functional import Unfunctionalizable

aten = torch.ops.aten
_HALF = (torch.bfloat16, torch.float16)


def steps() -> dict[str, Callable[..., Any]]:
    """Name of an operator that writes the tensors of its lists -> its rule. Unlike the operator, it
    takes tensors and symbols for any number.
    """
    return {
        "_fused_sgd_": sgd_,
        "_fused_adagrad_": adagrad_,
        "_fused_adam_": adam_,
        "_fused_adamw_": adamw_,
    }


def rules() -> dict[Any, Callable[..., Any]]:
    """Overload -> rule."""
    packets = {getattr(aten, name): rule for name, rule in steps().items() if hasattr(aten, name)}
    return {
        getattr(packet, overload): rule
        for packet, rule in packets.items()
        for overload in packet.overloads()
        if overload in ("default", "tensor_lr")
    }


def sgd_(
    params: Any, grads: Any, buffers: Any, *, weight_decay: float, momentum: float, lr: Any,
    dampening: float, nesterov: bool, maximize: bool, is_first_step: bool,
    grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    if any(param.dtype in _HALF for param in params):
        # ATen's kernel gives elements of whole vectors other results than the rest.
        raise Unfunctionalizable("a fused step of SGD in half precision")
    for one in _each(params, grads, grad_scale, found_inf, maximize, buffers):
        grad = one.decayed(weight_decay)
        if momentum:
            (buffer,) = one.state
            if not is_first_step:
                grad = buffer * momentum + grad * (1 - dampening)
            one.write(0, grad)
            if nesterov:
                grad = one.decayed(weight_decay) + grad * momentum
        one.step(_number(lr) * grad)


def adagrad_(
    params: Any, grads: Any, sums: Any, steps: Any, *, lr: Any, lr_decay: float,
    weight_decay: float, eps: float, maximize: bool, grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    each = _each(params, grads, grad_scale, found_inf, maximize, sums)
    for one, step in zip(each, steps):
        grad = one.decayed(weight_decay)
        total = one.state[0] + grad * grad
        one.write(0, total)
        rate = _number(lr) / (1 + (step.double() - 1) * lr_decay)
        one.step(rate * grad / (total.sqrt() + eps))


def adam_(*args: Any, **kwargs: Any) -> None:
    _moments(*args, **kwargs, decoupled=False)


def adamw_(*args: Any, **kwargs: Any) -> None:
    _moments(*args, **kwargs, decoupled=True)


def _moments(
    params: Any, grads: Any, averages: Any, squares: Any, largest: Any, steps: Any, *, lr: Any,
    beta1: float, beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool,
    decoupled: bool, grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    states = (averages, squares, largest) if amsgrad else (averages, squares)
    each = _each(params, grads, grad_scale, found_inf, maximize, *states)
    beta1, beta2 = _number(beta1), _number(beta2)
    for one, step in zip(each, steps):
        if decoupled:
            one.step(_number(lr) * weight_decay * one.param)
        grad = one.grad if decoupled else one.decayed(weight_decay)
        average, square = one.state[:2]
        average = average + (grad - average) * (1 - beta1)
        square = square * beta2 + grad * grad * (1 - beta2)
        one.write(0, average)
        one.write(1, square)
        if amsgrad:
            square = torch.maximum(one.state[2], square)
            one.write(2, square)
        count = step.double()
        size = _number(lr) / (1 - beta1**count)
        denominator = square.sqrt() / (1 - beta2**count).sqrt() + eps
        one.step(size * average / denominator)


def _number(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) else value


class _One:
    """A parameter with its gradient and state, as kernels compute with them: in float32 at least,
    and unwritten where a gradient overflowed.
    """

    def __init__(self, param: torch.Tensor, grad: torch.Tensor, state: Any, skip: Any) -> None:
        self._param, self._state, self._skip = param, state, skip
        self.param, self.grad = _widened(param), _widened(grad)
        self.state = [_widened(tensor) for tensor in state]

    def decayed(self, weight_decay: float) -> torch.Tensor:
        return self.grad + self.param * weight_decay if weight_decay else self.grad

    def step(self, amount: torch.Tensor) -> None:
        self.param = self.param - amount
        self._put(self._param, self.param)

    def write(self, number: int, value: torch.Tensor) -> None:
        self._put(self._state[number], value)

    def _put(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        value = value.to(tensor.dtype)
        tensor.copy_(value if self._skip is None else torch.where(self._skip, tensor, value))


def _each(
    params: Any, grads: Any, grad_scale: Any, found_inf: Any, maximize: bool, *states: Any
) -> Iterator[_One]:
    skip = None if found_inf is None else found_inf == 1
    for number, (param, grad) in enumerate(zip(params, grads)):
        if grad_scale is not None:
            scaled = grad / grad_scale
            grad.copy_(scaled if skip is None else torch.where(skip, grad, scaled))
        state = [tensors[number] for tensors in states if tensors]
        yield _One(param, -grad if maximize else grad, state, skip)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in _HALF else tensor
