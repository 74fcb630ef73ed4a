"""Real object -> Value: the entry point `build`, and the tables that other files extend.

`BUILDERS` is keyed by exact type; `SUBCLASS_BUILDERS` holds (base class, builder), tried in order
with isinstance. A builder is `(tx, obj, source) -> Value`: it adds the guards that the Value relies
on, and registers the Value with `tx.output.remember(obj, source, value)` if the object has an
identity that matters (mutable, or compared with `is`).

To add a kind of object:   @builder(MyType)         or   @subclass_builder(MyBase)
                           def build_my_type(tx, obj, source): ...
in a file that is named in `_REGISTERING_MODULES`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.classes.lookup import reads_by_function
from dynamo.values.scalars.constant import ConstantValue, is_constant_type

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

Builder = Callable[["Interpreter", Any, Source | None], Value]
BUILDERS: dict[type, Builder] = {}
SUBCLASS_BUILDERS: list[tuple[type, Builder]] = []
# (predicate, builder): objects that are recognised by identity or attributes, not by their type
# (torch functions, disabled
# functions); tried before the tables.
SPECIAL_BUILDERS: list[tuple[Callable[[Any], bool], Builder]] = []
_FALLBACK: list[Builder] = []
# In the order in which their builders for predicates and for subclasses are tried.
_REGISTERING_MODULES = [
    "dynamo.torch.distributed_tensors",
    "dynamo.torch.collectives",
    "dynamo.values.objects.exception_objects",
    "dynamo.values.builtins.table",
    "dynamo.values.objects.slots",
    "dynamo.values.containers.containers",
    "dynamo.values.functions.cell",
    "dynamo.values.functions.function",
    "dynamo.torch.transforms",  # some of the objects in packages that capture does not look into
    "dynamo.torch.torch_function",
    "dynamo.torch.scripted",
    "dynamo.torch.optimizers",
    "dynamo.torch.addresses",
    "dynamo.values.tensors.tensor",
    "dynamo.torch.modules",
    "dynamo.values.containers.sets",
    "dynamo.values.containers.dicts",
    "dynamo.values.iterators.iterators",
    "dynamo.values.scalars.conversions",
    "dynamo.values.builtins.builtin_types",
    "dynamo.values.iterators.itertools_iterators",
    "dynamo.values.functions.function_maker",
    "dynamo.values.iterators.native_iterators",
    "dynamo.values.functions.functional",
    "dynamo.values.functions.compiled_functions",
    "dynamo.values.classes.super_objects",
    "dynamo.values.tensors.deferred_scalar",
    "dynamo.values.tensors.deferred_places",
    "dynamo.values.tensors.bounded_tensors",
    "dynamo.values.tensors.indexing",
    "dynamo.torch.numpy_values",
    "dynamo.torch.numpy_scalars",
    "dynamo.values.classes.classes",
    "dynamo.torch.numpy_functions",
    "dynamo.torch.numpy_ufunc_methods",
    "dynamo.values.objects.copying",
    "dynamo.values.effects.printing",
    "dynamo.values.scalars.texts",
    "dynamo.values.builtins.library",
    "dynamo.values.functions.captured_frames",
    "dynamo.values.objects.weak_references",
    "dynamo.values.effects.warning",
    "dynamo.values.effects.logging_calls",
    "dynamo.values.effects.system_queries",
    "dynamo.values.effects.locks",
    "dynamo.values.effects.context_variables",
    "dynamo.values.effects.break_regions",
    "dynamo.values.iterators.resumed_iterators",
    "dynamo.values.classes.enums",
    "dynamo.values.classes.instance_checks",
    "dynamo.values.effects.hoisted_modules",
    "dynamo.values.effects.drawn_numbers",
    "dynamo.values.effects.numpy_generators",
    "dynamo.torch.lazy_modules",
    "dynamo.torch.function_modes",
    "dynamo.torch.overrides",
    "dynamo.torch.tensor_subclass",
    "dynamo.torch.wrapper_subclass",
    "dynamo.values.objects.namespaces",
    "dynamo.values.classes.class_building",
    "dynamo.values.objects.opaque_objects",
    "dynamo.values.objects.immutable_objects",
    "dynamo.torch.autograd_function",
    "dynamo.values.tensors.captured_scalars",
    "dynamo.values.tensors.python_numbers",
    "dynamo.values.tensors.number_calls",
    "dynamo.interp.chosen_operations",
    "dynamo.values.tensors.number_views",
    "dynamo.values.tensors.choice",
    "dynamo.torch.higher_order",
    "dynamo.torch.checkpoint",
    "dynamo.torch.functional_call",
    "dynamo.torch.autograd_calls",
    "dynamo.torch.dual_levels",
    "dynamo.torch.backward",
    "dynamo.torch.handle_numbers",
    "dynamo.torch.tensor_hooks",
    "dynamo.values.objects.objects",
]
_loaded = False


def builder(*types: type) -> Callable[[Builder], Builder]:
    """Register a builder for exact types."""

    def register(function: Builder) -> Builder:
        for kind in types:
            BUILDERS[kind] = function
        return function

    return register


def subclass_builder(*bases: type) -> Callable[[Builder], Builder]:
    """Register a builder for instances of subclasses too."""

    def register(function: Builder) -> Builder:
        SUBCLASS_BUILDERS.extend((base, function) for base in bases)
        return function

    return register


def special_builder(predicate: Callable[[Any], bool]) -> Callable[[Builder], Builder]:
    """Register a builder for objects that satisfy a predicate, whatever their type."""

    def register(function: Builder) -> Builder:
        SPECIAL_BUILDERS.append((predicate, function))
        return function

    return register


def fallback_builder(function: Builder) -> Builder:
    """Register the builder for all other objects (user objects)."""
    _FALLBACK.append(function)
    return function


class Lazy:
    """A value from outside without a guard, until the program uses it."""

    __slots__ = ("obj", "source")

    def __init__(self, obj: Any, source: Source | None) -> None:
        self.obj = obj
        self.source = source

    def realize(self, tx: Interpreter) -> Value:
        return build(tx, self.obj, self.source)


def realized(tx: Interpreter, value: Any) -> Any:
    """The value that a local variable or an argument holds."""
    return value.realize(tx) if isinstance(value, Lazy) else value


def build(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """The Value for `obj`. With a source, guards are added; without, `obj` is a constant of the
    program or of ours.
    """
    if issubclass(type(obj), Value):  # isinstance asks the object, too
        if source is not None:  # among all objects that there are, gc.get_objects()
            raise Unsupported(breaks.UnknownObject(type(obj).__name__))
        raise TypeError(f"{obj!r} is already a Value")
    meta = type(type(obj))
    # A class that no table of ours can hold, or whose attributes the program computes.
    if meta is not type and (meta.__hash__ is None or reads_by_function(meta)):
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    if is_constant_type(type(obj)):
        return _build_constant(tx, obj, source)
    known = tx.output.known_value(obj, source)
    if known is not None:
        return known
    tx.output.written.refuse_held(obj)
    tx.output.guards.assume_class(type(obj))
    return _find_builder(obj)(tx, obj, source)


def _build_constant(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    if source is not None and type(obj) in (int, float):
        number = tx.output.symbols.number(obj, source)
        if number is not None:
            tx.guard(source, "type", type(obj))
            return symbol_value(tx, number, source)
        if tx.output.symbols.is_beyond(obj, source):
            tx.guard(source, "type", int)
            return late_bound.LargeIntValue(obj, source)
    tx.guard(source, "none" if obj is None else "constant", obj)
    return ConstantValue(obj, source)


def symbol_value(tx: Interpreter, number: Any, source: Source) -> Value:

    return late_bound.SymbolValue(tx.output, number, source)


def _find_builder(obj: Any) -> Builder:
    for predicate, function in SPECIAL_BUILDERS:
        if predicate(obj):
            return function
    found = BUILDERS.get(type(obj))
    if found is not None:
        return found
    # Not isinstance, which asks the object's own __class__, too.
    bases = type(obj).__mro__
    for base, function in SUBCLASS_BUILDERS:
        if base in bases:
            return function
    if _FALLBACK:
        return _FALLBACK[-1]
    return _unknown


def _unknown(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    raise Unsupported(breaks.UnknownObject(type(obj).__name__))


def load() -> None:
    """Load the modules of all values, before the first frame is captured."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    for name in _REGISTERING_MODULES:
        importlib.import_module(name)
    for builders in (SPECIAL_BUILDERS, SUBCLASS_BUILDERS):
        builders.sort(key=_rank)  # whichever module another one has imported first


def _rank(entry: tuple[Any, Builder]) -> int:
    return _REGISTERING_MODULES.index(entry[1].__module__)
