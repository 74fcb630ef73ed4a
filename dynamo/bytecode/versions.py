"""Capabilities of the running CPython's bytecode, as data. Only this file looks at the version.

Other modules ask these sets and flags, never the version itself. Most of them follow from which
opcodes exist.
"""

from __future__ import annotations

import dis
import opcode
import sys

CURRENT = sys.version_info[:2]
OPMAP = dis.opmap

# -- layout of calls ------------------------------------------------------------------------------
# 3.11 and 3.12 keep the NULL of a plain call below the callable, 3.13 above it (as canonical does).
NULL_BELOW_CALLABLE = CURRENT < (3, 13)
HAS_PRECALL = "PRECALL" in OPMAP
# Names of keyword arguments: an instruction before CALL (KW_NAMES), or a tuple on the stack
# (CALL_KW).
HAS_KW_NAMES = "KW_NAMES" in OPMAP

# -- operands -------------------------------------------------------------------------------------
HAS_ARGUMENT = frozenset(
    getattr(dis, "hasarg", None) or (op for op in OPMAP.values() if op >= dis.HAVE_ARGUMENT)
)
# Low bits of a name operand that are flags: LOAD_GLOBAL's "push NULL", LOAD_ATTR's "method", ...
NAME_FLAG_BITS = {"LOAD_GLOBAL": 1, "LOAD_SUPER_ATTR": 2}
if "LOAD_SUPER_ATTR" in OPMAP:
    NAME_FLAG_BITS["LOAD_ATTR"] = 1
LOAD_ATTR_LOADS_METHODS = "LOAD_ATTR" in NAME_FLAG_BITS
SUPER_TWO_ARGUMENTS = 2  # flag of LOAD_SUPER_ATTR: super(class, self), not super()
# COMPARE_OP: the operator's position, and bit 4 "convert to bool" where there is TO_BOOL. The bits
# below are a hint for the specialising interpreter: which of (unordered, <, >, ==) make it true.
COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4, (3, 13): 5}[CURRENT]
COMPARE_TO_BOOL_BIT = 16 if "TO_BOOL" in OPMAP else 0
COMPARE_MASKS = (2, 10, 8, 7, 4, 12) if COMPARE_SHIFT else (0,) * 6
COMPARE_SYMBOLS = tuple(dis.cmp_op[:6])
BINARY_SYMBOLS = tuple(symbol for _, symbol in opcode._nb_ops)  # type: ignore[attr-defined]
INTRINSICS_1 = tuple(getattr(opcode, "_intrinsic_1_descs", ()))
INTRINSICS_2 = tuple(getattr(opcode, "_intrinsic_2_descs", ()))

# -- jumps ----------------------------------------------------------------------------------------
# 3.11 names the direction of conditional jumps; later versions only have forward ones.
DIRECTED_CONDITIONAL_JUMPS = "POP_JUMP_FORWARD_IF_TRUE" in OPMAP
# Conditional jumps and UNARY_NOT take exact bools only, made by TO_BOOL.
HAS_TO_BOOL = "TO_BOOL" in OPMAP
# The instructions at the target of FOR_ITER that are skipped when the iterator ends by itself.
FOR_ITER_LANDING = {(3, 11): (), (3, 12): ("END_FOR",), (3, 13): ("END_FOR", "POP_TOP")}[CURRENT]
HAS_END_SEND = "END_SEND" in OPMAP

# -- locals and functions -------------------------------------------------------------------------
HAS_LOAD_FAST_CHECK = "LOAD_FAST_CHECK" in OPMAP
HAS_LOAD_FAST_AND_CLEAR = "LOAD_FAST_AND_CLEAR" in OPMAP
# 3.13 loads a cell itself by LOAD_FAST. (The name LOAD_CLOSURE stays in opmap as a pseudo-op.)
HAS_LOAD_CLOSURE = OPMAP.get("LOAD_CLOSURE", 256) < 256
HAS_SET_FUNCTION_ATTRIBUTE = "SET_FUNCTION_ATTRIBUTE" in OPMAP
HAS_FORMAT_VALUE = "FORMAT_VALUE" in OPMAP
# The bit of co_flags that says "the first constant is the docstring"; 0: it always is, if a str.
CO_HAS_DOCSTRING = 0x4000000 if CURRENT >= (3, 14) else 0

# classmethod(f) is bound by f's own __get__.
CLASSMETHOD_CHAINS = CURRENT < (3, 13)
# generator.close() returns the generator's return value.
CLOSE_RETURNS_VALUE = CURRENT >= (3, 13)
# Each locals() of a frame of a function gives the same dict.
ONE_LOCALS_DICT = CURRENT < (3, 13)
# generator.throw(type, value, traceback) warns.
THROW_OF_PARTS_WARNS = CURRENT >= (3, 12)


def compare_operand(symbol: str) -> int:
    """Operand of COMPARE_OP for a symbol such as "<"."""
    index = COMPARE_SYMBOLS.index(symbol)
    return index << COMPARE_SHIFT | COMPARE_MASKS[index]


def intrinsic(name: str) -> tuple[str, int]:
    """Opcode and operand of an operation that is an opcode on 3.11 and an intrinsic later."""
    for op, names in (("CALL_INTRINSIC_1", INTRINSICS_1), ("CALL_INTRINSIC_2", INTRINSICS_2)):
        if f"INTRINSIC_{name}" in names:
            return op, names.index(f"INTRINSIC_{name}")
    return name, 0


def _cache_entries() -> dict[str, int]:
    """Opcode name -> number of inline cache units that follow it (dis keeps a list or a dict)."""
    entries = dis._inline_cache_entries  # type: ignore[attr-defined]
    if isinstance(entries, dict):
        return {name: count for name, count in entries.items() if count}
    return {dis.opname[op]: count for op, count in enumerate(entries) if count}


CACHE_ENTRIES = _cache_entries()
