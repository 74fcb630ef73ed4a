"""Functions by which graphs change the state of a tensor, as assignments of Python do: autograd
itself runs these nodes (fxgraph/aot/split.py).
"""

from __future__ import annotations

import torch


def set_data_(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """tensor.data = data: the same tensor to autograd, with the memory of `data`."""
    tensor.data = data
    return tensor
