"""nn.Module: parameters, buffers and children through the module's own tables; calls without the
detour of `_call_impl`.

The work of nn.Module's Python methods (attribute lookup, attribute stores, construction,
calls) is known here and put into the builtins table; every other method of a module is captured
like user code.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as module_globals

from dynamo import breaks
from dynamo.bytecode.cache import IdentityMap
from dynamo.errors import Unsupported
from dynamo.guards.sources import (
    AttrSource,
    DictValueSource,
    ModuleItemSource,
    ModuleSource,
    Source,
)
from dynamo.polyfills import module_calls, module_hooks
from dynamo.values.base import Value, is_none
from dynamo.values.builder import subclass_builder
from dynamo.values.builtins.table import handles
from dynamo.values.classes.classes import INSTANCE_KINDS
from dynamo.values.containers.containers import ListValue, TupleValue
from dynamo.values.containers.dict_order import guarded_order
from dynamo.values.containers.dicts import DictValue, OrderedDictValue
from dynamo.values.effects.hoisted_modules import hooks_watch_registration
from dynamo.values.effects.side_effects import DELETED
from dynamo.values.functions.function import UserFunctionValue
from dynamo.values.objects.builtin_object import Pending
from dynamo.values.objects.descriptors import MISSING, guarded_lookup
from dynamo.values.objects.exceptions import raise_python
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.literals import from_constant
from dynamo.values.tensors.tensor import TensorValue, wrap_tensor

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# Methods of nn.Module that are known here; their later replacements are captured.
_OWN = {
    name: vars(torch.nn.Module)[name]
    for name in ("__call__", "_call_impl", "__getattr__", "__setattr__", "__delattr__")
    + ("register_buffer",)
}
TABLES = ("_parameters", "_buffers", "_modules")
FORWARD_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
GLOBAL_FORWARD_HOOKS = ("_global_forward_pre_hooks", "_global_forward_hooks")


# Buffers that forward was seen to replace (`self.state = new`): their identity is not guarded.
REPLACED_BUFFERS: IdentityMap[torch.nn.Module, set[str]] = IdentityMap()


class StaticPending(Pending):
    """A parameter or buffer that was not used yet."""

    __slots__ = ()

    def wrap(self) -> Value:
        if isinstance(self.real, torch.Tensor):
            return wrap_tensor(self.tx, self.real, self.source, static=True)
        return super().wrap()


class ModuleTable(DictValue):
    """_parameters, _buffers or _modules of a module from outside."""

    def __init__(
        self,
        real: dict,
        source: Source | None,
        kind: type[DictValue],
        varying: set[str],
    ) -> None:
        super().__init__({}, source, real)
        self.cls = kind.cls
        self.varying = varying

    def real_order(self, tx: Interpreter, real: dict) -> Sequence[int]:
        """An OrderedDict's own; containers make one when a child is deleted."""
        tx.guard(self.source, "type", type(real))
        if isinstance(real, OrderedDict):
            return guarded_order(tx, self, real)
        return super().real_order(tx, real)

    def pending(self, tx: Interpreter, real: Any, source: Source | None) -> Pending:
        if isinstance(source, ModuleItemSource) and source.key in self.varying:
            return Pending(tx, real, source)
        return StaticPending(tx, real, source)

    def item_source(self, key: Any) -> Source | None:
        return None if self.source is None else ModuleItemSource(self.source, key)

    def fresh(self, entries: dict) -> DictValue:
        return (OrderedDictValue if self.cls is not dict else DictValue)(entries)


class ModuleValue(ObjectValue):
    """An nn.Module."""

    def describe(self) -> str:
        where = f" {self.source.name}" if self.source is not None else ""
        return f"module {self.cls.__name__}{where}"

    def table(self, tx: Interpreter, name: str) -> Any:
        """_parameters, _buffers or _modules; None in a module whose __init__ has not run."""
        stored = tx.output.side_effects.load_attr(self, name)
        if isinstance(stored, DictValue):
            return stored
        own = self.instance_dict()
        if own is None or name not in own:
            return None
        real, source = own[name], super().own_source(name)
        known = tx.output.known_value(real, source)
        if known is not None:
            return known
        kind = DictValue if type(real) is dict else OrderedDictValue
        value = ModuleTable(real, source, kind, REPLACED_BUFFERS.get(self.real) or set())
        tx.output.side_effects.track_existing(value)
        return tx.output.remember(real, source, value)

    def own_attr(self, tx: Interpreter, name: str) -> Value | None:
        if name in TABLES:
            return self.table(tx, name)
        stored = tx.output.side_effects.load_attr(self, name)
        if stored is None and self._in_a_table(name):
            tx.guard(self.source, "no_instance_attr", name)
            return None
        return super().own_attr(tx, name)

    def _in_a_table(self, name: str) -> bool:
        own = self.instance_dict()
        if own is None or name in own:
            return False
        if name in own.get("_parameters", ()) or name in own.get("_buffers", ()):
            return True
        return name in own.get("_modules", ())

    def getattr_or_fallback(self, tx: Interpreter, name: str) -> Value:
        if guarded_lookup(tx, self, "__getattr__") is not _OWN["__getattr__"]:
            return super().getattr_or_fallback(tx, name)
        if self._in_a_table(name) and guarded_lookup(tx, self, name) is MISSING:
            found = self.registered(tx, name)
            if found is not None:
                if tx.output.side_effects.load_attr(self, name) is None:
                    tx.guard(self.source, "no_instance_attr", name)
                return found
        return super().getattr_or_fallback(tx, name)

    def registered(self, tx: Interpreter, name: str) -> Value | None:
        """A parameter, buffer or child."""
        key = ConstantValue(name)
        for table_name in TABLES:
            own = self.instance_dict()
            if own is not None and tx.output.side_effects.load_attr(self, table_name) is None:
                real = own.get(table_name, {})
                if name not in real and not self._table_changed(tx, table_name):
                    self.guard_unregistered(tx, table_name, name)
                    continue
            table = self.table(tx, table_name)
            found = None if table is None else table.lookup(tx, key)
            if found is not None:
                return found
        return None

    def guard_unregistered(self, tx: Interpreter, table_name: str, name: str) -> None:
        """Assume that a table of a module from outside does not hold the name."""
        own = self.instance_dict()
        if own is not None and isinstance(own.get(table_name), dict):
            tx.guard(super().own_source(table_name), "contains", (name, False))

    def _table_changed(self, tx: Interpreter, name: str) -> bool:
        table = self.table(tx, name)
        return table is not None and tx.output.side_effects.is_dirty(table)

    def _replacement(self, tx: Interpreter) -> Callable[..., Any] | None:
        """The function that a static graph captures instead of a call of this module."""
        hooks = tx.output.context.hooks
        return None if hooks is None else hooks.replaces_call(self)

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]] | None:
        if not _calls_as_torch(tx, self):
            return super().forwards(tx, args, kwargs)
        replacement = self._replacement(tx)
        if replacement is not None:
            return tx.wrap(replacement), _packed(tx, self, args, kwargs), {}
        return _call_impl(tx, self, *args, **kwargs)


INSTANCE_KINDS.append((torch.nn.Module, ModuleValue))


def _calls_as_torch(tx: Interpreter, module: ModuleValue) -> bool:
    """A call of the module is nn.Module's: nothing has taken the place of that."""
    own = all(guarded_lookup(tx, module, name) is _OWN[name] for name in ("__call__", "_call_impl"))
    return own and module.own_attr(tx, "_call_impl") is None


# -- calls ----------------------------------------------------------------------------------------
@handles(torch.nn.Module._call_impl)
def _call_impl(tx, module, /, *args, **kwargs):
    """A call of forward itself, when there are no hooks (which is guarded)."""
    if _calls_hooks(tx, module):
        return tx.wrap(module_calls.call_with_hooks), _packed(tx, module, args, kwargs), {}
    return module.getattr(tx, "forward"), args, kwargs


def _packed(
    tx: Interpreter, module: ModuleValue, args: Sequence[Value], kwargs: dict[str, Value]
) -> list[Value]:
    """The arguments of a function that stands for a call: (module, args, kwargs)."""
    return [module, TupleValue(list(args)), DictValue.of(tx, dict(kwargs))]


def _calls_hooks(tx: Interpreter, module: ModuleValue) -> bool:
    """Whether a call of the module calls hooks, too; hooks of the function that made the result
    (register_backward_hook) break the graph.
    """
    backward = False
    if torch.is_grad_enabled():
        own = has_hooks(tx, module, ("_backward_hooks",))
        everywhere = _global_hooks(tx, ("_global_backward_hooks",))
        if (own and not _is_full(tx, module)) or (everywhere and not _is_full_everywhere(tx)):
            text = f"{module.describe()}, which has backward hooks that are not full"
            raise Unsupported(breaks.UncapturedCall(text))
        backward = own or everywhere or has_hooks(tx, module, ("_backward_pre_hooks",))
        backward = backward or _global_hooks(tx, ("_global_backward_pre_hooks",))
    forward = has_hooks(tx, module, FORWARD_HOOKS) or _global_hooks(tx, GLOBAL_FORWARD_HOOKS)
    return backward or forward


def _is_full(tx: Interpreter, module: ModuleValue) -> bool:
    return module.getattr(tx, "_is_full_backward_hook").as_constant() is True


def _is_full_everywhere(tx: Interpreter) -> bool:
    source = AttrSource(ModuleSource(module_globals.__name__), "_global_is_full_backward_hook")
    full = module_globals._global_is_full_backward_hook
    tx.guard(source, "id", full)
    return full is True


def has_hooks(tx: Interpreter, module: ModuleValue, names: Sequence[str]) -> bool:
    """Whether hooks of these kinds are registered on the module (which is guarded)."""
    found = False
    own = module.instance_dict()
    for name in names:
        stored = tx.output.side_effects.load_attr(module, name)
        if isinstance(stored, Value):
            found |= stored.length(tx) != 0
            continue
        hooks = (own or {}).get(name)
        if hooks is None:
            continue
        known = tx.output.known_value(hooks, module.own_source(name))
        if known is not None:
            found |= known.length(tx) != 0
            continue
        tx.guard(module.own_source(name), "length", len(hooks))
        found |= len(hooks) != 0
    return found


def _global_hooks(tx: Interpreter, names: Sequence[str]) -> bool:
    source = ModuleSource(module_globals.__name__)
    for name in names:
        tx.guard(AttrSource(source, name), "length", len(getattr(module_globals, name)))
    return any(getattr(module_globals, name) for name in names)


@handles(module_hooks.in_order)
def _in_order(tx, hooks):
    """The hooks by their places, as each registration gives a key of its own; by their keys where
    the frame changed the dict.
    """
    if not _from_outside(tx, hooks) or type(hooks.real) is not OrderedDict:
        return UserFunctionValue(module_hooks.in_order), [hooks], {}
    places = guarded_order(tx, hooks, hooks.real)
    tx.guard(hooks.source, "length", len(hooks.real))
    found = list(dict.values(hooks.real))
    return ListValue([tx.wrap(found[i], DictValueSource(hooks.source, i)) for i in places])


def _from_outside(tx: Interpreter, value: Value) -> bool:
    """Whether it is a dict from outside that the frame has not changed, and whose keys it has not
    asked for.
    """
    known = isinstance(value, DictValue) and value.real is not None and value.source is not None
    return known and not tx.output.side_effects.is_dirty(value)


@handles(module_hooks.with_kwargs)
def _with_kwargs(tx, owner, name):
    """The same of what the hooks take: guarded by their places, too."""
    ours, called = module_hooks.with_kwargs, name.as_constant()
    tables = [owner.getattr(tx, called), owner.getattr(tx, f"{called}_with_kwargs")]
    own = isinstance(owner, ModuleValue)
    source = owner.source if own else ModuleSource(module_globals.__name__)
    if source is None or not all(_from_outside(tx, table) for table in tables):
        return UserFunctionValue(ours), [owner, name], {}
    expected = ours(owner.real if own else module_globals, called)
    tx.guard(tables[0].source, "length", len(expected))
    if expected and not tables[1].real:
        tx.guard(tables[1].source, "length", 0)
    elif expected:

        def same_hooks(owner: Any) -> bool:
            return ours(owner, called) == expected

        same_hooks.__name__ = f"the same of its {called} take keyword arguments"
        tx.guard(source, "predicate", same_hooks)
    return ListValue([ConstantValue(takes) for takes in expected])


@handles(torch.nn.Module.__call__)
def _call(tx, module, /, *args, **kwargs):
    if isinstance(module, ModuleValue) and not _calls_as_torch(tx, module):
        return UserFunctionValue(_OWN["__call__"]), [module, *args], kwargs
    return _call_impl(tx, module, *args, **kwargs)


# -- attributes -----------------------------------------------------------------------------------
@handles(torch.nn.Module.__getattr__)
def _module_getattr(tx, module, name):
    found = module.registered(tx, name.as_constant())
    if found is None:
        text = f"{module.cls.__name__!r} object has no attribute {name.as_constant()!r}"
        raise_python(tx, AttributeError, text)
    return found


@handles(torch.nn.Module.__setattr__)
def _module_setattr(tx, module, name, value):
    """A store in the table that it belongs to; the rest is left to torch's own code: hooks of
    registration, errors, and the names of buffers that are not persistent.
    """
    attr = name.as_constant()
    of_torch = UserFunctionValue(_OWN["__setattr__"]), [module, name, value], {}
    is_tensor = isinstance(value, TensorValue)
    if is_tensor and isinstance(value.fake, torch.nn.Parameter):  # also one of a user's class
        if tx.output.has_overrides:  # torch asks them for grad_fn
            return of_torch
        others, table_name = ("_buffers",), "_parameters"
    elif isinstance(value, ModuleValue):
        others, table_name = ("_parameters", "_buffers"), "_modules"
    else:
        return _store(tx, module, attr, value, of_torch)
    if not _registers_alone(tx, module, attr) or any(
        _holds(tx, module, other, attr) for other in others
    ):
        return of_torch
    _register(tx, module, table_name, name, value)
    return None


def _store(
    tx: Interpreter,
    module: ModuleValue,
    name: str,
    value: Value,
    of_torch: tuple[Value, list[Value], dict[str, Value]],
) -> Any:
    """A store of neither a parameter nor a module; of_torch: the call of torch's own code."""
    is_tensor = isinstance(value, TensorValue)
    if is_tensor and value.hasattr(tx, "_is_buffer"):
        return of_torch
    for table_name in TABLES:
        if _holds(tx, module, table_name, name):
            fits = table_name == "_buffers" and is_tensor
            fits = fits or is_none(value)
            if not fits or not _registers_alone(tx, module, name):
                return of_torch
            table = module.table(tx, table_name)
            if table_name == "_buffers":
                _note_replaced(tx, module, name)
            table.setitem(tx, ConstantValue(name), value)
            return None
    return module.generic_setattr(tx, name, value)


def _note_replaced(tx: Interpreter, module: ModuleValue, name: str) -> None:
    """From call to call the buffer is another tensor."""
    table = module.table(tx, "_buffers")
    if module.real is not None and isinstance(table, ModuleTable) and table.source is not None:
        REPLACED_BUFFERS.computed(module.real, set).add(name)
        table.varying.add(name)
        tx.output.unmark_static(ModuleItemSource(table.source, name))


@handles(torch.nn.Module.register_buffer)
def _register_buffer(tx, module, name, tensor, persistent=None):
    known = isinstance(module, ModuleValue) and name.is_constant() and name.python_type_is(str)
    if known and _holds(tx, module, "_buffers", name.as_constant()):
        _note_replaced(tx, module, name.as_constant())
    given = {} if persistent is None else {"persistent": persistent}
    return UserFunctionValue(_OWN["register_buffer"]), [module, name, tensor], given


def _registers_alone(tx: Interpreter, module: ModuleValue, name: str) -> bool:
    """Whether to register a value under the name is to store it in a table, and nothing else."""
    if "." in name or not name or hooks_watch_registration(tx):
        return False
    own = ("register_parameter", "register_buffer")
    if any(guarded_lookup(tx, module, one) is not vars(torch.nn.Module)[one] for one in own):
        return False
    return guarded_lookup(tx, module, name) is MISSING


def _holds(tx: Interpreter, module: ModuleValue, table_name: str, name: str) -> bool:
    table = module.table(tx, table_name)
    if table is None:
        return False
    if name in table.entries:
        return True
    if table.real is not None and name in table.real:
        return True
    if table.real is not None and not tx.output.side_effects.is_dirty(table):
        module.guard_unregistered(tx, table_name, name)
    return False


def _register(
    tx: Interpreter, module: ModuleValue, table_name: str, name: Value, value: Value
) -> None:
    attr = name.as_constant()
    table = module.table(tx, table_name)
    if table is None:
        text = "cannot assign module before Module.__init__() call"
        raise_python(tx, AttributeError, text)
    stored = tx.output.side_effects.load_attr(module, attr)
    if (stored is not None and stored is not DELETED) or attr in (module.instance_dict() or {}):
        tx.output.side_effects.delete_attr(module, attr)
    for other in TABLES:
        if other != table_name and _holds(tx, module, other, attr):
            module.table(tx, other).delitem(tx, name)
    table.setitem(tx, name, value)


@handles(torch.nn.Module.__delattr__)
def _module_delattr(tx, module, name):
    for table_name in TABLES:
        if _holds(tx, module, table_name, name.as_constant()):
            if table_name == "_buffers":  # whose names are in the set of those not persistent, too
                return UserFunctionValue(_OWN["__delattr__"]), [module, name], {}
            module.table(tx, table_name).delitem(tx, name)
            return None
    return module.generic_delattr(tx, name.as_constant())


@handles(torch.nn.Module.__init__)
def _module_init(tx, module, *args, **kwargs):
    """A fresh module's attributes."""
    kind = module.python_type()
    if not issubclass(kind, torch.nn.Module) or ((args or kwargs) and not kind.call_super_init):
        raise Unsupported(breaks.UncapturedCall("torch.nn.Module.__init__"))
    side_effects = tx.output.side_effects
    for name, value in vars(torch.nn.Module()).items():
        if type(value) is OrderedDict:
            fresh: Value = OrderedDictValue({})
        else:
            fresh = from_constant(value) if type(value) in (dict, set) else tx.wrap(value)
        if fresh.mutation is None and not fresh.is_constant():
            side_effects.track_new(fresh)
        side_effects.store_attr(module, name, fresh)


@subclass_builder(torch.nn.Module)
def build_module(tx: Interpreter, obj: torch.nn.Module, source: Source | None) -> Value:
    if source is None:
        source = tx.output.install(type(obj).__name__, obj)
    tx.guard(source, "type", type(obj))
    value = ModuleValue(type(obj), source, obj)
    tx.output.side_effects.track_existing(value)
    return tx.output.remember(obj, source, value)
