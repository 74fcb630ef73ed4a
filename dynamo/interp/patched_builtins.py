"""Builtins, and attributes of tensors, that capture and compilation are made of.

Where a program has replaced one (a test with a mock counts its calls), capture would run the
program's code on its own account: frames run as they are meanwhile.
"""

from __future__ import annotations

import builtins
from typing import Any

import torch

from dynamo.guards.kinds import GuardSet, GuardTree
from dynamo.guards.sources import GlobalsSource

# Builtins that programs replace for good, and that nothing here calls.
_PROGRAMS = frozenset(
    ["print", "open", "input", "breakpoint", "compile", "eval", "exec", "exit", "quit", "help"]
    + ["copyright", "credits", "license", "globals", "locals"]
)
_OF_TENSORS = (
    "shape dtype device layout ndim requires_grad grad grad_fn data is_leaf is_nested is_sparse "
    "is_quantized size stride storage_offset numel dim element_size untyped_storage data_ptr "
    "detach as_subclass __torch_function__ __torch_dispatch__ __hash__ __eq__ __new__ __init__"
)


def _relied_on() -> tuple[tuple[Any, str, Any], ...]:
    """(namespace, name, value there)."""
    names = [n for n in vars(builtins) if n.islower() and not n.startswith("_")]
    found: list[tuple[Any, str, Any]] = [
        (vars(builtins), name, vars(builtins)[name]) for name in names if name not in _PROGRAMS
    ]
    for cls in (torch.Tensor, torch._C.TensorBase):
        found += [(vars(cls), n, vars(cls).get(n)) for n in _OF_TENSORS.split()]
    dtypes = (name for name, held in vars(torch).items() if isinstance(held, torch.dtype))
    found += [(vars(torch), name, vars(torch)[name]) for name in dtypes]
    return tuple(found)


_RELIED_ON = _relied_on()


def something_is_replaced(_: Any = None) -> bool:
    """Whether a function on which capture relies has been replaced since import."""
    for namespace, name, real in _RELIED_ON:  # noqa: SIM110 - calls no builtin
        if namespace.get(name) is not real:
            return True
    return False


def _while_replaced() -> GuardTree:
    guards = GuardSet()
    guards.add(GlobalsSource(), "predicate", something_is_replaced)
    return guards.build()


WHILE_REPLACED = _while_replaced()  # built before anything is replaced
