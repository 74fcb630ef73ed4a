"""Tensors that wrap others (classes with __tensor_flatten__ and __torch_dispatch__), taken apart.

before                                 after
    y = x * 2         | wraps a, b         p = aten.mul.Tensor(a, 2)
    return (y,)                            q = aten.mul.Tensor(b, 2)
                                           return (p, q)     # the caller is given a wrapper of them

What a class does with an operator, its __torch_dispatch__ says: it runs on wrappers of fake
tensors, and the operators that it calls on these are recorded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
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
from fxgraph.aot.functionalize import tracing
from fxgraph.args import leaves, map_aggregate
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.interpreter import Interpreter
from fxgraph.node import Node
from fxgraph.symbols import is_symbolic
from fxgraph.torch_fx import fake_tensor_mode


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
        names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        inner = {name: wrapper_of(getattr(tensor, name)) for name in names}
        return cls(type(tensor), inner, context, tuple(tensor.shape), tensor.stride())

    def take_apart(self, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """The plain tensors inside, with their names from the outermost on."""
        for name, wrapper in self.inner.items():
            held = getattr(tensor, name)
            if wrapper is None:
                yield name, held
            else:
                for path, plain in wrapper.take_apart(held):
                    yield f"{name}.{path}", plain

    def is_like(self, other: Wrapper | None) -> bool:
        """Whether both hold as many plain tensors, at the same places, and say the same of them."""
        if other is None or other.cls is not self.cls or other.inner.keys() != self.inner.keys():
            return False
        pairs = [(self.inner[name], other.inner[name]) for name in self.inner]
        return other.context == self.context and all(
            b is None if a is None else a.is_like(b) for a, b in pairs
        )

    def put_together(self, plain: Iterator[torch.Tensor]) -> torch.Tensor:
        inner = {
            name: next(plain) if wrapper is None else wrapper.put_together(plain)
            for name, wrapper in self.inner.items()
        }
        return self.cls.__tensor_unflatten__(inner, self.context, self.size, self.stride)


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
    outputs: of each result the number of the input that it is, its wrapper, or None.
    """

    graph_module: GraphModule
    example_inputs: list[Any]
    inputs: list[Wrapper | None]
    outputs: list[int | Wrapper | None]


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
    return Plain(module, trace.examples, trace.wrappers, outputs)


class Trace:
    """What the graph does with wrappers of fake tensors, recorded.

    fakes: its inputs; wrappers: of each; examples: the real tensors in them. results: its own.
    writes: whether it writes to an input.
    """

    def __init__(self, gm: GraphModule, example_inputs: Sequence[Any], *, grad: bool) -> None:
        self.record = _Recorder()
        self.mode = fake_tensor_mode()
        self.fakes: list[Any] = []
        self.examples: list[Any] = []
        self.wrappers: list[Wrapper | None] = []
        self._gm = gm
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        for node, example in zip(placeholders, example_inputs, strict=True):
            self._add_input(node, example)
        held = [list(map(id, plain_leaves(fake))) for fake in self.fakes]
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
        for fake, wrapper, before in zip(self.fakes, self.wrappers, held, strict=True):
            if wrapper is not None and (
                list(map(id, plain_leaves(fake))) != before or Wrapper.of(fake) != wrapper
            ):
                raise Unfunctionalizable("a tensor subclass is given other tensors to wrap")

    def _versions(self) -> list[int]:
        seen = [one for fake in self.fakes for one in (fake, *plain_leaves(fake))]
        return [one._version for one in seen]

    def _add_input(self, node: Node, example: Any) -> None:
        if not isinstance(example, torch.Tensor) or _has_symbols(node.meta["example_value"]):
            raise Unfunctionalizable("sizes that vary beside tensor subclasses")
        fake: Any = self.mode.from_tensor(example, static_shapes=True)
        wrapper = wrapper_of(example)
        parts = [("", example)] if wrapper is None else list(wrapper.take_apart(example))
        for (path, real), one in zip(parts, plain_leaves(fake), strict=True):
            if self.record.has(one):
                raise Unfunctionalizable("a tensor that is given twice beside tensor subclasses")
            self.record.add_input(node, path, one)
            self.examples.append(real)
        self.fakes.append(fake)
        self.wrappers.append(wrapper)

    def module(self, graph: Graph) -> GraphModule:
        names = {node.target for node in graph.find_nodes(op="get_attr")}
        module = GraphModule({name: self.record.attributes[name] for name in names}, graph)
        module.meta.update(self._gm.meta, fake_mode=self.mode)
        return module


def _has_symbols(val: Any) -> bool:
    if not isinstance(val, torch.Tensor):
        return is_symbolic(val)
    return any(map(is_symbolic, (*val.shape, *val.stride())))


def plain_leaves(value: Any) -> list[Any]:
    wrapper = wrapper_of(value)
    return [value] if wrapper is None else [leaf for _, leaf in wrapper.take_apart(value)]


class _Recorder(TorchDispatchMode):
    """Records the operators of plain tensors; those of wrappers their classes take apart."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = Graph()
        self.attributes: dict[str, torch.Tensor] = {}
        self.stack_trace: str | None = None
        self._nodes: dict[int, Node] = {}
        self._alive: list[torch.Tensor] = []  # the ids are of these

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as aot/trace.py's

    def add_input(self, source: Node, path: str, fake: torch.Tensor) -> None:
        suffix = path.replace(".", "_")
        node = self.graph.placeholder(f"{source.target}_{suffix}" if path else str(source.target))
        node.meta.update(source.meta, val=fake, example_value=fake)
        node.meta["version"] = fake._version
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
        node.meta.update(val=fake, example_value=fake, source=name, version=fake._version)
        self._bind(fake, node)
        return node

    def has(self, fake: torch.Tensor) -> bool:
        return id(fake) in self._nodes

    def node_of(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            if is_symbolic(leaf):
                raise Unfunctionalizable("a size that varies beside tensor subclasses")
            return leaf
        if id(leaf) not in self._nodes:
            raise Unfunctionalizable("a tensor subclass reads a tensor that is no input")
        return self._nodes[id(leaf)]

    def _bind(self, fake: torch.Tensor, node: Node) -> None:
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
        if not made and not func._schema.is_mutable:
            return result
        node = self.graph.call_function(
            func, map_aggregate(args, self.node_of), map_aggregate(kwargs, self.node_of)
        )
        node.meta.update(val=result, example_value=result, stack_trace=self.stack_trace)
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
        self._record.stack_trace = n.meta.get("stack_trace")
        return super().run_node(n)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        real = super().get_attr(target, args, kwargs)
        if not isinstance(real, torch.Tensor) or is_traceable_wrapper_subclass(real):
            raise Unfunctionalizable("a body or a constant beside tensor subclasses")
        if target not in self._fakes:
            fake = self._fakes[target] = self._mode.from_tensor(real, static_shapes=True)
            self._record.add_attribute(target, real, fake)
        return self._fakes[target]


class WithWrappers:
    """Calls what was compiled of a plain graph with the tensors inside, and wraps the results."""

    def __init__(self, compiled: Callable[..., Any], plain: Plain, static: Sequence[bool]) -> None:
        self.compiled = compiled
        self.binds_static = getattr(compiled, "binds_static", False)
        self.compile_report = getattr(compiled, "compile_report", None)
        kept = [not (self.binds_static and fixed) for fixed in static]
        self._inputs = [w for w, keeps in zip(plain.inputs, kept, strict=True) if keeps]
        places = [sum(kept[:i]) for i in range(len(kept))]
        self._outputs = [places[o] if isinstance(o, int) else o for o in plain.outputs]

    def __call__(self, *inputs: Any) -> Any:
        flat: list[Any] = []
        for value, wrapper in zip(inputs, self._inputs, strict=True):
            if wrapper is None:
                flat.append(value)
            else:
                flat += [held for _, held in wrapper.take_apart(value)]
        plain = iter(self.compiled(*flat))
        return tuple(
            inputs[one] if isinstance(one, int)
            else next(plain) if one is None
            else one.put_together(plain)
            for one in self._outputs
        )  # fmt: skip
