"""Operations that kernels refuse for the types of their tensors, or whose results have types that
fake tensors do not tell:

    try:
        y = x.median()             # "median_cpu" not implemented for 'Bool'
    except RuntimeError:
        y = x.float().median()

A program that catches the exception learns so which types it can use, and its effects before are to
have happened. One call for each combination of types, sizes and other arguments tells: of real
tensors with four elements in each dimension, or as many as there are.
"""

from __future__ import annotations

import math
import re
import types
import warnings
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fxgraph.aot.recurrent import RECURRENT
from fxgraph.args import leaves, map_aggregate
from fxgraph.effects import of_function, of_method
from fxgraph.node import Node
from fxgraph.symbolic_values import hint_of

_REFUSAL = re.compile(
    r"not implemented for|not (yet |currently |intended to )?support|scalar type|dtype"
    r"|without overflow|with (a|two) bool tensor|for tensors with|complex tensors"
    r"|Integer division|can't be cast to the desired|expected BoolTensor|cannot be 0"
)
_CONSTANTS: tuple[type, ...] = (int, float, complex, bool, str, type(None), type(...))
_CONSTANTS += (torch.dtype, torch.layout, torch.memory_format, torch.device)
_MODULES = ("torch.nn.functional", "torch.functional", "torch._tensor")
_USUAL = {torch.float32, torch.float64}
_LARGEST = 1 << 16  # product of the numbers, which may be sizes of the result
REFUSED = object()
_known: dict[Any, Any] = {}


def has_unusual_types(target: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether kernels may have no form for the types, or none for a number."""
    found = list(leaves((args, kwargs)))
    dtypes = {leaf.meta["val"].dtype for leaf in found if _is_tensor(leaf)}
    if len(dtypes) != 1 or not dtypes <= _USUAL or complex in map(type, found):
        return True
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name == "masked_select":
        return True
    # Of losses and activations: a slope, a threshold.
    kinds = (int, float) if name in torch._C._nn.__dict__ else (float,)
    is_operator = getattr(target, "__module__", None) == "_operator"
    return not is_operator and any(type(one) in kinds and one <= 0 for one in found)


def types_of_results(op: str, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The types that real results have for types like those of the arguments, of which tensors are
    nodes; REFUSED where kernels raise, None where that cannot be tried.
    """
    method = op == "call_method"
    function = getattr(torch.Tensor, target, None) if method else target
    does = (of_method if method else of_function)(target, args, kwargs)
    if does.other or not _is_pure(function):
        return None
    described = [_description(leaf) for leaf in leaves((args, list(kwargs.items())))]
    if None in described or math.prod(filter(None, _numbers(args, kwargs))) > _LARGEST:
        return None
    modes = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")
    key = (function, len(args), tuple(described), torch.get_default_dtype(), modes)
    if key not in _known:
        _known[key] = _try(function, map_aggregate(args, _real), map_aggregate(kwargs, _real))
    return _known[key]


def tell_other_types(types: Any, example: Any) -> bool:
    """Whether real results have other types than the fake ones."""
    fake = _types_of(example)
    # Of small tensors, some operations have fewer results.
    return isinstance(types, tuple) and len(types) == len(fake) and types != fake


def _types_of(results: Any) -> tuple[torch.dtype, ...]:
    return tuple(leaf.dtype for leaf in leaves(results) if isinstance(leaf, torch.Tensor))


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Node) and isinstance(leaf.meta.get("val"), torch.Tensor)


def _is_pure(function: Any) -> bool:
    """A function of torch's that does nothing but compute, and that checks sizes: layers that read
    weights of other sizes than the state's past their ends are none, nor are private functions,
    such as products of packed weights, that read past the end of small ones.
    """
    name = getattr(function, "__name__", "")
    if function in RECURRENT or (name.startswith("_") and not name.startswith("__")):
        return False
    if isinstance(function, types.FunctionType):
        return function.__module__ in _MODULES
    kinds = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
    return isinstance(function, kinds)


def _description(leaf: Any) -> Any:
    if _is_tensor(leaf):
        val = leaf.meta["val"]
        plain = val.layout is torch.strided and val.device.type == "cpu" and not val.is_nested
        return (val.dtype, tuple(map(_few, val.shape))) if plain else None
    if isinstance(leaf, Node):
        number = hint_of(leaf.meta.get("val"))
        return (type(number), number) if isinstance(number, (int, float)) else None
    return (type(leaf), leaf) if isinstance(leaf, _CONSTANTS) else None


def _numbers(args: Any, kwargs: dict[str, Any]) -> list[int]:
    given = leaves((args, kwargs))
    found = (hint_of(one.meta.get("val")) if isinstance(one, Node) else one for one in given)
    return [abs(number) for number in found if type(number) is int]


def _few(size: Any) -> int:
    return min(hint_of(size) or 0, 4)


def _real(leaf: Any) -> Any:
    if _is_tensor(leaf):
        val = leaf.meta["val"]
        return torch.ones([_few(size) for size in val.shape], dtype=val.dtype, device="cpu")
    return hint_of(leaf.meta.get("val")) if isinstance(leaf, Node) else leaf


def _try(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    state, always = torch.default_generator.get_state(), torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # otherwise the program's own call would not warn any more
    try:
        with (
            torch.no_grad(),
            torch._C.DisableTorchFunction(),  # modes of the program see no trial
            _disable_current_modes(),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            return _types_of(function(*args, **kwargs))
    except Exception as error:
        return REFUSED if _REFUSAL.search(str(error)) else None
    finally:
        torch.set_warn_always(always)
        torch.default_generator.set_state(state)
