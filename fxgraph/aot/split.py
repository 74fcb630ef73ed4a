"""A graph in parts: runs of nodes that can be compiled, and between them nodes that autograd or
Python must run themselves.

    y = x.sin() * 2                      part 0: compiled
    z = torch.cond(p, f, g, (y,))        part 1: run as it is, f and g compiled
    w = z[0]
    return w.exp() + y                   part 2: compiled, takes w and y
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fxgraph.aot._autograd import Parts
from fxgraph.aot.control_flow import ControlFlow, Unsuited, flow_of
from fxgraph.aot.functional import (
    AUTOCAST_SWITCHES,
    GRAD_SWITCHES,
    SET_DEFAULT_DTYPE,
    read_deterministic,
    set_deterministic,
    works_with_gradients,
)
from fxgraph.args import leaves, map_aggregate
from fxgraph.dual_levels import LEVEL_SWITCHES
from fxgraph.expression_nodes import integers_of
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule, fetch_attribute
from fxgraph.higher_order import branch, loop
from fxgraph.inference_blocks import INFERENCE_SWITCHES, inference_restored
from fxgraph.interpreter import Interpreter
from fxgraph.node import Node
from fxgraph.symbolic_values import expr_of, is_symbol, is_symbolic, layout_numbers

Compile = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]
_MODES = ("autocast",)


@dataclass
class Part:
    """nodes: in order; first the arithmetic of numbers that the part does for itself. module: their
    graph, which takes the results of `inputs` and returns a tuple of those of `outputs`; None if
    they run one by one.
    """

    nodes: list[Node]
    inputs: list[Node]
    outputs: list[Node]
    module: GraphModule | None = None
    compiled: Callable[..., Any] | None = None


@dataclass
class _Step:
    """A step of the split graph: a compiled part, or a node. fields: as csrc/parts.h has them."""

    nodes: list[Node]
    inputs: list[Node]
    outputs: list[Node]
    fields: dict[str, Any] = field(default_factory=dict)
    needed: list[Node] = field(default_factory=list)  # besides the inputs


class _Plan:
    """Makes the steps of a graph in parts."""

    def __init__(
        self, gm: GraphModule, parts: list[Part], flows: Mapping[Node, ControlFlow]
    ) -> None:
        self.module = gm
        self.flows = flows
        self.placeholders = gm.graph.find_nodes(op="placeholder")
        attributes = gm.graph.find_nodes(op="get_attr")
        self.constants = {n: fetch_attribute(gm, str(n.target)) for n in attributes}
        self.steps = [step for part in parts for step in self._steps(part)]
        self.slots: dict[Node, int] = {}

    def linked(self, example_inputs: Sequence[Any]) -> Parts:
        result = self.module.graph.output_node().args[0]
        leaves_ = result if isinstance(result, tuple) else [None]
        is_flat = all(isinstance(leaf, Node) for leaf in leaves_)
        wanted = list(leaves_) if is_flat else self.module.graph.output_node().all_input_nodes
        static = [bool(node.meta.get("static")) for node in self.placeholders]
        real = list(zip(self.placeholders, example_inputs, static, strict=True))
        held = [(node, tensor) for node, tensor, fixed in real if fixed]
        held += [(n, c) for n, c in self.constants.items() if not isinstance(c, GraphModule)]
        dead = _last_uses(self.steps, wanted)
        return Parts(
            {
                "inputs": self._places(node for node, _, fixed in real if not fixed),
                "bound": [(self._place(node), tensor) for node, tensor in held],
                "steps": [self._fields(step, gone) for step, gone in zip(self.steps, dead)],
                "results": self._places(wanted),
                "arrange": None if is_flat else _arranging(result, wanted),
                "slots": len(self.slots),
            }
        )

    def _place(self, node: Node) -> int:
        return self.slots.setdefault(node, len(self.slots))

    def _places(self, nodes: Iterable[Node]) -> list[int]:
        return [self._place(node) for node in nodes]

    def _fields(self, step: _Step, dead: list[Node]) -> dict[str, Any]:
        fields = {**_NO_FIELDS, **step.fields}
        expected = [
            {
                "slot": self._place(item.node),
                "dtype": item.dtype,
                "requires_grad": item.requires_grad,
                "numbers": item.numbers,
                "computed": item.computed,
                "given": [(self._place(node), dim) for node, dim in item.told],
            }
            for item in fields["expected"]
        ]
        return {
            **fields,
            "inputs": self._places(step.inputs),
            "outputs": self._places(step.outputs),
            "dead": self._places(dead),
            "given": self._places(fields["given"]),
            "expected": expected,
            "plain": self._one_by_one(step),
        }

    def _one_by_one(self, step: _Step) -> Callable[..., tuple[Any, ...]]:
        """The step's nodes as a function of its inputs, which gives its outputs."""

        def run(*values: Any) -> tuple[Any, ...]:
            interpreter = Interpreter(self.module)
            env = interpreter.env = {**self.constants, **dict(zip(step.inputs, values))}
            for node in step.nodes:
                env[node] = self._run(node, interpreter)
            return tuple([env[node] for node in step.outputs])

        return run

    def _run(self, node: Node, interpreter: Interpreter) -> Any:
        flow = self.flows.get(node)
        if flow is not None and flow.run is not None:
            given = [arg for arg in node.args if getattr(arg, "op", "") != "get_attr"]
            values = [
                map_aggregate(arg, lambda a: interpreter.env[a] if isinstance(a, Node) else a)
                for arg in given
            ]
            with contextlib.suppress(Unsuited):
                return flow(values)
        return interpreter.run_node(node)

    def _steps(self, part: Part) -> list[_Step]:
        if part.compiled is None:
            return [self._step(node) for node in part.nodes]
        expected = _expected(self.module, part)
        if not all(item.known for item in expected):
            return [self._step(node) for node in part.nodes]
        # A part holds parameters and buffers itself.
        bound = getattr(part.compiled, "binds_static", False)
        given = [node for node in part.inputs if not (bound and node.meta.get("static"))]
        fields = {"function": part.compiled, "given": given, "expected": expected}
        step = _Step(part.nodes, part.inputs, part.outputs, {"kind": "compiled", **fields})
        step.needed = [node for item in expected for node, _ in item.told]
        return [step]

    def _step(self, node: Node) -> _Step:
        flow = self.flows.get(node)
        fields = None if flow is None else flow.fields(node)
        if fields is not None:
            return _Step([node], fields.pop("operands"), [node], fields)
        inputs = [n for n in node.all_input_nodes if n not in self.constants]
        if inputs and _is_item(node):
            return _Step([node], inputs, [node], {"kind": "item", "item": node.args[1]})
        return _Step([node], inputs, [node])


_NO_FIELDS: dict[str, Any] = {
    "kind": "plain",
    "function": None,
    "given": (),
    "expected": (),
    "item": 0,
    "carried": 0,
    "bodies": (),
    "without_grad": False,
}


def _arranging(result: Any, wanted: Sequence[Node]) -> Callable[..., Any]:
    """A function that arranges the results `wanted` as the graph's output."""

    def arrange(*values: Any) -> Any:
        known = dict(zip(wanted, values))
        return map_aggregate(result, lambda a: known[a] if isinstance(a, Node) else a)

    return arrange


def split(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    compile_part: Compile,
    compile_body: Compile,
) -> Parts | None:
    """The graph in compiled parts, or None where nothing is gained or it cannot be done. It takes
    the inputs that are not static, and has `parts`, `flows` (the nodes of control flow that have
    compiled bodies) and `binds_static` (True).

    compile_body: compiles a body of control flow, which may itself be in parts.
    """
    if any(node.target in LEVEL_SWITCHES for node in gm.graph.nodes):
        return None  # no part takes or gives tensors with tangents
    apart = {node for node in gm.graph.nodes if _apart(node)}
    switches = {node for node in gm.graph.nodes if _switches_mode(node)}
    if any(node.target in (*INFERENCE_SWITCHES, branch, loop) for node in apart):
        apart |= switches
    elif switches or not apart:
        return None
    parts = _parts(gm, apart)
    real = dict(zip(gm.graph.find_nodes(op="placeholder"), example_inputs))
    static = {node: tensor for node, tensor in real.items() if node.meta.get("static")}
    flows: dict[Node, ControlFlow] = {}
    with _modes_restored():
        for part in parts:
            if part.module is None:
                found = {n: flow_of(n, gm, compile_body, static) for n in part.nodes}
                flows.update({node: flow for node, flow in found.items() if flow is not None})
                _switch_modes(part)
            else:
                examples = [real.get(n, n.meta.get("example_value")) for n in part.inputs]
                part.compiled = compile_part(part.module, examples)
    if not flows and not any(part.compiled for part in parts):
        return None
    made = _Plan(gm, parts, flows).linked(example_inputs)
    made.parts, made.flows, made.binds_static = parts, flows, True
    return made


def _apart(node: Node) -> bool:
    """Whether the node is for autograd's engine or a control flow operator to run, or sparse."""
    if node.op not in ("call_function", "call_method"):
        return False
    return (
        any(map(_is_sparse, (node, *node.all_input_nodes)))
        or _asks_for_sparse_gradients(node)
        or isinstance(node.target, torch._ops.HigherOrderOperator)
        or node.target in (torch.autograd.grad, branch, loop)
        or node.target in (*GRAD_SWITCHES, SET_DEFAULT_DTYPE, set_deterministic)
        or node.target in INFERENCE_SWITCHES
        or works_with_gradients(node) is not None
    )


def _is_sparse(node: Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.layout is not torch.strided


def _asks_for_sparse_gradients(node: Node) -> bool:
    """embedding(..., sparse=True): the gradient of its table is sparse."""
    place = _SPARSE_FLAGS.get(node.target)
    if place is None:
        return False
    given = node.args[place] if len(node.args) > place else node.kwargs.get("sparse")
    return given is True


def _is_item(node: Node) -> bool:
    """Whether the node is an item of a tuple."""
    if node.target is not operator.getitem or type(node.args[1]) is not int:
        return False
    of = node.args[0]
    return isinstance(of, Node) and isinstance(of.meta.get("example_value"), tuple | list)


# Function -> the place of its argument `sparse`.
_SPARSE_FLAGS: dict[Any, int] = {
    torch.nn.functional.embedding: 6,
    torch.nn.functional.embedding_bag: 7,
}


def _switches_mode(node: Node) -> bool:
    name = getattr(node.target, "__name__", "")
    return node.op == "call_function" and any(mode in name for mode in _MODES)


@contextlib.contextmanager
def _modes_restored() -> Iterator[None]:
    grad_mode, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    deterministic, cached = read_deterministic(), torch.is_autocast_cache_enabled()
    casts = [
        (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
    ]
    try:
        with inference_restored():
            yield
    finally:
        torch.set_grad_enabled(grad_mode)
        torch.set_default_dtype(dtype)
        set_deterministic(deterministic)
        torch.set_autocast_cache_enabled(cached)
        for device, enabled, cast in casts:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, cast)


def _switch_modes(part: Part) -> None:
    """Torch's modes, as the next part to compile finds them."""
    for node in part.nodes:
        if node.target in INFERENCE_SWITCHES or node.target in AUTOCAST_SWITCHES:
            node.target(*node.args)
        if node.target is SET_DEFAULT_DTYPE:
            torch.set_default_dtype(node.args[0])
        if node.target is set_deterministic:
            set_deterministic(node.args[0])  # type: ignore[arg-type]
        if node.target in GRAD_SWITCHES and node.args:
            torch.set_grad_enabled(node.args[0] is True)


def _parts(gm: GraphModule, apart: set[Node]) -> list[Part]:
    """Partition the graph into compiled parts and single nodes: those whose results no compiled
    part may give or take run op by op, too.
    """
    symbols = _symbols(gm)
    while True:
        runs: list[tuple[bool, list[Node]]] = []
        for node in gm.graph.nodes:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            alone = node in apart
            if not runs or runs[-1][0] != alone:
                runs.append((alone, []))
            runs[-1][1].append(node)
        parts = [_part(nodes, symbols) for _, nodes in runs]
        more = {
            node
            for (alone, nodes), part in zip(runs, parts)
            if not alone
            for node in nodes
            if (node in part.outputs and not _is_tensor(node))
            or any(n in part.inputs and not _may_be_given(n) for n in node.all_input_nodes)
        }
        if not more:
            break
        apart |= more
    for (alone, _), part in zip(runs, parts):
        if not alone and part.outputs:
            part.module = _module(gm, part)
    return parts


def _seen(node: Node) -> Any:
    return node.meta.get("example_value")


def _is_tensor(node: Node) -> bool:
    return node.op == "placeholder" or isinstance(_seen(node), torch.Tensor)


def _may_be_given(node: Node) -> bool:
    """Whether a compiled part takes this result: a tensor, or a number that is a symbol."""
    return _is_tensor(node) or is_symbol(_seen(node))


def _arithmetic(node: Node, inside: Collection[Node]) -> Iterator[Node]:
    """The nodes that compute a node's numbers of numbers that are symbols, in order."""
    for arg in node.all_input_nodes:
        value = _seen(arg)
        is_sum = is_symbolic(value) and not is_symbol(value) and arg.op == "call_function"
        if is_sum and arg not in inside and all(map(_is_number, arg.all_input_nodes)):
            yield from _arithmetic(arg, inside)
            yield arg


def _is_number(node: Node) -> bool:
    return isinstance(_seen(node), torch.SymInt | torch.SymFloat | torch.SymBool)


def _part(nodes: list[Node], symbols: Mapping[Any, Node]) -> Part:
    """Its inputs begin with the numbers that the sizes of its tensors are made of."""
    inside = set(nodes)
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    computed = dict.fromkeys(n for node in nodes for n in _arithmetic(node, inside))
    nodes = [*computed, *nodes]
    inside.update(computed)
    given = [
        given
        for node in nodes
        for given in node.all_input_nodes
        if given not in inside and given.op != "get_attr"
    ]
    seen = [leaf for node in (*given, *nodes) for leaf in leaves(_seen(node))]
    numbers = [number for leaf in seen for number in layout_numbers(leaf)]
    used = {symbol for number in numbers for symbol in expr_of(number).free_symbols}
    sizes = [node for symbol, node in symbols.items() if symbol in used]
    inputs = dict.fromkeys((*sizes, *given))
    return Part(nodes, list(inputs), outputs)


def _symbols(gm: GraphModule) -> dict[Any, Node]:
    """Symbol -> the placeholder of its value."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    return {_seen(n).node._expr: n for n in placeholders if is_symbol(_seen(n))}


def _module(gm: GraphModule, part: Part) -> GraphModule:
    graph = Graph()
    made: dict[Node, Node] = {}
    for node in part.inputs:
        made[node] = graph.placeholder(node.name)
        made[node].meta.update(node.meta)

    def copy(node: Node) -> Node:
        if node not in made:  # an attribute
            made[node] = graph.node_copy(node, copy)
        return made[node]

    for node in part.nodes:
        for given in node.all_input_nodes:
            copy(given)
        made[node] = graph.node_copy(node, copy)
    graph.output(tuple(made[node] for node in part.outputs))
    return gm.with_graph(graph)


def _last_uses(steps: list[_Step], wanted: Sequence[Node]) -> list[list[Node]]:
    """For each step, the results that nothing needs after it."""
    kept = set(wanted)
    dead: list[list[Node]] = []
    for step in reversed(steps):
        mentioned = dict.fromkeys([*step.inputs, *step.needed, *step.outputs])
        dead.append([node for node in mentioned if node not in kept])
        kept.update(mentioned)
    return dead[::-1]


class _Expected:
    """The metadata that capture saw of an intermediate tensor, which decides how a part was
    compiled. Sizes may be made of symbols, whose values are among the inputs.

    known: whether all of them are. numbers: sizes, then strides; where these vary, `computed` gives
    them of `told`: numbers (node, -1), and sizes (node, dim).
    """

    def __init__(self, node: Node, symbols: dict[Any, tuple[Node, int]]) -> None:
        seen = node.meta["example_value"]
        self.node = node
        self.dtype, self.requires_grad = seen.dtype, seen.requires_grad
        exprs = [expr_of(n) for n in (*seen.shape, *seen.stride())]
        used = sorted({s for expr in exprs for s in expr.free_symbols}, key=str)
        self.known = all(symbol in symbols for symbol in used)
        self.told = [symbols[symbol] for symbol in used] if self.known else []
        self.numbers = [] if used else [int(expr) for expr in exprs]
        self.computed = integers_of(exprs, used) if used and self.known else None


def _expected(gm: GraphModule, part: Part) -> list[_Expected]:
    symbols = {symbol: (node, -1) for symbol, node in _symbols(gm).items()}
    tensors = [node for node in part.inputs if isinstance(_seen(node), torch.Tensor)]
    for node in tensors:  # which tell those of data
        for dim, size in enumerate(_seen(node).shape):
            if is_symbol(size):
                symbols.setdefault(size.node.expr, (node, dim))
    return [_Expected(node, symbols) for node in tensors if node.op != "placeholder"]
