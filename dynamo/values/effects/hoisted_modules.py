"""Modules and parameters that the captured code makes: the rewritten frame makes them, natively,
before it calls the graph, and they are inputs of the graph like any others.

A parameter is a leaf of autograd, at which compiled parts of a graph end (one of a computed tensor
is made between them, fxgraph/aot/split.py), and the initial values of a module are drawn from
torch's random numbers in the order of its constructor. Making them first is the same as making them
in place as long as nothing before them draws random numbers, and their arguments are constant;
otherwise the graph breaks at the call, and it runs natively there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as module_globals
from torch.utils.hooks import RemovableHandle

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, MadeSource, ModuleSource, Source
from dynamo.polyfills import torch_functions as torch_polyfills
from dynamo.values.base import Value
from dynamo.values.builtins.table import handles, polyfill
from dynamo.values.late_bound import bound_late
from dynamo.values.scalars.constant import is_literal
from dynamo.values.tensors.fake_calls import run_fake
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from fxgraph import Node

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# Their arguments are modules: captured like user code.
_CONTAINERS = (
    torch.nn.Sequential,
    torch.nn.ModuleList,
    torch.nn.ModuleDict,
    torch.nn.ParameterList,
    torch.nn.ParameterDict,
)
_FACTORIES: frozenset[Any] = frozenset(
    [torch.zeros, torch.ones, torch.full, torch.empty, torch.eye, torch.arange, torch.linspace]
    + [torch.rand, torch.randn, torch.tensor]
)
_DRAWS: tuple[str, ...] = (
    "rand",
    "seed",
    "rng",
    "drop",
    "normal",
    "uniform",
    "bernoulli",
    "multinomial",
    "poisson",
    "exponential",
)
_DRAWS += ("geometric", "cauchy", "rrelu", "gumbel", "attention", "lstm", "gru", "rnn")
_REGISTRATION_HOOKS = (
    "_global_parameter_registration_hooks",
    "_global_buffer_registration_hooks",
    "_global_module_registration_hooks",
)
# The namespaces whose functions are known by these names.
_KNOWN_PACKAGES = ("torch", "_operator", "builtins")


@dataclass(frozen=True)
class HoistedCall:
    """function(), or function(receiver) of an object from outside, before the graph."""

    function: Callable[..., Any]
    receiver: Source | None = None


def make_module(
    tx: Interpreter, cls: type, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """cls(*args, **kwargs) for a module class of torch with tensors of its own; None for others,
    whose constructors are captured.
    """
    if getattr(torch.nn, cls.__name__, None) is not cls or issubclass(cls, _CONTAINERS):
        return None
    if not all(_is_literal(value) for value in (*args, *kwargs.values())):
        return None
    if hooks_watch_registration(tx):
        return None
    made = _maker(cls, args, kwargs)
    hooks = RemovableHandle.next_id
    example = _example(made)
    if RemovableHandle.next_id != hooks:  # their numbers, by which modules hold them, vary
        RemovableHandle.next_id = hooks
        raise Unsupported(breaks.UncapturedCall(f"torch.nn.{cls.__name__}, which registers hooks"))
    if example is None or not [*example.parameters(), *example.buffers()]:
        return None
    if not can_be_first(tx, None):
        raise Unsupported(breaks.UncapturedCall(f"torch.nn.{cls.__name__}, which draws numbers"))
    return hoist(tx, made, example)


def hooks_watch_registration(tx: Interpreter) -> bool:
    """Whether hooks of all modules see parameters, buffers or children come (which is guarded)."""
    source = ModuleSource(module_globals.__name__)
    for name in _REGISTRATION_HOOKS:
        tx.guard(AttrSource(source, name), "length", len(getattr(module_globals, name)))
    return any(getattr(module_globals, name) for name in _REGISTRATION_HOOKS)


def _is_literal(value: Value) -> bool:
    return (value.is_constant() or value.is_symbolic()) and is_literal(value.as_constant())


def _maker(
    function: Callable[..., Any], args: Sequence[Value], kwargs: dict[str, Value]
) -> Callable[[], Any]:
    named = {name: value.as_constant() for name, value in kwargs.items()}
    return functools.partial(function, *(value.as_constant() for value in args), **named)


def _example(made: Callable[[], Any]) -> Any:
    """An example of the objects, made without a change of the random state; None if making it
    fails.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        try:
            return made()
        except Exception:
            return None


def can_be_first(tx: Interpreter, own: Node | None) -> bool:
    """Nothing before has drawn random numbers or changed how tensors are made, and no torch
    function mode of the program sees how.
    """
    output = tx.output
    if torch.get_default_dtype() is not output.default_dtype or torch.is_inference_mode_enabled():
        return False
    if output.function_modes or output.modes.asked or torch._C._len_torch_function_stack():
        return False
    return not any(_may_draw(node) for node in output.graph.nodes if node is not own)


def _may_draw(node: Node) -> bool:
    if not node.op.startswith("call_"):
        return False
    name = node.target if isinstance(node.target, str) else _name(node.target)
    package = "torch" if isinstance(node.target, str) else _package(node.target)
    return package not in _KNOWN_PACKAGES or any(draw in name for draw in _DRAWS)


def _name(target: Any) -> str:
    return str(getattr(target, "__name__", target)).lower()


def _package(target: Any) -> str:
    module = getattr(target, "__module__", None) or "torch"
    return str(module).split(".")[0]


def hoist(
    tx: Interpreter, made: Callable[..., Any], example: Any, receiver: Source | None = None
) -> Value:
    """Hoist a call: made(), or made(receiver), runs before the graph, and its result is a value
    from outside like `example`.
    """
    output = tx.output
    output.hoisted_calls.append(HoistedCall(made, receiver))
    output.side_effects.touch()
    return tx.wrap(example, MadeSource(len(output.hoisted_calls) - 1))


# -- parameters -----------------------------------------------------------------------------------
def _leaf(cls: type) -> Callable[..., Value]:
    def make(tx, data=None, *args, **kwargs):
        if data is None or not isinstance(data, TensorValue):
            raise Unsupported(breaks.UncapturedCall(f"torch.nn.{cls.__name__}"))
        literal = all(_is_literal(value) for value in (*args, *kwargs.values()))
        if not literal or not _is_fresh(data) or not can_be_first(tx, data.node):
            plain = literal and type(data) is TensorValue
            if plain and cls is torch.nn.Parameter:
                return call_in_graph(tx, "call_function", cls, [data, *args], kwargs)
            if plain and not data.fake.requires_grad:
                return polyfill(tx, torch_polyfills.new_buffer, data, *args, **kwargs)
            raise Unsupported(
                breaks.UncapturedCall(f"torch.nn.{cls.__name__} of a computed tensor")
            )
        node = data.node
        factory = functools.partial(node.target, *node.args, **node.kwargs)
        options = {name: value.as_constant() for name, value in kwargs.items()}
        made = functools.partial(
            make_leaf, cls, factory, *(value.as_constant() for value in args), **options
        )
        leaf = hoist(tx, made, _example(made))
        _share(tx, data, leaf)
        return leaf

    return make


def make_leaf(
    cls: Callable[..., Any], factory: Callable[[], Any], *args: Any, **kwargs: Any
) -> Any:
    """A parameter or buffer of a new tensor."""
    return cls(factory(), *args, **kwargs)


def _is_fresh(data: TensorValue) -> bool:
    """A tensor straight from a factory, which nothing has used."""
    node = data.node
    return (
        node.op == "call_function"
        and node.target in _FACTORIES
        and not node.users
        and is_literal((*node.args, *node.kwargs.values()))
    )


def _share(tx: Interpreter, data: TensorValue, leaf: Any) -> None:
    """The tensor that the leaf was made of is the leaf's storage, without its gradient."""
    output, factory = tx.output, data.node
    fake = run_fake(tx, "call_function", torch.Tensor.detach, (leaf.node,), {})
    data.node = output.create_node("call_function", torch.Tensor.detach, (leaf.node,), {}, fake, tx)
    output.graph.erase_node(factory)
    output.adopt(fake, data)


def requires_grad(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, which requires a gradient from now on."""
    return tensor.requires_grad_()


def requires_no_grad(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, which requires no gradient from now on."""
    return tensor.requires_grad_(False)


@bound_late
def requires_from_start(tx: Interpreter, value: TensorValue, wanted: bool) -> bool:
    """Whether a leaf made before the graph, which nothing has used, requires a gradient (`wanted`)
    from the start, or none.
    """
    source = value.source
    if source is None or not source.made_by_frame or value.node.users or not value.fake.is_leaf:
        return False
    made = [item for item in tx.output.inputs if item.node is value.node]
    for item in made:
        item.example.requires_grad_(wanted)
        value.fake.requires_grad_(wanted)
        function = requires_grad if wanted else requires_no_grad
        tx.output.hoisted_calls.append(HoistedCall(function, source))
        tx.output.side_effects.touch()
    return bool(made)


handles(torch.nn.Parameter)(_leaf(torch.nn.Parameter))
handles(torch.nn.Buffer)(_leaf(torch.nn.Buffer))
