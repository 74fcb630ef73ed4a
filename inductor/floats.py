"""Floats that vary from call to call (a learning rate, a timestep), as tensors without dimensions.

before                                          after
    neg = operator.neg(f0)                          neg = aten.neg.default(f0)  | float64
    add = aten.add.Tensor(p, g, alpha=neg)          cast = aten._to_copy(neg, float32)
                                                    mul = aten.mul.Tensor(g, cast)
                                                    add = aten.add.Tensor(p, mul)

Arithmetic on the numbers is that of Python, in float64. An operator on tensors takes a number in
the type that it computes in.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.args import map_aggregate
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node
from fxgraph.sym_node import sym_divide, sym_exp, sym_log, sym_log10
from fxgraph.symbolic_values import hint_of, is_symbol

aten = torch.ops.aten
_ARITHMETIC = {
    operator.neg: aten.neg.default,
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
    operator.mul: aten.mul.Tensor,
    operator.truediv: aten.div.Tensor,
    sym_divide: aten.div.Tensor,
    operator.pow: aten.pow.Tensor_Tensor,
    torch.sym_sqrt: aten.sqrt.default,
    sym_exp: aten.exp.default,
    sym_log: aten.log.default,
    sym_log10: aten.log10.default,
}
_SCALED = {aten.add.Tensor, aten.sub.Tensor}  # with alpha
# self + value * one / other, and with a product in place of the quotient
_WITH_VALUE = {aten.addcdiv.default: aten.div.Tensor, aten.addcmul.default: aten.mul.Tensor}
# Overloads for a number -> those for a tensor in its place.
_OF_TENSORS = {
    getattr(getattr(aten, name), overload): getattr(getattr(aten, name), tensors)
    for name, overload, tensors in (
        ("add", "Tensor", "Tensor"),
        ("add", "Scalar", "Tensor"),
        ("sub", "Tensor", "Tensor"),
        ("sub", "Scalar", "Tensor"),
        ("mul", "Tensor", "Tensor"),
        ("mul", "Scalar", "Tensor"),
        ("div", "Tensor", "Tensor"),
        ("div", "Scalar", "Tensor"),
        ("pow", "Tensor_Scalar", "Tensor_Tensor"),
        ("pow", "Scalar", "Tensor_Tensor"),
    )
}
# Operators that take a number in its own type, not in the type of the computation: comparisons and
# stores.
_COMPARED = {
    getattr(aten, name).Scalar: getattr(aten, name).Tensor
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_FILLED = {aten.full.default, aten.full_like.default, aten.fill.Scalar}
_CHOSEN = {aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar}
_STORE = {*_COMPARED, *_FILLED, *_CHOSEN, aten.masked_fill.Scalar, aten.scalar_tensor.default}


def float_inputs(functional: FunctionalGraph) -> list[int]:
    """Numbers of the inputs that are floats."""
    nodes = functional.graph_module.graph.find_nodes(op="placeholder")
    return [i for i, node in enumerate(nodes) if _is_float(node.meta.get("val"))]


def uses_floats(functional: FunctionalGraph) -> bool:
    """Whether operators on tensors take numbers that are no constants and no sizes."""
    nodes = functional.graph_module.graph.nodes
    return any(
        isinstance(arg.meta.get("val"), torch.SymFloat)
        for node in nodes
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
        for arg in node.all_input_nodes
    )


def _is_float(value: Any) -> bool:
    return is_symbol(value) and isinstance(value, torch.SymFloat)


def floats_as_tensors(functional: FunctionalGraph) -> FunctionalGraph | None:
    """The graph over tensors alone, or None where a number is used otherwise than in arithmetic."""
    gm = functional.graph_module
    try:
        graph = _Rewrite(gm).run()
    except _OtherUse:
        return None
    return functional.with_graph(graph)


class _OtherUse(Exception):
    """A number is used in a way that has no form here."""


def _constant(node: Node) -> float | None:
    """The number that the graph was specialised for, if `node` is one."""
    val = node.meta.get("val")
    if not isinstance(val, torch.SymFloat) or val.node.expr.free_symbols:
        return None
    return float(hint_of(val))


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which an operator with results of `dtype` computes."""
    return torch.float32 if dtype.itemsize < 4 else dtype


class _Rewrite:
    def __init__(self, gm: GraphModule) -> None:
        self.old = gm.graph
        self.graph = Graph()
        self.fake_mode = gm.meta["fake_mode"]
        self.made: dict[Node, Node] = {}
        self.numbers: set[Node] = set()  # of the old graph, that are tensors now
        self.constants: dict[Node, float] = {}  # numbers that the graph was specialised for
        self.casts: dict[tuple[Node, torch.dtype], Node] = {}

    def run(self) -> Graph:
        for node in self.old.nodes:
            if (constant := _constant(node)) is not None:
                self.constants[node] = constant
                if node.op != "placeholder":
                    continue
            if node.op == "placeholder" and _is_float(node.meta.get("val")):
                new = self.graph.node_copy(node, self._made)
                new.meta["val"] = self._scalar(torch.float64)
                if constant is None:
                    self.numbers.add(node)
            elif isinstance(node.meta.get("val"), torch.SymFloat):
                new = self._number(node)
                self.numbers.add(node)
            elif any(arg in self.numbers for arg in node.all_input_nodes):
                new = self._operator(node)
            else:
                new = self.graph.node_copy(node, self._made)
            self.made[node] = new
        return self.graph

    def _made(self, node: Node) -> Any:
        return self.constants[node] if node in self.constants else self.made[node]

    def _scalar(self, dtype: torch.dtype) -> torch.Tensor:
        with self.fake_mode:
            return torch.empty((), dtype=dtype)

    def _call(self, target: Any, args: tuple[Any, ...], value: torch.Tensor, **kwargs: Any) -> Node:
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = value
        return node

    def _number(self, node: Node) -> Node:
        """Arithmetic on numbers."""
        if node.target is torch.sym_float and len(node.args) == 1:
            return self._float64(node.args[0])
        if node.target is aten._local_scalar_dense.default:
            return self._read(self._made(node.args[0]))
        target = _ARITHMETIC.get(node.target)
        if target is None or node.kwargs:
            raise _OtherUse
        args = tuple(self._float64(arg) for arg in node.args)
        return self._call(target, args, self._scalar(torch.float64))

    def _read(self, tensor: Node) -> Node:
        """The number in a tensor."""
        value = tensor.meta["val"]
        if value.dim() or value.device.type != "cpu":
            raise _OtherUse
        double = torch.float64
        return self._call(aten._to_copy.default, (tensor,), self._scalar(double), dtype=double)

    def _float64(self, arg: Any) -> Node:
        if isinstance(arg, Node) and arg in self.numbers:
            return self.made[arg]
        if arg in self.constants:
            arg = self.constants[arg]
        if isinstance(arg, Node):  # a size
            if not isinstance(arg.meta.get("val"), torch.SymInt):
                raise _OtherUse
            args = (self.made[arg],)
            target, double = aten.scalar_tensor.default, torch.float64
            return self._call(target, args, self._scalar(double), dtype=double)
        if not isinstance(arg, (int, float)):
            raise _OtherUse
        like = {"dtype": torch.float64, "device": torch.device("cpu")}
        return self._call(aten.full.default, ([], arg), self._scalar(torch.float64), **like)

    def _operator(self, node: Node) -> Node:
        """An operator on tensors that takes a number."""
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            raise _OtherUse
        dtype = value.dtype
        if node.target in _COMPARED:
            dtype = node.args[0].meta["val"].dtype
        if not dtype.is_floating_point:
            raise _OtherUse
        new = self._stored(node, dtype)
        if new is None:
            args = [self._operand(arg, _wide(dtype)) for arg in node.args]
            kwargs = {name: self._operand(arg, _wide(dtype)) for name, arg in node.kwargs.items()}
            new = self._in_tensors(node.target, args, kwargs)
        if new.meta["val"].dtype != value.dtype:
            new = self._call(aten._to_copy.default, (new,), value, dtype=value.dtype)
        new.meta = {**node.meta, "val": new.meta["val"]}
        return new

    def _stored(self, node: Node, dtype: torch.dtype) -> Node | None:
        """An operator that compares or stores a number, in `dtype`; None for any other."""
        target: Any = node.target
        if target not in _STORE:
            return None
        args = [self._operand(arg, dtype) for arg in node.args]
        if target in _COMPARED:
            return self._apply(_COMPARED[target], *args)
        if target in _CHOSEN:
            return self._apply(
                aten.where.self, args[0], *(self._tensor(a, dtype) for a in args[1:])
            )
        if target is aten.masked_fill.Scalar:
            return self._apply(aten.masked_fill.Tensor, *args)
        if target is aten.scalar_tensor.default:
            number = (self.made[node.args[0]],)
            return self._call(aten._to_copy.default, number, self._scalar(dtype), dtype=dtype)
        # Ones times the number, which keeps -0.0 and nan.
        ones = self._apply(target, args[0], 1.0, **node.kwargs)
        return self._apply(aten.mul.Tensor, ones, args[1])

    def _tensor(self, operand: Any, dtype: torch.dtype) -> Any:
        """The operand, a constant as a tensor without dimensions."""
        if isinstance(operand, Node):
            return operand
        like = {"dtype": dtype, "device": torch.device("cpu")}
        return self._call(aten.full.default, ([], operand), self._scalar(dtype), **like)

    def _in_tensors(self, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Node:
        if target in _WITH_VALUE and len(args) == 3 and kwargs.keys() == {"value"}:
            this, one, other = args
            scaled = self._apply(aten.mul.Tensor, one, kwargs["value"])
            scaled = self._apply(_WITH_VALUE[target], scaled, other)
            return self._apply(aten.add.Tensor, this, scaled)
        if target is aten.rsub.Scalar and 2 <= len(args) <= 3:  # number - tensor * alpha
            left, right, alpha = args[1], args[0], [*args, kwargs.pop("alpha", 1)][2]
            scaled = right if alpha == 1 else self._apply(aten.mul.Tensor, right, alpha)
            return self._apply(aten.sub.Tensor, left, scaled)
        if target is aten.lerp.Scalar:
            return self._lerp(*args)
        if target not in _OF_TENSORS or len(args) != 2:
            raise _OtherUse
        left, right = args
        if target in _SCALED and kwargs.keys() == {"alpha"}:
            right = self._apply(aten.mul.Tensor, right, kwargs["alpha"])
        elif kwargs:
            raise _OtherUse
        return self._apply(_OF_TENSORS[target], left, right)

    def _lerp(self, start: Node, end: Node, weight: Node) -> Node:
        """In ATen's two forms: each is exact at its end."""
        apart = self._apply(aten.sub.Tensor, end, start)
        near = self._apply(aten.add.Tensor, start, self._apply(aten.mul.Tensor, weight, apart))
        rest = self._apply(aten.rsub.Scalar, weight, 1)
        far = self._apply(aten.sub.Tensor, end, self._apply(aten.mul.Tensor, apart, rest))
        small = self._apply(aten.lt.Scalar, self._apply(aten.abs.default, weight), 0.5)
        return self._apply(aten.where.self, small, near, far)

    def _operand(self, arg: Any, dtype: torch.dtype) -> Any:
        """A tensor unchanged; a number that varies as a tensor of `dtype`."""
        if isinstance(arg, (list, tuple)):  # of sizes
            return map_aggregate(arg, lambda leaf: self._operand(leaf, dtype))
        if not isinstance(arg, Node):
            return arg
        if arg not in self.numbers:
            return self._made(arg)
        if (arg, dtype) not in self.casts:
            args = (self.made[arg],)
            cast = self._call(aten._to_copy.default, args, self._scalar(dtype), dtype=dtype)
            self.casts[arg, dtype] = cast
        return self.casts[arg, dtype]

    def _apply(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        values = map_aggregate(
            args, lambda leaf: leaf.meta["val"] if isinstance(leaf, Node) else leaf
        )
        with self.fake_mode:
            value = target(*values, **kwargs)
        return self._call(target, args, value, **kwargs)


class WithFloats:
    """Runs a graph that was compiled for tensors in the place of floats.

    positions: of the floats among the inputs that are passed.
    """

    binds_static = True

    def __init__(self, compiled: Callable[..., Any], positions: list[int]) -> None:
        self.compiled = compiled
        self.positions = positions
        self.compile_report: dict[str, Any] = {}

    def __call__(self, *inputs: Any) -> Any:
        given = list(inputs)
        for i in self.positions:
            given[i] = torch.scalar_tensor(given[i], dtype=torch.float64)
        return self.compiled(*given)
