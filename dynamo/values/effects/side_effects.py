"""Side effects of the captured code: recorded while capturing, replayed by the rewritten frame.

A Value that can be mutated has `value.mutation`, a Mutation. Containers keep their contents
themselves (a ListValue its Python list of Values, already with the change made) and only report
`mark(value)`; attribute stores are kept here. Replaying writes final states, not histories:
descriptors and `__setattr__` of user classes are inlined by capture down to plain stores, so the
order between two plain stores cannot be observed. Within one object the order of first stores is
kept (instance dicts are ordered).

How a Value takes part:
  - built from an outside object: `tx.output.side_effects.track_existing(value)` in its builder;
  - made by the captured code: `tx.output.side_effects.track_new(value)` where it is made;
  - before a change: `tx.output.side_effects.mark(value)`; attribute stores: `store_attr(value,
  name, new)`,
    reads look at `load_attr(value, name)` first;
  - `value.fill()` gives the writes of its changes, as recipes (values/recipes.py).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.values.base import Value
from dynamo.values.recipes import (
    DELETE_ITEM,
    STORE_ITEM,
    Constant,
    Loaded,
    Made,
    Store,
    attribute_stores,
    exact,
    stores,
)

if TYPE_CHECKING:
    from dynamo.values.recipes import Recipe


class _Deleted:
    """Marks an attribute, cell or global that the captured code deleted."""

    def __repr__(self) -> str:
        return "<deleted>"


DELETED = _Deleted()
SERIALS = itertools.count()


@dataclass(eq=False)
class Mutation:
    """The record of changes to one object. `new`: the captured code made the object. `serial`: one
    that was tracked later has a larger one.
    """

    new: bool
    serial: int = 0
    dirty: bool = False
    attrs: dict[str, Any] = field(default_factory=dict)  # name -> Value | DELETED
    # Names of `attrs` that were deleted, and stored again: they have moved to the end.
    moved: set[str] = field(default_factory=set)

    def stores(self) -> Iterator[tuple[str, Any]]:
        """The stores that give the attributes their current values, in order: name, Value |
        DELETED.
        """
        for name, value in self.attrs.items():
            if name in self.moved and value is not DELETED:
                yield name, DELETED
            yield name, value

    def attribute_stores(self, owner: Value) -> list[Recipe]:
        """The writes that give the attributes of `owner` their current values."""
        return [
            write
            for name, value in self.attrs.items()
            for write in attribute_stores(owner, name, None if value is DELETED else value)
        ]


@dataclass(frozen=True)
class ReplayedCall:
    """A call for its effect alone (a warning), made by the rewritten frame.

    before_writes: the call is made in the state in which the frame began (the stream that is
    printed to, the filters of warnings); else in the state that the frame leaves. None: of calls
    that show nothing, which are made in the latter state.
    """

    function: Callable[..., Any]
    operands: Sequence[Any]
    before_writes: bool | None = None

    @property
    def write(self) -> Recipe:
        return self.function, self.operands

    def values(self) -> list[Value]:
        return [operand for operand in self.operands if isinstance(operand, Value)]


def _operand(arg: Any) -> Any:
    if isinstance(arg, Value):
        return arg
    return Made(Loaded(arg)) if isinstance(arg, Source) else Constant(arg)


class SideEffects:
    """All tracked values of one frame, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.calls: list[ReplayedCall] = []
        self.context_variables: list[Any] = []  # ContextVarValues that were changed
        self.locks: list[Any] = []  # LockValues that were taken or let go, in order
        self.shown = False  # `calls` show the user text: no operation that can fail may come first
        self.epoch = 0  # grows with every recorded change
        self.on_first_change: Callable[[Value], None] | None = None  # of the earlier contents
        # Of an attribute of a Value, or of a global of a dict, that was there before.
        self.on_overwrite: Callable[[Value | dict, str], None] | None = None
        self._fence: int | None = None  # objects with a smaller serial must not change
        self._crossed: Callable[[str], breaks.Break] = breaks.BodySideEffect
        # Where objects behind the fence may change: the values changed, and those handed to calls.
        self._changed: list[Value] | None = None
        # Whether a coming change behind the fence will be taken back.
        self._taken_back: Callable[[Value], bool] | None = None
        self._untouched = False  # nothing changes that is not told which Value
        self.crossings = 0  # how often something was to change behind the fence
        self.tracked: list[Value] = []
        # By id: a metaclass may make its classes unhashable.
        self.class_stores: dict[tuple[int, str], Value] = {}  # attributes stored in classes
        # The id of an instance dict -> the object by which the captured code changed it.
        self.changed_dicts: dict[int, Value] = {}
        self.made_classes: dict[int, Value] = {}  # classes that the frame makes
        # (id of the globals dict, name) -> (globals dict, its source or None for the frame's own,
        # Value | DELETED)
        self.globals: dict[tuple[int, str], tuple[dict, Source | None, Any]] = {}
        self.moved_globals: set[tuple[int, str]] = set()  # as Mutation.moved

    @contextlib.contextmanager
    def fenced(
        self, reason: Callable[[str], breaks.Break] = breaks.BodySideEffect
    ) -> Iterator[None]:
        """In the block, changes of existing objects raise Unsupported: reason(the change)."""
        before = self._fence, self._crossed, self._changed, self._taken_back
        self._fence, self._crossed, self._changed = next(SERIALS), reason, None
        self._taken_back = None
        try:
            yield
        finally:
            self._fence, self._crossed, self._changed, self._taken_back = before

    @contextlib.contextmanager
    def journaled(self, admits: Callable[[Value], bool]) -> Iterator[None]:
        """In the block, inside of a fence, existing objects change where `admits`, which is told in
        front of each change, can take the change back.
        """
        before, self._taken_back = self._taken_back, admits
        try:
            yield
        finally:
            self._taken_back = before

    @contextlib.contextmanager
    def watched(self, escapes: Callable[[Value], bool]) -> Iterator[None]:
        """In the block, existing objects change where no fence around it forbids that; Unsupported
        is raised if they reach a value that `escapes` by that.
        """
        before = self._fence, self._changed
        if before[0] is not None and before[1] is None:
            with self.fenced(self._crossed):
                yield
            return
        self._fence, self._changed = next(SERIALS), []
        try:
            yield
            changed = self._changed
        finally:
            self._fence, self._changed = before
        if any(map(escapes, self._reached(changed))):
            self._refuse("keeps a tensor of the body")
        if before[1] is not None:
            before[1].extend(value for value in changed if self._is_behind(value))

    @contextlib.contextmanager
    def untouched(self) -> Iterator[None]:
        """In the block, also changes without a Value of their own raise Unsupported."""
        before, self._untouched = self._untouched, True
        try:
            yield
        finally:
            self._untouched = before

    @property
    def watches(self) -> bool:
        """Whether existing objects change inside of a fence."""
        return self._changed is not None

    def _takes_back(self, value: Value) -> bool:
        return self._taken_back is not None and self._taken_back(value)

    def _is_behind(self, value: Value) -> bool:
        """Whether the value stands for an object from before the fence."""
        mutation = value.mutation
        made = value.serial if mutation is None else mutation.serial
        return (mutation is not None and not mutation.new) or made < (self._fence or 0)

    def _cross(self, text: str, *values: Value) -> None:
        """Something behind the fence is to change: these values, or in a way that they tell."""
        if self._changed is None:
            self._refuse(text)
        self._changed.extend(values)

    def _refuse(self, text: str) -> NoReturn:
        self.crossings += 1
        raise Unsupported(self._crossed(text))

    # -- objects --------------------------------------------------------------------------------
    def track_existing(self, value: Value) -> Value:
        """`value` stands for an object that existed before the frame."""
        value.mutation = Mutation(new=False, serial=next(SERIALS))
        self.tracked.append(value)
        return value

    def track_new(self, value: Value) -> Value:
        """`value` is an object that the captured code makes."""
        value.mutation = Mutation(new=True, serial=next(SERIALS))
        self.tracked.append(value)
        return value

    def mark(self, value: Value) -> None:
        """The captured code is about to change `value`."""
        if value.mutation is None:
            raise AssertionError(f"{value!r} is not tracked")
        if self._fence is not None and self._is_behind(value) and not self._takes_back(value):
            self._cross(f"changes {value.describe()}", value)
        self.epoch += 1
        if self.on_first_change is not None and not (value.mutation.dirty or value.mutation.new):
            self.on_first_change(value)
        value.mutation.dirty = True

    def touch(self, value: Value | None = None) -> None:
        """Internal state of a value advances (an iterator's position): a break must not redo it in
        place.
        """
        if self._fence is not None and value is not None and value.serial < self._fence:
            self._cross(f"changes {value.describe()}", value)
        if self._untouched and value is None:
            self._refuse("changes more than tensors")
        self.epoch += 1

    def tensor_written(self) -> None:
        """A tensor may have changed, which its fake tensor and the graph know."""
        self.epoch += 1

    def is_new(self, value: Value) -> bool:
        return value.mutation is not None and value.mutation.new

    def is_dirty(self, value: Value) -> bool:
        return value.mutation is not None and value.mutation.dirty

    def changes_objects(self) -> bool:
        """Whether an object from outside, or a global, waits for its change to be replayed."""
        changed = (value.mutation.dirty and not value.mutation.new for value in self.tracked)
        return bool(self.globals) or any(changed)

    def changes_anything(self) -> bool:
        """Whether the rewritten frame replays any effect."""
        waiting = self.calls or self.context_variables or self.locks
        return bool(waiting) or self.changes_objects()

    def call_later(
        self, function: Callable[..., Any], *args: Any, before_writes: bool | None = None
    ) -> None:
        """Have the rewritten frame call function(*args), in the order of these calls. A Source
        among `args` is loaded, what is no Value either is a constant.
        """
        if self._fence is not None:
            values = [arg for arg in args if isinstance(arg, Value)]
            self._cross(f"calls {function.__name__}", *values)
        self.epoch += 1
        if before_writes and any(call.before_writes is False for call in self.calls):
            before_writes = False  # output keeps its order
        self.calls.append(ReplayedCall(function, [*map(_operand, args)], before_writes))

    # -- attributes -----------------------------------------------------------------------------
    def store_attr(self, value: Value, name: str, new: Value) -> None:
        """object.__setattr__(value, name, new)."""
        self._changing_attr(value, name)
        mutation = value.mutation
        if mutation.attrs.get(name) is DELETED:
            del mutation.attrs[name]  # a later store goes to the end of the instance dict
            mutation.moved.add(name)
        mutation.attrs[name] = new

    def delete_attr(self, value: Value, name: str) -> None:
        """object.__delattr__(value, name); the caller has checked that the attribute exists."""
        self._changing_attr(value, name)
        value.mutation.attrs[name] = DELETED

    def _changing_attr(self, value: Value, name: str) -> None:
        self.mark(value)
        known = value.mutation.new or name in value.mutation.attrs
        if self.on_overwrite is not None and not known:
            self.on_overwrite(value, name)

    def load_attr(self, value: Value, name: str) -> Value | _Deleted | None:
        """The Value stored by the captured code, DELETED, or None: nothing recorded, look at the
        object itself.
        """
        return None if value.mutation is None else value.mutation.attrs.get(name)

    def stored_attrs(self, value: Value) -> dict[str, Any]:
        """All recorded attribute stores, in order: name -> Value | DELETED."""
        return {} if value.mutation is None else value.mutation.attrs

    # -- globals --------------------------------------------------------------------------------
    def store_global(
        self, namespace: dict, source: Source | None, name: str, new: Value | _Deleted
    ) -> None:
        """`source` leads to the globals dict, and is None for that of the compiled frame itself."""
        if self._fence is not None:
            self._cross(f"changes the global {name}", *([new] if isinstance(new, Value) else []))
        self.epoch += 1
        key = (id(namespace), name)
        known = self.globals.get(key)
        if known is None and self.on_overwrite is not None:
            self.on_overwrite(namespace, name)
        if known is not None and known[2] is DELETED:
            del self.globals[key]
            self.moved_globals.add(key)
        self.globals[key] = (namespace, source, new)

    def load_global(self, namespace: dict, name: str) -> Value | _Deleted | None:
        entry = self.globals.get((id(namespace), name))
        return None if entry is None else entry[2]

    # -- effects that are replayed --------------------------------------------------------------
    def pending(self, roots: Iterable[Value]) -> list[Value]:
        """Values to fill, in order: outside objects that changed, and new objects that changed and
        outlive the frame's capture because a root, an outside object or a global reaches them.
        """
        changed = [v for v in self.tracked if v.mutation.dirty and not v.mutation.new]
        stored = [new for _, _, new in self.globals.values() if new is not DELETED]
        alive = self.reachable([*roots, *changed, *stored])
        found = [v for v in self.tracked if v.mutation.dirty and self._is_filled(v, alive)]
        # A container that hashes by methods of user classes is filled when those objects are.
        return sorted(found, key=lambda value: value.hashes_objects())

    def _is_filled(self, value: Value, alive: set[int]) -> bool:
        """A new container is made with its final items; only attributes and cells of new objects
        are written later.
        """
        if not value.mutation.new:
            return True
        return id(value) in alive and (bool(value.mutation.attrs) or value.is_made_bare)

    def global_stores(self) -> list[Recipe]:
        """The writes of globals, in order."""
        writes: list[Recipe] = []
        for key, (_, source, value) in self.globals.items():
            name, place = key[1], []
            store, delete = Store("store_global", name), Store("delete_global", name)
            if source is not None:
                store, delete, place = STORE_ITEM, DELETE_ITEM, [Made(Loaded(source)), exact(name)]
            deleted = value is DELETED
            if key in self.moved_globals and not deleted:
                writes += stores(store, delete, None, place)
            writes += stores(store, delete, None if deleted else value, place)
        return writes

    def reachable(self, roots: Iterable[Value]) -> set[int]:
        """ids of all Values that can be reached from `roots`."""
        return {id(value) for value in self._reached(roots)}

    def _reached(self, roots: Iterable[Value]) -> Collection[Value]:
        seen: dict[int, Value] = {}
        todo = list(roots)
        while todo:
            value = todo.pop()
            if id(value) in seen:
                continue
            seen[id(value)] = value
            todo.extend(value.children())
            if value.holder is not None:
                todo.append(value.holder)
            todo.extend(self._attr_values(value))
            todo.extend(self._made_class(value))
        return seen.values()

    def _attr_values(self, value: Value) -> Iterator[Value]:
        if value.mutation is not None:
            yield from (v for v in value.mutation.attrs.values() if v is not DELETED)

    def _made_class(self, value: Value) -> Iterator[Value]:
        """The classes, made by the frame, of an instance made by the frame: its methods reach their
        values through the class only.
        """
        if not self.made_classes or value.mutation is None or not value.mutation.new:
            return
        try:
            bases = value.python_type().__mro__
        except Unsupported:  # nobody knows its type: it is not of a class that the frame makes
            return
        made = (self.made_classes.get(id(base)) for base in bases)
        yield from (value for value in made if value is not None)

    def distinct_sources(self) -> list[tuple[Source, ...]]:
        """Groups of outside objects of one type of which one changed: they must stay different
        objects.
        """
        groups: dict[type, list[Value]] = {}
        for value in self.tracked:
            if not value.mutation.new and value.source is not None:
                groups.setdefault(value.python_type(), []).append(value)
        changed = [g for g in groups.values() if len(g) > 1 and any(v.mutation.dirty for v in g)]
        return [tuple(v.source for v in group if v.source is not None) for group in changed]
