"""Functions of tensors that are written for numpy's arrays."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from dynamo.directives import check_callable


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors from one of numpy's arrays: tensors among the arguments become arrays,
    and arrays among the results tensors. Compiled, all of it is one graph, with gradients, which
    numpy has not. Raises TypeError for an object that cannot be called.
    """
    check_callable("wrap_numpy", fn)

    @functools.wraps(fn)
    def of_tensors(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(torch.Tensor, array_of, (args, kwargs))
        return pytree.tree_map_only(np.ndarray, tensor_of, fn(*args, **kwargs))

    return of_tensors


def array_of(tensor: torch.Tensor) -> Any:
    """The tensor as an array; while capturing, one that hands gradients on."""
    return tensor.numpy()


def tensor_of(array: Any) -> torch.Tensor:
    """The array as a tensor, likewise."""
    return torch.as_tensor(array)


_of_torch: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def numpy_wrapper(fn: Any) -> Any:
    """Ours in place of a function that torch.compiler.wrap_numpy made; None for other objects."""
    if type(fn) is not types.FunctionType or fn.__code__.co_name != "wrap":
        return None
    if not fn.__code__.co_filename.endswith("external_utils.py") or "__wrapped__" not in vars(fn):
        return None
    if fn not in _of_torch:
        _of_torch[fn] = wrap_numpy(vars(fn)["__wrapped__"])
    return _of_torch[fn]
