"""Operators: the order of operands' methods, and the errors when none answers.

The interpreter's BINARY_OP, COMPARE_OP, UNARY_*, CONTAINS_OP and IS_OP, and the functions of the
`operator` module, all come through here. The operands answer through `Value.binary`,
`Value.compare`, `Value.unary`, `Value.contains`.
"""

from __future__ import annotations

import operator
import re
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.polyfills.protocols import after_binary, after_compare
from dynamo.polyfills.type_names import type_name
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.classes.builtin_bases import is_written_as_it_is
from dynamo.values.dummy_operands import fail_as
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.exceptions import call_real, raise_python
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbolic_text import percent, sum_of
from dynamo.values.stack_items import ReturnContinuation

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

BINARY_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "@": operator.matmul,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "//=": operator.ifloordiv,
    "%=": operator.imod,
    "**=": operator.ipow,
    "@=": operator.imatmul,
    "<<=": operator.ilshift,
    ">>=": operator.irshift,
    "&=": operator.iand,
    "|=": operator.ior,
    "^=": operator.ixor,
}
COMPARE_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
UNARY_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
}
SWAPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
DUNDER_STEMS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "<<": "lshift",
    ">>": "rshift",
    "&": "and",
    "|": "or",
    "^": "xor",
}
COMPARE_DUNDERS = {
    "==": "__eq__",
    "!=": "__ne__",
    "<": "__lt__",
    "<=": "__le__",
    ">": "__gt__",
    ">=": "__ge__",
}
UNARY_DUNDERS = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}


def binary_dunder(op: str, reflected: bool) -> str:
    """The special method for a symbol: "+" -> __add__ or __radd__, "+=" -> __iadd__."""
    if op.endswith("="):
        return f"__i{DUNDER_STEMS[op[:-1]]}__"
    return f"__{'r' if reflected else ''}{DUNDER_STEMS[op]}__"


def binary_op(tx: Interpreter, op: str, left: Value, right: Value, last: bool = False) -> Value:
    """`left op right` with Python's order: in-place, left, reflected right (first if a
    subclass with a method of its own). last: the current instruction only pushes the result.
    """
    if left.is_constant() and right.is_constant():
        text = sum_of(left, right) if op in ("+", "+=") else None
        if text is not None:
            return text
        of_subclass = op in ("%", "%=") and hasattr(left, "storage")
        if of_subclass and is_written_as_it_is(left, "__mod__"):
            call_real(tx, operator.mod, left.as_constant(), right.as_constant())
            return left
        function = BINARY_FUNCTIONS[op]
        return ConstantValue(call_real(tx, function, left.as_constant(), right.as_constant()))
    formats = op in ("%", "%=") and left.python_type_is(str, bytes)
    if formats and not right_goes_first(left, right, "__rmod__"):
        return _format_percent(tx, left, right)
    asked, op = op, op.removesuffix("=")
    attempts = [(left, right, False, op)]
    if not _same_type(left, right):
        attempts.append((right, left, True, op))
    if right_goes_first(left, right, binary_dunder(op, True)):
        attempts.reverse()
    if asked != op:
        attempts.insert(0, (left, right, False, asked))
    methods = [(reflected, binary_dunder(s, reflected)) for _, _, reflected, s in attempts]
    for i, (value, other, reflected, symbol) in enumerate(attempts):
        if last:
            _end_with(tx, value, methods[i:], after_binary, asked, left, right)
        if formats and value is left:
            return _format_percent(tx, left, right)
        result = value.binary(tx, symbol, other, reflected)
        storage: Any = _built_in_part(value, other)
        if result is None and storage is not None and not value.is_constant():
            result = value.binary(tx, symbol, storage, reflected)
            if storage is result:  # () + p: of the plain type
                plain: Any = storage
                result = plain.rebuilt(list(plain.contents))
        if result is not None:
            return result
    _must_know(left, "binary", binary_dunder(op, False))
    _must_know(right, "binary", binary_dunder(op, True))
    fail_as(tx, BINARY_FUNCTIONS[asked], left, right)


_CONVERSIONS = re.compile(r"%(?:\(.*?\))?[-#0 +]*(?:\d+|\*)?(?:\.(?:\d+|\*))?[hlL]?(.)")


def _format_percent(tx: Interpreter, text: Value, right: Value) -> Value:
    """text % values. Values that are not constants are turned to text by their own __str__."""
    made = percent(tx, text, right) if text.python_type() is str else None
    if made is not None:
        return made
    known, real = (False, None) if _holds_set(tx, right) else constant_or_none(right)
    if not known:
        if text.python_type() is bytes:
            raise Unsupported(breaks.NotConstant(right.describe()))
        asked = set(_CONVERSIONS.findall(text.as_constant()))
        if not asked <= {"s", "r", "a", "%"}:
            raise Unsupported(breaks.NotConstant(right.describe()))
        storage = getattr(right, "storage", None) or right
        if issubclass(right.python_type(), tuple):  # of any class
            real = tuple(late_bound.shown(tx, item) for item in storage.unpack(tx))
        else:
            real = late_bound.shown_operand(tx, right)
    return ConstantValue(call_real(tx, operator.mod, text.as_constant(), real))


def _holds_set(tx: Interpreter, value: Value, around: tuple[Value, ...] = ()) -> bool:
    """A set, or a sequence of one: the order of its text is the real one's."""
    if value.python_type_is(set, frozenset):
        return True
    contents = getattr(value, "contents", None)  # of sequences
    if not isinstance(contents, list) or value in around:
        return False
    return any(_holds_set(tx, item, (*around, value)) for item in value.unpack(tx))


def right_goes_first(left: Value, right: Value, method: str | None = None) -> bool:
    """The right operand's class is a subclass of the left one's, with another `method` if one is
    named.
    """
    try:
        left_type, right_type = left.python_type(), right.python_type()
    except Unsupported:
        return False
    if left_type is right_type or left_type not in right_type.__mro__:
        return False
    if method is None or not hasattr(left_type, method):
        return True
    return getattr(right_type, method) is not getattr(left_type, method)


def _end_with(
    tx: Interpreter,
    value: Value,
    methods: list[tuple[bool, str]],
    after: Callable[..., Any],
    symbol: str,
    left: Value,
    right: Value,
) -> None:
    """Tail-call the first method; its result goes to `after`, which may call the others."""
    operands = [ConstantValue(symbol), left, right, ConstantValue(tuple(methods[1:]))]
    tx.in_tail_position(value, methods[0][1], [ReturnContinuation(after, operands)])


def _same_type(left: Value, right: Value) -> bool:
    """Both are alike, so that the right one has no other method than the left one."""
    try:
        return type(left) is type(right) and left.python_type() is right.python_type()
    except Unsupported:
        return False


def compare_op(tx: Interpreter, op: str, left: Value, right: Value, last: bool = False) -> Value:
    """`left op right` for a rich comparison. last: see `binary_op`."""
    if left.is_constant() and right.is_constant():
        function = COMPARE_FUNCTIONS[op]
        return ConstantValue(call_real(tx, function, left.as_constant(), right.as_constant()))
    attempts = [(left, right, op), (right, left, SWAPPED[op])]
    if right_goes_first(left, right):
        attempts.reverse()
    methods = [(value is right, COMPARE_DUNDERS[symbol]) for value, _, symbol in attempts]
    for i, (value, other, symbol) in enumerate(attempts):
        if last:
            _end_with(tx, value, methods[i:], after_compare, op, left, right)
        result = value.compare(tx, symbol, other)
        if result is None:
            result = _compare_bare(tx, symbol, value, other)
        if result is not None:
            return result
    if op in ("==", "!=") and (same := _same_builtins(left, right)) is not None:
        return ConstantValue(same is (op == "=="))
    for value, dunder in ((left, COMPARE_DUNDERS[op]), (right, COMPARE_DUNDERS[SWAPPED[op]])):
        _must_know(value, "compare", dunder)
    if op in ("==", "!="):
        return ConstantValue(guard_distinct(tx, left, right) is (op == "=="))
    raise_python(
        tx,
        TypeError,
        f"{op!r} not supported between instances of "
        f"{type_name(left.python_type())!r} and {type_name(right.python_type())!r}",
    )


def _same_builtins(left: Value, right: Value) -> bool | None:
    """left == right, if one is a built-in function and no operand's class has a say."""
    (known, one), (other_known, other) = left.identity(), right.identity()
    kinds = {type(one), type(other)}
    if not (known and other_known and types.BuiltinFunctionType in kinds):
        return None
    silent = all(kind in _SILENT or kind.__eq__ is object.__eq__ for kind in kinds)
    return bool(one == other) if silent else None


_SILENT = (types.BuiltinFunctionType, bool, int, float, complex, str, bytes, types.NoneType)


def _built_in_part(value: Value, other: Value) -> Value | None:
    """The built-in part of an instance of a subclass, as the built-in type's methods see it."""
    return None if hasattr(value, "storage") else getattr(other, "storage", None)


def _compare_bare(tx: Interpreter, op: str, value: Value, other: Value) -> Value | None:
    storage = _built_in_part(value, other)
    if storage is None:
        return None
    if value.is_constant() and storage.is_constant():
        method = getattr(value.python_type(), COMPARE_DUNDERS[op])
        answer = method(value.as_constant(), storage.as_constant())
        return None if answer is NotImplemented else ConstantValue(answer)
    return value.compare(tx, op, storage)


def _must_know(value: Value, method: str, dunder: str) -> None:
    """Raises Unsupported if the type of `value` has an operator that its Value does not know. Those
    of numpy's scalars take whatever an array can be made of.
    """
    known = value.is_constant() or getattr(type(value), method) is not getattr(Value, method)
    if known and not _is_numpys(value):
        return
    found = getattr(value.python_type(), dunder, None)
    if found is not None and found is not getattr(object, dunder, None):
        raise Unsupported(breaks.UncapturedCall(f"{value.python_type().__name__}.{dunder}"))


def _is_numpys(value: Value) -> bool:
    try:
        return issubclass(value.python_type(), np.generic)
    except Unsupported:
        return False


def unary_op(tx: Interpreter, op: str, value: Value) -> Value:
    """`op value` for - + ~ ("not" is a question of truth, not of this)."""
    if value.is_constant():
        return ConstantValue(call_real(tx, UNARY_FUNCTIONS[op], value.as_constant()))
    result = value.unary(tx, op)
    if result is None:
        raise_python(
            tx, TypeError, f"bad operand type for unary {op}: {type_name(value.python_type())!r}"
        )
    return result


def contains_op(tx: Interpreter, item: Value, container: Value) -> Value:
    """`item in container`."""
    if item.is_constant() and container.is_constant():
        return ConstantValue(
            call_real(tx, operator.contains, container.as_constant(), item.as_constant())
        )
    return container.contains(tx, item)


def is_op(tx: Interpreter, left: Value, right: Value) -> bool:
    """`left is right`; that two objects from outside differ is guarded."""
    if left is not right and (left.is_symbolic() or right.is_symbolic()):
        number, other = (left, right) if left.is_symbolic() else (right, left)
        if other.python_type_is(number.python_type()):  # which object a number is, is unknown
            raise Unsupported(breaks.NotConstant(number.describe()))
    same = same_object(left, right)
    sources = (left.source, right.source)
    if left.is_constant() and right.is_constant():
        _guard_identity(tx, left, right, same)
    elif not same and None not in sources and not (left.is_constant() or right.is_constant()):
        tx.output.guards.add(None, "not_aliased", sources)
    return same


# Of literals and the like, those of which there may be several equal objects.
_EQUAL_OBJECTS = (str, bytes, int, float, complex, torch.device, torch.finfo, torch.iinfo)
_ONE_OBJECT = (bool, type(None), type(Ellipsis), type(NotImplemented))


def _guard_identity(tx: Interpreter, left: Value, right: Value, same: bool) -> None:
    """Literals are guarded to be equal."""
    one, other = left.as_constant(), right.as_constant()
    if left is right or type(one) is not type(other) or type(one) in _ONE_OBJECT:
        return
    if type(one) not in _EQUAL_OBJECTS or one != other:
        return
    if left.source is not None and right.source is not None:
        if same:
            tx.guard(left.source, "aliased", right.source)
        else:
            tx.output.guards.add(None, "not_aliased", (left.source, right.source))
        return
    source, literal = (left.source, other) if left.source is not None else (right.source, one)
    if source is not None:

        def is_that_object(value: Any) -> bool:
            return (value is literal) is same

        tx.guard(source, "predicate", is_that_object)


def same_object(left: Value, right: Value) -> bool:
    """`left is right`, as far as it is known while capturing."""
    if left is right:
        return True
    for value, other in ((left, right), (right, left)):
        if value.alternatives:
            answers = {same_object(option, other) for option in value.alternatives}
            if len(answers) > 1:
                raise Unsupported(breaks.NotConstant(f"which object {value.describe()} is"))
            return answers.pop()
    if not (left.is_constant() or right.is_constant()):
        for value in (left, right):
            if value.may_be_another:
                raise Unsupported(breaks.NotConstant(f"which object {value.describe()} is"))
    left_known, left_object = left.identity()
    right_known, right_object = right.identity()
    if left_known and right_known:
        return left_object is right_object
    if left.python_type_is(tuple) and right.python_type_is(tuple):
        return left.length(None) == right.length(None) == 0  # type: ignore[arg-type]
    # A value that the frame made, or one reached by another source, is another object: what is
    # reached twice from outside is one Value.
    return False


def guard_distinct(tx: Interpreter, left: Value, right: Value) -> bool:
    """`left is right`; that two objects of the program's from outside differ is guarded."""
    same = same_object(left, right)
    if not same and left.is_guarded_distinct and right.is_guarded_distinct:
        tx.output.guard_distinct(left)
        tx.output.guard_distinct(right)
    return same


def equal(tx: Interpreter, left: Value, right: Value) -> bool:
    """`left is right or left == right`: how containers compare their items."""
    return guard_distinct(tx, left, right) or compare_op(tx, "==", left, right).truth(tx)


@bound_late
def as_index(tx: Interpreter, value: Value) -> int:
    """operator.index(value), as an int known while capturing."""
    if value.is_constant():
        return call_real(tx, operator.index, value.as_constant())
    storage = getattr(value, "storage", None)
    if storage is not None and storage.python_type_is(int):
        return storage.as_constant()  # its class is not asked
    if value.has_special(tx, "__index__") or hasattr(value, "fake"):
        answer = value.call_method(tx, "__index__", [], {})
        if not answer.python_type_is(int):
            raise Unsupported(breaks.UncapturedCall(f"{value.python_type().__name__}.__index__"))
        return as_index(tx, answer)
    return call_real(tx, operator.index, value.as_constant())


def constant_or_none(value: Value) -> tuple[bool, Any]:
    """(True, the real value) for literals and immutable containers of them, else (False, None)."""
    try:
        return True, value.as_constant()
    except Unsupported:
        return False, None
