"""Marks that users set on tensors: which of their sizes vary, and which never do.

The names of the attributes are torch's, so that a tensor that is marked for torch.compile is marked
here. Their effect is in dynamo/guards/shapes.py.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import torch

from dynamo.errors import ConstraintViolation

MARKED = "_dynamo_dynamic_indices"
MAYBE = "_dynamo_weak_dynamic_indices"
STATIC = "_dynamo_static_indices"
RAGGED = "_dynamo_propagated_dynamic_indices"  # of the values of a jagged tensor
UNBACKED = "_dynamo_unbacked_indices"
_ADDRESS = "_dynamo_static_input_type"
_RANGES = "_dynamo_dynamic_range"
_BOUNDS = "_dynamo_unbacked_bounds"


def mark_dynamic(
    t: torch.Tensor,
    dim: int | tuple[int, ...] | list[int],
    min: int | None = None,
    max: int | None = None,
    *,
    hint_override: int | None = None,
    specialize_on: Sequence[Callable[..., Any]] | None = None,
) -> None:
    """Compile for any size of dimension `dim` of this tensor (in [min, max]) at once.

    Captured code that needs one certain size of it is an error (dynamo.errors.ConstraintViolation).
    hint_override (the size to optimise for) and specialize_on (conditions for which a backend may
    make code of its own) are advice for torch.compile's backend; ours generates code for all sizes.
    Raises TypeError for an object that is no tensor, and where dimension or range are no ints,
    IndexError for a dimension that the tensor does not have, ValueError for an empty range.
    """
    _check_range(min, max)
    for one in _dims(t, dim):
        _mark(t, MARKED, one)
        t.__dict__.setdefault(_RANGES, set()).add(_Range(one, min, max))


def maybe_mark_dynamic(t: torch.Tensor, dim: int | tuple[int, ...] | list[int]) -> None:
    """As mark_dynamic, also its errors; but captured code may make the size a constant again."""
    for one in _dims(t, dim):
        _mark(t, MAYBE, one)


def mark_static(t: Any, dim: int | tuple[int, ...] | list[int] | None = None) -> None:
    """Never compile for any size of this dimension (all: None), but for the one that it has.

    A class of modules may be marked, too, which changes nothing: numbers that a module holds are
    constants until they vary.

    Raises TypeError for an object that is no tensor and a dimension that is no int, IndexError for
    a dimension that the tensor does not have.
    """
    if isinstance(t, type):
        if not issubclass(t, torch.nn.Module):
            raise TypeError(f"a tensor or a class of modules is marked, not {t!r}")
        return
    for one in _dims(t, dim):
        _mark(t, STATIC, one)


def mark_unbacked(
    t: torch.Tensor,
    dim: int | tuple[int, ...] | list[int],
    hint_override: int | None = None,
    strict: bool = False,
    specialize_on: Sequence[Callable[..., Any]] | None = None,
    shape_id: str | None = None,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """Compile once for all sizes of this dimension (in [min, max]), 0 and 1 among them: as for
    sizes that depend on data, captured code must not ask which one it is. Where it does, the graph
    breaks.

    hint_override, specialize_on: see mark_dynamic. strict: nothing is assumed in any case.
    shape_id, a promise that sizes of this name are equal, is not made use of. Errors are those of
    mark_dynamic.
    """
    _check_range(min, max)
    for one in _dims(t, dim):
        _mark(t, UNBACKED, one)
        t.__dict__.setdefault(_BOUNDS, {})[one] = (min, max)


def _check_range(low: int | None, high: int | None) -> None:
    for bound in (low, high):
        if bound is not None and not isinstance(bound, numbers.Integral):
            raise TypeError(f"a bound of a size is an int or None, not {bound!r}")
    if high is not None and high < (low or 0):
        raise ValueError(
            f"no size lies in the marked range: min {low or 0} is more than max {high}"
        )


class _Range(NamedTuple):
    """A range of sizes, in the words of torch.compile's errors."""

    dim: int
    min: int | None
    max: int | None


def marked_range(tensor: torch.Tensor, dim: int, name: str) -> tuple[int | None, int | None]:
    """The bounds of a size that was marked; ConstraintViolation if the size, `name`, is beyond."""
    bounds = [(one.min, one.max) for one in getattr(tensor, _RANGES, ()) if one.dim == dim]
    bounds.append(getattr(tensor, _BOUNDS, {}).get(dim, (None, None)))
    low = max((low for low, _ in bounds if low is not None), default=None)
    high = min((high for _, high in bounds if high is not None), default=None)
    size = tensor.shape[dim]
    if size < (low or 0) or (high is not None and size > high):
        least, most = low or 0, "any" if high is None else high
        raise ConstraintViolation(
            f"{name} is {size}, and was marked to lie in the range from {least} to {most}"
            "\n  hint: widen the range (min=..., max=...), or do not mark this tensor"
        )
    return low, high


def mark_static_address(t: torch.Tensor, guard: bool = True) -> None:
    """Tell backends that this tensor's memory stays where it is: they find the mark on the
    example input, as torch.compile's do. Capture does the same with and without. Raises TypeError
    for what is no tensor.
    """
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"a tensor is marked, not {type(t).__name__}")
    setattr(t, _ADDRESS, "guarded" if guard else "unguarded")


def _dims(t: torch.Tensor, dim: int | tuple[int, ...] | list[int] | None) -> list[int]:
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"a tensor is marked, not {type(t).__name__}")
    if dim is None:
        return list(range(t.dim()))
    dims = list(dim) if isinstance(dim, tuple | list) else [dim]
    for one in dims:
        if not isinstance(one, numbers.Integral):
            raise TypeError(f"a dimension is an int, not {one!r}")
        if not -t.dim() <= one < t.dim():
            raise IndexError(f"the tensor has {t.dim()} dimensions, none of them is {one}")
    return [one % t.dim() for one in dims]


def _mark(t: torch.Tensor, name: str, dim: int) -> None:
    marks = getattr(t, name, None)
    if marks is None:
        marks = set()
        setattr(t, name, marks)
    marks.add(dim)


def is_marked(tensor: torch.Tensor) -> bool:
    """Whether the user marked a dimension of the tensor as one that varies."""
    return bool(marks(tensor, MARKED) or marks(tensor, MAYBE))


def marks(tensor: torch.Tensor, name: str) -> Collection[int]:
    """The dimensions of the tensor with the mark of this name."""
    return getattr(tensor, name, ())
