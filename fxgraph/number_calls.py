"""Functions of torch called with numbers that depend on data, as an operator of the graph.

    n = t.item()                       n = t.item()
    y = F.avg_pool2d(x, n)       ->    y = framegraph.number_call("torch._C._nn.avg_pool2d", ...,
                                               [x], [scalar_tensor(n)], [1, 3, -1, -1], float32)

Torch's schemas take plain numbers in many places, and shapes depend on these. One operator serves
all functions that give one new tensor: the function is called with the real numbers. A result that
is not as capture expected (another shape where this was no unknown one, another layout, memory of
an argument), and any exception, fails the operator, and the frame runs again, eagerly.

The backward computes the function once more, by autograd.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor

from fxgraph.targets import qualified_name, resolve

UNKNOWN = -1  # a size that only the call tells


def name_of(op: str, target: Any) -> str | None:
    """The name by which graphs call a function or method of torch; None: they can't."""
    if op == "call_method":
        return f"torch.Tensor.{target}" if hasattr(torch.Tensor, target) else None
    return qualified_name(target, frozenset({"torch"}))


def encode(arg: Any, number: Callable[[Any], int], tensor: Callable[[Any], int]) -> Any:
    """A nest of arguments as JSON; raises TypeError of what has no place there. number, tensor:
    give the position of a leaf in its list, -1 for another leaf.
    """
    if (place := tensor(arg)) >= 0:
        return {"tensor": place}
    if (place := number(arg)) >= 0:
        return {"number": place}
    if arg is None or type(arg) in (bool, int, float, str):
        return arg
    if isinstance(arg, torch.dtype):
        return {"dtype": str(arg).partition(".")[2]}
    if type(arg) in (list, tuple, torch.Size):
        return {type(arg).__name__: [encode(item, number, tensor) for item in arg]}
    if type(arg) is dict:
        return {"dict": {key: encode(value, number, tensor) for key, value in arg.items()}}
    raise TypeError(type(arg))


def decode(arg: Any, numbers: Sequence[Any], tensors: Sequence[Any]) -> Any:
    """The arguments that `encode` described."""
    if not isinstance(arg, dict):
        return arg
    [(kind, value)] = arg.items()
    if kind == "dict":
        return {key: decode(item, numbers, tensors) for key, item in value.items()}
    if kind in ("list", "tuple", "Size"):
        items = [decode(item, numbers, tensors) for item in value]
        return items if kind == "list" else tuple(items)
    if kind == "dtype":
        return getattr(torch, value)
    return tensors[value] if kind == "tensor" else numbers[value]


@functools.lru_cache(1000)
def _prepared(function: str, arguments: str) -> tuple[Any, Any]:
    return resolve(function), json.loads(arguments)


def _called(
    function: str, arguments: str, tensors: Sequence[Any], numbers: Sequence[torch.Tensor]
) -> Any:
    called, template = _prepared(function, arguments)
    plain = [number.item() for number in numbers]
    args, kwargs = (decode(part, plain, tensors) for part in template)
    return called(*args, **kwargs)


_library = torch.library.Library("framegraph", "FRAGMENT")
_library.define(
    "number_call(str function, str arguments, Tensor[] tensors, Tensor[] numbers, SymInt[] size, "
    "ScalarType dtype, bool differentiable) -> Tensor"
)
_library.define(
    "number_call_backward(str function, str arguments, Tensor[] tensors, Tensor[] numbers, "
    "int[] wanted, Tensor gradient) -> Tensor[]"
)


def _compute(
    function: str,
    arguments: str,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[torch.Tensor],
    size: Sequence[int],
    dtype: torch.dtype,
    differentiable: bool,
) -> torch.Tensor:
    try:
        made = _called(function, arguments, tensors, numbers)
    except Exception as error:
        raise RuntimeError(f"{function}: {error}") from error
    fits = (
        type(made) is torch.Tensor
        and made.dtype is dtype
        and made.dim() == len(size)
        and all(expected in (UNKNOWN, found) for expected, found in zip(size, made.shape))
        and made.device == tensors[0].device
        and made.stride() == torch.empty(made.shape, device="meta").stride()
        and not any(made.untyped_storage()._cdata == t.untyped_storage()._cdata for t in tensors)
    )
    if not fits:
        raise RuntimeError(f"{function} has another result than the graph expects")
    return made if not made.storage_offset() else made.clone()


def _compute_backward(
    function: str,
    arguments: str,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[torch.Tensor],
    wanted: Sequence[int],
    gradient: torch.Tensor,
) -> list[torch.Tensor]:
    with torch.enable_grad(), _autograd_on():
        leaves = [t.detach().requires_grad_(k in wanted) for k, t in enumerate(tensors)]
        found = _gradients(function, arguments, leaves, numbers, wanted, gradient, False)
    return [torch.empty_like(tensors[k]).copy_(grad) for k, grad in zip(wanted, found)]


def _gradients(
    function: str,
    arguments: str,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[torch.Tensor],
    wanted: Sequence[int],
    gradient: torch.Tensor,
    create_graph: bool,
) -> Sequence[torch.Tensor]:
    made = _called(function, arguments, tensors, numbers)
    inputs = [tensors[k] for k in wanted]
    return torch.autograd.grad(
        made,
        inputs,
        gradient,
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )


def _autograd_on() -> Any:
    """Inside, autograd records: below the dispatch key of autograd, where backends call operators,
    nothing would.
    """
    keys = torch._C.DispatchKey
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (keys.AutogradFunctionality, keys.AutogradOther, keys.ADInplaceOrView):
        excluded = excluded - torch._C.DispatchKeySet(key)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)


def _meta(
    function: str,
    arguments: str,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[torch.Tensor],
    size: Sequence[Any],
    dtype: torch.dtype,
    differentiable: bool,
) -> torch.Tensor:
    return tensors[0].new_empty(list(_sizes(tensors[0], size)), dtype=dtype)


def _sizes(tensor: Any, size: Sequence[Any]) -> Iterator[Any]:
    for known in size:
        if type(known) is not int or known != UNKNOWN:
            yield known
            continue
        env = getattr(getattr(tensor, "fake_mode", None), "shape_env", None)
        if env is None or not env.allow_dynamic_output_shape_ops:
            raise DynamicOutputShapeException(number_call)
        yield env.new_unbacked(low=0)


def _meta_backward(
    function: str,
    arguments: str,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[torch.Tensor],
    wanted: Sequence[int],
    gradient: torch.Tensor,
) -> list[torch.Tensor]:
    return [torch.empty_like(tensors[k]) for k in wanted]


class _Differentiable(torch.autograd.Function):
    """The operator, with the operator of the backward."""

    @staticmethod
    def forward(
        ctx: Any,
        function: str,
        arguments: str,
        size: Sequence[Any],
        dtype: torch.dtype,
        count: int,
        *tensors: torch.Tensor,
    ) -> torch.Tensor:
        ctx.call, ctx.count = (function, arguments), count
        ctx.save_for_backward(*tensors)
        with torch._C._AutoDispatchBelowAutograd():
            return number_call(
                function, arguments, tensors[:count], tensors[count:], size, dtype, True
            )

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (function, arguments), saved, count = ctx.call, ctx.saved_tensors, ctx.count
        tensors, numbers = saved[:count], saved[count:]
        wanted = [k for k in range(count) if ctx.needs_input_grad[5 + k]]
        if torch.is_grad_enabled() and not isinstance(gradient, FakeTensor):  # by create_graph
            made = _gradients(function, arguments, tensors, numbers, wanted, gradient, True)
        else:
            made = number_call_backward(function, arguments, tensors, numbers, wanted, gradient)
        found = dict(zip(wanted, made))
        return (None,) * 5 + tuple(found.get(k) for k in range(len(saved)))


def _autograd(
    function: str,
    arguments: str,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[torch.Tensor],
    size: Sequence[Any],
    dtype: torch.dtype,
    differentiable: bool,
) -> torch.Tensor:
    wanted = any(t.requires_grad for t in tensors)
    if differentiable and wanted and torch.is_grad_enabled():
        count = len(tensors)
        return _Differentiable.apply(function, arguments, size, dtype, count, *tensors, *numbers)
    with torch._C._AutoDispatchBelowAutograd():
        return number_call(function, arguments, tensors, numbers, size, dtype, differentiable)


_library.impl("number_call", _compute, "CompositeExplicitAutograd")
_library.impl("number_call", _meta, "Meta")
_library.impl("number_call", _autograd, "Autograd")
_library.impl("number_call_backward", _compute_backward, "CompositeExplicitAutograd")
_library.impl("number_call_backward", _meta_backward, "Meta")
number_call = torch.ops.framegraph.number_call.default
number_call_backward = torch.ops.framegraph.number_call_backward.default
