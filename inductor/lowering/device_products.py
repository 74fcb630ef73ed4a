"""Matrix products on a GPU: by the library, or by our template (codegen/triton_products.py), which
of the two is decided when the kernel that reads the result is known (plan_steps.py).

    y = aten.addmm(bias, x, w)      product(x, w, bias): rounded once, as the library rounds
    y = aten.mm(x, w)               a long sum of few tiles: products of parts of it, float32, and
                                    a kernel that adds them up, where others can join it

An operand that is a cast of another tensor is read as that, if the template is chosen here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fxgraph.sizes import Extent, contiguous_strides, hint, is_symbolic
from inductor import devices
from inductor.codegen import triton_products as template
from inductor.codegen.triton_products import Sizes
from inductor.devices import EMPTY
from inductor.index import ZERO, Index, Var
from inductor.ir import AtenCall, Buffer, DeviceProduct, Indices, Operand, Tape, Tensor, Window
from inductor.lowering.context import Lowering
from inductor.lowering.numbers import Number
from inductor.lowering.registry import NotLowered
from inductor.ops import Access, Value, ops, recording

DTYPES = frozenset([torch.float16, torch.bfloat16, torch.float32, torch.int8])
FLOAT8 = frozenset([torch.float8_e4m3fn, torch.float8_e5m2])
PARTS = (2, 4, 8, 16, 32)  # of a sum
LEAST_PART = 256  # elements
ADDING = 1.5  # times the time of its bytes take the sums of parts, it is assumed


def device_product(
    ctx: Lowering, a: Tensor, b: Tensor, bias: Tensor | None = None, beta: Number = 1,
    alpha: Number = 1, *, read_by_one: bool = False,
) -> Tensor:  # fmt: skip
    """a @ b of matrices, or of batches of them; of int8 in int32. read_by_one: whether one operator
    reads the result, by a kernel.
    """
    val = ctx.val()
    size, dtype = ctx.shape(), a.dtype
    if not devices.is_gpu(val.device) or dtype not in DTYPES or 0 in (*a.size, *b.size):
        raise NotLowered("a product of the library alone")
    if not ctx.gpu.products:
        raise NotLowered("products by Triton on this device")
    if ctx.strides(val) != contiguous_strides(size) and not is_symbolic(size):
        raise NotLowered("a result that is laid out otherwise")
    batch = [] if len(size) == 2 else [size[0]]
    sizes = (batch[0] if batch else 1, size[-2], a.size[-1], size[-1])
    call = None
    added = None if beta == 0 else bias  # not even NaN is taken of it then
    casts = [t for t in (a, b) if _is_cast(t)]
    for t in (a, b):
        if all(t is not one for one in casts):
            ctx.realize(t)
    if not casts or not _is_better(ctx, sizes, dtype):
        found = _in_parts(ctx, sizes, a, b, added, (alpha, beta), read_by_one)
        if found is not None:
            return found
        given = [*([] if bias is None else [ctx.realize(bias)]), ctx.realize(a), ctx.realize(b)]
        kwargs = {"beta": beta, "alpha": alpha} if bias is not None else {}
        call = AtenCall(f"aten{ctx.program.new_number()}", ctx.node.target, given, kwargs, [])
    target = _target(ctx, call)
    place = _place(sizes)
    z, x, r = place
    first = [z] if batch else []
    ctx.program.steps.append(
        DeviceProduct(
            f"product{ctx.program.new_number()}",
            _operand(a, (*first, x, _inner(sizes, "ka"))),
            _operand(b, (*first, _inner(sizes, "kb"), r)),
            None if added is None else _operand(added, _broadcast((*first, x, r), added)),
            sizes,
            place,
            dtype,
            precision(dtype),
            target,
            call,
            (float(alpha), float(beta)),
        )
    )
    return Tensor.of(target)


def _target(ctx: Lowering, call: AtenCall | None) -> Buffer:
    """Memory for the product, the library's operator's too."""
    val, size = ctx.val(), ctx.shape()
    like, kind = Tensor(size, val.dtype, val.device), "temp" if call is None else "aten"
    target = ctx.new_buffer(size, contiguous_strides(size), like, kind)
    if call is not None:
        call.outputs = [target]
    return target


def scaled_product(
    ctx: Lowering, a: Tensor, b: Tensor, scales: tuple[Tensor, Tensor], bias: Tensor | None,
    kwargs: dict[str, Any],
) -> Tensor:  # fmt: skip
    """a @ b of float8 matrices, times the scale of each, or the scales of its rows or columns."""
    val, size, dtype = ctx.val(), ctx.shape(), a.dtype
    if not devices.is_gpu(val.device) or b.dtype != dtype or 0 in (*a.size, *b.size):
        raise NotLowered("a product of the library alone")
    if dtype not in FLOAT8 or str(dtype).removeprefix("torch.") not in ctx.gpu.tensor:
        raise NotLowered("a product that the device has not")
    if ctx.strides(val) != contiguous_strides(size) or val.dtype in FLOAT8 or is_symbolic(size):
        raise NotLowered("a result that is laid out or typed otherwise")
    if any(s.dtype != torch.float32 or not _spreads(s, size) for s in scales):
        raise NotLowered("scales of blocks")
    given = [ctx.realize(t) for t in (a, b, *scales)]
    more = {} if bias is None else {"bias": ctx.realize(bias)}
    name = f"aten{ctx.program.new_number()}"
    call = AtenCall(name, ctx.node.target, [*given], {**more, **kwargs}, [])
    sizes = (1, size[0], a.size[-1], size[1])
    place = _place(sizes)
    _, x, r = place
    step = DeviceProduct(
        f"product{ctx.program.new_number()}",
        _in_memory(given[0], (x, _inner(sizes, "ka"))),
        _in_memory(given[1], (_inner(sizes, "kb"), r)),
        None if bias is None else _operand(bias, _broadcast((x, r), bias)),
        sizes,
        place,
        dtype,
        precision(dtype),
        _target(ctx, call),
        call,
        factors=[_operand(s, _broadcast((x, r), s)) for s in scales],
    )
    ctx.program.steps.append(step)
    return Tensor.of(step.target)


def _spreads(scale: Tensor, size: Sequence[Extent]) -> bool:
    """Whether a scale is one for all, or one for each row or column."""
    return len(scale.size) <= 2 and all(
        n in (1, whole) for n, whole in zip(reversed(scale.size), reversed(size), strict=False)
    )


def _in_memory(window: Window, place: Indices) -> Operand:
    """An operand of a type that loops have not."""
    tape = Tape()
    access = Access(window.buffer.name, window.index(place))
    return Operand(tape, tape.emit("load", (), torch.float32, access))


def precision(dtype: torch.dtype) -> str:
    return "tf32" if dtype == torch.float32 and allows_tf32() else "ieee"


def allows_tf32() -> bool:
    """Whether torch computes products of float32 in TF32 on a GPU."""
    try:
        return bool(torch._C._get_cublas_allow_tf32())
    except RuntimeError:  # set by torch's newer settings
        return torch.backends.cuda.matmul.fp32_precision == "tf32"


def _place(sizes: Sizes) -> tuple[Index, Index, Index]:
    batch, rows, _, columns = sizes
    z, x, r = (
        ZERO if n == 1 else Index({Var(name, n): 1})
        for name, n in (("z", batch), ("x", rows), ("r", columns))
    )
    return z, x, r


def _inner(sizes: Sizes, name: str) -> Index:
    return ZERO if sizes[2] == 1 else Index({Var(name, sizes[2]): 1})


def _broadcast(place: Indices, tensor: Tensor) -> Indices:
    tail = place[len(place) - len(tensor.size) :]
    return tuple(ZERO if n == 1 else i for i, n in zip(tail, tensor.size, strict=True))


def _operand(t: Tensor, place: Indices) -> Operand:
    tape = Tape()
    with recording(tape):
        value = t.load(place)
    return Operand(tape, value)


# --- casts ----------------------------------------------------------------------------------------


def _is_cast(t: Tensor) -> bool:
    """Whether a lazy tensor is the elements of a strided tensor in memory, perhaps of another
    type."""
    if t.window is not None or t.reads != 1:
        return False
    tape = _operand(t, tuple(Index({Var(f"i{d}", n): 1}) for d, n in enumerate(t.size))).tape
    return all(value.op in ("load", "to_dtype") for value in tape.values) and all(
        access.index.is_affine() and not access.masked for access in tape.loads()
    )


def _is_better(ctx: Lowering, sizes: Sizes, dtype: torch.dtype) -> bool:
    """Whether the template takes no longer than the library after a kernel that casts."""
    own = template.best_seconds(sizes, dtype, precision(dtype), ctx.gpu)
    return own < template.library_seconds(sizes, dtype, precision(dtype), ctx.gpu) + EMPTY


# --- sums in parts --------------------------------------------------------------------------------


def _in_parts(
    ctx: Lowering, sizes: Sizes, a: Tensor, b: Tensor, bias: Tensor | None,
    scales: tuple[Number, Number], read_by_one: bool,
) -> Tensor | None:  # fmt: skip
    """The product as a sum of products, where that is faster than anything else; or None."""
    val = ctx.val()
    batch, rows, inner, columns = sizes
    if batch != 1 or len(a.size) != 2 or is_symbolic(sizes) or not read_by_one:
        return None
    if ctx.measured:  # shares of the sums are a form, codegen/triton_product_ways.py
        return None
    if not val.dtype.is_floating_point:
        return None
    kind, gpu = precision(val.dtype), ctx.gpu
    assert isinstance(inner, int)
    times = {
        parts: template.best_seconds((parts, rows, inner // parts, columns), val.dtype, kind, gpu)
        + ADDING * gpu.seconds(4 * parts * hint(rows * columns))
        for parts in PARTS
        if inner % parts == 0 and inner // parts >= LEAST_PART
    }
    if not times:
        return None
    parts = min(times, key=times.__getitem__)
    reading = gpu.seconds(2 * val.dtype.itemsize * hint(rows * columns))
    own = template.best_seconds(sizes, val.dtype, kind, gpu)
    other = min(own, template.library_seconds(sizes, val.dtype, kind, gpu) + reading)
    if times[parts] >= other:
        return None
    split = (parts, rows, inner // parts, columns)
    place = _place(split)
    z, x, r = place
    size = (parts, rows, columns)
    like = Tensor(size, torch.float32, val.device)
    target = ctx.new_buffer(size, contiguous_strides(size), like)
    step = split[2]
    ctx.program.steps.append(
        DeviceProduct(
            f"product{ctx.program.new_number()}",
            _operand(_settled(ctx, a), (x, z * step + _inner(split, "ka"))),
            _operand(_settled(ctx, b), (z * step + _inner(split, "kb"), r)),
            None,
            split,
            place,
            val.dtype,
            kind,
            target,
            None,
        )
    )
    total = ctx.reduce("sum", Tensor.of(target), [0], torch.float32)
    assert total.window is not None
    flat = Window(total.window.buffer, (rows, columns), contiguous_strides((rows, columns)))
    result = Tensor(flat.size, torch.float32, val.device, flat)

    def scaled(value: Value, *bias: Value) -> Value:
        alpha, beta = (ops.constant(float(s), torch.float32) for s in scales)
        value = value if scales[0] == 1 else ops.mul(value, alpha)
        for one in bias:
            value = ops.add(value, one if scales[1] == 1 else ops.mul(one, beta))
        return value

    given = [result, *([] if bias is None else [bias])]
    return ctx.pointwise(scaled, given, val.dtype, compute=torch.float32)


def _settled(ctx: Lowering, t: Tensor) -> Tensor:
    ctx.realize(t)
    return t


__all__ = ["device_product"]
