"""Parts of tensors that wrap others: tensors, and, of some classes, other objects too (the
mesh of a DTensor), which stand in the context here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch


class WithObjects(NamedTuple):
    """The context of a wrapper beside whose tensors there are other objects, by name."""

    context: Any
    objects: dict[str, Any]


def flatten(tensor: Any) -> tuple[list[str], Any]:
    """The names of the tensors inside, and the context to make the wrapper again with."""
    names, context = tensor.__tensor_flatten__()
    objects = {
        name: held for name in names if not isinstance(held := getattr(tensor, name), torch.Tensor)
    }
    if objects:
        context = WithObjects(context, objects)
    return [name for name in names if name not in objects], context


def unflatten(
    cls: Any, inner: Mapping[str, torch.Tensor], context: Any, size: Any, stride: Any
) -> torch.Tensor:
    """The wrapper of class `cls` around the tensors `inner`."""
    if type(context) is WithObjects:
        inner, context = {**inner, **context.objects}, context.context
    if all(type(number) is int for number in size):
        size = torch.Size(size)  # as classes keep it
    return cls.__tensor_unflatten__(inner, context, size, stride)


def without_sizes(context: Any) -> Any:
    """The context of a DTensor but for its sizes and strides, which the tensor itself tells."""
    if type(context) is WithObjects:
        return context._replace(context=without_sizes(context.context))
    return tuple(map(_told, context)) if type(context) is tuple else context


def _told(part: Any) -> Any:
    """The part of a context besides sizes; a DTensorSpec is one before torch 2.13."""
    kind = type(part).__name__
    if kind == "DTensorSpec":
        return part.mesh, part.placements, part.tensor_meta.dtype
    return part.dtype if kind == "TensorMeta" else part


def own_context(context: Any) -> Any:
    """The context as __tensor_flatten__ gave it."""
    return context.context if type(context) is WithObjects else context
