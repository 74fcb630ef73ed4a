"""__torch_function__: calls of torch with arguments whose classes override them.

The arguments that torch hands to the method (with the function) are found by making
the same call with dummy operands in place of the arguments, whose own __torch_function__ records
it. The method is then captured like user code; torch.Tensor's own, which most end in, is known
here.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.overrides

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource
from dynamo.torch.devices import entered_devices
from dynamo.torch.function_modes import ask_mode
from dynamo.values import late_bound
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.table import BuiltinMethod, handles, real_object
from dynamo.values.containers.containers import (
    ListValue,
    NamedTupleValue,
    SequenceValue,
    TupleValue,
)
from dynamo.values.containers.dicts import DictValue
from dynamo.values.functions.function import MethodValue
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.descriptors import MISSING, class_lookup, class_value, raw_class_source
from dynamo.values.objects.exceptions import call_real
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.objects.reflection import read_attribute
from dynamo.values.recipes import Existing, Recipe
from dynamo.values.scalars.constant import ConstantValue, is_literal
from dynamo.values.tensors.fake_calls import to_fake
from dynamo.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

DEFAULT = class_lookup(torch.Tensor, "__torch_function__").__func__
_DISABLED = torch._C._disabled_torch_function_impl
_PLAIN = frozenset([torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None)])


def override_of(cls: type) -> Any:
    """The class's __torch_function__, as it is in the class; MISSING for torch's plain tensors, and
    for torch's own wrappers: theirs runs where the graph does.
    """
    if cls.__module__.startswith("torch.nested."):
        return MISSING
    found = class_lookup(cls, "__torch_function__")
    if found is MISSING or found is _DISABLED or cls is torch.Tensor:
        return MISSING
    return MISSING if getattr(found, "__func__", None) is _DISABLED else found


def overrides_by_default(cls: type) -> bool:
    """The class has torch.Tensor's __torch_function__, which only keeps its type."""
    return getattr(override_of(cls), "__func__", None) is DEFAULT


def read_state(read: Callable[[], bool | int]) -> Callable[..., Value]:
    """A handler for torch's queries about overrides and modes, with the frame's own regions of
    DisableTorchFunctionSubclass, DisableTorchFunction and modes.
    """

    def fold(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        entered = len(tx.output.modes.asked)
        if read is torch._C._is_torch_function_enabled:
            return ConstantValue(is_enabled(tx))
        if read is torch._C._is_torch_function_all_disabled and tx.output.modes.disabled:
            return ConstantValue(True)
        if read is torch._C._is_torch_function_mode_enabled:
            return ConstantValue(bool(entered) or read())
        if read is torch._C._len_torch_function_stack:
            return ConstantValue(entered + sum(map(len, tx.output.modes.hidden)) + read())
        return ConstantValue(read())

    return fold


def is_enabled(tx: Interpreter) -> bool:
    """Whether overrides are asked at this point of the program."""
    return not tx.output.overrides_disabled and torch._C._is_torch_function_enabled()


@bound_late
def is_watched(tx: Interpreter, values: Sequence[Value]) -> bool:
    """Whether a function mode of the frame, or a class of the values, sees what library code reads
    of tensors: code that a handler answers for.
    """
    if tx.output.modes.asked:
        return True
    classes = [value.python_type() for value in values if isinstance(value, TensorValue)]
    return is_enabled(tx) and any(
        override_of(cls) is not MISSING and not overrides_by_default(cls) for cls in classes
    )


@contextlib.contextmanager
def disabled(tx: Interpreter) -> Iterator[None]:
    tx.output.overrides_disabled += 1
    try:
        yield
    finally:
        tx.output.overrides_disabled -= 1


@contextlib.contextmanager
def unseen(tx: Interpreter) -> Iterator[None]:
    """For an operation that stands for one that torch asks nobody about."""
    asked, tx.output.modes.asked = tx.output.modes.asked, []
    try:
        with disabled(tx):
            yield
    finally:
        tx.output.modes.asked = asked


class WithoutOverrides:
    """A compiled graph of wrappers whose classes override: the overrides were captured already, and
    are not called again.
    """

    def __init__(self, compiled: Callable[..., Any]) -> None:
        self.compiled = compiled
        self.binds_static = getattr(compiled, "binds_static", False)
        self.compile_report = getattr(compiled, "compile_report", None)

    def __call__(self, *inputs: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return self.compiled(*inputs)


def overriding(values: Sequence[Value]) -> list[Value]:
    """The values whose classes override calls, also from lists and tuples of values."""
    found: list[Value] = []
    for value in values:
        if isinstance(value, (TensorValue, ObjectValue)):
            if override_of(value.python_type()) is not MISSING:
                found.append(value)
        elif isinstance(value, SequenceValue):
            unread = map(type, value.unwrapped_objects())
            reads = any(override_of(cls) is not MISSING for cls in unread if cls not in _PLAIN)
            found += overriding(value.wrapped() if reads else value.children())
    return found


def has_override(tx: Interpreter, values: Sequence[Value]) -> bool:
    """torch.overrides.has_torch_function."""
    if tx.output.modes.asked:
        return True
    if not tx.output.has_overrides and not any(isinstance(v, SequenceValue) for v in values):
        return False
    return is_enabled(tx) and bool(overriding(values))


@bound_late
def dispatch(
    tx: Interpreter, op: str, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """The result of a mode's or the arguments' __torch_function__; None if torch asks none."""
    if not has_override(tx, [*args, *kwargs.values()]):
        return None
    seen = _DummyOperands(tx).call(op, target, args, kwargs)
    return None if seen is None else call_override(tx, *seen)


def call_override(
    tx: Interpreter,
    function: Any,
    args: Sequence[Value],
    kwargs: dict[str, Value],
    seen: Sequence[type] = (),
) -> Value:
    """Ask the innermost mode, then each overriding argument, those of subclasses before those of
    their bases. seen: the classes that a mode is told where no argument overrides.
    """
    asked: list[Value] = []
    for value in overriding([*args, *kwargs.values()]) if is_enabled(tx) else ():
        cls = value.python_type()
        if any(cls is one.python_type() for one in asked):
            continue
        bases = (i for i, one in enumerate(asked) if issubclass(cls, one.python_type()))
        asked.insert(next(bases, len(asked)), value)
    classes = [class_value(tx, v.python_type(), v.source) for v in asked]
    kinds = TupleValue(classes or [tx.wrap(cls) for cls in seen])
    called = tx.wrap(function) if isinstance(function, types.FunctionType) else None
    if called is None or isinstance(called, TensorValue):
        called = DispatchedFunction(function)
    if tx.output.modes.asked:
        packed = DictValue.of(tx, dict(kwargs))
        result = ask_mode(tx, [called, kinds, TupleValue(list(args)), packed])
        if not _is_refusal(result):
            return result
    for value in asked:
        packed = DictValue.of(tx, dict(kwargs))
        result = _ask(tx, value, [called, kinds, TupleValue(list(args)), packed])
        if not _is_refusal(result):
            return result
    raise Unsupported(breaks.UncapturedCall(f"{function}, which no __torch_function__ implements"))


def _is_refusal(result: Value) -> bool:
    return result.is_constant() and result.as_constant() is NotImplemented


def _ask(tx: Interpreter, value: Value, arguments: list[Value]) -> Value:
    cls = value.python_type()
    found = override_of(cls)
    owner = class_value(tx, cls, value.source)
    if not isinstance(found, classmethod):
        raise Unsupported(breaks.UncapturedCall(f"{cls.__name__}.__torch_function__"))
    if found.__func__ is DEFAULT:
        answer = default_override(tx, owner, *arguments)
        assert answer is not None, "it returns what the call gives"
        return answer
    source = raw_class_source(tx, value, cls, "__torch_function__")
    function = tx.wrap(found.__func__, None if source is None else AttrSource(source, "__func__"))
    return MethodValue(function, owner).call(tx, arguments, {})


@handles(DEFAULT)
def default_override(tx, owner, function, kinds, args=None, kwargs=None):
    """torch.Tensor.__torch_function__: call the function on plain tensors, and keep the type."""
    cls = real_object(owner)
    if not all(issubclass(cls, real_object(kind)) for kind in kinds.unpack(tx)):
        return ConstantValue(NotImplemented)
    named: dict[str, Value] = {}
    if not is_none(kwargs):
        assert isinstance(kwargs, DictValue)
        named = {k.as_constant(): v for k, v in zip(kwargs.keys(tx), kwargs.values(tx))}
    with disabled(tx):
        result = tx.call_function(function, [] if args is None else args.unpack(tx), named)
    known, real = function.identity()
    if known and real in torch.overrides.get_default_nowrap_functions():
        return result
    return convert(tx, result, cls)


def convert(tx: Interpreter, result: Value, cls: type) -> Value:
    """torch._tensor._convert."""
    if cls is torch.Tensor:
        return result
    if isinstance(result, TensorValue):
        if issubclass(result.python_type(), cls):
            return result
        return late_bound.as_subclass(tx, result, cls)
    if isinstance(result, NamedTupleValue):
        return NamedTupleValue(result.cls, [convert(tx, v, cls) for v in result.unpack(tx)])
    if type(result) is TupleValue:
        return TupleValue([convert(tx, item, cls) for item in result.unpack(tx)])
    if type(result) is ListValue:
        items = [convert(tx, item, cls) for item in result.unpack(tx)]
        return tx.output.side_effects.track_new(ListValue(items))
    return result


@handles(torch.overrides.handle_torch_function)
def _handle_torch_function(tx, function, relevant, *args, **kwargs):
    return call_override(tx, _real(function), args, kwargs)


@handles(torch.overrides.resolve_name)
def _resolve_name(tx, function):
    return ConstantValue(torch.overrides.resolve_name(_real(function)))


def _real(function: Value) -> Any:
    known, real = function.identity()
    if not known:
        raise Unsupported(breaks.NotConstant(function.describe()))
    return real


# -- finding the arguments that torch hands over --------------------------------------------------
class _Seen(Exception):
    """Carries the arguments of a dummy operand's __torch_function__."""


class _Spy(torch.Tensor):
    """A dummy operand for an argument that overrides."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise _Seen(func, args, kwargs or {}, types)


class _SpyMode(torch.overrides.TorchFunctionMode):
    """Sees the calls whose arguments do not override, too."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise _Seen(func, args, kwargs or {}, types)


class _DummyOperands:
    """A call with dummy operands."""

    def __init__(self, tx: Interpreter) -> None:
        self.tx = tx
        self.values: dict[int, Value] = {}  # id(dummy) -> the Value that it stands for
        self.alive: list[Any] = []

    def call(
        self, op: str, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Any, list[Value], dict[str, Value], Sequence[type]] | None:
        real = [self._dummy_operand(arg) for arg in args]
        named = {name: self._dummy_operand(value) for name, value in kwargs.items()}
        spy = _SpyMode() if self.tx.output.modes.asked else contextlib.nullcontext()
        try:
            with spy:
                if op == "call_method":
                    getattr(real[0], target)(*real[1:], **named)
                else:
                    target(*real, **named)
        except _Seen as seen:
            function, got, got_named, classes = seen.args
            if not _answers(function, target):
                raise Unsupported(
                    breaks.UncapturedCall(f"{target.__name__}, whose parts ask __torch_function__")
                ) from None
            found = {name: self._value(v) for name, v in got_named.items()}
            return function, [self._value(v) for v in got], found, classes
        except Exception:
            return None
        return None

    def _dummy_operand(self, value: Value) -> Any:
        if isinstance(value, SequenceValue) and not value.is_constant():
            return value.make_real([self._dummy_operand(item) for item in value.wrapped()])
        dummy: Any
        if overriding([value]):
            dummy = torch.empty(0).as_subclass(_Spy)
        elif isinstance(value, TensorValue):
            dummy = torch.empty(0)
            if value.python_type() is torch.nn.Parameter:
                dummy = torch.nn.Parameter(dummy, requires_grad=False)
        else:
            dummy = to_fake(value.as_proxy())
            if value.is_constant() or is_literal(dummy):
                return dummy
        self.values[id(dummy)] = value
        self.alive.append(dummy)
        return dummy

    def _value(self, got: Any) -> Value:
        if id(got) in self.values:
            return self.values[id(got)]
        if type(got) is list:
            items = [self._value(item) for item in got]
            return self.tx.output.side_effects.track_new(ListValue(items))
        if type(got) is tuple:
            return TupleValue([self._value(item) for item in got])
        return self.tx.wrap(got)


def _answers(asked: Any, target: Any) -> bool:
    """Whether the answer to the first question of a call is the call's result: not that of a Python
    function that asks nothing itself, but reads attributes and computes in steps, or of a class.
    """
    if isinstance(target, type):
        return not isinstance(asked, types.MethodWrapperType)
    if not isinstance(target, types.FunctionType) or isinstance(asked, types.FunctionType):
        return True
    return getattr(asked, "__name__", None) == target.__name__


class DispatchedFunction(Value):
    """The argument `func` of __torch_function__: a function, a C method of Tensor, or the `__get__`
    of one of its attributes.
    """

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def identity(self) -> tuple[bool, Any]:
        return True, self.function

    def describe(self) -> str:
        return f"function {getattr(self.function, '__qualname__', self.function)}"

    def hash_key(self, tx: Interpreter) -> Hashable:
        if not isinstance(self.function, types.MethodWrapperType):
            return super().hash_key(tx)
        # As another one of the same method: each read of an attribute's `__get__` makes one.
        return tx.wrap(self.function).hash_key(tx)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if isinstance(other, BuiltinMethod) and isinstance(self.function, types.MethodWrapperType):
            return tx.wrap(self.function).compare(tx, op, other)
        known, real = other.identity()
        if op not in ("==", "!=") or not known:
            return None
        return ConstantValue((self.function == real) is (op == "=="))

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return hasattr(self.function, name)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        found = call_real(tx, getattr, self.function, name)
        if isinstance(found, types.GetSetDescriptorType):
            return DispatchedFunction(found)
        return read_attribute(tx, self, self.function, name)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        function, receiver = self.function, args[0] if args else None
        if not isinstance(receiver, TensorValue) or not _is_of_tensor(function):
            return tx.wrap(function).call(tx, args, kwargs)
        if isinstance(function, types.MethodWrapperType):
            return self._attribute(tx, receiver, args)
        # The C method, whatever the class of the receiver has under its name.
        return TensorValue.call_method(receiver, tx, function.__name__, args[1:], kwargs)

    def _attribute(self, tx: Interpreter, receiver: TensorValue, args: Sequence[Value]) -> Value:
        held = self.function.__self__
        name = (held.fget if isinstance(held, property) else held).__name__  # type: ignore[union-attr]
        if self.function.__name__ == "__get__":
            if is_enabled(tx) and overriding([receiver]):
                return receiver.getattr(tx, name)
            return TensorValue.getattr(receiver, tx, name)
        raise Unsupported(breaks.AttributeMutation(receiver.describe(), name))

    def recipe(self) -> Recipe:
        return Existing(self.function, "function"), []


def _is_of_tensor(function: Any) -> bool:
    if isinstance(function, types.MethodWrapperType):
        return isinstance(function.__self__, types.GetSetDescriptorType | property)
    name = getattr(function, "__name__", "")
    return class_lookup(torch.Tensor, name) in (function, getattr(function, "__func__", function))


# -- with torch._C.DisableTorchFunctionSubclass(), and DisableTorchFunction() ---------------------
class DisabledRegion(Value):
    """The context manager, which cannot be made again while open: a graph break inside is
    moved before the block. cls: its class; DisableTorchFunction has modes not asked, either.
    """

    def __init__(self, cls: Any) -> None:
        super().__init__()
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name not in ("__enter__", "__exit__"):
            return super().getattr(tx, name)
        return _Step(self, 1 if name == "__enter__" else -1)


class _Step(Value):
    def __init__(self, region: DisabledRegion, change: int) -> None:
        super().__init__()
        self.region = region
        self.change = change

    def python_type(self) -> type:
        return types.MethodType

    def children(self) -> Sequence[Value]:
        return (self.region,)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        tx.output.side_effects.touch()
        if self.region.cls is torch._C.DisableTorchFunction:
            modes = tx.output.modes
            opened = modes.asked and self.change < 0
            if opened or entered_devices():
                raise Unsupported(breaks.UncapturedCall("DisableTorchFunction around a mode"))
            modes.disabled += self.change
            if self.change > 0:
                modes.hidden.append(modes.asked)
                modes.asked = []
            else:
                modes.asked = modes.hidden.pop()
        tx.output.overrides_disabled += self.change
        return ConstantValue(None)


@handles(torch._C.DisableTorchFunctionSubclass)
def _disable_subclasses(tx):
    return DisabledRegion(torch._C.DisableTorchFunctionSubclass)


@handles(torch._C.DisableTorchFunction)
def _disable(tx):
    return DisabledRegion(torch._C.DisableTorchFunction)
