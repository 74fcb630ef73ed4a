"""copy.copy and copy.deepcopy of tensors and parameters.

A deep copy of a parameter is a leaf of autograd, which no graph can make: the rewritten frame makes
that of an unwritten tensor from outside before it calls the graph. A tensor that the frame made or
wrote is copied in the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.polyfills import library as polyfills
from dynamo.polyfills import torch_functions as torch_polyfills
from dynamo.values.base import Value
from dynamo.values.builtins.table import handles, polyfill
from dynamo.values.effects.hoisted_modules import hoist
from dynamo.values.tensors.autograd_state import ask_leaf
from dynamo.values.tensors.tensor import TensorValue, tensor_has_symbols
from fxgraph import effects
from fxgraph.aot.history import memory_of

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def is_plain(tensor: torch.Tensor) -> bool:
    """A tensor without attributes of its own and without a gradient, which copies would have."""
    return not tensor.__dict__ and tensor.grad is None


def copy_tensor(tx: Interpreter, x: TensorValue) -> Value:
    """copy.copy(x): another leaf with the same memory."""
    _check(tx, x, "copy")
    if not ask_leaf(tx, x) or (x.real is not None and not is_plain(x.real)):
        raise uncaptured_copy(x, "copy")
    tx.guard(x.source, "predicate", is_plain)
    return polyfill(tx, torch_polyfills.copy_tensor, x)


@handles(polyfills.copied_tensor)
def _deep_copy(tx, x):
    _check(tx, x, "deepcopy")
    if not ask_leaf(tx, x):
        raise uncaptured_copy(x, "deepcopy")  # raises its own error
    parameter = isinstance(x.fake, torch.nn.Parameter)
    if not parameter:
        if x.real is not None and not is_plain(x.real):
            raise uncaptured_copy(x, "deepcopy")
        tx.guard(x.source, "predicate", is_plain)
    if x.real is not None and x.source is not None and _shares_memory(tx, x.real):
        raise uncaptured_copy(x, "deepcopy")  # the copies share theirs
    if _can_be_first(tx, x):
        made = torch_polyfills.deep_parameter if parameter else torch_polyfills.deep_tensor
        return hoist(tx, made, made(_blank(x.real)), x.source)
    if parameter:
        return polyfill(tx, torch_polyfills.deep_parameter, x)
    if not _is_whole(x.fake):
        raise uncaptured_copy(x, "deepcopy")
    return polyfill(tx, torch_polyfills.deep_tensor, x)


def uncaptured_copy(x: Value, function: str) -> Unsupported:
    return Unsupported(breaks.UncapturedCall(f"copy.{function} of {x.python_type().__name__}"))


def _check(tx: Interpreter, x: TensorValue, function: str) -> None:
    """Break for all but plain tensors in memory without attributes that the frame stored, and
    where a function mode sees the steps of a copy.
    """
    known = not tx.output.modes.asked and type(x) is TensorValue and x.fake.layout is torch.strided
    if not known or tx.output.side_effects.stored_attrs(x):
        raise uncaptured_copy(x, function)


def _shares_memory(tx: Interpreter, tensor: torch.Tensor) -> bool:
    memory = tensor.untyped_storage()._cdata
    others = (item.example for item in tx.output.inputs if isinstance(item.example, torch.Tensor))
    return any(
        other is not tensor
        and torch._C._has_storage(other)
        and other.untyped_storage()._cdata == memory
        for other in others
    )


def _can_be_first(tx: Interpreter, x: TensorValue) -> bool:
    """A tensor from outside, of constant sizes, that nothing in the graph so far may write."""
    if x.real is None or x.source is None or tx.output.bodies or tensor_has_symbols(x.fake):
        return False
    if torch.is_inference_mode_enabled() or not x.fake.requires_grad:
        return False
    memory = memory_of(x.fake)
    return not any(
        effects.of(node).impure(random=False)
        and any(memory == _memory(given) for given in node.all_input_nodes)
        for node in tx.output.graph.nodes
        if node.op.startswith("call_")
    )


def _memory(node: Any) -> int | None:
    value = node.meta.get("example_value")
    return memory_of(value) if isinstance(value, torch.Tensor) else None


def _blank(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of this form, without content."""
    with torch.no_grad():
        made = torch.empty_like(tensor)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)


def _is_whole(fake: torch.Tensor) -> bool:
    """Whether a tensor fills its memory alone, without gaps: a clone has the same layout."""
    whole = fake.untyped_storage().nbytes() == fake.numel() * fake.element_size()
    return whole and torch.empty_like(fake).stride() == fake.stride()
