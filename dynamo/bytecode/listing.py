"""Readable listings of code objects, for DYNAMO_LOGS=bytecode and for error reports."""

from __future__ import annotations

from types import CodeType
from typing import Any

from dynamo.bytecode.normalize import Instruction, normalize


def format_code(code: CodeType, *, depth: int = 0) -> str:
    """Canonical instructions of `code` with line numbers, jump marks and exception handlers.

    depth: how many levels of nested code objects follow.
    """
    instructions = normalize(code)
    targets = {i.target.index for i in instructions if i.target is not None}
    targets |= {i.handler.target.index for i in instructions if i.handler is not None}
    width = len(str(len(instructions)))
    lines = [_header(code)]
    lineno = None
    for instr in instructions:
        shown = "" if instr.lineno in (lineno, None) else str(instr.lineno)
        lineno = instr.lineno if instr.lineno is not None else lineno
        mark = ">" if instr.index in targets else " "
        lines.append(f"{shown:>6} {mark} {instr.index:>{width}}  {_instruction(instr)}".rstrip())
    if depth:
        for const in code.co_consts:
            if isinstance(const, CodeType):
                lines += ["", format_code(const, depth=depth - 1)]
    return "\n".join(lines)


def _header(code: CodeType) -> str:
    parts = [f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"]
    for label, names in (
        ("arguments", code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]),
        ("cells", code.co_cellvars),
        ("free", code.co_freevars),
    ):
        if names:
            parts.append(f"{label}: {', '.join(names)}")
    return "; ".join(parts)


def _instruction(instr: Instruction) -> str:
    operand: Any = ""
    if instr.target is not None:
        operand = f"to {instr.target.index}"
    elif isinstance(instr.argval, CodeType):
        operand = f"<code {instr.argval.co_qualname}>"
    elif instr.op == "LOAD_CONST" or not (instr.argval is None or isinstance(instr.argval, str)):
        operand = _short(instr.argval)
    elif instr.argval is not None:
        operand = instr.argval
    if instr.op == "CALL_KW":
        operand = f"{instr.arg} names {operand}"
    text = f"{instr.op:<24} {operand}" if operand != "" else instr.op
    handler = instr.handler
    if handler is not None:
        lasti = " lasti" if handler.push_lasti else ""
        text = f"{text:<48} ; except to {handler.target.index} [{handler.depth}]{lasti}"
    return text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
