"""Bodies of transforms, branches and loops: from a function Value to a graph of its own, and nests
of arguments and results between the captured code and the graph.
"""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.torch.subgraph import Subgraph
from dynamo.values.base import Value
from dynamo.values.containers.containers import ListValue, NamedTupleValue, SizeValue, TupleValue
from dynamo.values.containers.dicts import DictValue, OrderedDictValue
from dynamo.values.objects.exceptions import RaisedException
from dynamo.values.tensors.fake_calls import run_fake, to_fake
from dynamo.values.tensors.tensor import TensorValue, value_class
from fxgraph import GraphModule, Node
from fxgraph.args import leaves, map_aggregate
from fxgraph.higher_order import dispatch_keys_kept, forget_frames

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


# -- nests ----------------------------------------------------------------------------------------
def opened(tx: Interpreter, value: Value) -> Any:
    """The nest of Values that `value` is for torch's pytrees; a leaf stands for itself."""
    if isinstance(value, SizeValue):
        return value
    if isinstance(value, NamedTupleValue):
        if hasattr(value.cls, "_fields"):
            return value.cls(*[opened(tx, v) for v in value.items(tx)])
    elif isinstance(value, (TupleValue, ListValue)) and value.cls in (tuple, list):
        return value.cls([opened(tx, v) for v in value.items(tx)])
    if isinstance(value, DictValue) and value.cls in (dict, collections.OrderedDict):
        keys = [key.as_constant() for key in value.keys(tx)]
        return value.cls(zip(keys, [opened(tx, v) for v in value.values(tx)]))
    if _is_other_nest(value):
        raise Unsupported(breaks.NotGraphArgument(value.describe()))
    return value


def _is_other_nest(value: Value) -> bool:
    """A nest for torch's pytrees (a defaultdict, a dataclass) that is not opened here."""
    try:
        return value.python_type() in pytree.SUPPORTED_NODES
    except Unsupported:
        return False


def closed(tx: Interpreter, nest: Any) -> Value:
    """The Value of a nest of Values: new containers."""
    if isinstance(nest, Value):
        return nest
    if isinstance(nest, dict):
        entries: Any = {key: (tx.wrap(key), closed(tx, item)) for key, item in nest.items()}
        made = OrderedDictValue if isinstance(nest, collections.OrderedDict) else DictValue
        return tx.output.side_effects.track_new(made(entries))
    items: list[Any] = [closed(tx, item) for item in nest]
    if type(nest) is list:
        return tx.output.side_effects.track_new(ListValue(items))
    return TupleValue(items) if type(nest) is tuple else NamedTupleValue(type(nest), items)


def proxies(nest: Any) -> Any:
    """The nest with nodes and constants in the place of Values; None for objects that no graph
    knows.
    """

    def proxy(value: Value) -> Any:
        return value.as_proxy() if isinstance(value, TensorValue) or _is_plain(value) else None

    return pytree.tree_map(proxy, nest)


def _is_plain(value: Value) -> bool:
    return value.is_constant() and isinstance(
        value.as_constant(), (int, float, complex, bool, str, type(None), torch.dtype)
    )


def constant(value: Value) -> Any:
    """A setting of a transform, as a constant of the graph."""
    return value.as_constant()


# -- results --------------------------------------------------------------------------------------
class GraphFunctionValue(Value):
    """A function returned by a node of the graph: torch.func.vjp's second result."""

    def __init__(self, node: Node, function: Any) -> None:
        super().__init__()
        self.node = node
        self.function = function

    def python_type(self) -> type:
        return type(self.function)

    def describe(self) -> str:
        return "a function made by a transform"

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        from fxgraph.higher_order import call

        nest = proxies(opened(tx, TupleValue(list(args))))
        named = {key: proxies(opened(tx, value)) for key, value in kwargs.items()}
        return record(tx, call, (self.node, nest, named))


def record(tx: Interpreter, target: Any, args: tuple[Any, ...]) -> Value:
    """Put a call of `target` into the graph, and give its result, a nest."""
    result = run_body(tx, target, args)
    node = tx.output.create_node("call_function", target, args, {}, result, tx)
    return wrap_nest(tx, node, result)


def run_body(tx: Interpreter, target: Any, args: tuple[Any, ...]) -> Any:
    """The fake result of a call that runs bodies.

    Some nests of transforms fail on fake tensors only; small real ones take their place.
    """
    with dispatch_keys_kept(), _without_cache(tx.output.fake_mode):
        try:
            return run_fake(tx, "call_function", target, args, {})
        except Unsupported as error:
            reason, cause = error.reason, error.__cause__
            error.__cause__ = None
            forget_frames(error)
            forget_frames(cause)
    if isinstance(cause, (AssertionError, RuntimeError)) and _is_fault_of_fakes(str(cause)):
        result = _run_on_zeros(tx, target, args)
        if result is not None:
            return result[0]
    raise Unsupported(reason)


@contextmanager
def _without_cache(mode: Any) -> Iterator[None]:
    """torch keeps the metadata of fake results for all modes of the process; of what a transform
    runs, it keeps whether a result requires grad too, which does not hold elsewhere.
    """
    before, mode.cache_enabled = mode.cache_enabled, False
    remembered, mode.remembers = mode.remembers, False
    try:
        yield
    finally:
        mode.cache_enabled = before and mode.shape_env is None  # symbols do without, too
        mode.remembers = remembered


def _is_fault_of_fakes(text: str) -> bool:
    """Transforms nested deeply lead to operators that get no fake tensors."""
    return "FakeTensor" in text or "INTERNAL ASSERT" in text


_ZEROS_LIMIT = 1 << 16


def _run_on_zeros(tx: Interpreter, target: Any, args: tuple[Any, ...]) -> tuple[Any] | None:
    """The fake result, from running the call on small real tensors; None if that does not do."""

    def zeros(fake: Any) -> Any:
        if not isinstance(fake, torch.Tensor):
            return fake
        made = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
        return made.zero_().requires_grad_(fake.requires_grad)

    def fake(real: Any) -> Any:
        if not isinstance(real, torch.Tensor):
            return real
        options: Any = {"dtype": real.dtype, "device": real.device}
        with tx.output.fake_mode:
            made = torch.empty_strided(real.shape, real.stride(), **options)
        return made.requires_grad_(real.requires_grad)

    fakes = to_fake(args)
    if sum(leaf.numel() for leaf in leaves(fakes) if isinstance(leaf, torch.Tensor)) > _ZEROS_LIMIT:
        return None
    with dispatch_keys_kept():
        try:
            return (map_aggregate(target(*map_aggregate(fakes, zeros)), fake),)
        except Exception as error:
            forget_frames(error)
            return None


def wrap_nest(tx: Interpreter, node: Node, result: Any) -> Value:
    """The Value of a node's result."""
    if isinstance(result, torch.Tensor):
        return tx.output.tensor_value(node, result, value_class(result))
    if isinstance(result, dict):
        pairs = [(key, _item(tx, node, key, item)) for key, item in result.items()]
        return closed(tx, type(result)(pairs))
    if isinstance(result, (tuple, list)) and type(result) is not torch.Size:
        items = [_item(tx, node, i, item) for i, item in enumerate(result)]
        kind: Any = type(result)
        return closed(tx, kind(*items) if hasattr(kind, "_fields") else kind(items))
    if callable(result):
        return GraphFunctionValue(node, result)
    return tx.wrap(result)


def _item(tx: Interpreter, node: Node, key: Any, item: Any) -> Value:
    if isinstance(item, torch.Tensor):
        known = tx.output.fake_value(item)
        if known is not None:
            return known
    elif not (isinstance(item, (tuple, list, dict)) or callable(item)):
        return tx.wrap(item)
    child = tx.output.create_node("call_function", operator.getitem, (node, key), {}, item, tx)
    return wrap_nest(tx, child, item)


# -- bodies ---------------------------------------------------------------------------------------
@dataclass
class Body:
    """A captured body. `result`: the nest of Values it returned. `graph`: the graph with its
    nodes.
    """

    graph: Subgraph
    result: Value
    inputs: list[torch.Tensor]  # the fakes of its own arguments

    def attach(self, tx: Interpreter) -> Node:
        """The node of the enclosing graph that holds the body as a module."""
        output = tx.output
        outputs = self.graph.local(proxies_of_result(opened(tx, self.result)))
        module = self.graph.finish(outputs)
        return attach(tx, module, output)

    @property
    def lifted(self) -> tuple[Node, ...]:
        return tuple(self.graph.lifted)


def attach(tx: Interpreter, module: GraphModule, output: Any) -> Node:
    """A get_attr node for a finished body."""
    holder = output.bodies[-1].root if output.bodies else output.root
    name = f"body_{len(holder._modules)}"
    holder.add_module(name, module)
    return output.create_node("get_attr", name, (), {}, module, tx)


def proxies_of_result(nest: Any) -> Any:
    """The result of a body, as the argument of its output node."""
    return pytree.tree_map(lambda value: value.as_proxy(), nest)


def _is_handled(tx: Interpreter | None) -> bool:
    while tx is not None:
        if tx.current.handler is not None:
            return True
        tx = tx.parent
    return False


@contextmanager
def body_scope(tx: Interpreter, runs_once: bool = False) -> Iterator[Subgraph]:
    """Inside, nodes go into a new graph, and the body's own exception is a break: the call runs
    natively. Nothing outside changes but in a body that runs once: capture has run its Python then.
    """
    output = tx.output
    subgraph = Subgraph(output.bodies[-1] if output.bodies else None)
    effects = output.side_effects

    def escapes(value: Value) -> bool:
        node = getattr(value, "node", None)
        return isinstance(node, Node) and node.graph is subgraph.graph

    grad, finalizable = torch.is_grad_enabled(), dict(output.finalizable)
    output.bodies.append(subgraph)
    try:
        with effects.watched(escapes) if runs_once else effects.fenced():
            yield subgraph
    except RaisedException as error:
        output.finalizable = finalizable
        raised = error.value.describe()
        if _is_handled(tx):
            raise Unsupported(breaks.BodyRaises(raised)) from error
        raise Unsupported(breaks.UncaughtException(raised)) from error
    except BaseException:
        output.finalizable = finalizable  # what the body has made never was
        raise
    finally:
        output.bodies.pop()
        torch._C._set_grad_enabled(grad)


def trace_body(
    tx: Interpreter,
    function: Value,
    args: Any,
    kwargs: dict[str, Any],
    make_fake: Callable[[int, torch.Tensor], torch.Tensor],
    grad_enabled: bool | None = None,
    runs_once: bool = False,
    at_end: Callable[[Interpreter], None] | None = None,
) -> Body:
    """Capture function(*args, **kwargs), where args and kwargs are nests of Values; each tensor in
    them becomes an input of the body.

    make_fake: (number of the leaf, outer fake) -> the fake that the body sees. runs_once: the call
    runs the function's Python once, which may change objects outside. at_end: called in the body,
    behind the function.
    """
    values, spec = pytree.tree_flatten((tuple(args), kwargs))
    inputs: list[torch.Tensor] = []
    with body_scope(tx, runs_once) as graph:
        inner: list[Value] = []
        for number, value in enumerate(values):
            if not isinstance(value, TensorValue):
                inner.append(value)
                continue
            if value.fake.requires_grad and value.fake.is_inference():
                raise Unsupported(breaks.InferenceMode())
            with tx.output.fake_mode:
                fake = make_fake(number, value.fake)
            made = value_class(fake)
            plain = value.python_type() in (torch.Tensor, torch.nn.Parameter)
            if made is TensorValue and not plain:  # its class would be lost
                raise Unsupported(breaks.NotGraphArgument(value.describe()))
            inputs.append(fake)
            node = graph.placeholder(f"arg_{len(inputs) - 1}", fake)
            inner.append(tx.output.tensor_value(node, fake, made))
        if grad_enabled is not None:
            torch._C._set_grad_enabled(grad_enabled)
        nested, named = pytree.tree_unflatten(inner, spec)
        given = [closed(tx, item) for item in nested]
        by_name = {key: closed(tx, item) for key, item in named.items()}
        result = tx.call_function(function, list(given), dict(by_name))
        pairs = [*zip(nested, given), *((named[key], by_name[key]) for key in named)]
        if not all(_is_unwritten(tx, nest, value) for nest, value in pairs):
            raise Unsupported(breaks.UncapturedCall("a write to a container that a body is given"))
        if at_end is not None:
            at_end(tx)
        return Body(graph, result, inputs)


def _is_unwritten(tx: Interpreter, nest: Any, value: Value) -> bool:
    """Whether the Value that `closed` made of the nest is as it was. A body's containers are
    copies: what it writes to them the caller would not see.
    """
    if isinstance(nest, Value):
        return value is nest
    if isinstance(nest, dict):
        if not isinstance(value, DictValue):
            return False
        keys = [key.as_constant() for key in value.keys(tx)]
        given, found = list(nest.values()), value.values(tx)
        if keys != list(nest):
            return False
    elif isinstance(value, (TupleValue, ListValue, NamedTupleValue)):
        given, found = list(nest), value.items(tx)
    else:
        return False
    same = functools.partial(_is_unwritten, tx)
    return len(given) == len(found) and all(map(same, given, found))


def same_fake(number: int, fake: torch.Tensor) -> torch.Tensor:
    """Another tensor with the metadata of `fake`, in the same memory, with its gradient flag."""
    return fake.detach().requires_grad_(fake.requires_grad)


def differentiable(number: int, fake: torch.Tensor) -> torch.Tensor:
    """The same, with a gradient wherever its type can have one."""
    floating = fake.dtype.is_floating_point or fake.dtype.is_complex
    if fake.is_inference() and not torch.is_inference_mode_enabled():
        raise Unsupported(breaks.UnknownObject("inference tensor that requires a gradient"))
    return fake.detach().requires_grad_(floating)
