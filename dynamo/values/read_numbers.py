"""Numbers that are read from tensors: captured where config.capture_scalar_outputs says so.

`n = x.item()` is a node of the graph then, and n a symbol without a value (u0): what the captured
code does with it may depend on it only as far as torch._check(...) has told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dynamo.config import config
from dynamo.values import torch_polyfills
from dynamo.values.base import Value
from dynamo.values.builtins import handles
from dynamo.values.constant import ConstantValue
from dynamo.values.containers import ListValue
from dynamo.values.symbol import SymbolValue
from dynamo.values.tensor import READ_METHODS, TensorValue, call_in_graph

if TYPE_CHECKING:
    from dynamo.capture.interpreter import Interpreter


def _item(tx: Interpreter, tensor: TensorValue) -> Value | None:
    if not config.capture_scalar_outputs or not tx.output.symbols.allowed:
        return None
    if tensor.fake.dtype.is_complex or tx.output.bodies:
        return None
    return call_in_graph(tx, "call_method", "item", [tensor], {})


def _tolist(tx: Interpreter, tensor: TensorValue) -> Value | None:
    if tensor.fake.ndim != 1:
        return None
    numbers: list[Value] = []
    for i in range(int(tensor.fake.shape[0]) if config.capture_scalar_outputs else 0):
        element: Any = tensor.getitem(tx, ConstantValue(i))
        number = _item(tx, element)
        if number is None:
            return None
        numbers.append(number)
    if not config.capture_scalar_outputs:
        return None
    return tx.output.side_effects.track_new(ListValue(numbers))


READ_METHODS.update(item=_item, tolist=_tolist)


@handles(torch_polyfills.expected)
def _expected(tx: Interpreter, condition: Value) -> Value:
    """What torch._check asks: promised of data, guarded of sizes."""
    if not isinstance(condition, SymbolValue) or not isinstance(condition.symbolic, torch.SymBool):
        return condition.truth_value(tx)
    env = condition.env
    if env.hint(condition.symbolic.node.expr) is not None:
        return condition.truth_value(tx)
    node = tx.output.symbols.node(condition.symbolic)
    tx.output.create_node("call_function", torch._check, (node,), {}, None, tx)
    return ConstantValue(env.check(condition.symbolic))
