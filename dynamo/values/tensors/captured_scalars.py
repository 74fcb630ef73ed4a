"""Numbers that are read from tensors: captured where operations take them, and nothing breaks the
graph on their account (framestate/attempts.py), or config.capture_scalar_outputs says so.

`n = x.item()` is a node of the graph then, and n a symbol without a value (u0): what the captured
code does with it may depend on it only as far as torch._check(...) has told.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.polyfills import torch_functions as torch_polyfills
from dynamo.values.base import Value
from dynamo.values.builtins.table import TABLE, handles
from dynamo.values.containers.containers import ListValue, TupleValue
from dynamo.values.containers.ranges import SliceValue
from dynamo.values.late_bound import bound_late
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import as_index
from dynamo.values.scalars.symbol import SymbolValue, condition_of, deciding
from dynamo.values.tensors.deferred_scalar import branch_item, branch_scalar
from dynamo.values.tensors.memory_overlap import version_of
from dynamo.values.tensors.tensor import READ_METHODS, TensorValue, call_in_graph
from dynamo.values.tensors.tensor_calls import target_name
from fxgraph import Node, effects
from fxgraph.args import leaves
from fxgraph.expressions import FORMS, is_integral, negated
from fxgraph.sym_node import SymNode
from fxgraph.symbolic_values import expr_of, hint_of
from fxgraph.symbols import DataDependent, ShapeEnv

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def _item(tx: Interpreter, tensor: TensorValue) -> Value | None:
    deferred = branch_item(tx, tensor)
    if deferred is not None:
        return deferred
    if not tx.output.symbols.data.reads_captured() or tensor.fake.dtype.is_complex:
        return None
    return _read(tx, tensor)


def _read(tx: Interpreter, tensor: TensorValue) -> Value:
    known = _of_this_call(tx, tensor)
    if known is not None:
        return known
    number = call_in_graph(tx, "call_method", "item", [tensor], {})
    if isinstance(number, SymbolValue) and _counts(tensor.node):
        number.env.constrain_symbol_range(number.symbolic.node.expr, 0, math.inf)
    return number


def _of_this_call(tx: Interpreter, tensor: TensorValue) -> Value | None:
    """The number that an input without dimensions holds, guarded, if one graph cannot do without
    it; each other number is compiled for itself then.
    """
    output, fake = tx.output, tensor.fake
    if not output.context.fullgraph or fake.dim() or fake.device.type != "cpu":
        return None
    given = _unwritten_input(tx, tensor.node)
    if given is None:
        return None
    output.reads_inputs = True
    if not output.plan.fixes_inputs:
        return None
    number = given.example.item()
    tx.guard(given.source, "predicate", _Holds(number))
    return ConstantValue(number)


def _unwritten_input(tx: Interpreter, node: Node) -> Any:
    """The input of the graph that is this tensor of one integer, as the frame was given it; None:
    the tensor is something else.
    """
    fake = node.meta["example_value"]
    if fake.dim() or fake.device.type != "cpu" or fake.is_floating_point() or fake.is_complex():
        return None
    return _unwritten(tx, node)


def _unwritten(tx: Interpreter, node: Node) -> Any:
    """The input of the graph that is this tensor, as the frame was given it; None: another one."""
    output, fake = tx.output, node.meta["example_value"]
    given = next((item for item in output.inputs if item.node is node), None)
    if given is None or version_of(fake) != given.node.meta["version"]:
        return None
    for other in output.graph.nodes:  # of the same memory, perhaps
        if effects.of(other).writes and _takes(other, fake.dtype):
            return None
    return given


def _takes(node: Node, dtype: torch.dtype) -> bool:
    """Whether a node takes a tensor of a dtype."""
    fakes = (arg.meta.get("example_value") for arg in node.all_input_nodes)
    held = [fake for value in fakes for fake in leaves(value) if isinstance(fake, torch.Tensor)]
    return not held or any(fake.dtype is dtype for fake in held)


# Gives the inverse of its counter to batch_norm (with momentum=None): a tensor serves as well.
_AVERAGES = torch.nn.modules.batchnorm._BatchNorm.forward.__code__
_MOST_TRUTHS = 2  # of one frame: each combination is a compilation
_CHAIN = frozenset(["eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mod", "remainder"])


@bound_late
def truth_of_input(tx: Interpreter, tensor: TensorValue) -> bool | None:
    """The truth of a counter or flag that is an input, or of a comparison of one with a number,
    guarded: a branch on that is compiled for each side, without a break. None: of other tensors.
    """
    output, chain, node = tx.output, [], tensor.node
    if output.bodies or output.guesses or output.context.export or tensor.fake.dim():
        return None
    while node.op.startswith("call_"):
        name = target_name(node.target)
        literal = len(node.args) == 2 and type(node.args[1]) in (int, bool)
        if name not in _CHAIN or not literal or node.kwargs or not isinstance(node.args[0], Node):
            return None
        chain.append((node.op, node.target, node.args[1]))
        node = node.args[0]
    given = _unwritten_input(tx, node)
    if given is None:
        return None
    known = output.guarded_truths | {(given.node, *(step[1:] for step in chain))}
    if len(known) > _MOST_TRUTHS:
        return None
    written = any(effects.of(node).writes for node in output.graph.nodes)
    if written and not _has_own_memory(given.example):
        return None
    output.guarded_truths = known
    truth = _Truth(chain[::-1], True, written)
    truth.expected = truth(given.example)
    tx.guard(given.source, "predicate", truth)
    return truth.expected


class _Truth:
    """Whether comparisons with numbers, one of the result of another, have this truth. alone: the
    frame has written to other memory before.
    """

    def __init__(self, chain: list[tuple[str, Any, int]], expected: bool, alone: bool) -> None:
        self.chain = chain
        self.expected = expected
        self.alone = alone

    @property
    def __name__(self) -> str:
        steps = "".join(f" {target_name(target)} {number}" for _, target, number in self.chain)
        return f"it{steps} is {self.expected}"

    def __call__(self, tensor: torch.Tensor) -> bool:
        if self.alone and not _has_own_memory(tensor):
            return False
        for op, target, number in self.chain:
            function = getattr(torch.Tensor, target) if op == "call_method" else target
            tensor = function(tensor, number)
        return bool(tensor) is self.expected


def _has_own_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor of one number is no part of a larger one."""
    return tensor.untyped_storage().nbytes() == tensor.element_size()


@handles(torch_polyfills.is_causal_mask)
def _is_causal(tx: Interpreter, mask: Value) -> Value:
    """Whether a mask is causal, guarded of an input; a hint: False is right for any mask."""
    given = _unwritten(tx, mask.node) if isinstance(mask, TensorValue) else None
    if given is None or tx.output.bodies or tx.output.guesses or tx.output.context.export:
        return ConstantValue(False)
    truth = _Causal(torch_polyfills.is_causal_mask(given.example))
    tx.guard(given.source, "predicate", truth)
    return ConstantValue(truth.expected)


class _Causal:
    """Whether a mask being causal has this truth."""

    def __init__(self, expected: bool) -> None:
        self.expected = expected
        self.__name__ = f"it is causal is {expected}"

    def __call__(self, mask: torch.Tensor) -> bool:
        return torch_polyfills.is_causal_mask(mask) is self.expected


class _Holds:
    """Whether a tensor holds this number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.__name__ = f"its value is {number}"

    def __call__(self, tensor: torch.Tensor) -> bool:
        return tensor.item() == self.number


def _counts(node: Node) -> bool:
    """Whether a node gives counts or places, none of which is negative."""
    name = getattr(node.target, "__name__", node.target)
    if name == "sum" and node.args and node.meta["example_value"].dtype is torch.int64:
        summed = node.args[0]
        return isinstance(summed, Node) and summed.meta["example_value"].dtype is torch.bool
    return name in ("count_nonzero", "argmax", "argmin")


def _int(tx: Interpreter, tensor: TensorValue) -> Value | None:
    return branch_scalar(tx, tensor, int) or _converted(tx, tensor, int)


def _float(tx: Interpreter, tensor: TensorValue) -> Value | None:
    if tx.code is _AVERAGES and not tensor.fake.dim() and _divides(tx, tensor):
        wide = ConstantValue(torch.float64)
        return call_in_graph(tx, "call_method", "to", [tensor, wide], {})
    return branch_scalar(tx, tensor, float) or _converted(tx, tensor, float)


def _divides(tx: Interpreter, tensor: TensorValue) -> bool:
    """Whether the graph checks from here on that a number is not 0, by which Python divides."""
    checks = tx.output.checks
    if not checks.can_be_made():
        return False
    divides: Any = tensor.compare(tx, "!=", ConstantValue(0))
    reason = breaks.DataDependentValue("float(tensor)")
    checks.make(divides, checks.breaking_at(tx, reason), True)
    return True


def _converted(tx: Interpreter, tensor: TensorValue, kind: type) -> Value | None:
    dtype = tensor.fake.dtype
    if not tx.output.symbols.data.reads_captured() or dtype.is_complex or dtype is torch.bool:
        return None
    return TABLE[kind](tx, _read(tx, tensor))


def _index(tx: Interpreter, tensor: TensorValue) -> Value | None:
    dtype = tensor.fake.dtype
    return None if dtype.is_floating_point else _converted(tx, tensor, int)


@handles(operator.index)
def _operator_index(tx: Interpreter, value: Value) -> Value:
    if isinstance(value, TensorValue):
        return value.call_method(tx, "__index__", [], {})
    return ConstantValue(as_index(tx, value))


def _bool(tx: Interpreter, tensor: TensorValue) -> Value | None:
    deferred = branch_scalar(tx, tensor, bool)
    if deferred is not None:
        return deferred
    if not tx.output.symbols.data.reads_captured():
        return None
    if tensor.fake.dtype is not torch.bool:
        tensor = tensor.compare(tx, "!=", ConstantValue(0))  # type: ignore[assignment]
    return _read(tx, tensor)


def _tolist(tx: Interpreter, tensor: TensorValue) -> Value | None:
    sizes, dtype = tensor.fake.shape, tensor.fake.dtype
    count = math.prod(hint_of(size) or 1 for size in sizes)
    if not sizes or dtype.is_complex or not tx.output.symbols.data.reads_captured(count):
        return None
    return _read_rows(tx, tensor)


def _read_rows(tx: Interpreter, tensor: TensorValue) -> Value:
    """The list of a tensor's numbers, or of the lists of its rows."""
    if not tensor.fake.ndim:
        return _read(tx, tensor)
    with deciding():
        count = int(tensor.fake.shape[0])
    rows: list[Any] = [tensor.getitem(tx, ConstantValue(i)) for i in range(count)]
    return tx.output.side_effects.track_new(ListValue([_read_rows(tx, row) for row in rows]))


def _known(
    read: Callable[[torch.Tensor], Any], capture: Callable[..., Value | None]
) -> Callable[..., Value | None]:
    """The constant that a tensor of known values gives; else the result of `capture`, None of a
    nested tensor.
    """

    def known(tx: Interpreter, tensor: TensorValue) -> Value | None:
        real = tx.output.known_tensors.real_of(tensor.fake)
        if real is not None:
            with contextlib.suppress(RuntimeError, TypeError, ValueError):  # of the program
                return _new(tx, read(real))
        return None if tensor.fake.is_nested else capture(tx, tensor)

    return known


def _new(tx: Interpreter, numbers: Any) -> Value:
    if not isinstance(numbers, list):
        return ConstantValue(numbers)
    return tx.output.side_effects.track_new(ListValue([_new(tx, item) for item in numbers]))


READ_METHODS.update(
    item=_known(torch.Tensor.item, _item),
    tolist=_known(torch.Tensor.tolist, _tolist),
    __int__=_known(int, _int),
    __float__=_known(float, _float),
    __index__=_known(operator.index, _index),
    __bool__=_known(bool, _bool),
)


@bound_late
def whether_equal(
    tx: Interpreter, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """The result of torch.allclose or torch.equal, as read from a tensor; None: of another call, or
    it can't be read.
    """
    name, fakes = target_name(target), [getattr(arg, "fake", None) for arg in args[:2]]
    if name not in ("allclose", "equal") or (name == "equal" and not _are_alike(fakes)):
        return None
    function = torch.isclose if name == "allclose" else torch.eq
    try:
        alike = call_in_graph(tx, "call_function", function, args, kwargs)
        every: Any = call_in_graph(tx, "call_method", "all", [alike], {})
        return every.call_method(tx, "item", [], {})
    except Unsupported:
        return None


def _are_alike(fakes: Sequence[Any]) -> bool:
    """Whether two tensors, not nested, are of one kind and, so far as is known, of one shape."""
    if len(fakes) < 2 or not all(isinstance(fake, torch.Tensor) for fake in fakes):
        return False
    if any(fake.is_nested for fake in fakes):
        return False
    kinds = [(fake.dtype, fake.device, fake.layout) for fake in fakes]
    shapes = [list(map(expr_of, fake.shape)) for fake in fakes]
    return kinds[0] == kinds[1] and shapes[0] == shapes[1]


def rely_on_truth(tx: Interpreter, value: Value, truth: bool) -> bool:
    """Whether the graph checks from here on that a number from data has this truth."""
    if not isinstance(value, SymbolValue):
        return False
    env, expr = value.env, condition_of(value).node.expr
    if env.hint(expr) is not None or env.statically(expr) is not None:
        return False
    try:
        tx.output.symbols.data.rely_on(expr if truth else negated(expr))
    except DataDependent:
        return False
    return True


def truth_in_graph(tx: Interpreter, value: Value) -> TensorValue | None:
    """The truth of a number that only the call knows, as a tensor; None for other values."""
    if not isinstance(value, SymbolValue):
        return None
    env, expr = value.env, condition_of(value).node.expr
    if env.hint(expr) is not None or env.statically(expr) is not None:
        return None
    # A bool that was read is no number.
    return _truth(tx, env, expr) if tx.output.symbols.data.are_read(expr) else None


def _truth(tx: Interpreter, env: ShapeEnv, expr: Any) -> TensorValue | None:
    if isinstance(expr, sympy.Rel):
        left, right = (_scalar(tx, env, side, is_integral(expr)) for side in expr.args)
        truth: Any = left.compare(tx, FORMS[type(expr)].sign, right)
        return truth
    if not isinstance(expr, sympy.And | sympy.Or | sympy.Not):
        return None
    parts = [part for arg in expr.args if (part := _truth(tx, env, arg)) is not None]
    if len(parts) < len(expr.args):
        return None
    name = f"logical_{type(expr).__name__.lower()}"
    first, *rest = parts
    made: Any = first
    for operands in [[part] for part in rest] or [[]]:
        made = call_in_graph(tx, "call_method", name, [made, *operands], {})
    return made


def _scalar(tx: Interpreter, env: ShapeEnv, expr: Any, integral: bool) -> TensorValue:
    kind, made = (int, torch.SymInt) if integral else (float, torch.SymFloat)
    number: Value = (
        ConstantValue(kind(expr))
        if expr.is_number
        else SymbolValue(tx.output, made(SymNode(expr, env, kind)))
    )
    dtype: dict[str, Value] = {"dtype": ConstantValue(torch.int64 if integral else torch.float64)}
    tensor = call_in_graph(tx, "call_function", torch.scalar_tensor, [number], dtype)
    assert isinstance(tensor, TensorValue)
    return tensor


# -- tensors in the place of numbers --------------------------------------------------------------
@bound_late
def with_numbers(
    tx: Interpreter,
    values: Sequence[Value],
    selects: bool = False,
    asked: torch.Tensor | None = None,
) -> list[Value] | None:
    """Arguments of an operation that wants numbers, with those that are in tensors read; None:
    there are none. selects: each takes the one place of a dimension that it says. asked: the fake
    of the only one to read.
    """
    made = [_number_in(tx, value, selects, asked) for value in values]
    return None if all(map(operator.is_, made, values)) else made


def _number_in(
    tx: Interpreter, value: Value, selects: bool, asked: torch.Tensor | None = None
) -> Value:
    if isinstance(value, TensorValue):
        if asked is not None and value.fake is not asked:
            return value
        known = value.fake.ndim == 0 and tx.output.known_tensors.real_of(value.fake) is not None
        if not _is_index(value.fake) and not (known and asked is not None):
            return value
        number = READ_METHODS["item"](tx, value)
        if number is None and selects and tx.output.symbols.data.selects_captured():
            number = _read(tx, value)
        return number or value
    if isinstance(value, SliceValue):
        parts = with_numbers(tx, value.parts, asked=asked)
        if parts is None:
            return value
        start, stop, step = parts
        return SliceValue(start, stop, step)
    if isinstance(value, ListValue | TupleValue) and value.python_type() in (list, tuple):
        parts = with_numbers(tx, value.wrapped(), asked=asked)
        return value if parts is None else TupleValue(parts)
    return value


def _is_index(fake: torch.Tensor) -> bool:
    dtype = fake.dtype
    integral = not (dtype.is_floating_point or dtype.is_complex)
    return fake.ndim == 0 and integral and dtype not in (torch.bool, torch.uint8)


@handles(torch_polyfills.expected)
def _expected(tx: Interpreter, condition: Value) -> Value:
    """The condition of torch._check: assumed of data, guarded of sizes."""
    if not isinstance(condition, SymbolValue) or not isinstance(condition.symbolic, torch.SymBool):
        return condition.truth_value(tx)
    env = condition.env
    if env.hint(condition.symbolic.node.expr) is not None:
        return condition.truth_value(tx)
    tx.output.symbols.data.check_in_graph(tx, condition.symbolic.node.expr)
    return ConstantValue(env.check(condition.symbolic))
