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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fxgraph.aot.control_flow import ControlFlow, Unsuited, flow_of
from fxgraph.aot.functional import GRAD_SWITCHES, works_with_gradients
from fxgraph.args import leaves, map_aggregate
from fxgraph.expression_nodes import function_of
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.higher_order import branch
from fxgraph.interpreter import Interpreter
from fxgraph.node import Node
from fxgraph.symbols import expr_of, is_symbol, layout_numbers

Compile = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]
_MODES = ("autocast", "inference_mode", "set_default_dtype")


@dataclass
class Part:
    """nodes: in order. module: their graph, which takes the results of `inputs` and returns a tuple
    of those of `outputs`; None if they run one by one.
    """

    nodes: list[Node]
    inputs: list[Node]
    outputs: list[Node]
    module: GraphModule | None = None
    compiled: Callable[..., Any] | None = None


class SplitGraph:
    """Calls the parts in order; takes all inputs. `compile_report` has their notes.

    flows: the nodes of control flow that have compiled bodies.
    """

    def __init__(
        self, gm: GraphModule, parts: list[Part], flows: Mapping[Node, ControlFlow]
    ) -> None:
        self.module = gm
        self.parts = parts
        self.flows = flows
        self.placeholders = gm.graph.find_nodes(op="placeholder")
        found = {
            node: getattr(gm, node.target, None) for node in gm.graph.find_nodes(op="get_attr")
        }
        self.bodies = {n: body for n, body in found.items() if isinstance(body, GraphModule)}
        self.attributes = [node for node in found if node not in self.bodies]
        self.result = gm.graph.output_node().args[0]
        leaves = self.result if isinstance(self.result, tuple) else [None]
        self.is_flat = all(isinstance(leaf, Node) for leaf in leaves)
        # What takes its arguments from the results so far, without an interpreter between.
        self.direct = {n: _direct(n, flows.get(n)) for part in parts for n in part.nodes}
        expected = [_expected(gm, part) if part.compiled else [] for part in parts]
        self.steps = list(zip(parts, map(_given, parts), _last_uses(gm, parts), expected))
        self.compile_report: dict[str, Any] = {}

    def __call__(self, *inputs: Any) -> Any:
        interpreter = Interpreter(self.module)
        env = interpreter.env = dict(zip(self.placeholders, inputs))
        env.update(self.bodies)
        env.update((node, interpreter.run_node(node)) for node in self.attributes)
        for part, given, dead, expected in self.steps:
            if part.compiled is None or not all(tensor.holds(env) for tensor in expected):
                for node in part.nodes:
                    env[node] = self._run(node, interpreter)
            else:
                env.update(zip(part.outputs, part.compiled(*[env[n] for n in given])))
            for node in dead:
                env.pop(node, None)
        if self.is_flat:
            return tuple([env[node] for node in self.result])
        return map_aggregate(self.result, lambda a: env[a] if isinstance(a, Node) else a)

    def _run(self, node: Node, interpreter: Interpreter) -> Any:
        direct = self.direct.get(node)
        if direct is not None:
            try:
                return direct(interpreter.env)
            except Unsuited:
                return interpreter.run_node(node)
        flow = self.flows.get(node)
        if flow is not None:
            given = [arg for arg in node.args if getattr(arg, "op", "") != "get_attr"]
            values = [
                map_aggregate(arg, lambda a: interpreter.env[a] if isinstance(a, Node) else a)
                for arg in given
            ]
            with contextlib.suppress(Unsuited):
                return flow(values)
        return interpreter.run_node(node)


def _given(part: Part) -> list[Node]:
    """The results that a compiled part is called with; it holds parameters and buffers itself."""
    bound = getattr(part.compiled, "binds_static", False)
    return [node for node in part.inputs if not (bound and node.meta.get("static"))]


def _direct(node: Node, flow: ControlFlow | None) -> Callable[[dict[Node, Any]], Any] | None:
    """The node as a function of the results so far, if it is an item of one, or a branch."""
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        of, index = node.args
        return (lambda env: env[of][index]) if isinstance(index, int) else None
    if node.target is branch and flow is not None:
        predicate, *_, operands = node.args
        run = flow.run_branch
        return lambda env: run(env[predicate], [env[operand] for operand in operands])
    return None


def split(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    compile_part: Compile,
    compile_body: Compile,
) -> Any:
    """A SplitGraph with compiled parts, or None where nothing is gained or it cannot be done.

    compile_body: compiles what control flow runs, which may itself be in parts.
    """
    apart = {node for node in gm.graph.nodes if _apart(node)}
    if not apart or any(_switches_mode(node) for node in gm.graph.nodes):
        return None
    parts = _parts(gm, apart)
    real = dict(zip(gm.graph.find_nodes(op="placeholder"), example_inputs))
    grad_mode = torch.is_grad_enabled()
    flows: dict[Node, ControlFlow] = {}
    try:
        for part in parts:
            if part.module is None:
                found = {node: flow_of(node, gm, compile_body) for node in part.nodes}
                flows.update({node: flow for node, flow in found.items() if flow is not None})
                _switch_grad_mode(part)
            else:
                examples = [real.get(n, n.meta.get("example_value")) for n in part.inputs]
                part.compiled = compile_part(part.module, examples)
    finally:
        torch.set_grad_enabled(grad_mode)
    compiled = any(part.compiled for part in parts)
    return SplitGraph(gm, parts, flows) if compiled or flows else None


def _apart(node: Node) -> bool:
    """Whether the node is for autograd's engine or a control flow operator to run, or sparse."""
    if node.op not in ("call_function", "call_method"):
        return False
    return (
        any(map(_is_sparse, (node, *node.all_input_nodes)))
        or _asks_for_sparse_gradients(node)
        or isinstance(node.target, torch._ops.HigherOrderOperator)
        or node.target in (torch.autograd.grad, branch)
        or node.target in GRAD_SWITCHES
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


# Function -> the place of its argument `sparse`.
_SPARSE_FLAGS: dict[Any, int] = {
    torch.nn.functional.embedding: 6,
    torch.nn.functional.embedding_bag: 7,
}


def _switches_mode(node: Node) -> bool:
    name = getattr(node.target, "__name__", "")
    return node.op == "call_function" and any(mode in name for mode in _MODES)


def _switch_grad_mode(part: Part) -> None:
    for node in part.nodes:
        if node.target in GRAD_SWITCHES and node.args:
            torch.set_grad_enabled(node.args[0] is True)


def _parts(gm: GraphModule, apart: set[Node]) -> list[Part]:
    """What hands on something else than tensors is run as it is, too."""
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
            or any(n in part.inputs and not _is_tensor(n) for n in node.all_input_nodes)
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


def _part(nodes: list[Node], symbols: Mapping[Any, Node]) -> Part:
    """Its inputs begin with the numbers that the sizes of its tensors are made of."""
    inside = set(nodes)
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
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
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


def _last_uses(gm: GraphModule, parts: list[Part]) -> list[list[Node]]:
    """For each part, the results that nothing needs after it."""
    kept = set(gm.graph.output_node().all_input_nodes)
    kept.update(n for n in gm.graph.find_nodes(op="placeholder") if is_symbol(_seen(n)))
    dead: list[list[Node]] = []
    for part in reversed(parts):
        mentioned = dict.fromkeys([*part.inputs, *part.nodes])
        dead.append([node for node in mentioned if node not in kept])
        kept.update(mentioned)
    return dead[::-1]


class _Expected:
    """What capture saw of an intermediate tensor, which decides how a part was compiled. Sizes may
    be made of symbols, whose values are among the inputs.
    """

    def __init__(self, node: Node, symbols: dict[Any, Node]) -> None:
        seen = node.meta["example_value"]
        self.node = node
        self.kind = seen.dtype, seen.requires_grad
        exprs = [expr_of(n) for n in (*seen.shape, *seen.stride())]
        used = sorted({s for expr in exprs for s in expr.free_symbols}, key=str)
        self.known = all(symbol in symbols for symbol in used)
        if self.known:
            self.places = [symbols[symbol] for symbol in used]
            self.numbers = [
                function_of(expr, used) if expr.free_symbols else int(expr) for expr in exprs
            ]

    def holds(self, env: dict[Node, Any]) -> bool:
        now = env[self.node]
        if not self.known or (now.dtype, now.requires_grad) != self.kind:
            return False
        values = [env[place] for place in self.places]
        numbers = [n if isinstance(n, int) else n(*values) for n in self.numbers]
        return [*now.shape, *now.stride()] == numbers


def _expected(gm: GraphModule, part: Part) -> list[_Expected]:
    symbols = _symbols(gm)
    return [_Expected(node, symbols) for node in part.inputs if node.op != "placeholder"]
