"""Functions of tensors that the module of TensorValue calls, and that are built on it.

They register here by name: selection by keys (values/indexing.py), numbers in tensors
(values/deferred_scalar.py, values/captured_scalars.py), subclasses and overrides (torch/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
_REGISTERED: dict[str, Callable[..., Any]] = {}


def tensor_function(function: Function) -> Function:
    """Decorator: register the function under its name."""
    _REGISTERED[function.__name__] = function
    return function


def registered(name: str) -> Callable[..., Any]:
    return _REGISTERED[name]
