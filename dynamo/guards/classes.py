"""The assumptions of a frame about classes: the MRO, the special methods, and lookups.

Capture asks classes in many places: operators, truth, iteration, descriptors, `isinstance`,
`copy`. One guard per class stands for all answers. While the version tag of a class is the same,
the guard compares one number (dynamo/csrc/guard_classes.cpp).
"""

from __future__ import annotations

import sys
import types
from typing import Any

# Names of these packages' modules and classes have one guard together (dynamo/guards/lookups.py).
TRUSTED_PACKAGES = frozenset(
    ["torch", "builtins", "dynamo", "math", "operator", "functools", "itertools", "collections"]
    + ["typing", "contextlib", "copy", "enum", "dataclasses", "types", "warnings", "numbers", "abc"]
)
# Data about a class, in part made at the first read: guarded where the frame reads them.
_DATA = frozenset(
    ["__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__slots__"]
    + ["__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"]
    + ["__firstlineno__", "__static_attributes__", "__slotnames__", "__type_params__"]
    + ["__orig_bases__", "__parameters__", "__dataclass_fields__", "__dataclass_params__"]
    + ["__protocol_attrs__", "__non_callable_proto_members__", "__callable_proto_members_only__"]
)
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<missing>"})()
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class statement made the class, or an extension
IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
# Parts of a class, read past its metaclass.
MODULE, NAMESPACE, _MRO, _FLAGS = (
    vars(type)[name] for name in ("__module__", "__dict__", "__mro__", "__flags__")
)


def is_trusted_class(cls: type) -> bool:
    """A class of torch or the standard library, whose attributes are guarded as lookups; not one
    that they make for the program, by torch.nn.utils.parametrize, FSDP, types.new_class or ABCMeta,
    nor one of code that exec() runs in a bare namespace, whose module is said to be builtins.
    """
    module = MODULE.__get__(cls)
    if not isinstance(module, str) or module.partition(".")[0] not in TRUSTED_PACKAGES:
        return False
    return not _is_changeable(cls) or is_named(cls)


def is_trusted_function(function: types.FunctionType) -> bool:
    """A function of a module of torch or the standard library: others may say that they are of one,
    by functools.wraps or in a namespace that exec() ran in.
    """
    name = function.__globals__.get("__name__")
    if not isinstance(name, str) or name.partition(".")[0] not in TRUSTED_PACKAGES:
        return False
    return getattr(sys.modules.get(name), "__dict__", None) is function.__globals__


def is_named(cls: type) -> bool:
    """Whether the module of a class holds it under its name, and keeps it alive."""
    found: Any = sys.modules.get(MODULE.__get__(cls))
    for part in cls.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found is cls


def is_special(name: Any) -> bool:
    """Whether the guard of a class covers the attribute `name` in the class's own dict."""
    if type(name) is not str or len(name) <= 4 or name in _DATA:
        return False
    return name.startswith("__") and name.endswith("__")


def may_appear(name: str) -> bool:
    """Whether a read may put the name into a class that did not hold it before."""
    return name in _DATA


def _is_changeable(cls: type) -> bool:
    return bool(_FLAGS.__get__(cls) & (HEAP_TYPE | IMMUTABLE_TYPE) == HEAP_TYPE)


def _can_change(cls: type) -> bool:
    return _is_changeable(cls) and not is_trusted_class(cls)


class ClassAssumptions:
    """The assumptions of a frame about one class."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.made_by_frame = False
        self.found: dict[str, Any] = {}  # by name: unbound
        self.data: dict[str, type] = {}  # by name: of what is no descriptor
        self.absent: dict[str, None] = {}  # names that a lookup does not find

    def assume(self, name: str, found: Any) -> None:
        """A lookup finds this object, or MISSING."""
        if found is MISSING:
            self.absent[name] = None
        else:
            self.found[name] = found

    def assume_data(self, name: str, kind: type) -> None:
        """A lookup finds an object of this type, no descriptor: instances may hide it."""
        self.data[name] = kind

    def payload(self) -> tuple[Any, ...] | None:
        """The payload of the guard; None for a class that nothing can change between two calls."""
        if self.made_by_frame:
            return None
        mro = _MRO.__get__(self.cls)
        owners = [owner for owner in mro or () if _can_change(owner)]
        if not owners:
            return None
        rows = tuple((owner, _specials(owner)) for owner in owners)
        return self.cls, rows, self.found, self.data, tuple(self.absent), _DATA


def _specials(owner: type) -> dict[str, Any]:
    return {name: held for name, held in NAMESPACE.__get__(owner).items() if is_special(name)}
