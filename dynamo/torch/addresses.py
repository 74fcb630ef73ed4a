"""Addresses of tensors from outside: numbers that vary, so that comparisons of them are guarded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import CallSource
from dynamo.values.base import Value
from dynamo.values.tensors.memory_starts import guard_starts
from dynamo.values.tensors.tensor import SPECIAL_METHODS, TensorValue
from fxgraph.aot.history import memory_of
from fxgraph.tensor_state import set_data_

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import GraphInput

_MOVING = (set_data_, "set_", "resize_", "resize_as_")


def address_of(tensor: torch.Tensor) -> int:
    return tensor.data_ptr()


def _data_ptr(tx: Interpreter, tensor: TensorValue) -> Value:
    """x.data_ptr() of an input of the graph, or of a view of one."""
    found = _input_of(tx, tensor)
    if found is not None:
        where = CallSource(found.source, address_of, "data_ptr")
        start = tx.output.symbols.number(address_of(found.example), where, "addresses vary")
        if start is not None:
            tx.guard(where, "type", int)
            begins = found.node.meta["example_value"].storage_offset()
            ahead = tensor.fake.storage_offset() - begins
            return tx.wrap(start + ahead * tensor.fake.element_size())
    raise Unsupported(breaks.UncapturedCall("Tensor.data_ptr()"))


def _input_of(tx: Interpreter, tensor: TensorValue) -> GraphInput | None:
    """The input in whose memory the tensor is; None where the frame may have moved one."""
    output, memory = tx.output, memory_of(tensor.fake)
    if type(tensor) is not TensorValue or memory == -1 or output.bodies or output.context.export:
        return None
    if any(node.target in _MOVING for node in output.graph.nodes):
        return None
    inputs = [item for item in output.inputs if isinstance(item.example, torch.Tensor)]
    for item in inputs:
        if item.node is tensor.node:
            return item
    if not tensor.fake.numel() > 0:
        return None
    sharing = [
        item
        for item in inputs
        if memory_of(item.node.meta["example_value"]) == memory and item.example.numel()
    ]
    if len(sharing) > 1:  # how far one is ahead of another depends on where both start
        guard_starts(tx, tensor.fake)
    return sharing[0] if sharing else None


SPECIAL_METHODS["data_ptr"] = _data_ptr
