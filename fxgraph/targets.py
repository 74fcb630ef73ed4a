"""Names of call targets: a dotted path that evaluates to exactly the same object, and back."""

from __future__ import annotations

import builtins
import importlib
import sys
from typing import Any

import torch

# Where torch functions without a usable __module__ are looked for, most public first.
_TORCH_HOMES = (
    "torch", "torch.nn.functional", "torch.Tensor", "torch.linalg", "torch.fft", "torch.special",
    "torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special", "torch._C",
    "torch._VF",
)  # fmt: skip
_PRINTABLE_ROOTS = frozenset({"torch", "math", "operator"})
_MODULE_ALIASES = {"_operator": "operator", "torch._C._VariableFunctions": "torch"}


def qualified_name(target: Any, roots: frozenset[str] | None = _PRINTABLE_ROOTS) -> str | None:
    """A path such as `torch.ops.aten.add.Tensor` or `len` that names `target`, or None.

    Only paths that start with one of `roots`, and builtins; roots=None: any importable module.
    """
    if isinstance(target, torch._ops.OpOverload):
        namespace, name = target._schema.name.split("::")
        return f"torch.ops.{namespace}.{name}.{target._overloadname}"
    known = _known.get((id(target), roots))
    if known is None or not _names(known, target):
        known = _search(target, roots)
        if known is not None:
            _known[id(target), roots] = known
    return known


def resolve(path: str) -> Any:
    """The object that `path` names. Raises LookupError if there is none."""
    if hasattr(builtins, path):
        return getattr(builtins, path)
    parts = path.split(".")
    root: Any = sys.modules.get(parts[0])
    if root is None:
        try:
            root = importlib.import_module(parts[0])
        except ImportError as error:
            raise LookupError(f"cannot import {parts[0]!r} to find {path!r}") from error
    found = root
    for depth, part in enumerate(parts[1:], start=2):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = sys.modules.get(".".join(parts[:depth]))
            if found is None:
                raise LookupError(f"{path!r} does not exist") from None
    return found


_known: dict[tuple[int, frozenset[str] | None], str] = {}


def _search(target: Any, roots: frozenset[str] | None) -> str | None:
    if isinstance(target, torch._ops.OpOverloadPacket):
        return f"torch.ops.{target._qualified_op_name.replace('::', '.')}"
    name = getattr(target, "__name__", None)
    if not isinstance(name, str):
        return None
    if getattr(builtins, name, None) is target:
        return name
    module = getattr(target, "__module__", None)
    module = _MODULE_ALIASES.get(module or "", module)
    homes = list(_TORCH_HOMES)
    if module is not None and not module.startswith("torch._C"):
        homes.insert(0, module)
    for home in homes:
        if roots is not None and home.split(".")[0] not in roots:
            continue
        for tail in {name, getattr(target, "__qualname__", name)}:
            if "<" not in tail and _names(f"{home}.{tail}", target):
                return f"{home}.{tail}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        path = f"torch.ops.higher_order.{name}"
        return path if _names(path, target) else None
    return None


def _names(path: str, target: Any) -> bool:
    try:
        return resolve(path) is target
    except LookupError:
        return False
