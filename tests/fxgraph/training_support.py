"""Training programs in eager and compiled worlds: what can be seen of them must agree.

A case is a function, its inputs, and a use: what the caller does with inputs and outputs (backward,
hooks, writes, ...), logging what is seen. After the call and after the use the two worlds agree in
all tensors: values, dtypes, strides, gradients, requires_grad, is_leaf, whether there is a grad_fn,
_version, which share memory, and in exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import dynamo

BACKENDS = ("eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow))
Use = Callable[[Any, list[torch.Tensor], "Log"], Any]


def r(*shape: int, grad: bool = True, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


class Log:
    """What a use sees."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, *values: Any) -> None:
        self.seen += [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in values]

    def trying(self, action: Callable[[], Any]) -> Any:
        """The result of `action`, or None where it raises, which is seen."""
        try:
            return action()
        except Exception as error:
            self.seen.append(_text(error))
            return None


def _text(error: BaseException) -> str:
    """The exception without what names eager's nodes, which a compiled graph has not."""
    text = str(error).split("Hint:")[0]
    text = re.sub(r", which is output \d+ of [\w:]+,", "", text)
    text = re.sub(r"Output \d+ of [\w:]+", "An output", text)
    text = re.sub(r"\[[\w.]+Tensor \[.*?\]\]", "[a tensor]", text)
    text = re.sub(r"is at version \d+; expected version \d+", "has another version", text)
    return f"{type(error).__name__}: {text.strip()}"


def tensors_of(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def facts(tensor: Any, given: bool = True) -> Any:
    """given: the caller made the tensor, the function did not."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    is_tracked = not tensor.is_inference() and (given or tensor.requires_grad)
    try:
        grad = tensor.grad if tensor.is_leaf else None
    except RuntimeError as error:  # a view whose base was written where that is forbidden
        return _text(error)
    return {
        "value": tensor.detach().clone(),
        "stride": tensor.stride(),
        "grad": None if grad is None else grad.detach().clone(),
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        "has grad_fn": tensor.grad_fn is not None,
        # That of a new tensor without a gradient shows how torch makes it (rand fills in place).
        "version": tensor._version if is_tracked else None,
        "is view": tensor._is_view(),
    }


def sharing(tensors: Sequence[Any]) -> list[Any]:
    """For each tensor the first one with its memory, and the first that is the same object."""
    found = []
    for t in tensors:
        if not isinstance(t, torch.Tensor):
            found.append(None)
            continue
        others = [o if isinstance(o, torch.Tensor) else None for o in tensors]
        memory = t.untyped_storage().data_ptr()
        sharers = [o is not None and o.untyped_storage().data_ptr() == memory for o in others]
        found.append((sharers.index(True), next(i for i, o in enumerate(others) if o is t)))
    return found


def world(call: Any, make: Callable[[], list[torch.Tensor]], use: Use) -> list[Any]:
    """Everything that is seen, in order."""
    torch.manual_seed(0)
    inputs = make()
    log = Log()
    torch.manual_seed(1)
    result = log.trying(lambda: call(*inputs))
    results = tensors_of(result)
    seen: list[Any] = [sharing([*inputs, *results])]
    seen += [facts(t) for t in inputs] + [facts(t, given=False) for t in results]
    if result is not None:
        torch.manual_seed(2)
        log.trying(lambda: use(result, inputs, log))
    seen += log.seen
    seen += [facts(t) for t in inputs] + [facts(t, given=False) for t in results]
    seen.append(torch.get_rng_state()[:64])
    return seen


def _strings(seen: Any) -> list[str]:
    return [item for item in seen if isinstance(item, str)]


def assert_same(one: Any, other: Any, where: str = "", loose: bool = False) -> None:
    if isinstance(one, torch.Tensor):
        assert isinstance(other, torch.Tensor), f"{where}: {one} {other}"
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        # Fused kernels round once where eager rounds to bfloat16 after each operator.
        bounds = {"rtol": 0.05, "atol": 0.05} if loose else {}
        torch.testing.assert_close(one, other, equal_nan=True, **bounds)
    elif isinstance(one, dict):
        for key, value in one.items():
            assert_same(value, other[key], f"{where} {key}", loose)
    elif isinstance(one, (list, tuple)) and not isinstance(one, torch.Size):
        assert len(one) == len(other), f"{where}: {_strings(one)} and {_strings(other)}"
        for i, (a, b) in enumerate(zip(one, other)):
            assert_same(a, b, f"{where}[{i}]", loose)
    else:
        assert one == other, f"{where}: eager {one!r}, compiled {other!r}"


def backward(result: Any, inputs: list[torch.Tensor], log: Log, **kwargs: Any) -> None:
    """The use that most rows have: gradients of all that has one."""
    roots = [y for y in tensors_of(result) if isinstance(y, torch.Tensor) and y.requires_grad]
    torch.autograd.backward(roots, [torch.randn_like(y) for y in roots], **kwargs)


_compiled: dict[Any, Any] = {}


def compiled(fn: Callable[..., Any], backend: str) -> Any:
    """dynamo.compile(fn), kept for the other cases of the same function."""
    key = fn, backend
    if key not in _compiled:
        _compiled[key] = dynamo.compile(fn, backend=backend)
    return _compiled[key]


def check(
    fn: Any, make: Any, use: Use, backend: str, *, calls: int = 2, loose: bool = False
) -> None:
    """Eager and compiled worlds agree, also in later calls."""
    expected = world(fn, make, use)
    call = compiled(fn, backend)
    for _ in range(calls):
        assert_same(expected, world(call, make, use), loose=loose)
