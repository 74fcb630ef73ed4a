"""Classes and Python modules as values; making instances."""

from __future__ import annotations

import enum
import operator
import sys
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.bytecode.returns import returns_none
from dynamo.errors import Unsupported
from dynamo.guards.classes import IMMUTABLE_TYPE, NAMESPACE, is_trusted_function
from dynamo.guards.sources import AttrSource, ModuleSource, Source
from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.polyfills.type_names import type_name
from dynamo.values import late_bound
from dynamo.values.base import TailCallable, Value
from dynamo.values.builder import builder, subclass_builder
from dynamo.values.builtins.polyfill_calls import polyfill_call, polyfill_construct, run_polyfill
from dynamo.values.builtins.table import TABLE, BuiltinMethod, SlotValue, real_object
from dynamo.values.builtins.tail_builtins import tail_call_builtin
from dynamo.values.classes.builtin_bases import builtin_base
from dynamo.values.classes.class_stores import stored_class_attr
from dynamo.values.classes.enums import NATIVE_GETTER, EnumValue
from dynamo.values.classes.metaclasses import MetaclassInstance
from dynamo.values.containers.containers import NamedTupleValue, SequenceValue, is_named_tuple
from dynamo.values.containers.dicts import DefaultDictValue, DictValue
from dynamo.values.effects.hoisted_modules import make_module
from dynamo.values.effects.side_effects import DELETED
from dynamo.values.functions.function import MethodValue
from dynamo.values.functions.monkey_patches import is_programs
from dynamo.values.iterators.native_iterators import CalledIterator
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.descriptors import (
    MISSING,
    SLOT_TYPES,
    assume_lookup,
    bind,
    bind_to_class,
    class_attr,
    class_attr_source,
    class_lookup,
    guarded_lookup,
    is_data_descriptor,
    is_native,
    is_trusted_class,
    reads_by_function,
)
from dynamo.values.objects.exception_objects import ExceptionValue, init_keywords, make_natively
from dynamo.values.objects.exceptions import (
    RaisedException,
    call_handler,
    call_real,
    can_read,
    raise_python,
)
from dynamo.values.objects.known_objects import KnownObject
from dynamo.values.objects.namespaces import is_namespace
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.objects.reflection import C_DESCRIPTORS, note_changed, refuse_changed
from dynamo.values.objects.storage import immutable_storage, new_storage
from dynamo.values.objects.storage_slots import container_init, fill_mapping, set_factory
from dynamo.values.recipes import Existing, Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.mixed_numbers import call_on_numbers

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


@bound_late
class ClassValue(TailCallable, MetaclassInstance):
    """A class that exists while capturing: call, attributes, isinstance."""

    calls_getters_last = True

    def __init__(self, cls: type, source: Source | None = None) -> None:
        super().__init__(source)
        self.cls = cls

    def python_type(self) -> type:
        return type(self.cls)

    def identity(self) -> tuple[bool, Any]:
        return True, self.cls

    def describe(self) -> str:
        return f"class {self.cls.__qualname__}"

    def as_proxy(self) -> Any:
        return self.cls

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        """X | Y in a type expression, if its metaclass says nothing else."""
        answer = super().binary(tx, op, other, reflected)
        known, real = other.identity()
        if answer is not None or op != "|" or not known:
            return answer
        if class_lookup(type(self.cls), "__or__") is not type.__or__:
            raise Unsupported(breaks.UncapturedCall(f"{type(self.cls).__name__}.__or__"))
        return _union(tx, self.cls, real, reflected)

    # -- attributes -----------------------------------------------------------------------------
    def getattr(self, tx: Interpreter, name: str) -> Value:
        getter = class_lookup(type(self.cls), "__getattribute__")
        if getter is not NATIVE_GETTER and self.has_special(tx, "__getattribute__"):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        stored = tx.output.side_effects.load_attr(self, name)
        if isinstance(stored, Value):
            return stored
        inherited = stored_class_attr(tx, self.cls, name)
        if inherited is not None:
            return inherited.held
        found = class_lookup(self.cls, name)
        if stored is DELETED:
            found = MISSING
        on_meta = class_lookup(type(self.cls), name)
        assume_lookup(tx, type(self.cls), name, on_meta)
        if found is MISSING:
            assume_lookup(tx, self.cls, name, found)
        if on_meta is not MISSING and (found is MISSING or hasattr(type(on_meta), "__set__")):
            return self._meta_attr(tx, name, on_meta)
        if found is MISSING:
            asked = self.special(tx, "__getattr__", ConstantValue(name))
            if asked is not None:
                return asked
            if isinstance(self.cls, enum.EnumType):
                call_real(tx, getattr, self.cls, name)  # has words of its own
            text = f"type object {type_name(self.cls)!r} has no attribute {name!r}"
            raise_python(tx, AttributeError, text)
        return self._class_attr(tx, name, found)

    def _meta_attr(self, tx: Interpreter, name: str, found: Any) -> Value:
        """Attributes of the metaclass: __name__, __mro__, ..., and methods of user metaclasses."""
        if isinstance(found, types.FunctionType):
            return MethodValue(tx.wrap(found, class_attr_source(tx, self, name)), self)
        if isinstance(found, SLOT_TYPES):
            return BuiltinMethod(self, name, found)
        if isinstance(found, property):
            source = class_attr_source(tx, self, name)
            source = None if source is None else AttrSource(source, "fget")
            return tx.call_at_end(self, name, tx.wrap(found.fget, source), [self])
        if name == "__dict__" and tx.output.side_effects.stored_attrs(self):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        return tx.wrap(call_real(tx, getattr, self.cls, name), self._attr_source(name))

    def _attr_source(self, name: str) -> Source | None:
        return None if self.source is None else AttrSource(self.source, name)

    def _class_attr(self, tx: Interpreter, name: str, found: Any) -> Value:
        if is_native(found, classmethod):
            source = self._attr_source(name)
            source = None if source is None else AttrSource(source, "__func__")
            return bind_to_class(tx, found, self, source)
        if is_native(found, staticmethod):
            return tx.wrap(found.__func__, self._attr_source(name))
        if isinstance(found, types.BuiltinFunctionType) and name != "__new__":  # mere data
            return tx.wrap(found, self._attr_source(name))
        if isinstance(found, (*SLOT_TYPES, types.ClassMethodDescriptorType)):
            tx.output.guards.assume_class(self.cls).assume(name, found)
            bound = isinstance(found, types.ClassMethodDescriptorType)
            return BuiltinMethod(self, name, found) if bound else SlotValue(found, self.cls)
        getter = class_lookup(type(found), "__get__")
        tx.output.guards.assume_class(type(found))
        if isinstance(getter, types.FunctionType) and not isinstance(self.cls, enum.EnumType):
            assume_lookup(tx, self.cls, name, found)
            none = ConstantValue(None)
            return tx.call_at_end(self, name, tx.wrap(getter), [tx.wrap(found), none, self])
        return tx.wrap(call_real(tx, getattr, self.cls, name), self._attr_source(name))

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return can_read(tx, self, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        if self.mutation is None or name.startswith("__") or isinstance(self.cls, enum.EnumType):
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        if class_lookup(type(self.cls), "__setattr__") is not type.__setattr__:
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        if self.cls.__flags__ & IMMUTABLE_TYPE:  # raises, there and then
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        tx.output.side_effects.store_attr(self, name, value)
        tx.output.side_effects.class_stores[id(self.cls), name] = value

    # -- as a container (enums, generic aliases) ------------------------------------------------
    def unpack(self, tx: Interpreter) -> list[Value]:
        if self._is_enums_own("__iter__"):
            members: Any = self.cls
            self._guard_members(tx)
            return [tx.wrap(member) for member in members]
        return super().unpack(tx)

    def iterate(self, tx: Interpreter) -> Value:
        if not self._is_enums_own("__iter__"):
            return super().iterate(tx)
        return CalledIterator(types.GeneratorType, iter, [self], self.unpack(tx))

    def length(self, tx: Interpreter) -> int:
        if self._is_enums_own("__len__"):
            members: Any = self.cls
            self._guard_members(tx)
            return len(members)
        return super().length(tx)

    def contains(self, tx: Interpreter, item: Value) -> Value:
        if self._is_enums_own("__contains__"):
            if self._asks_missing():  # some Pythons call it here
                raise Unsupported(breaks.NotCallable(f"{self.describe()}, which has _missing_"))
            self._guard_members(tx)
            found = call_real(tx, operator.contains, self.cls, real_object(item))
            return ConstantValue(found)
        return super().contains(tx, item)

    def _guard_members(self, tx: Interpreter) -> None:
        """Assume that the enum gets no more members."""
        if not is_trusted_class(self.cls):
            source = self._attr_source("_member_map_")
            tx.guard(source, "length", len(vars(self.cls)["_member_map_"]))

    def _is_enums_own(self, name: str) -> bool:
        """The special method of the class is that of all enums."""
        return class_lookup(type(self.cls), name) is vars(enum.EnumType)[name]

    def getitem(self, tx: Interpreter, key: Value) -> Value:

        if self._is_enums_own("__getitem__"):
            try:
                members: Any = self.cls
                self._guard_members(tx)
                return tx.wrap(members[key.as_constant()])
            except KeyError:
                raise_python(tx, KeyError, key)
        found = class_lookup(type(self.cls), "__getitem__")
        if isinstance(found, types.FunctionType):
            function = tx.wrap(found, class_attr_source(tx, self, "__getitem__"))
            return tx.call_at_end(self, "__getitem__", function, [self, key])
        found = class_lookup(self.cls, "__class_getitem__")
        held = found.__func__ if isinstance(found, classmethod) else found
        if isinstance(held, types.FunctionType) and not is_trusted_function(held):
            method = self.getattr(tx, "__class_getitem__")
            return tx.call_at_end(self, "__getitem__", method, [key])
        return tx.wrap(call_real(tx, operator.getitem, self.cls, _type_argument(key)))

    # -- calls ----------------------------------------------------------------------------------
    def call_or_tail_call(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value], last: bool
    ) -> Value:
        made = polyfill_call(tx, self.cls, args, kwargs, last)
        if made is not None:
            return made
        if any(arg.is_symbolic() or arg.alternatives for arg in args):
            made = call_on_numbers(tx, self.cls, args, kwargs)
            if made is not None:
                return made
        handler = TABLE.get(self.cls)
        if handler is not None:
            if last and not kwargs:
                tail_call_builtin(tx, self.cls, args)
            result = call_handler(tx, self.describe(), handler, args, kwargs, self.cls, last)
            return ConstantValue(None) if result is None else result
        meta_call = class_lookup(type(self.cls), "__call__")
        if self._is_enums_own("__call__"):
            return self._enum_member(tx, args, kwargs)
        if meta_call is dict:  # a TypedDict
            return tx.wrap(dict).call(tx, args, kwargs)
        if isinstance(meta_call, types.FunctionType):
            function = tx.wrap(meta_call, class_attr_source(tx, self, "__call__"))
            call = tx.finish_call if last else tx.call_function
            return call(function, [self, *args], kwargs)
        return construct(tx, self, args, kwargs, last)

    def _enum_member(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        if len(args) != 1 or kwargs:
            raise Unsupported(breaks.NotCallable(self.describe()))
        self._guard_members(tx)
        if self._asks_missing():
            return self._found_or_missing(tx, args[0])
        return tx.wrap(call_real(tx, self.cls, real_object(args[0])))

    def _asks_missing(self) -> bool:
        """The enum has a _missing_ of its own."""
        missing = getattr(class_lookup(self.cls, "_missing_"), "__func__", None)
        return isinstance(missing, types.FunctionType) and not is_trusted_function(missing)

    def _found_or_missing(self, tx: Interpreter, value: Value) -> Value:
        """A member by its value, or the one that the class's own _missing_ gives."""
        members: Any = self.cls
        for member in members:
            if member._value_ == value.as_constant():
                return tx.wrap(member)

        try:
            found = self.call_method(tx, "_missing_", [value], {})
        except RaisedException:  # which EnumType links to an error of its own
            raise Unsupported(
                breaks.NotCallable(f"{self.describe()}, which has _missing_")
            ) from None
        if not isinstance(found, EnumValue) or type(found.value) is not self.cls:
            raise Unsupported(breaks.NotCallable(f"{self.describe()}, which has _missing_"))
        return found

    def recipe(self) -> Recipe:
        return Existing(self.cls, self.cls.__name__), []


def _union(tx: Interpreter, mine: Any, other: Any, reflected: bool) -> Value:
    """mine | other in a type expression."""
    return tx.wrap(call_real(tx, operator.or_, *((other, mine) if reflected else (mine, other))))


def _type_argument(value: Value) -> Any:
    """An argument in the brackets of a generic type: objects that exist, and nests of them."""
    if isinstance(value, SequenceValue):
        return value.make_real([_type_argument(item) for item in value.wrapped()])
    known, real = value.identity()
    return real if known else value.as_constant()


def construct(
    tx: Interpreter,
    owner: ClassValue,
    args: Sequence[Value],
    kwargs: dict[str, Value],
    last: bool = False,
) -> Value:
    """type.__call__: __new__, then __init__ if that gave an instance.

    last: the current instruction does nothing else.
    """

    cls = owner.cls
    if issubclass(cls, torch.nn.Module):
        made = make_module(tx, cls, args, kwargs)
        if made is not None:
            return made
    new = class_lookup(cls, "__new__")
    _guard_constructors(tx, owner)
    if issubclass(cls, torch.Tensor) and late_bound.is_wrapper_class(cls):
        return late_bound.make_wrapper(tx, cls, args, kwargs)
    new = new.__func__ if isinstance(new, staticmethod) else new
    init = class_lookup(cls, "__init__")
    if not isinstance(new, _FUNCTIONS) or not isinstance(init, _FUNCTIONS):
        raise Unsupported(breaks.NotCallable(f"class {cls.__qualname__}"))
    if isinstance(new, types.FunctionType):
        source = None if owner.source is None else AttrSource(owner.source, "__new__")
        maker = tx.wrap(new, source)
        return polyfill_construct(tx, owner, maker, args, kwargs, last)
    instance = new_instance(tx, cls, args, kwargs)
    if isinstance(init, types.FunctionType):
        method = bind(tx, instance, init, "__init__")
        if not returns_none(init.__code__):
            said = builtin_polyfills.initialise
            return run_polyfill(tx, said, [instance, method, *args], kwargs, last=last)
        if last:
            tx.finish_call(method, args, kwargs, (instance,))
        else:
            method.call(tx, args, kwargs)
    elif init is not object.__init__ or isinstance(instance, ObjectValue):
        builtin_init(tx, instance, args, kwargs)
    return instance


def _guard_constructors(tx: Interpreter, owner: ClassValue) -> None:
    """A class that inherits a C type's __new__ or __init__ can get its own later."""
    if owner.source is None or is_trusted_class(owner.cls):
        return
    for name in ("__new__", "__init__"):
        if isinstance(class_lookup(owner.cls, name), SLOT_TYPES):
            tx.guard(AttrSource(owner.source, name), "id", getattr(owner.cls, name))


_FUNCTIONS = (types.FunctionType, *SLOT_TYPES)  # which cls.__init__ gives as they are
_IS_ABSTRACT = 1 << 20  # Py_TPFLAGS_IS_ABSTRACT
# Base class -> the Values of new instances; torch/modules.py adds to it.
INSTANCE_KINDS: list[tuple[type, Callable[[type], Value]]] = []


@bound_late
def new_instance(
    tx: Interpreter, cls: type, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """cls.__new__(cls, *args) where that is a built-in type's."""
    if cls.__flags__ & _IS_ABSTRACT:
        # Python has the words for it.
        call_real(tx, object.__new__, cls, *[None] * len(args), **dict.fromkeys(kwargs))
    if class_lookup(cls, "__del__") is not MISSING:
        # When it is called, the frame would have to know.
        raise Unsupported(breaks.NotCallable(f"class {cls.__qualname__}, which has __del__"))
    if issubclass(cls, BaseException):
        if make_natively(cls, args) or issubclass(cls, BaseExceptionGroup):
            raise Unsupported(breaks.NotCallable(f"class {cls.__qualname__}"))
        return tx.output.side_effects.track_new(ExceptionValue(cls, list(args)))
    if is_named_tuple(cls):
        return NamedTupleValue(cls, args[0].unpack(tx) if args else [])
    if issubclass(cls, torch.Tensor):
        tensor = late_bound.new_subclass_tensor(tx, cls, args, kwargs)
        if tensor is not None:
            return tensor
    held = immutable_storage(tx, cls, args, kwargs)
    if held is not None:
        instance = ObjectValue(cls, storage=held)
        instance.new_args = (held,)
        return tx.output.side_effects.track_new(instance)
    storage = new_storage(cls)
    if storage is None and not _makes_plain_objects(cls):
        raise Unsupported(breaks.NotCallable(f"class {cls.__qualname__}"))
    for base, kind in INSTANCE_KINDS:
        if issubclass(cls, base):
            return tx.output.side_effects.track_new(kind(cls))
    excess = (args or kwargs) and builtin_base(cls) is object
    if excess and _refuses_arguments(cls, "__new__", "__init__"):
        raise Unsupported(breaks.UncapturedCall("object.__new__"))
    tx.output.objects_override |= class_lookup(cls, "__torch_function__") is not MISSING
    instance = ObjectValue(cls, storage=storage)
    value = tx.output.side_effects.track_new(instance)
    if storage is not None:
        storage.mutation, storage.holder = instance.mutation, instance
        tx.output.side_effects.mark(instance)
    return value


def _makes_plain_objects(cls: type) -> bool:
    new = class_lookup(cls, "__new__")
    if issubclass(cls, (torch.Tensor, type, types.ModuleType)):
        return False
    if builtin_base(cls) is types.SimpleNamespace:
        return True
    if builtin_base(cls) is not object:  # C types may have no constructor at all
        return False
    return new is object.__new__ or isinstance(new, (types.FunctionType, staticmethod))


def _refuses_arguments(cls: type, method: str, other: str) -> bool:
    """object's `method` takes no arguments, unless only the `other` one is overridden."""
    own = class_lookup(cls, method) is not getattr(object, method)
    return own or class_lookup(cls, other) is getattr(object, other)


def builtin_init(
    tx: Interpreter, instance: Value, args: Sequence[Value], kwargs: dict[str, Value]
) -> None:
    """The __init__ of object, dict, list, BaseException, ..."""
    storage = getattr(instance, "storage", None)
    if isinstance(instance, ExceptionValue):
        known = init_keywords(builtin_base(instance.cls))
        if make_natively(instance.cls, args) or not kwargs.keys() <= known:
            raise Unsupported(breaks.UncapturedCall(f"{instance.cls.__name__}.__init__"))
        instance.args = list(args)
        instance.init = list(args), dict(kwargs)
        return
    if issubclass(instance.python_type(), types.SimpleNamespace) and not args:
        for name, value in kwargs.items():
            tx.output.side_effects.store_attr(instance, name, value)
        return
    if storage is None:
        inherited = [
            c.__dict__["__init__"]
            for c in instance.python_type().__mro__
            if "__init__" in c.__dict__
        ]
        if any(isinstance(i, SLOT_TYPES) and i is not object.__init__ for i in inherited):
            raise Unsupported(breaks.UncapturedCall(f"{instance.python_type().__name__}.__init__"))
        if (args or kwargs) and _refuses_arguments(instance.python_type(), "__init__", "__new__"):
            raise Unsupported(breaks.UncapturedCall("object.__init__"))
        return
    if not isinstance(storage, DictValue):
        container_init(tx, storage, *args, **kwargs)
        return
    if isinstance(storage, DefaultDictValue) and args:
        set_factory(tx, storage, args[0])
        args = args[1:]
    fill_mapping(tx, instance, args, kwargs)


def class_by_name(cls: type) -> Source | None:
    """sys.modules[module].Name, if that is the class."""
    module = sys.modules.get(cls.__module__)
    if module is None or getattr(module, cls.__qualname__, None) is not cls:
        return None
    return AttrSource(ModuleSource(cls.__module__), cls.__qualname__)


def is_python_descriptor(found: Any) -> bool:
    """A data descriptor in Python, as the flags of torch.backends are."""
    return isinstance(class_lookup(type(found), "__set__"), types.FunctionType)


class PyModuleValue(Value):
    """A Python module."""

    def __init__(self, module: types.ModuleType, source: Source | None) -> None:
        super().__init__(source)
        self.module = module

    def identity(self) -> tuple[bool, Any]:
        return True, self.module

    def describe(self) -> str:
        return f"module {vars(self.module).get('__name__')}"

    def getattr(self, tx: Interpreter, name: str) -> Value:
        stored = self._stored(tx, name)
        if isinstance(stored, Value):
            return stored
        changed = {namespace for namespace, _ in tx.output.side_effects.globals}
        if name == "__dict__" and id(vars(self.module)) in changed:
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        if self._is_programs(name):
            return self._by_program(tx, name)
        try:
            found = getattr(self.module, name)
        except AttributeError as error:
            tx.guard(self.source, "has_attr", (name, False))
            raise_python(tx, AttributeError, *error.args)
        return tx.wrap(found, self._attr_source(name))

    def _stored(self, tx: Interpreter, name: str) -> Value | None:
        """The value that the frame stored under the name; a break where a hook may be asked."""
        namespace = vars(self.module)
        stored = tx.output.side_effects.load_global(namespace, name)
        if stored is DELETED:
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        if isinstance(stored, Value):
            return stored
        refuse_changed(tx, self, namespace, name)
        return None

    def _attr_source(self, name: str) -> Source | None:
        return None if self.source is None else AttrSource(self.source, name)

    def _is_programs(self, name: str) -> bool:
        """Whether a read of the attribute runs code of the program."""
        kind, namespace = type(self.module), vars(self.module)
        found = class_lookup(kind, name)
        if is_trusted_class(kind) and found is not MISSING and not is_python_descriptor(found):
            return False
        if is_data_descriptor(found) or (found is not MISSING and name not in namespace):
            return not isinstance(found, C_DESCRIPTORS)
        if name in namespace:
            return False
        hooks = (namespace.get("__getattr__", MISSING), class_lookup(kind, "__getattr__"))
        return any(
            hook is not MISSING and (type(hook) is not types.FunctionType or is_programs(hook))
            for hook in hooks
        )

    def _by_program(self, tx: Interpreter, name: str) -> Value:
        tx.guard(self.source, "type", type(self.module))
        found = guarded_lookup(tx, self, name)
        if found is not MISSING:
            return bind(tx, self, found, name)
        tx.guard(self._attr_source("__dict__"), "contains", (name, False))
        own = vars(self.module).get("__getattr__", MISSING)
        of_class = guarded_lookup(tx, self, "__getattr__")
        if of_class is MISSING:
            hook = tx.wrap(own, self._attr_source("__getattr__"))
        elif own is MISSING:
            hook = bind(tx, self, of_class, "__getattr__")
        else:  # the second is asked if the first raises an AttributeError
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        return tx.call_at_end(self, "__getattr__", hook, [ConstantValue(name)])

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        if self._stored(tx, name) is not None:
            return True
        if self._is_programs(name):
            return can_read(tx, self, name)
        tx.guard(self.source, "has_attr", (name, hasattr(self.module, name)))
        return hasattr(self.module, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        namespace = vars(self.module)
        found = class_lookup(type(self.module), name)
        if is_python_descriptor(found):
            setter = class_lookup(type(found), "__set__")
            tx.guard(self.source, "type", type(self.module))
            descriptor = class_attr(tx, self, guarded_lookup(tx, self, name), name)
            function = tx.wrap(setter, class_attr_source(tx, descriptor, "__set__"))
            tx.call_at_end(self, "__setattr__", function, [descriptor, self, value])
            return
        if is_data_descriptor(found):
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        if not is_namespace(namespace):  # a dict as others are, for who holds it
            note_changed(tx, self, namespace, name)
        source = None if self.source is None else AttrSource(self.source, "__dict__")
        tx.output.side_effects.store_global(namespace, source, name, value)

    def recipe(self) -> Recipe:
        return Existing(self.module), []


@builder(types.ModuleType)
def build_python_module(tx: Interpreter, obj: types.ModuleType, source: Source | None) -> Value:
    """A module: guarded by identity where it was found and in sys.modules, through which it is read
    then.
    """
    return _python_module(tx, obj, source)


@subclass_builder(types.ModuleType)
def build_module_like(tx: Interpreter, obj: types.ModuleType, source: Source | None) -> Value:
    """A module of a class of its own: one that sees how its attributes are used is left alone."""
    seen = ("__getattribute__", "__setattr__", "__delattr__")
    hides_dict = class_lookup(type(obj), "__dict__") is not vars(types.ModuleType)["__dict__"]
    if hides_dict or any(isinstance(class_lookup(type(obj), n), types.FunctionType) for n in seen):
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    return _python_module(tx, obj, source)


# Whose entries in sys.modules stay: without a guard, as most frames use some.
_NEVER_REPLACED = sys.stdlib_module_names | {"torch", "numpy"}


def _python_module(tx: Interpreter, obj: types.ModuleType, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    name = vars(obj).get("__name__")
    if type(name) is str and sys.modules.get(name) is obj:
        source = ModuleSource(name)
        if name.partition(".")[0] not in _NEVER_REPLACED:
            tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, PyModuleValue(obj, source))


@subclass_builder(type)
def build_class(tx: Interpreter, obj: type, source: Source | None) -> Value:
    """A class, guarded by identity. Attributes of classes that users may change are tracked."""
    # The program computes its attributes, it is seen by its metaclass while it is made, or not
    # to be looked up in any table of ours.
    hidden = reads_by_function(type(obj))
    if hidden or obj.__mro__ is None or type(obj).__hash__ is None:
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    own = [cls for cls in obj.__mro__ if not is_trusted_class(cls)]
    if not all(
        type(name) is str for cls in own for name in NAMESPACE.__get__(cls)
    ):  # it may compare itself
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    tx.guard(source, "id", obj)
    tx.output.guards.assume_class(obj)
    if source is None and not is_trusted_class(obj):  # its contents can be changed
        source = tx.output.install(obj.__name__, obj)
    value = ClassValue(obj, source)
    if source is not None:
        tx.output.side_effects.track_existing(value)
    return tx.output.remember(obj, source, value)


class ObjectConstant(KnownObject):
    """An object of the language machinery that is passed around and compared by identity (typing
    forms, ...).
    """

    def __init__(self, real: Any, source: Source | None = None) -> None:
        super().__init__(real, source)
        self.real = real

    def as_proxy(self) -> Any:
        return self.real

    def as_constant(self) -> Any:
        return self.real

    def truth(self, tx: Interpreter) -> bool:
        return bool(self.real)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        known, real = other.identity()
        if op not in ("==", "!=") or not known:
            return None
        return ConstantValue((self.real == real) is (op == "=="))

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        return tx.wrap(call_real(tx, operator.getitem, self.real, _type_argument(key)))

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        known, real = other.identity()
        if op != "|" or not known:
            return None
        return _union(tx, self.real, real, reflected)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Call a generic alias such as list[int]: the result is its origin's."""
        origin = getattr(self.real, "__origin__", None)
        if not isinstance(origin, type):
            return super().call(tx, args, kwargs)
        made = tx.wrap(origin).call(tx, args, kwargs)
        if isinstance(made, ObjectValue) and made.has_instance_dict():
            made.setattr(tx, "__orig_class__", self)
        return made


def _typing_forms() -> list[Any]:
    import inspect
    import typing

    forms: list[Any] = [
        type(list[int]),
        type(int | str),
        type(typing.List[int]),  # noqa: UP006
        type(typing.Optional[int]),  # noqa: UP045
    ]
    forms += [type(typing.Any), type(typing.Union), type(typing.Callable), typing.TypeVar]
    forms += [type(typing.List), type(typing.Tuple)]  # noqa: UP006
    forms += [type(inspect.Parameter.empty), type(property()), classmethod, staticmethod]
    return [f for f in forms if f is not type]


@builder(*_typing_forms())
def build_typing_form(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    return ObjectConstant(obj, source)
