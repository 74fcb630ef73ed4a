"""Tensors that wrap others (classes with __tensor_flatten__ and __torch_dispatch__), taken apart.

before                                 after
    y = x * 2         | wraps a, b         p = aten.mul.Tensor(a, 2)
    return (y,)                            q = aten.mul.Tensor(b, 2)
                                           return (p, q)     # the caller is given a wrapper of them

A class defines each operator by its __torch_dispatch__: that runs on wrappers of fake tensors, and
the operators that it calls on these are recorded.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    is_traceable_wrapper_subclass,
    is_traceable_wrapper_subclass_type,
)

from fxgraph.aot.functional import Unfunctionalizable
from fxgraph.aot.functionalize import refuse_switch, tracing, version_of
from fxgraph.args import leaves, map_aggregate
from fxgraph.effects import of_overload
from fxgraph.expression_nodes import ExpressionNodes
from fxgraph.expressions import evaluate
from fxgraph.fake_results import make_fake, metadata
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.interpreter import Interpreter
from fxgraph.node import Node
from fxgraph.symbolic_values import is_ragged, is_symbol, is_symbolic, layout_numbers
from fxgraph.torch_fx import fake_tensor_mode
from fxgraph.wrapper_parts import flatten, unflatten, without_sizes

# Symbol -> its value in a call.
Numbers = Mapping[Any, Any]


def _is_symbol(leaf: Any) -> bool:
    return is_symbolic(leaf) and not is_ragged(leaf)


def number_of(leaf: Any, numbers: Numbers) -> Any:
    """The value in a call of a number that may be symbolic."""
    return evaluate(leaf.node.expr, numbers) if _is_symbol(leaf) else leaf


@dataclass
class Wrapper:
    """How a wrapper is made again. inner: name -> that of a wrapper inside, or None for a plain
    tensor.
    """

    cls: Any
    inner: dict[str, Wrapper | None]
    context: Any
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Wrapper:
        names, context = flatten(tensor)
        inner = {name: wrapper_of(getattr(tensor, name)) for name in names}
        return cls(type(tensor), inner, context, tuple(tensor.shape), tensor.stride())

    def flatten(self, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """The plain tensors inside, with their names from the outermost on."""
        for name, wrapper in self.inner.items():
            held = getattr(tensor, name)
            if wrapper is None:
                yield name, held
            else:
                for path, plain in wrapper.flatten(held):
                    yield f"{name}.{path}", plain

    def is_like(self, other: Wrapper | None) -> bool:
        """Whether both hold as many plain tensors, at the same places, and say the same of them."""
        if other is None or other.cls is not self.cls or other.inner.keys() != self.inner.keys():
            return False
        pairs = [(self.inner[name], other.inner[name]) for name in self.inner]
        return without_sizes(other.context) == without_sizes(self.context) and all(
            b is None if a is None else a.is_like(b) for a, b in pairs
        )

    def unflatten(self, plain: Iterator[torch.Tensor], numbers: Numbers) -> torch.Tensor:
        """The wrapper of these inner tensors; numbers: values of the symbols in its sizes and
        context.
        """
        inner = {
            name: next(plain) if wrapper is None else wrapper.unflatten(plain, numbers)
            for name, wrapper in self.inner.items()
        }
        told = self.context, self.size, self.stride
        if self.varies:
            told = map_aggregate(told, lambda leaf: number_of(leaf, numbers))
        return unflatten(self.cls, inner, *told)

    @functools.cached_property
    def varies(self) -> bool:
        """Whether a symbol is among the sizes or in the context."""
        return any(map(_is_symbol, leaves((self.context, self.size, self.stride))))


def wrapper_of(value: Any) -> Wrapper | None:
    is_wrapper = isinstance(value, torch.Tensor) and is_traceable_wrapper_subclass(value)
    return Wrapper.of(value) if is_wrapper else None


def has_wrappers(gm: GraphModule) -> bool:
    """Whether an input or a result of a call in the graph is a wrapper."""
    kinds = {type(node.meta.get("example_value")) for node in gm.graph.nodes}
    return any(issubclass(k, torch.Tensor) and is_traceable_wrapper_subclass_type(k) for k in kinds)


@dataclass
class Plain:
    """A graph of plain tensors alone. inputs: of each input of the graph that it was, its wrapper.
    outputs: of each result the number of the input that it is, its wrapper, or None. symbols: of
    each the number of the input that is its value.
    """

    graph_module: GraphModule
    example_inputs: list[Any]
    inputs: list[Wrapper | None]
    outputs: list[int | Wrapper | None]
    symbols: dict[Any, int]


def plain_graph(gm: GraphModule, example_inputs: Sequence[Any]) -> Plain:
    """The graph for running without autograd. Raises Unfunctionalizable."""
    trace = Trace(gm, example_inputs, grad=False)
    outputs: list[int | Wrapper | None] = []
    flat: list[Any] = []
    for result in trace.results:
        same = [i for i, fake in enumerate(trace.fakes) if fake is result]
        if same and trace.wrappers[same[0]] is not None:
            outputs.append(same[0])
            continue
        outputs.append(wrapper_of(result))
        flat += [trace.record.node_of(leaf) for leaf in plain_leaves(result)]
    trace.record.graph.output(tuple(flat))
    module = trace.module(trace.record.graph)
    return Plain(module, trace.examples, trace.wrappers, outputs, trace.symbols)


class Trace:
    """A recording of the graph's operations on wrappers of fake tensors.

    fakes: its inputs; wrappers: of each; examples: the real tensors in them. results: its own.
    writes: whether it writes to an input.
    """

    def __init__(self, gm: GraphModule, example_inputs: Sequence[Any], *, grad: bool) -> None:
        self.record = _Recorder()
        self.mode = fake_tensor_mode()
        given: Any = gm.meta.get("fake_mode")
        if given is not None and given.shape_env is not None:
            self.mode.shape_env, self.mode.cache_enabled = given.shape_env, False  # type: ignore[misc]
            self.record.allow_symbols(given.shape_env)
        self.fakes: list[Any] = []
        self.examples: list[Any] = []
        self.wrappers: list[Wrapper | None] = []
        self._gm = gm
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        for node, example in zip(placeholders, example_inputs, strict=True):
            self._add_input(node, example)
        held = self._held()
        versions = self._versions()
        with tracing(grad=grad), self.mode, self.record:
            try:
                self.results = _Run(gm, self.record, self.mode).run(*self.fakes)
            except Unfunctionalizable:
                raise
            except Exception as error:  # of the class
                raise Unfunctionalizable(
                    f"{type(error).__name__} in a tensor subclass: {error}"
                ) from error
        self.writes = versions != self._versions()
        if not isinstance(self.results, tuple):
            raise Unfunctionalizable("results in a nest beside tensor subclasses")
        if self._held() != held:
            raise Unfunctionalizable("a tensor subclass is given other tensors to wrap")

    @property
    def symbols(self) -> dict[Any, int]:
        """Symbol -> the number of the input that is its value."""
        return {one.node.expr: i for i, one in enumerate(self.fakes) if is_symbol(one)}

    def _held(self) -> list[Any]:
        """Layouts of what the inputs wrap."""
        parts = [(fake, one) for fake in self.fakes for one in plain_leaves(fake)]
        return [
            (wrapper_of(fake), id(one), metadata(one) if isinstance(one, torch.Tensor) else None)
            for fake, one in parts
        ]

    def _versions(self) -> list[int]:
        tensors = [fake for fake in self.fakes if isinstance(fake, torch.Tensor)]
        seen = [one for fake in tensors for one in (fake, *plain_leaves(fake))]
        return [version_of(one) for one in seen]

    def _add_input(self, node: Node, example: Any) -> None:
        like = node.meta.get("example_value", example)  # a body's has none
        if not isinstance(like, torch.Tensor):
            if not is_symbol(like):
                raise Unfunctionalizable("a number that is no symbol beside tensor subclasses")
            self.record.add_symbol(node, like)
            self.examples.append(example)
            self.fakes.append(like)
            self.wrappers.append(None)
            return
        fake: Any = self._fake(example, like)
        wrapper = wrapper_of(example)
        parts = [("", example)] if wrapper is None else list(wrapper.flatten(example))
        for (path, real), one in zip(parts, plain_leaves(fake), strict=True):
            if self.record.has(one):
                raise Unfunctionalizable("a tensor that is given twice beside tensor subclasses")
            self.record.add_input(node, path, one)
            self.examples.append(real)
        self.fakes.append(fake)
        self.wrappers.append(wrapper)

    def _described(self, example: torch.Tensor) -> torch.Tensor:
        """The fake tensor, which leaves no weak reference to the example: a parameter that has one
        can't be exchanged for another (torch.utils.swap_tensors, of Module.to).
        """
        fake = self.mode.from_tensor(example, static_shapes=True)
        if is_traceable_wrapper_subclass(example):
            self.mode.fake_tensor_converter.meta_converter.describer.lookup_tensor.pop(example)
        return fake

    def _fake(self, example: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """The input; like: of which sizes are symbols, as capture found them."""
        if not layout_numbers(like):
            try:
                return self._described(example)
            except AssertionError as error:  # of another shape when unflattened
                raise Unfunctionalizable("a tensor subclass of another shape") from error
        if is_traceable_wrapper_subclass(example):
            names, context = flatten(example)
            inner = {
                name: self._fake(getattr(example, name), getattr(like, name)) for name in names
            }
            with self.mode, torch.enable_grad():
                place = like.shape, like.stride()
                fake = unflatten(type(example), inner, context, *place)
                fake.requires_grad_(example.requires_grad)
                return fake if example.is_leaf else fake.clone()
        fake = make_fake(self.mode, *metadata(like))
        fake.requires_grad_(example.requires_grad)
        if example.is_leaf:
            return fake
        with self.mode, torch.enable_grad():
            return fake.view_as(fake)

    def module(self, graph: Graph) -> GraphModule:
        names = {node.target for node in graph.find_nodes(op="get_attr")}
        module = GraphModule({name: self.record.attributes[name] for name in names}, graph)
        module.meta.update(self._gm.meta, fake_mode=self.mode)
        return module


def plain_leaves(value: Any) -> list[Any]:
    wrapper = wrapper_of(value)
    return [value] if wrapper is None else [leaf for _, leaf in wrapper.flatten(value)]


class _Recorder(TorchDispatchMode):
    """Records the operators of plain tensors; those of wrappers their classes take apart."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = Graph()
        self.attributes: dict[str, torch.Tensor] = {}
        self.place: dict[str, Any] = {}  # in the program, of the next nodes
        self.symbols: dict[Any, Node] = {}  # symbol -> its placeholder
        self._numbers: ExpressionNodes | None = None
        self._lifts = False  # the operator takes a tensor that was just made of numbers
        self._nodes: dict[int, Node] = {}
        self._alive: list[torch.Tensor] = []  # the ids are of these

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as aot/trace.py's

    def add_input(self, source: Node, path: str, fake: torch.Tensor) -> None:
        suffix = path.replace(".", "_")
        node = self.graph.placeholder(f"{source.target}_{suffix}" if path else str(source.target))
        node.meta.update(source.meta, val=fake, example_value=fake)
        node.meta["version"] = version_of(fake)
        if path:
            node.meta["source"] = f"{source.meta.get('source', source.name)}.{path}"
            node.meta.pop("static", None)
        self._bind(fake, node)

    def add_attribute(self, name: str, real: torch.Tensor, fake: torch.Tensor) -> None:
        self.attributes[name] = real
        node = self.graph.get_attr(name)
        node.meta.update(val=fake, example_value=fake)
        self._bind(fake, node)

    def add_tangent(self, name: str, fake: torch.Tensor) -> Node:
        node = self.graph.placeholder(name)
        node.meta.update(val=fake, example_value=fake, source=name, version=version_of(fake))
        if not self.has(fake):  # not the offsets of a jagged tensor, which are the forward's
            self._bind(fake, node)
        return node

    def has(self, fake: torch.Tensor) -> bool:
        return id(fake) in self._nodes

    def allow_symbols(self, env: Any) -> None:
        self._numbers = ExpressionNodes(env, self._symbol_node, self._number_node)

    def add_symbol(self, source: Node, value: Any) -> None:
        node = self.graph.placeholder(str(source.target))
        node.meta.update(source.meta, val=value, example_value=value)
        self.symbols[value.node.expr] = node

    def _symbol_node(self, symbol: Any) -> Node:
        if symbol not in self.symbols:
            raise Unfunctionalizable(f"the number {symbol} is not among the inputs")
        return self.symbols[symbol]

    def _number_node(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Node:
        return self.graph.call_function(function, args)

    def node_of(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            if is_ragged(leaf):
                raise Unfunctionalizable("a ragged size as an argument")
            if is_symbolic(leaf):
                if self._numbers is None:
                    raise Unfunctionalizable(f"the number {leaf} is not among the inputs")
                return self._numbers.of(leaf)
            return leaf
        if id(leaf) not in self._nodes:
            fresh = self._lifts or leaf.dim() == 0  # torch.tensor(...), and numbers
            if not fresh or isinstance(leaf, FakeTensor) or type(leaf) is not torch.Tensor:
                raise Unfunctionalizable("a tensor subclass reads a tensor that is no input")
            name = f"_subclass_constant{len(self.attributes)}"
            self.add_attribute(name, leaf, leaf)
        return self._nodes[id(leaf)]

    def _bind(self, fake: torch.Tensor, node: Node) -> None:
        if fake.layout is not torch.strided:
            raise Unfunctionalizable("a sparse tensor beside tensor subclasses")
        self._nodes[id(fake)] = node
        self._alive.append(fake)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(is_traceable_wrapper_subclass_type(kind) for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        if torch.Tag.data_dependent_output in func.tags:
            raise Unfunctionalizable(f"{func} reads data beside tensor subclasses")
        result = func(*args, **kwargs)
        made = [leaf for leaf in leaves(result) if isinstance(leaf, torch.Tensor)]
        if any(isinstance(leaf, torch.ScriptObject) for leaf in leaves((args, kwargs))):
            raise Unfunctionalizable(f"{func} takes an object of C++")
        if not made and not of_overload(func).impure():
            return result
        self._lifts = func is torch.ops.aten.lift_fresh.default
        node = self.graph.call_function(
            func, map_aggregate(args, self.node_of), map_aggregate(kwargs, self.node_of)
        )
        node.meta.update(val=result, example_value=result, **self.place)
        self._bind_all(node, result)
        return result

    def _bind_all(self, node: Node, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            if not isinstance(result, FakeTensor):
                raise Unfunctionalizable("a tensor subclass computes with a real tensor")
            self._bind(result, node)
        elif isinstance(result, (tuple, list)):
            for i, item in enumerate(result):
                if isinstance(item, (torch.Tensor, tuple, list)):
                    item_node = self.graph.call_function(operator.getitem, (node, i))
                    item_node.meta.update(val=item, example_value=item)
                    self._bind_all(item_node, item)


class _Run(Interpreter):
    def __init__(self, gm: GraphModule, record: _Recorder, mode: Any) -> None:
        super().__init__(gm)
        self._record, self._mode = record, mode
        self._fakes: dict[str, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        self._record.place = n.place()
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        refuse_switch(target)
        return super().call_function(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        real = super().get_attr(target, args, kwargs)
        if not isinstance(real, torch.Tensor) or is_traceable_wrapper_subclass(real):
            raise Unfunctionalizable("a body or a constant beside tensor subclasses")
        if target not in self._fakes:
            fake = self._fakes[target] = self._mode.from_tensor(real, static_shapes=True)
            self._record.add_attribute(target, real, fake)
        return self._fakes[target]


class WithWrappers:
    """Calls the function compiled of a plain graph with the inner tensors, and wraps the
    results.
    """

    def __init__(self, compiled: Callable[..., Any], plain: Plain, static: Sequence[bool]) -> None:
        self.compiled = compiled
        self.binds_static = getattr(compiled, "binds_static", False)
        self.compile_report = getattr(compiled, "compile_report", None)
        kept = [not (self.binds_static and fixed) for fixed in static]
        self._inputs = [w for w, keeps in zip(plain.inputs, kept, strict=True) if keeps]
        places = [sum(kept[:i]) for i in range(len(kept))]
        self._symbols = {symbol: places[i] for symbol, i in plain.symbols.items()}
        self._outputs = [places[o] if isinstance(o, int) else o for o in plain.outputs]

    def __call__(self, *inputs: Any) -> Any:
        flat: list[Any] = []
        for value, wrapper in zip(inputs, self._inputs, strict=True):
            if wrapper is None:
                flat.append(value)
            else:
                flat += [held for _, held in wrapper.flatten(value)]
        plain = iter(self.compiled(*flat))
        numbers = {symbol: inputs[place] for symbol, place in self._symbols.items()}
        return tuple(
            inputs[one] if isinstance(one, int)
            else next(plain) if one is None
            else one.unflatten(plain, numbers)
            for one in self._outputs
        )  # fmt: skip
