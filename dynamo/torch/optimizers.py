"""The update functions of torch.optim: the meaning of their flags in captured code."""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dynamo.values.base import Value
from dynamo.values.builder import special_builder
from dynamo.values.constant import ConstantValue
from dynamo.values.containers import ListValue, SequenceValue
from dynamo.values.function import UserFunctionValue
from dynamo.values.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.guards.sources import Source
    from dynamo.interp.interpreter import Interpreter

# What they compute is decided by the number of steps; others only compute with it, and do so in
# fewer operations where they are not capturable.
_DECIDED_BY_STEPS = frozenset(["radam", "asgd"])
# Those that subtract nearly equal numbers, in Python's floats in eager, and where their steps are
# among the arguments.
_CANCELLING = frozenset(["_single_tensor_radam", "_multi_tensor_radam"])
_STEPS = 4
_UPDATE = re.compile("_(?:single|multi)_tensor_(.*)")


class OptimizerUpdateValue(UserFunctionValue):
    """`_single_tensor_radam` and its like. torch means their `capturable` to be true in captured
    code ("torch.compile x capturable" in torch/optim/optimizer.py): steps are counted in tensors,
    whose values nothing reads. As in eager, those have to be where the parameters are.
    """

    def is_plain_function(self) -> bool:
        return False

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]]:
        if "capturable" in kwargs and _on_one_device(tx, args):
            kwargs = {**kwargs, "capturable": ConstantValue(True)}
            if self.function.__name__ in _CANCELLING:
                args = [*args[:_STEPS], _exactly(tx, args[_STEPS]), *args[_STEPS + 1 :]]
        return UserFunctionValue(self.function, self.source), args, kwargs


def _exactly(tx: Interpreter, steps: Value) -> Value:
    """Steps to compute with, and to count for nobody; those given are counted here."""
    exact: list[Value] = []
    for step in steps.unpack(tx):
        exact.append(step.call_method(tx, "double", [], {}))
        step.call_method(tx, "add_", [ConstantValue(1)], {})
    return tx.output.side_effects.track_new(ListValue(exact))


def _on_one_device(tx: Interpreter, args: Sequence[Value]) -> bool:
    lists = [arg.unpack(tx) for arg in args if isinstance(arg, SequenceValue)]
    tensors = [item for items in lists for item in items]
    return len({t.fake.device for t in tensors if isinstance(t, TensorValue)}) <= 1


def _is_update(obj: Any) -> bool:
    if type(obj) is not types.FunctionType:
        return False
    named = _UPDATE.fullmatch(obj.__name__)
    return (
        named is not None
        and named[1] in _DECIDED_BY_STEPS
        and (obj.__globals__.get("__name__") or "").startswith("torch.optim.")
    )


@special_builder(_is_update)
def build_update(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, OptimizerUpdateValue(obj, source))
