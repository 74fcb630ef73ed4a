"""Control flow whose bodies are compiled: branches and loops of the program, torch.cond,
while_loop, scan and map.

    c = torch.cond(p, body_0, body_1, (x, w))
                                   one body is run, as compiled for tensors like x and w
    c = while_loop(body_0, body_1, (c0,), (w,))
                                   c = body_1(c, w) while body_0(c, w)
    c, ys = scan(body_0, (c0,), (xs,), (w,))
                                   c, y = body_0(c, xs[i], w) for each i, then the ys are stacked

Bodies are compiled with their backward where an input requires grad: autograd goes through the
calls that were made. As with torch's own operators, all results of one then require grad, and
inputs that the body does not use have a gradient of zeros.

Nodes that only choose bodies and call them run in C++ (csrc/parts_call.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from fxgraph.args import leaves
from fxgraph.expression_nodes import ExpressionNodes, integers_of
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.higher_order import branch, loop
from fxgraph.node import Node
from fxgraph.symbolic_values import depends_on_data, expr_of, is_symbol, layout_numbers

Compile = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]
# A body is compiled for so many kinds of inputs: sizes, and whether gradients are asked for.
MOST_KINDS = 8
# Kinds that C++ knows where one variant is for all of them.
_MOST_KNOWN = 64


class Unsuited(Exception):
    """torch's own operator is to run."""


class Body:
    """A sub-graph, compiled for each kind of tensors, and the numbers, that it is given.

    static: in the place of its inputs that are parameters or buffers, these.
    """

    def __init__(
        self,
        module: GraphModule,
        compile_body: Compile,
        static: Mapping[int, torch.Tensor],
        operands: Sequence[Any] = (),
        fake_mode: Any = None,
    ) -> None:
        self.module = _plain(module, static)
        self.compile_body = compile_body
        self.static = static
        self.compiled: dict[Any, tuple[Callable[..., Any], list[int]]] = {}
        self.general = _General.of(self.module, operands) if operands else None
        if self.general is not None:
            self.general.module.meta["fake_mode"] = fake_mode
        if _holds_data(self.module):
            self.module.meta["fake_mode"] = fake_mode
        self.most_known = MOST_KINDS if self.general is None else _MOST_KNOWN
        self.unused = [not used for used in _used(self.module)]

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        function, taken = self.suited(inputs)
        results = function(*[inputs[i] for i in taken])
        return (results,) if isinstance(results, torch.Tensor) else tuple(results)

    def suited(self, inputs: Sequence[Any]) -> tuple[Callable[..., Any], list[int]]:
        """The callable for such inputs (the variant compiled for them, or else the graph), with the
        places of the inputs that it takes.
        """
        grad, general = torch.is_grad_enabled(), self.general
        if general is not None and (grad in self.compiled or general.may_be_compiled()):
            return self._general_for(general, inputs)
        key = (grad, *map(_kind, inputs))
        known = self.compiled.get(key)
        if known is None:
            if len(self.compiled) >= MOST_KINDS:
                return self.module.forward, list(range(len(inputs)))
            known = self.compiled[key] = self._compiled_for(inputs)
        return known

    def _general_for(
        self, general: _General, inputs: Sequence[Any]
    ) -> tuple[Callable[..., Any], list[int]]:
        """The same where sizes or numbers vary, and one variant is for all of them."""
        if not general.fits(inputs):
            return self.module.forward, list(range(len(inputs)))
        return self.compile_general(general)

    def compile_general(self, general: _General) -> tuple[Callable[..., Any], list[int]]:
        key = torch.is_grad_enabled()
        if key not in self.compiled:
            examples = [self.static.get(i, general.seen[i]) for i in general.taken]
            compiled = self.compile_body(general.module, examples)
            taken = general.taken
            if getattr(compiled, "binds_static", False):
                taken = [i for i in taken if i not in self.static]
            self.compiled[key] = compiled, taken
        return self.compiled[key]

    def _compiled_for(self, inputs: Sequence[Any]) -> tuple[Callable[..., Any], list[int]]:
        numbers = {i: n for i, n in enumerate(inputs) if not isinstance(n, torch.Tensor)}
        module = _with_numbers(self.module, numbers) if numbers else self.module
        taken = [i for i in range(len(inputs)) if i not in numbers]
        # Tensors of their own: inputs that share memory now need not do so in the next call.
        examples = [self.static[i] if i in self.static else _like(inputs[i]) for i in taken]
        compiled = self.compile_body(module, examples)
        if getattr(compiled, "binds_static", False):
            taken = [i for i in taken if i not in self.static]
        return compiled, taken


class _General:
    """A body over symbols. seen: the values of its inputs while compiling. taken: their order.
    env: of its symbols, if capture can have guards on any of them.
    """

    def __init__(self, module: GraphModule, seen: Sequence[Any], taken: list[int]) -> None:
        self.module = module
        self.seen = seen
        self.taken = taken
        symbols = {v.node._expr: i for i, v in enumerate(seen) if is_symbol(v)}
        self._places = list(symbols.values())
        numbers = [expr_of(n) for value in seen for n in _numbers(value)]
        self._computed = integers_of(numbers, list(symbols))
        self._kinds = [_form(value) for value in seen]
        guarded = [seen[i] for i in self._places if not depends_on_data(seen[i])]
        self._env = guarded[0].node.shape_env if guarded else None

    def may_be_compiled(self) -> bool:
        """Whether guards can still be made of what a backend asks of sizes."""
        return self._env is None or self._env.takes_guards

    @classmethod
    def of(cls, body: GraphModule, seen: Sequence[Any]) -> _General | None:
        """None: no size or number varies, some are not among the inputs, or inputs are told by
        examples alone (in a loop's body).
        """
        if any(value is None for value in seen):
            return None
        numbers = [number for value in seen for number in layout_numbers(value)]
        if not numbers:
            return None
        known = {value.node._expr for value in seen if is_symbol(value)}
        if not all(number.node.expr.free_symbols <= known for number in numbers):
            return None
        first = [i for i, value in enumerate(seen) if is_symbol(value)]
        taken = first + [i for i, v in enumerate(seen) if isinstance(v, torch.Tensor)]
        return cls(_over_symbols(body, seen, taken), seen, taken)

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Whether these inputs are as while compiling, but for the values of symbols."""
        given: list[int] = []
        for kind, value in zip(self._kinds, inputs, strict=True):
            if not isinstance(value, torch.Tensor):
                if kind is not None:
                    return False
                continue
            if kind != (value.dtype, value.device, value.requires_grad):
                return False
            given += value.shape
            given += value.stride()
        return self._computed(*[inputs[i] for i in self._places]) == given


def _numbers(value: Any) -> Sequence[Any]:
    return (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else ()


def _form(value: Any) -> Any:
    """The properties of a tensor besides its numbers; None: it is a number itself."""
    tensor = isinstance(value, torch.Tensor)
    return (value.dtype, value.device, value.requires_grad) if tensor else None


def _over_symbols(body: GraphModule, seen: Sequence[Any], taken: Sequence[int]) -> GraphModule:
    """The body with its symbols as the first inputs, of which other numbers are computed."""
    graph = Graph()
    places = [node for node in body.graph.nodes if node.op == "placeholder"]
    made: dict[Node, Any] = {}
    for i in taken:
        made[places[i]] = graph.node_copy(places[i], made.__getitem__)
        made[places[i]].meta.update(val=seen[i], example_value=seen[i])
    by_symbol = {seen[i].node._expr: made[places[i]] for i in taken if is_symbol(seen[i])}
    env = next(seen[i] for i in taken if is_symbol(seen[i])).node.shape_env
    nodes = ExpressionNodes(env, by_symbol.__getitem__, graph.call_function)
    for i, place in enumerate(places):
        if place not in made:
            made[place] = nodes.of(seen[i])
    for node in body.graph.nodes:
        if node not in made:
            made[node] = graph.node_copy(node, made.__getitem__)
    return body.with_graph(graph)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(
        tensor.shape,
        tensor.stride(),
        dtype=tensor.dtype,
        device=tensor.device,
        requires_grad=tensor.requires_grad,
    )


class ControlFlow:
    """A control-flow node with compiled bodies. `bodies` for reports. run: None, if C++ or torch's
    operator runs it.
    """

    def __init__(
        self,
        node: Node,
        module: GraphModule,
        compile_body: Compile,
        static: Mapping[Node, torch.Tensor],
    ) -> None:
        self.node = node
        self.run = RUNS[node.target]
        bound = _bound(node, static)
        layout = _LAYOUTS.get(node.target)
        places = () if layout is None else layout.operands
        seen = [_seen(arg) for place in places for arg in node.args[place]]
        mode = module.meta.get("fake_mode")
        self.bodies = [
            Body(getattr(module, leaf.target), compile_body, bound, seen, mode)
            for leaf in leaves(node.args)
            if isinstance(leaf, Node) and leaf.op == "get_attr"
        ]
        results = leaves(node.meta.get("example_value"))
        self.with_grad = [isinstance(t, torch.Tensor) and t.requires_grad for t in results]

    def prepare(self) -> None:
        """Compile the bodies for the operands that capture saw, if their sizes are known."""
        layout = _LAYOUTS.get(self.node.target)
        if layout is None:
            return
        seen = [_seen(arg) for place in layout.operands for arg in self.node.args[place]]
        for body in self.bodies:
            if body.general is not None:
                body.compile_general(body.general)
            elif all(map(_is_known, seen)):
                body.suited(seen)

    def fields(self, node: Node) -> dict[str, Any] | None:
        """The node as a step in C++ (csrc/parts.h), with its operands; None if that cannot be."""
        layout = _LAYOUTS.get(node.target)
        if layout is None:
            return None
        operands = [arg for place in layout.operands for arg in node.args[place]]
        if layout.kind != "while":
            operands.insert(0, node.args[0])
        if not all(isinstance(operand, Node) for operand in operands):
            return None
        return {
            "kind": layout.kind,
            "operands": operands,
            "carried": len(node.args[layout.operands[0]]),
            "bodies": [(body.suited, body.most_known) for body in self.bodies],
            "without_grad": layout.without_grad and (layout.kind == "while" or any(self.with_grad)),
        }

    def __call__(self, args: Sequence[Any]) -> Any:
        """The results, of arguments whose bodies are left out. Raises Unsuited."""
        tensors = [leaf for leaf in leaves(args) if not isinstance(leaf, (bool, int, float))]
        if not all(map(_is_plain, tensors)) or _is_watched():
            raise Unsuited
        assert self.run is not None
        return self.run(self, *args)

    def joined(self, results: Sequence[Any], body: Body, inputs: Sequence[torch.Tensor]) -> Any:
        """The results as autograd sees those of torch's operator; `inputs` in the body's order."""
        if not torch.is_grad_enabled() or not any(self.with_grad):
            return tuple(results)
        late = [
            t for t, unused in zip(inputs, body.unused, strict=True) if unused and t.requires_grad
        ]
        bare = [
            wanted and not r.requires_grad
            for r, wanted in zip(results, self.with_grad, strict=True)
        ]
        if not late and not any(bare):
            return tuple(results)
        if any(bare) or not late:
            late = [t for t in inputs if t.requires_grad]
        return _Joined.apply(len(results), *results, *late)


class _Joined(torch.autograd.Function):
    """The results, which depend on the inputs besides: with gradients of zeros."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.like = [torch.empty(0, dtype=t.dtype, device=t.device) for t in tensors[count:]]
        ctx.sizes = [t.shape for t in tensors[count:]]
        results = tuple(t.view_as(t) for t in tensors[:count])
        exact = [t for t in results if not (t.is_floating_point() or t.is_complex())]
        ctx.mark_non_differentiable(*exact)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        zeros = [like.new_zeros(size) for like, size in zip(ctx.like, ctx.sizes)]
        return (None, *gradients, *zeros)


def _cond(flow: ControlFlow, predicate: Any, operands: Sequence[torch.Tensor]) -> Any:
    body = flow.bodies[0 if bool(predicate) else 1]
    return flow.joined(body(*operands), body, operands)


def _scan(
    flow: ControlFlow,
    carry: Sequence[torch.Tensor],
    rows: Sequence[torch.Tensor],
    more: Sequence[torch.Tensor],
) -> Any:
    (body,) = flow.bodies
    count = len(carry)
    inputs = [*carry, *rows, *more]
    outputs: list[Sequence[torch.Tensor]] = []
    for row in _rows(rows):
        results = body(*carry, *row, *more)
        carry = results[:count]
        outputs.append(results[count:])
    stacked = [torch.stack(column) for column in zip(*outputs)]
    return flow.joined((*carry, *stacked), body, inputs)


def _map(flow: ControlFlow, rows: Sequence[torch.Tensor], more: Sequence[torch.Tensor]) -> Any:
    (body,) = flow.bodies
    outputs = [body(*row, *more) for row in _rows(rows)]
    stacked = [torch.stack(column) for column in zip(*outputs)]
    return flow.joined(stacked, body, [*rows, *more])


def _rows(tensors: Sequence[torch.Tensor]) -> Any:
    """The tensors' slices along the first dimension, together."""
    if not tensors or any(not t.dim() or t.shape[0] != tensors[0].shape[0] for t in tensors):
        raise Unsuited
    if tensors[0].shape[0] == 0:
        raise Unsuited
    return zip(*[t.unbind(0) for t in tensors])


RUNS: dict[Any, Callable[..., Any] | None] = {
    torch.ops.higher_order.cond: _cond,
    branch: None,
    loop: None,
    torch.ops.higher_order.while_loop: None,
    torch.ops.higher_order.scan: _scan,
    torch.ops.higher_order.map_impl: _map,
}


class _Layout(NamedTuple):
    """kind: of the step in C++. operands: places among the node's arguments of those of its bodies.
    without_grad: whether gradients are for others.
    """

    kind: str
    operands: tuple[int, ...]
    without_grad: bool = False


_LAYOUTS: dict[Any, _Layout] = {
    branch: _Layout("branch", (3,)),
    torch.ops.higher_order.cond: _Layout("branch", (3,), without_grad=True),
    loop: _Layout("loop", (2, 3)),
    torch.ops.higher_order.while_loop: _Layout("while", (2, 3), without_grad=True),
}


def _bound(node: Node, static: Mapping[Node, torch.Tensor]) -> dict[int, torch.Tensor]:
    """The places of a body's inputs with the same parameter or buffer in every iteration."""
    layout = _LAYOUTS.get(node.target)
    if layout is None:
        return {}
    operands = [arg for place in layout.operands for arg in node.args[place]]
    first = len(operands) - len(node.args[layout.operands[-1]])
    return {i: static[n] for i, n in enumerate(operands) if i >= first and n in static}


def flow_of(
    node: Node,
    module: GraphModule,
    compile_body: Compile,
    static: Mapping[Node, torch.Tensor],
) -> ControlFlow | None:
    """The node with compiled bodies; None if it is none of these operators.

    static: parameters and buffers among the inputs of the module.
    """
    if node.op != "call_function" or node.target not in RUNS or node.kwargs:
        return None
    flow = ControlFlow(node, module, compile_body, static)
    if not all(_gives_tensors(body.module) for body in flow.bodies):
        return None
    flow.prepare()
    return flow


def _plain(module: GraphModule, static: Mapping[int, Any]) -> GraphModule:
    """A body whose inputs are told by examples alone."""
    graph = Graph()
    made: dict[Node, Node] = {}
    for index, node in enumerate(module.graph.nodes):
        made[node] = graph.node_copy(node, made.__getitem__)
        if node.op == "placeholder":
            made[node].meta = {"static": True} if index in static else {}
    return module.with_graph(graph)


def _with_numbers(module: GraphModule, numbers: Mapping[int, Any]) -> GraphModule:
    """The body with these numbers in the place of inputs."""
    graph = Graph()
    made: dict[Node, Any] = {}
    for index, node in enumerate(module.graph.nodes):
        made[node] = numbers[index] if index in numbers else graph.node_copy(node, made.__getitem__)
    return module.with_graph(graph)


def _kind(value: Any) -> Any:
    """The part of an input's type for which a body is compiled."""
    if not isinstance(value, torch.Tensor):
        return type(value), value
    return value.dtype, value.shape, value.stride(), value.requires_grad, value.device


def _holds_data(module: GraphModule) -> bool:
    """Whether sizes or numbers in a body depend on data."""
    seen = (_seen(node) for node in module.graph.nodes)
    return any(depends_on_data(n) for value in leaves(list(seen)) for n in layout_numbers(value))


def _used(module: GraphModule) -> list[bool]:
    """For each input of a body, whether gradients of a result may reach it."""
    found: set[Node] = set()
    todo = [module.graph.output_node()]
    while todo:
        node = todo.pop()
        if node not in found and _may_require_grad(node):
            found.add(node)
            todo += node.all_input_nodes
    return [node in found for node in module.graph.nodes if node.op == "placeholder"]


def _may_require_grad(node: Node) -> bool:
    values = leaves(_seen(node))
    return not values or any(not isinstance(v, torch.Tensor) or v.requires_grad for v in values)


def _gives_tensors(module: GraphModule) -> bool:
    results = leaves(module.graph.output_node().args[0])
    return all(isinstance(_seen(result), torch.Tensor) for result in results)


def _seen(arg: Any) -> Any:
    return arg.meta.get("example_value") if isinstance(arg, Node) else arg


def _is_known(seen: Any) -> bool:
    return isinstance(seen, torch.Tensor) and all(
        type(n) is int for n in (*seen.shape, *seen.stride())
    )


def _is_plain(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided


def _is_watched() -> bool:
    """Whether a mode or a transform is to see torch's own operator."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


__all__ = ["Body", "ControlFlow", "Unsuited", "flow_of"]
