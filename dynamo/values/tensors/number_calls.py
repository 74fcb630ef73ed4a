"""Calls of torch with numbers that depend on data where torch's schemas take plain numbers: the
graph calls the function with the real ones (fxgraph/number_calls.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.late_bound import bound_late
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbol import number_value
from dynamo.values.tensors.fake_calls import run_fake, to_fake
from dynamo.values.tensors.tensor import call_in_graph, record_call
from dynamo.values.tensors.tensor_calls import target_name
from fxgraph import Node, effects, number_calls
from fxgraph.aot.history import memory_of
from fxgraph.args import leaves, map_aggregate
from fxgraph.python_numbers import DTYPES
from fxgraph.symbolic_values import depends_on_data, expr_of, is_symbolic

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_SAMPLES: dict[type, Sequence[Any]] = {
    torch.SymInt: (1, 2, 0, 3),
    torch.SymFloat: (0.5, 1.0, 0.0, 2.0),
}


@bound_late
def call_with_real_numbers(
    tx: Interpreter,
    op: str,
    target: Any,
    args: tuple,
    kwargs: dict[str, Any],
    refused: breaks.Break,
) -> Value | None:
    """The result of a call that fake tensors refuse, if because of numbers of data; None: the graph
    can't hold the call. args, kwargs: of nodes.
    """
    if not isinstance(refused, breaks.DataDependentValue | breaks.OpError):
        return None
    call, output = _Call(args, kwargs), tx.output
    name = number_calls.name_of(op, target)
    if name is None or not call.is_usual() or not _is_pure(op, target, args, kwargs):
        return None
    if output.context.export or output.symbols.env.sides or torch.is_autocast_enabled("cpu"):
        return None
    arguments = call.arguments()
    expected = None if arguments is None else _expected(tx, op, target, call)
    reason = breaks.DataDependentValue(target_name(target))
    if expected is None or not output.checks.supposes(tx, reason):
        return None
    size, *form = expected
    numbers = tuple(_in_tensor(tx, to_fake(number)) for number in call.numbers)
    sizes = [tx.wrap(n).as_proxy() if is_symbolic(n) else n for n in size]
    given = (name, arguments, tuple(call.tensors), numbers, sizes, *form)
    function = number_calls.number_call
    result = run_fake(tx, "call_function", function, given, {})
    return record_call(tx, "call_function", function, given, {}, result)


def _in_tensor(tx: Interpreter, number: Any) -> Any:
    kwargs: dict[str, Value] = {
        "dtype": ConstantValue(DTYPES[int if isinstance(number, torch.SymInt) else float]),
        "device": ConstantValue(torch.device("cpu")),  # also where another is the default
    }
    value = number_value(tx, number)
    return call_in_graph(tx, "call_function", torch.scalar_tensor, [value], kwargs).as_proxy()


class _Call:
    """Arguments of a call, with tensors and symbolic numbers in lists of their own."""

    def __init__(self, args: tuple, kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs
        nodes = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Node)]
        nodes = list(dict.fromkeys(nodes))
        self.tensors = [n for n in nodes if isinstance(to_fake(n), torch.Tensor)]
        self.numbers = [n for n in nodes if is_symbolic(to_fake(n))]
        self.others = len(nodes) - len(self.tensors) - len(self.numbers)

    def is_usual(self) -> bool:
        """Whether these are plain tensors, and numbers of which some depend on data."""
        numbers = [to_fake(number) for number in self.numbers]
        fakes = [to_fake(tensor) for tensor in self.tensors]
        return (
            bool(self.tensors)
            and not self.others
            and all(type(number) in _SAMPLES for number in numbers)
            and any(map(depends_on_data, numbers))
            and all(type(fake) is FakeTensor and fake.layout is torch.strided for fake in fakes)
        )

    def arguments(self) -> str | None:
        """The call as text for the graph; None where something has no place in it."""

        def place(nodes: list[Node], arg: Any) -> int:
            return nodes.index(arg) if isinstance(arg, Node) and arg in nodes else -1

        try:
            encoded = [
                number_calls.encode(
                    part, lambda arg: place(self.numbers, arg), lambda arg: place(self.tensors, arg)
                )
                for part in (self.args, self.kwargs)
            ]
        except TypeError:
            return None
        return json.dumps(encoded)

    def sampled(self, which: int) -> tuple[tuple, dict[str, Any]]:
        """The arguments with sample number `which` of all numbers that depend on data."""

        def sample(leaf: Any) -> Any:
            value = to_fake(leaf) if isinstance(leaf, Node) else leaf
            return _SAMPLES[type(value)][which] if depends_on_data(value) else leaf

        return map_aggregate(self.args, sample), map_aggregate(self.kwargs, sample)


def _is_pure(op: str, target: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether the call only computes: nothing is written, drawn, or changed elsewhere."""
    if op == "call_method":
        return effects.of_method(target, args, kwargs) == effects.PURE
    return effects.of_function(target, args, kwargs) == effects.PURE


def _expected(
    tx: Interpreter, op: str, target: Any, call: _Call
) -> tuple[list[Any], torch.dtype, bool] | None:
    """Sizes and type of the result, and whether gradients flow through: by samples of the numbers.
    Sizes that differ between samples are unknown.
    """
    results = []
    for which in range(len(_SAMPLES[torch.SymInt])):
        made = _sample(tx, op, target, call, which)
        if made is None:
            continue
        if made is NotImplemented:
            return None
        results.append(made)
    if not results:
        return None
    first = results[0]
    alike = [r for r in results if r.dtype is first.dtype and r.dim() == first.dim()]
    size = [
        known if len({expr_of(n) for n in found}) == 1 else number_calls.UNKNOWN
        for known, *found in zip(first.shape, *[r.shape for r in alike])
    ]
    return size, first.dtype, any(r.requires_grad for r in alike)


def _sample(tx: Interpreter, op: str, target: Any, call: _Call, which: int) -> Any:
    """The fake result for a sample; None: there is none; NotImplemented: the graph can't hold
    results of the kind.
    """
    symbols = tx.output.symbols
    before, forget = symbols.data.assumptions(), symbols.data.forgetting()
    try:
        made = run_fake(tx, op, target, *call.sampled(which))
    except Unsupported:
        forget()
        return None
    if symbols.data.assumptions() != before or symbols.data.has_fresh():
        forget()
        return None
    fakes = [to_fake(tensor) for tensor in call.tensors]
    shares = type(made) is FakeTensor and memory_of(made) in {memory_of(fake) for fake in fakes}
    if type(made) is not FakeTensor or shares or made.layout is not torch.strided:
        return NotImplemented
    return made if made.device == fakes[0].device else NotImplemented
