"""loss.backward() inside a frame: a node computes the gradients of the leaves, and what eager's
autograd does with them is captured: the first is stored in `.grad`, others are added in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.kinds import accumulates
from dynamo.polyfills import torch_functions as torch_polyfills
from dynamo.torch.bodies import opened, wrap_nest
from dynamo.torch.checkpoint import refuse_changed
from dynamo.torch.histories import accumulation, has_branch, unsurely_below
from dynamo.torch.untried_backwards import refuse_untried
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.table import handles
from dynamo.values.containers.containers import ListValue, SequenceValue, TupleValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.fake_calls import run_fake
from dynamo.values.tensors.tensor import SPECIAL_METHODS, TensorValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_NONE = ConstantValue(None)
_FALSE = ConstantValue(False)


@handles(torch.autograd.backward)
def _backward(
    tx,
    tensors,
    grad_tensors=_NONE,
    retain_graph=_NONE,
    create_graph=_FALSE,
    grad_variables=_NONE,
    inputs=_NONE,
):
    if not is_none(grad_variables):
        raise _refuse("grad_variables is given")
    return _differentiate(tx, tensors, grad_tensors, retain_graph, create_graph, inputs)


def _tensor_backward(
    tx, tensor, gradient=_NONE, retain_graph=_NONE, create_graph=_FALSE, inputs=_NONE
):
    return _differentiate(tx, tensor, gradient, retain_graph, create_graph, inputs)


SPECIAL_METHODS["backward"] = _tensor_backward


def _refuse(text: str) -> Unsupported:
    return Unsupported(breaks.UncapturedCall(f"Tensor.backward(), where {text}"))


def _differentiate(
    tx: Interpreter,
    tensors: Value,
    gradients: Value,
    retain_graph: Value,
    create_graph: Value,
    inputs: Value,
) -> Value:
    if tx.output.bodies or tx.output.tensors_override:
        raise _refuse("a transform or a tensor subclass is at work")
    hooks = tx.output.context.hooks
    again = bool(create_graph.as_constant())
    if again and hooks is None:  # gradients with a history would leave the graph
        raise _refuse("create_graph is True")
    if tx.call_function(tx.wrap(torch.is_anomaly_enabled), [], {}).as_constant():
        raise _refuse("anomaly mode is on")
    retained = _retained(tx)
    if retained and again:
        raise _refuse("create_graph is True, and a tensor is to retain its grad")
    if hooks is not None:
        tensors, gradients = hooks.before_backward(tx, tensors, gradients)
    outputs = _tensors(tx, tensors)
    given = None if is_none(gradients) else _tensors(tx, gradients, allow_none=True)
    leaves, functions = _leaves_below(tx, outputs)
    refuse_untried(tx, functions)
    if not is_none(inputs):
        chosen = _tensors(tx, inputs)
        if not all(one in leaves for one in chosen) or retained:
            raise _refuse("inputs are no leaves, or do not take part")
        leaves = chosen
    retained = [one for one in retained if one.fake.grad_fn in functions]
    if not leaves:
        raise _refuse("there is no leaf, or autograd raises")
    if any(leaf.fake.layout is not torch.strided for leaf in leaves):
        raise _refuse("a leaf is sparse")
    branched = has_branch(functions)
    if branched and (again or retained):
        raise Unsupported(breaks.BranchedGradients("the history or strides of gradients"))
    unsure = unsurely_below(functions, [one.fake for one in outputs])
    for leaf in leaves:
        if accumulation(leaf.fake) in unsure:
            raise Unsupported(breaks.BranchedGradients(f"whether {leaf.describe()} has a gradient"))
    for leaf in leaves:
        tx.guard(leaf.source, "accumulates", None)
    settings = {"retain_graph": retain_graph.as_constant(), "allow_unused": True}
    if again:
        settings["create_graph"] = True
    if given is not None:
        settings["grad_outputs"] = tuple(_proxy(one) for one in given)
    targets = [*leaves, *retained]
    places = tuple(_proxy(one) for one in outputs), tuple(one.as_proxy() for one in targets)
    refuse_changed(tx)
    found = run_fake(tx, "call_function", torch.autograd.grad, places, settings)
    if any(one is not None and one.layout is not torch.strided for one in found):
        raise _refuse("a gradient is sparse")
    node = tx.output.create_node("call_function", torch.autograd.grad, places, settings, found, tx)
    copies = _copied_strides(tx, leaves, found, again or branched)
    ours = wrap_nest(tx, node, found)
    assert isinstance(ours, TupleValue)
    gradients_of_leaves = ours.items(tx)[: len(leaves)]
    pairs = zip(leaves, gradients_of_leaves, copies, strict=True)
    kept = [TupleValue([*pair, tx.wrap(copy)]) for *pair, copy in pairs if not is_none(pair[1])]
    store = torch_polyfills.accumulate_histories if again else torch_polyfills.accumulate_gradients
    tx.inline(tx.wrap(store), [TupleValue(kept)], {})
    rest = zip(retained, ours.items(tx)[len(leaves) :], strict=True)
    wanted = [TupleValue([*pair]) for pair in rest if not is_none(pair[1])]
    if wanted:
        tx.inline(tx.wrap(torch_polyfills.retain_gradients), [TupleValue(wanted)], {})
    return _NONE


def _retained(tx: Interpreter) -> list[TensorValue]:
    """Intermediates whose gradients are to stay, in a Graph that lets none of them out."""
    hooks = tx.output.context.hooks
    for value, history in tx.output.watched.hooked:
        if hooks is None or not hooks.detaches or not value.fake.retains_grad:
            raise _refuse("a tensor has a hook that the frame registers, or is to retain its grad")
        if value.history() is not history:
            raise _refuse("a tensor that is to retain its grad was written")
    return [value for value, _ in tx.output.watched.hooked]


def _tensors(tx: Interpreter, value: Value, allow_none: bool = False) -> list[Any]:
    """The tensors of a tensor or a sequence of them."""
    items = list(opened(tx, value)) if isinstance(value, (TupleValue, ListValue)) else [value]
    if isinstance(value, SequenceValue) and not isinstance(value, (TupleValue, ListValue)):
        raise _refuse(f"{value.describe()} is given")
    for item in items:
        fits = isinstance(item, TensorValue) or (allow_none and is_none(item))
        if not fits:
            raise _refuse(f"{item.describe()} is given")
    return items


def _proxy(value: Value) -> Any:
    return value.as_proxy() if isinstance(value, TensorValue) else None


def _history(fake: torch.Tensor) -> Any:
    try:
        return fake.grad_fn
    except RuntimeError as error:  # of a view whose base was written in another grad mode
        raise _refuse(str(error).partition(".")[0]) from None


def _leaves_below(
    tx: Interpreter, outputs: Sequence[TensorValue]
) -> tuple[list[TensorValue], set[Any]]:
    """The leaves that get a gradient, as the fake tensors' own autograd has it, and the functions
    that it goes through. Breaks where gradients would flow to operations before the graph.
    """
    outside = {}
    for item in tx.output.inputs:
        fake = item.node.meta["example_value"]
        history = _history(fake) if isinstance(fake, torch.Tensor) else None
        if history is not None:
            outside[history] = item.source.name
    todo = [one.fake.grad_fn for one in outputs if one.fake.grad_fn is not None]
    leaves = [one for one in outputs if one.fake.is_leaf and one.fake.requires_grad]
    seen = set(todo)
    while todo:
        function = todo.pop()
        if function in outside:
            raise Unsupported(breaks.OutsideHistory(outside[function]))
        variable = getattr(function, "variable", None)
        if variable is not None:
            leaf = tx.output.fake_value(variable)
            if leaf is None:
                raise _refuse("a leaf is not of the graph")
            leaves.append(leaf)
        for following, _ in function.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    for leaf in leaves:
        if leaf.real is not None and not accumulates(leaf.real):
            raise Unsupported(breaks.OutsideHistory(leaf.describe()))
    return list(dict.fromkeys(leaves)), seen


def _copied_strides(
    tx: Interpreter, leaves: Sequence[TensorValue], found: Any, always: bool
) -> list[tuple[int, ...] | None]:
    """For each gradient, the strides of the copy that autograd stores of it, or None: it stores the
    gradient itself, since its memory is its alone and it is laid out like the leaf (and not
    `always` a copy).
    """
    fakes = [value.fake for value in tx.output.tensor_values()]
    known = {fake.untyped_storage()._cdata for fake in fakes if torch._C._has_storage(fake)}
    owners = Counter(one.untyped_storage()._cdata for one in found if one is not None)
    copies: list[tuple[int, ...] | None] = []
    for leaf, gradient in zip(leaves, found):  # those of leaves come first
        if gradient is None:
            copies.append(None)
            continue
        wanted = torch.empty_like(leaf.fake).stride()
        if wanted != leaf.fake.stride():  # the leaf has gaps
            wanted = _contiguous(gradient.shape)
        strides = zip(gradient.shape, gradient.stride(), wanted, strict=True)
        fits = all(size == 1 or mine == its for size, mine, its in strides)
        memory = gradient.untyped_storage()._cdata
        alone = memory not in known and owners[memory] == 1 and not always
        copies.append(None if fits and alone else wanted)
    return copies


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides))[: len(shape)]
