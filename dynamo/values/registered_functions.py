"""Functions that classes of values call, and that are built on these classes.

They register here by name: the operations of every value that need its type's attributes
(values/descriptors.py), texts of literals (values/texts.py, values/symbolic_text.py), storage of
subclasses (values/storage.py), selection from tensors by keys (values/indexing.py), numbers in
tensors (values/deferred_scalar.py, values/captured_scalars.py), subclasses of tensors (torch/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
_REGISTERED: dict[str, Callable[..., Any]] = {}


def register(function: Function) -> Function:
    """Decorator of a function or class: register it under its name."""
    assert function.__name__ not in _REGISTERED, function
    _REGISTERED[function.__name__] = function
    return function


def registered(name: str) -> Any:
    return _REGISTERED[name]
