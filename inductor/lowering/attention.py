"""Attention, by a kernel of its own.

A mask that is an expression, and other functions of the scores, are a body that the kernel runs
over a row of scores at a time. To that end a tensor of all scores has a name, but no memory:

    attention_scores(q, k)              buf0, of which nothing is computed
    where(mask, mul(buf0, scale), m)    lazy
    attention_of_scores(lazy, ...)      attention with the body buf0[i] = where(..., buf0[i] * ...)

Should a lowering in between have put a tensor in memory, the scores are computed after all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from fxgraph.sizes import Extent, contiguous_strides, hint
from inductor import costs, devices
from inductor.attention import attention
from inductor.attention_training import (
    attention_gradient,
    attention_score_gradient,
    attention_value_gradient,
    attention_with_sums,
)
from inductor.index import Index
from inductor.ir import (
    AtenCall,
    Attention,
    AttentionGradient,
    Buffer,
    Indices,
    Loops,
    Tape,
    Tensor,
    Window,
)
from inductor.lowering.context import Lowering, Nameless
from inductor.lowering.layouts import narrow
from inductor.lowering.registry import NotLowered, lower
from inductor.ops import Value, ops, recording
from inductor.softmax_attention import attention_of_scores, attention_scores

_FLOAT = torch.float32


@lower(attention)
def attended(
    ctx: Lowering,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scale: float,
    causal: bool,
) -> Tensor:
    if q.device.type != "cpu" or not math.isfinite(scale):
        raise NotLowered("attention")
    if mask is None or mask.window is not None or not _is_computed(mask) or causal:
        seen = None if mask is None else _expanded(ctx, mask, (*q.size[:3], k.size[2]))
        return _step(ctx, q, k, v, mask=seen, scale=scale, causal=causal)
    scores = scores_of_heads(ctx, q, k)
    given = mask

    def changed(idx: Indices) -> Value:
        scaled = ops.mul(scores.load(idx), ops.constant(scale, _FLOAT))
        return ops.add(scaled, given.load(narrow(idx, given.size)))

    made = ctx.generate(scores.size, _FLOAT, changed, scores, given)
    return attended_by_scores(ctx, made, scores, q, k, v, False)


def _is_computed(mask: Tensor) -> bool:
    """Whether the mask is better computed by each head than read from memory."""
    large = hint(mask.numel) * mask.dtype.itemsize > costs.MASK_BYTES
    return large and mask.work <= costs.MASK_WORK and hint(mask.size[-1]) >= costs.LEAST_KEYS


# -- scores without memory -------------------------------------------------------------------------


@lower(attention_scores)
def scores_of_heads(ctx: Lowering, q: Tensor, k: Tensor) -> Tensor:
    """All scores, by name."""
    on_gpu = devices.is_gpu(q.device)
    if (q.device.type != "cpu" and not on_gpu) or (on_gpu and not ctx.gpu.products):
        raise NotLowered("attention_scores")
    for t in (q, k):
        ctx.realize_rows(t)
    return _nameless(ctx, attention_scores, [q, k], (*q.size[:3], k.size[2]), q.device)


def _nameless(
    ctx: Lowering, target: Any, operands: list[Tensor], size: Sequence[Extent], device: torch.device
) -> Tensor:
    """A tensor of the operator's results, by name."""
    like = Tensor(tuple(size), _FLOAT, device)
    buffer = ctx.new_buffer(size, contiguous_strides(size), like, "aten")
    ctx.scores[buffer.name] = Nameless(len(ctx.program.steps), target, operands, buffer)
    whole = Window(buffer, buffer.size, buffer.stride)

    def inner(idx: Indices) -> Value:
        return ops.load(buffer.name, whole.index(idx), _FLOAT)

    return ctx.generate(size, _FLOAT, inner, like, work=1)


def compute_scores(ctx: Lowering) -> None:
    """Give memory to tensors without any that a kernel reads there."""
    steps = ctx.program.steps
    while wanted := [name for name in ctx.scores if any(name in s.reads for s in steps)]:
        one = ctx.scores.pop(wanted[-1])
        before = len(steps)
        operands = [ctx.realize(t) for t in one.operands]
        call = AtenCall(f"scores of {one.buffer.name}", one.target, operands, {}, [one.buffer])
        made = [*steps[before:], call]
        del steps[before:]
        steps[one.step : one.step] = made
        for other in ctx.scores.values():
            other.step += len(made) if other.step >= one.step else 0
        ctx.note_fallback(one.target)


@lower(attention_of_scores)
def attended_by_scores(
    ctx: Lowering,
    changed: Tensor,
    scores: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    nothing_is_nan: bool,
) -> Tensor:
    name = _name_of(ctx, scores)
    buffer = ctx.program.buffers[name]
    if changed.window is None and changed.size == scores.size:
        body = _body(ctx, buffer, lambda idx: (changed.load(idx),))
        if all(index == body.index for index in body.reads.get(name, ())):
            if devices.is_gpu(q.device):  # a program goes over all keys
                return _step(ctx, q, k, v, scores=body, nothing_is_nan=nothing_is_nan)
            visible, bound = _visible(ctx, name, changed)
            return _step(
                ctx, q, k, v, scores=body, visible=visible, bound=bound,
                alike=visible is not None and not _depends_on_head(visible),
                nothing_is_nan=nothing_is_nan,
            )  # fmt: skip
    raise NotLowered("scores that are read elsewhere, too")


def _name_of(ctx: Lowering, scores: Tensor) -> str:
    """The name of a tensor that has no memory, and that no kernel reads by now."""
    with recording(Tape()) as tape:
        scores.load(tuple(Index({}) for _ in scores.size))
    (name,) = (access.buffer for access in tape.loads())
    if name not in ctx.scores or any(name in step.reads for step in ctx.program.steps):
        raise NotLowered("scores that are in memory")
    return name


def _body(ctx: Lowering, target: Buffer, values: Callable[[Indices], tuple[Value, ...]]) -> Loops:
    """Loops over all scores in their order, which are no step of the program."""
    size = target.size
    place = Window(target, size, target.stride)
    body = ctx.loops(
        size, range(len(size)), (), lambda idx, _: values(tuple(idx)), place.index, None, target
    )
    assert ctx.program.steps.pop() is body
    return body


# -- training --------------------------------------------------------------------------------------


@lower(attention_with_sums)
def attended_with_sums(
    ctx: Lowering,
    changed: Tensor,
    scores: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    nothing_is_nan: bool,
) -> tuple[Tensor, Tensor]:
    name = _name_of(ctx, scores)
    body = _trained_body(ctx, name, (changed,), {name})
    stride = ctx.strides(ctx.val()[0])
    if not devices.is_gpu(q.device) or stride[-1] != 1:
        raise NotLowered("attention with sums")
    size = q.size[:3]
    sums = ctx.new_buffer(size, contiguous_strides(size), Tensor(size, _FLOAT, q.device))
    result = _step(
        ctx, q, k, v, scores=body, nothing_is_nan=nothing_is_nan, sums=sums, stride=stride
    )
    return result, Tensor.of(sums)


def _trained_body(
    ctx: Lowering, name: str, values: tuple[Tensor, ...], names: Collection[str]
) -> Loops:
    """Loops over all scores, in which those without memory, `names`, are read at one place."""
    buffer = ctx.program.buffers[name]
    if any(t.size != buffer.size for t in values):
        raise NotLowered("scores of another size")
    body = _body(ctx, buffer, lambda idx: tuple(t.load(idx) for t in values))
    if any(index != body.index for one in names for index in body.reads.get(one, ())):
        raise NotLowered("scores that are read at other places")
    return body


@lower(attention_score_gradient)
def gradient_of_changed_scores(
    ctx: Lowering, changed: Tensor, gradient: Tensor, v: Tensor, sums: Tensor, inner: Tensor
) -> Tensor:
    """By name, as the scores."""
    if not devices.is_gpu(changed.device) or not ctx.scores:
        raise NotLowered("the gradient of scores in memory")
    operands = [changed, gradient, v, sums, inner]
    return _nameless(ctx, attention_score_gradient, operands, changed.size, changed.device)


@lower(attention_value_gradient)
def gradient_of_values(
    ctx: Lowering, changed: Tensor, scores: Tensor, q: Tensor, k: Tensor, gradient: Tensor,
    sums: Tensor,
) -> Tensor:  # fmt: skip
    name = _name_of(ctx, scores)
    body = _trained_body(ctx, name, (changed,), {name})
    rows = [ctx.realize_rows(t) for t in (q, k, gradient)]
    return _gradient(ctx, "v", rows[0], rows[1], None, rows[2], sums, None, body, "")


@lower(attention_gradient)
def gradient_of_queries_or_keys(
    ctx: Lowering, changed: Tensor, score_gradient: Tensor, product_gradient: Tensor,
    scores: Tensor, q: Tensor, k: Tensor, v: Tensor, gradient: Tensor, sums: Tensor,
    inner: Tensor, of_keys: bool,
) -> Tensor:  # fmt: skip
    name, other = _name_of(ctx, scores), _name_of(ctx, score_gradient)
    body = _trained_body(ctx, name, (changed, product_gradient), {name, other})
    a, b, c, d = (ctx.realize_rows(t) for t in (q, k, v, gradient))
    return _gradient(ctx, "k" if of_keys else "q", a, b, c, d, sums, inner, body, other)


def _gradient(
    ctx: Lowering, of: str, q: Window, k: Window, v: Window | None, gradient: Window, sums: Tensor,
    inner: Tensor | None, body: Loops, other: str,
) -> Tensor:  # fmt: skip
    val = ctx.val()
    size, stride = ctx.shape(val), ctx.strides(val)
    if not devices.is_gpu(val.device) or stride[-1] != 1:
        raise NotLowered("a gradient of attention")
    target = ctx.new_buffer(size, stride, Tensor(size, val.dtype, val.device))
    by_query = [None if t is None else ctx.realize(t) for t in (sums, inner)]
    assert by_query[0] is not None
    step = AttentionGradient(
        f"attention{ctx.program.new_number()}", of, q, k, v, gradient, by_query[0], by_query[1],
        body, other, target,
    )  # fmt: skip
    ctx.program.steps.append(step)
    return Tensor.of(target)


# -- which keys are seen ---------------------------------------------------------------------------


def _visible(ctx: Lowering, name: str, changed: Tensor) -> tuple[Loops | None, float]:
    """Loops that tell which scores are other than -inf whatever the products of queries and keys,
    unless one times the bound overflows; a bound of 0: even then.
    """
    buffer = ctx.program.buffers[name]
    found = ctx.new_buffer(
        buffer.size, buffer.stride, Tensor(buffer.size, torch.bool, buffer.device)
    )
    bounds: list[float] = []

    def values(idx: Indices) -> tuple[Value, ...]:
        bounds.clear()
        seen: Value | None = None
        for condition, bound in _conditions(changed.load(idx), name):
            seen = condition if seen is None else ops.logical_and(seen, condition)
            bounds.append(bound)
        return (ops.constant(True, torch.bool) if seen is None else seen,)

    body = _body(ctx, found, values)
    return (body, max(bounds)) if bounds else (None, 1.0)


def _depends_on_head(body: Loops) -> bool:
    """Whether a variable of dimension 1 occurs, by the names that ctx.loops gives."""
    return any(v.name.startswith("i1_") for index in body.tape.indices() for v in index.variables())


def _conditions(value: Value, name: str) -> list[tuple[Value, float]]:
    """Conditions without which a score is -inf, each with the bound: 0 for none."""
    found: list[tuple[Value, float]] = []
    while value.op == "where" and not _reads(value.args[0], name):
        condition, yes, no = value.args
        if _is_lowest(no):
            found.append((condition, 0.0))
            value = yes
        elif _is_lowest(yes):
            found.append((ops.logical_not(condition), 0.0))
            value = no
        else:
            break
    if not found and value.op == "add":
        for mask, scores in (value.args, value.args[::-1]):
            bound = _factor(scores, name)
            if bound is not None and not _reads(mask, name):
                lowest = ops.constant(-math.inf, mask.dtype)
                return [(ops.ne(mask, lowest), bound)]
    return found


def _is_lowest(value: Value) -> bool:
    return value.op == "constant" and value.attr == -math.inf


def _reads(value: Value, name: str) -> bool:
    if value.op == "load" and value.attr.buffer == name:
        return True
    return any(_reads(arg, name) for arg in value.args)


def _factor(value: Value, name: str) -> float | None:
    """The factor between scores and the value; None if the value is no multiple of scores."""
    if value.op == "load":
        return 1.0 if value.attr.buffer == name else None
    if value.op in ("mul", "div"):
        one, other = value.args
        if value.op == "mul" and one.op == "constant":
            one, other = other, one
        before = _factor(one, name)
        if before is None or other.op != "constant" or not math.isfinite(other.attr):
            return None
        by = abs(other.attr)
        if value.op == "div":
            by = 1 / by if by else math.inf
        return before * by if math.isfinite(before * by) else None
    return None


# -- the step --------------------------------------------------------------------------------------


def _step(
    ctx: Lowering,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Window | None = None,
    scale: float = 1.0,
    causal: bool = False,
    scores: Loops | None = None,
    visible: Loops | None = None,
    bound: float | None = None,
    alike: bool = False,
    nothing_is_nan: bool = False,
    sums: Buffer | None = None,
    stride: tuple[Extent, ...] = (),
) -> Tensor:
    stride = stride or ctx.strides(ctx.val())
    if stride[-1] != 1:
        raise NotLowered("the layout of attention's result")
    queries, keys, values = map(ctx.realize_rows, (q, k, v))
    target = ctx.new_buffer(q.size, stride, v)
    step = Attention(
        f"attention{ctx.program.new_number()}",
        queries, keys, values, mask, scale, causal, target, scores, visible,
        bound=abs(scale) if bound is None else bound,
        alike=alike or (mask is not None and mask.stride[1] == 0),
        exact=bound == 0,
        nothing_is_nan=nothing_is_nan, sums=sums,
    )  # fmt: skip
    ctx.program.steps.append(step)
    return Tensor.of(target)


def _expanded(ctx: Lowering, mask: Tensor, size: tuple[Extent, ...]) -> Window:
    """The mask in memory as if of the scores' size."""
    window = ctx.realize_rows(mask)
    missing = len(size) - len(mask.size)
    stride: list[Extent] = [0] * missing
    for n, wanted, step in zip(mask.size, size[missing:], window.stride, strict=True):
        if n != 1 and n != wanted:
            raise NotLowered("a mask of another size")
        stride.append(step if n == wanted and n != 1 else 0)
    return Window(window.buffer, size, tuple(stride), window.offset)
