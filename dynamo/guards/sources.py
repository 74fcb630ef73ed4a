"""Where a value came from.

A Source names a value that existed before the frame ran (or that the frame installed somewhere).
From it, and from nothing else, come three things: the bytecode that loads the value again (`load`),
the step of the guard tree that fetches it (`base` + `accessor`), and the name that people read
(`name`).
"""

from __future__ import annotations

import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from dynamo.bytecode.emit import Emitter

# One step of the guard tree: (kind, key). The kinds are implemented in csrc/guards.cpp.
Accessor = tuple[str, Any]

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def source_type(cls: type[T]) -> type[T]:
    """A frozen dataclass that computes its hash once: sources are nested, and keys of dicts."""
    cls = dataclass(frozen=True)(cls)
    compute = cls.__hash__

    def __hash__(self: Any) -> int:
        cached = self._hash
        if cached is None:
            cached = self.__dict__["_hash"] = compute(self)
        return cached

    cls.__hash__ = __hash__  # type: ignore[method-assign,assignment]
    return cls


class _once(Generic[T]):
    """A property that is computed at the first read, and an attribute of the instance then."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.name = compute.__name__

    def __get__(self, source: Any, owner: type | None = None) -> T:
        value = source.__dict__[self.name] = self.compute(source)
        return value


@source_type
class Source:
    """Base class; equal sources name the same place. Values derived from the fields are computed
    once: guards ask for it again and again.
    """

    _hash: ClassVar[int | None] = None

    @property
    def base(self) -> Source | None:
        """The source this one is reached from; None for a root."""
        return None

    @property
    def loaded_from(self) -> Source | None:
        """The source that `load` pushes first."""
        return self.base

    @property
    def accessor(self) -> Accessor:
        raise NotImplementedError(type(self))

    @_once
    def name(self) -> str:
        """A Python expression over L (locals), G (globals) and C (closure)."""
        raise NotImplementedError(type(self))

    @_once
    def made_by_frame(self) -> bool:
        """Reached from an object that did not exist before the frame ran."""
        return self.base is not None and self.base.made_by_frame

    @_once
    def weak(self) -> bool:
        """Reached through a weak reference: the garbage collector may take the way away between the
        guards and a load.
        """
        return self.base is not None and self.base.weak

    def load(self, emit: Emitter) -> None:
        """Emit code that pushes the value."""
        raise NotImplementedError(type(self))

    @_once
    def root(self) -> Source:
        """The source that all steps start from."""
        return self if self.base is None else self.base.root

    def __str__(self) -> str:
        """The name in terms of the user's own variables."""
        root = self.root
        if isinstance(root, LocalSource):
            for ours, theirs in root.renamed:
                if self.name.startswith(ours):
                    return theirs + self.name.removeprefix(ours)
        return self.name


def load_shared(source: Source, emit: Emitter) -> None:
    """Push `source`; one that several loads go through (see `share_loads`) is fetched once."""
    local = emit.shared_loads.get(source)
    if local is None:
        source.load(emit)
        return
    if local in emit.stored_loads:
        emit.load_fast(local)
        return
    source.load(emit)
    emit.copy(1)
    emit.store_fast(local)
    emit.stored_loads.append(local)


def share_loads(sources: Iterable[Source], emit: Emitter) -> None:
    """From here on, keep objects through which several of these sources lead in locals.

    Their names are in emit.stored_loads once they are stored; `sources` are loaded by load_shared.
    """
    passed: Counter[Source] = Counter()
    for source in sources:
        step = source.loaded_from
        while step is not None:
            passed[step] += 1
            if passed[step] > 1:
                break  # the steps before this one are loaded for this one alone
            step = step.loaded_from
    many = [step for step, n in passed.items() if n > 1 and step.loaded_from is not None]
    emit.shared_loads = {step: f"__base_{i}" for i, step in enumerate(many)}


@source_type
class LocalSource(Source):
    """An argument of the frame (slot `index` of its fast locals at entry)."""

    local: str
    index: int
    is_cell: bool = False  # the argument is also a cell variable: load goes through the cell
    # In frames of our own: (how a name begins, how it begins for the user).
    renamed: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def accessor(self) -> Accessor:
        return ("local", self.index)

    @_once
    def name(self) -> str:
        return f"L[{self.local!r}]"

    def load(self, emit: Emitter) -> None:
        if self.is_cell:
            emit.load_deref(self.local)
        else:
            emit.load_fast(self.local)


@source_type
class ClosureSource(Source):
    """The content of a free variable's cell (cell `index` of the function's closure)."""

    variable: str
    index: int

    @property
    def accessor(self) -> Accessor:
        return ("closure", self.index)

    @_once
    def name(self) -> str:
        return f"C[{self.variable!r}]"

    def load(self, emit: Emitter) -> None:
        emit.load_deref(self.variable)


@source_type
class ClosureCellSource(Source):
    """The cell object itself of the frame's own free variable."""

    variable: str
    index: int

    @property
    def accessor(self) -> Accessor:
        return ("closure_cell", self.index)

    @_once
    def name(self) -> str:
        return f"cell({self.variable!r})"

    def load(self, emit: Emitter) -> None:
        emit.load_closure(self.variable)


@source_type
class GlobalSource(Source):
    """A global of the frame; falls back to builtins as LOAD_GLOBAL does."""

    variable: str

    @property
    def accessor(self) -> Accessor:
        return ("global", self.variable)

    @_once
    def name(self) -> str:
        return f"G[{self.variable!r}]"

    def load(self, emit: Emitter) -> None:
        emit.load_global(self.variable)


@source_type
class GlobalsSource(Source):
    """The dict of the frame's own globals."""

    @property
    def accessor(self) -> Accessor:
        return ("globals", None)

    @_once
    def name(self) -> str:
        return "G"

    def load(self, emit: Emitter) -> None:
        emit.load_callable(lambda: emit.load_const(globals))
        emit.call(0)


# The one name that compilation adds to a frame's globals: a dict of all that new code loads.
# Programs walk over their globals, too, and call functions meanwhile.
INSTALLED = "__framegraph__"


@source_type
class InstalledSource(Source):
    """An object that compilation put where the frame's globals hold such, under a unique name; not
    guarded.
    """

    variable: str

    @property
    def base(self) -> Source:
        return GlobalSource(INSTALLED)

    @property
    def accessor(self) -> Accessor:
        return ("dict_item", self.variable)

    @_once
    def name(self) -> str:
        return f"G[{INSTALLED!r}][{self.variable!r}]"

    def load(self, emit: Emitter) -> None:
        self.base.load(emit)
        emit.load_const(self.variable)
        emit.binary_subscr()


@source_type
class MadeSource(Source):
    """An object that the rewritten frame makes before it calls the graph; nothing to guard."""

    index: int

    @_once
    def made_by_frame(self) -> bool:
        return True

    @property
    def local(self) -> str:
        """The local of the rewritten frame that holds the object."""
        return f"__made_{self.index}"

    @_once
    def name(self) -> str:
        return f"made[{self.index}]"

    def load(self, emit: Emitter) -> None:
        emit.load_fast(self.local)


@source_type
class ChainedSource(Source):
    """Reached from `origin` by a step of kind `kind` in the guard tree."""

    origin: Source
    kind: ClassVar[str]

    @property
    def base(self) -> Source:
        return self.origin

    @property
    def accessor(self) -> Accessor:
        return (self.kind, None)


@source_type
class _KeyedSource(ChainedSource):
    """The step has a key."""

    key: Any

    @property
    def accessor(self) -> Accessor:
        return (self.kind, self.key)


@source_type
class _ReadSource(ChainedSource):
    """Loaded as the attribute `read`."""

    read: ClassVar[str]

    @_once
    def name(self) -> str:
        return f"{self.origin.name}.{self.read}"

    def load(self, emit: Emitter) -> None:
        load_shared(self.origin, emit)
        emit.load_attr(self.read)


@source_type
class _SubscriptSource(_KeyedSource):
    """Loaded as the item of a constant key. past: the built-in type whose __getitem__ loads, where
    a subclass has one of its own.
    """

    past: type | None = field(default=None, compare=False)

    @_once
    def name(self) -> str:
        return f"{self.origin.name}[{self.key!r}]"

    def load(self, emit: Emitter) -> None:
        past: Any = self.past
        if past is not None:
            emit.load_callable(lambda: emit.load_const(past.__getitem__))
        load_shared(self.origin, emit)
        emit.load_const(self.key)
        if past is not None:
            emit.call(2)
        else:
            emit.binary_subscr()


@source_type
class _MethodSource(_KeyedSource):
    """Loaded by a call of the method `method` with a dimension."""

    method: ClassVar[str]

    @property
    def dim(self) -> int:
        return self.key

    @_once
    def name(self) -> str:
        return f"{self.origin.name}.{self.method}({self.key})"

    def load(self, emit: Emitter) -> None:
        load_shared(self.origin, emit)
        emit.load_method(self.method)
        emit.load_const(self.key)
        emit.call(1)


@source_type
class ModuleSource(Source):
    """A Python module, reached through sys.modules; the root for globals of inlined functions."""

    module: str

    @property
    def accessor(self) -> Accessor:
        return ("module", self.module)

    @_once
    def name(self) -> str:
        return f"sys.modules[{self.module!r}]"

    def load(self, emit: Emitter) -> None:
        emit.load_const(0)
        emit.load_const(None)
        emit.import_name("sys")
        emit.load_attr("modules")
        emit.load_const(self.module)
        emit.binary_subscr()


@source_type
class AttrSource(ChainedSource):
    """base.attr, by the full attribute protocol."""

    attr: str

    @_once
    def weak(self) -> bool:
        return self.attr == "__callback__" or self.origin.weak

    @property
    def accessor(self) -> Accessor:
        return ("getattr", self.attr)

    @_once
    def name(self) -> str:
        return f"{self.origin.name}.{self.attr}"

    def load(self, emit: Emitter) -> None:
        load_shared(self.origin, emit)
        emit.load_attr(self.attr)


@source_type
class InstanceDictSource(_ReadSource):
    """base.__dict__, read without descriptors."""

    kind, read = "instance_dict", "__dict__"


@source_type
class CellContentsSource(_ReadSource):
    """cell.cell_contents, for the closure of a function value."""

    kind = read = "cell_contents"


@source_type
class DictItemSource(_SubscriptSource):
    """dict[key] for a constant key, read from the dict itself (no __getitem__, no __missing__)."""

    kind = "dict_item"


@source_type
class ModuleItemSource(DictItemSource):
    """A parameter, buffer or child of an nn.Module: an item of its _parameters, _buffers or
    _modules.
    """

    @_once
    def module(self) -> Source:
        """The module's source: `origin` is module.__dict__['_modules'] or one of the others."""
        instance_dict = self.origin.base
        assert instance_dict is not None and instance_dict.base is not None
        return instance_dict.base

    @property
    def loaded_from(self) -> Source:
        return self.module

    @_once
    def name(self) -> str:
        module = self.module
        if str(self.key).isdigit():
            return f"{module.name}[{self.key}]"
        return f"{module.name}.{self.key}"

    def load(self, emit: Emitter) -> None:
        assert isinstance(self.origin, DictItemSource)
        load_shared(self.module, emit)
        emit.load_attr(self.origin.key)
        emit.load_const(self.key)
        emit.binary_subscr()


@source_type
class SequenceItemSource(_SubscriptSource):
    """list[i] / tuple[i] (and their subclasses), read from the storage itself."""

    kind = "sequence_item"


@source_type
class ItemSource(_SubscriptSource):
    """base[key] by the full item protocol (deque, Sequential, user containers)."""

    kind = "getitem"


@source_type
class TensorSizeSource(_MethodSource):
    """tensor.size(dim)."""

    method = "size"


@source_type
class TensorStrideSource(_MethodSource):
    """tensor.stride(dim)."""

    method = "stride"


def _keys_in_place(mapping: dict) -> list[Any]:
    """Past a subclass's own iteration, and an OrderedDict's order."""
    return list(dict.keys(mapping))


@source_type
class DictKeySource(_KeyedSource):
    """The index-th key of a dict, in order (for keys that are not constants)."""

    kind = "dict_key"

    @_once
    def name(self) -> str:
        return f"list({self.origin.name})[{self.key}]"

    def load(self, emit: Emitter) -> None:
        emit.load_callable(lambda: emit.load_const(_keys_in_place))
        load_shared(self.origin, emit)
        emit.call(1)
        emit.load_const(self.key)
        emit.binary_subscr()


@source_type
class DictValueSource(_KeyedSource):
    """The index-th item of a dict: that of the key which DictKeySource(index) reaches."""

    kind = "dict_value"

    @_once
    def name(self) -> str:
        return f"list({self.origin.name}.values())[{self.key}]"

    def load(self, emit: Emitter) -> None:
        emit.load_callable(lambda: emit.load_const(list))  # functions in C, which are not captured
        emit.load_callable(lambda: emit.load_const(dict.values))
        load_shared(self.origin, emit)
        emit.call(1)
        emit.call(1)
        emit.load_const(self.key)
        emit.binary_subscr()


@source_type
class TypeSource(ChainedSource):
    """type(base)."""

    kind = "type"

    @_once
    def name(self) -> str:
        return f"type({self.origin.name})"

    def load(self, emit: Emitter) -> None:
        emit.load_callable(lambda: emit.load_const(type))
        load_shared(self.origin, emit)
        emit.call(1)


@source_type
class CallSource(ChainedSource):
    """fn(base) for a pure Python callable (slow path of the guard tree)."""

    fn: Any
    label: str

    @property
    def accessor(self) -> Accessor:
        return ("call", self.fn)

    @_once
    def name(self) -> str:
        return f"{self.label}({self.origin.name})"

    def load(self, emit: Emitter) -> None:
        emit.load_callable(lambda: emit.load_const(self.fn))
        load_shared(self.origin, emit)
        emit.call(1)


@source_type
class ComputedSource(Source):
    """A number that a pure function makes of numbers of other sources. Guards compute it after
    these (ShapePayload): the guard tree has no step to it.
    """

    function: Callable[..., Any]
    operands: tuple[Source, ...]
    label: str

    @_once
    def made_by_frame(self) -> bool:
        return any(operand.made_by_frame for operand in self.operands)

    @_once
    def weak(self) -> bool:
        return any(operand.weak for operand in self.operands)

    @_once
    def name(self) -> str:
        return self.label

    def load(self, emit: Emitter) -> None:
        emit.load_callable(lambda: emit.load_const(self.function))
        for operand in self.operands:
            load_shared(operand, emit)
        emit.call(len(self.operands))


def dereference(ref: weakref.ref) -> Any:
    """The object to which a reference leads now."""
    return ref()


def proxy_target(proxy: Any) -> Any:
    """The object behind a proxy, which hands every attribute on; None where that has ended."""
    try:
        return proxy.__reduce_ex__.__self__
    except ReferenceError:
        return None


@source_type
class TargetSource(ChainedSource):
    """The target of a weak reference, guarded to be there still.

    Garbage may be collected between the guards and a load, by another thread, too: the rewritten
    frame takes hold of it first (see framestate/weak_targets.py).
    """

    read: ClassVar[Any] = staticmethod(dereference)

    @_once
    def weak(self) -> bool:
        return True

    @property
    def accessor(self) -> Accessor:
        return ("call", self.read)

    @_once
    def name(self) -> str:
        return f"deref({self.origin.name})"

    def load(self, emit: Emitter) -> None:
        emit.loaded_targets[self] = None
        local = emit.targets.get(self)
        if local is not None:
            emit.load_fast(local)
            return
        emit.load_callable(lambda: emit.load_const(self.read))
        load_shared(self.origin, emit)
        emit.call(1)


@source_type
class ProxyTargetSource(TargetSource):
    """The target of a weak proxy."""

    read = staticmethod(proxy_target)


_VARIABLE = re.compile(r"\b[LGC]\['([^']+)'\]")
_ATTRIBUTE = re.compile(r"\.__dict__\['([^\W\d]\w*)'\]")


def readable_name(source: Source) -> str:
    """The name as the user would write it: x.size(0) for L['x'].size(0)."""
    return _ATTRIBUTE.sub(r".\1", _VARIABLE.sub(r"\1", str(source)))
