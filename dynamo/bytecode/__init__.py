"""Python bytecode: canonical on the way in (`normalize`), written by the `Emitter`."""

from dynamo.bytecode.emit import Emitter, Label
from dynamo.bytecode.normalize import (
    ExceptionHandler,
    Instruction,
    NormalizeError,
    normalize,
    real_order,
    real_stack,
)
from dynamo.bytecode.opcodes import CANONICAL, FAMILIES

__all__ = [
    "CANONICAL",
    "FAMILIES",
    "Emitter",
    "ExceptionHandler",
    "Instruction",
    "Label",
    "NormalizeError",
    "normalize",
    "real_order",
    "real_stack",
]
