"""Operations that write to memory that they read.

ATen's refuse a part of it (at::assert_no_partial_overlap), and those that move elements about all
of it (at::assert_no_overlap), by looking at addresses, which fake tensors do not have.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch

from fxgraph.aot.fake import dense
from fxgraph.args import leaves
from fxgraph.symbolic_values import depends_on_data, is_symbolic, numbers_of

_IN_PLACE = frozenset(
    getattr(operator, f"i{name}")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")
)
_DEFAULT = torch._C._autograd.CreationMeta.DEFAULT  # type: ignore[attr-defined]
_TEXT = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
    "single memory location. Please clone() the tensor before performing the operation."
)


def refuse_partial_overlap(target: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    """Raise RuntimeError where a call of fake tensors writes to one that shares a part of its
    memory with another, or to (a view of) one that has several elements in one place.
    """
    _refuse_overlap_of_moved(target, args, kwargs)
    if target is operator.setitem:
        written, read = _item(*args[:2]), args[2:]
        if _repeats(written) or _repeats(_whole(args[0])):
            raise RuntimeError(_TEXT)
        if _is_placed(written) and getattr(read[0], "shape", None) != written.shape:
            return  # the stored tensor is expanded first
    elif target in _IN_PLACE or _is_named_in_place(target):
        written, read = args[0] if args else None, (*args[1:], *kwargs.values())
    elif kwargs.get("out") is not None:
        written, read = kwargs["out"], (*args, *(v for k, v in kwargs.items() if k != "out"))
    elif kwargs.get("inplace") is True:  # of torch.nn.functional
        written, read = args[:1], args[1:]
    else:
        return
    for one in leaves(written):
        repeats = _repeats(one) or _repeats(_whole(one))
        if repeats and _writes_elements(target):
            raise RuntimeError(_TEXT)
        for other in filter(_is_placed, leaves(read) if _is_placed(one) else ()):
            if _share_memory(one, other) and _overlap_in_part(one, other):
                raise RuntimeError(_TEXT)


_MOVERS = frozenset(
    ["index_add", "index_copy", "index_fill", "index_put", "index_reduce", "index_select", "put"]
    + ["scatter", "scatter_add", "scatter_reduce", "take", "cross", "linalg_cross"]
    + ["cat", "concat", "concatenate", "column_stack", "dstack", "row_stack", "vstack"]
)


def _refuse_overlap_of_moved(target: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    """Raise RuntimeError where elements move about between tensors that share any memory."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if target is operator.setitem:
        parts = args[1] if isinstance(args[1], tuple) else (args[1],)
        indices = [part for part in parts if isinstance(part, (torch.Tensor, list))]
        if not indices:
            return
        written = _item(args[0], tuple(_every_place(part) for part in parts))
        places = [part for part in leaves(indices) if _dtype_of(part) is not torch.bool]
        if not places and getattr(args[2], "shape", None) == ():
            return  # a fill under a mask reads the number first
        read = places, args[2]
    elif kwargs.get("out") is not None and name in _MOVERS:
        written, read = kwargs["out"], (*args, *(v for k, v in kwargs.items() if k != "out"))
    elif name.endswith("_") and name[:-1] in _MOVERS:
        written, read = args[0] if args else None, (*args[1:], *kwargs.values())
    else:
        return
    for other in filter(_is_placed, leaves(read) if _is_placed(written) else ()):
        if _share_memory(written, other) and _overlap(written, other):
            raise RuntimeError(_TEXT)


def _every_place(index: Any) -> Any:
    """The index that stands for all places where a tensor or a list would choose some."""
    return slice(None) if isinstance(index, (torch.Tensor, list)) else index


def _dtype_of(value: Any) -> torch.dtype | None:
    return value.dtype if isinstance(value, torch.Tensor) else None


_OF_SHAPES = frozenset(
    ["as_strided_", "detach_", "requires_grad_", "resize_", "resize_as_", "set_", "share_memory_"]
    + ["squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_"]
)


def _writes_elements(target: Any) -> bool:
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name != "zero_" and name not in _OF_SHAPES


def _whole(tensor: Any) -> Any:
    """The base of a view: a graph that writes to a part of an input stores the whole input."""
    whole = getattr(tensor, "_base", None)
    return tensor if whole is None else whole


def _repeats(tensor: Any) -> bool:
    """Whether several elements may be in one place; a size that varies is taken for two or more."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return False
    pairs = list(zip(tensor.shape, tensor.stride()))
    if any(type(n) is int and n == 0 for n, _ in pairs):
        return False
    steps = [step for n, step in pairs if type(n) is not int or n > 1]
    known = sorted(step for step in steps if type(step) is int)
    if 0 in known or any(one == other for one, other in itertools.pairwise(known)):
        return True
    if not _is_known(tensor):
        return False
    last = 0  # of the inner dimensions' elements
    for step, n in sorted((step, n) for n, step in pairs if n > 1):
        if step <= last:
            return True
        last += (n - 1) * step
    return False


def _is_named_in_place(target: Any) -> bool:
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    is_operator = getattr(target, "__module__", "") == operator.or_.__module__  # or_ is none
    if is_operator or name.endswith("fill_"):  # which reads a number first
        return False
    return name.endswith("_") and not name.endswith("__")


def _item(tensor: Any, index: Any) -> Any:
    """The view to which a store to `tensor[index]` writes; None if the index gives no view."""
    parts = index if isinstance(index, tuple) else (index,)
    kinds = (int, torch.SymInt, slice, type(None), type(...))
    simple = all(isinstance(part, kinds) for part in parts)
    known = not any(map(depends_on_data, numbers_of(parts)))
    return tensor[index] if simple and known and _is_placed(tensor) else None


def _is_known(value: Any) -> bool:
    """A tensor whose place in its memory is known."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    place = (*value.shape, *value.stride(), value.storage_offset())
    return not any(map(is_symbolic, place))


def _is_placed(value: Any) -> bool:
    """A tensor whose place in its memory does not depend on data."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return not any(map(depends_on_data, (*value.shape, *value.stride(), value.storage_offset())))


def _share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


def _overlap_in_part(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors overlap in part, as at::get_overlap_status has it."""
    same = (
        one.storage_offset() * one.element_size() == other.storage_offset() * other.element_size()
    )
    same = same and one.numel() * one.element_size() == other.numel() * other.element_size()
    if one is other or (same and one.stride() == other.stride()):
        return False
    return _overlap(one, other)


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors without gaps meet; ATen looks at no others."""
    if not (one.numel() and other.numel() and dense(one) and dense(other)):
        return False
    starts = [t.storage_offset() * t.element_size() for t in (one, other)]
    sizes = [t.numel() * t.element_size() for t in (one, other)]  # nbytes refuses symbols
    ends = [start + size for start, size in zip(starts, sizes)]
    return starts[0] < ends[1] and starts[1] < ends[0]


def is_leaf(tensor: torch.Tensor) -> bool:
    """Whether no operation that autograd recorded gave the tensor. No is also the answer where
    autograd refuses one: of a view whose memory has been written.
    """
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


def history_of(tensor: torch.Tensor) -> Any:
    """The operation that gave the tensor, if autograd recorded one, and tells."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def may_be_written(tensor: torch.Tensor) -> bool:
    """Whether autograd records writes to a tensor that requires grad, instead of refusing them."""
    base = tensor._base
    if base is None:
        return not is_leaf(tensor)
    return not base.is_leaf and torch._C._autograd._get_creation_meta(tensor) == _DEFAULT


def version_of(tensor: torch.Tensor) -> int:
    """How often the tensor was written; inference tensors and those of such data do not say."""
    try:
        return 0 if tensor.is_inference() else tensor._version
    except RuntimeError:
        return 0


def is_fragile(tensor: torch.Tensor) -> bool:
    """Whether autograd refuses the view once its memory has been written: made without grad mode,
    or among several.
    """
    if not tensor._is_view() or tensor.is_inference():
        return False
    return torch._C._autograd._get_creation_meta(tensor) != _DEFAULT
