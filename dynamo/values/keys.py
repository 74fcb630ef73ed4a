"""Hash keys: what stands for a symbolic value as a key of a symbolic dict or set."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from dynamo.values.base import Value
from dynamo.values.exceptions import raise_python
from dynamo.values.standins import fail_as

if TYPE_CHECKING:
    from dynamo.capture.interpreter import Interpreter


class IdentityKey:
    """The key of a value that hashes by identity: equal only to itself."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and self.value is other.value


class EqualityKey:
    """The key of an object with its own `__hash__` and `__eq__`, which are captured like any
    method.
    """

    __slots__ = ("hashed", "tx", "value")

    def __init__(self, tx: Interpreter, value: Value, hashed: int) -> None:
        self.tx = tx
        self.value = value
        self.hashed = hashed

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        from dynamo.values.operators import equal

        return isinstance(other, EqualityKey) and equal(self.tx, self.value, other.value)


def calls_methods(keys: Iterable[Hashable]) -> bool:
    """Whether hashing one of these keys calls a method of a user class."""
    return any(
        isinstance(key, EqualityKey) or (isinstance(key, (tuple, frozenset)) and calls_methods(key))
        for key in keys
    )


def key_of(tx: Interpreter, value: Value) -> Hashable:
    """The hash key of `value`; raises TypeError in the program for an unhashable one."""
    if value.is_constant():
        constant = value.as_constant()
        try:
            hash(constant)
        except TypeError as error:
            raise_python(tx, TypeError, *error.args)
        return constant
    return value.hash_key(tx)


def unhashable(tx: Interpreter, value: Value) -> Any:
    fail_as(tx, hash, value)
