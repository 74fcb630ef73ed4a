"""Reads of autograd's records of a tensor: the function behind it, and `_version`, the number of
writes to it and its views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.scalars.constant import ConstantValue
from fxgraph.aot.history import memory_of

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.tensors.tensor import TensorValue


# Attributes that follow from the function of autograd behind a tensor.
OF_HISTORY = frozenset(["is_leaf", "grad_fn", "retains_grad", "output_nr"])


def assume_history(tx: Interpreter, tensor: TensorValue, name: str) -> None:
    """Guard whether a tensor was a leaf when the frame began; breaks where its fake one does not
    tell the attribute: which output of its function a tensor from outside is, and whether it keeps
    its gradient.
    """
    real = tensor.real
    try:
        told = ask_leaf(tx, tensor) or real is None or real.is_leaf
        told = told or name in ("is_leaf", "grad_fn")
        told = told or (name == "retains_grad" and tensor.fake.retains_grad)
    except RuntimeError as error:  # a view of inference mode whose memory was written
        raise Unsupported(breaks.AttributeAccess(tensor.describe(), name)) from error
    if not told:
        raise Unsupported(breaks.AttributeAccess(tensor.describe(), name))


def ask_leaf(tx: Interpreter, tensor: TensorValue) -> bool:
    """Whether the tensor is a leaf; guards whether it was one when the frame began."""
    real = tensor.real
    if real is not None and real.requires_grad:  # which the guard of the tensor covers
        tx.guard(tensor.source, "predicate", is_a_leaf if real.is_leaf else is_no_leaf)
    return tensor.fake.is_leaf


def is_a_leaf(tensor: torch.Tensor) -> bool:
    """Nothing that autograd recorded gave the tensor."""
    return tensor.is_leaf


def is_no_leaf(tensor: torch.Tensor) -> bool:
    """An operation that autograd recorded gave the tensor."""
    return not tensor.is_leaf


def read_version(tx: Interpreter, tensor: TensorValue) -> Value:
    """tensor._version; of a tensor that the graph makes, that of the fake one: behind the graph the
    counter would start anew. Breaks where the counter may be that of a tensor from outside, which
    varies from call to call: behind the writes of the graph it is read as it is.
    """
    fake = tensor.fake
    outside = tensor.real is not None or tx.output.bodies or fake.is_inference()
    if not outside and torch._C._has_storage(fake):
        inputs = [item.node.meta["example_value"] for item in tx.output.inputs]
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        if all(memory_of(one) != memory_of(fake) for one in tensors):
            return ConstantValue(fake._version)
    raise Unsupported(breaks.AttributeAccess(tensor.describe(), "_version"))
