"""Classes of ints, as enum.IntEnum, with the operators of int."""

from __future__ import annotations

# Methods of int that no operator calls.
_OF_OBJECTS = frozenset(
    ["__new__", "__repr__", "__str__", "__format__", "__hash__", "__getattribute__", "__sizeof__"]
    + ["__getnewargs__"]
)
_OPERATORS_OF_INT = {
    name: getattr(int, name)
    for name, method in vars(int).items()
    if name.startswith("__") and callable(method) and name not in _OF_OBJECTS
}


def has_operators_of_int(kind: type) -> bool:
    """Whether operators take members of the class for the numbers that they are."""
    return issubclass(kind, int) and all(
        getattr(kind, name, None) is method for name, method in _OPERATORS_OF_INT.items()
    )
