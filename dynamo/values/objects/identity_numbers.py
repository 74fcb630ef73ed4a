"""Numbers that only identify an object: id(x), the thread's ident. Equal to themselves; made again
by the same call.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import GlobalsSource
from dynamo.values.base import Value
from dynamo.values.containers.hash_keys import check_hashes
from dynamo.values.recipes import Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import same_object
from dynamo.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class TokenValue(Value):
    """`function(subject)`, or `function()`: not known while capturing, but the same for the same
    subject.
    """

    def __init__(self, function: Callable[..., Any], subject: Value | None) -> None:
        super().__init__()
        self.function = function
        self.subject = subject

    def python_type(self) -> type:
        return int

    def children(self) -> Sequence[Value]:
        return () if self.subject is None else (self.subject,)

    def held(self) -> Sequence[Value]:
        return ()

    def truth(self, tx: Interpreter) -> bool:
        return True

    def is_same(self, other: TokenValue) -> bool:
        if self.function is not other.function:
            return False
        if self.subject is None or other.subject is None:
            return self.subject is other.subject
        self._assume_object()
        other._assume_object()
        return same_object(self.subject, other.subject)

    def _assume_object(self) -> None:
        """A varying number is another object at each place that loads it: break instead."""
        if self.subject is not None and self.subject.is_symbolic():
            raise Unsupported(breaks.NotConstant(f"{self.function.__name__}()"))

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if op not in ("==", "!="):
            raise Unsupported(breaks.NotConstant(f"{self.function.__name__}()"))
        if not isinstance(other, TokenValue):
            return self._compare_with_number(tx, op, other)
        self._guard_distinct(tx)
        other._guard_distinct(tx)
        return ConstantValue(self.is_same(other) is (op == "=="))

    def _compare_with_number(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        """A number from outside may be this one, which is known of an object from outside."""
        if not (other.is_constant() or other.is_symbolic()):
            raise Unsupported(breaks.NotConstant(f"{self.function.__name__}()"))
        number = other.as_constant()
        if isinstance(number, int):
            key = TokenKey(tx, self)
            if key.real is None:
                raise Unsupported(breaks.NotConstant(f"{self.function.__name__}()"))
            key.assume()
            number = number == key.real
        return ConstantValue((number is True) is (op == "=="))

    def _guard_distinct(self, tx: Interpreter) -> None:
        if self.subject is not None:
            tx.output.guard_distinct(self.subject)

    def hash_key(self, tx: Interpreter) -> Hashable:
        return tx.output.token_keys.add(self.number(tx))

    def number(self, tx: Interpreter) -> TokenKey:
        """Stands for the number, beside other tokens alone."""
        self._assume_object()
        self._guard_distinct(tx)
        return TokenKey(tx, self)

    def key_by_subject(self) -> Hashable:
        """Equal for tokens that are the same, if in no other way than `is_same` tells."""
        subject = None if self.subject is None else self.subject.hash_key_by_identity()
        return TokenValue, self.function, subject

    def recipe(self) -> Recipe:
        return self.function, self.children()


class NestHash(TokenValue):
    """The hash of a tuple or frozenset with parts that hash by identity, or tokens among them. The
    hash of their keys stands for it: these are alike where the parts' hashes are.
    """

    def __init__(self, subject: Value, key: Hashable) -> None:
        super().__init__(hash, subject)
        self.key = key
        self.hashed = hash(key)

    def is_same(self, other: TokenValue) -> bool:
        return isinstance(other, NestHash) and self.hashed == other.hashed

    def key_by_subject(self) -> Hashable:
        return NestHash, self.hashed

    def _assume_object(self) -> None:
        pass

    def _guard_distinct(self, tx: Interpreter) -> None:
        pass  # `key_of` did, of each part

    def recipe(self) -> Recipe:
        check_hashes([self.key])
        return super().recipe()


class TokenKey:
    """A token as a key: equal to its current number, where the object exists already."""

    __slots__ = ("hashed", "real", "token", "tx")

    def __init__(self, tx: Interpreter, token: TokenValue) -> None:
        self.tx = tx
        self.token = token
        self.real = self._number(tx)
        self.hashed = hash(self.real or token.key_by_subject())

    def _number(self, tx: Interpreter) -> int | None:
        token = self.token
        if token.subject is None:
            return token.function()
        if tx.output.side_effects.is_new(token.subject):
            return None
        known, real = _object_of(token.subject)
        return token.function(real) if known else None

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TokenKey):
            return self.token.is_same(other.token)
        return self.real is not None and self.real == other

    def assume(self) -> None:
        """Guard the number's value: the program looks the number up among others."""
        output, token = self.tx.output, self.token
        if token.function is _thread.get_ident:
            output.guard(GlobalsSource(), "predicate", _runs_in(self.real))
        elif token.subject is None or output.side_effects.is_new(token.subject):
            return  # no number that was there before
        elif self.real is None or token.function is not id or token.subject.is_constant():
            raise Unsupported(breaks.NotConstant(f"{token.function.__name__}()"))
        else:
            output.guard(token.subject.source, "id", _object_of(token.subject)[1])


def _object_of(subject: Value) -> tuple[bool, Any]:
    """Whether the object exists while capturing, and the object: a tensor from outside, too, which
    captured code does not know by its identity otherwise.
    """
    if isinstance(subject, TensorValue):
        return subject.real is not None and subject.source is not None, subject.real
    return subject.identity()


def _runs_in(thread: int | None) -> Callable[[Any], bool]:
    return lambda _: _thread.get_ident() == thread


class TokenKeys:
    """The tokens that became keys in a frame, and whether keys from outside are numbers, too: such
    a number may be one that an earlier frame got, and `id` of an object if not a small one.
    """

    def __init__(self) -> None:
        self.keys: list[TokenKey] = []
        self.numbers = False
        self.addresses = False

    def add(self, key: TokenKey) -> TokenKey:
        if self._may_meet(key):
            key.assume()
        self.keys.append(key)
        return key

    def _may_meet(self, key: TokenKey) -> bool:
        return self.addresses if key.token.function is id else self.numbers

    def came_from_outside(self, key: Hashable) -> None:
        before = self.numbers, self.addresses
        for number in () if self.addresses else _numbers_in(key):
            self.numbers = True
            self.addresses |= abs(number) >= _FIRST_ADDRESS
        if before == (self.numbers, self.addresses):
            return
        for known in self.keys:
            if self._may_meet(known):
                known.assume()


_FIRST_ADDRESS = 1 << 12  # that an object may have: systems keep the first page empty


def _numbers_in(key: Hashable) -> Iterator[complex]:
    if isinstance(key, tuple | frozenset):
        for part in key:
            yield from _numbers_in(part)
    elif isinstance(key, int | float | complex):
        yield key
