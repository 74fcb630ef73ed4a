"""Checks and conversions of the results of special methods, for frames that go on behind the
method.

A graph break inside of `a.__add__(b)` leaves the rest of that method, and the rest of its callers,
to continuations; the caller's applies one of these functions, captured like user code, to the
method's result.
"""

from __future__ import annotations

import operator
import sys
from typing import Any

from dynamo.polyfills import mark
from dynamo.polyfills.type_names import type_name

mark(globals(), hidden=True)

# Operators that sequences have as such, in words of their own; and these sequences.
_OF_SEQUENCES = {"+": operator.add, "+=": operator.iadd, "*": operator.mul, "*=": operator.imul}
_SEQUENCES = (list, tuple, str, bytes, bytearray)


def after_binary(
    result: Any, symbol: str, left: Any, right: Any, rest: tuple[tuple[bool, str], ...]
) -> Any:
    """`left symbol right`, once a method returned `result`. rest: the methods to ask then, each of
    the left operand (False) or the right one.
    """
    for of_right, name in rest:
        if result is not NotImplemented:
            return result
        one, other = (right, left) if of_right else (left, right)
        method = getattr(type(one), name, None)
        if method is not None:
            result = method(one, other)
    if result is not NotImplemented:
        return result
    concatenate = _OF_SEQUENCES.get(symbol)
    if concatenate is not None and type(left) in _SEQUENCES:
        return concatenate(left, type(type_name(type(right)), (), {})())  # which raises
    names = f"{type_name(type(left))!r} and {type_name(type(right))!r}"
    shown = "** or pow()" if symbol == "**" else symbol
    raise TypeError(f"unsupported operand type(s) for {shown}: {names}")


def after_compare(
    result: Any, symbol: str, left: Any, right: Any, rest: tuple[tuple[bool, str], ...]
) -> Any:
    """The same for a comparison."""
    for of_right, name in rest:
        if result is not NotImplemented:
            return result
        one, other = (right, left) if of_right else (left, right)
        result = getattr(type(one), name)(one, other)
    if result is not NotImplemented:
        return result
    if symbol == "==":
        return left is right
    if symbol == "!=":
        return left is not right
    names = f"{type_name(type(left))!r} and {type_name(type(right))!r}"
    raise TypeError(f"{symbol!r} not supported between instances of {names}")


def contained(result: Any) -> bool:
    return bool(result)


def not_contained(result: Any) -> bool:
    return not result


def keep_attribute(result: Any, obj: Any, name: str) -> Any:
    """Store the result of a functools.cached_property under its name."""
    obj.__dict__[name] = result
    return result


def checked_bool(result: Any) -> bool:
    if type(result) is not bool:
        raise TypeError(f"__bool__ should return bool, returned {type(result).__name__}")
    return result


def negated_bool(result: Any) -> bool:
    return not checked_bool(result)


def checked_length(result: Any) -> int:
    result = operator.index(result)
    if result < 0:
        raise ValueError("__len__() should return >= 0")
    if result > sys.maxsize:
        raise OverflowError("cannot fit 'int' into an index-sized integer")
    return result


def checked_str(result: Any) -> str:
    if isinstance(result, str):
        return result
    raise TypeError(f"__str__ returned non-string (type {type(result).__name__})")


def checked_repr(result: Any) -> str:
    if isinstance(result, str):
        return result
    raise TypeError(f"__repr__ returned non-string (type {type(result).__name__})")


def checked_format(result: Any) -> str:
    if isinstance(result, str):
        return result
    raise TypeError(f"__format__ must return a str, not {type(result).__name__}")


def checked(result: Any, obj: Any, method: str, function: Any, kind: Any) -> Any:
    """function(obj), given `result` of obj.method(), which should be a `kind`."""
    if type(result) is kind and (function is not hash or -(1 << 60) < result < 1 << 60):
        return function(result)
    return function(type(type(obj).__name__, (), {method: lambda self: result})())


def same(value: Any) -> Any:
    return value


def keep_item(result: Any, mapping: Any, key: Any) -> Any:
    """Store the result of a defaultdict's factory under the key."""
    mapping[key] = result
    return result


def checked_iterator(result: Any) -> Any:
    if not hasattr(type(result), "__next__"):
        raise TypeError(f"iter() returned non-iterator of type {type_name(type(result))!r}")
    return result
