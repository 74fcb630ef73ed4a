"""Functional graphs and training graphs as data, and back.

A node is {"name": ..., "op": ..., "args": [...]}; an input {"name": ..., "input": its place and
shape}, a constant {"name": ..., "constant": number of a tensor}. A graph's result stands last.
"""

from __future__ import annotations

import contextlib
import keyword
import logging
import operator
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import sympy
import torch

from fxgraph.aot import FunctionalGraph, MutatedInput, OutputSpec, TrainingGraph
from fxgraph.aot.data import CHECK_FAILED, FreshSymbols, data_allowed, gives_data
from fxgraph.aot.fake import FakePropagation, symbolic_dispatch
from fxgraph.aot.functional import Segment, flat_graph, is_view
from fxgraph.args import leaves, map_aggregate
from fxgraph.expression_nodes import ExpressionNodes, value_of
from fxgraph.expressions import relation
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule, fetch_attribute
from fxgraph.node import Node
from fxgraph.serialize import SerializeError, argument_from_json, argument_to_json
from fxgraph.stored.checks import check_functional, check_training, check_window, index_in
from fxgraph.stored.errors import StoredError
from fxgraph.stored.expressions import number_from, number_of, to_data
from fxgraph.stored.operators import foreign_namespace, name_of, operator_of
from fxgraph.stored.tensors import dtype_of, tensor_to_data
from fxgraph.symbolic_values import depends_on_data, is_symbol, is_symbolic, numbers_of
from fxgraph.symbols import ShapeEnv
from fxgraph.torch_fx import fake_tensor_mode

_log = logging.getLogger("torch._subclasses.fake_tensor")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,255}")
_SYMBOL = re.compile(r"u[0-9]{1,6}")
_AS_STRIDED = torch.ops.aten.as_strided.default
_COPY = torch.ops.aten.copy_.default
_SIZE = torch.ops.aten.sym_size.int
_ASSERT = torch.ops.aten._assert_scalar.default
_SLICE = torch.ops.aten.slice.Tensor
_WRITABLE = ("placeholder", "get_attr")


# -- writing --------------------------------------------------------------------------------------
class GraphWriter:
    """Makes data of graphs. `keep` takes a tensor that belongs to one, and returns its number."""

    def __init__(self, keep: Callable[[torch.Tensor], int]) -> None:
        self.keep = keep

    def functional(self, functional: FunctionalGraph) -> dict[str, Any]:
        return {
            "nodes": self._nodes(functional.graph_module),
            **self._frame(functional),
        }

    def training(self, training: TrainingGraph) -> dict[str, Any]:
        return {
            "forward": self._nodes(training.forward.graph_module),
            "backward": self._nodes(training.backward.graph_module),
            "frame": self._frame(training.frame),
            "saved": training.saved,
            "tangents": training.tangents,
            "gradients": training.gradients,
            "sources": [sorted(numbers) for numbers in training.sources],
            "frees": training.frees,
            "segments": [vars(segment) for segment in training.segments],
            "cuts": list(training.cuts),
            "versions": training.versions,
            "draws": training.draws,
            "rebased": training.rebased,
            "whole": training.whole,
            "spent": _spent_to_data(training.spent),
        }

    def _frame(self, functional: FunctionalGraph) -> dict[str, Any]:
        return {
            "outputs": [self._output(spec) for spec in functional.outputs],
            "mutations": [_view_numbers(vars(m)) for m in functional.input_mutations],
            "structure": _argument_to_data(functional.structure),
            "same_inputs": functional.same_inputs,
            "spent": _spent_to_data(functional.spent),
            "data": {symbol.name: number for symbol, number in functional.data.items()},
        }

    def _output(self, spec: OutputSpec) -> dict[str, Any]:
        row = _view_numbers(vars(spec))
        if isinstance(spec.constant, torch.Tensor):
            row["constant"] = {"tensor": self.keep(spec.constant)}
        else:
            row["constant"] = {"value": _argument_to_data(spec.constant)}
        return row

    def _nodes(self, gm: GraphModule) -> list[dict[str, Any]]:
        return [self._node(gm, node) for node in gm.graph.nodes]

    def _node(self, gm: GraphModule, node: Node) -> dict[str, Any]:
        row: dict[str, Any] = {"name": node.name}
        if node.op == "placeholder":
            return {**row, "input": _input_to_data(node)}
        if node.op == "get_attr":
            return {**row, "constant": self.keep(fetch_attribute(gm, node.target))}
        if node.op == "output":
            return {"return": _argument_to_data(node.args[0])}
        if node.op != "call_function":
            raise StoredError(f"a saved program may not call {node.target}")
        row["op"] = name_of(node.target)
        row["args"] = [_argument_to_data(arg) for arg in node.args]
        if node.kwargs:
            row["kwargs"] = {key: _argument_to_data(arg) for key, arg in node.kwargs.items()}
        numbers = numbers_of(node.meta.get("val"))
        if not _gives_data(node.target):  # a slice has a size of its own
            named = node.target is _SLICE
            numbers = [n if named and is_symbol(n) and depends_on_data(n) else 0 for n in numbers]
        data = [[i, to_data(n.node.expr)] for i, n in enumerate(numbers) if is_symbolic(n)]
        if data:
            row["data"] = data
        return row


def _gives_data(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and gives_data(target)


def _input_to_data(node: Node) -> dict[str, Any]:
    val = node.meta["val"]
    static = {"static": True} if node.meta.get("static") else {}
    if is_symbol(val):
        return {"symbol": val.node._expr.name}
    if not isinstance(val, torch.Tensor):
        raise StoredError(f"input {node.name} is a {type(val).__name__}")
    return {**tensor_to_data(val), **static}


def _view_numbers(row: dict[str, Any]) -> dict[str, Any]:
    """The fields of an OutputSpec or MutatedInput, with numbers as data."""
    made = {key: value for key, value in row.items() if key != "constant"}
    for key in ("size", "stride"):
        if made[key] is not None:
            made[key] = [number_of(n) for n in made[key]]
    made["storage_offset"] = number_of(made["storage_offset"])
    return made


def _spent_to_data(spent: dict[int, Any]) -> list[Any]:
    return [[number, text, list(inputs)] for number, (text, inputs) in spent.items()]


def _argument_to_data(arg: Any) -> Any:
    try:
        return argument_to_json(arg)
    except SerializeError as error:
        raise StoredError(str(error)) from error


def foreign_namespaces(data: Any) -> set[str]:
    """Of the operators of other libraries that a graph's data calls."""
    nodes = [*data.get("nodes", ()), *data.get("forward", ()), *data.get("backward", ())]
    found = (foreign_namespace(node["op"]) for node in nodes if "op" in node)
    return {namespace for namespace in found if namespace is not None}


# -- reading --------------------------------------------------------------------------------------
class GraphReader:
    """Makes graphs of data, over one set of symbols. `tensors`: by the numbers that `keep` gave."""

    def __init__(
        self,
        env: ShapeEnv | None,
        tensors: Sequence[torch.Tensor],
        foreign: Collection[str] = (),
    ) -> None:
        self.env = env
        self.foreign = foreign  # namespaces of operators, besides torch's
        self.tensors = tensors
        self.mode = fake_tensor_mode(allow_non_fake_inputs=False)
        # By name: those of inputs, and of data as soon as a node has defined them.
        self.symbols: dict[str, sympy.Symbol] = {}
        if env is not None:
            mode: Any = self.mode
            mode.shape_env, mode.cache_enabled = env, False
            self.symbols = {symbol.name: symbol for symbol in env.symbols}

    def functional(self, data: Any, name: str) -> FunctionalGraph:
        with data_allowed(self.mode, captured=False):
            module = self._module(data["nodes"], name)
        return self._framed(data, module)

    def training(self, data: Any, name: str) -> TrainingGraph:
        with data_allowed(self.mode, captured=False):
            forward = self._module(data["forward"], name)
            backward = self._module(data["backward"], name)
        frame = self._framed(data["frame"], forward)
        training = TrainingGraph(
            frame=frame,
            forward=flat_graph(forward, frame),
            backward=flat_graph(backward),
            saved=[(kind, number) for kind, number in data["saved"]],
            tangents=data["tangents"],
            gradients=[(kind, number) for kind, number in data["gradients"]],
            sources=[frozenset(numbers) for numbers in data["sources"]],
            frees=data["frees"],
            segments=[_segment(row) for row in data["segments"]],
            cuts={number: frame.source.graph.output_node() for number in data["cuts"]},
            versions=data["versions"],
            draws=bool(data["draws"]),
            rebased=data.get("rebased", []),  # of earlier files without them
            whole=data.get("whole", []),
            spent=_spent_from_data(data["spent"]),
        )
        check_training(training)
        return training

    def _framed(self, data: Any, module: GraphModule) -> FunctionalGraph:
        functional = FunctionalGraph(
            graph_module=module,
            outputs=[self._output(row) for row in data["outputs"]],
            input_mutations=[MutatedInput(**self._view(row)) for row in data["mutations"]],
            structure=argument_from_json(data["structure"], {}),
            source=_without_source(module),
            same_inputs=[(one, other) for one, other in data["same_inputs"]],
            spent=_spent_from_data(data["spent"]),
            data={self._symbol(name): number for name, number in data["data"].items()},
        )
        check_functional(functional)
        return functional

    def _symbol(self, name: str) -> sympy.Symbol:
        if name not in self.symbols:
            raise StoredError(f"no node defines the symbol {name[:80]!r}")
        return self.symbols[name]

    def _output(self, row: Any) -> OutputSpec:
        fields = self._view({key: value for key, value in row.items() if key != "constant"})
        spec = OutputSpec(**fields)
        ((kind, value),) = row["constant"].items()
        spec.constant = self.tensors[value] if kind == "tensor" else argument_from_json(value, {})
        return spec

    def _view(self, row: Any) -> dict[str, Any]:
        made = dict(row)
        for key in ("size", "stride"):
            if made[key] is not None:
                made[key] = tuple(number_from(n, self.env, self.symbols) for n in made[key])
        made["storage_offset"] = number_from(made["storage_offset"], self.env, self.symbols)
        return made

    # -- nodes ------------------------------------------------------------------------------------
    def _module(self, rows: Any, name: str) -> GraphModule:
        reading = _Reading(self)
        with _quiet(), torch.no_grad(), torch._C._DisableAutocast(), symbolic_dispatch(self.mode):
            for row in rows:
                reading.add(row)
        module = GraphModule(reading.constants, reading.graph)
        if next(iter(reversed(reading.graph.nodes))).op != "output":
            raise StoredError("a graph that returns nothing")
        module.meta.update(fake_mode=self.mode, name=name)
        return module


def _without_source(module: GraphModule) -> GraphModule:
    """In the place of the torch-level graph, which is not saved: one that raises."""
    graph = Graph()
    for node in module.graph.find_nodes(op="placeholder"):
        graph.placeholder(node.name)
    graph.output((graph.call_function(_refuse),))
    source = GraphModule({}, graph)
    source.meta.update(module.meta)
    return source


def _refuse() -> None:
    raise RuntimeError(
        "a second derivative of a saved program, or inputs that share memory otherwise than when "
        "it was saved"
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's log of errors that its shape rules raise."""
    disabled, _log.disabled = _log.disabled, True
    try:
        yield
    finally:
        _log.disabled = disabled


class _Reading:
    """Reads a graph from data; the results of its nodes are fake tensors."""

    def __init__(self, reader: GraphReader) -> None:
        self.reader = reader
        self.env = reader.env
        self.graph = Graph()
        self.nodes: dict[str, Node] = {}
        self.constants: dict[str, torch.Tensor] = {}
        self.fakes = FakePropagation(reader.mode)
        self.data = FreshSymbols(reader.mode, lambda symbol, node: None, lambda node, *_: node)
        self.finished = False
        # The node of each symbol, and the expressions of them that are checked.
        self._symbol_nodes: dict[Any, Node] = {}
        env: Any = self.env
        self._expressions = ExpressionNodes(
            env, self._symbol_nodes.__getitem__, self.graph.call_function
        )

    def add(self, row: Any) -> None:
        if self.finished:
            raise StoredError("nodes after the end of a graph")
        if "return" in row:
            self._return(argument_from_json(row["return"], self.nodes))
            return
        name = row["name"]
        if not isinstance(name, str) or _NAME.fullmatch(name) is None or keyword.iskeyword(name):
            raise StoredError(f"not the name of a node: {str(name)[:80]!r}")
        if name in self.nodes:
            raise StoredError(f"two nodes have the name {name}")
        if "input" in row:
            node = self._input(name, row["input"])
        elif "constant" in row:
            node = self._constant(name, row["constant"])
        else:
            node = self._call(name, row)
        self.nodes[name] = node

    def _input(self, name: str, data: Any) -> Node:
        node = self.graph.create_node("placeholder", name, (), {}, name=name)
        if "symbol" in data:
            node.meta["val"] = self._symbol(data["symbol"], node)
            return node
        size, stride = (
            tuple(number_from(n, self.env, self.reader.symbols) for n in data[key])
            for key in ("size", "stride")
        )
        if len(size) != len(stride) or any(not is_symbolic(n) and n < 0 for n in (*size, *stride)):
            raise StoredError(f"input {name} of size {size} and stride {stride}")
        place = dtype_of(data["dtype"]), size, stride, 0, torch.device(data["device"])
        node.meta["val"] = self.fakes.make(*place)
        if data.get("static"):
            node.meta["static"] = True
        return node

    def _symbol(self, name: Any, node: Node) -> Any:
        symbol = self.reader.symbols.get(name) if isinstance(name, str) else None
        if self.env is None or symbol is None:
            raise StoredError(f"no symbol {str(name)[:80]!r}")
        self._symbol_nodes[symbol] = node
        return value_of(self.env, symbol)

    def _constant(self, name: str, number: Any) -> Node:
        tensor = self.reader.tensors[index_in(number, len(self.reader.tensors))]
        self.constants[f"constant_{number}"] = tensor
        node = self.graph.create_node("get_attr", f"constant_{number}", (), {}, name=name)
        node.meta["val"] = self.fakes.like(tensor)
        return node

    def _call(self, name: str, row: Any) -> Node:
        target = operator_of(row["op"], self.reader.foreign)
        args = tuple(argument_from_json(arg, self.nodes) for arg in row["args"])
        kwargs = {
            key: argument_from_json(arg, self.nodes) for key, arg in row.get("kwargs", {}).items()
        }
        node = self.graph.create_node("call_function", target, args, kwargs, name=name)
        try:
            node.meta["val"] = self._result(node)
            if "data" in row:
                self._define(node, row["data"])
        except Exception as error:
            text = str(error).split("\n")[0][:200]
            raise StoredError(f"{row['op']} of {name}: {text}") from error
        return node

    def _define(self, node: Node, rows: Any) -> None:
        """Name the data-dependent numbers of a node's result; if the name is that of another
        number, both are checked to be equal. Expressions come from the graph's own checks on
        numbers.
        """
        known = self.reader.symbols
        numbers = numbers_of(node.meta["val"])
        for place, data in rows:
            number = numbers[index_in(place, len(numbers))]
            if not depends_on_data(number) or not number.node._expr.is_Symbol:
                raise StoredError("a number that depends on data, and does not")
            symbol = number.node._expr
            # Of operators with several results no number is checked.
            if symbol not in self._symbol_nodes and not isinstance(node.meta["val"], tuple | list):
                self._symbol_nodes[symbol] = self._node_of(node, place)
            if isinstance(data, str) and data not in known:
                if _SYMBOL.fullmatch(data) is None:
                    raise StoredError(f"not the name of a symbol: {data[:80]!r}")
                known[data] = symbol
            # A backward may find the forward's symbol again, and then relies on no equality.
            elif isinstance(data, str) and known[data] in self._symbol_nodes.keys() - {symbol}:
                self._check(relation("eq", symbol, known[data]))

    def _node_of(self, node: Node, place: int) -> Node:
        """A node whose value is this number in the result of another."""
        result = node.meta["val"]
        if not isinstance(result, torch.Tensor):
            return node
        made = self.graph.call_function(_SIZE, (node, place))
        made.meta["val"] = result.shape[place]
        return made

    def _check(self, condition: Any) -> None:
        """Have each call check a condition on data, and rely on it."""
        env: Any = self.env
        if env.statically(condition) is True:
            return
        holds = self._expressions.of_expression(condition)
        self.graph.call_function(_ASSERT, (holds, CHECK_FAILED)).meta["val"] = None
        env.check(condition)

    def _result(self, node: Node) -> Any:
        def value(leaf: Any) -> Any:
            return leaf.meta["val"] if isinstance(leaf, Node) else leaf

        target, args = node.target, node.args
        given, named = map_aggregate(args, value), map_aggregate(node.kwargs, value)
        if not isinstance(target, torch._ops.OpOverload):
            if any(isinstance(leaf, torch.Tensor) for leaf in leaves((given, named))) and (
                target is not operator.getitem
            ):
                raise StoredError("numbers are computed of a tensor")
            return target(*given, **named)
        if target is _AS_STRIDED:
            check_window(*given, **named)
        if target is _COPY and not (isinstance(args[0], Node) and args[0].op in _WRITABLE):
            raise StoredError("what is written is no input")
        if target is _SIZE:
            return given[0].shape[index_in(given[1], given[0].dim())]
        if target is _ASSERT:
            if isinstance(given[0], torch.SymBool):
                given[0].node.shape_env.check(given[0])
            return None
        if self.data.allowed and gives_data(target):
            result = self.data.run(target, given, named)
            self.data.note(node, result)
        else:
            result = self.fakes.run(target, given, named, is_view(target))
        for leaf in leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided:
                raise StoredError(f"a result of layout {leaf.layout}")
        return result

    def _return(self, results: Any) -> None:
        if not isinstance(results, tuple) or not all(
            isinstance(result, Node) or result is None or isinstance(result, int | float)
            for result in results
        ):
            raise StoredError("a graph returns a tuple of its values")
        self.graph.output(results)
        self.finished = True


def sharing_of(data: Any) -> FunctionalGraph:
    """A FunctionalGraph without nodes that answers same_sharing for a stored graph without a
    backward: which inputs the graph writes, and which are the same.
    """
    empty = GraphModule({}, Graph())
    fields = [{key: row[key] for key in ("index", "data", "metadata")} for row in data["mutations"]]
    return FunctionalGraph(
        graph_module=empty,
        outputs=[],
        input_mutations=[MutatedInput(**row) for row in fields],
        structure=(),
        source=empty,
        same_inputs=[(one, other) for one, other in data["same_inputs"]],
    )


def _segment(row: Any) -> Segment:
    watched, without = (
        [(kind, number, users) for kind, number, users in row[name]]
        for name in ("watched", "without")
    )
    return Segment(row["tangents"], row["gradients"], watched, without)


def _spent_from_data(rows: Any) -> dict[int, Any]:
    return {number: (str(text), tuple(inputs)) for number, text, inputs in rows}
