"""Attention that a program spells out, by the kernel of attention.py.

before                                          after
    s = aten.bmm(q, aten.permute(k, ...))           s = framegraph.attention_scores(q, k)
    t = aten.where(mask, aten.mul(s, c), -inf)      t = aten.where(mask, aten.mul(s, c), -inf)
    w = aten._softmax(t, -1)                        y = framegraph.attention_of_scores(
    y = aten.bmm(w, v)                                      t, s, q, k, v, True)

Elementwise functions of the scores run within the kernel, over a row of a few hundred
scores in the cache: neither the scores nor a mask that is an expression are ever in memory.
flex_attention comes this way, with its score_mod and mask_mod. Inference alone, as attention.py;
of training on a GPU, attention_training.py.

On a GPU the kernel is Triton's (codegen/triton_attention.py). Queries and keys of half precision
that are multiplied in float32 are taken as they were: their products are the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.graph import Graph
from fxgraph.node import Node
from inductor import costs, devices, panel_sample
from inductor.attention import HEAD, not_repeated
from inductor.panels import Builder, is_plain
from inductor.registration import operator

SCORES = "scores"  # in the meta of a node that stands for scores on their way to the softmax
_HALVES = (torch.bfloat16, torch.float16)

aten = torch.ops.aten
LEAST_SCORES = 1 << 28  # bytes, on a GPU


def _attention_scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """q: (sequences, heads, queries, size); k: (sequences, heads, keys, size), or of fewer heads,
    each for as many of q's that follow one another.
    """
    return q.float() @ _for_each_head(k, q).float().transpose(2, 3)


def _attention_of_scores(
    changed: torch.Tensor,
    scores: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    nothing_is_nan: bool,
) -> torch.Tensor:
    """The sum of values by the softmax of `changed`, which is computed from `scores`, those of q
    and k. nothing_is_nan: of a query whose scores are all -inf; otherwise the sum is 0.
    """
    softmax = torch.softmax if nothing_is_nan else torch._safe_softmax
    return softmax(changed, -1).to(v.dtype) @ _for_each_head(v, q)


def _for_each_head(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(q.shape[1] // x.shape[1], 1) if x.shape[1] != q.shape[1] else x


def _scores_meta(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q.new_empty((*q.shape[:3], k.shape[2]), dtype=torch.float32)


def _of_scores_meta(
    changed: torch.Tensor, scores: torch.Tensor, q: torch.Tensor, k: torch.Tensor,
    v: torch.Tensor, *_: Any,
) -> torch.Tensor:  # fmt: skip
    return v.new_empty(q.shape)


_DEVICES = ("CPU", "CUDA")
attention_scores = operator(
    "attention_scores(Tensor q, Tensor k) -> Tensor", _attention_scores, _scores_meta, _DEVICES
)
attention_of_scores = operator(
    "attention_of_scores(Tensor changed, Tensor scores, Tensor q, Tensor k, Tensor v, "
    "bool nothing_is_nan) -> Tensor",
    _attention_of_scores,
    _of_scores_meta,
    _DEVICES,
)


@dataclass
class Found:
    """Nodes of one attention: `scores` and `result` are (sequences, heads, queries, keys or size),
    or the same without heads. changed: the softmax's operand. inside: the nodes that go. turned:
    whether k is (..., size, keys). scores_product, product: of q and k, and of weights and v;
    weights: the softmax, and what is 0 for queries without keys.
    """

    q: Node
    k: Node
    v: Node
    turned: bool
    scores: Node
    changed: Node
    chain: set[Node]
    result: Node
    inside: set[Node]
    nothing_is_nan: bool
    scores_product: Node
    product: Node
    weights: Node


def spelled_attention(
    functional: FunctionalGraph, *, gpu_alone: bool = False
) -> tuple[FunctionalGraph, str] | None:
    """The graph with such attention by generated code, and a note; None if there is none of it, or
    no compiler. gpu_alone: only attention on a GPU.
    """
    nodes = functional.graph_module.graph.nodes
    found = [one for node in nodes if (one := attention_at(node)) is not None]
    if gpu_alone or (found and panel_sample.identity() is None):
        found = [one for one in found if devices.is_gpu(one.q.meta["val"].device)]
    if not found:
        return None
    firsts = {one.scores: one for one in found}
    results = {one.result: one for one in found}
    chains = set().union(*(one.chain for one in found))
    inside = set().union(*(one.inside for one in found))
    graph = Graph()
    build = Builder(graph)
    new: dict[Node, Node] = {}
    made: dict[Node, tuple[Node, Node, Node]] = {}
    for node in nodes:
        if node in firsts:
            one = firsts[node]
            made[node] = _scores(build, one, new)
            new[node] = _like(build, made[node][2], one)
        elif node in results:
            one = results[node]
            new[node] = _result(build, one, new, *made[one.scores])
        elif node not in inside:
            new[node] = graph.node_copy(node, new.__getitem__)
            if node in chains:
                new[node].meta = {**node.meta, SCORES: True}
    graph.eliminate_dead_code()  # views of removed nodes
    return functional.with_graph(graph), f"attention: {len(found)} spelled out, by generated code"


# --- the new nodes --------------------------------------------------------------------------------


def _scores(build: Builder, one: Found, new: Mapping[Node, Node]) -> tuple[Node, Node, Node]:
    """Queries, keys and scores, with heads."""
    q, k = new[one.q], new[one.k]
    if one.turned:
        rank = one.k.meta["val"].dim()
        k = build.permute(k, [*range(rank - 2), rank - 1, rank - 2], one.k.meta)
    q, k = (_of_heads(build, x) for x in (q, k))
    return q, k, build.call(attention_scores, (q, k), {**one.scores.meta, SCORES: True})


def _result(
    build: Builder, one: Found, new: Mapping[Node, Node], q: Node, k: Node, scores: Node
) -> Node:
    meta = one.result.meta
    v = _of_heads(build, new[one.v])
    if not devices.is_gpu(v.meta["val"].device):
        v = build.cast(v, torch.float32, meta)
    args = (_of_heads(build, new[one.changed]), scores, q, k, v, one.nothing_is_nan)
    made = build.call(attention_of_scores, args, meta)
    return build.cast(_like(build, made, one), meta["val"].dtype, meta)


def _of_heads(build: Builder, x: Node) -> Node:
    """The tensor with a dimension of heads."""
    if x.meta["val"].dim() == 4:
        return x
    return build.call(aten.unsqueeze.default, (x, 1), x.meta)


def _like(build: Builder, x: Node, one: Found) -> Node:
    """With the dimensions of the program's own."""
    if one.result.meta["val"].dim() == 4:
        return x
    return build.call(aten.squeeze.dim, (x, 1), x.meta)


# --- which attention that is ----------------------------------------------------------------------


def attention_at(node: Node, ignored: Collection[Node] = ()) -> Found | None:
    """The attention whose sum of values is the product `node`. ignored: of a joint graph, the nodes
    of the backward, and those that nobody reads.
    """
    if node.target is not aten.bmm.default:
        return None
    joint = bool(ignored)
    result = _with_heads(node)
    weights, v = (_operand(arg, result) for arg in node.args)
    if weights is None or v is None:
        return None
    inside = set(_between(node.args[0], weights)) | {node}
    if weights.target is aten._to_copy.default and weights.meta["val"].dtype in _HALVES:
        inside.add(weights)
        weights = weights.args[0]
    before_casts = weights
    softmax, safe = _softmax_of(weights)
    if softmax is None:
        return None
    changed = softmax.args[0]
    inside |= {softmax, *safe}
    rank = changed.meta["val"].dim()
    if softmax.args[1] not in (-1, rank - 1) or softmax.args[2] or rank not in (3, 4):
        return None
    found = _chain(changed, inside, ignored)
    if found is None:
        return None
    product, scores, chain = found
    q, k = (_operand(arg, scores) for arg in product.args)
    if q is None or k is None or not _fits(q, k, v, scores, changed, result):
        return None
    if not joint and not all(u in inside for gone in inside - {node} for u in gone.users):
        return None
    if scores is not product:
        inside.add(product)
    turned = not _swaps_last(k)
    if not turned:
        k = _expanded(k.args[0])
        q, k = _as_they_were(q, k)
        k, v = not_repeated(q, k, v) if rank == 4 and not joint else (k, v)
    return Found(
        q, k, v, turned, scores, changed, chain, result, inside, not safe, product, node,
        before_casts,
    )  # fmt: skip


def _as_they_were(q: Node, k: Node) -> tuple[Node, Node]:
    """On a GPU, queries and keys before they were made float32."""
    if not devices.is_gpu(q.meta["val"].device):
        return q, k
    if any(one.target is not aten._to_copy.default for one in (q, k)):
        return q, k
    first, second = q.args[0], k.args[0]
    vals = [one.meta["val"] for one in (first, second)]
    if vals[0].dtype != vals[1].dtype or not all(_is_operand(val, *_HALVES) for val in vals):
        return q, k
    return first, _expanded(second)


def _is_operand(val: torch.Tensor, *dtypes: torch.dtype) -> bool:
    """Whether a kernel reads such a tensor."""
    on_gpu = devices.is_gpu(val.device) and val.layout is torch.strided and val.dtype in dtypes
    return on_gpu or is_plain(val, *dtypes)


def _with_heads(product: Node) -> Node:
    """The view of the product that its only reader is, with a dimension of heads; the product, if
    there is none.
    """
    (user, *more) = product.users or [product]
    is_view = user.target in _VIEWS and user.args[0] is product
    if more or not is_view or user.meta["val"].dim() != 4:
        return product
    same = str(user.meta["val"].shape[2:]) == str(product.meta["val"].shape[1:])
    return user if same else product


_VIEWS = (aten.view.default, aten._unsafe_view.default)


def _operand(node: Node, like: Node) -> Node | None:
    """An operand of a product before its heads were folded, if those of `like` are unfolded."""
    if like.meta["val"].dim() == 3:
        return _expanded(node)
    if node.target not in _VIEWS:
        return None
    folded = node.meta["val"].shape[1:]
    source = node.args[0]
    if source.target is aten.clone.default and source.meta["val"].dim() == 4:
        source = source.args[0]
    source = _expanded(source)
    val = source.meta["val"]
    heads = str(like.meta["val"].shape[:2])
    fits = val.dim() == 4 and str(val.shape[:2]) == heads and str(val.shape[2:]) == str(folded)
    return source if fits else None


def _expanded(node: Node) -> Node:
    """The node, or the base of which it is a view without any effect."""
    while node.target in (*_VIEWS, aten.expand.default) and (
        str(node.args[0].meta["val"].shape) == str(node.meta["val"].shape)
    ):
        node = node.args[0]
    return node


def _between(node: Node, last: Node) -> Iterator[Node]:
    while node is not last:
        yield node
        node = node.args[0]


def _softmax_of(weights: Node) -> tuple[Node | None, list[Node]]:
    """The softmax, and the nodes that make the weights of queries without keys 0, if there are."""
    if weights.target is aten._softmax.default:
        return weights, []
    if weights.target is not aten.where.self:
        return None, []
    none, zeros, softmax = weights.args
    if getattr(softmax, "target", None) is not aten._softmax.default:
        return None, []
    if none.target is not aten.all.dim or list(none.args[1:]) not in ([-1, True], [3, True]):
        return None, []
    lowest = none.args[0]
    alike = lowest.target is aten.eq.Scalar and lowest.args == (softmax.args[0], -math.inf)
    if not alike or zeros.target is not aten.zeros_like.default:
        return None, []
    return softmax, [weights, none, lowest, zeros]


def _chain(
    changed: Node, readers: set[Node], ignored: Collection[Node]
) -> tuple[Node, Node, set[Node]] | None:
    """The product of queries and keys, the scores, and the nodes from there to `changed`, which
    only one another and `readers` read.
    """
    chain: set[Node] = set()
    wanted = [changed]
    product: Node | None = None
    seen: set[Node] = set()
    while wanted:  # the node whose inputs lead to the product
        node = wanted.pop()
        if node in seen or len(seen) > _LONGEST:
            continue
        seen.add(node)
        if node.target is aten.bmm.default:
            if product is not None:
                return None
            product = node
        elif is_by_element(node):
            wanted += node.all_input_nodes
    if product is None:
        return None
    scores = _with_heads(product)
    wanted = [scores]
    while wanted:
        node = wanted.pop()
        if node in chain:
            continue
        chain.add(node)
        wanted += [user for user in node.users if user not in readers and user not in ignored]
    if changed not in chain or not all(n is scores or is_by_element(n) for n in chain):
        return None
    if not all(n.meta["val"].dtype == torch.float32 for n in (product, scores, changed)):
        return None
    return product, scores, chain


_LONGEST = 64
_SHAPES = (*_VIEWS, aten.expand.default, aten.unsqueeze.default, aten.squeeze.dim)


def is_by_element(node: Node) -> bool:
    target = node.target
    if target in _SHAPES:
        return True
    if target in (aten._to_copy.default, aten.masked_fill.Scalar, aten.masked_fill.Tensor):
        return True
    return (
        isinstance(target, torch._ops.OpOverload)
        and torch.Tag.pointwise in target.tags
        and torch.Tag.nondeterministic_seeded not in target.tags
        and not target._schema.is_mutable
        and len(target._schema.returns) == 1
    )


def _fits(q: Node, k: Node, v: Node, scores: Node, changed: Node, result: Node) -> bool:
    """Whether the kernel takes the operands."""
    vals = [node.meta["val"] for node in (q, k, v, scores, result)]
    if len({val.dim() for val in vals}) > 1:
        return False
    if str(changed.meta["val"].shape) != str(scores.meta["val"].shape):
        return False
    if not all(_is_operand(val, torch.float32) for val in vals[:2]):
        return False
    if not _is_operand(vals[2], torch.float32, *_HALVES) or vals[4].dtype != vals[2].dtype:
        return False
    if devices.is_gpu(vals[0].device) and not _suits_gpu(vals[0], vals[3]):
        return False
    sizes = [vals[0].shape[-1], vals[2].shape[-1]]
    return all(isinstance(n, int) for n in sizes) and 1 <= sizes[0] == sizes[1] <= HEAD


def _suits_gpu(q: torch.Tensor, scores: torch.Tensor) -> bool:
    """Whether sizes are known, and the scores so many that their memory counts: the library's
    products of float32 and a softmax take half the time of the kernel (measured on an H200).
    """
    if not devices.device_model(q.device.index or 0).products:
        return False
    if not all(isinstance(n, int) for n in (*q.shape, *scores.shape)):
        return False
    return q.shape[-2] >= costs.LEAST_QUERIES and 4 * scores.numel() >= LEAST_SCORES


def _swaps_last(node: Node) -> bool:
    rank = node.meta["val"].dim()
    if node.target is aten.permute.default:
        order = [d % rank for d in node.args[1]]
        return order == [*range(rank - 2), rank - 1, rank - 2]
    if node.target is aten.transpose.int:
        return {d % rank for d in node.args[1:]} == {rank - 2, rank - 1}
    return False
