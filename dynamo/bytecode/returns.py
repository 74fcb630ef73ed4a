"""Results of code, as far as its instructions tell."""

from __future__ import annotations

import types

from dynamo.bytecode.normalize import normalize


def never_returns(code: types.CodeType) -> bool:
    """Whether a function always raises, or never ends."""
    return all(i.op != "RETURN_VALUE" for i in normalize(code))


def returns_none(code: types.CodeType) -> bool:
    """Whether a function returns nothing but None, if it returns."""
    program = normalize(code)
    returns = [i.index for i in program if i.op == "RETURN_VALUE"]
    before = [program[index - 1] for index in returns]
    return all(i.op == "LOAD_CONST" and i.argval is None for i in before)
