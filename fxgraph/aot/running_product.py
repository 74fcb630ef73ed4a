"""cumprod and prod while autograd records: gradients that branch on no value.

before                                      after
    y = x.cumprod(-1)                           y = aten.cumprod(x, -1)
                                                # backward: framegraph.running_product_backward

Torch's gradient looks for zeros first; where it cannot branch on what it finds, it takes three
more running sums and products, for whatever x holds. Ours is a pass over each row, from its end to
its beginning (csrc/recurrent/running_product.cpp).

The gradient of prod is elementwise, beside three sums and products of whole rows: y / x where the
other elements of a row are not 0, else the product of the others, or 0.
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


_MOST = 1 << 24  # numbers that float32 counts


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, dim: int, keepdim: bool) -> Any:
        y = torch.ops.aten.prod.dim_int(x, dim, keepdim)
        ctx.dim, ctx.keepdim = dim, keepdim
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, y = ctx.saved_tensors
        if not ctx.keepdim:
            grad, y = grad.unsqueeze(ctx.dim), y.unsqueeze(ctx.dim)
        zero, wild = x == 0, ~x.isfinite()
        zeros, wilds = (each.float() for each in (zero, wild))  # counted in vectors
        others = x.masked_fill(zero, 1).prod(ctx.dim, True)  # but for the zeros
        undefined = wilds.sum(ctx.dim, True) > wilds  # 0 times an infinity, or NaN
        nothing = torch.where(undefined, torch.nan, 0.0).to(x.dtype)
        factor = torch.where(zero, others, y / x)
        return grad * torch.where(zeros.sum(ctx.dim, True) > zeros, nothing, factor), None, None


def cumprod(x: Any, dim: Any = None, **rest: Any) -> Any:
    """x.cumprod(dim, **rest); NotImplemented where torch's own gradient is to be traced."""
    takes = not rest and _takes(x, dim)
    return _Differentiated.apply(x, dim % x.dim()) if takes else NotImplemented


def prod(x: Any, dim: Any = None, keepdim: Any = False, **rest: Any) -> Any:
    """x.prod(dim, keepdim, **rest); NotImplemented where torch's own gradient is to be traced."""
    if rest or type(keepdim) is not bool or not _takes(x, dim):
        return NotImplemented
    if x.shape[dim] > _MOST:
        return NotImplemented
    return _Product.apply(x, dim % x.dim(), keepdim)


def _takes(x: Any, dim: Any) -> bool:
    """Whether the gradient is ours. Of other than contiguous tensors its layout depends on whether
    there are zeros.
    """
    if type(dim) is not int or not isinstance(x, torch.Tensor):
        return False
    if not (x.requires_grad and torch.is_grad_enabled()) or x.device.type != "cpu":
        return False
    sizes = tuple(x.shape)
    if not sizes or any(type(size) is not int for size in sizes) or not x.dtype.is_floating_point:
        return False
    if not -len(sizes) <= dim < len(sizes) or sizes[dim] < 2 or not x.is_contiguous():
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
    return not (wrapped or torch.is_autocast_enabled("cpu") or x.layout is not torch.strided)
