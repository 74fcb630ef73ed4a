"""Python functions: from outside, made by the captured code, and bound methods."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo._hook import call_stealing_args
from dynamo.errors import Unsupported
from dynamo.guards.classes import is_trusted_function
from dynamo.guards.sources import (
    AttrSource,
    DictItemSource,
    GlobalSource,
    SequenceItemSource,
    Source,
    TypeSource,
)
from dynamo.values import late_bound
from dynamo.values.base import Value, is_none
from dynamo.values.builder import Lazy, builder
from dynamo.values.classes.lookup import type_holds
from dynamo.values.effects.side_effects import DELETED
from dynamo.values.functions.intrinsics import INTRINSICS
from dynamo.values.objects.exceptions import raise_python
from dynamo.values.objects.known_objects import KnownObject
from dynamo.values.objects.reflection import (
    no_attribute,
    note_changed,
    read_attribute,
    refuse_changed,
)
from dynamo.values.recipes import Existing, GlobalsOf, Made, Recipe, WithAttributes, exact
from dynamo.values.scalars.constant import ConstantValue, is_literal
from dynamo.values.scalars.operators import guard_distinct, same_object
from fxgraph.torch_fx import COMPTIME

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# A frame that calls them is not captured: a debugger is to see its own lines and locals.
DEBUGGERS = ("pdb", "bdb", "ipdb", "pudb", "IPython", "debugpy", "_pydevd_bundle", "pydevd")
# Python code that capture never looks into: calling it is a graph break. The prefixes are of module
# names.
OPAQUE_MODULES = (
    *DEBUGGERS,
    "torch._dynamo",
    "torch._functorch",
    "torch._inductor",
    "torch.fx",
    "torch._subclasses",
    "torch.jit",
    "torch.cuda",
    "torch.nested",
    "torch._tensor_str",
    "torch.serialization",
    "torch.utils.data",
    "torch.utils._config_module",
    "torch.masked.maskedtensor",
    "torch.profiler",
    "torch.autograd.profiler",
    "torch.autograd.profiler_util",
    "torch.nn.modules.lazy",
    "torch.utils.weak",
    "torch.library",
    "torch._library",
    "torch.multiprocessing",
    "logging",
    "traceback",
    "linecache",
    "threading",
    "importlib",
    "tqdm",
    "numpy",
    "scipy",
    "dynamo.framestate",
    "dynamo.interp",
    "dynamo.continuations",
    "dynamo.bytecode",
    "dynamo.values.iterators.iterators",
    "fxgraph",
    "inductor",
    "backends",
)


# Not looked into either, but their callbacks are captured as frames of their own.
NOT_INLINED = frozenset(["asyncio", "concurrent", "selectors", "signal", "socket", "subprocess"])
# The same as the first, without their submodules: autograd's engine, and the wrapper that turns
# torch.compile off.
OPAQUE_EXACTLY = frozenset(
    ["torch._compile", "torch._tensor", "torch.autograd", "torch.autograd.graph"]
)


# Plain Python in opaque modules, of which programs call what does something outside of them too:
# notes for torch.compile, which do nothing elsewhere, how tensors are printed, and questions about
# the types of a container's items and of a tensor, ranges of a profile, and profiles that are off.
_TRANSPARENT_CODE = frozenset(
    inspect.unwrap(function).__code__
    for function in (
        torch.set_printoptions,
        torch._tensor_str.get_printoptions,
        torch._tensor_str.printoptions,
        torch.jit.isinstance,
        torch.masked.is_masked_tensor,
        torch.autograd.profiler.record_function.__init__,
        torch.autograd.profiler.record_function.__enter__,
        torch.autograd.profiler.record_function.__exit__,
        torch.autograd.profiler.profile.__init__,
        torch.autograd.profiler.profile.__enter__,
        torch.autograd.profiler.profile.__exit__,
    )
)


def is_opaque_module(name: str | None) -> bool:
    """Whether functions of this module are not inlined."""
    return type(name) is str and _is_opaque_name(name)


@functools.lru_cache(maxsize=8192)
def _is_opaque_name(name: str) -> bool:
    if name in OPAQUE_EXACTLY:
        return True
    if name == COMPTIME:
        return False
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in OPAQUE_MODULES)


def is_opaque_function(function: types.FunctionType) -> bool:
    """Judged by where its code is from (functools.wraps changes __module__)."""
    module = function.__globals__.get("__name__")
    if module and module.partition(".")[0] in NOT_INLINED:
        return True
    return is_opaque_module(module) and function.__code__ not in _TRANSPARENT_CODE


def opaque_reason(function: types.FunctionType) -> breaks.Break:
    """Why a call of an opaque function breaks the graph."""
    if (function.__globals__.get("__name__") or "").partition(".")[0] in DEBUGGERS:
        return breaks.DebuggerEntered(f"{function.__module__}.{function.__qualname__}")
    return breaks.UncapturedCall(f"{function.__module__}.{function.__qualname__}")


class FunctionValue(Value):
    """A Python function, as inlining reads it."""

    code: types.CodeType
    globals: dict[str, Any]
    name: str

    def python_type(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return f"function {self.name}"

    def closure(self, tx: Interpreter) -> Sequence[Any]:
        raise NotImplementedError

    def default_count(self, tx: Interpreter) -> int:
        raise NotImplementedError

    def default(self, tx: Interpreter, index: int) -> Value:
        raise NotImplementedError

    def keyword_default(self, tx: Interpreter, name: str) -> Value | None:
        raise NotImplementedError

    def is_plain_function(self) -> bool:
        return True

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return tx.inline(self, args, kwargs)


class UserFunctionValue(FunctionValue):
    """A function that exists outside the captured code."""

    def __init__(self, function: types.FunctionType, source: Source | None = None) -> None:
        super().__init__(source)
        self.function = function
        self.code = function.__code__
        self.globals = function.__globals__
        self.name = function.__qualname__
        # Defaults of library functions are not changed behind our back.
        self._guarded = None if is_trusted_function(function) else source

    def identity(self) -> tuple[bool, Any]:
        return True, self.function

    def closure(self, tx: Interpreter) -> Sequence[Any]:
        cells = self.function.__closure__ or ()
        base = None if self.source is None else AttrSource(self.source, "__closure__")
        return [
            tx.wrap(cell, None if base is None else SequenceItemSource(base, i))
            for i, cell in enumerate(cells)
        ]

    def default_count(self, tx: Interpreter) -> int:
        defaults = self.function.__defaults__
        if self._guarded is not None:
            source = AttrSource(self._guarded, "__defaults__")
            if defaults is None:
                tx.guard(source, "none")
            else:
                tx.guard(source, "length", len(defaults))
        return len(defaults or ())

    def default(self, tx: Interpreter, index: int) -> Value:
        value = (self.function.__defaults__ or ())[index]
        if self.source is None or (self._guarded is None and is_literal(value)):
            return tx.wrap(value)
        return tx.wrap(value, SequenceItemSource(AttrSource(self.source, "__defaults__"), index))

    def keyword_default(self, tx: Interpreter, name: str) -> Value | None:
        defaults = self.function.__kwdefaults__ or {}
        known = tx.output.values_by_id.get(id(defaults))
        if known is not None and tx.output.side_effects.is_dirty(known[1]):
            raise Unsupported(breaks.AttributeAccess(self.describe(), "__kwdefaults__"))
        if name not in defaults:
            if self._guarded is not None:
                source = AttrSource(self._guarded, "__kwdefaults__")
                if self.function.__kwdefaults__ is None:
                    tx.guard(source, "none")
                else:
                    tx.guard(source, "contains", (name, False))
            return None
        if self.source is None or (self._guarded is None and is_literal(defaults[name])):
            return tx.wrap(defaults[name])
        item = DictItemSource(AttrSource(self.source, "__kwdefaults__"), name)
        return tx.wrap(defaults[name], item)

    def is_plain_function(self) -> bool:
        return INTRINSICS.get(self.code) is None and not is_opaque_function(self.function)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        method = INTRINSICS.get(self.code)
        if method is not None:
            return method(tx, args)
        if is_opaque_function(self.function):
            raise Unsupported(opaque_reason(self.function))
        return tx.inline(self, args, kwargs)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        stored = tx.output.side_effects.load_attr(self, name)
        if isinstance(stored, Value):
            return stored
        self._check_dict(tx, name)
        if stored is DELETED or not hasattr(self.function, name):
            if self.source is not None and stored is None:
                tx.guard(self.source, "has_attr", (name, False))
            no_attribute(tx, self.python_type(), name)
        return read_attribute(tx, self, self.function, name)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        stored = tx.output.side_effects.load_attr(self, name)
        if stored is not None:
            return stored is not DELETED
        self._check_dict(tx, name)
        present = hasattr(self.function, name)
        tx.guard(self.source, "has_attr", (name, present))
        return present

    def _check_dict(self, tx: Interpreter, name: str) -> None:
        """Break where the change was made to the dict and an attribute is read, or the reverse."""
        if name == "__dict__" and tx.output.side_effects.stored_attrs(self):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        if not type_holds(types.FunctionType, name):
            refuse_changed(tx, self, self.function.__dict__, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        if name.startswith("__"):
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        note_changed(tx, self, self.function.__dict__, name)
        tx.output.side_effects.store_attr(self, name, value)

    def recipe(self) -> Recipe:
        return Existing(self.function, self.function.__name__), []


class NestedFunctionValue(FunctionValue):
    """A function that the captured code made (MAKE_FUNCTION)."""

    def __init__(
        self,
        code: types.CodeType,
        namespace: dict[str, Any],
        defaults: Value | None = None,
        keyword_defaults: Value | None = None,
        annotations: Value | None = None,
        closure: Value | None = None,
    ) -> None:
        super().__init__()
        self.code = code
        self.globals = namespace
        self.name = code.co_qualname
        self.defaults = defaults
        self.keyword_defaults = keyword_defaults
        self.annotations = annotations
        self.closure_tuple = closure

    def closure(self, tx: Interpreter) -> Sequence[Any]:
        return [] if self.closure_tuple is None else self.closure_tuple.unpack(tx)

    def default_count(self, tx: Interpreter) -> int:
        return 0 if self.defaults is None else self.defaults.length(tx)

    def default(self, tx: Interpreter, index: int) -> Value:
        assert self.defaults is not None
        return self.defaults.getitem(tx, ConstantValue(index))

    def keyword_default(self, tx: Interpreter, name: str) -> Value | None:
        if self.keyword_defaults is None:
            return None
        key = ConstantValue(name)
        if not self.keyword_defaults.contains(tx, key).truth(tx):
            return None
        return self.keyword_defaults.getitem(tx, key)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        stored = tx.output.side_effects.load_attr(self, name)
        if isinstance(stored, Value):
            return stored
        constants = {
            "__name__": self.code.co_name,
            "__qualname__": self.code.co_qualname,
            "__module__": self.globals.get("__name__"),
            "__code__": self.code,
            "__doc__": _docstring(self.code),
        }
        if name in constants:
            return ConstantValue(constants[name])
        if name == "__dict__":
            return FunctionDictValue(self)
        if name == "__annotations__":
            return self._own_annotations(tx)
        if name in ("__defaults__", "__kwdefaults__", "__closure__"):
            parts = {
                "__defaults__": self.defaults,
                "__kwdefaults__": self.keyword_defaults,
                "__closure__": self.closure_tuple,
            }
            return parts[name] or ConstantValue(None)
        if name == "__type_params__" and type_holds(types.FunctionType, name):
            return tx.new_tuple([])
        if name in ("__call__", "__get__"):
            return tx.builtin_method(self, name, vars(types.FunctionType)[name])
        if type_holds(types.FunctionType, name):
            return super().getattr(tx, name)
        raise_python(tx, AttributeError, f"'function' object has no attribute {name!r}")

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        stored = tx.output.side_effects.load_attr(self, name)
        return stored is not DELETED if stored is not None else type_holds(types.FunctionType, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        part = _PARTS.get(name)
        if part is not None:
            field, kind = part
            nothing = is_none(value)
            if not nothing and value.python_type() is not kind:  # Python has words for it
                raise Unsupported(breaks.AttributeMutation(self.describe(), name))
            tx.output.side_effects.touch()
            setattr(self, field, None if nothing else value)
            return
        if name in _OF_CODE or (name in ("__name__", "__qualname__") and not _is_text(value)):
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        if name == "__qualname__":
            self.name = value.as_constant()
        tx.output.side_effects.store_attr(self, name, value)

    def recipe(self) -> Recipe:
        extras = {
            "__kwdefaults__": self.keyword_defaults,
            "__annotations__": self.annotation_dict(),
            "__qualname__": ConstantValue(self.code.co_qualname),
        }
        stored = {name: value for name, value in extras.items() if value is not None}
        parts = [exact(self.code), Made(GlobalsOf(self.globals)), exact(self.code.co_name)]
        held = [part or exact(None) for part in (self.defaults, self.closure_tuple)]
        return WithAttributes(types.FunctionType, stored), [*parts, *held, *stored.values()]

    def _own_annotations(self, tx: Interpreter) -> Value:
        """The dict that __annotations__ is from its first use on."""
        if self.annotations is None or self.annotations.mutation is None:
            held = self.annotation_dict() or late_bound.DictValue({})
            self.annotations = tx.output.side_effects.track_new(held)
        return self.annotations

    def annotation_dict(self) -> Value | None:
        """MAKE_FUNCTION holds annotations as a flat tuple of names and values."""
        if self.annotations is None or self.annotations.python_type() is dict:
            return self.annotations
        flat = self.annotations.contents  # type: ignore[attr-defined]
        pairs = zip(flat[::2], flat[1::2])
        return late_bound.DictValue({k.as_constant(): (k, v) for k, v in pairs})

    def children(self) -> Sequence[Value]:
        parts = (self.defaults, self.keyword_defaults, self.annotations, self.closure_tuple)
        return [part for part in parts if part is not None]


# Attribute of a function -> (the field that holds it here, its type if it is not None).
_PARTS = {
    "__defaults__": ("defaults", tuple),
    "__kwdefaults__": ("keyword_defaults", dict),
    "__annotations__": ("annotations", dict),
}
_OF_CODE = frozenset(["__code__", "__closure__", "__globals__", "__builtins__", "__dict__"])


def _is_text(value: Value) -> bool:
    return value.is_constant() and type(value.as_constant()) is str


def _docstring(code: types.CodeType) -> str | None:
    first = code.co_consts[0] if code.co_consts else None
    return first if isinstance(first, str) else None


class FunctionDictValue(Value):
    """The __dict__ of a new function, which functools.wraps updates."""

    def __init__(self, function: NestedFunctionValue) -> None:
        super().__init__()
        self.function = function

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        if name != "update" or len(args) != 1:
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        for key in args[0].unpack(tx):
            self.function.setattr(tx, key.as_constant(), args[0].getitem(tx, key))
        return ConstantValue(None)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        return _FunctionDictUpdate(self, name)

    def unpack(self, tx: Interpreter) -> list[Value]:
        stored = tx.output.side_effects.stored_attrs(self.function)
        return [ConstantValue(name) for name, value in stored.items() if value is not DELETED]

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        return self.function.getattr(tx, key.as_constant())


class _FunctionDictUpdate(Value):
    def __init__(self, owner: FunctionDictValue, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.owner.call_method(tx, self.name, args, kwargs)


def _binds_again() -> bool:
    """Whether a method's __get__ is its function's, as in some releases of 3.11 and 3.12."""
    made: Any = types.MethodType(_binds_again, 0)
    return made.__get__(1) is not made


class MethodValue(Value):
    """A function bound to an object."""

    is_guarded_distinct = True
    binds_again = _binds_again()

    def __init__(self, function: Value, receiver: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.function = function
        self.receiver = receiver

    def python_type(self) -> type:
        return types.MethodType

    def identity(self) -> tuple[bool, Any]:
        function_known, function = self.function.identity()
        receiver_known, receiver = self.receiver.identity()
        known = function_known and receiver_known and callable(function)
        return known, types.MethodType(function, receiver) if known else None

    def describe(self) -> str:
        return f"method {getattr(self.function, 'name', self.function.describe())}"

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.function.call(tx, [self.receiver, *args], kwargs)

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]]:
        return self.function, [self.receiver, *args], kwargs

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "__self__":
            return self.receiver
        if name == "__func__":
            return self.function
        if name == "__class__":
            return tx.wrap(types.MethodType)
        if type_holds(types.MethodType, name) and name != "__doc__":
            return super().getattr(tx, name)
        return self.function.getattr(tx, name)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return type_holds(types.MethodType, name) or self.function.hasattr(tx, name)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if op not in ("==", "!=") or not isinstance(other, MethodValue):
            return None
        same = guard_distinct(tx, self.receiver, other.receiver)
        same = same and same_object(self.function, other.function)
        return ConstantValue(same is (op == "=="))

    def hash_key(self, tx: Interpreter) -> Hashable:
        tx.output.guard_distinct(self.receiver)
        parts = (self.receiver.hash_key_by_identity(), self.function.hash_key_by_identity())
        return (types.MethodType, *parts)

    def recipe(self) -> Recipe:
        return types.MethodType, [self.function, self.receiver]


class OpaqueFunctionValue(KnownObject):
    """A callable that capture does not look into: a call breaks the graph."""

    def __init__(self, function: Any, reason: breaks.Break, source: Source | None = None) -> None:
        super().__init__(function, source)
        self.function = function
        self.reason = reason

    def describe(self) -> str:
        return f"function {getattr(self.function, '__qualname__', self.function)}"

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        raise Unsupported(self.reason)

    def recipe(self) -> Recipe:
        return Existing(self.function, getattr(self.function, "__name__", "function")), []


def function_guard(tx: Interpreter, function: types.FunctionType, source: Source | None) -> None:
    """Functions named by a global keep their identity, until others come; others, their code and
    globals.
    """
    of_class = isinstance(source, AttrSource) and isinstance(source.origin, TypeSource)
    if of_class and is_trusted_function(function):
        return  # the class is guarded; library methods are not replaced behind our back
    if isinstance(source, GlobalSource) and not tx.output.symbols.has_changed_object(
        function, source
    ):
        tx.guard(source, "id", function)
    tx.guard(source, "function_code", function)


class StealingCallValue(Value):
    """dynamo._hook.call_stealing_args, with which continuations call those of callees: the same
    call.
    """

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]]:
        function: Value | Lazy = args[0]
        if isinstance(function, Lazy):
            function = function.realize(tx)
        return function, args[1:], kwargs

    def recipe(self) -> Recipe:
        return Existing(call_stealing_args), []


@builder(type(call_stealing_args))
def build_stealing_call(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    return StealingCallValue()


@builder(types.FunctionType)
def build_function(tx: Interpreter, obj: types.FunctionType, source: Source | None) -> Value:
    """A Python function, inlined when it is called."""
    function_guard(tx, obj, source)
    trusted = is_trusted_function(obj)
    if source is None and not trusted:  # its contents can be changed
        source = tx.output.install(obj.__name__, obj)
    value = UserFunctionValue(obj, source)
    tx.output.side_effects.track_existing(value)
    return tx.output.remember(obj, source, value)


@builder(types.MethodType)
def build_method(tx: Interpreter, obj: types.MethodType, source: Source | None) -> Value:
    """A bound method: its function and its receiver are values of their own."""
    tx.guard(source, "type", types.MethodType)
    function_source = None if source is None else AttrSource(source, "__func__")
    self_source = None if source is None else AttrSource(source, "__self__")
    function = tx.wrap(obj.__func__, function_source)
    receiver = tx.wrap(obj.__self__, self_source)
    return tx.output.remember(obj, source, MethodValue(function, receiver, source))
