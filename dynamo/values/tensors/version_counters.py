"""`_version` of tensors, the number of writes to a tensor and its views: for tensors that the
graph makes, that of the fake tensor (behind the graph, the counter would start anew).
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


def read_version(tx: Interpreter, tensor: TensorValue) -> Value:
    """tensor._version; breaks where the counter may be that of a tensor from outside, which varies
    from call to call: behind the writes of the graph it is read as it is.
    """
    fake = tensor.fake
    outside = tensor.real is not None or tx.output.bodies or fake.is_inference()
    if not outside and torch._C._has_storage(fake):
        inputs = [item.node.meta["example_value"] for item in tx.output.inputs]
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        if all(memory_of(one) != memory_of(fake) for one in tensors):
            return ConstantValue(fake._version)
    raise Unsupported(breaks.AttributeAccess(tensor.describe(), "_version"))
