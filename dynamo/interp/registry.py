"""The table of opcode handlers: canonical op name -> function(tx, instruction).

A handler is named as its opcode; `@handler` registers it under that name, `@handler("A", "B")`
under several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter

Handler = Callable[["Interpreter", "Instruction"], None]
HANDLERS: dict[str, Handler] = {}


def handler(*names: Any) -> Any:
    """Decorator: register an opcode handler."""
    if len(names) == 1 and callable(names[0]):
        HANDLERS[names[0].__name__] = names[0]
        return names[0]

    def register(function: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = function
        return function

    return register


def unhandled(tx: Interpreter, instr: Instruction) -> None:
    """Break the graph at an opcode without a handler, by name."""
    raise Unsupported(breaks.UnsupportedOpcode(instr.op))
