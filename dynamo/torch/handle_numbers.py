"""Numbers of the handles of modules' hooks: the rewritten frame draws them before it calls the
graph, so that a frame that registers hooks is no other one in each call. Of a handle from outside
the place of its hook is guarded, not the number: each registration gives another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from torch.utils.hooks import RemovableHandle

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import DictKeySource, MadeSource, Source
from dynamo.polyfills import module_hooks
from dynamo.values.base import Value
from dynamo.values.builtins.table import handles
from dynamo.values.containers.dicts import OrderedDictValue
from dynamo.values.effects.hoisted_modules import HoistedCall
from dynamo.values.functions.function import UserFunctionValue
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class HandleNumber(Value):
    """A number that no other handle has."""

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return "the number of a hook's handle"

    def truth(self, tx: Interpreter) -> bool:
        raise Unsupported(breaks.NotConstant(self.describe()))

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if op not in ("==", "!=") or not isinstance(other, HandleNumber):
            raise Unsupported(breaks.NotConstant(self.describe()))
        return ConstantValue((self is other) is (op == "=="))

    def hash_key(self, tx: Interpreter) -> Hashable:
        return self.hash_key_by_identity()


class HookKey(HandleNumber):
    """The number of a handle from outside, a key of its table."""

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        raise Unsupported(breaks.NotConstant(self.describe()))

    def hash_key(self, tx: Interpreter) -> Hashable:
        raise Unsupported(breaks.NotConstant(self.describe()))


def next_number() -> int:
    """The number that RemovableHandle() takes."""
    number = RemovableHandle.next_id
    RemovableHandle.next_id += 1
    return number


@handles(module_hooks.handle_number)
def _handle_number(tx: Interpreter) -> Value:
    output = tx.output
    if output.context.export:
        raise Unsupported(breaks.UncapturedCall("RemovableHandle"))
    output.hoisted_calls.append(HoistedCall(next_number))
    output.side_effects.touch()
    return HandleNumber(MadeSource(len(output.hoisted_calls) - 1))


@handles(module_hooks.remove_hook)
def _remove_hook(tx, table, handle):
    """By the place of the hook in a table from outside."""
    real = handle.outside
    known = isinstance(table, OrderedDictValue) and isinstance(real, RemovableHandle)
    known = known and handle.source is not None and not tx.output.side_effects.is_dirty(handle)
    tables = _tables(real) if known else []
    which = next((i for i, one in enumerate(tables) if one is table.outside), None)
    if which is None or not table.take_tokens(tx, _keys_of(table.source)):
        return UserFunctionValue(module_hooks.remove_hook), [table, handle], {}
    place = _place(real, which)

    def same_place(handle: Any) -> bool:
        return _place(handle, which) == place

    same_place.__name__ = f"has its hook at {place} of table {which}"
    tx.guard(handle.source, "predicate", same_place)
    if place is not None:
        table.delete_token(tx, place, HookKey(handle.own_source("id")))
    return ConstantValue(None)


def _keys_of(table: Source) -> Callable[[int], Value]:
    return lambda place: HookKey(DictKeySource(table, place))


def _tables(handle: RemovableHandle) -> list[Any]:
    """The dicts that a handle removes its hook from; None: those that are gone."""
    return [handle.hooks_dict_ref(), *(ref() for ref in handle.extra_dict_ref)]


def _place(handle: RemovableHandle, which: int) -> int | None:
    """The place of the handle's hook in a table."""
    tables = _tables(handle)
    keys = list(dict.keys(tables[which])) if which < len(tables) and tables[which] else []
    return keys.index(handle.id) if handle.id in keys else None
