"""Texts of tensors: f"{loss:.4f}", str(x), print(x). The graph keeps a copy of the values, and the
rewritten frame writes the text from it; an earlier need of the text breaks the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._tensor_str import PRINT_OPTS

from dynamo.values.base import Value
from dynamo.values.late_bound import bound_late
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbolic_text import Field, SymbolicText
from dynamo.values.tensors.deferred_scalar import DeferredScalar
from dynamo.values.tensors.tensor import TensorValue, call_in_graph

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_METHODS = {name: vars(torch.Tensor).get(name) for name in ("__format__", "__repr__", "__str__")}


@bound_late
def formatted_tensor(tx: Interpreter, value: Value, spec: str) -> SymbolicText | None:
    """format(value, spec), if the text can be written later. A number of item() is written as its
    tensor.
    """
    if isinstance(value, DeferredScalar):
        if not value.is_current():
            return None
        value = value.tensor
        if value.fake.ndim:
            value = call_in_graph(tx, "call_method", "reshape", [value, ConstantValue(())], {})
    if not isinstance(value, TensorValue) or not _is_plain(tx, value):
        return None
    if value.fake.ndim:
        return None if spec else text_of_tensor(tx, value)
    try:
        format(torch.ones((), dtype=value.fake.dtype).item(), spec)
    except ValueError:  # raised where the program asks for it
        return None
    return SymbolicText([Field(_kept(tx, value), spec)])


@bound_late
def text_of_tensor(tx: Interpreter, value: Value) -> SymbolicText | None:
    """str(value), the same as repr(value), if the text can be written later: not for a tensor with
    a gradient, whose text names the function that made it.
    """
    if not isinstance(value, TensorValue) or not _is_plain(tx, value) or value.fake.requires_grad:
        return None
    return SymbolicText([Field(_kept(tx, value), "", "!s")])


def _is_plain(tx: Interpreter, tensor: TensorValue) -> bool:
    output, fake = tx.output, tensor.fake
    if output.bodies or output.context.export or output.guesses or output.tensors_override:
        return False
    options = output.values_by_id.get(id(PRINT_OPTS))
    if options is not None and output.side_effects.is_dirty(options[1]):
        return False  # the text is written with the options of the frame's entry
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        return False
    if any(vars(torch.Tensor).get(name) is not found for name, found in _METHODS.items()):
        return False
    of_memory = fake.layout is torch.strided and fake.device.type != "meta"
    plain = of_memory and not (fake.is_quantized or fake.is_conj() or fake.is_neg())
    return plain and tensor.python_type() is torch.Tensor


def _kept(tx: Interpreter, tensor: TensorValue) -> TensorValue:
    """The values that the tensor has now."""
    detached = call_in_graph(tx, "call_method", "detach", [tensor], {})
    kept = call_in_graph(tx, "call_method", "clone", [detached], {})
    assert isinstance(kept, TensorValue)
    return kept
