"""Arguments that fake tensors take where the operation itself does not: a dimension out of range,
floats for their bits, a negative power of integers, a view beyond the memory, a missing device,
factors of different types, bools to subtract, integers where the kernel has floats only, an extreme
of no elements, a source that does not fit the view that it is written to, indices of few bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fxgraph.args import leaves
from fxgraph.symbolic_values import depends_on_data

_DIMENSIONS = frozenset(["softmax", "log_softmax", "softmin", "gumbel_softmax", "sort", "argsort"])
# Writes into a view, which the source fits: x, source, the view's arguments.
_INTO_VIEWS: dict[str, Callable[..., torch.Tensor]] = {
    "select_scatter": torch.select,
    "slice_scatter": torch.ops.aten.slice,
    "diagonal_scatter": torch.diagonal,
    "as_strided_scatter": torch.as_strided,
}
_DROPOUTS = frozenset(
    [f"{name}dropout" for name in ("", "alpha_", "feature_", "feature_alpha_")]
    + [f"dropout{n}d" for n in (1, 2, 3)]
)
_LONG_INDICES = frozenset(["index_copy", "index_fill"])  # x, dimension, indices
_POWERS = frozenset(["pow", "ipow"])
_SUBTRACTIONS = frozenset(["sub", "isub", "rsub", "subtract"])
_OF_BITS = frozenset(
    ["and", "or", "xor", "iand", "ior", "ixor", "rand", "ror", "rxor", "masked_fill"]
    + [f"bitwise_{name}" for name in ("and", "or", "xor", "left_shift", "right_shift", "not")]
    + ["invert"]
)
# Products: all tensors have one type, unless autocast gives them one.
_PRODUCTS = frozenset(
    ["matmul", "imatmul", "mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "linear"]
)
_OF_FLOATS = frozenset(
    ["softmax", "log_softmax", "softmin", "gelu", "std", "var", "layer_norm", "max_pool1d"]
)
# Functions that need elements. Without a dimension: mode takes the last one, median gives nan.
_SELECTIONS = frozenset(["max", "min", "median", "nanmedian", "mode"])


def refuse_missing_device(result: Any) -> None:
    """Raise where a tensor is on a CUDA device that this machine does not have."""
    on_cuda = isinstance(result, torch.Tensor) and result.device.type == "cuda"
    if on_cuda and (result.device.index or 0) >= torch.cuda.device_count():
        raise RuntimeError(f"a tensor on {result.device}")


def refuse_misfits(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise where eager execution of the operation `name` would, for all values of the tensors."""
    plain = name.partition(".")[0].strip("_")
    if isinstance(kwargs.get("alpha"), bool) and not all(map(_is_bool, args)):
        raise RuntimeError(f"{name} with a bool for alpha")
    if plain in _PRODUCTS or plain in _OF_FLOATS:
        _refuse_types(name, plain, args, kwargs)
    if plain in _OF_A_TENSOR and args and isinstance(args[0], torch.Tensor):
        _OF_A_TENSOR[plain](plain, *args, **kwargs)
    elif plain in _OF_ARGUMENTS:
        _OF_ARGUMENTS[plain](name, args, kwargs)


def _refuse_floats(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    operands = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
    asked = operands[1:2] if name.startswith("masked_fill") else operands
    if any(tensor.is_floating_point() for tensor in asked):
        raise TypeError(f"{name} of floats")


def _refuse_power(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    base, exponent = (*args, *kwargs.values())[:2] if len(args) + len(kwargs) > 1 else (0, 0)
    negative = type(exponent) is int and exponent < 0
    if negative and isinstance(base, torch.Tensor) and not _has_fractions(base):
        raise RuntimeError(f"{name} of integers")
    if _is_bool(base) and _is_bool(exponent):
        raise NotImplementedError(f"{name} of bools")


def _refuse_bools(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if any(map(_is_bool, (*args, *kwargs.values()))):
        raise RuntimeError(f"{name} of bools")


def _refuse_no_statistics(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    lowest = kwargs.get("running_min", args[3] if len(args) > 3 else None)
    if isinstance(lowest, torch.Tensor) and not lowest.numel():
        raise RuntimeError(f"{name} with empty statistics, which it makes larger")


def _refuse_few_bits(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    index = kwargs.get("index", args[2] if len(args) > 2 else None)
    if isinstance(index, torch.Tensor) and index.dtype is not torch.int64:
        error = IndexError if name.startswith("index_fill") else RuntimeError
        raise error(f"{name} at {index.dtype}")


def _refuse_dimension(name: str, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    place = 3 if name == "gumbel_softmax" else 0
    rank = max(tensor.ndim, 1)
    for dim in (kwargs.get("dim"), *args[place : place + 1]):
        if type(dim) in (int, torch.SymInt) and not -rank <= dim < rank:
            raise IndexError(f"{name} over dimension {dim}")


def _refuse_source(
    name: str, tensor: torch.Tensor, src: Any = None, *args: Any, out: Any = None, **kwargs: Any
) -> None:
    """Raise where there is no such view, or the source is of another shape."""
    sizes = leaves((args, kwargs))
    if not isinstance(src, torch.Tensor) or any(map(depends_on_data, sizes)):
        return
    if name == "as_strided_scatter":
        _refuse_beyond(name, tensor, *args, **kwargs)
    view = _INTO_VIEWS[name](tensor, *args, **kwargs)
    shapes = (*view.shape, *src.shape)
    if not any(map(depends_on_data, shapes)) and tuple(view.shape) != tuple(src.shape):
        raise RuntimeError(f"{name} of {list(src.shape)} into {list(view.shape)}")


def _refuse_empty(name: str, tensor: torch.Tensor, dim: Any = None, *_: Any, **__: Any) -> None:
    sizes: Sequence[int] = ()
    if type(dim) is int and -tensor.ndim <= dim < tensor.ndim:
        sizes = [tensor.shape[dim]]
    elif dim is None and name in ("max", "min"):
        sizes = tensor.shape
    elif dim is None and name == "mode":
        sizes = tensor.shape[-1:]
    if any(not depends_on_data(size) and size == 0 for size in sizes):
        raise IndexError(f"{name} of no elements")


def ask_squeezed(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Ask of squeezed sizes that depend on data whether they are 1: torch's rule keeps them."""
    of_tensor = bool(args) and isinstance(args[0], torch.Tensor) and args[0].ndim > 0
    if name.rstrip("_") != "squeeze" or not of_tensor:
        return
    shape, dims = args[0].shape, leaves((args[1:], kwargs.get("dim", ())))
    for size in [shape[dim] for dim in dims if type(dim) is int] or shape:
        if depends_on_data(size):
            bool(size != 1)


def _is_bool(operand: Any) -> bool:
    kind = operand.dtype if isinstance(operand, torch.Tensor) else type(operand)
    return kind is torch.bool or kind is bool


def _refuse_types(name: str, plain: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise where the kernel has no form for the types of the tensors."""
    tensors = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    types = {tensor.dtype for tensor in tensors}
    if plain in _PRODUCTS:
        refused = len(types) > 1 or torch.bool in types
        if refused and not any(torch.is_autocast_enabled(t.device.type) for t in tensors):
            raise RuntimeError(f"{name} of {' and '.join(sorted(map(str, types)))}")
    elif tensors and not _has_fractions(tensors[0]) and not _names_type(args, kwargs):
        raise RuntimeError(f"{name} of {tensors[0].dtype}")


def _names_type(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the operation converts its operand first."""
    return any(isinstance(arg, torch.dtype) for arg in (*args, *kwargs.values()))


def _has_fractions(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _refuse_beyond(
    name: str, tensor: torch.Tensor, size: Any = (), stride: Any = (), storage_offset: Any = None
) -> None:
    """Raise where a view has elements outside of the memory of `tensor`."""
    offset = tensor.storage_offset() if storage_offset is None else storage_offset
    if any(n < 0 for n in size):
        raise RuntimeError(f"{name} of a negative size")
    if any(n == 0 for n in size):
        return
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    if (last + 1) * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise RuntimeError(f"{name} beyond the memory")


# Checks of what becomes of a tensor by an operation: (name, the tensor, its other arguments).
_OF_A_TENSOR: dict[str, Callable[..., None]] = {
    **dict.fromkeys(_SELECTIONS, _refuse_empty),
    **dict.fromkeys(_DIMENSIONS, _refuse_dimension),
    **dict.fromkeys(_INTO_VIEWS, _refuse_source),
    "as_strided": _refuse_beyond,
}


# Checks of other operations: (name, arguments, keyword arguments).
def _refuse_training(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else False))
    if type(training) is not bool:
        raise TypeError(f"{name} with {training!r} for training")


_OF_ARGUMENTS: dict[str, Callable[[str, Sequence[Any], Mapping[str, Any]], None]] = {
    **dict.fromkeys(_OF_BITS, _refuse_floats),
    **dict.fromkeys(_POWERS, _refuse_power),
    **dict.fromkeys(_SUBTRACTIONS, _refuse_bools),
    **dict.fromkeys(_LONG_INDICES, _refuse_few_bits),
    **dict.fromkeys(_DROPOUTS, _refuse_training),
    "fused_moving_avg_obs_fake_quant": _refuse_no_statistics,
}
