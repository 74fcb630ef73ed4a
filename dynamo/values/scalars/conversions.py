"""Built-in functions that turn a value into a number or a text: int(), str(), format(), round().

Each looks its special method up on the type, as Python does. Literals are folded; instances of a
literal's subclass convert by their built-in part, where the class leaves the literal's method in
place.
"""

from __future__ import annotations

import math
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, Source, TypeSource
from dynamo.values import late_bound
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.table import TABLE, Handler, fold, handles
from dynamo.values.classes.builtin_bases import builtin_base
from dynamo.values.classes.lookup import type_holds
from dynamo.values.containers.hash_keys import hash_of, key_of
from dynamo.values.dummy_operands import fail_as
from dynamo.values.functions.functional import PureObjectValue
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.builtin_object import BuiltinObject
from dynamo.values.objects.descriptors import MISSING, SLOT_TYPES, class_lookup
from dynamo.values.objects.exception_objects import ExceptionValue
from dynamo.values.objects.exceptions import RaisedException, call_real
from dynamo.values.objects.identity_numbers import NestHash, TokenValue
from dynamo.values.objects.immutable_objects import ImmutableValue
from dynamo.values.scalars.constant import ConstantValue, is_literal
from dynamo.values.scalars.operators import binary_op, right_goes_first
from dynamo.values.scalars.symbolic_text import formatted, text_with_address, text_with_numbers
from dynamo.values.tensors.deferred_scalar import DeferredScalar
from dynamo.values.tensors.tensor import READ_METHODS, TensorValue
from dynamo.values.tensors.tensor_texts import formatted_tensor, text_of_tensor

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def answer_of(tx: Interpreter, value: Value, method: str, *types: type) -> Value:
    """The result of a special method, which must be of these types; a graph break otherwise, where
    Python raises.
    """
    answer = value.call_method(tx, method, [], {})
    if not answer.python_type_is(*types):
        raise _refused(value, method)
    return answer


def _refused(value: Value, method: str) -> Unsupported:
    return Unsupported(breaks.UncapturedCall(f"{value.python_type().__name__}.{method}"))


def literal_of(value: Value) -> Any:
    """The literal that an instance of a literal's subclass holds; None for other values."""
    storage = getattr(value, "storage", None)
    return storage.as_constant() if isinstance(storage, ConstantValue) else None


def is_nan(value: Value) -> bool:
    """Whether the value is NaN, or a nest with one inside: NaN hashes by its address."""
    storage = getattr(value, "storage", None)
    held = value if storage is None else storage
    return held.is_constant() and _holds_nan(held.as_constant())


def _holds_nan(constant: Any) -> bool:
    if isinstance(constant, (tuple, frozenset)):
        return any(map(_holds_nan, constant))
    if isinstance(constant, (float, complex)):
        return constant != constant
    return False


# -- numbers --------------------------------------------------------------------------------------
# Types without a number's methods and without a buffer.
_NO_NUMBERS = frozenset(
    [type(None), list, tuple, dict, set, frozenset, range, slice, types.FunctionType, object]
)


def _conversion(cls: type, **dunders: type) -> Handler:
    """int(x), float(x), ...: constants are folded, others convert by the first of the methods
    that their type has. `dunders`: method -> the type that it has to return.
    """

    def convert(tx, *args, **kwargs):
        if not args or all(a.is_constant() for a in args):
            return fold(tx, cls, args, kwargs)
        if len(args) > 1 or kwargs:
            raise Unsupported(breaks.UncapturedCall(cls.__name__))
        (value,) = args
        kind = value.python_type()
        name = next((n for n in dunders if class_lookup(kind, n) is not MISSING), None)
        if name is not None and value.has_special(tx, name):
            return convert(tx, answer_of(tx, value, name, dunders[name]))
        plain = name is None or isinstance(class_lookup(kind, name), SLOT_TYPES)
        if hasattr(value, "storage") and not plain:  # an object whose method is no function
            raise _refused(value, name)
        if class_lookup(kind, "__trunc__") is not MISSING and name is None:
            raise _refused(value, "__trunc__")  # int() warns of it
        literal = literal_of(value)
        if literal is not None:
            return fold(tx, cls, [ConstantValue(literal)], {})
        if name is not None:
            return value.call_method(tx, name, [], {})
        if builtin_base(kind) not in _NO_NUMBERS:
            raise Unsupported(breaks.UncapturedCall(cls.__name__))
        fail_as(tx, cls, value)

    return convert


TABLE[int] = _conversion(int, __int__=int, __index__=int)
TABLE[float] = _conversion(float, __float__=float, __index__=int)
TABLE[complex] = _conversion(complex, __complex__=complex, __float__=float, __index__=int)


@handles(bool)
def _bool(tx, value=None):
    if value is None:
        return ConstantValue(False)
    if isinstance(value, TensorValue) and value.fake.numel() == 1:
        read = READ_METHODS["__bool__"](tx, value)
        if read is not None:
            return read
    return value.truth_value(tx)


@handles(operator.truth)
def _truth(tx, value):
    return value.truth_value(tx)


@handles(operator.not_)
def _not(tx, value):
    return value.truth_value(tx, negated=True)


@handles(abs, operator.abs)
def _abs(tx, value):
    if value.is_constant():
        return fold(tx, abs, [value], {})
    if not type_holds(value.python_type(), "__abs__"):
        fail_as(tx, abs, value)
    return value.call_method(tx, "__abs__", [], {})


@handles(round)
def _round(tx, number, ndigits=None):
    args = [] if is_none(ndigits) else [ndigits]
    if number.is_constant():
        return fold(tx, round, [number, *args], {})
    if not type_holds(number.python_type(), "__round__"):
        fail_as(tx, round, number)
    return number.call_method(tx, "__round__", args, {})


@handles(pow)
def _pow(tx, base, exp, mod=None):
    if not is_none(mod):
        return fold(tx, pow, [base, exp, mod], {})
    return binary_op(tx, "**", base, exp)


@handles(divmod)
def _divmod(tx, left, right):
    if left.is_constant() and right.is_constant():
        return fold(tx, divmod, [left, right], {})
    if left.has_special(tx, "__divmod__") and not right_goes_first(left, right):
        answer = left.call_method(tx, "__divmod__", [right], {})
        if not (answer.is_constant() and answer.as_constant() is NotImplemented):
            return answer
    raise Unsupported(breaks.UncapturedCall("divmod"))


def _math(name: str, dunder: str) -> Handler:
    function = getattr(math, name)

    def call(tx, value):
        if value.has_special(tx, dunder):
            return value.call_method(tx, dunder, [], {})
        return fold(tx, function, [value], {})

    return call


for _name in ("ceil", "floor", "trunc"):
    TABLE[getattr(math, _name)] = _math(_name, f"__{_name}__")


# -- text -----------------------------------------------------------------------------------------
@handles(str)
def _str(tx, value=None, *rest):
    if value is None:
        return ConstantValue("")
    if rest:  # bytes are decoded
        return fold(tx, str, [value, *rest], {})
    return text_value(tx, value, str)


@handles(repr)
def _repr(tx, value):
    return text_value(tx, value, repr)


def text_value(tx: Interpreter, value: Value, function: Callable[[Any], str]) -> Value:
    """str(value) or repr(value), which may have symbolic numbers inside."""
    if isinstance(value, ImmutableValue):
        return value.call_method(tx, f"__{function.__name__}__", [], {})
    text = text_with_numbers(tx, value, function) or text_of_tensor(tx, value)
    text = text or text_by_address(tx, value, function)
    if text is None:
        text = ConstantValue(text_of(tx, value, function, f"__{function.__name__}__"))
    return text


def text_of(tx: Interpreter, value: Value, function: Callable[[Any], str], method: str) -> str:
    """str(value) or repr(value)."""
    own = _own_text(tx, value, method)
    if own is not None:
        return own
    if isinstance(value, ExceptionValue):
        if method == "__str__":
            return value.text()
        return f"{value.cls.__name__}({', '.join(repr(a.as_constant()) for a in value.args)})"
    known, real = value.identity()
    if known and issubclass(type(real), type | types.ModuleType):
        return function(real)
    if known and _names_address(real) and not tx.output.side_effects.is_dirty(value):
        if value.source is not None:
            tx.guard(value.source, "id", real)
            _guard_names(tx, value.source, real)
        return function(real)
    if isinstance(value, BuiltinObject):
        real = late_bound.shown(tx, value)
        if type(real) is not late_bound.Shown:
            return function(real)
    if isinstance(value, PureObjectValue):
        return function(value.real)
    try:
        constant = value.as_constant()
    except Unsupported:
        raise Unsupported(breaks.UncapturedCall(function.__name__)) from None
    return call_real(tx, function, constant)


@bound_late
def text_by_address(
    tx: Interpreter, value: Value, function: Callable[[Any], str]
) -> ConstantValue | None:
    """The text of an object from outside that gives no more than its class and its address: made
    when the graph has run, so that the object may be another one.
    """
    known, real = value.identity()
    if not known or value.source is None or not _names_address(real) or type(real) in _NAMED:
        return None
    if tx.output.side_effects.is_dirty(value):
        return None
    if value.has_special(tx, f"__{function.__name__}__") or value.has_special(tx, "__repr__"):
        return None
    _guard_names(tx, value.source, real)
    return text_with_address(tx, value, real, function(real))


_NAMED = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType),
    *(types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
    *(types.ClassMethodDescriptorType, torch._ops.OpOverload, torch._ops.OpOverloadPacket),
)


def _names_address(real: Any) -> bool:
    """Whether the text of an object gives no more than its class, its name and its address."""
    kind = type(real)
    if kind in _NAMED:
        return True
    return kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__


def _guard_names(tx: Interpreter, source: Source, real: Any) -> None:
    """Guard the names in the object's text."""
    tx.guard(source, "type", type(real))
    if type(real) is types.FunctionType:
        tx.guard(AttrSource(source, "__qualname__"), "constant", real.__qualname__)
    elif type(real) not in _NAMED:
        for name in ("__module__", "__qualname__"):
            named = getattr(type(real), name)
            tx.guard(AttrSource(TypeSource(source), name), "constant", named)


def _own_text(tx: Interpreter, value: Value, method: str) -> str | None:
    """The text of a user's class: from its own __str__ or __repr__, or that of the literal that the
    instance holds.
    """
    if not hasattr(value, "storage"):
        if value.has_special(tx, method):
            return answer_of(tx, value, method, str).as_constant()
        return None
    kind = value.python_type()
    found = class_lookup(kind, method)
    if found is object.__str__:  # which asks for the repr
        method, found = "__repr__", class_lookup(kind, "__repr__")
    if value.has_special(tx, method):
        return answer_of(tx, value, method, str).as_constant()
    if not isinstance(found, SLOT_TYPES):
        raise _refused(value, method)
    literal = literal_of(value)
    if literal is None or getattr(found, "__objclass__", object) is object:
        return None
    return call_real(tx, found, literal)


@handles(format)
def _format(tx, value, spec=None):
    if spec is not None and not issubclass(spec.python_type(), str):
        fail_as(tx, format, ConstantValue(0), spec)
    text = formatted(value, spec)
    real = tx.output.known_tensors.real_of(value.fake) if isinstance(value, TensorValue) else None
    if real is not None and not real.ndim:
        value = ConstantValue(real.item())
    if text is None and isinstance(value, TensorValue | DeferredScalar):
        text = formatted_tensor(tx, value, "" if spec is None else spec.as_constant())
    if text is not None:
        return text
    if value.is_symbolic():
        value = ConstantValue(value.as_constant())
    if value.is_constant():
        return fold(tx, format, [value] if spec is None else [value, spec], {})
    if value.has_special(tx, "__format__"):
        answer = value.call_method(tx, "__format__", [spec or ConstantValue("")], {})
        if not issubclass(answer.python_type(), str):
            raise _refused(value, "__format__")
        return answer
    if tx.output.guesses and isinstance(value, TensorValue) and value.fake.ndim == 0:
        return ConstantValue("0")
    plain = spec is None or spec.as_constant() == ""
    found = class_lookup(value.python_type(), "__format__")
    if hasattr(value, "storage") and not isinstance(found, SLOT_TYPES):
        raise _refused(value, "__format__")
    literal = literal_of(value)
    if literal is not None and not plain and found is not object.__format__:
        try:
            return fold(tx, format, [ConstantValue(literal), spec], {})
        except RaisedException:  # its text has the name of the subclass
            raise _refused(value, "__format__") from None
    if plain:
        return text_value(tx, value, str)
    if found is object.__format__:
        fail_as(tx, format, value, spec)
    raise _refused(value, "__format__")


@handles(hash)
def _hash(tx, owner):
    if is_nan(owner):
        return TokenValue(hash, owner)
    if owner.is_constant():
        return ConstantValue(call_real(tx, hash, owner.as_constant()))
    if owner.has_special(tx, "__hash__"):
        answer = answer_of(tx, owner, "__hash__", int)
        if isinstance(answer, TokenValue):
            return answer
        return ConstantValue(hash_of(answer.as_constant()))
    if hasattr(owner, "fake"):
        return TokenValue(id, owner)  # a tensor's hash
    key = key_of(tx, owner)
    if is_literal(key):
        return ConstantValue(hash(key))
    try:
        return ConstantValue(hash(owner.as_constant()))
    except Unsupported:
        kind = owner.python_type()  # functions hash by their address, too
        if kind in (tuple, frozenset):
            return NestHash(owner, key)
        if class_lookup(kind, "__hash__") is object.__hash__ or kind is types.FunctionType:
            return TokenValue(hash, owner)
        raise Unsupported(breaks.UncapturedCall("hash")) from None
