"""Attention of training on a GPU that a program spells out, forward and backward, by kernels of our
own: neither scores nor weights nor their gradients are ever in memory.

before                                      after
    s = aten.bmm(q, kt)                         s = framegraph.attention_scores(q, k)
    t = aten.mul(s, c)                          t = aten.mul(s, c)
    w = aten._softmax(t, -1)                    y, sums = framegraph.attention_with_sums(
    y = aten.bmm(w, v)                              t, s, q, k, v, True)
    dv = aten.bmm(wt, dy)                       dv = framegraph.attention_value_gradient(t, ...)
    dw = aten.bmm(dy, vt)                       dt = framegraph.attention_score_gradient(
    m = aten.mul(dw, w)                             t, dy, v, sums, (dy * y).sum(-1))
    dt = m - w * m.sum(-1)
    ds = aten.mul(dt, c)                        ds = aten.mul(dt, c)
    dq = aten.bmm(ds, k)                        dq = framegraph.attention_gradient(t, dt, ds, ...)
    dkt = aten.bmm(qt, ds)                      dk = framegraph.attention_gradient(t, dt, ds, ...)

The joint graph is rewritten, before it is cut in two: the backward computes t anew. This takes
flex_attention, with its score_mod and mask_mod, unless an expression has a gradient of its own.
"""

from __future__ import annotations

import operator as python_operator
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from fxgraph import effects
from fxgraph.aot.partition import RECOMPUTED
from fxgraph.graph import Graph
from fxgraph.node import Node
from inductor import devices
from inductor.panels import Builder
from inductor.registration import operator
from inductor.rewriter import GraphRewriter
from inductor.softmax_attention import (
    SCORES,
    Found,
    attention_at,
    attention_scores,
    is_by_element,
)

aten = torch.ops.aten
_DEVICES = ("CPU", "CUDA")


# --- the operators --------------------------------------------------------------------------------


def _with_sums(
    changed: torch.Tensor, scores: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    nothing_is_nan: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The sum of values, as attention_of_scores, and logsumexp of the changed scores; of a query
    that sees no key that is NaN or +inf."""
    softmax = torch.softmax if nothing_is_nan else torch._safe_softmax
    sums = changed.logsumexp(-1)
    nothing = torch.nan if nothing_is_nan else torch.inf
    return softmax(changed, -1).to(v.dtype) @ v, sums.masked_fill(sums == -torch.inf, nothing)


def _with_sums_meta(
    changed: torch.Tensor, scores: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    *_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    return v.new_empty(q.shape), changed.new_empty(q.shape[:3])


def _score_gradient(
    changed: torch.Tensor, gradient: torch.Tensor, v: torch.Tensor, sums: torch.Tensor,
    inner: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """The gradient of the changed scores. inner: of gradient and result, by query."""
    weights = torch.exp(changed - sums[..., None])
    return weights * (gradient.float() @ v.float().transpose(2, 3) - inner[..., None])


def _gradient(
    changed: torch.Tensor, score_gradient: torch.Tensor, product_gradient: torch.Tensor,
    scores: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    gradient: torch.Tensor, sums: torch.Tensor, inner: torch.Tensor, of_keys: bool,
) -> torch.Tensor:  # fmt: skip
    """The gradient of q, or of k."""
    of_scores = product_gradient.to(q.dtype)
    return of_scores.transpose(2, 3) @ q if of_keys else of_scores @ k


def _gradient_meta(
    changed: torch.Tensor, score_gradient: torch.Tensor, product_gradient: torch.Tensor,
    scores: torch.Tensor, q: torch.Tensor, k: torch.Tensor, *about: Any,
) -> torch.Tensor:  # fmt: skip
    one = k if about[-1] else q
    return one.new_empty(one.shape)


def _value_gradient(
    changed: torch.Tensor, scores: torch.Tensor, q: torch.Tensor, k: torch.Tensor,
    gradient: torch.Tensor, sums: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    weights = torch.exp(changed - sums[..., None]).to(gradient.dtype)
    return weights.transpose(2, 3) @ gradient


def _value_gradient_meta(
    changed: torch.Tensor, scores: torch.Tensor, q: torch.Tensor, k: torch.Tensor,
    gradient: torch.Tensor, sums: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    return gradient.new_empty(k.shape)


attention_with_sums = operator(
    "attention_with_sums(Tensor changed, Tensor scores, Tensor q, Tensor k, Tensor v, "
    "bool nothing_is_nan) -> (Tensor, Tensor)",
    _with_sums,
    _with_sums_meta,
    _DEVICES,
)
attention_score_gradient = operator(
    "attention_score_gradient(Tensor changed, Tensor gradient, Tensor v, Tensor sums, "
    "Tensor inner) -> Tensor",
    _score_gradient,
    lambda changed, *_: changed.new_empty(changed.shape),
    _DEVICES,
)
attention_value_gradient = operator(
    "attention_value_gradient(Tensor changed, Tensor scores, Tensor q, Tensor k, "
    "Tensor gradient, Tensor sums) -> Tensor",
    _value_gradient,
    _value_gradient_meta,
    _DEVICES,
)
attention_gradient = operator(
    "attention_gradient(Tensor changed, Tensor score_gradient, Tensor product_gradient, "
    "Tensor scores, Tensor q, Tensor k, Tensor v, Tensor gradient, Tensor sums, Tensor inner, "
    "bool of_keys) -> Tensor",
    _gradient,
    _gradient_meta,
    _DEVICES,
)


# --- the pattern ----------------------------------------------------------------------------------


@dataclass
class _Trained:
    """An attention with its backward. gradient: of the result, a matrix for each head; first, last:
    the gradients of the changed scores and of the scores; of_q and of_v: the products that are
    gradients; of_k: the same, (sequences, heads, keys, size). chain: nodes from `first` to `last`.
    """

    forward: Found
    gradient: Node
    first: Node
    last: Node
    of_q: Node
    of_k: Node
    of_v: Node
    chain: set[Node]
    inside: set[Node]

    @property
    def nowhere(self) -> set[Node]:
        """The nodes whose values no memory has afterwards."""
        return {self.forward.scores, *self.forward.chain, *self.chain, *self.inside}


def trained_attention(
    graph: Graph, visible: list[Node], tangents: Collection[Node]
) -> tuple[Graph, dict[Node, Node]] | None:
    """The joint graph with such attention, and its old nodes -> new; None if there is none."""
    if not any(n.target is aten._softmax.default for n in graph.nodes):
        return None
    late = _descendants(tangents)
    asked = [*visible, *(n for n in graph.nodes if effects.of(n).impure())]
    ignored = late.union(set(graph.nodes) - _ancestors(asked))
    found = []
    for node in graph.nodes:
        one = None if node in ignored else attention_at(node, ignored)
        if one is None or not _is_on_gpu(one.q) or one.turned:
            continue
        trained = _trained(one, late, ignored - late)
        if trained is not None and trained.nowhere.isdisjoint(visible):
            found.append(trained)
    if not found:
        return None
    rewrite = _Rewrite(found)
    rewrite.rewrite(graph)
    return rewrite.graph, rewrite.new


def _is_on_gpu(node: Node) -> bool:
    return devices.is_gpu(node.meta["val"].device)


def _reached(nodes: Iterable[Node], behind: Callable[[Node], Iterable[Node]]) -> set[Node]:
    found: set[Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(behind(node))
    return found


def _descendants(nodes: Iterable[Node]) -> set[Node]:
    return _reached(nodes, lambda node: node.users)


def _ancestors(nodes: Iterable[Node]) -> set[Node]:
    return _reached(nodes, lambda node: node.all_input_nodes)


def _trained(one: Found, late: set[Node], dead: set[Node]) -> _Trained | None:
    """The backward of an attention, if all gradients of it are wanted and nothing else is."""
    weights, values = one.product.args
    shape = one.scores.meta["val"].shape
    if not _is_matrices(one) or shape[3] != one.v.meta["val"].shape[2]:
        return None
    of_v = _only(_products_with(_turned(weights), 0, late))
    of_weights = _only(_products_with(_turned(values), 1, late))
    if of_v is None or of_weights is None or of_v.args[1] is not of_weights.args[0]:
        return None
    if (behind := _softmax_backward(of_weights, one.weights)) is None:
        return None
    passed, first = behind
    left, right = one.scores_product.args
    of_q = _only(_products_with(_turned(right), 1, late))
    of_k = _only(_products_with(_turned(left), 0, late))
    if of_q is None or of_k is None or of_q.args[0] is not of_k.args[1]:
        return None
    folded = of_q.args[0]
    if folded.target is not aten.view.default or folded.meta["val"].dim() != 3:
        return None
    last = folded.args[0]
    chain = _chain(first, last, folded)
    if chain is None or last.meta["val"].shape != shape:
        return None
    if (turned_back := _turned_back(of_k, one)) is None:
        return None
    inside = {of_weights, of_k, *turned_back[:-1], folded, *passed, *_turned(weights), *one.inside}
    inside -= {first, one.result}
    results = {of_v, of_q, turned_back[-1], one.scores, one.result, first}
    if not all(user in inside | results | dead for node in inside for user in node.users):
        return None
    floats = (one.scores, one.changed, first, last)
    if not all(node.meta["val"].dtype == torch.float32 for node in floats):
        return None
    ends = (of_q, turned_back[-1], of_v)
    return _Trained(one, of_v.args[1], first, last, *ends, chain, inside)


def _turned_back(product: Node, one: Found) -> list[Node] | None:
    """The nodes that make the transposed gradient of keys one of (sequences, heads, keys, size)."""
    view = _only(list(product.users))
    if view is None or view.target is not aten.view.default or view.meta["val"].dim() != 4:
        return None
    back = _only(list(view.users))
    if back is None or back.target is not aten.permute.default or back.args[1] != [0, 1, 3, 2]:
        return None
    if back.meta["val"].shape != one.k.meta["val"].shape:
        return None
    return [view, back]


def _is_matrices(one: Found) -> bool:
    """Whether all operands have as many heads, folded for the products."""
    vals = [node.meta["val"] for node in (one.q, one.k, one.v)]
    alike = len({val.dtype for val in vals}) == 1 and len({val.shape[1] for val in vals}) == 1
    return alike and all(val.dim() == 4 for val in vals) and one.result is not one.product


def _turned(node: Node) -> list[Node]:
    """The transposes of matrices."""
    turned = aten.permute.default
    return [user for user in node.users if user.target is turned and user.args[1] == [0, 2, 1]]


def _products_with(operands: list[Node], place: int, late: set[Node]) -> list[Node]:
    users = [user for one in operands for user in one.users]
    return [
        user
        for user in users
        if user.target is aten.bmm.default and user.args[place] in operands and user in late
    ]


def _only(nodes: list[Node]) -> Node | None:
    return nodes[0] if len(nodes) == 1 else None


def _softmax_backward(product: Node, weights: Node) -> tuple[set[Node], Node] | None:
    """The nodes from a gradient of weights to the gradient of the softmax's operand, and that."""
    passed, node = set(), product
    while True:
        passed.add(node)
        steps = list(node.users)
        if len(steps) == 1 and steps[0].target in _PASSING and steps[0].args[0] is node:
            node = steps[0]
            continue
        break
    both = _only(steps)
    if both is None or both.target is not aten.mul.Tensor or weights not in both.args:
        return None
    total = _only([u for u in both.users if u.target is aten.sum.dim_IntList])
    if total is None or list(total.args[1:]) not in ([[-1], True], [[3], True]):
        return None
    share = _only(list(total.users))
    if share is None or share.target is not aten.mul.Tensor or weights not in share.args:
        return None
    first = _only(list(share.users))
    if first is None or first.target is not aten.sub.Tensor or first.args != (both, share):
        return None
    if set(both.users) != {total, first} or first.kwargs:
        return None
    return {*passed, both, total, share, first}, first


_PASSING = (aten.view.default, aten._to_copy.default)


def _chain(first: Node, last: Node, folded: Node) -> set[Node] | None:
    """The nodes that depend on `first`, down to `last`; None if others read them, or not all are
    elementwise."""
    chain: set[Node] = set()
    waiting = [first]
    while waiting:
        node = waiting.pop()
        if node in chain or node is folded:
            continue
        if node is not first and not is_by_element(node):
            return None
        chain.add(node)
        waiting.extend(node.users)
    return chain if last in chain else None


# --- the new nodes --------------------------------------------------------------------------------


class _Rewrite(GraphRewriter):
    def __init__(self, found: list[_Trained]) -> None:
        super().__init__()
        self.build = Builder(self.graph)
        self.at: dict[Node, tuple[Callable[..., Node], _Trained, dict[str, Node]]] = {}
        self.gone: set[Node] = set()
        self.flagged: set[Node] = set()  # scores on their way, and their gradients
        self.again: set[Node] = set()
        self.narrow: dict[Node, Node] = {}  # a gradient -> the same before it is made float32
        for one in found:
            state: dict[str, Node] = {}
            self.at[one.forward.scores] = self._scores, one, state
            self.at[one.forward.result] = self._result, one, state
            self.at[one.first] = self._first, one, state
            self.at[one.of_v] = self._of_values, one, state
            self.at[one.of_q] = self._of_queries, one, state
            self.at[one.of_k] = self._of_keys, one, state
            self.gone |= one.inside
            self.again |= one.forward.chain
            self.flagged |= one.forward.chain | one.chain

    def add(self, node: Node) -> None:
        if node in self.at:
            function, one, state = self.at[node]
            self.new[node] = function(node, one, state)
        elif (
            node in self.gone  # or nobody reads it
            or any(arg not in self.new for arg in node.all_input_nodes)
        ):
            return
        elif (source := self._cast_of(node)) is not None:
            self.new[node] = source
        else:
            super().add(node)
            if node in self.flagged:
                self.new[node].meta = {**node.meta, SCORES: True, RECOMPUTED: node in self.again}

    def _cast_of(self, node: Node) -> Node | None:
        """The gradient in its own type, where the graph casts the gradient to that; views on the
        way are made of both.
        """
        first = node.args[0] if node.args else None
        source = self.narrow.get(first) if isinstance(first, Node) else None
        if source is None:
            return None
        if node.target is aten._to_copy.default:
            alike = node.meta["val"].dtype == source.meta["val"].dtype
            return source if alike and not node.kwargs.get("memory_format") else None
        if node.target in (aten.view.default, aten.permute.default):
            self.narrow[node] = self.build.call(node.target, (source, *node.args[1:]), node.meta)
        return None

    def _scores(self, node: Node, one: _Trained, state: dict[str, Node]) -> Node:
        state["q"], state["k"] = self.new[one.forward.q], self.new[one.forward.k]
        made = self.build.call(attention_scores, (state["q"], state["k"]), node.meta)
        made.meta |= {SCORES: True, RECOMPUTED: True}
        state["scores"] = made
        return made

    def _result(self, node: Node, one: _Trained, state: dict[str, Node]) -> Node:
        build, meta = self.build, node.meta
        state["changed"], state["v"] = self.new[one.forward.changed], self.new[one.forward.v]
        args = [state[name] for name in ("changed", "scores", "q", "k", "v")]
        both = build.call(attention_with_sums, (*args, one.forward.nothing_is_nan), meta)
        state["result"], state["sums"] = (self._part(both, number) for number in range(2))
        return state["result"]

    def _part(self, node: Node, number: int) -> Node:
        made = self.graph.call_function(python_operator.getitem, (node, number))
        made.meta = {**node.meta, "val": node.meta["val"][number]}
        return made

    def _of_values(self, node: Node, one: _Trained, state: dict[str, Node]) -> Node:
        self._give_gradient(node, one, state)
        args = [state[name] for name in ("changed", "scores", "q", "k", "gradient", "sums")]
        made = self.build.call(attention_value_gradient, tuple(args), node.meta)
        return self._delivered(node, made)

    def _give_gradient(self, node: Node, one: _Trained, state: dict[str, Node]) -> None:
        """The gradient of the result, where the first of its readers is."""
        if "gradient" not in state:
            size = [*one.forward.result.meta["val"].shape]
            state["gradient"] = self.build.view(self.new[one.gradient], size, node.meta)

    def _first(self, node: Node, one: _Trained, state: dict[str, Node]) -> Node:
        """The gradient of the changed scores, which lie nowhere."""
        self._give_gradient(node, one, state)
        build, meta = self.build, {**node.meta, SCORES: False}
        both = (build.cast(state[x], torch.float32, meta) for x in ("gradient", "result"))
        inner = build.call(aten.mul.Tensor, tuple(both), meta)
        state["inner"] = build.call(aten.sum.dim_IntList, (inner, [-1]), meta)
        args = [state[name] for name in ("changed", "gradient", "v", "sums", "inner")]
        made = build.call(attention_score_gradient, tuple(args), {**node.meta, SCORES: True})
        state["first"] = made
        return made

    def _of_queries(self, node: Node, one: _Trained, state: dict[str, Node]) -> Node:
        return self._delivered(node, self._of_scores(node, one, state, False))

    def _of_keys(self, node: Node, one: _Trained, state: dict[str, Node]) -> Node:
        return self._delivered(node, self._of_scores(node, one, state, True))

    def _of_scores(self, node: Node, one: _Trained, state: dict[str, Node], of_keys: bool) -> Node:
        names = ("scores", "q", "k", "v", "gradient", "sums", "inner")
        args = (state["changed"], state["first"], self.new[one.last], *(state[n] for n in names))
        return self.build.call(attention_gradient, (*args, of_keys), node.meta)

    def _delivered(self, node: Node, made: Node) -> Node:
        """A gradient in the shape and the type of the node in whose place it stands."""
        val = node.meta["val"]
        if made.meta["val"].dim() != val.dim():
            made = self.build.view(made, [*val.shape], node.meta)
        if made.meta["val"].dtype != val.dtype:
            self.narrow[node] = made
        return self.build.cast(made, val.dtype, node.meta)


__all__ = ["trained_attention"]
