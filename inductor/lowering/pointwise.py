"""Elementwise operators: arithmetic, comparison, logic, conversion, activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from fxgraph.sizes import Size, nonzero
from inductor.ir import Tensor, Value
from inductor.lowering.context import Lowering
from inductor.lowering.creation import constant
from inductor.lowering.numbers import Number, half_number, rounded
from inductor.lowering.registry import LOWERINGS, NotLowered, aten, lower
from inductor.operations import CHEAP, HEAVIEST, HEAVY, MEDIUM, OPERATIONS, SAME
from inductor.ops import COMPUTE_TYPES, ops


def result_type(*items: Tensor | Number) -> torch.dtype:
    """torch.result_type: dimensioned tensors outrank 0-dim tensors, which outrank Python numbers,
    within a kind."""
    tiers: list[list[torch.dtype]] = [[], [], []]
    for item in items:
        if isinstance(item, Tensor):
            tiers[0 if item.size else 1].append(item.dtype)
        elif isinstance(item, bool):
            tiers[2].append(torch.bool)
        elif isinstance(item, int | Size):
            tiers[2].append(torch.int64)
        else:
            tiers[2].append(torch.get_default_dtype())
    result: torch.dtype | None = None
    for dtypes in tiers:
        tier: torch.dtype | None = None
        for dtype in dtypes:
            tier = dtype if tier is None else torch.promote_types(tier, dtype)
        if tier is not None and (result is None or _kind(tier) > _kind(result)):
            result = tier
    assert result is not None
    return result


def _kind(dtype: torch.dtype) -> int:
    return 0 if dtype == torch.bool else 2 if dtype.is_floating_point else 1


def promoted(dtype: torch.dtype, *items: Tensor | Number) -> torch.dtype:
    """The type to compute a comparison in."""
    if all(isinstance(t, Tensor) and t.dtype == dtype for t in items):
        return dtype
    return result_type(*items)


# --- the table of operations ---------------------------------------------------------------------


def _register_operations() -> None:
    """Lowerings of the aten operators that are one operation of each element."""
    for op, row in OPERATIONS.items():
        for name in row.aten:
            target = getattr(aten, name)
            if row.arity == 1:
                lower(target.default)(_unary(op))
            elif row.result == SAME:
                lower(target)(_binary(op))
            elif op.startswith("logical_"):
                lower(target.default)(_logical(op))
            else:
                lower(target)(_compare(op))


def _out(ctx: Lowering) -> torch.dtype:
    return ctx.val().dtype


def _no_bool(dtype: torch.dtype) -> None:
    if dtype == torch.bool:
        raise NotLowered("arithmetic on bool")


def stored(ctx: Lowering, x: Any) -> Any:
    """x as memory has it: operators that tell neighbouring numbers apart take half types rounded,
    so that a value computed again equals the one kept."""
    if not isinstance(x, Tensor) or COMPUTE_TYPES[x.dtype] == x.dtype:
        return x
    if x.window is not None and x.window.buffer.kind == "input":
        return x
    return ctx.pointwise(lambda v: ops.to_dtype(v, x.dtype), [x], x.dtype, work=CHEAP)


_STEPS = ("floor", "ceil", "round", "trunc", "sign")


def _only_floats(dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise NotLowered("integers, for which eager has no kernel")


def _unary(op: str) -> Callable[..., Tensor]:
    row = OPERATIONS[op]

    def lowering(ctx: Lowering, x: Tensor) -> Tensor:
        dtype = _out(ctx)
        if op == "bit_not" and dtype == torch.bool:
            return ctx.pointwise(ops.logical_not, [x], dtype)
        _no_bool(dtype)
        if op in _STEPS:
            if op != "sign" and not dtype.is_floating_point:
                return ctx.pointwise(lambda v: v, [x], dtype)
            x = stored(ctx, x)
        if not row.on_cpu and ctx.val().device.type == "cpu":
            raise NotLowered(f"C++ has no {op}")
        return ctx.pointwise(getattr(ops, op), [x], dtype, work=row.work)

    return lowering


def _check_divisor(ctx: Lowering, dtype: torch.dtype, dividend: Any, divisor: Any) -> None:
    """An integer division by zero raises, as in eager, where anything is divided."""
    from inductor.lowering.checks import require

    count = dividend.numel if isinstance(dividend, Tensor) else 1
    if dtype.is_floating_point or count == 0:
        return
    if isinstance(divisor, Tensor):

        def fine(v: Value) -> Value:
            divides = ops.ne(v, ops.constant(0, torch.int64))
            if nonzero(count):
                return divides
            nothing = ops.eq(ops.constant(count, torch.int64), ops.constant(0, torch.int64))
            return ops.logical_or(divides, nothing)

        require(ctx, divisor, fine, "RuntimeError", "ZeroDivisionError")
    elif not nonzero(divisor):
        raise NotLowered("raises, or may")


_BOOL_FORMS = {
    "bit_and": "logical_and",
    "bit_or": "logical_or",
    "bit_xor": "logical_xor",
    "mul": "logical_and",
    "maximum": "logical_or",
    "minimum": "logical_and",
}


def _binary(op: str) -> Callable[..., Tensor]:
    def lowering(ctx: Lowering, a: Any, b: Any) -> Tensor:
        dtype = _out(ctx)
        name = op
        if op in ("remainder", "fmod"):
            _check_divisor(ctx, dtype, a, b)
            a, b = stored(ctx, a), stored(ctx, b)
        if op == "hypot":
            _only_floats(dtype)
        if dtype == torch.bool:
            if op not in _BOOL_FORMS:
                raise NotLowered(f"{op} on bool")
            name = _BOOL_FORMS[op]
        work, wide = OPERATIONS[op].work, op == "mul"  # which eager computes in float32, too
        return ctx.pointwise(getattr(ops, name), [a, b], dtype, work=work, wide_scalars=wide)

    return lowering


# Comparisons of bool, false being less than true.
_BOOL_COMPARE: dict[str, Callable[[Value, Value], Value]] = {
    "eq": lambda a, b: ops.logical_not(ops.logical_xor(a, b)),
    "ne": lambda a, b: ops.logical_xor(a, b),
    "lt": lambda a, b: ops.logical_and(ops.logical_not(a), b),
    "le": lambda a, b: ops.logical_or(ops.logical_not(a), b),
    "gt": lambda a, b: ops.logical_and(a, ops.logical_not(b)),
    "ge": lambda a, b: ops.logical_or(a, ops.logical_not(b)),
}


def _compare(op: str) -> Callable[..., Tensor]:
    def lowering(ctx: Lowering, a: Any, b: Any) -> Tensor:
        compute = promoted(a.dtype if isinstance(a, Tensor) else b.dtype, a, b)
        if compute == torch.bool:
            return ctx.pointwise(_BOOL_COMPARE[op], [a, b], torch.bool)
        given = [stored(ctx, a), stored(ctx, b)]
        return ctx.pointwise(getattr(ops, op), given, torch.bool, compute)

    return lowering


def _logical(op: str) -> Callable[..., Tensor]:
    def lowering(ctx: Lowering, a: Tensor, b: Tensor) -> Tensor:
        return ctx.pointwise(getattr(ops, op), [a, b], torch.bool, torch.bool)

    return lowering


_register_operations()


@lower(aten.logical_not.default)
def logical_not(ctx: Lowering, x: Tensor) -> Tensor:
    return ctx.pointwise(ops.logical_not, [x], torch.bool, torch.bool)


@lower(aten.isnan.default)
def isnan(ctx: Lowering, x: Tensor) -> Tensor:
    return ctx.pointwise(lambda v: ops.ne(v, v), [x], torch.bool, x.dtype)


@lower(aten.isinf.default)
def isinf(ctx: Lowering, x: Tensor) -> Tensor:
    if not x.dtype.is_floating_point:
        return ctx.pointwise(lambda v: ops.ne(v, v), [x], torch.bool, x.dtype)
    return ctx.pointwise(ops.isinf, [stored(ctx, x)], torch.bool, x.dtype)


@lower(aten.signbit.default)
def signbit(ctx: Lowering, x: Tensor) -> Tensor:
    if not x.dtype.is_floating_point:
        if not x.dtype.is_signed:  # as a lane, a true bool is negative
            return ctx.pointwise(lambda v: ops.ne(v, v), [x], torch.bool, x.dtype)
        return ctx.pointwise(
            lambda v: ops.lt(v, ops.constant(0, v.dtype)), [x], torch.bool, x.dtype
        )
    return ctx.pointwise(ops.signbit, [x], torch.bool, x.dtype)


def _scaled(ctx: Lowering, op: str, a: Any, b: Any, alpha: Number) -> Tensor:
    dtype = _out(ctx)
    if dtype == torch.bool:
        if op == "sub" or (alpha is not True and alpha != 1):
            raise NotLowered("arithmetic on bool")
        return ctx.pointwise(ops.logical_or, [a, b], dtype)

    alpha = half_number(alpha, dtype)

    def fn(x: Value, y: Value) -> Value:
        if alpha == 1:
            return getattr(ops, op)(x, y)
        factor = ops.constant(alpha if op == "add" else -alpha, y.dtype)
        if y.dtype.is_floating_point:
            return ops.mul_add(y, factor, x)
        return ops.add(x, ops.mul(y, factor))

    return ctx.pointwise(fn, [a, b], dtype, work=CHEAP + (alpha != 1))


@lower(aten.add)
def add(ctx: Lowering, a: Any, b: Any, alpha: Number = 1) -> Tensor:
    return _scaled(ctx, "add", a, b, alpha)


@lower(aten.sub)
def sub(ctx: Lowering, a: Any, b: Any, alpha: Number = 1) -> Tensor:
    return _scaled(ctx, "sub", a, b, alpha)


@lower(aten.rsub)
def rsub(ctx: Lowering, a: Any, b: Any, alpha: Number = 1) -> Tensor:
    _no_bool(_out(ctx))
    alpha = half_number(alpha, _out(ctx))

    def fn(x: Value, y: Value) -> Value:
        return ops.sub(y, ops.mul(x, ops.constant(alpha, x.dtype)) if alpha != 1 else x)

    return ctx.pointwise(fn, [a, b], _out(ctx))


_ROUNDING = {None: "div", "trunc": "div_trunc", "floor": "div_floor"}


@lower(aten.div)
def div(ctx: Lowering, a: Any, b: Any, *, rounding_mode: str | None = None) -> Tensor:
    _no_bool(_out(ctx))
    _check_divisor(ctx, _out(ctx), a, b)
    if rounding_mode is not None:
        a, b = stored(ctx, a), stored(ctx, b)
        number = not isinstance(b, Tensor) or (not b.size and b.device.type == "cpu")
        if rounding_mode == "trunc" and not number and COMPUTE_TYPES[_out(ctx)] != _out(ctx):
            # Eager rounds the quotient of two tensors to the half type.
            return _unary("trunc")(ctx, div(ctx, a, b))
    fn = getattr(ops, _ROUNDING[rounding_mode])
    return ctx.pointwise(fn, [a, b], _out(ctx), work=MEDIUM, wide_scalars=True)


@lower(aten.floor_divide)
def floor_divide(ctx: Lowering, a: Any, b: Any) -> Tensor:
    return div(ctx, a, b, rounding_mode="floor")


@lower(aten.pow)
def pow(ctx: Lowering, a: Any, b: Any) -> Tensor:
    dtype = _out(ctx)
    _no_bool(dtype)
    if isinstance(a, Tensor) and isinstance(b, int | float | Size):
        powers: dict[float, Callable[[Value], Value]] = {
            1: lambda v: v,
            2: lambda v: ops.mul(v, v),
            3: lambda v: ops.mul(ops.mul(v, v), v),
        }
        if dtype.is_floating_point:
            powers |= {
                -1: ops.reciprocal,
                -2: lambda v: ops.reciprocal(ops.mul(v, v)),
            }
        # Eager's half-precision kernel has no roots: the powers of -inf and -0.0 are others.
        if dtype.is_floating_point and not (dtype == torch.float16 and a.device.type == "cpu"):
            powers |= {0.5: ops.sqrt, -0.5: ops.rsqrt}
        if not isinstance(b, Size) and b in powers:
            return ctx.pointwise(powers[b], [a], dtype, work=MEDIUM)
        if not dtype.is_floating_point and not b >= 0:
            raise NotLowered("negative integer powers raise")
    return ctx.pointwise(ops.pow, [a, b], dtype, work=HEAVIEST)


@lower(aten.square.default)
def square(ctx: Lowering, x: Tensor) -> Tensor:
    return pow(ctx, x, 2)


@lower(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def where(ctx: Lowering, condition: Tensor, a: Any, b: Any) -> Tensor:
    dtype = _out(ctx)
    return ctx.pointwise(ops.where, [condition, a, b], dtype, [torch.bool, dtype, dtype])


@lower(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(ctx: Lowering, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return where(ctx, mask, value if isinstance(value, Tensor) else rounded(value, x.dtype), x)


@lower(aten.clamp)
def clamp(ctx: Lowering, x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    dtype = _out(ctx)
    _no_bool(dtype)
    bounds = [
        b if isinstance(b, Tensor) else rounded(b, dtype) for b in (min, max) if b is not None
    ]

    def fn(v: Value, *limits: Value) -> Value:
        # Of two zeros the second is the result: that of x, which keeps its sign.
        rest = list(limits)
        if min is not None:
            v = ops.maximum(rest.pop(0), v)
        if max is not None:
            v = ops.minimum(rest.pop(0), v)
        return v

    return ctx.pointwise(fn, [x, *bounds], dtype, work=2)


@lower(aten.clamp_min)
def clamp_min(ctx: Lowering, x: Tensor, min: Any) -> Tensor:
    return clamp(ctx, x, min, None)


@lower(aten.clamp_max)
def clamp_max(ctx: Lowering, x: Tensor, max: Any) -> Tensor:
    return clamp(ctx, x, None, max)


@lower(aten.lerp)
def lerp(ctx: Lowering, a: Tensor, b: Tensor, weight: Any) -> Tensor:
    _only_floats(_out(ctx))

    def fn(x: Value, y: Value, w: Value) -> Value:
        half, one = ops.constant(0.5, w.dtype), ops.constant(1, w.dtype)
        span = ops.sub(y, x)
        low = ops.add(x, ops.mul(w, span))
        high = ops.sub(y, ops.mul(span, ops.sub(one, w)))
        return ops.where(ops.lt(ops.abs(w), half), low, high)

    return ctx.pointwise(fn, [a, b, weight], _out(ctx), work=4, wide_scalars=True)


@lower(aten.addcmul.default)
def addcmul(ctx: Lowering, x: Tensor, a: Tensor, b: Tensor, value: Number = 1) -> Tensor:
    def fn(v: Value, p: Value, q: Value) -> Value:
        scaled = ops.mul(ops.mul(ops.constant(value, p.dtype), p), q)
        return ops.add(v, scaled)

    return ctx.pointwise(fn, [x, a, b], _out(ctx), work=3)


@lower(aten.addcdiv.default)
def addcdiv(ctx: Lowering, x: Tensor, a: Tensor, b: Tensor, value: Number = 1) -> Tensor:
    def fn(v: Value, p: Value, q: Value) -> Value:
        return ops.add(v, ops.div(ops.mul(ops.constant(value, p.dtype), p), q))

    return ctx.pointwise(fn, [x, a, b], _out(ctx), work=4)


# --- conversion and copies -----------------------------------------------------------------------


def convert(ctx: Lowering, x: Tensor, dtype: torch.dtype) -> Tensor:
    """x.to(dtype), rounding to half types as eager does. float16 is rounded before, too: a
    value beyond its range is infinite."""
    if x.dtype == dtype:
        return x
    if not dtype.is_floating_point or x.dtype == torch.float16:
        x = stored(ctx, x)
    return ctx.pointwise(lambda v: ops.to_dtype(v, dtype), [x], dtype, compute=x.dtype, work=CHEAP)


@lower(aten._to_copy.default)
def to_copy(
    ctx: Lowering,
    x: Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Tensor:
    if not isinstance(x, Tensor):  # a number, where vmap gives both operands one type
        return constant(ctx, torch.tensor(x).to(ctx.val().dtype).item())
    if (device is not None and ctx.val().device != x.device) or pin_memory:
        raise NotLowered("copies between devices")
    if dtype is not None and dtype != x.dtype:
        return convert(ctx, x, dtype)
    return clone(ctx, x)


@lower(aten.clone.default)
def clone(ctx: Lowering, x: Tensor, *, memory_format: Any = None) -> Tensor:
    """Lazy: in a functional graph a copy is a value, and only realising it fixes its strides."""
    return ctx.pointwise(lambda v: v, [x], x.dtype, work=0)


@lower(aten.contiguous.default, aten.lift_fresh_copy.default)
def contiguous(ctx: Lowering, x: Tensor, *, memory_format: Any = None) -> Tensor:
    return clone(ctx, x)


@lower(aten.alias.default, aten.detach.default, aten.lift_fresh.default)
def alias(ctx: Lowering, x: Tensor) -> Tensor:
    return x


@lower(aten.copy.default)
def copy(ctx: Lowering, x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    if source.device != x.device:
        raise NotLowered("copies between devices")
    same = convert(ctx, source, x.dtype)
    return ctx.pointwise(lambda v: v, [same], x.dtype, work=0, size=x.size)


# --- activations ---------------------------------------------------------------------------------


def _activation(
    *targets: Any, work: int = HEAVY, integers: bool = False
) -> Callable[[Callable[..., Value]], Callable[..., Any]]:
    """Register `fn(value, *parameters)` as an operator of one tensor. integers: of these, too."""

    def register(fn: Callable[..., Value]) -> Callable[..., Any]:
        def lowering(ctx: Lowering, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            dtype = _out(ctx)
            if not integers:
                _only_floats(dtype)
            for number in (*args, *kwargs.values()):
                if isinstance(number, int | float):
                    rounded(number, COMPUTE_TYPES[dtype])
            return ctx.pointwise(lambda v: fn(v, *args, **kwargs), [x], dtype, work=work)

        lower(*targets)(lowering)
        return fn

    return register


def _c(value: Value, number: Number) -> Value:
    return ops.constant(number, value.dtype)


@_activation(aten.silu.default)
def silu(v: Value) -> Value:
    return ops.mul(v, ops.sigmoid(v))


@_activation(aten.gelu.default)
def gelu(v: Value, *, approximate: str = "none") -> Value:
    half, one = _c(v, 0.5), _c(v, 1.0)
    if approximate == "tanh":
        cube = ops.mul(ops.mul(v, v), v)
        inner = ops.mul(_c(v, math.sqrt(2.0 / math.pi)), ops.add(v, ops.mul(_c(v, 0.044715), cube)))
        return ops.mul(ops.mul(half, v), ops.add(one, ops.tanh(inner)))
    scaled = ops.mul(v, _c(v, math.sqrt(0.5)))
    return ops.mul(ops.mul(v, half), ops.add(one, ops.erf(scaled)))


@_activation(aten.hardtanh.default, work=2, integers=True)
def hardtanh(v: Value, low: Number = -1, high: Number = 1) -> Value:
    return ops.minimum(_c(v, high), ops.maximum(_c(v, low), v))


@_activation(aten.relu6.default, work=2, integers=True)
def relu6(v: Value) -> Value:
    return hardtanh(v, 0, 6)


@_activation(aten.hardsigmoid.default, work=3)
def hardsigmoid(v: Value) -> Value:
    return ops.div(hardtanh(ops.add(v, _c(v, 3)), 0, 6), _c(v, 6))


@_activation(aten.hardswish.default, work=4)
def hardswish(v: Value) -> Value:
    return ops.div(ops.mul(v, hardtanh(ops.add(v, _c(v, 3)), 0, 6)), _c(v, 6))


@_activation(aten.leaky_relu.default, work=2)
def leaky_relu(v: Value, slope: Number = 0.01) -> Value:
    return ops.where(ops.gt(v, _c(v, 0)), v, ops.mul(v, _c(v, slope)))


@_activation(aten.elu.default)
def elu(v: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Value:
    negative = ops.mul(ops.expm1(ops.mul(v, _c(v, input_scale))), _c(v, alpha * scale))
    return ops.where(ops.le(v, _c(v, 0)), negative, ops.mul(v, _c(v, scale)))


@lower(aten.celu.default)
def celu(ctx: Lowering, x: Tensor, alpha: Number = 1.0) -> Tensor:
    if alpha == 0:
        raise NotLowered("aten refuses it")
    return LOWERINGS[aten.elu.default](ctx, x, alpha, 1.0, 1.0 / alpha)


@_activation(aten.selu.default)
def selu(v: Value) -> Value:
    return elu(v, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@_activation(aten.softplus.default)
def softplus(v: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    scaled = ops.mul(v, _c(v, beta))
    soft = ops.div(ops.log1p(ops.exp(scaled)), _c(v, beta))
    return ops.where(ops.gt(scaled, _c(v, threshold)), v, soft)


@_activation(aten.mish.default)
def mish(v: Value) -> Value:
    return ops.mul(v, ops.tanh(ops.log1p(ops.exp(v))))


@_activation(aten.log_sigmoid.default)
def log_sigmoid(v: Value) -> Value:
    soft = ops.log1p(ops.exp(ops.neg(ops.abs(v))))
    return ops.sub(ops.minimum(v, _c(v, 0)), soft)


@_activation(aten.threshold.default, work=2, integers=True)
def threshold(v: Value, limit: Number, value: Number) -> Value:
    return ops.where(ops.le(v, _c(v, limit)), _c(v, value), v)


@_activation(aten.softshrink.default, work=3)
def softshrink(v: Value, limit: Number = 0.5) -> Value:
    low = ops.where(ops.lt(v, _c(v, -limit)), ops.add(v, _c(v, limit)), ops.mul(v, _c(v, 0)))
    return ops.where(ops.gt(v, _c(v, limit)), ops.sub(v, _c(v, limit)), low)


@lower(aten.hardshrink.default)
def hardshrink(ctx: Lowering, x: Tensor, limit: Number = 0.5) -> Tensor:
    def fn(v: Value, low: Value, high: Value) -> Value:
        inside = ops.logical_and(ops.ge(v, low), ops.le(v, high))
        return ops.where(inside, _c(v, 0), v)

    dtype = _out(ctx)
    _only_floats(dtype)
    return ctx.pointwise(fn, [x, -limit, rounded(limit, dtype)], dtype, work=3)


@lower(aten.nan_to_num.default)
def nan_to_num(
    ctx: Lowering,
    x: Tensor,
    nan: Number | None = None,
    posinf: Number | None = None,
    neginf: Number | None = None,
) -> Tensor:
    dtype = _out(ctx)
    if not dtype.is_floating_point:
        return clone(ctx, x)
    info = torch.finfo(dtype)
    high = info.max if posinf is None else posinf
    low = info.min if neginf is None else neginf

    def fn(v: Value, zero: Value, low: Value, high: Value) -> Value:
        clean = ops.where(ops.ne(v, v), zero, v)
        clean = ops.where(ops.eq(v, _c(v, math.inf)), high, clean)
        return ops.where(ops.eq(v, _c(v, -math.inf)), low, clean)

    return ctx.pointwise(fn, [x, nan or 0.0, low, high], dtype, work=3)


@lower(aten._prelu_kernel.default)
def prelu(ctx: Lowering, x: Tensor, weight: Tensor) -> Tensor:
    def fn(v: Value, w: Value) -> Value:
        return ops.where(ops.gt(v, _c(v, 0)), v, ops.mul(w, v))

    return ctx.pointwise(fn, [x, weight], _out(ctx), work=2)
