"""Branches that can only raise: the failing side of `assert`, and of `if bad: raise ...`.

if bad:                       POP_JUMP_IF_FALSE bad, to L      # jumps in the good case: True
    raise ValueError(x)       ... RAISE_VARARGS
return x                 L:   ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from dynamo.bytecode.cache import CodeMap, InstructionMap
from dynamo.bytecode.normalize import ExceptionHandler, Instruction, normalize
from dynamo.bytecode.opcodes import NO_FALLTHROUGH

# A failing side that is longer is more than a message.
_LIMIT = 500
_LEAVES = frozenset(["RETURN_VALUE", "YIELD_VALUE", "SEND", "RETURN_GENERATOR"])

_good_sides: InstructionMap[bool | None] = InstructionMap()
_raise: CodeMap[bool] = CodeMap()


def raises(code: CodeType) -> bool:
    """Whether the code has a `raise` statement, or an assertion."""
    return _raise.computed(code, lambda: any(i.op == "RAISE_VARARGS" for i in normalize(code)))


def good_side(code: CodeType, jump: Instruction) -> bool | None:
    """Whether a conditional jump of `code` jumps where only its other branch can do nothing but
    raise: True or False; None where neither branch is such, or the frame catches the exception.
    """
    return _good_sides.computed(code, jump.index, lambda: _good_side(normalize(code), jump))


def _good_side(program: list[Instruction], jump: Instruction) -> bool | None:
    assert jump.target is not None, "jumps have targets"
    falls = _only_raises(program, jump.index + 1)
    jumps = _only_raises(program, jump.target.index)
    return None if falls is jumps else falls


def _only_raises(program: list[Instruction], start: int) -> bool:
    seen: set[int] = set()
    todo, found = [start], False
    while todo:
        index = todo.pop()
        if index in seen:
            continue
        seen.add(index)
        instr = program[index]
        if len(seen) > _LIMIT or instr.op in _LEAVES or _may_catch(program, instr.handler):
            return False
        if instr.op == "RAISE_VARARGS":
            found = True
        if instr.target is not None:
            todo.append(instr.target.index)
        if instr.op not in NO_FALLTHROUGH:
            todo.append(index + 1)
    return found


def may_be_caught(
    code: CodeType,
    instr: Instruction,
    resolve: Callable[[str], Any],
    kinds: Sequence[type],
    exit_is_observable: Callable[[int | None], bool],
) -> bool:
    """Whether the frame of `code` does anything about an exception of one of `kinds` that `instr`
    raises, in an except clause for it, in `finally`, or at the end of `with`. resolve: what a
    global name stands for. exit_is_observable: of the manager whose `__exit__` is at this
    depth of the stack; None: of a `finally`.
    """
    program = normalize(code)
    handler = instr.handler
    while handler is not None:
        start = handler.target.index
        again = _raised_again(program, start)
        if again is None:
            again = _after_clauses(program, start, resolve, kinds)
            if again is None or (again is program[start] and exit_is_observable(None)):
                return True
        elif program[start + 1].op == "WITH_EXCEPT_START" and exit_is_observable(handler.depth - 1):
            return True
        handler = again.handler
    return False


def _after_clauses(
    program: list[Instruction], start: int, resolve: Callable[[str], Any], kinds: Sequence[type]
) -> Instruction | None:
    """The re-raise that is reached if none of the handler's clauses matches; None: one may
    match.
    """
    index, stack = start + 1, []
    if program[index].op == "POP_TOP":  # a bare except
        return None
    while True:
        instr = program[index]
        index += 1
        if instr.op == "LOAD_GLOBAL":
            stack.append(resolve(instr.argval))
        elif instr.op == "LOAD_ATTR" and stack:
            stack[-1] = getattr(stack[-1], instr.argval, None)
        elif instr.op == "BUILD_TUPLE" and 0 < instr.arg <= len(stack):
            stack[-instr.arg :] = [tuple(stack[-instr.arg :])]
        elif instr.op == "CHECK_EXC_MATCH":
            if not stack or _is_for(stack.pop(), kinds):
                return None
        elif instr.op == "POP_JUMP_IF_FALSE" and instr.target is not None:
            index, stack = instr.target.index, []
        elif instr.op == "RERAISE":
            return instr
        elif instr.op == "CHECK_EG_MATCH":
            return None
        elif instr.op != "NOP":  # the body of a `finally`
            return program[start]


def _is_for(clause: Any, kinds: Sequence[type]) -> bool:
    """Whether `except clause` may take an exception of one of `kinds`."""
    if isinstance(clause, tuple):
        return any(_is_for(item, kinds) for item in clause)
    return not isinstance(clause, type) or any(issubclass(kind, clause) for kind in kinds)


def _may_catch(program: list[Instruction], handler: ExceptionHandler | None) -> bool:
    """Whether an exception may stay in the frame, as far as its own code says: whoever leaves a
    `with` block by an exception is taken to go on with it.
    """
    while handler is not None:
        again = _raised_again(program, handler.target.index)
        if again is None:
            return True
        handler = again.handler
    return False


def _raised_again(program: list[Instruction], start: int) -> Instruction | None:
    """Where a handler that catches nothing raises again: at the end of a `with` block, or where
    it only cleans up (variables of a comprehension, StopIteration in a generator).
    """
    leaves_block = program[start + 1].op == "WITH_EXCEPT_START"
    for instr in program[start:]:
        if instr.op == "RERAISE":
            return instr
        jumps = instr.target is not None or instr.op in NO_FALLTHROUGH
        if not leaves_block and (jumps or instr.op == "PUSH_EXC_INFO"):
            return None
    return None
