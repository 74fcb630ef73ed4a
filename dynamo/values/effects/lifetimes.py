"""Lifetimes: objects with an observable finalizer that the captured code drops.

Python ends an object when its last reference goes away: it closes a generator that is suspended in
`try` or `with`, warns of a coroutine that never ran, calls `__del__`, and clears weak references.
Values are not counted; instead, as long as there are such objects (OutputGraph.finalizable), each
instruction is followed by a look whether they can still be reached.
"""

from __future__ import annotations

import enum
import gc
import inspect
import itertools
import operator
import types
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.bytecode import Instruction, normalize
from dynamo.errors import Unsupported
from dynamo.guards.classes import HEAP_TYPE
from dynamo.guards.sources import LocalSource, Source
from dynamo.values.base import Value
from dynamo.values.builder import Lazy
from dynamo.values.effects.side_effects import DELETED
from dynamo.values.objects.exceptions import RaisedException
from dynamo.values.scalars.constant import CONSTANT_TYPES

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph

Held = Value | Lazy
Path = list[Held]  # from a root to the object, each held by the one before

# Many things refer to these weakly, and nothing depends on when they go.
_UNOBSERVED = (
    *(type, torch.nn.Module, types.FunctionType, types.BuiltinFunctionType, types.CodeType),
    *(types.ModuleType, types.MethodType, enum.Enum),
)
# By id: a metaclass may compare its classes in its own way, or make them unhashable.
_CONTAINERS = frozenset(map(id, (list, tuple, set, frozenset, dict)))
# C types besides, whose parts are all that the collector finds in them.
_HOLDERS = frozenset(
    map(
        id,
        (
            *(enumerate, zip, map, filter, reversed, deque, types.GeneratorType),
            *map(type, (iter([]), iter(()), reversed([]), iter({}.values()), iter({}.items()))),
            *(kind for kind in vars(itertools).values() if isinstance(kind, type)),
        ),
    )
)
_CONSTANTS = frozenset(map(id, CONSTANT_TYPES))
_LOOKED_AT = 64  # items of a container
# An upper bound of capture's own references to an object that was read: Values, and the tables that
# find them. A larger one takes more objects for the frame's alone, which only breaks more graphs.
BY_CAPTURE = 6


class Finalizable:
    """An object whose end the program can observe."""

    def __init__(self) -> None:
        self.path: Path | None = None  # how it was held when it was last looked for
        self.frame: Interpreter | None = None  # that held the first of the path

    def is_at(self, value: Held) -> bool:
        raise NotImplementedError

    def end(self, tx: Interpreter) -> None:
        """Finalize the object, which nothing holds any more."""
        raise NotImplementedError


class SuspendedGenerator(Finalizable):
    """A generator of the captured code, whose closing runs code, or a coroutine."""

    def __init__(self, generator: Any) -> None:
        super().__init__()
        self.generator = generator

    def is_at(self, value: Held) -> bool:
        return value is self.generator

    def end(self, tx: Interpreter) -> None:
        try:
            self.generator.drop(tx)
        except RaisedException:
            what = f"{self.generator.describe()}.close"
            raise Unsupported(breaks.UncapturedCall(what)) from None
        tx.output.finalizable.pop(id(self.generator), None)


class WeaklyReferenced(Finalizable):
    """An object of the captured code with weak references (values/objects/weak_references.py)."""

    def __init__(self, target: Value, reference: Any) -> None:
        super().__init__()
        self.target = target
        self.reference = reference

    def is_at(self, value: Held) -> bool:
        return value is self.target

    def end(self, tx: Interpreter) -> None:
        output = tx.output
        if path_to(output, _neighbours(output, self.target), self) is not None:
            return  # it holds itself: only the garbage collector ends it
        goes_on = tx.parent is not None or not tx.done
        if goes_on and path_to(output, _changed_alone(output), self) is not None:
            raise Unsupported(breaks.ObjectDies(self.target.describe()))
        self.reference.die()
        output.finalizable.pop(id(self.target))
        output.plain_references.pop(id(self.target))


class OutsideObject(Finalizable):
    """An object that may be held only by the frame, or by objects that the frame changes. Python
    finalizes it: where captured code drops it, the graph breaks.

    holders: ids of the objects through which an argument holds it.
    """

    def __init__(
        self,
        output: OutputGraph,
        key: int,
        name: str,
        source: Source | None = None,
        holders: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__()
        self.output = output
        self.key, self.name, self.source = key, name, source  # its id, that of its type
        self.way = {key, *holders}

    def is_at(self, value: Held) -> bool:
        if isinstance(value, Lazy):
            if id(value.obj) == self.key or id(value.obj) not in self.way:
                return id(value.obj) == self.key
            known = self.output.values_by_id.get(id(value.obj))  # changed, maybe
            return known is None or path_to(self.output, [known[1]], self) is not None
        known = self.output.values_by_id.get(self.key)
        if known is not None and known[1] is value:
            return True
        if self.source is not None and self.output.values_by_source.get(self.source) is value:
            return True
        return any(id(obj) in self.way for obj in value.unwrapped_objects())

    def end(self, tx: Interpreter) -> None:
        if tx.parent is not None or not tx.done:  # it ends by itself with the compiled frame
            raise Unsupported(breaks.ObjectDies(self.name))


# -- finalizable objects --------------------------------------------------------------------------
class UniqueReferences:
    """Objects that only a frame holds: by id, without a reference. (Lives as long as capture.)"""

    def __init__(self) -> None:
        self.inside: dict[int, frozenset[int]] = {}  # -> the objects through which it is held
        self.observable: dict[int, str] = {}  # -> the name of its type, of those inside of others
        self.arguments: frozenset[int] = frozenset()


def uniquely_referenced(arguments: Sequence[Any]) -> UniqueReferences:
    """The objects that only a frame holds, given its arguments: they are held by its fast locals
    and by this sequence.
    """
    counts = Counter(map(id, arguments))
    found = UniqueReferences()
    # Besides: the variable below, and the argument of getrefcount.
    found.arguments = frozenset(
        id(obj) for obj in arguments if getrefcount(obj) <= 2 * counts[id(obj)] + 2
    )
    todo: list[tuple[Any, frozenset[int]]]
    todo = [(obj, frozenset()) for obj in arguments if id(obj) in found.arguments]
    seen: Counter[int] = Counter()  # how often such objects hold it
    while todo and len(found.inside) < _LOOKED_AT:
        holder, holders = todo.pop()
        parts = _parts(holder)
        here = Counter(map(id, parts))
        seen.update(here)
        for part in parts:
            key = id(part)
            if key in found.arguments or key in found.inside:
                continue
            if getrefcount(part) <= seen[key] + 2 * counts[key] + here[key] + 2:
                found.inside[key] = holders | {id(holder)}
                if has_observable_finalizer(part):
                    found.observable[key] = type(part).__name__
                todo.append((part, found.inside[key]))
    return found


def _parts(obj: Any) -> list[Any]:
    """The parts of a container, an iterator, or an object of a class in Python: no literals."""
    kind = type(obj)
    if id(kind) in _CONTAINERS:
        # Not by iteration: tuples that objects of C types hold may have places without an item.
        parts = gc.get_referents(obj) if len(obj) <= _LOOKED_AT else []
    elif id(kind) in _HOLDERS or (
        kind.__flags__ & HEAP_TYPE and not issubclass(kind, (*_UNOBSERVED, torch.Tensor))
    ):
        parts = gc.get_referents(obj)
    else:
        return []
    return [part for part in parts if id(type(part)) not in _CONSTANTS]


def track_arguments(output: OutputGraph, arguments: Iterable[Lazy]) -> None:
    """Arguments of the compiled frame. Only a continuation may hold them alone: those of a function
    are held by its caller, too. An object that the frame changes may have been the only holder of
    another, as well.
    """
    if output.context.export:
        return
    output.side_effects.on_first_change = lambda value: _track_parts(output, value)
    output.side_effects.on_overwrite = lambda owner, name: _track_overwritten(output, owner, name)
    if not output.continues:
        return
    for value in arguments:
        obj, unique = value.obj, id(value.obj) in output.unique.arguments
        if has_finalizer(obj) or (unique and _has_weak_references(obj)):
            output.finalizable[id(obj)] = OutsideObject(
                output, id(obj), type(obj).__name__, value.source
            )
    for key, name in output.unique.observable.items():
        output.finalizable[key] = OutsideObject(
            output, key, name, holders=output.unique.inside[key]
        )


def _track_parts(output: OutputGraph, value: Value) -> None:
    """Track the parts of a value from outside, which a coming change may drop."""
    for child in value.children():
        obj = child.outside
        if obj is not None and id(child) in output.plain_references:
            output.finalizable[id(obj)] = OutsideObject(output, id(obj), type(obj).__name__)
    objects = [child.outside for child in value.children() if child.outside is not None]
    _track(output, [*value.unwrapped_objects(), *objects])


def _track_overwritten(output: OutputGraph, owner: Value | dict, name: str) -> None:
    """An attribute of a value from outside, or a global, is about to change."""
    if isinstance(owner, dict):
        _track(output, old_items(owner, [name]))
    else:
        _track(output, old_attributes(owner.outside, [name]))


def _track(output: OutputGraph, objects: list[Any]) -> None:
    for obj, holders in observable_parts(objects, BY_CAPTURE):
        if id(obj) not in output.finalizable:
            output.finalizable[id(obj)] = OutsideObject(
                output, id(obj), type(obj).__name__, holders=holders
            )


def old_items(real: dict, keys: Iterable[Any]) -> list[Any]:
    """The values under the keys of a dict; None for absent keys."""
    return [dict.get(real, key) for key in keys]


def old_attributes(real: Any, names: Iterable[str]) -> list[Any]:
    """An object's attributes; None where there is none."""
    own = _own_dict(real)
    return [own[name] if own and name in own else _in_slot(real, name) for name in names]


def _own_dict(real: Any) -> Any:
    if issubclass(type(real), type):
        return type.__dict__["__dict__"].__get__(real)
    try:
        return object.__getattribute__(real, "__dict__")
    except AttributeError:
        return None


def _in_slot(real: Any, name: str) -> Any:
    if issubclass(type(real), torch.Tensor):
        return real.grad if name == "grad" and real.is_leaf else None
    found = (vars(cls)[name] for cls in type.mro(type(real)) if name in vars(cls))
    slot = next(found, None)
    if type(slot) is not types.MemberDescriptorType:
        return None
    try:
        return slot.__get__(real)
    except AttributeError:
        return None


def observable_parts(objects: list[Any], more: int = 0) -> Iterator[tuple[Any, frozenset[int]]]:
    """The objects whose end is observable, from the list and from inside of containers and objects
    that nothing else holds, with the ids of their holders.

    The list holds each of the objects, and their containers; `more`: references of capture.
    """
    todo: list[tuple[list[Any], frozenset[int]]] = [(objects, frozenset())]
    looked_at = 0
    while todo:
        parts, holders = todo.pop()
        for index in range(len(parts)):
            if id(type(parts[index])) in _CONSTANTS:
                continue
            looked_at += 1
            if looked_at > _LOOKED_AT:
                return
            if has_observable_finalizer(parts[index]):
                yield parts[index], holders
            key = id(parts[index])
            # Held by the list, the owner of the parts, and the argument.
            unique = id(type(parts[index])) in _CONTAINERS or getrefcount(parts[index]) <= 3 + more
            if unique and key not in holders:
                inner = _parts(parts[index])
                if inner:
                    todo.append((inner, holders | {key}))


def track_weak_target(output: OutputGraph, target: Value, reference: Any) -> None:
    """An object has got a weak reference."""
    if target.source is None:
        output.finalizable[id(target)] = WeaklyReferenced(target, reference)
        return
    obj, unique = target.outside, output.unique
    if isinstance(target.source, LocalSource):
        obj = output.root_frame.arguments[target.source.local].obj
    key = id(obj)
    if obj is not None and output.continues and (key in unique.arguments or key in unique.inside):
        holders = unique.inside.get(key, frozenset())
        output.finalizable[key] = OutsideObject(
            output, key, type(obj).__name__, target.source, holders
        )


def has_finalizer(obj: Any) -> bool:
    """Whether the end of the object runs code of the program's."""
    if id(type(obj)) in _CONSTANTS or issubclass(type(obj), _UNOBSERVED):
        return False
    if type(obj) is types.GeneratorType:
        frame = obj.gi_frame
        if frame is None or inspect.getgeneratorstate(obj) != inspect.GEN_SUSPENDED:
            return False
        return any(i.offset == frame.f_lasti and cleans_up(i) for i in normalize(frame.f_code))
    return any("__del__" in vars(cls) for cls in type.mro(type(obj)))


def cleans_up(instr: Instruction) -> bool:
    """Whether closing a generator that is suspended here runs code of the user's. (Later versions
    surround each generator with a handler of their own.)
    """
    handler = instr.handler
    while handler is not None:
        op = handler.target.op
        if op not in ("CLEANUP_THROW", "CALL_INTRINSIC_1"):
            return True
        handler = handler.target.handler if op == "CLEANUP_THROW" else None
    return False


def _has_weak_references(obj: Any) -> bool:
    """Weak references of the program's to an object that can go at any time."""
    if not weakref.getweakrefcount(obj) or issubclass(type(obj), _UNOBSERVED):
        return False
    return not all(_is_ours(reference) for reference in weakref.getweakrefs(obj))


def _is_ours(reference: Any) -> bool:
    """Guards and torch's tables notice an object's end, and nobody notices them."""
    owner = getattr(getattr(reference, "__callback__", None), "__self__", None)
    return type(owner).__module__ == "dynamo._guards" or type(reference).__module__.startswith(
        "torch."
    )


def has_observable_finalizer(obj: Any) -> bool:
    """Whether the end of the object itself, not of its parts, is observable."""
    return has_finalizer(obj) or _has_weak_references(obj)


def is_observable(obj: Any, depth: int = 2) -> bool:
    """Whether the program may observe the end of `obj`, as far as the object shows."""
    kind = type(obj)
    if kind is types.FunctionType and "<locals>" in obj.__qualname__:
        references = weakref.getweakrefs(obj)
        return not all(_is_ours(reference) for reference in references)
    if id(kind) in _CONSTANTS or issubclass(kind, _UNOBSERVED):
        return False
    if id(kind) in _CONTAINERS and depth:
        items = obj.values() if kind is dict else obj
        first = itertools.islice(items, _LOOKED_AT + 1)
        return len(obj) > _LOOKED_AT or any(is_observable(item, depth - 1) for item in first)
    return not issubclass(kind, torch.Tensor) or _has_weak_references(obj)


def _is_object(value: Held) -> bool:
    """Whether the value is neither a literal nor a tensor: memory is better freed early than a
    loop's code made twice, for iterations that start with the variable and without it.
    """
    try:
        kind = type(value.obj) if isinstance(value, Lazy) else value.python_type()
    except Unsupported:
        return True
    return id(kind) not in _CONSTANTS and not issubclass(kind, torch.Tensor)


def must_stay_alive(output: OutputGraph, value: Any, shown: dict[int, Held]) -> bool:
    """Whether a variable that nothing reads any more has to keep `value` nevertheless.

    shown: by id, the values that others may hold once the instruction has run at which the graph
    breaks.
    """
    if not isinstance(value, Held):
        return False
    if isinstance(value, Value) and value.is_weakly_held:
        return True
    if id(value) in shown and _is_object(value):
        return True
    source = value.source
    if isinstance(source, LocalSource) and not source.is_cell:
        obj = output.root_frame.arguments[source.local].obj
        if issubclass(type(obj), type) or is_observable(obj):  # a class: by its bases
            return True
    if source is not None and not isinstance(value, Lazy):
        exists, obj = value.identity()
        if exists and has_observable_finalizer(obj):
            return True
    if output.has_generators:
        held = reachable(output, [value]).values()
        if any(isinstance(part, Value) and part.resumed for part in held):
            return True  # a generator that may be where it cleans up by then
    return is_finalizable(output, value)


def is_finalizable(output: OutputGraph, value: Any) -> bool:
    """Whether the value is, or holds, a finalizable object."""
    if not isinstance(value, Held):
        return False
    ends = output.finalizable.values()
    return any(path_to(output, [value], finalizable) is not None for finalizable in ends)


# -- the look --------------------------------------------------------------------------------------
def finalize_unreachable(tx: Interpreter) -> None:
    """End the finalizable objects that nothing holds any more."""
    frames = _frames(tx)
    if frames is None:
        return
    output = tx.output
    dead = []
    ended = _may_end(output)
    for finalizable in list(output.finalizable.values()):
        if finalizable.path is not None and _is_held_as_before(output, frames, finalizable, ended):
            continue
        finalizable.path = path_to(output, _roots(output, frames), finalizable)
        if finalizable.path is None:
            dead.append(finalizable)
    while dead:
        # A held object ends with its holder, or by it: closed, a generator closes its delegate.
        ending = next((w for w in dead if not _is_held(output, w, dead)), dead[0])
        ending.end(tx)
        dead = [w for w in dead if w is not ending and w in output.finalizable.values()]


def _is_held(output: OutputGraph, finalizable: Finalizable, others: list[Finalizable]) -> bool:
    generators = [w.generator for w in others if isinstance(w, SuspendedGenerator)]
    holders = [holder for holder in generators if not finalizable.is_at(holder)]
    parts = (_neighbours(output, holder) for holder in holders)
    return any(path_to(output, held, finalizable) is not None for held in parts)


def known_alive(tx: Interpreter, value: Value) -> bool:
    """Whether a value of the captured code's that has weak references is still there for sure."""
    finalizable = tx.output.finalizable.get(id(value))
    if not isinstance(finalizable, WeaklyReferenced):
        return True
    frames = [tx]
    while (parent := frames[-1].parent) is not None:
        frames.append(parent)
    return path_to(tx.output, _roots(tx.output, frames), finalizable) is not None


def left_by(frame: Interpreter) -> list[Held]:
    """The locals that the traceback of an exception keeps alive once the exception leaves `frame`:
    looked at only while there are finalizable objects.
    """
    if not frame.output.finalizable:
        return []
    held = (*frame.locals.values(), *frame.cells.values())
    return [value for value in held if isinstance(value, Held)]


def _frames(tx: Interpreter) -> list[Interpreter] | None:
    """The frames from here to the root; None where one of them calls from inside of a handler,
    which holds values that no frame shows.
    """
    frames = [tx]
    while frames[-1].parent is not None:
        if frames[-1].held_by_caller is None and frames[-1].resumption is None:
            return None
        frames.append(frames[-1].parent)
    return frames


def _held(frame: Interpreter) -> Iterable[Any]:
    waiting: Sequence[Any] = frame.held_by_caller or ()
    if frame.resumption is not None:
        waiting = (frame.resumption.resumed, frame.resumption.generator, *frame.resumption.operands)
    if frame.done:
        return (frame.result, *waiting)
    return (*frame.stack, *frame.locals.values(), *frame.cells.values(), frame.exc_info, *waiting)


def _roots(output: OutputGraph, frames: list[Interpreter]) -> Iterator[Held]:
    effects = output.side_effects
    roots: list[Any] = [value for frame in frames for value in _held(frame)]
    ended = _may_end(output)
    roots += [value for value in effects.tracked if _stays_changed(output, value, ended)]
    roots += [new for _, _, new in effects.globals.values() if new is not DELETED]
    roots += [value for call in effects.calls for value in call.values()]
    return (value for value in roots if isinstance(value, Held))


def _may_end(output: OutputGraph) -> set[int]:
    """The finalizable objects, and the objects that may hold them: a change by the frame does not
    prove another holder.
    """
    finalizable = (w for w in output.finalizable.values() if isinstance(w, OutsideObject))
    return {key for w in finalizable for key in w.way}


def _stays_changed(output: OutputGraph, value: Value, ended: set[int]) -> bool:
    """Whether the frame has changed an object that somebody else has for sure."""
    if value.mutation is None or not value.mutation.dirty:
        return False
    return id(value.outside) not in ended and not _is_uniquely_referenced(output, value)


def _is_uniquely_referenced(output: OutputGraph, value: Value) -> bool:
    """Whether only the frame holds a changed object."""
    obj = value.outside
    if value.mutation.new or obj is None:
        return value.mutation.new
    return id(obj) in output.unique.arguments or id(obj) in output.unique.inside


def _changed_alone(output: OutputGraph) -> list[Held]:
    """Changed objects from outside that others of the frame's may hold, which are not read."""
    tracked = output.side_effects.tracked
    changed = (value for value in tracked if output.side_effects.is_dirty(value))
    return [v for v in changed if not v.mutation.new and _is_uniquely_referenced(output, v)]


def _neighbours(output: OutputGraph, value: Held) -> list[Held]:
    if isinstance(value, Lazy):
        known = output.values_by_id.get(id(value.obj))
        return [] if known is None else [known[1]]
    attrs = () if value.mutation is None else value.mutation.attrs.values()
    return [v for v in (*value.held(), *attrs, value.holder) if isinstance(v, Held)]


def path_to(output: OutputGraph, roots: Iterable[Held], target: Finalizable) -> Path | None:
    """The way by which one of `roots` holds `target`; None: none does."""
    found: dict[int, tuple[Held, Held | None]] = {}
    todo: list[tuple[Held, Held | None]] = [(root, None) for root in roots]
    while todo:
        value, holder = todo.pop()
        if id(value) in found:
            continue
        found[id(value)] = (value, holder)
        if target.is_at(value):
            path = [value]
            while holder is not None:
                path.append(holder)
                holder = found[id(holder)][1]
            return path[::-1]
        todo.extend((neighbour, value) for neighbour in _neighbours(output, value))
    return None


def reachable(output: OutputGraph, roots: Iterable[Any]) -> dict[int, Held]:
    """The values that `roots` hold, by id."""
    found: dict[int, Held] = {}
    todo = [root for root in roots if isinstance(root, Held)]
    while todo:
        value = todo.pop()
        if id(value) not in found:
            found[id(value)] = value
            todo += _neighbours(output, value)
    return found


def held_by_frames(output: OutputGraph) -> dict[int, Held]:
    """By id, the values that frames which have not ended, the result and objects that stay changed
    hold. Of frames that the root has left, only generators are, which values hold.
    """
    root = output.root_frame
    frames = [one for one in output.frames if one is root or not (one.done or root.done)]
    return reachable(output, _roots(output, frames))


def _is_held_as_before(
    output: OutputGraph, frames: list[Interpreter], finalizable: Finalizable, ended: set[int]
) -> bool:
    """Whether the path that was found before is still there."""
    path = finalizable.path
    assert path is not None, "the caller looks"
    if not _is_root(output, frames, finalizable, path[0], ended):
        return False
    pairs = itertools.pairwise(path)
    linked = all(_is_among(held, _neighbours(output, holder)) for holder, held in pairs)
    return linked and finalizable.is_at(path[-1])


def _is_root(
    output: OutputGraph,
    frames: list[Interpreter],
    finalizable: Finalizable,
    value: Held,
    ended: set[int],
) -> bool:
    """Whether a frame holds the value, or an object that is there for sure. The frame of the last
    look is asked first: all are asked at each instruction otherwise.
    """
    frame = finalizable.frame
    if frame is not None and _is_among(frame, frames) and _is_among(value, _held(frame)):
        return True
    if isinstance(value, Value) and _stays_changed(output, value, ended):
        return True
    finalizable.frame = next((f for f in frames if _is_among(value, _held(f))), None)
    return finalizable.frame is not None


def _is_among(value: object, others: Iterable[object]) -> bool:
    return any(map(operator.is_, others, itertools.repeat(value)))
