"""Built-in functions and types: one table from the callable to the handler of its calls.

A handler is `(tx, *args, **kwargs) -> Value | None` (None stands for Python's None). Operations
that Python says best are in polyfills/; functions that are pure on constants are folded.
"""

from __future__ import annotations

import _thread
import ast
import inspect
import json
import operator
import re
import sys
import types
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, Source
from dynamo.polyfills.type_names import type_name
from dynamo.values import late_bound
from dynamo.values.base import Forwarded, TailCallable, Value
from dynamo.values.builder import builder, special_builder
from dynamo.values.builtins.polyfill_calls import polyfill_call, polyfill_method
from dynamo.values.builtins.tail_builtins import tail_call_builtin
from dynamo.values.classes.lookup import class_lookup, type_holds, type_of_bound
from dynamo.values.containers.containers import TupleValue
from dynamo.values.dummy_operands import fail_as
from dynamo.values.functions.function import (
    FunctionValue,
    MethodValue,
    NestedFunctionValue,
    UserFunctionValue,
)
from dynamo.values.iterators.generator import drive
from dynamo.values.iterators.real_iterators import REAL
from dynamo.values.objects.descriptors import is_trusted_class
from dynamo.values.objects.exception_objects import name_attribute
from dynamo.values.objects.exceptions import (
    RaisedException,
    call_handler,
    call_real,
    is_exception,
    raise_python,
)
from dynamo.values.objects.identity_numbers import TokenValue
from dynamo.values.objects.known_objects import KnownObject
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.objects.reflection import UNBOUND, check_new
from dynamo.values.recipes import Attribute, Existing, Recipe, exact
from dynamo.values.scalars.constant import ConstantValue, is_literal
from dynamo.values.scalars.literals import from_constant
from dynamo.values.scalars.mixed_numbers import call_on_numbers
from dynamo.values.scalars.operators import (
    BINARY_FUNCTIONS,
    COMPARE_FUNCTIONS,
    UNARY_FUNCTIONS,
    binary_op,
    compare_op,
    contains_op,
    guard_distinct,
    is_op,
    unary_op,
)

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

Handler = Callable[..., Any]  # as of `handles`
TABLE: dict[Any, Handler] = {}
# Modules whose C functions are pure: with constant arguments they are called while capturing.
PURE_MODULES = frozenset(
    ["math", "cmath", "_operator", "_struct", "_stat", "zlib", "binascii", "_json", "_sre"]
)
PURE_FUNCTIONS = {
    abs, ascii, bin, chr, divmod, format, hex, oct, ord, pow, round, len, repr, hash,
    str.maketrans, bytes.maketrans, inspect.signature, inspect.getmro, inspect.isabstract,
    inspect.cleandoc, inspect.getfullargspec, json.dumps, json.loads, ast.literal_eval,
    re.compile, re.escape, re.match, re.search, re.fullmatch, re.sub, re.split, re.findall,
}  # fmt: skip


def handles(*targets: Any) -> Callable[[Handler], Handler]:
    """Decorator: the handler of calls of these callables, (tx, *args, **kwargs) -> the result, None
    for Python's None, or the call with which the handler ends.
    """

    def register(handler: Handler) -> Handler:
        for target in targets:
            TABLE[target] = handler
        return handler

    return register


def _is_call(receiver: Value, name: str) -> bool:
    """Whether receiver.name() is a call of the receiver."""
    if name != "__call__":
        return False
    own = FunctionValue | MethodValue | BuiltinMethod | BuiltinValue | SlotValue
    return isinstance(receiver, own) or receiver.python_type() in _OF_C


_OF_C = frozenset([types.BuiltinFunctionType, types.MethodWrapperType])


def polyfill(tx: Interpreter, function: Callable[..., Any], *args: Value, **kwargs: Value) -> Value:
    """Capture a call of a Python function of ours in which no break can stand. A handler that ends
    with a call of another one returns that call.
    """
    return tx.inline(tx.wrap(function), args, kwargs)


def fold(tx: Interpreter, function: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Call a pure function now, on constants."""
    if function in (inspect.signature, inspect.getfullargspec):
        args = [*(_of_same_parameters(tx, value) for value in args[:1]), *args[1:]]
        guard_parameters(tx, *args)
    real = [real_object(a) for a in args]
    result = call_real(tx, function, *real, **{k: real_object(v) for k, v in kwargs.items()})
    if hasattr(type(result), "__next__"):  # one that each call needs anew
        raise Unsupported(breaks.UncapturedCall(callable_name(function)))
    if type(result) in (list, dict, set) and is_json(result):
        return from_constant(result)  # made by the frame, free to change
    return tx.wrap(result)


# Where inspect looks for parameters of an object before its class's `__call__`.
_OWN_PARAMETERS = ("__signature__", "__wrapped__", "__code__")


def _of_same_parameters(tx: Interpreter, value: Value) -> Value:
    """A real callable for one of the frame's: parameters of a callable object are those of its
    class's `__call__`, of a method those of its function, whatever the receiver, and of a function
    the same whatever its cells hold.
    """
    if isinstance(value, ObjectValue) and not any(value.hasattr(tx, n) for n in _OWN_PARAMETERS):
        value = value.special_method(tx, "__call__") or value
    if isinstance(value, MethodValue):
        return MethodValue(_of_same_parameters(tx, value.function), ConstantValue(0))
    if not isinstance(value, NestedFunctionValue) or value.mutation.attrs:
        return value
    defaults = () if value.defaults is None else value.defaults.unpack(tx)
    named, annotations = (
        {} if held is None else {k: _existing(v) for k, v in held.constant_keys(tx).items()}  # type: ignore[attr-defined]
        for held in (value.keyword_defaults, value.annotation_dict())
    )
    cells = tuple(types.CellType() for _ in value.code.co_freevars)
    made = types.FunctionType(value.code, {}, None, tuple(map(_existing, defaults)), cells)
    made.__kwdefaults__, made.__annotations__ = named, annotations
    return tx.wrap(made)


def _existing(value: Value) -> Any:
    known, real = value.identity()
    if not known:
        raise Unsupported(breaks.NotConstant(value.describe()))
    return real


def guard_parameters(tx: Interpreter, *functions: Value) -> None:
    """Assume that the functions keep the signatures that they have."""
    for value in functions:
        while isinstance(value, MethodValue):
            value = value.function
        known, real = value.identity()
        if known and isinstance(real, type):
            makers = (class_lookup(real, name) for name in ("__new__", "__init__"))
            plain = (getattr(maker, "__func__", maker) for maker in makers)
            made_by = (maker for maker in plain if isinstance(maker, types.FunctionType))
            guard_parameters(tx, *(tx.wrap(m, tx.output.install(m.__name__, m)) for m in made_by))
        if isinstance(value, UserFunctionValue):
            tx.guard(value.source, "predicate", _has_parameters_of(value.function))
            if "__wrapped__" in vars(value.function):
                guard_parameters(tx, value.getattr(tx, "__wrapped__"))


def _has_parameters_of(function: types.FunctionType) -> Callable[[Any], bool]:
    """Parts of a function, apart from its code, that its signature is made of, are the same."""

    def parts(function: Any) -> tuple[list[Any], list[Any]]:
        named, annotations = function.__kwdefaults__ or {}, function.__annotations__
        told = [vars(function).get(name) for name in ("__signature__", "__wrapped__")]
        single = (function.__defaults__, *told)
        return [tuple(named), tuple(annotations)], [*single, *named.values(), *annotations.values()]

    names, held = parts(function)

    def check(other: Any) -> bool:
        names_now, held_now = parts(other)
        return names_now == names and all(map(operator.is_, held_now, held))

    return check


def is_json(value: Any) -> bool:
    """A nest of lists, dicts, sets and literals."""
    if type(value) in (list, set):
        return all(map(is_json, value))
    if type(value) is dict:
        return all(is_literal(k) and is_json(v) for k, v in value.items())
    return is_literal(value)


def real_object(value: Value) -> Any:
    """The real object behind a value, if it exists already and runs no code of the program's."""
    if isinstance(value, ObjectValue) or _is_changed(value):
        raise Unsupported(breaks.NotConstant(value.describe()))
    if hasattr(value, "load_all"):  # a container, which may change
        return value.as_constant()
    known, real = value.identity()
    return real if known else value.as_constant()


def _is_changed(value: Value) -> bool:
    """Whether the captured code has stored attributes that the real object does not have yet."""
    held = getattr(value, "function", value)
    mutation = held.mutation if isinstance(held, Value) else value.mutation
    return mutation is not None and bool(mutation.attrs)


def callable_name(function: Any) -> str:
    """The name by which the program knows a callable: torch.from_numpy, print, zlib.crc32."""
    name = getattr(function, "__name__", None) or repr(function)
    module = getattr(function, "__module__", None)
    if getattr(sys.modules.get(module or ""), name, None) is not function:
        qualified = getattr(function, "__qualname__", name)
        name = name if "pybind11" in qualified else qualified
    return f"{module}.{name}" if module not in (None, "builtins") else name


def known_twin(function: Any) -> Any:
    """The function of this name in the module `operator`, which may have been loaded again."""
    if function.__module__ != "_operator":
        return function
    return getattr(operator, function.__name__, function)


class BuiltinValue(KnownObject):
    """A built-in function, or a Python function that the table knows."""

    def __init__(self, function: Any, source: Source | None = None) -> None:
        super().__init__(function, source)
        self.function = function

    def as_proxy(self) -> Any:
        return self.function

    def describe(self) -> str:
        return callable_name(self.function)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        made = polyfill_call(tx, self.function, args, kwargs, last=False)
        return self._handle(tx, args, kwargs, last=False) if made is None else made

    def _handle(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value], last: bool
    ) -> Value:
        if any(arg.is_symbolic() or arg.alternatives for arg in args):
            made = call_on_numbers(tx, self.function, args, kwargs)
            if made is not None:
                return made
        handler = TABLE.get(known_twin(self.function))
        if handler is not None:
            name = self.describe()
            result = call_handler(tx, name, handler, args, kwargs, self.function, last)
            return ConstantValue(None) if result is None else result
        if self.is_pure():
            return fold(tx, self.function, args, kwargs)
        raise Unsupported(breaks.UncapturedCall(self.describe()))

    def tail_call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        made = polyfill_call(tx, self.function, args, kwargs, last=True)
        if made is not None:
            return made
        if not kwargs:
            made = tail_call_builtin(tx, known_twin(self.function), args)
        return self._handle(tx, args, kwargs, last=True) if made is None else made

    def is_pure(self) -> bool:
        return self.function.__module__ in PURE_MODULES or self.function in PURE_FUNCTIONS


# Attributes that a bound method has from its slot.
_OF_SLOTS = frozenset(["__doc__", "__qualname__", "__text_signature__", "__objclass__"])


class BuiltinMethod(TailCallable):
    """A method of a C type, bound to a value; `found` is the slot itself, if a type lookup gave
    it.
    """

    is_guarded_distinct = True

    def __init__(self, receiver: Value, name: str, found: Any = None) -> None:
        super().__init__()
        self.receiver = receiver
        # A class may hold the slot under another name: `__setattr__ = dict.__setitem__`.
        slots = types.WrapperDescriptorType | types.MethodDescriptorType
        self.name = found.__name__ if isinstance(found, slots) else name
        self.found = found
        self.unbound: Any = (
            None  # the method of C, where LOAD_METHOD leaves the binding to the call
        )

    def python_type(self) -> type:
        found = self.found
        known, real = self.receiver.identity()
        if found is None and known:
            found = class_lookup(type(real), self.name)
        if known and isinstance(found, types.MethodDescriptorType):
            return type(found.__get__(real, type(real)))  # of C methods, there are two kinds
        return type_of_bound(found)

    def describe(self) -> str:
        return f"{self.receiver.describe()}.{self.name}"

    def children(self) -> Sequence[Value]:
        return (self.receiver,)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "__self__":
            return self.receiver
        if name == "__name__":
            return ConstantValue(self.name)
        if name == "__call__":
            return BuiltinMethod(self, name, getattr(self.python_type(), name))
        found = self.found
        if found is None and name != "__objclass__":  # which methods do not tell
            found = getattr(self.receiver.python_type(), self.name, None)
        if name == "__qualname__" and issubclass(self.python_type(), types.BuiltinMethodType):
            known, real = self.receiver.identity()
            owner = real if known and isinstance(real, type) else self.receiver.python_type()
            return ConstantValue(f"{vars(type)[name].__get__(owner)}.{self.name}")
        if name in _OF_SLOTS and hasattr(found, name) and hasattr(self.python_type(), name):
            return tx.wrap(getattr(found, name))
        return super().getattr(tx, name)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if op not in ("==", "!=") or not isinstance(other, BuiltinMethod):
            return None
        same = self.name == other.name and guard_distinct(tx, self.receiver, other.receiver)
        return ConstantValue(same is (op == "=="))

    def hash_key(self, tx: Interpreter) -> Hashable:
        tx.output.guard_distinct(self.receiver)
        return self.python_type(), self.receiver.hash_key_by_identity(), self.name

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Forwarded | None:
        calls = _is_call(self.receiver, self.name)
        return (self.receiver, args, kwargs) if calls else None

    def call_or_tail_call(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value], last: bool
    ) -> Value:
        if _is_call(self.receiver, self.name):
            return Value.call(self, tx, args, kwargs)
        made = polyfill_method(tx, self.receiver, self.name, args, kwargs, last)
        if made is not None:
            return made
        return late_bound.call_slot(tx, self.receiver, self.name, self.found, args, kwargs)

    def recipe(self) -> Recipe:
        from dynamo.values.objects.descriptors import class_lookup

        of_class = isinstance(self.found, types.ClassMethodDescriptorType)
        owner = real_object(self.receiver) if of_class else self.receiver.python_type()
        # A class holds methods for its instances, too.
        hidden = isinstance(owner, type) and issubclass(owner, type) and not of_class
        hidden = hidden and type_holds(real_object(self.receiver), self.name)
        if self.found is None or (class_lookup(owner, self.name) is self.found and not hidden):
            return Attribute(self.name), [self.receiver]
        # super().name: the class's own method is another one.
        if isinstance(self.found, types.BuiltinFunctionType):
            return Existing(self.found), []  # bound already
        owners = [exact(None)] if of_class else []
        return self.found.__get__, [*owners, self.receiver]


class SlotValue(KnownObject):
    """A method of a C type, not bound: dict.get, object.__setattr__, tuple.__new__."""

    def __init__(self, found: Any, cls: type, source: Source | None = None) -> None:
        super().__init__(found, source)
        self.found = found
        self.cls = cls

    def describe(self) -> str:
        return f"{self.cls.__name__}.{self.found.__name__}"

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Forwarded | None:
        calls = args and _is_call(args[0], self.found.__name__)
        return (args[0], args[1:], kwargs) if calls else None

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if self.forwards(tx, args, kwargs) is not None:
            return Value.call(self, tx, args, kwargs)
        name = self.found.__name__
        if name == "__new__" and args and isinstance(args[0], late_bound.ClassValue):
            cls: type = args[0].cls  # type: ignore[attr-defined]
            check_new(cls, self.found)
            return late_bound.new_instance(tx, cls, args[1:], kwargs)
        if not args or name == "__new__":
            raise Unsupported(breaks.UncapturedCall(self.describe()))
        return late_bound.call_slot(tx, args[0], name, self.found, args[1:], kwargs)

    def tail_call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if args and not kwargs:
            drive(self.found.__name__, tx, *args)
        return self.call(tx, args, kwargs)


# -- attributes and types -------------------------------------------------------------------------
@handles(getattr)
def _getattr(tx, owner, name, default=None):
    try:
        text, kind = attribute_name(tx, name), real_kind(owner)
        if kind is not None:
            if type_holds(kind, text):
                raise Unsupported(breaks.AttributeAccess(owner.describe(), text))
            said = f"{type_name(kind)!r} object has no attribute {text!r}"
            raise_python(tx, AttributeError, said)
        return owner.getattr(tx, text)
    except RaisedException as error:
        if default is None or not is_exception(error, AttributeError):
            name_attribute(tx, error.value, owner, name.as_constant())
            raise
        return default


def attribute_name(tx: Interpreter, name: Value) -> str:
    """The name of an attribute, for getattr() and its like."""
    real = name.as_constant()
    if not isinstance(real, str):
        call_real(tx, getattr, None, real)
    return real


@handles(setattr)
def _setattr(tx, owner, name, value):
    owner.setattr(tx, attribute_name(tx, name), value)


@handles(delattr)
def _delattr(tx, owner, name):
    owner.delattr(tx, attribute_name(tx, name))


@handles(hasattr)
def _hasattr(tx, owner, name):
    kind, text = real_kind(owner), attribute_name(tx, name)
    return ConstantValue(owner.hasattr(tx, text) if kind is None else type_holds(kind, text))


def real_kind(owner: Value) -> type | None:
    """The C type of which an object of a polyfill class is for the program."""
    real = REAL.get(id(owner.cls)) if isinstance(owner, ObjectValue) else None
    return None if real is None else real.kind


@handles(callable)
def _callable(tx, value):
    if isinstance(value, ObjectValue):
        return ConstantValue(type_holds(value.cls, "__call__"))
    known, real = value.identity()
    return ConstantValue(callable(real) if known else type_holds(value.python_type(), "__call__"))


@handles(vars)
def _vars(tx, owner):
    try:
        return owner.getattr(tx, "__dict__")
    except RaisedException as error:
        if not is_exception(error, AttributeError):
            raise
    fail_as(tx, vars, owner)


@handles(id)
def _id(tx, owner):
    return TokenValue(id, owner)


@handles(_thread.get_ident)
def _get_ident(tx):
    return TokenValue(_thread.get_ident, None)


@handles(dir)
def _dir(tx, owner=None):
    if owner is None:
        raise Unsupported(breaks.UncapturedCall("dir"))
    known, real = owner.identity()
    if not known or not issubclass(type(real), (type, types.ModuleType)):
        # The type says all of an instance without attributes of its own.
        real = real_kind(owner) or owner.python_type()
        plain = type(real) is type and not real.__dictoffset__ and is_trusted_class(real)
        plain = plain and real is not types.MethodType  # whose function has attributes
        if not plain or class_lookup(real, "__dir__") is not object.__dir__:
            raise Unsupported(breaks.UncapturedCall("dir"))
    return tx.wrap(call_real(tx, dir, real))


@handles(len)
def _len(tx, owner):
    return owner.length_value(tx)


@handles(sys.exc_info)
def _exc_info(tx):
    error = tx.handled_exception()
    none = ConstantValue(None)
    if error is None:
        return TupleValue([none, none, none])
    traceback = error.getattr(tx, "__traceback__")
    return TupleValue([tx.wrap(error.python_type()), error, traceback])


@handles(sys.exception)
def _exception(tx):
    return tx.handled_exception()


@handles(breakpoint)
def _breakpoint(tx, *args, **kwargs):
    raise Unsupported(breaks.DebuggerEntered("breakpoint"))


# -- the operator module --------------------------------------------------------------------------
def _register_operators() -> None:
    for symbol, function in BINARY_FUNCTIONS.items():
        TABLE[function] = lambda tx, left, right, *, s=symbol: binary_op(tx, s, left, right)
    for symbol, function in COMPARE_FUNCTIONS.items():
        TABLE[function] = lambda tx, left, right, *, s=symbol: compare_op(tx, s, left, right)
    for symbol, unary in UNARY_FUNCTIONS.items():
        TABLE[unary] = lambda tx, value, *, s=symbol: unary_op(tx, s, value)
    TABLE[operator.contains] = lambda tx, container, item: contains_op(tx, item, container)
    TABLE[operator.is_] = lambda tx, a, b: ConstantValue(is_op(tx, a, b))
    TABLE[operator.is_not] = lambda tx, a, b: ConstantValue(not is_op(tx, a, b))
    TABLE[operator.getitem] = lambda tx, owner, key: owner.getitem(tx, key)
    TABLE[operator.setitem] = lambda tx, owner, key, value: owner.setitem(tx, key, value)
    TABLE[operator.delitem] = lambda tx, owner, key: owner.delitem(tx, key)


_register_operators()


# -- builders -------------------------------------------------------------------------------------
def build_descriptor(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """A method descriptor of a C type (called by torch/torch_function.py for what is not
    Tensor's).
    """
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, SlotValue(obj, obj.__objclass__, source))


def is_known_function(obj: Any) -> bool:
    return type(obj) is types.FunctionType and (obj in TABLE or obj in PURE_FUNCTIONS)


@special_builder(is_known_function)
def build_known_function(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, BuiltinValue(obj, source))


def class_lookup_misses(owner: Any, name: str) -> bool:
    from dynamo.values.objects.descriptors import MISSING, class_lookup

    cls = owner if isinstance(owner, type) else type(owner)
    return class_lookup(cls, name) is MISSING and class_lookup(type(cls), name) is MISSING


@builder(types.BuiltinFunctionType)
def build_builtin(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """A C function, or a C method bound to an object that exists."""
    owner = obj.__self__
    plain = owner is None or isinstance(owner, types.ModuleType) or obj in TABLE
    # pybind11 binds its functions to records of its own.
    if plain or class_lookup_misses(owner, obj.__name__):
        tx.guard(source, "id", obj)
        return tx.output.remember(obj, source, BuiltinValue(obj, source))
    if isinstance(owner, type):
        if obj.__name__ == "__new__":
            tx.guard(source, "id", obj)
            return SlotValue(obj, owner, source)
        return _bound_method(tx, obj, obj, source)
    held = class_lookup(type(owner), obj.__name__)
    if not isinstance(held, UNBOUND) or held.__get__(owner, type(owner)) != obj:  # of a base class
        tx.guard(source, "id", obj)
        return tx.output.remember(obj, source, BuiltinValue(obj, source))
    return _bound_method(tx, obj, None, source)


@builder(types.MethodWrapperType)
def build_method_wrapper(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(None if source is None else AttrSource(source, "__objclass__"), "id", obj.__objclass__)
    return _bound_method(tx, obj, vars(obj.__objclass__)[obj.__name__], source)


def _bound_method(tx: Interpreter, obj: Any, found: Any, source: Source | None) -> Value:
    """A bound method of C from outside; another may come of the same object."""

    def part(name: str) -> Source | None:
        return None if source is None else AttrSource(source, name)

    tx.guard(source, "type", type(obj))
    tx.guard(part("__name__"), "constant", obj.__name__)
    owner = tx.wrap(obj.__self__, part("__self__"))
    if found is None:
        method = owner.getattr(tx, obj.__name__)
    else:
        method = BuiltinMethod(owner, obj.__name__, found)
    method.source = source
    return tx.output.remember(obj, source, method)
