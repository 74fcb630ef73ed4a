"""Tensors of subclasses: functions of the torch folder that the values below it call.

torch/overrides.py and torch/tensor_subclass.py register theirs by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
_REGISTERED: dict[str, Callable[..., Any]] = {}


def overridable(function: Function) -> Function:
    """Decorator: register the function under its name."""
    _REGISTERED[function.__name__] = function
    return function


def registered(name: str) -> Callable[..., Any]:
    return _REGISTERED[name]
