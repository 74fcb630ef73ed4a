"""Changes of the frame to a dict from outside, which the new code does again step by step.

A dict's table remembers the places of deleted keys, and an OrderedDict and its iterators notice
changes: whoever iterates over the dict outside of the frame goes by that. A dict that was emptied
and filled again would look different from one where an item was replaced.
"""

from __future__ import annotations

from collections.abc import Hashable

from dynamo.values.base import Value
from dynamo.values.containers.hash_keys import calls_methods, check_hashes
from dynamo.values.recipes import DELETE_ITEM, STORE_ITEM, MethodCall, Recipe
from dynamo.values.scalars.constant import ConstantValue


class Change:
    """A recorded call of a method of the dict."""

    def __init__(self, method: str, *args: Value) -> None:
        self.method = method
        self.args = args


class DictChanges:
    """The calls that bring the dict to its new state, without those that leave no trace."""

    def __init__(self) -> None:
        self.steps: list[Change] = []
        self._written: dict[Hashable, Change] = {}  # the assignments to keys that are still there
        self.hashes_objects = False  # see Value.hashes_objects
        self._objects: list[Hashable] = []  # the keys that are hashed by methods

    def copy(self) -> DictChanges:
        made = DictChanges()
        again = {id(step): Change(step.method, *step.args) for step in self.steps}
        made.steps = list(again.values())
        made._written = {hashed: again[id(step)] for hashed, step in self._written.items()}
        made.hashes_objects, made._objects = self.hashes_objects, list(self._objects)
        return made

    def assigned(self, hashed: Hashable) -> bool:
        """Whether the frame has assigned to this key."""
        return hashed in self._written

    def values(self) -> list[Value]:
        return [arg for step in self.steps for arg in step.args]

    def set(self, hashed: Hashable, key: Value, value: Value) -> None:
        self._note(hashed)
        known = self._written.get(hashed)
        if known is None:
            known = self._written[hashed] = Change("__setitem__", key, value)
            self.steps.append(known)
        known.args = (known.args[0], value)

    def delete(self, hashed: Hashable, key: Value) -> None:
        self._note(hashed)
        written = self._written.pop(hashed, None)
        if written is not None:  # the stored value needs not be made
            written.args = (written.args[0], ConstantValue(None))
        self.steps.append(Change("__delitem__", key))

    def popped(self) -> None:
        """The last change was one of popitem()."""
        self.steps[-1] = Change("popitem")

    def move(self, key: Value, at_end: bool) -> None:
        self.steps.append(Change("move_to_end", key, ConstantValue(at_end)))

    def clear(self) -> None:
        self._written = {}
        self.steps = [Change("clear")]

    def _note(self, hashed: Hashable) -> None:
        if calls_methods([hashed]):
            self.hashes_objects = True
            self._objects.append(hashed)

    def writes(self, target: Value, cls: type | None) -> list[Recipe]:
        """The steps, as writes.

        cls: whose methods are called on an instance of a subclass, past any that it overrides.
        """
        check_hashes(self._objects)
        return [_write(step, target, cls) for step in self.steps]


def _write(step: Change, target: Value, cls: type | None) -> Recipe:
    if cls is not None:
        return getattr(cls, step.method), [target, *step.args]
    if step.method == "__setitem__":
        key, value = step.args
        return STORE_ITEM, [value, target, key]
    if step.method == "__delitem__":
        return DELETE_ITEM, [target, *step.args]
    return MethodCall(step.method), [target, *step.args]
