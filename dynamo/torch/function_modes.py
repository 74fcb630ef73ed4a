"""Torch function modes that the frame enters.

A call of torch inside of `with Mode():` asks the __torch_function__ of the innermost mode, which
is captured like user code, as if it were left for that while. No graph breaks inside: one that
would is moved before the region, which then runs as it is (dynamo/framestate/rewrite.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.torch.devices import entered_devices
from dynamo.values.base import Value
from dynamo.values.builtins.table import handles
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.exceptions import raise_python
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.tensors.tensor import TensorValue


def ask_mode(tx: Interpreter, arguments: Sequence[Value]) -> Value:
    """The answer of the innermost mode, whose own calls ask the modes around."""
    modes = tx.output.modes
    if len(entered_devices()) > modes.devices:
        raise Unsupported(breaks.UncapturedCall("torch, in a device's region inside of a mode's"))
    asked = modes.asked.pop()
    try:
        return asked.getattr(tx, "__torch_function__").call(tx, arguments, {})
    finally:
        modes.asked.append(asked)


@bound_late
def unbound_by_modes(tx: Interpreter, tensor: TensorValue) -> Value:
    """The rows of a tensor: modes are asked for the calls of Tensor.__iter__, not for itself."""
    rank = tensor.call_method(tx, "dim", [], {})
    if not rank.is_constant():
        raise Unsupported(breaks.UncapturedCall("Tensor.__iter__"))
    if rank.as_constant() == 0:
        raise_python(tx, TypeError, "iteration over a 0-d tensor")
    return tensor.call_method(tx, "unbind", [ConstantValue(0)], {})


@bound_late
def length_by_modes(tx: Interpreter, tensor: TensorValue) -> Value:
    answer = tensor.call_method(tx, "__len__", [], {})
    if not answer.python_type_is(int):
        raise Unsupported(breaks.UncapturedCall("Tensor.__len__, which asks a torch function mode"))
    return answer


@handles(torch._C._push_on_torch_function_stack)
def _push(tx, mode):
    modes = tx.output.modes
    if tx.output.bodies or tx.output.context.export or modes.disabled:
        raise Unsupported(breaks.UncapturedCall("a torch function mode's __enter__"))
    tx.output.side_effects.touch()
    if not modes.asked:
        modes.devices = len(entered_devices())
    tx.output.tensors_override = True
    modes.asked.append(mode)
    modes.entered += 1
    return ConstantValue(None)


@handles(torch._C._pop_torch_function_stack)
def _pop(tx):
    modes = tx.output.modes
    if not modes.asked:
        raise Unsupported(breaks.UncapturedCall("torch._C._pop_torch_function_stack"))
    tx.output.side_effects.touch()
    modes.entered -= 1
    return modes.asked.pop()


@handles(torch._C._get_function_stack_at)
def _mode_at(tx, index):
    place = index.as_constant() - torch._C._len_torch_function_stack()
    asked = tx.output.modes.asked
    if place not in range(len(asked)):
        raise Unsupported(breaks.UncapturedCall("torch._C._get_function_stack_at"))
    return asked[place]
