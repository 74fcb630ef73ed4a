"""Reading an attribute as all that is left of the current instruction: a break inside of a getter,
or of the class's methods for access to attributes, stands there.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynamo.polyfills.protocols import same
from dynamo.values.base import Value
from dynamo.values.classes.lookup import class_lookup, type_holds
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.stack_items import RESULT, CatchContinuation

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def tail_read(tx: Interpreter, owner: Value, name: str, above: Sequence[Value] = ()) -> Value:
    """owner.name. above: the values that the instruction pushes behind the attribute."""
    getter = owner.getter(tx, name) if isinstance(owner, ObjectValue) else None
    if getter is not None:
        return tx.finish_call(getter, [owner], {}, (RESULT, *above))
    tx.in_tail_position(owner, "__getattr__", (RESULT, *above))
    if isinstance(owner, ObjectValue) and (fallback := owner.fallback(tx)) is not None:
        instead = CatchContinuation(AttributeError, fallback, [owner, ConstantValue(name)])
        for asked in (name, "__getattribute__"):
            tx.in_tail_position(owner, asked, [instead, *above])
    elif owner.calls_getters_last or (isinstance(owner, ObjectValue) and owner.reads_plainly(tx)):
        tx.in_tail_position(owner, name, (RESULT, *above))
    elif isinstance(owner, ObjectValue) and _names_errors(owner):
        tx.in_tail_position(owner, "__getattribute__", (RESULT, *above))
    return owner.getattr(tx, name)


def _names_errors(owner: ObjectValue) -> bool:
    """Whether errors of the class's own __getattribute__ are those that leave the instruction:
    there is no __getattr__, and no AttributeError of its own, which gets owner and name.
    """
    own = class_lookup(owner.cls, "__getattribute__")
    plain = isinstance(own, types.FunctionType) and "AttributeError" not in own.__code__.co_names
    return plain and not type_holds(owner.cls, "__getattr__")


def prepare_default(tx: Interpreter, owner: Value, name: str, default: Value) -> bool:
    """getattr(owner, name, default) follows. False: the program's code that reads the attribute, if
    there is any, is not in tail position.
    """
    if not isinstance(owner, ObjectValue):
        return False
    if owner.fallback(tx) is None or type_holds(owner.cls, name):
        return False
    instead = CatchContinuation(AttributeError, same, [default])
    tx.in_tail_position(owner, "__getattr__", [instead])
    return True
