"""Numbers of the handles of modules' hooks: the rewritten frame draws them before it calls the
graph, so that a frame that registers hooks is no other one in each call.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from torch.utils.hooks import RemovableHandle

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import MadeSource
from dynamo.polyfills import module_hooks
from dynamo.values.base import Value
from dynamo.values.builtins.table import handles
from dynamo.values.effects.hoisted_modules import HoistedCall
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
