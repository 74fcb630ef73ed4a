"""`obj.__dict__`: a live view of an object's instance attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.values.base import Value
from dynamo.values.containers.dicts import DictValue
from dynamo.values.effects.side_effects import DELETED
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.descriptors import class_lookup, plain_reader, reads_by_function
from dynamo.values.objects.exceptions import raise_python
from dynamo.values.objects.reflection import FIELDS, note_holder, shared_dict
from dynamo.values.recipes import Attribute, Recipe
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.functions.functional import PartialValue
    from dynamo.values.objects.objects import ObjectValue


@bound_late
class InstanceDictValue(DictValue):
    """Reads and writes go to the object's attributes; `entries` is filled for each whole-dict
    use.
    """

    can_be_bare = False

    def __init__(self, owner: ObjectValue | PartialValue, source: Source | None = None) -> None:
        super().__init__({}, source)
        self.owner = owner

    def children(self) -> Sequence[Value]:
        return (self.owner,)

    def identity(self) -> tuple[bool, Any]:
        own = self.owner.instance_dict()
        return True, self.owner if own is None else own  # for the dict of a new object, its owner

    def as_constant(self) -> Any:
        raise Unsupported(breaks.NotConstant(self.describe()))  # whose items no guard tells

    def load_all(self, tx: Interpreter):
        owner = self.owner
        shared = shared_dict(tx, owner)
        if shared is not None:
            self.entries = dict(shared.load_all(tx))
            return self.entries
        own = owner.instance_dict()
        names = [] if own is None else list(own)
        if own is not None and owner.source is not None:
            tx.guard(
                owner.dict_source(),  # type: ignore[union-attr]
                "dict_keys",
                names,
            )
        stored = tx.output.side_effects.stored_attrs(owner)
        moved = owner.mutation.moved if owner.mutation is not None else ()
        names = [n for n in names if stored.get(n) is not DELETED and n not in moved]
        added = [n for n, v in stored.items() if v is not DELETED and n not in names]
        names += [n for n in added if not self._in_slot(n)]
        found = {n: owner.own_attr(tx, n) for n in names}
        self.entries = {n: (ConstantValue(n), v) for n, v in found.items() if v is not None}
        return self.entries

    def lookup(self, tx: Interpreter, key: Value) -> Value | None:
        name = key.as_constant()
        if self._in_slot(name) and tx.output.side_effects.load_attr(self.owner, name) is not None:
            return None
        return self.owner.own_attr(tx, name)

    def _in_slot(self, name: str) -> bool:
        """Stores in __slots__ and in fields of C are not in the dict."""
        return isinstance(class_lookup(self.owner.cls, name), FIELDS)

    def contains(self, tx: Interpreter, item: Value) -> Value:
        return ConstantValue(self.lookup(tx, item) is not None)

    def length(self, tx: Interpreter) -> int:
        return len(self.load_all(tx))

    def changing(self, tx: Interpreter) -> None:
        note_holder(tx, self.owner)
        tx.output.side_effects.mark(self.owner)

    def put(self, tx: Interpreter, key: Value, value: Value) -> None:
        name = key.as_constant()
        if self._in_slot(name):
            raise Unsupported(breaks.ItemMutation(self.describe()))
        shared = shared_dict(tx, self.owner)
        if shared is not None:
            shared.setitem(tx, key, value)
        else:
            tx.output.side_effects.store_attr(self.owner, name, value)

    def delitem(self, tx: Interpreter, key: Value) -> None:
        if self.lookup(tx, key) is None:
            raise_python(tx, KeyError, key)
        shared = shared_dict(tx, self.owner)
        if shared is not None:
            shared.delitem(tx, key)
        else:
            tx.output.side_effects.delete_attr(self.owner, key.as_constant())

    def py_clear(self, tx):
        for name in list(self.load_all(tx)):
            self.delitem(tx, ConstantValue(name))

    def rewritten(self) -> bool:
        before = self.owner.instance_dict() or ()
        stored = {} if self.owner.mutation is None else self.owner.mutation.attrs
        return any(new is DELETED or name not in before for name, new in stored.items())

    def fresh(self, entries):
        return DictValue(entries)

    def recipe(self) -> Recipe:
        by_function = reads_by_function(self.owner.python_type())
        return plain_reader("__dict__") if by_function else Attribute("__dict__"), [self.owner]


@bound_late
def changed_attributes(
    tx: Interpreter, obj: dict[str, Any], source: Source | None, owner: Any
) -> Value:
    """The instance dict of an object whose attributes the frame has changed."""
    if not hasattr(owner, "dict_source"):  # a class or a function
        raise Unsupported(breaks.UnknownObject("an instance dict"))
    value = InstanceDictValue(owner, source)
    if source is not None:
        tx.guard(source, "aliased", owner.dict_source())
    return tx.output.remember(obj, source, value)
