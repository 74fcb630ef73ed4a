"""Callables of the nodes in stored graphs: operators of the dispatcher, functions of numbers."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection
from typing import Any

import torch

from fxgraph.expressions import BIT_FUNCTIONS, REAL_FUNCTIONS, ROUNDINGS
from fxgraph.stored.errors import StoredError
from fxgraph.sym_node import (
    choose,
    sym_divide,
    sym_exp,
    sym_floordiv,
    sym_greatest,
    sym_least,
    sym_log,
    sym_log10,
    sym_rounded,
)

NAMESPACES = frozenset({"aten", "prims", "framegraph", "torchvision"})
# Operators that reach files, other memory, or the terminal.
_NEVER = frozenset(
    {"from_file", "save", "_print", "_test_string_default", "_nested_view_from_buffer"}
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*){2}")

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "getitem": operator.getitem,
    "choose": choose,
    **{f"operator.{f.__name__}": f for f in (
        operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
        operator.pow, operator.neg, operator.eq, operator.ne, operator.le, operator.ge, operator.lt,
        operator.gt, operator.and_, operator.or_, operator.not_, operator.xor, operator.lshift,
        operator.rshift,
    )},
    **{f"sym.{f.__name__}": f for f in (
        torch.sym_float, torch.sym_int, torch.sym_min, torch.sym_max, torch.sym_not, sym_divide,
        sym_exp, sym_floordiv, sym_greatest, sym_least, sym_log, sym_log10,
        sym_rounded,
    )},
    **{f"real.{name}": f for name, f in REAL_FUNCTIONS.items()},
    **{f"rounded.{name}": f for name, f in ROUNDINGS.items()},
    **{f"bits.{name}": f for name, f in BIT_FUNCTIONS.items()},
    **{
        f"sym._{name}": getattr(torch, f"_sym_{name}")
        for name in REAL_FUNCTIONS
        if hasattr(torch, f"_sym_{name}")
    },
    **{f"math.{f.__name__}": f for f in (math.ceil, math.floor, math.trunc)},
}  # fmt: skip
_NAMES = {id(function): name for name, function in reversed(_FUNCTIONS.items())}


def name_of(target: Any) -> str:
    """The name by which a stored graph calls `target`."""
    if isinstance(target, torch._ops.OpOverload):
        namespace, name = target._schema.name.split("::")
        if _allowed(target, [namespace]):
            return f"{namespace}.{name}.{target._overloadname}"
    elif (known := _NAMES.get(id(target))) is not None:
        return known
    raise StoredError(f"a saved program may not call {target}")


def operator_of(name: Any, foreign: Collection[str] = ()) -> Callable[..., Any]:
    """The operator or function of this name. foreign: namespaces of other libraries that it may be
    of.
    """
    if not isinstance(name, str):
        raise StoredError(f"not the name of an operator: {str(name)[:80]}")
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if _NAME.fullmatch(name) is None:
        raise StoredError(f"a saved program may not call {name[:80]!r}")
    namespace, packet, overload = name.split(".")
    if namespace not in NAMESPACES and namespace not in foreign:
        raise StoredError(
            f"a saved program may not call {name[:80]!r}, unless its library is named: "
            "dynamo.load(path, operators=[namespace])"
        )
    qualified = f"{namespace}::{packet}" + ("" if overload == "default" else f".{overload}")
    # Operators of TorchScript alone (aten::save) are not in the dispatcher.
    if not torch._C._dispatch_has_kernel(qualified):
        owner = f"this torch ({torch.__version__})" if namespace in NAMESPACES else namespace
        raise StoredError(f"{owner} has no operator {name}")
    found = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    if not _allowed(found, foreign):
        raise StoredError(f"a saved program may not call {name}")
    return found


def foreign_namespace(name: str) -> str | None:
    """Of an operator that another library brings."""
    namespace = name.split(".")[0]
    return None if name in _FUNCTIONS or namespace in NAMESPACES else namespace


def _allowed(target: torch._ops.OpOverload, foreign: Collection[str]) -> bool:
    """Operators that change nothing but, at the end of a graph, its inputs."""
    namespace, name = target._schema.name.split("::")
    if namespace not in NAMESPACES:
        return namespace in foreign and not target._schema.is_mutable
    if name in _NEVER:
        return False
    return not target._schema.is_mutable or target is torch.ops.aten.copy_.default
