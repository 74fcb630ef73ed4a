"""copy.copy and copy.deepcopy: the rules of the copy module, with object.__reduce_ex__ in Python.

Tensors are copied by tensor_copies.py. Objects that reduce by another C method than the known
ones break the graph.
"""

from __future__ import annotations

import collections
import copy
import copyreg
import types
from typing import TYPE_CHECKING, Any

from dynamo.guards.classes import is_trusted_class
from dynamo.guards.sources import AttrSource, CallSource, ModuleSource
from dynamo.polyfills import library as polyfills
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.table import BuiltinMethod, handles, polyfill
from dynamo.values.classes.builtin_bases import builtin_base
from dynamo.values.containers.containers import NamedTupleValue, SizeValue
from dynamo.values.containers.dicts import DictValue, OrderedDictValue
from dynamo.values.objects.descriptors import MISSING, SLOT_TYPES, class_lookup
from dynamo.values.objects.immutable_objects import ImmutableValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.literals import from_constant
from dynamo.values.tensors.tensor import TensorValue
from dynamo.values.tensors.tensor_copies import copy_tensor, uncaptured_copy

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_COPY_RULES: dict[type, Any] = vars(copy)["_copy_dispatch"]
_DEEP_RULES: dict[type, Any] = vars(copy)["_deepcopy_dispatch"]
_IMMUTABLE = vars(copy)["_copy_immutable"]
_ATOMIC = vars(copy)["_deepcopy_atomic"]
# C containers whose copies without attributes are those of their `copy` method.
_COPY_METHOD = (collections.OrderedDict, collections.deque, collections.defaultdict)


@handles(copy.copy)
def _copy(tx, x):
    cls = x.python_type()
    rule = _COPY_RULES.get(cls)
    if rule is _IMMUTABLE or x.is_constant() or issubclass(cls, type):
        return x
    if isinstance(x, ImmutableValue):
        return x.copied(tx)
    bare = cls in _COPY_METHOD and not _attributes(tx, x)
    if rule is not None or bare:
        return _tracked(tx, x.call_method(tx, "copy", [], {}))
    if isinstance(x, TensorValue):
        return copy_tensor(tx, x)
    if issubclass(cls, (collections.deque, collections.defaultdict)):
        return x.call_method(tx, "__copy__", [], {})
    return polyfill(tx, polyfills.shallow_copy, x, _reduced(tx, x, "copy"))


def _tracked(tx: Interpreter, value: Value) -> Value:
    return value if value.mutation is not None else tx.output.side_effects.track_new(value)


@handles(copy.deepcopy)
def _deepcopy(tx, x, memo=None, _nil=None):
    none = memo is None or is_none(memo)
    if _nil is not None or not (none or (type(memo) is DictValue and memo.source is None)):
        raise uncaptured_copy(x, "deepcopy")  # the memo holds real addresses
    return polyfill(tx, polyfills.deep_copy, x, tx.wrap(None) if none else memo)


@handles(polyfills.deep_rule)
def _deep_rule(tx, x):
    """The name by which the polyfill knows deepcopy's rule for x."""
    cls = x.python_type()
    rule = _DEEP_RULES.get(cls)
    if isinstance(x, TensorValue):
        return ConstantValue("tensor")
    if isinstance(x, ImmutableValue):
        return ConstantValue("immutable")
    if rule is _ATOMIC or x.is_constant() or issubclass(cls, type):
        return ConstantValue("atomic")
    if isinstance(x, SizeValue):
        return ConstantValue("atomic")  # equal, and nobody can change it
    if rule is not None:
        return ConstantValue(cls.__name__)
    if x.hasattr(tx, "__deepcopy__"):
        return ConstantValue("own")
    return ConstantValue("reduce")


@handles(polyfills.reduced)
def _reduced_handler(tx, x):
    return _reduced(tx, x, "deepcopy")


def _reduced(tx: Interpreter, x: Value, function: str) -> Value:
    """x.__reduce_ex__(4)."""
    cls = x.python_type()
    if isinstance(x, TensorValue):
        raise uncaptured_copy(x, function)
    registry = AttrSource(ModuleSource("copyreg"), "dispatch_table")
    if cls in copyreg.dispatch_table:
        tx.guard(registry, "contains", (cls, True))

        def reducer_of(table: dict[type, Any]) -> Any:
            return table[cls]

        reducer = CallSource(registry, reducer_of, f"reducer of {cls.__name__}")
        return tx.wrap(reducer_of(copyreg.dispatch_table), reducer).call(tx, [x], {})
    if not is_trusted_class(cls):
        tx.guard(registry, "contains", (cls, False))
    if isinstance(class_lookup(cls, "__getattribute__"), types.FunctionType):
        if not _reduces_plainly(cls):
            raise uncaptured_copy(x, function)
        return polyfill(tx, polyfills.reduce_heard, x)
    for name, args in (("__reduce_ex__", [ConstantValue(4)]), ("__reduce__", [])):
        found = class_lookup(cls, name)
        if isinstance(found, types.FunctionType):
            return x.call_method(tx, name, args, {})
        if found is not getattr(object, name):
            return _reduced_container(tx, x, found, function)
    known = getattr(x, "cls", None) is not None and hasattr(x, "storage")
    if not (known or isinstance(x, NamedTupleValue)):
        raise uncaptured_copy(x, function)
    newargs = tx.wrap(isinstance(class_lookup(cls, "__getnewargs__"), types.FunctionType))
    return polyfill(tx, polyfills.reduce_object, x, *_state(tx, x, function), newargs)


def _reduces_plainly(cls: type) -> bool:
    """Whether copies have the attributes of an instance dict, and nothing else."""
    own = "__reduce_ex__", "__reduce__", "__getstate__"
    plain = all(class_lookup(cls, name) is getattr(object, name, None) for name in own)
    news = (class_lookup(cls, name) for name in ("__getnewargs_ex__", "__getnewargs__"))
    others = any(found is not MISSING for found in news) or copyreg._slotnames(cls)  # type: ignore[attr-defined]
    return plain and not others and builtin_base(cls) is object


@handles(polyfills.plain_methods)
def _plain_methods(tx, x, told):
    for method in told.each(tx):
        plain = isinstance(method, BuiltinMethod) and method.receiver is x
        if not (plain and method.found is getattr(object, method.name)):
            raise uncaptured_copy(x, "copy")
    return ConstantValue(None)


def _state(tx: Interpreter, x: Value, function: str) -> tuple[Value, Value]:
    """The arguments of polyfills.object_state besides x."""
    cls = x.python_type()
    state = class_lookup(cls, "__getstate__")
    if isinstance(state, SLOT_TYPES) and state is not vars(object)["__getstate__"]:
        raise uncaptured_copy(x, function)
    names = from_constant(tuple(copyreg._slotnames(cls)))  # type: ignore[attr-defined]
    return names, tx.wrap(isinstance(state, types.FunctionType))


def _reduced_container(tx: Interpreter, x: Value, found: Any, function: str) -> Value:
    rule = polyfills.REDUCTIONS.get(getattr(found, "__objclass__", object))
    if rule is None:
        raise uncaptured_copy(x, function)
    if x.python_type() is not found.__objclass__:
        return polyfill(tx, rule, x, *_state(tx, x, function))
    return polyfill(tx, rule, x, from_constant(_attributes(tx, x)))


def _attributes(tx: Interpreter, x: Value) -> tuple[str, ...]:
    """The names of the attributes of a container of a C type itself, guarded."""
    if not isinstance(x, OrderedDictValue):
        return ()
    names = () if x.outside is None else tuple(vars(x.outside))
    if x.source is not None:

        def has_these_attributes(now: Any) -> bool:
            return tuple(vars(now)) == names

        tx.guard(x.source, "predicate", has_these_attributes)
    stored = tx.output.side_effects.stored_attrs(x)
    kept = [name for name in names if name not in stored]
    return (*kept, *(name for name, value in stored.items() if isinstance(value, Value)))
