"""cumprod while autograd records: one operator for its gradient.

before                                      after
    y = x.cumprod(-1)                           y = aten.cumprod(x, -1)
                                                # backward: framegraph.running_product_backward

Torch's gradient looks for zeros first; where it cannot branch on what it finds, it takes three
more running sums and products, for whatever x holds. Ours is a pass over each row, from its end to
its beginning (csrc/recurrent/running_product.cpp).
"""

from __future__ import annotations

from typing import Any

import torch

from fxgraph.extensions import require

_library = torch.library.Library("framegraph", "FRAGMENT")
_library.define("running_product_backward(Tensor grad, Tensor x, Tensor y, int dim) -> Tensor")
running_product_backward = torch.ops.framegraph.running_product_backward.default

require("fxgraph.aot._recurrent")


def _backward_meta(grad: Any, x: Any, y: Any, dim: int) -> torch.Tensor:
    return x.new_empty(x.shape)


_library.impl("running_product_backward", _backward_meta, "Meta")


class _Differentiated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, dim: int) -> Any:
        y = torch.ops.aten.cumprod.default(x, dim)
        ctx.dim = dim
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, y = ctx.saved_tensors
        return running_product_backward(grad, x, y, ctx.dim), None


def cumprod(x: Any, dim: Any = None, **rest: Any) -> Any:
    """x.cumprod(dim, **rest); NotImplemented where torch's own gradient is to be traced.

    Of other than contiguous tensors the gradient's layout depends on whether there are zeros.
    """
    if rest or type(dim) is not int or not isinstance(x, torch.Tensor):
        return NotImplemented
    if not (x.requires_grad and torch.is_grad_enabled()) or x.device.type != "cpu":
        return NotImplemented
    sizes = tuple(x.shape)
    if not sizes or any(type(size) is not int for size in sizes) or not x.dtype.is_floating_point:
        return NotImplemented
    if not -len(sizes) <= dim < len(sizes) or sizes[dim] < 2 or not x.is_contiguous():
        return NotImplemented
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
    if wrapped or torch.is_autocast_enabled("cpu") or x.layout is not torch.strided:
        return NotImplemented
    return _Differentiated.apply(x, dim % len(sizes))
