"""symbolic_trace: run a module or function on proxies and record its calls.

Python's control flow runs once and is not recorded; where it would depend on a value, TraceError.
(dynamo captures real programs; this is for writing and testing graphs by hand.)
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import operator
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from fxgraph.args import map_aggregate
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node


class TraceError(ValueError):
    """The program needs the value of a proxy; the text names the use."""


def symbolic_trace(
    root: nn.Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
) -> GraphModule:
    """The graph of `root`, a module or a function.

    concrete_args: argument name -> value, for arguments that are constants of the graph and not
        inputs.

    Raises TraceError where the program needs the value of an input.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, nn.Module) else root.__name__
    gm = GraphModule(tracer.root, graph, "GraphModule" if name == "<lambda>" else name)
    return gm


class Tracer:
    """Records what a module or function does with proxies. Override is_leaf_module to choose which
    modules become call_module nodes.
    """

    graph: Graph
    root: nn.Module

    def trace(
        self, root: nn.Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
    ) -> Graph:
        """Trace `root` into a new graph."""
        self.graph = Graph()
        if isinstance(root, nn.Module):
            self.root, fn = root, type(root).forward
            first: tuple[Any, ...] = (root,)
        else:
            self.root, fn, first = nn.Module(), root, ()
        self._module_names = {id(m): name for name, m in self.root.named_modules()}
        self._tensor_names = {
            id(t): name
            for named in (self.root.named_parameters, self.root.named_buffers)
            for name, t in named(remove_duplicate=False)
        }
        self._attribute_proxies: dict[str, Proxy] = {}
        args, kwargs = self._inputs(fn, len(first), concrete_args or {})
        with _patched(self):
            result = fn(*first, *args, **kwargs)
        self.graph.output(self.create_arg(result))
        return self.graph

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether calls of `m` are recorded whole; torch's own modules are, containers are not."""
        return type(m).__module__.startswith("torch.nn") and not isinstance(m, nn.Sequential)

    def create_proxy(
        self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Proxy:
        """Record one node."""
        arguments = self.create_arg(args), self.create_arg(kwargs)
        return Proxy(self.graph.create_node(op, target, *arguments), self)

    def create_arg(self, value: Any) -> Any:
        """`value` as an argument of a node: proxies become nodes, tensors become get_attr nodes."""
        return map_aggregate(value, self._leaf)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Proxy):
            if leaf._tracer is not self:
                raise TraceError("a proxy of another trace is used")
            return leaf.node
        if isinstance(leaf, torch.Tensor):
            return self.attribute(leaf).node
        if isinstance(leaf, nn.Module):
            raise TraceError(
                f"a module ({type(leaf).__name__}) cannot be an argument of an operation"
            )
        return leaf

    def attribute(self, tensor: torch.Tensor) -> Proxy:
        """The proxy for a parameter, a buffer or a constant."""
        name = self._tensor_names.get(id(tensor))
        if name is None:
            taken = sum(1 for n in self._tensor_names.values() if n.startswith("_tensor_constant"))
            name = f"_tensor_constant{taken}"
            self._tensor_names[id(tensor)] = name
            # A plain attribute: the constant must not turn up in the root's state_dict.
            object.__setattr__(self.root, name, tensor)
        proxy = self._attribute_proxies.get(name)
        if proxy is None:
            proxy = self._attribute_proxies[name] = self.create_proxy("get_attr", name, (), {})
        return proxy

    def call_module(
        self, module: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Trace a call of `module`: a node for a leaf, else the calls inside."""
        name = self._module_names.get(id(module))
        if name is None:
            raise TraceError(
                f"module {type(module).__name__} is not a submodule of the traced root"
            )
        if self.is_leaf_module(module, name):
            return self.create_proxy("call_module", name, args, kwargs)
        return forward(module, *args, **kwargs)

    def owns(self, tensor: Any) -> bool:
        """Whether it is a parameter or buffer of the traced module."""
        return id(tensor) in self._tensor_names

    def _inputs(
        self, fn: Callable[..., Any], bound: int, concrete: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in list(inspect.signature(fn).parameters.values())[bound:]:
            name, kind = parameter.name, parameter.kind
            if name in concrete:
                value = concrete[name]
            elif kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                # How many there are is not known; callers that need them say so by concrete_args.
                continue
            else:
                default = ... if parameter.default is parameter.empty else parameter.default
                value = Proxy(self.graph.placeholder(name, default_value=default), self)
            if kind is parameter.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        return args, kwargs


_lock = threading.RLock()


@contextlib.contextmanager
def _patched(tracer: Tracer) -> Iterator[None]:
    """Module calls and reads of parameters in this thread go through the tracer."""
    with _lock:
        thread = threading.get_ident()
        call, getattribute = nn.Module.__call__, nn.Module.__getattr__

        def traced_call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return call(self, *args, **kwargs)
            return tracer.call_module(self, call, args, kwargs)

        def traced_getattr(self: nn.Module, name: str) -> Any:
            value = getattribute(self, name)
            if isinstance(value, torch.Tensor) and threading.get_ident() == thread:
                return tracer.attribute(value) if tracer.owns(value) else value
            return value

        nn.Module.__call__ = traced_call  # type: ignore[method-assign, assignment]
        nn.Module.__getattr__ = traced_getattr  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            nn.Module.__call__ = call  # type: ignore[method-assign]
            nn.Module.__getattr__ = getattribute  # type: ignore[method-assign]


class Proxy:
    """Stands for the value of a node; operations on the proxy are recorded."""

    def __init__(self, node: Node, tracer: Tracer) -> None:
        self.node = node
        self._tracer = tracer

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tracer = _tracer_of(args, kwargs or {})
        name = getattr(func, "__name__", "")
        if getattr(torch.Tensor, name, None) is func:
            return tracer.create_proxy("call_method", name, args, kwargs or {})
        return tracer.create_proxy("call_function", func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        count = _unpack_count(frame.f_code, frame.f_lasti)
        if count is None:
            raise TraceError(
                f"{self.node.name} is iterated over; its length is not known while tracing"
            )
        return iter([operator.getitem(self, index) for index in range(count)])  # type: ignore[call-overload]

    def __bool__(self) -> bool:
        raise TraceError(f"control flow depends on the value of {self.node.name}")

    def __len__(self) -> int:
        raise TraceError(f"the length of {self.node.name} is not known while tracing")

    def __index__(self) -> int:
        raise TraceError(f"{self.node.name} is used as a Python integer")

    def __int__(self) -> int:
        raise TraceError(f"{self.node.name} is converted to a Python int")

    def __float__(self) -> float:
        raise TraceError(f"{self.node.name} is converted to a Python float")

    def __contains__(self, item: Any) -> bool:
        raise TraceError(f"`in` asks for the value of {self.node.name}")

    def __setitem__(self, index: Any, value: Any) -> None:
        self._tracer.create_proxy("call_function", operator.setitem, (self, index, value), {})

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"


class Attribute(Proxy):
    """`proxy.name`: a method if it is called, an attribute otherwise."""

    def __init__(self, owner: Proxy, name: str) -> None:
        self._owner = owner
        self._name = name
        self._tracer = owner._tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            made = self._tracer.create_proxy(
                "call_function", getattr, (self._owner, self._name), {}
            )
            self._node = made.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._tracer.create_proxy("call_method", self._name, (self._owner, *args), kwargs)


def _tracer_of(args: Any, kwargs: Any) -> Tracer:
    found: list[Tracer] = []

    def look(leaf: Any) -> Any:
        if isinstance(leaf, Proxy):
            found.append(leaf._tracer)
        return leaf

    map_aggregate((args, kwargs), look)
    return found[0]


def _unpack_count(code: Any, offset: int) -> int | None:
    """N if the instruction at `offset` is the `a, b, c = ` of N values."""
    for instruction in dis.get_instructions(code):
        if instruction.offset == offset:
            return instruction.argval if instruction.opname == "UNPACK_SEQUENCE" else None
    return None


def _binary(function: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    def method(self: Proxy, other: Any) -> Any:
        args = (other, self) if reflected else (self, other)
        return self._tracer.create_proxy("call_function", function, args, {})

    return method


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: self._tracer.create_proxy("call_function", function, (self,), {})


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift")
for _name in (*_BINARY, "and", "or", "xor"):
    _function = getattr(operator, f"__{_name}__")
    setattr(Proxy, f"__{_name}__", _binary(_function, False))
    setattr(Proxy, f"__r{_name}__", _binary(_function, True))
    setattr(Proxy, f"__i{_name}__", _binary(getattr(operator, f"__i{_name}__"), False))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "getitem"):
    setattr(Proxy, f"__{_name}__", _binary(getattr(operator, f"__{_name}__"), False))
for _name in ("neg", "pos", "invert", "abs"):
    setattr(Proxy, f"__{_name}__", _unary(getattr(operator, f"__{_name}__")))
