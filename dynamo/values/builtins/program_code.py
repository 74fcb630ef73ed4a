"""Whether an operation on values may run the program's code.

If it may, a polyfill says the operation in Python (values/builtins/polyfill_calls.py), so that
every call of the program's code is an instruction of a frame, in which a break can stand. If not,
the handler of the operation answers from storage. Both give the same result: nothing is guarded
here, and what is not known counts as native.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.classes import HEAP_TYPE
from dynamo.guards.lookups import in_mro
from dynamo.values.base import Value
from dynamo.values.builder import Lazy
from dynamo.values.classes.lookup import type_holds
from dynamo.values.objects.builtin_object import Pending

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

ITERATION = ("__iter__", "__next__", "__getitem__", "__len__", "__length_hint__")
TRUTH = ("__bool__", "__len__")
EQUALITY = ("__eq__", "__ne__")
ADDITION = ("__add__", "__radd__")
TEXT = ("__str__", "__repr__", "__format__")
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
# Types that are compared, and shown, item by item.
_CONTAINERS = (list, tuple, dict, set, frozenset)
_DEEP = 8  # how deep containers are looked into
_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType)
_FUNCTIONS = (types.FunctionType, types.MethodType)


def kind_of(value: Value | Lazy | Pending) -> type | None:
    """The type of the object; None where that is not known."""
    if isinstance(value, Pending):
        return type(value.real)
    if isinstance(value, Lazy):
        return type(value.obj)
    try:
        return value.python_type()
    except Unsupported:
        return None


def runs(value: Value | Lazy | Pending, methods: Iterable[str]) -> bool:
    """Whether one of these special methods of the object is a Python function."""
    kind = kind_of(value)
    return kind is not None and type_runs(kind, methods)


def type_runs(kind: type, methods: Iterable[str]) -> bool:
    if not kind.__flags__ & HEAP_TYPE or kind in _TENSORS:
        return False
    if issubclass(kind, torch.Tensor):  # by its __torch_function__
        return True
    return any(isinstance(in_mro(kind, name), types.FunctionType) for name in methods)


def reaches_objects(value: Any, depth: int = 0) -> bool:
    """Whether the object, or one in it, may be of a class of the program's."""
    if isinstance(value, Value) and value.is_constant():
        return False
    kind = kind_of(value)
    if kind is None or depth > _DEEP or (kind.__flags__ & HEAP_TYPE and kind not in _TENSORS):
        return True
    if issubclass(kind, _CONTAINERS):
        return any(reaches_objects(item, depth + 1) for item in stored(value))
    return type_holds(kind, "__next__")  # what an iterator gives is known when it is asked


def any_runs(values: Iterable[Any], methods: Iterable[str]) -> bool:
    """Whether one of the objects, or of the items in them, has such a method."""
    return any(_deep(value, methods, set()) for value in values)


def _deep(value: Any, methods: Iterable[str], seen: set[int]) -> bool:
    if isinstance(value, Value) and value.is_constant():
        return False
    if runs(value, methods):
        return True
    kind = kind_of(value)
    if kind is None or not issubclass(kind, _CONTAINERS) or id(value) in seen:
        return False
    seen.add(id(value))
    return any(_deep(item, methods, seen) for item in stored(value))


def stored(value: Any) -> Sequence[Any]:
    """The items of a container, as they are stored; those from outside unwrapped."""
    if isinstance(value, Pending | Lazy):
        real = value.real if isinstance(value, Pending) else value.obj
        (base,) = [base for base in _CONTAINERS if issubclass(type(real), base)]
        items: Iterable[Any] = (
            dict.values(real) if base is dict else base.__iter__(real)
        )  # past a subclass's own
        return [Lazy(item, None) for item in items]
    behind = getattr(value, "behind", None)
    if behind is not None:
        return [*(Lazy(item, None) for item in behind.real), *behind.appended]
    contents = getattr(value, "contents", None)
    return contents if isinstance(contents, list | tuple) else value.children()


def iterates(value: Value) -> bool:
    """Whether iterating over the value runs code: a generator, a class with methods of iteration,
    an iterator that calls functions.
    """
    if value.is_constant():
        return False
    if runs(value, ITERATION):
        return True
    return value.step_runs_code()


def iterates_into_set(value: Value) -> bool:
    """The same for a new set, which does not ask another one's own `__iter__`."""
    kind = kind_of(value)
    return (kind is None or not issubclass(kind, set | frozenset)) and iterates(value)


def calls(value: Value | None) -> bool:
    """Whether calling the value runs code."""
    if value is None or value.is_constant():
        return False
    known, real = value.identity()
    if known and isinstance(real, type):
        return bool(real.__flags__ & HEAP_TYPE)
    kind = kind_of(value)
    if kind is None or kind is operator.itemgetter:
        return False
    return kind in _FUNCTIONS or bool(kind.__flags__ & HEAP_TYPE)


def call_natively(tx: Interpreter, function: Value, args: Sequence[Value]) -> Value:
    """function(*args), where a polyfill calls the program's functions."""
    if calls(function):
        raise Unsupported(breaks.UncapturedCall(function.describe()))
    return tx.call_function(function, args)


def reads(owner: Value, name: str) -> bool:
    """Whether reading the attribute runs code: a getter, or the class's own access."""
    kind = kind_of(owner)
    if kind is None or not kind.__flags__ & HEAP_TYPE or issubclass(kind, torch.Tensor):
        return False
    found = in_mro(kind, name)
    if isinstance(found, property) or type_runs(type(found), ("__get__",)):
        return True
    asked = [in_mro(kind, method) for method in ("__getattr__", "__getattribute__")]
    own = [method for method in asked if isinstance(method, types.FunctionType)]
    return any(method is not torch.nn.Module.__getattr__ for method in own)


def is_method_of_program(owner: Value, name: str) -> bool:
    """Whether owner.name() runs code."""
    kind = kind_of(owner)
    if kind is None or not kind.__flags__ & HEAP_TYPE or kind in _TENSORS:
        return False
    return not isinstance(in_mro(kind, name), _IN_C)
