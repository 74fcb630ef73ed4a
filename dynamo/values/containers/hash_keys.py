"""Hash keys: representatives of symbolic values as keys of a symbolic dict or set."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo import breaks
from dynamo.config import config
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.containers.identity_keys import IdentityKey
from dynamo.values.dummy_operands import fail_as
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.exceptions import RaisedException, raise_python
from dynamo.values.scalars.constant import is_literal
from dynamo.values.scalars.operators import equal

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class EqualityKey:
    """The key of an object with its own `__eq__`, which is captured like any method. `hashed`: its
    hash, or a number for that of addresses, which is not `exact`.
    """

    __slots__ = ("exact", "hashed", "output", "value")

    def __init__(self, tx: Interpreter, value: Value, hashed: int, exact: bool = True) -> None:
        self.output = tx.output
        self.value = value
        self.hashed = hashed
        self.exact = exact

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        """As a lookup compares: the key in the table is `self`, or `other` if that is a literal."""
        value = other.value if isinstance(other, EqualityKey) else None
        tx = self.output.running
        if value is None:
            if not is_literal(other):
                raise Unsupported(breaks.UncapturedCall("__eq__ of a key with a container"))
            value = tx.from_constant(other)
        with without_effects(tx, "__eq__", self.value):
            return equal(tx, self.value, value)

    def check_hash(self) -> None:
        """Raise Unsupported if the object's hash differs from the hash of the key."""
        output = self.output
        next_event, output.next_event = output.next_event, config.loop_limit
        try:
            found: Any = self.value.hash_key(output.running)
        except RaisedException:
            found = None
        finally:
            output.next_event = next_event
        if found is None or hash(found) != self.hashed:
            refuse_stale(self.value)


def refuse_stale(key: Value) -> NoReturn:
    what = f"{key.describe()}, whose hash changed while it is a key,"
    raise Unsupported(breaks.CannotReconstruct(what))


def is_stale(key: Hashable, real: Any, table: Any) -> bool:
    """Whether a key of a dict or set from outside is not found there by its present hash, which may
    be that of a change that the frame has made. `key`: captured, so that its methods are known to
    have no effects.
    """
    if not calls_methods([key]):
        return False
    holds = dict.__contains__ if isinstance(table, dict) else type(table).__contains__
    try:
        changed = isinstance(key, EqualityKey) and (not key.exact or key.hashed != hash(real))
        return changed or not holds(table, real)
    except Exception:  # of a method of another key
        return True


def check_hashes(keys: Iterable[Hashable]) -> None:
    """A container with these keys is made again: that hashes them once more."""
    for key in keys:
        if isinstance(key, EqualityKey):
            key.check_hash()
        elif isinstance(key, (tuple, frozenset)):
            check_hashes(key)


@contextlib.contextmanager
def without_effects(tx: Interpreter, name: str, value: Value) -> Iterator[None]:
    """Around a method of a key, which runs unnoticed again where the rewritten frame makes the
    container again.
    """
    owner = value.python_type().__name__

    def reason(what: str) -> breaks.Break:
        return breaks.KeySideEffect(f"{owner}.{name}", what)

    with tx.output.side_effects.fenced(reason):
        yield


def hash_of(answer: int) -> int:
    """The hash of an object whose `__hash__` gives `answer`: only a larger one is hashed itself."""
    if not -(1 << 63) <= answer < 1 << 63:
        return hash(answer)
    return -2 if answer == -1 else answer


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
        if value.source is not None:
            tx.output.token_keys.came_from_outside(constant)
        return constant
    key = value.hash_key(tx)
    told = key.value if isinstance(key, IdentityKey) else key
    if told is value or told is value.outside:
        tx.output.guard_distinct(value)
    return key


FEW = 32
_ABSENT = object()


def sought_key(tx: Interpreter, value: Value, keys: Collection[Hashable]) -> Hashable:
    """The key by which to look for `value` among `keys`. A number that varies is compared with
    each of a few: inequalities hold for more calls than equalities.
    """
    told_apart = value.is_symbolic() and len(keys) <= FEW and all(map(is_literal, keys))
    if not told_apart:
        return key_of(tx, value)
    return next((key for key in keys if equal(tx, value, tx.constant(key))), _ABSENT)


@bound_late
def unhashable(tx: Interpreter, value: Value) -> Any:
    fail_as(tx, hash, value)
