"""The globals of modules as dicts: globals(), vars(module), module.__dict__.

Names in them are globals, however they are reached: reads and writes go where those of LOAD_GLOBAL
and STORE_GLOBAL go.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.bytecode.versions import ONE_LOCALS_DICT
from dynamo.errors import Unsupported
from dynamo.guards.sources import DictItemSource, GlobalSource, GlobalsSource, Source
from dynamo.values.base import Value
from dynamo.values.builder import realized, special_builder
from dynamo.values.builtins.table import handles
from dynamo.values.containers.dicts import DictValue
from dynamo.values.effects.side_effects import DELETED
from dynamo.values.objects.exceptions import call_handler, raise_python
from dynamo.values.recipes import GlobalsOf, Recipe
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class NamespaceValue(Value):
    """The dict of a module's globals. source None: the compiled frame's own."""

    def __init__(self, namespace: dict[str, Any], source: Source | None) -> None:
        super().__init__(source)
        self.namespace = namespace

    def python_type(self) -> type:
        return dict

    def identity(self) -> tuple[bool, Any]:
        return True, self.namespace

    def describe(self) -> str:
        return f"the globals of {self.namespace.get('__name__', 'code that exec() has run')}"

    def truth(self, tx: Interpreter) -> bool:
        return True

    def find(self, tx: Interpreter, key: Value) -> Value | None:
        name = key.as_constant()
        stored = tx.output.side_effects.load_global(self.namespace, name)
        if stored is DELETED:
            return None
        if isinstance(stored, Value):
            return stored
        holder = self.source
        if name in self.namespace:
            source = GlobalSource(name) if holder is None else DictItemSource(holder, name)
            return tx.wrap(self.namespace[name], source)
        tx.guard(holder or GlobalsSource(), "contains", (name, False))
        return None

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        found = self.find(tx, key)
        if found is None:
            raise_python(tx, KeyError, key)
        return found

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        name = key.as_constant()
        tx.output.side_effects.store_global(self.namespace, self.source, name, value)

    def delitem(self, tx: Interpreter, key: Value) -> None:
        if self.find(tx, key) is None:
            raise_python(tx, KeyError, key)
        name = key.as_constant()
        tx.output.side_effects.store_global(self.namespace, self.source, name, DELETED)

    def contains(self, tx: Interpreter, item: Value) -> Value:
        return ConstantValue(self.find(tx, item) is not None)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name in _METHODS:
            return NamespaceMethod(self, name)
        return super().getattr(tx, name)

    def recipe(self) -> Recipe:
        return GlobalsOf(self.namespace), []


class NamespaceMethod(Value):
    """globals().get and so on, not yet called."""

    def __init__(self, owner: NamespaceValue, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        method = _METHODS[self.name]
        result = call_handler(tx, self.name, method, [self.owner, *args], kwargs)
        return ConstantValue(None) if result is None else result


def _get(tx: Interpreter, owner: NamespaceValue, key: Value, default: Value | None = None):
    found = owner.find(tx, key)
    return default if found is None else found


def _setdefault(tx: Interpreter, owner: NamespaceValue, key: Value, default: Value):
    found = owner.find(tx, key)
    if found is None:
        owner.setitem(tx, key, default)
        return default
    return found


def _pop(tx: Interpreter, owner: NamespaceValue, key: Value, *default: Value):
    found = owner.find(tx, key)
    if found is None:
        return default[0] if default else raise_python(tx, KeyError, key)
    owner.delitem(tx, key)
    return found


_METHODS: dict[str, Callable[..., Value | None]] = {
    "get": _get,
    "setdefault": _setdefault,
    "pop": _pop,
}


def is_namespace(obj: Any) -> bool:
    """Whether the dict is read as globals are."""
    return type(obj) is dict and "__builtins__" in obj  # of a module, or of exec()


@special_builder(is_namespace)
def build_namespace(tx: Interpreter, obj: dict, source: Source | None) -> Value:
    """The globals of a module, guarded by identity."""
    tx.guard(source, "id", obj)
    own = obj is tx.output.frame_globals
    if source is None and not own:
        source = tx.output.install("globals", obj)
    return tx.output.remember(obj, source, NamespaceValue(obj, None if own else source))


@handles(locals)
def _locals(tx):
    return locals_of(tx, tx)


def locals_of(tx: Interpreter, frame: Interpreter) -> DictValue:
    """A dict of the variables that have values. Before Python 3.13 each call in a frame gives the
    same dict, with the values of now.
    """
    code = frame.code
    if not code.co_flags & inspect.CO_OPTIMIZED:  # of a module, or a class body
        raise Unsupported(breaks.UncapturedCall("locals"))
    found, unbound = {}, []
    for name in dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)):
        cell = frame.cells.get(name)
        value = frame.locals.get(name) if cell is None else cell.load(frame)
        if value is None:
            unbound.append(ConstantValue(name))
        elif not name.startswith("."):  # of the interpreter, or ours
            found[name] = realized(tx, value)
    known = frame.locals_dict
    if known is None:
        known = DictValue.of(tx, found)
        frame.locals_dict = known if ONE_LOCALS_DICT else None
        return known
    for name, value in found.items():
        known.setitem(tx, ConstantValue(name), value)
    for key in unbound:
        if known.lookup(tx, key) is not None:
            known.delitem(tx, key)
    return known


@handles(globals)
def _globals(tx):
    known = tx.output.known_value(tx.f_globals, tx.globals_dict_source())
    if known is not None:
        return known
    return build_namespace(tx, tx.f_globals, tx.globals_dict_source())
