"""Batch norm of inference, folded into the convolution or matrix product before it.

before                                          after
    a = aten.convolution(x, w, b)                   scale = gamma * rsqrt(var + eps)
    n = batch_norm(a, gamma, beta, mean, var)       shift = beta - mean * scale
    return n[0]                                     a = aten.convolution(x, w * scale,
                                                                         b * scale + shift)
                                                    return a

Values computed from parameters alone, that is all but the convolution, become derived statics. A
batch norm after anything else is one product and one sum, `x * scale + shift`, as in aten's kernel;
one of half precision everywhere, since its weights would be rounded anew: scale and shift are of
float32.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.aot.fake import fake_result
from fxgraph.args import map_aggregate
from fxgraph.node import Node
from inductor.derive import PREPARED, closure
from inductor.rewriter import GraphRewriter

aten = torch.ops.aten
_BATCH_NORM = aten._native_batch_norm_legit_no_training.default
_FOLDED = frozenset([torch.float32, torch.float64])
_HALF = frozenset([torch.bfloat16, torch.float16])


def fold_batch_norms(
    functional: FunctionalGraph, sources: Mapping[Node, int]
) -> tuple[FunctionalGraph, str] | None:
    """The graph without batch norms that have static parameters, and a note; None if it has none.

    sources: the static inputs that values may be derived from.
    """
    gm = functional.graph_module
    if not any(node.target is _BATCH_NORM for node in gm.graph.nodes):
        return None
    run = _Fold(closure(gm.graph.nodes, sources))
    run.rewrite(gm.graph)
    if not run.folded and not run.scaled:
        return None
    note = f"fold: {run.folded} batch norms in the weights before them"
    if run.scaled:
        note += f", {run.scaled} as one product and one sum"
    return functional.with_graph(run.graph), note


class _Fold(GraphRewriter):
    """Folds batch norms. `static`: nodes of the old graph, computed from parameters alone."""

    def __init__(self, static: Iterable[Node]) -> None:
        super().__init__()
        self.folded = self.scaled = 0
        self._static = frozenset(static)
        self._waiting: set[Node] = set()  # products that are made with the batch norm after them
        self._replaced: set[Node] = set()
        self._like: Any = None  # the batch norm that is replaced

    def add(self, node: Node) -> None:
        if self._foldable(node):
            self._waiting.add(node)
        elif self._is_replaceable(node):
            self._like = node
            self._replace(node)
            self._replaced.add(node)
        elif node.target is operator.getitem and node.args[0] in self._replaced:
            self.new[node] = self.new[node.args[0]]
        else:
            super().add(node)

    def _is_replaceable(self, node: Node) -> bool:
        if node.target is not _BATCH_NORM:
            return False
        image, *parameters, _, _ = node.args
        val, dtype = image.meta["val"], image.meta["val"].dtype
        return (
            dtype in _FOLDED | _HALF
            and val.device.type == "cpu"
            and val.dim() >= 2
            and str(val.stride()) == str(node.meta["val"][0].stride())  # sizes may be symbols
            and all(p is None or self._is_static(p, dtype) for p in parameters)
            and all(u.target is operator.getitem and u.args[1] == 0 for u in node.users)
        )

    def _is_static(self, node: Any, dtype: torch.dtype) -> bool:
        dtypes = {dtype, torch.float32} if dtype in _HALF else {dtype}
        return node in self._static and node.meta["val"].dtype in dtypes

    def _foldable(self, node: Node) -> bool:
        """Whether its weights take the batch norm that alone reads its result."""
        if node.target not in _PRODUCTS or len(node.users) != 1:
            return False
        (user,) = node.users
        if not self._is_replaceable(user) or user.args[0] is not node:
            return False
        weights = [node.args[i] for i in _PRODUCTS[node.target][0] if i < len(node.args)]
        dtype = node.meta["val"].dtype
        if dtype not in _FOLDED:
            return False
        return not node.kwargs and all(w is None or self._is_static(w, dtype) for w in weights)

    def _replace(self, node: Node) -> None:
        image, gamma, beta, mean, var, _, eps = node.args
        parameters = (gamma, beta, mean, var)
        gamma, beta, mean, var = (n and self._widened(self.new[n]) for n in parameters)
        scale = self.call(aten.rsqrt.default, self.call(aten.add.Tensor, var, eps))
        if gamma is not None:
            scale = self.call(aten.mul.Tensor, scale, gamma)
        shift = self.call(aten.mul.Tensor, mean, scale)
        if beta is not None:
            shift = self.call(aten.sub.Tensor, beta, shift)
        else:
            shift = self.call(aten.neg.default, shift)
        if image in self._waiting:
            self.folded += 1
            scaled = _PRODUCTS[image.target][1]
            args = map_aggregate(image.args, lambda a: self.new[a] if isinstance(a, Node) else a)
            self.new[node] = scaled(self, args, scale, shift)
            self.new[node].meta = {**image.meta}
            return
        self.scaled += 1
        shape = [-1, *[1] * (image.meta["val"].dim() - 2)]
        scale, shift = (self.call(aten.view.default, n, shape) for n in (scale, shift))
        wide = self._widened(self.new[image], prepared=False)
        product = self.call(aten.mul.Tensor, wide, scale, prepared=False)
        made = self.call(aten.add.Tensor, product, shift, prepared=False)
        if wide is not self.new[image]:
            dtype = image.meta["val"].dtype
            made = self.call(aten._to_copy.default, made, prepared=False, dtype=dtype)
        self.new[node] = made

    def _widened(self, node: Node, prepared: bool = True) -> Node:
        """The value in float32, if its precision is half."""
        if node.meta["val"].dtype not in _HALF:
            return node
        return self.call(aten._to_copy.default, node, prepared=prepared, dtype=torch.float32)

    def call(self, target: Any, *args: Any, prepared: bool = True, **kwargs: Any) -> Node:
        """A new node in the place of the batch norm; `prepared`: of parameters alone."""
        made = self.graph.call_function(target, args, kwargs)
        made.meta = dict(self._like.meta)
        vals = map_aggregate(args, lambda a: a.meta["val"] if isinstance(a, Node) else a)
        made.meta["val"] = fake_result(target, *vals, **kwargs)
        if prepared:
            made.meta[PREPARED] = True
        return made


def _convolution(fold: _Fold, args: Any, scale: Node, shift: Node) -> Node:
    image, weight, bias, *settings = args
    transposed, groups = settings[3], settings[5]
    size = list(weight.meta["val"].shape)
    if transposed:  # the channels that come out are the second dimension, in each group
        parts = [groups, size[0] // groups, size[1]]
        shape = [groups, 1, size[1], *[1] * len(size[2:])]
        weight = fold.call(aten.view.default, weight, [*parts, *size[2:]])
    else:
        shape = [-1, *[1] * len(size[1:])]
    weight = fold.call(aten.mul.Tensor, weight, fold.call(aten.view.default, scale, shape))
    if transposed:
        weight = fold.call(aten.view.default, weight, size)
    bias = _bias(fold, bias, scale, shift)
    return fold.graph.call_function(aten.convolution.default, (image, weight, bias, *settings))


def _bias(fold: _Fold, bias: Node | None, scale: Node, shift: Node) -> Node:
    if bias is None:
        return shift
    return fold.call(aten.add.Tensor, fold.call(aten.mul.Tensor, bias, scale), shift)


def _addmm(fold: _Fold, args: Any, scale: Node, shift: Node) -> Node:
    bias, rows, weight = args
    weight = fold.call(aten.mul.Tensor, weight, scale)
    return fold.graph.call_function(
        aten.addmm.default, (_bias(fold, bias, scale, shift), rows, weight)
    )


def _mm(fold: _Fold, args: Any, scale: Node, shift: Node) -> Node:
    return _addmm(fold, (None, *args), scale, shift)


# operator -> (where its weights are among the arguments, how it is made with scaled ones)
_PRODUCTS: dict[Any, tuple[tuple[int, ...], Callable[..., Node]]] = {
    aten.convolution.default: ((1, 2), _convolution),
    aten.addmm.default: ((0, 2), _addmm),
    aten.mm.default: ((1,), _mm),
}
