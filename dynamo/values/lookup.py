"""Python's lookup of what a type holds for its instances: the MRO, and never the metaclass (which
hasattr(cls, name) asks, too).
"""

from __future__ import annotations

import types
from typing import Any

from dynamo.capture.lookups import looked_up
from dynamo.class_guards import ABSENT as MISSING


def class_lookup(cls: type, name: str, after: type | None = None) -> Any:
    """What the MRO of `cls` (from behind `after`, if given) holds under `name`, unbound; MISSING
    if nothing.
    """
    mro = cls.__mro__ or ()  # None: of a class that is being made
    if after is not None:
        mro = mro[mro.index(after) + 1 :]
    for owner in mro:
        found = owner.__dict__.get(name, MISSING)
        if found is not MISSING:
            looked_up(cls if after is None else owner, name, found)
            return found
    if after is None:
        looked_up(cls, name)
    return MISSING


def type_holds(cls: type, name: str) -> bool:
    """Whether instances of `cls` find `name` in their type: its MRO, never the metaclass."""
    return class_lookup(cls, name) is not MISSING


def type_of_bound(found: Any) -> type:
    """The type of a C method bound to its receiver; `found`: what the receiver's type holds."""
    is_slot = isinstance(found, types.WrapperDescriptorType)
    return types.MethodWrapperType if is_slot else types.BuiltinMethodType
