"""Control flow on tensors: torch.cond, while_loop, scan, map. Branches and bodies are captured as
graphs; the node calls torch's own operator on them.

torch's Python around the operators (checks, pytrees, dimensions) is captured like user code. Bodies
that do not fit the rules of the operators break the graph, and torch itself words the error.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.foreach_map import foreach_map
from torch.utils import _pytree as pytree

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.polyfills import torch_functions as torch_polyfills
from dynamo.torch.bodies import Body, closed, opened, trace_body, wrap_nest
from dynamo.torch.subgraph import share_lifted
from dynamo.torch.torch_function import FoldedFunctionValue
from dynamo.values.base import Value
from dynamo.values.builder import subclass_builder
from dynamo.values.builtins.table import TABLE, polyfill
from dynamo.values.functions.function import FunctionValue, OpaqueFunctionValue, UserFunctionValue
from dynamo.values.iterators.generator import GeneratorValue
from dynamo.values.iterators.stored_iterators import IteratorValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbol import SymbolValue
from dynamo.values.tensors.fake_calls import run_fake, to_fake
from dynamo.values.tensors.memory_overlap import version_of
from dynamo.values.tensors.tensor import TensorValue
from fxgraph.aot.history import memory_of

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# The functions that users call.
FRONTS = (
    (importlib.import_module("torch._higher_order_ops.cond"), "cond"),
    (importlib.import_module("torch._higher_order_ops.while_loop"), "while_loop"),
    (importlib.import_module("torch._higher_order_ops.scan"), "scan"),
    (importlib.import_module("torch._higher_order_ops.map"), "map"),
    (importlib.import_module("torch._higher_order_ops.associative_scan"), "associative_scan"),
    (importlib.import_module("torch.nn.attention.flex_attention"), "flex_attention"),
)
_OPERATORS = torch.ops.higher_order
_widened = importlib.import_module("torch._higher_order_ops.out_dtype")


class _Refused(Unsupported):
    """The call does not keep a rule of the operator."""

    def __init__(self, operator: str, text: str) -> None:
        super().__init__(breaks.OpError(operator, text))


# -- bodies that may run never, or often ----------------------------------------------------------
def _trace(tx: Interpreter, operator: str, function: Value, inputs: Sequence[Value]) -> Body:
    """Capture a branch or body, which must neither write nor return its inputs, on tensors like
    `inputs`.
    """
    _check_closure(tx, operator, function)
    body = trace_body(tx, function, tuple(inputs), {}, _alone)
    given = [*body.inputs, *(node.meta["example_value"] for node in body.lifted)]
    if not all(isinstance(fake, torch.Tensor) for fake in given):
        raise _Refused(operator, "a branch or body uses a function from outside")
    if any(version_of(fake) for fake in body.inputs):
        raise _Refused(operator, "a branch or body writes its input")
    memory = {memory_of(fake) for fake in given}
    for value in pytree.tree_leaves(opened(tx, body.result)):
        if not isinstance(value, TensorValue):
            raise _Refused(operator, "a branch or body returns something that is no tensor")
        storage = memory_of(value.fake)
        if storage in memory:
            raise _Refused(operator, "a branch or body returns an input, or one tensor twice")
        memory.add(storage)
    return body


def _alone(number: int, fake: torch.Tensor) -> torch.Tensor:
    """A copy in memory of its own, so that aliases inside the body can be recognised."""
    made = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
    return made.requires_grad_(fake.requires_grad)


def _check_closure(tx: Interpreter, operator: str, function: Value) -> None:
    """An iterator from outside would have moved on although the branch did not run."""
    if not isinstance(function, FunctionValue):
        return
    for cell in function.closure(tx):
        if isinstance(cell.contents, (IteratorValue, GeneratorValue)):
            raise _Refused(operator, "a branch or body uses an iterator from outside")


def _unchanged_outside(tx: Interpreter, operator: str, trace: Callable[[], list[Body]]) -> Any:
    """Run `trace`; break if a tensor from outside the bodies was written meanwhile."""
    versions = _versions(tx)
    bodies = trace()
    for body in bodies:
        for node in body.lifted:
            fake = node.meta["example_value"]
            if versions.get(id(fake), node.meta.get("version", 0)) != version_of(fake):
                raise _Refused(operator, "a branch or body writes a tensor from outside")
    return bodies


def _versions(tx: Interpreter) -> dict[int, int]:
    known = tx.output._tensor_values.values()
    return {id(value.fake): version_of(value.fake) for value in known}


def _tensors(operator: str, values: Sequence[Value]) -> list[TensorValue]:
    if not all(isinstance(value, TensorValue) for value in values):
        raise _Refused(operator, "an operand is no tensor")
    return list(values)  # type: ignore[arg-type]


def _flat(tx: Interpreter, body: Body) -> list[TensorValue]:
    """Have the body return a flat tuple; its leaves."""
    leaves = pytree.tree_leaves(opened(tx, body.result))
    body.result = closed(tx, tuple(leaves))
    return leaves


def _check_alike(operator: str, left: Sequence[TensorValue], right: Sequence[TensorValue]) -> None:
    if [_metadata(v) for v in left] != [_metadata(v) for v in right]:
        raise _Refused(operator, "results differ in number, shape, strides, dtype or device")


def _metadata(value: TensorValue) -> tuple[Any, ...]:
    fake = value.fake
    return fake.shape, fake.stride(), fake.dtype, fake.device


def _with_gradient(tensor: torch.Tensor) -> torch.Tensor:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    leaf = tensor.requires_grad_()
    return leaf.new_empty_strided(leaf.shape, leaf.stride()).copy_(leaf)


def _record(tx: Interpreter, operator: Any, args: tuple[Any, ...]) -> Any:
    """The node, and the fake result. Torch's rule for gradients traces the bodies' backward, of
    which capture needs to know only that the results have one.
    """
    with torch.no_grad():
        result = run_fake(tx, "call_function", operator, args, {})
    tensors = [leaf for leaf in pytree.tree_leaves(to_fake(args)) if isinstance(leaf, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        with tx.output.fake_mode:
            result = pytree.tree_map_only(torch.Tensor, _with_gradient, result)
    return tx.output.create_node("call_function", operator, args, {}, result, tx), result


# -- the operators --------------------------------------------------------------------------------
def _cond(tx: Interpreter, pred: Value, true_fn: Value, false_fn: Value, operands: Value) -> Value:
    given = opened(tx, operands)
    if not isinstance(pred, TensorValue) or pred.fake.numel() != 1:
        raise _Refused("cond", "the predicate is no single boolean")
    if not isinstance(given, (tuple, list)):
        raise _Refused("cond", "the operands are no tuple")
    leaves = _tensors("cond", pytree.tree_leaves(given))

    def both() -> list[Body]:
        return [_trace(tx, "cond", function, tuple(given)) for function in (true_fn, false_fn)]

    true, false = _unchanged_outside(tx, "cond", both)
    nests = [opened(tx, body.result) for body in (true, false)]
    _, spec = pytree.tree_flatten(nests[0])
    if spec != pytree.tree_flatten(nests[1])[1]:
        raise _Refused("cond", "the branches return different structures")
    _check_alike("cond", _flat(tx, true), _flat(tx, false))
    lifted = share_lifted(true.graph, false.graph)
    arguments = (*[leaf.node for leaf in leaves], *lifted)
    call = (pred.node, true.attach(tx), false.attach(tx), arguments)
    node, result = _record(tx, _OPERATORS.cond, call)
    return _unflatten(tx, wrap_nest(tx, node, tuple(result)), spec)


def _cond_or_side(
    tx: Interpreter, pred: Value, true_fn: Value, false_fn: Value, operands: Value | None = None
) -> Any:
    """torch.cond; of a predicate that capture knows, it is a call of one side. Of sizes that vary,
    each side is a graph of its own, with a guard.
    """
    known = pred.is_constant() and isinstance(pred.as_constant(), (bool, int, float))
    if known or isinstance(pred, SymbolValue):
        given = [] if operands is None else operands.unpack(tx)
        return true_fn if pred.truth(tx) else false_fn, given, {}
    given = [] if operands is None else [operands]
    return _inlined(torch.cond)(tx, pred, true_fn, false_fn, *given)


def _unflatten(tx: Interpreter, flat: Value, spec: Any) -> Value:
    return closed(tx, pytree.tree_unflatten(flat.unpack(tx), spec))


def _needs_gradient(values: Sequence[Value]) -> bool:
    tensors = [value.fake for value in values if isinstance(value, TensorValue)]
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _while_loop(
    tx: Interpreter, cond_fn: Value, body_fn: Value, carried: Value, additional: Value
) -> Value:
    if additional.unpack(tx):
        raise _Refused("while_loop", "there are additional inputs")
    values = carried.unpack(tx)
    if not all(isinstance(value, TensorValue) for value in values) or _needs_gradient(values):
        # As Python's `while`: iteration by iteration where capture knows the condition, else as a
        # loop of the graph, whose backward follows the iterations that ran.
        return polyfill(tx, torch_polyfills.run_while, cond_fn, body_fn, carried)
    leaves = _tensors("while_loop", values)

    def both() -> list[Body]:
        return [_trace(tx, "while_loop", function, leaves) for function in (cond_fn, body_fn)]

    cond, body = _unchanged_outside(tx, "while_loop", both)
    condition = cond.result
    single = isinstance(condition, TensorValue) and condition.fake.shape == ()
    if not single or condition.fake.dtype is not torch.bool:  # type: ignore[attr-defined]
        raise _Refused("while_loop", "the condition is no single boolean")
    _, spec = pytree.tree_flatten(opened(tx, body.result))
    _check_alike("while_loop", _flat(tx, body), leaves)
    lifted = share_lifted(cond.graph, body.graph)
    arguments = tuple(leaf.node for leaf in leaves)
    call = (cond.attach(tx), body.attach(tx), arguments, lifted)
    with tx.output.fake_mode:
        result = tuple(torch.empty_like(leaf.fake) for leaf in leaves)
    node = tx.output.create_node("call_function", _OPERATORS.while_loop, call, {}, result, tx)
    return _unflatten(tx, wrap_nest(tx, node, result), spec)


def _first_slices(tx: Interpreter, values: Sequence[TensorValue]) -> list[Value]:
    """Values that stand for one step's slices; the nodes that make them are not used."""
    return [value.getitem(tx, ConstantValue(0)) for value in values]


def _scan(
    tx: Interpreter, combine_fn: Value, init: Value, xs: Value, additional_inputs: Value
) -> Value:
    starts = _tensors("scan", init.unpack(tx))
    sequences = _tensors("scan", xs.unpack(tx))
    if additional_inputs.unpack(tx):
        raise _Refused("scan", "there are additional inputs")
    slices = _first_slices(tx, sequences)

    def one() -> list[Body]:
        return [_trace(tx, "scan", combine_fn, [*starts, *slices])]

    (body,) = _unchanged_outside(tx, "scan", one)
    nest = opened(tx, body.result)
    leaves, spec = pytree.tree_flatten(nest)
    if not isinstance(nest, (tuple, list)) or len(nest) != 2:
        raise _Refused("scan", "the body returns no pair of a carry and a result")
    _check_alike("scan", pytree.tree_leaves(nest[0]), starts)
    body.result = closed(tx, tuple(leaves))
    nodes = [tuple(value.node for value in values) for values in (starts, sequences)]
    node, result = _record(tx, _OPERATORS.scan, (body.attach(tx), *nodes, body.lifted))
    return _unflatten(tx, wrap_nest(tx, node, tuple(result)), spec)


def _map(tx: Interpreter, f: Value, xs: Value, pos_args: Value) -> Value:
    sequences = _tensors("map", xs.unpack(tx))
    others = _tensors("map", pos_args.unpack(tx))
    slices = _first_slices(tx, sequences)

    def one() -> list[Body]:
        return [_trace(tx, "map", f, [*slices, *others])]

    (body,) = _unchanged_outside(tx, "map", one)
    _, spec = pytree.tree_flatten(opened(tx, body.result))
    _flat(tx, body)
    arguments = (*[value.node for value in others], *body.lifted)
    call = (body.attach(tx), tuple(value.node for value in sequences), arguments)
    node, result = _record(tx, _OPERATORS.map_impl, call)
    return _unflatten(tx, wrap_nest(tx, node, tuple(result)), spec)


_HANDLERS: dict[str, Callable[..., Value]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
}


def _inlined(function: Any) -> Any:
    """Capture torch's Python around an operator; a break stands at the call, which torch then
    answers by itself.
    """

    def handler(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        return tx.inline(UserFunctionValue(function), args, kwargs)

    return handler


_HANDLERS |= {
    name: _inlined(function)
    for name, function in {
        "flex_attention": torch_polyfills.flex_attention,
        "wrap": torch_polyfills.run_region,
        "strict_mode": torch_polyfills.run_operands,
        "hints_wrapper": torch_polyfills.run_with_hints,
        "wrap_with_set_grad_enabled": torch_polyfills.run_with_grad_mode,
        "wrap_with_autocast": torch_polyfills.run_with_autocast,
    }.items()
}

TABLE[foreach_map] = _inlined(torch_polyfills.foreach_map)


def _out_dtype(tx: Interpreter, op: Value, dtype: Value, *args: Value) -> Value:
    """Compute in the wider type, as torch does without a kernel for the mix."""
    graded = any(isinstance(arg, TensorValue) and arg.fake.requires_grad for arg in args)
    known, real = op.identity()
    if graded or not known or real not in _widened.ALLOWABLE_OPS:
        raise _Refused("out_dtype", "these operands")
    return tx.inline(UserFunctionValue(_widened.out_dtype_dense), [op, dtype, *args], {})


_HANDLERS["out_dtype"] = _out_dtype

for _module, _name in FRONTS:
    _function = getattr(_module, _name)
    TABLE[_function] = _cond_or_side if _function is torch.cond else _inlined(_function)


@subclass_builder(torch._ops.HigherOrderOperator)
def build_higher_order(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """An operator that runs functions."""
    tx.guard(source, "id", obj)
    name = obj.name()
    handler = _HANDLERS.get(name)
    value: Value
    if handler is None:
        value = OpaqueFunctionValue(obj, breaks.UncapturedCall(name), source)
    else:

        def call(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
            return handler(tx, *args, **kwargs)

        value = FoldedFunctionValue(obj, call, source)
    return tx.output.remember(obj, source, value)
