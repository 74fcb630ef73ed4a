"""The backward of attention by five products of half precision.

before                                          after
    r = aten._scaled_dot_product_flash_             s = aten.bmm(q, k.T) * scale    | float32
            attention_for_cpu_backward(             p = aten.exp(s - logarithm)
            g, q, k, v, out, logarithm)             dv = aten.bmm(p.T, g)
                                                    ds = p * (bmm(g, v.T) - sum(g * out)) * scale
                                                    dq, dk = aten.bmm(ds, k), aten.bmm(ds.T, q)

The library's own takes bfloat16 apart into small products. Scores are of float32, as there;
gradients of scores are rounded, as its operands are. Where AMX multiplies pairs (one thread, heads,
queries x keys x size; us of the library in bfloat16, in float32 without copies, of these):
    12, 128x128x64  5096, 1357, 1158    16, 256x256x64  10897, 7780, 4697
    8, 512x512x64   14010, 15058, 10480
All scores are in memory at once: of many the library's stays. No masks but the causal one. Of
depths that are not whole tiles, products of the library take NaN from a row to the one before:
the sizes are multiples of 32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxgraph.graph import Graph
from fxgraph.node import Node

aten = torch.ops.aten
MOST_SCORES = 1 << 22  # in memory at once
TILE = 32  # of the depth of products


def has_products(node: Node) -> bool:
    """Whether products can stand for that backward."""
    _, q, k, v, _, _, dropout, _ = node.args
    vals = [given.meta["val"] for given in (q, k, v)]
    if dropout != 0 or node.kwargs.get("attn_mask") is not None:
        return False
    if any(val.dtype != torch.bfloat16 for val in vals):
        return False
    if not all(isinstance(n, int) and n > 0 for val in vals for n in val.shape):
        return False
    q, k, v = (tuple(val.shape) for val in vals)
    alike = q[:2] == k[:2] and q[3] == k[3] and k == v
    whole = all(n % TILE == 0 for n in (q[2], k[2], q[3]))
    return alike and whole and math.prod(q[:3]) * k[2] <= MOST_SCORES


def sample(queries: int, keys: int, size: int) -> Callable[[], object]:
    """Products of two heads, and what kernels between them take; returns the values' gradient."""
    q, k = (torch.full((2, n, size), 0.5, dtype=torch.bfloat16) for n in (queries, keys))
    wide_q, wide_k = q.float() * size**-0.5, k.float().mT
    logarithm = torch.full((2, 1, 1), 0.25 * size**0.5 + math.log(keys))

    def compute() -> torch.Tensor:
        scores = torch.baddbmm(logarithm, wide_q, wide_k, beta=-1).exp_()
        half = scores.to(q.dtype)
        slopes = torch.bmm(q, k.mT)
        torch.bmm(half, k), torch.bmm(slopes.mT, q)
        of_v = torch.bmm(half.mT, q).unsqueeze(0)
        return of_v.transpose(1, 2).contiguous().transpose(1, 2)  # as eager has it

    return compute


def by_products(graph: Graph, node: Node, given: Sequence[Node]) -> list[Node]:
    """The gradients of queries, keys and values. given: the operands in the new graph."""
    return _Products(graph).gradients(node, *given)


class _Products:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        made = self.graph.call_function(target, args, kwargs)

        def value(arg: Any) -> Any:
            return arg.meta["val"] if isinstance(arg, Node) else arg

        with self.mode:
            made.meta["val"] = target(*map(value, args), **kwargs)
        return made

    def to(self, x: Node, dtype: torch.dtype) -> Node:
        return self.call(aten._to_copy.default, x, dtype=dtype)

    def flat(self, x: Node, *size: int) -> Node:
        """A matrix for each head."""
        if not x.meta["val"].is_contiguous():
            x = self.call(aten.clone.default, x, memory_format=torch.contiguous_format)
        return self.call(aten.view.default, x, list(size))

    def multiply(self, a: Node, b: Node) -> Node:
        return self.call(aten.bmm.default, a, b)

    def turned(self, x: Node) -> Node:
        return self.call(aten.permute.default, x, [0, 2, 1])

    def gradients(
        self, node: Node, g: Node, q: Node, k: Node, v: Node, out: Node, logarithm: Node
    ) -> list[Node]:
        wide, half = torch.float32, torch.bfloat16
        self.mode = q.meta["val"].fake_mode
        batch, heads, queries, size = q.meta["val"].shape
        keys, many = k.meta["val"].shape[2], batch * heads
        scale = node.kwargs.get("scale")
        scale = size**-0.5 if scale is None else scale
        g, q, out = (self.flat(x, many, queries, size) for x in (g, q, out))
        k, v = (self.flat(x, many, keys, size) for x in (k, v))
        scores = self.multiply(self.to(q, wide), self.turned(self.to(k, wide)))
        scores = self.call(aten.mul.Tensor, scores, scale)
        shares = self.call(aten.sub.Tensor, scores, self.flat(logarithm, many, queries, 1))
        shares = self.call(aten.exp.default, shares)
        if node.args[7]:
            shares = self.causal(shares, queries, keys, q.meta["val"].device)
        both = self.call(aten.mul.Tensor, self.to(g, wide), self.to(out, wide))
        total = self.call(aten.sum.dim_IntList, both, [2], True)
        rounded = self.to(shares, half)
        of_v = self.multiply(self.turned(rounded), g)
        slope = self.to(self.multiply(g, self.turned(v)), wide)
        slope = self.call(aten.mul.Tensor, shares, self.call(aten.sub.Tensor, slope, total))
        slope = self.to(self.call(aten.mul.Tensor, slope, scale), half)
        of_q, of_k = self.multiply(slope, k), self.multiply(self.turned(slope), q)
        sizes = [[batch, heads, n, size] for n in (queries, keys, keys)]
        return [
            self.call(aten.view.default, gradient, of)
            for gradient, of in zip((of_q, of_k, of_v), sizes, strict=True)
        ]

    def causal(self, shares: Node, queries: int, keys: int, device: torch.device) -> Node:
        kind: dict[str, Any] = {"device": device, "pin_memory": False}
        rows = self.call(aten.arange.start_step, 0, queries, 1, dtype=torch.int64, **kind)
        columns = self.call(aten.arange.start_step, 0, keys, 1, dtype=torch.int64, **kind)
        seen = self.call(aten.le.Tensor, columns, self.call(aten.view.default, rows, [queries, 1]))
        nothing = self.call(aten.full.default, [], 0.0, dtype=torch.float32, **kind)
        return self.call(aten.where.self, seen, shares, nothing)
