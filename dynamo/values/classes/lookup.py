"""Python's lookup in a type for its instances: through the MRO, and never in the metaclass, where
hasattr(cls, name) looks, too.
"""

from __future__ import annotations

import types
from typing import Any

from dynamo.guards.classes import MISSING
from dynamo.guards.lookups import class_lookup as class_lookup


def type_holds(cls: type, name: str) -> bool:
    """Whether instances of `cls` find `name` in their type: its MRO, never the metaclass."""
    return class_lookup(cls, name) is not MISSING


def is_native(found: Any, kind: type, slot: str = "__get__") -> bool:
    """Whether `found` is a descriptor of the C type `kind` that Python calls by the slot of `kind`
    itself: a subclass can have a slot of its own.
    """
    return isinstance(found, kind) and class_lookup(type(found), slot) is getattr(kind, slot)


def reads_by_function(cls: type) -> bool:
    """Whether reading an attribute calls a `__getattribute__` of the program."""
    return isinstance(class_lookup(cls, "__getattribute__"), types.FunctionType)


def type_of_bound(found: Any) -> type:
    """The type of a C method bound to its receiver; `found`: the method unbound."""
    is_slot = isinstance(found, types.WrapperDescriptorType)
    return types.MethodWrapperType if is_slot else types.BuiltinMethodType
