"""What code returns, as far as its instructions tell."""

from __future__ import annotations

import types

from dynamo.bytecode.normalize import normalize


def returns_none(code: types.CodeType) -> bool:
    """Whether a function returns nothing but None."""
    program = normalize(code)
    returns = [i.index for i in program if i.op == "RETURN_VALUE"]
    before = [program[index - 1] for index in returns]
    return all(i.op == "LOAD_CONST" and i.argval is None for i in before)
