"""Helpers for the bytecode tests: whole functions through normalize -> Emitter -> assemble."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator

from dynamo.bytecode import Emitter, Instruction, NormalizeError, normalize


def is_keyword_names(instr: Instruction, following: Instruction) -> bool:
    """The LOAD_CONST that canonical code has for CALL_KW; `Emitter.native` makes it itself."""
    return instr.op == "LOAD_CONST" and following.op == "CALL_KW"


def reassemble(code: types.CodeType) -> types.CodeType:
    """The same code, every canonical instruction copied by `Emitter.native`."""
    emit = Emitter()
    instructions = normalize(code)
    start = next(i.index for i in instructions if i.op == "RESUME") + 1  # assembly writes the start
    for instr in instructions[start:]:
        emit.place(emit.label_of(instr))
        last = instr.index + 1 == len(instructions)
        if not last and is_keyword_names(instr, instructions[instr.index + 1]):
            continue
        handler = instr.handler
        if handler is None:
            emit.native(instr)
            continue
        with emit.exception_region(
            emit.label_of(handler.target), handler.depth, handler.push_lasti
        ):
            emit.native(instr)
    return emit.assemble(code)


def reassemble_all(code: types.CodeType) -> types.CodeType:
    """`reassemble`, for the code objects among the constants too."""
    consts = tuple(
        reassemble_all(c) if isinstance(c, types.CodeType) else c for c in code.co_consts
    )
    code = code.replace(co_consts=consts)
    try:
        return reassemble(code)
    except NormalizeError:
        if code.co_flags & inspect.CO_OPTIMIZED:
            raise
        return code  # a module with `import *`, a class body with two `__class__`


def all_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """`code` and the code objects inside it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from all_codes(const)
