"""Canonical instructions -> native ones of the running version (the way back from `normalize`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynamo.bytecode import versions
from dynamo.bytecode.normalize import Instruction

# One native instruction: op, value, flag bits, jump target.
Form = tuple[str, Any, int, Instruction | None]


def native_form(instr: Instruction) -> list[Form]:
    """The native instructions equivalent to `instr`, on the real stack.

    CALL_KW takes its names from `instr`, not from the stack. On versions whose conditional jumps
    need a bool, a copied jump expects one, as the original did.
    """
    rule = _RULES.get(instr.op)
    if rule is not None:
        return rule(instr)
    value = instr.argval if isinstance(instr.argval, str) or instr.op == "LOAD_CONST" else instr.arg
    return [(instr.op, value, 0, instr.target)]


def _push_null(instr: Instruction) -> list[Form]:
    # Canonical code has the callable on top already.
    null: Form = ("PUSH_NULL", 0, 0, None)
    return [null, ("SWAP", 2, 0, None)] if versions.NULL_BELOW_CALLABLE else [null]


def _call_kw(instr: Instruction) -> list[Form]:
    if versions.HAS_KW_NAMES:
        return [("KW_NAMES", instr.argval, 0, None), ("CALL", instr.arg, 0, None)]
    return [("LOAD_CONST", instr.argval, 0, None), ("CALL_KW", instr.arg, 0, None)]


def _load_attr(method: bool) -> Callable[[Instruction], list[Form]]:
    def form(instr: Instruction) -> list[Form]:
        if versions.LOAD_ATTR_LOADS_METHODS:
            return [("LOAD_ATTR", instr.argval, int(method), None)]
        return [("LOAD_METHOD" if method else "LOAD_ATTR", instr.argval, 0, None)]

    return form


def _load_super(method: bool) -> Callable[[Instruction], list[Form]]:
    def form(instr: Instruction) -> list[Form]:
        name, two_arguments = instr.argval
        return [("LOAD_SUPER_ATTR", name, method | two_arguments << 1, None)]

    return form


def _operand(instr: Instruction) -> list[Form]:
    """The operand is `arg`; argval is its meaning."""
    return [(instr.op, instr.arg, 0, None)]


def _intrinsic(instr: Instruction) -> list[Form]:
    name = instr.argval if instr.op.startswith("CALL_INTRINSIC") else instr.op
    return [(*versions.intrinsic(name), 0, None)]


def _format(bits: int | None) -> Callable[[Instruction], list[Form]]:
    def form(instr: Instruction) -> list[Form]:
        if versions.HAS_FORMAT_VALUE:
            return [("FORMAT_VALUE", instr.arg if bits is None else bits, 0, None)]
        return _operand(instr)

    return form


def _named(op: str) -> Callable[[Instruction], list[Form]]:
    return lambda instr: [(op, instr.argval, 0, None)]


def _for_iter(instr: Instruction) -> list[Form]:
    # Where the version has a landing, it is copied with the rest, right before the canonical
    # target.
    return [("FOR_ITER", 0, 0, instr.landing or instr.target)]


_RULES: dict[str, Callable[[Instruction], list[Form]]] = {
    "PUSH_NULL": _push_null,
    "CALL_KW": _call_kw,
    "LOAD_ATTR": _load_attr(False),
    "LOAD_METHOD": _load_attr(True),
    "LOAD_SUPER_ATTR": _load_super(False),
    "LOAD_SUPER_METHOD": _load_super(True),
    "BINARY_OP": _operand,
    "COMPARE_OP": _operand,
    "IS_OP": _operand,
    "CONTAINS_OP": _operand,
    "MAKE_FUNCTION": _operand,
    "SET_FUNCTION_ATTRIBUTE": _operand,
    "CALL_INTRINSIC_1": _intrinsic,
    "CALL_INTRINSIC_2": _intrinsic,
    "LIST_TO_TUPLE": _intrinsic,
    "UNARY_POSITIVE": _intrinsic,
    "CONVERT_VALUE": _format(None),
    "FORMAT_SIMPLE": _format(0),
    "FORMAT_WITH_SPEC": _format(4),
    "LOAD_FAST": _named("LOAD_FAST_CHECK" if versions.HAS_LOAD_FAST_CHECK else "LOAD_FAST"),
    "LOAD_CLOSURE": _named("LOAD_CLOSURE" if versions.HAS_LOAD_CLOSURE else "LOAD_FAST"),
    "FOR_ITER": _for_iter,
    # arg 1: signals are not handled here (the loop of `await` and `yield from`).
    "JUMP": lambda i: [("JUMP_NO_INTERRUPT" if i.arg else "JUMP", 0, 0, i.target)],
    "END_SEND": lambda instr: [("END_SEND", 0, 0, None)] if versions.HAS_END_SEND else [],
}
