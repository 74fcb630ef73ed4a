"""Whole layers, taken apart for plans that run without torch (standalone.py).

before                                      after
    y, h, c = framegraph.recurrent_layer(        h1, c1 = cell(g[0] + h0 @ v.t(), c0)
        g, h0, c0, v, ...)                      h2, c2 = cell(g[1] + h1 @ v.t(), c1) ...
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from fxgraph.node import Node
from inductor.attention import HEAD, attention

aten = torch.ops.aten
_TANH, _RELU, _LSTM, _GRU = range(4)  # kinds of recurrent layers (fxgraph/aot/recurrent.py)
_MOST_STEPS = 128


def encoder_layer(
    run: Any, node: Node, src: Node, _: int, heads: int, qkv: Node, qkv_bias: Node, out: Node,
    out_bias: Node, gelu: bool, norm_first: bool, eps: float, *rest: Any,
) -> Node | None:  # fmt: skip
    """The operator of torch.nn.TransformerEncoderLayer's fast path, without a mask."""
    scale_1, shift_1, scale_2, shift_2, up, up_bias, down, down_bias, *mask = rest
    val, call = src.meta["val"], run.call
    if any(m is not None for m in mask) or val.dim() != 3 or val.dtype is not torch.float32:
        return None
    _, length, width = val.shape
    if not (isinstance(length, int) and isinstance(width, int)) or width // heads > HEAD:
        return None
    size = width // heads

    def linear(x: Node, w: Node, bias: Node) -> Node:
        columns, inner = w.meta["val"].shape
        made = run.linear(call(aten.reshape.default, x, [-1, inner]), w, run.new[bias])
        return call(aten.view.default, made, [-1, length, columns])

    def norm(x: Node, scale: Node, shift: Node) -> Node:
        made = call(aten.native_layer_norm.default, x, [width], run.new[scale], run.new[shift], eps)
        first = run.graph.call_function(operator.getitem, (made, 0))
        first.meta = {**made.meta, "val": made.meta["val"][0]}
        return first

    def attended(x: Node) -> Node:
        parts = call(aten.view.default, linear(x, qkv, qkv_bias), [-1, length, 3, heads, size])
        parts = call(aten.permute.default, parts, [2, 0, 3, 1, 4])
        q, k, v = (call(aten.select.int, parts, 0, i) for i in range(3))
        made = call(attention, q, k, v, None, 1 / math.sqrt(size), False)
        made = call(aten.permute.default, made, [0, 2, 1, 3])
        return linear(call(aten.reshape.default, made, [-1, length, width]), out, out_bias)

    def fed(x: Node) -> Node:
        act = aten.gelu.default if gelu else aten.relu.default
        return linear(call(act, linear(x, up, up_bias)), down, down_bias)

    x = run.new[src]
    if norm_first:
        x = call(aten.add.Tensor, x, attended(norm(x, scale_1, shift_1)))
        return call(aten.add.Tensor, x, fed(norm(x, scale_2, shift_2)))
    x = norm(call(aten.add.Tensor, x, attended(x)), scale_1, shift_1)
    return norm(call(aten.add.Tensor, x, fed(x)), scale_2, shift_2)


def recurrent(
    run: Any, node: Node, inputs: Node, h0: Node, c0: Node | None, w_hh: Node,
    b_hh: Node | None, w_hr: Node | None, kind: int, reverse: bool, save: bool,
    sizes: Node | None = None, packed: None = None, packed_hr: None = None,
    b_ih: Node | None = None, w_ih: Node | None = None,
) -> tuple[Node, ...] | None:  # fmt: skip
    """A direction of a layer over a known number of steps, unrolled."""
    val, call = inputs.meta["val"], run.call
    steps = val.shape[0]
    known = isinstance(steps, int)
    if save or sizes is not None or val.dtype is not torch.float32:
        return None
    if not known or not 0 < steps <= _MOST_STEPS:
        return None
    hidden, bias = w_hh.meta["val"].shape[0] // (1, 1, 4, 3)[kind], b_hh and run.new[b_hh]
    given = run.new[inputs]
    if w_ih is not None:
        rows = call(aten.reshape.default, given, [-1, val.shape[2]])
        rows = run.linear(rows, w_ih, b_ih and run.new[b_ih])
        given = call(aten.view.default, rows, [steps, -1, w_ih.meta["val"].shape[0]])
    h, c = run.new[h0], run.new[c0] if c0 is not None else None
    found: list[Node] = [h] * steps
    for step in reversed(range(steps)) if reverse else range(steps):
        now = call(aten.select.int, given, 0, step)
        h, c = _cell(run, kind, hidden, now, run.linear(h, w_hh, bias), h, c)
        if w_hr is not None:
            h = run.linear(h, w_hr)
        found[step] = h
    y = call(aten.cat.default, [call(aten.unsqueeze.default, one, 0) for one in found], 0)
    return (y, h) if c is None else (y, h, c)


def _cell(
    run: Any, kind: int, size: int, now: Node, before: Node, h: Node, c: Node | None
) -> tuple[Node, Node | None]:
    """The states after a step, of the gates' sums of its input and of the state before it."""
    call = run.call

    def part(x: Node, number: int) -> Node:
        return call(aten.slice.Tensor, x, 1, number * size, (number + 1) * size)

    if kind == _GRU:
        r, z = (
            call(aten.sigmoid.default, call(aten.add.Tensor, part(now, i), part(before, i)))
            for i in range(2)
        )
        new = call(aten.add.Tensor, part(now, 2), call(aten.mul.Tensor, r, part(before, 2)))
        new = call(aten.tanh.default, new)
        kept = call(aten.mul.Tensor, z, call(aten.sub.Tensor, h, new))
        return call(aten.add.Tensor, new, kept), None
    gates = call(aten.add.Tensor, now, before)
    if kind != _LSTM:
        return call((aten.tanh if kind == _TANH else aten.relu).default, gates), None
    assert c is not None
    i, f, o = (call(aten.sigmoid.default, part(gates, k)) for k in (0, 1, 3))
    new = call(aten.mul.Tensor, i, call(aten.tanh.default, part(gates, 2)))
    c = call(aten.add.Tensor, call(aten.mul.Tensor, f, c), new)
    return call(aten.mul.Tensor, o, call(aten.tanh.default, c)), c
