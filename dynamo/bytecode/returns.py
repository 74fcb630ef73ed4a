"""Results of code, as far as its instructions tell."""

from __future__ import annotations

import types

from dynamo.bytecode.normalize import Instruction, normalize


def never_returns(code: types.CodeType) -> bool:
    """Whether a function always raises, or never ends."""
    return all(i.op != "RETURN_VALUE" for i in normalize(code))


def returns_none(code: types.CodeType) -> bool:
    """Whether a function returns nothing but None, if it returns."""
    program = normalize(code)
    returns = [i.index for i in program if i.op == "RETURN_VALUE"]
    before = [program[index - 1] for index in returns]
    return all(i.op == "LOAD_CONST" and i.argval is None for i in before)


_MOVES = frozenset(["LOAD_FAST", "LOAD_CONST", "STORE_FAST", "COPY", "SWAP", "POP_TOP"])
_BUILDS = frozenset(["BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP"])


def returns_behind(code: types.CodeType, instr: Instruction) -> bool:
    """Whether code returns behind an instruction, and computes nothing before."""
    behind = (following.op for following in normalize(code)[instr.index + 1 :])
    return next((op for op in behind if op not in _MOVES | _BUILDS), None) == "RETURN_VALUE"
