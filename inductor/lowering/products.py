"""Matrix products: library calls, whose bias is added by the kernel that reads the product.
Those on a GPU are device_products.py's."""

from __future__ import annotations

import operator
from typing import Any

import torch

from fxgraph.node import Node
from fxgraph.sizes import Extent, contiguous_strides, hint, product
from inductor import devices
from inductor.convolutions_training import weight_gradient, winograd_panels
from inductor.costs import NARROWED_BYTES
from inductor.ir import (
    MatrixProduct,
    PanelProduct,
    Tensor,
    WeightGradient,
    Window,
    WindowProduct,
    Winograd,
    WinogradPanels,
)
from inductor.lowering.context import Lowering
from inductor.lowering.device_products import FLOAT8, device_product, scaled_product
from inductor.lowering.numbers import Number
from inductor.lowering.registry import LOWERINGS, NotLowered, aten, lower
from inductor.lowering.symbolic import GraphSizes
from inductor.matrices import matrix_mm
from inductor.ops import ops
from inductor.panels import panel_mm
from inductor.windows import pixels_of, window_mm
from inductor.winograd import winograd_mm


@lower(aten.mm.default, aten.bmm.default, aten._int_mm.default)
def mm(ctx: Lowering, a: Tensor, b: Tensor) -> Tensor:
    return device_product(ctx, a, b, read_by_one=_is_read_by_one_kernel(ctx.node))


@lower(aten.addmm.default)
def addmm(
    ctx: Lowering, bias: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """A product, and the bias lazily: the library would copy the bias into the result first, and
    read the result while it adds. Where no kernel reads the result anyway, the library does both.
    """
    val = ctx.val()
    if devices.is_gpu(val.device):
        read = _is_read_by_one_kernel(ctx.node)
        return device_product(ctx, a, b, bias, beta, alpha, read_by_one=read)
    rounds_once = val.dtype in (torch.float32, torch.float64)
    if not (rounds_once and val.device.type == "cpu" and beta == 1 and alpha == 1):
        raise NotLowered("addmm")
    if len(bias.size) != 1 or not _is_read_by_one_kernel(ctx.node):
        raise NotLowered("addmm")
    product = ctx.aten(aten.mm.default, [a, b], {})
    return ctx.pointwise(ops.add, [product, bias], val.dtype)


def _is_read_by_one_kernel(node: Any) -> bool:
    """Whether one operator reads the value, by way of views, and generated code computes that."""
    while len(node.users) == 1:
        (node,) = node.users
        if node.op != "call_function" or node.target not in LOWERINGS:
            return False
        if node.target in _PRODUCTS:
            return False
        if not _is_view(node.target):
            return True
    return False


@lower(aten._scaled_mm.default)
def scaled_mm(
    ctx: Lowering, a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor,
    bias: Tensor | None = None, scale_result: Tensor | None = None, out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    if scale_result is not None:
        raise NotLowered("a scale of the result")
    kwargs = {"out_dtype": out_dtype, "use_fast_accum": use_fast_accum}
    return scaled_product(ctx, a, b, (scale_a, scale_b), bias, kwargs)


# Operators that take tensors of float8, in memory as they are.
OF_FLOAT8 = frozenset([aten._scaled_mm.default, aten.permute.default])
_PRODUCTS = frozenset(
    [
        aten.mm.default, aten.bmm.default, aten.addmm.default, aten._int_mm.default,
        aten._scaled_mm.default, aten.convolution.default,
    ]
)  # fmt: skip

_IN_MEMORY = _PRODUCTS | {panel_mm, matrix_mm, winograd_mm, window_mm}

_WHOLE_VIEWS = frozenset(
    [
        aten.permute.default, aten.t.default, aten.transpose.int, aten.view.default,
        aten._unsafe_view.default, aten.reshape.default,
    ]
)  # fmt: skip


def reads_in_memory(node: Any) -> int:
    """How many operators read a value on the CPU in memory alone, by way of views of all of it."""
    count = 0
    for user in node.users:
        if user.op != "call_function" or not isinstance(user.target, torch._ops.OpOverload):
            continue
        if user.target not in LOWERINGS or user.target in _IN_MEMORY:
            count += 1
        elif user.target in _WHOLE_VIEWS:
            count += reads_in_memory(user)
    return count


def shortens(node: Any) -> bool:
    """Whether the node in memory leaves less of generated products there, for no more time."""
    return is_narrowed_product(node) or is_part_of_sum(node)


def is_narrowed_product(node: Any) -> bool:
    """Whether the node rounds a generated product, with its bias maybe, and several operators read
    it, by way of views: rounded once, a large one keeps half of its memory until the last of them.
    """
    if node.target is not aten._to_copy.default or not isinstance(node.args[0], Node):
        return False
    wide = node.args[0]
    val, sizes = wide.meta["val"], GraphSizes()
    if val.dtype.itemsize <= node.meta["val"].dtype.itemsize:
        return False
    if hint(product([sizes.of(size) for size in val.shape])) * val.itemsize < NARROWED_BYTES:
        return False
    if wide.target is aten.add.Tensor:
        wide = wide.args[0]
    return getattr(wide, "target", None) in (panel_mm, matrix_mm) and _readers(node) > 1


def is_part_of_sum(node: Any) -> bool:
    """Whether the node adds a generated product that nothing else reads to a sum of more terms, as
    gradients of a weight that is used several times are. The product's kernel can add it; at the
    end of the sum, all of its terms would lie in memory.
    """
    return (
        _is_sum(node)
        and len(node.users) == 1
        and _is_sum(next(iter(node.users)))
        and any(map(_is_lone_product, node.args))
    )


def _is_sum(node: Any) -> bool:
    if node.target is not aten.add.Tensor or node.kwargs:
        return False
    vals = [node, *node.args]
    shapes = [getattr(n.meta["val"], "shape", [None]) for n in vals if isinstance(n, Node)]
    fixed = len(shapes) == 3 and all(isinstance(n, int) for shape in shapes for n in shape)
    return fixed and shapes[0] == shapes[1] == shapes[2]


def _is_lone_product(node: Any) -> bool:
    if len(node.users) != 1:
        return False
    if node.target is aten._to_copy.default or node.target in _WHOLE_VIEWS:
        return isinstance(node.args[0], Node) and _is_lone_product(node.args[0])
    return node.target in (panel_mm, matrix_mm)


def _readers(node: Any) -> int:
    """How many operators compute with the value, by way of views of it or of its parts, and of sums
    (with a bias), which wait for their readers.
    """
    count = 0
    for user in node.users:
        target = user.target
        through = target in (operator.getitem, aten.add.Tensor) or (
            isinstance(target, torch._ops.OpOverload) and _is_view(target)
        )
        count += _readers(user) if user.op == "call_function" and through else 1
    return count


def _is_view(target: Any) -> bool:
    aliases = any(result.alias_info is not None for result in target._schema.returns)
    return aliases or target in (aten._unsafe_view.default, aten.reshape.default)


@lower(panel_mm)
def product_of_panels(ctx: Lowering, x: Tensor, weight: Tensor, columns: Extent) -> Tensor:
    """A product by a generated kernel."""
    rows, inner = x.size
    if x.device.type != "cpu" or inner == 0:
        raise NotLowered("panel_mm")
    window = ctx.realize_rows(x)
    size = (rows, columns)
    like = Tensor(size, ctx.val().dtype, x.device)
    target = ctx.new_buffer(size, contiguous_strides(size), like)
    name = f"product{ctx.program.new_number()}"
    ctx.program.steps.append(PanelProduct(name, window, ctx.realize(weight), size, target))
    return Tensor.of(target)


@lower(matrix_mm)
def product_of_matrices(ctx: Lowering, x: Tensor, weight: Tensor) -> Tensor:
    """A product by a generated kernel, of matrices as they are."""
    one, other = ctx.realize(x), ctx.realize(weight)
    if x.device.type != "cpu" or any(1 not in w.stride for w in (one, other)):
        raise NotLowered("matrix_mm")
    size = (x.size[0], weight.size[1])
    like = Tensor(size, torch.float32, x.device)
    target = ctx.new_buffer(size, contiguous_strides(size), like)
    name = f"product{ctx.program.new_number()}"
    ctx.program.steps.append(MatrixProduct(name, one, other, size, target))
    return Tensor.of(target)


@lower(winograd_mm)
def product_of_windows(
    ctx: Lowering,
    x: Tensor,
    panels: Tensor,
    weight: Tensor,
    padding: list[int],
    transposed: bool = False,
) -> Tensor:
    """A convolution by a generated kernel."""
    image = innermost(ctx, x)
    images, height, width, _ = image.size
    above, beside = padding
    pixels = (images, height + 2 * above - 2, width + 2 * beside - 2)
    rows = product(pixels), weight.size[1 if transposed else 0]
    target = ctx.new_buffer(rows, contiguous_strides(rows), x)
    name = f"winograd{ctx.program.new_number()}"
    step = Winograd(
        name, image, ctx.realize(panels), rows, target,
        weight_as_it_was=ctx.realize(weight), padding=(above, beside), pixels=pixels,
        transposed=transposed,
    )  # fmt: skip
    ctx.program.steps.append(step)
    return Tensor.of(target)


@lower(window_mm)
def product_of_any_windows(
    ctx: Lowering,
    x: Tensor,
    panels: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Tensor:
    """A convolution of bfloat16 by a generated kernel."""
    image, (columns, _, *window) = innermost(ctx, x), weight.size
    pixels = pixels_of(x.size, window, stride, padding, dilation)
    rows = product(pixels), columns
    like = Tensor(rows, torch.float32, x.device)
    target = ctx.new_buffer(rows, contiguous_strides(rows), like)
    name = f"windows{ctx.program.new_number()}"
    settings: list[Any] = [window, stride, padding, dilation]
    of_window, steps, around, apart = ((a, b) for a, b in settings)
    step = WindowProduct(
        name, image, ctx.realize(panels), rows, target,
        pixels=pixels, window=of_window, steps=steps, padding=around, dilation=apart,
    )  # fmt: skip
    ctx.program.steps.append(step)
    return Tensor.of(target)


def innermost(ctx: Lowering, x: Tensor) -> Window:
    """Images in memory as (images, height, width, channels), contiguous."""
    images, channels, height, width = x.size
    size = (images, height, width, channels)
    stride = contiguous_strides(size)
    window = ctx.realize(x, [stride[i] for i in (0, 3, 1, 2)])
    place = [window.stride[i] for i in (0, 2, 3, 1)]
    if any(n != 1 and a != b for n, a, b in zip(size, place, stride, strict=True)):
        raise NotLowered("an image that is laid out otherwise")
    return Window(window.buffer, size, stride, window.offset)


@lower(winograd_panels)
def transformed_weight(ctx: Lowering, weight: Tensor, transposed: bool) -> Tensor:
    window, size = ctx.realize(weight), ctx.shape()
    target = ctx.new_buffer(size, contiguous_strides(size), weight)
    name = f"winograd_panels{ctx.program.new_number()}"
    ctx.program.steps.append(WinogradPanels(name, window, transposed, target))
    return Tensor.of(target)


@lower(weight_gradient)
def gradient_of_weight(
    ctx: Lowering,
    x: Tensor,
    gradient: Tensor,
    window: list[int],
    stride: list[int],
    padding: list[int],
    winograd: bool,
) -> Tensor:
    images, gradients, size = innermost(ctx, x), innermost(ctx, gradient), ctx.shape()
    target = ctx.new_buffer(size, contiguous_strides(size), x)
    name = f"weight_gradient{ctx.program.new_number()}"
    of_window, steps, around = ((a, b) for a, b in (window, stride, padding))
    step = WeightGradient(name, images, gradients, of_window, steps, around, winograd, target)
    ctx.program.steps.append(step)
    return Tensor.of(target)


__all__ = ["FLOAT8", "OF_FLOAT8"]
