"""Floats that vary from call to call (a learning rate, a timestep), as tensors without dimensions.

before                                          after
    neg = operator.neg(f0)                          neg = aten.neg.default(f0)  | float64
    add = aten.add.Tensor(p, g, alpha=neg)          cast = aten._to_copy(neg, float32)
                                                    mul = aten.mul.Tensor(g, cast)
                                                    add = aten.add.Tensor(p, mul)

Arithmetic on the numbers is that of Python, in float64. An operator on tensors takes a number in
the type that it computes in. A condition on numbers is a tensor of bool, which a check reads; an
integer made of floats that sizes have no form of is read from a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.aot.functional import MutatedInput, OutputSpec
from fxgraph.args import map_aggregate
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node
from fxgraph.sym_node import sym_rounded
from fxgraph.symbolic_values import hint_of, is_symbol
from inductor.float_functions import (
    ARITHMETIC,
    CHOICE,
    COMPARISONS,
    LOGIC,
    RAISES,
    ROUNDINGS,
    Function,
)

aten = torch.ops.aten
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
_CLAMPED = {
    aten.clamp.default: aten.clamp.Tensor,
    aten.clamp_min.default: aten.clamp_min.Tensor,
    aten.clamp_max.default: aten.clamp_max.Tensor,
}
_RANGES = {aten.arange.default, aten.arange.start, aten.arange.start_step}
_FILLED = {aten.full.default, aten.full_like.default, aten.fill.Scalar}
_CHOSEN = {aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar}
_STORE = {*_COMPARED, *_CLAMPED, *_FILLED, *_CHOSEN}
_STORE |= {aten.masked_fill.Scalar, aten.scalar_tensor.default}


def float_inputs(functional: FunctionalGraph) -> list[int]:
    """Numbers of the inputs that are floats."""
    nodes = functional.graph_module.graph.find_nodes(op="placeholder")
    return [i for i, node in enumerate(nodes) if _is_float(node.meta.get("val"))]


def uses_floats(functional: FunctionalGraph) -> bool:
    """Whether anything is computed of numbers that are no constants and no sizes."""
    nodes = functional.graph_module.graph.nodes
    return any(isinstance(node.meta.get("val"), torch.SymFloat) for node in nodes)


def _is_float(value: Any) -> bool:
    return is_symbol(value) and isinstance(value, torch.SymFloat)


def floats_as_tensors(functional: FunctionalGraph) -> FunctionalGraph | None:
    """The graph over tensors alone, or None where a number is used otherwise than in arithmetic."""
    gm = functional.graph_module
    views: list[Any] = [*functional.outputs, *functional.input_mutations]
    if any(map(_has_float, views)):
        return None
    try:
        graph = _Rewrite(gm).run()
    except _OtherUse:
        return None
    return functional.with_graph(graph)


def _has_float(view: OutputSpec | MutatedInput) -> bool:
    """Whether a float tells a size, a stride or the place of a view of an input or a result."""
    numbers = (*(view.size or ()), *(view.stride or ()), view.storage_offset)
    exprs = [number.node.expr for number in numbers if isinstance(number, torch.SymInt)]
    return any(not symbol.is_integer for expr in exprs for symbol in expr.free_symbols)


class _OtherUse(Exception):
    """A number is used in a way that has no form here."""


def _constant(node: Node) -> float | None:
    """The number that the graph was specialised for, if `node` is one. Of data, a check of the
    graph itself tells it.
    """
    val = node.meta.get("val")
    if not isinstance(val, torch.SymFloat) or val.node.expr.free_symbols:
        return None
    if val.node.shape_env.hint(val.node._expr) is None:
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
                new = self._of_numbers(node)
            else:
                new = self.graph.node_copy(node, self._made)
            self.made[node] = new
        return self.graph

    def _made(self, node: Node) -> Any:
        return self.constants[node] if node in self.constants else self.made[node]

    def _scalar(self, dtype: torch.dtype) -> torch.Tensor:
        with self.fake_mode:
            return torch.empty((), dtype=dtype, device="cpu")

    def _call(self, target: Any, args: tuple[Any, ...], value: Any, **kwargs: Any) -> Node:
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = value
        return node

    def _number(self, node: Node) -> Node:
        """Arithmetic on numbers."""
        if node.target is torch.sym_float and len(node.args) == 1:
            return self._float64(node.args[0])
        if node.target is aten._local_scalar_dense.default:
            return self._read(self._made(node.args[0]))
        if node.kwargs:
            raise _OtherUse
        if node.target in CHOICE:
            condition, *operands = node.args
            args = [self._condition(condition), *map(self._float64, operands)]
            return CHOICE[node.target](self._apply, *args)
        function = ARITHMETIC.get(node.target)
        if function is None:
            raise _OtherUse
        if node.target is sym_rounded:
            number, decimals = node.args
            return self._checked(node, function, self._float64(number), decimals)
        return self._checked(node, function, *map(self._float64, node.args))

    def _checked(self, node: Node, function: Function, *numbers: Any) -> Node:
        """A function of numbers; where they depend on data, with a check that Python has a result
        of them.
        """
        made = function(self._apply, *numbers)
        expr = node.meta["val"].node.expr
        if node.target in RAISES and node.meta["val"].node.shape_env.hint(expr) is None:
            raises = RAISES[node.target](self._apply, made, *numbers)
            fine = self._apply(aten.logical_not.default, raises)
            message = f"{node.target.__name__} of such numbers raises"
            self._call(aten._assert_async.msg, (fine, message), None)
        return made

    def _of_numbers(self, node: Node) -> Any:
        """A condition, a check, an integer or an operator on tensors: no number itself."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymBool):
            self.numbers.add(node)
            return self._condition_of(node)
        if node.target is aten._assert_scalar.default:
            condition, message = node.args
            return self._call(aten._assert_async.msg, (self.made[condition], message), None)
        if isinstance(value, torch.SymInt):
            return self._integer(node)
        return self._operator(node)

    def _condition(self, arg: Any) -> Node:
        """A condition as a tensor of bool."""
        if arg in self.numbers:
            return self.made[arg]
        if isinstance(arg, bool):
            return self._tensor(arg, torch.bool)
        if not isinstance(arg, Node) or not isinstance(arg.meta.get("val"), torch.SymBool):
            raise _OtherUse
        return self._condition_of(arg)  # on sizes

    def _condition_of(self, node: Node) -> Node:
        if node.target in LOGIC:
            return LOGIC[node.target](self._apply, *map(self._condition, node.args))
        if node.target not in COMPARISONS:
            raise _OtherUse
        return COMPARISONS[node.target](self._apply, *map(self._float64, node.args))

    def _integer(self, node: Node) -> Node:
        """An integer made of floats, or chosen by a condition on them."""
        value = node.meta["val"]
        if node.target in ROUNDINGS and len(node.args) == 1:
            made = self._checked(node, ROUNDINGS[node.target], self._float64(node.args[0]))
            made = self._apply(aten._to_copy.default, made, dtype=torch.int64)
        elif node.target in CHOICE:
            condition, *operands = node.args
            args = [self._condition(condition), *map(self._int64, operands)]
            made = CHOICE[node.target](self._apply, *args)
        else:
            raise _OtherUse
        return self._call(aten._local_scalar_dense.default, (made,), value)

    def _int64(self, arg: Any) -> Node:
        """An int or a size."""
        if isinstance(arg, int):
            return self._tensor(int(arg), torch.int64)
        if not isinstance(arg, Node) or not isinstance(arg.meta.get("val"), torch.SymInt):
            raise _OtherUse
        like = {"dtype": torch.int64}
        return self._call(
            aten.scalar_tensor.default, (self.made[arg],), self._scalar(torch.int64), **like
        )

    def _read(self, tensor: Node) -> Node:
        """The number in a tensor."""
        value = tensor.meta["val"]
        if value.device.type != "cpu":
            raise _OtherUse
        if value.dim():
            tensor = self._apply(aten.view.default, tensor, [])
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
        if node.target in _RANGES:
            return self._range(node)
        dtype = value.dtype
        if node.target in _COMPARED:
            dtype = self._compared_in(*node.args)
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

    def _compared_in(self, tensor: Node, number: Node) -> torch.dtype:
        """The dtype in which torch compares a tensor with a number."""
        dtype = tensor.meta["val"].dtype
        a_float = isinstance(number.meta["val"], torch.SymFloat)
        return torch.get_default_dtype() if a_float and not dtype.is_floating_point else dtype

    def _stored(self, node: Node, dtype: torch.dtype) -> Node | None:
        """An operator that compares or stores a number, in `dtype`; None for any other."""
        target: Any = node.target
        if target not in _STORE:
            return None
        args = [self._operand(arg, dtype) for arg in node.args]
        if target in _COMPARED:
            if args[0].meta["val"].dtype != dtype:
                args[0] = self._apply(aten._to_copy.default, args[0], dtype=dtype)
            return self._apply(_COMPARED[target], *args)
        if target in _CHOSEN:
            return self._apply(
                aten.where.self, args[0], *(self._tensor(a, dtype) for a in args[1:])
            )
        if target in _CLAMPED:
            kwargs = {name: self._operand(arg, dtype) for name, arg in node.kwargs.items()}
            return self._clamped(target, args, kwargs)
        if target is aten.masked_fill.Scalar:
            return self._apply(aten.masked_fill.Tensor, *args)
        if target is aten.scalar_tensor.default:
            number = (self.made[node.args[0]],)
            return self._call(aten._to_copy.default, number, self._scalar(dtype), dtype=dtype)
        # Ones times the number, which keeps -0.0 and nan.
        ones = self._apply(target, args[0], 1.0, **node.kwargs)
        return self._apply(aten.mul.Tensor, ones, args[1])

    def _clamped(self, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Node:
        x, *limits = args
        dtype = x.meta["val"].dtype
        limits = [limit if limit is None else self._tensor(limit, dtype) for limit in limits]
        named = {
            name: limit if limit is None else self._tensor(limit, dtype)
            for name, limit in kwargs.items()
        }
        return self._apply(_CLAMPED[target], x, *limits, **named)

    def _range(self, node: Node) -> Node:
        """arange, which eager computes in float64."""
        value, double = node.meta["val"], torch.float64
        start, step = 0, 1
        if node.target is not aten.arange.default:
            start, _, *rest = node.args
            step = rest[0] if rest else step
        length = self._known_size(value.shape[0])
        if not value.dtype.is_floating_point or length is None:
            raise _OtherUse
        like = {"dtype": torch.int64, "device": value.device, "requires_grad": False}
        iota = torch.ops.prims.iota.default
        place = self._apply(iota, length, start=0, step=1, **like)
        place = self._apply(aten._to_copy.default, place, dtype=double)
        place = self._apply(aten.mul.Tensor, place, self._float64(step))
        place = self._apply(aten.add.Tensor, place, self._float64(start))
        return self._apply(aten._to_copy.default, place, dtype=value.dtype)

    def _known_size(self, size: Any) -> Any:
        """A size of a result: a number, or the node that has it."""
        if not isinstance(size, torch.SymInt):
            return size
        for node, made in self.made.items():
            known = node.meta.get("val")
            if isinstance(known, torch.SymInt) and known.node.expr == size.node.expr:
                return made
        return None

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
        values, named = map_aggregate(
            (args, kwargs), lambda leaf: leaf.meta["val"] if isinstance(leaf, Node) else leaf
        )
        with self.fake_mode:
            value = target(*values, **named)
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
            given[i] = torch.scalar_tensor(given[i], dtype=torch.float64, device="cpu")
        return self.compiled(*given)
