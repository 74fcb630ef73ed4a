"""Liveness: the locals and cells that may still be read from an instruction on."""

from __future__ import annotations

from types import CodeType

from dynamo.bytecode.cache import CodeMap
from dynamo.bytecode.normalize import Instruction, normalize
from dynamo.bytecode.opcodes import NO_FALLTHROUGH

# A local that is deleted must have a value, so that reads it too. Reading a cell's content, its
# cell and writing to it all need the cell; cells are never dead after a write.
_READS = frozenset(
    {"LOAD_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST", "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF"}
    | {"LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
)
_WRITES = frozenset({"STORE_FAST"})
# A function that calls one of these, or reads those of a frame, sees its locals by name.
_SEES_LOCALS = frozenset({"locals", "vars", "dir", "eval", "exec", "f_locals"})

_cache: CodeMap[list[frozenset[str]]] = CodeMap()


def live_before(code: CodeType) -> list[frozenset[str]]:
    """By index of the canonical instruction: names of locals, cells and free variables read later.

    A name is live where some path, exceptions included, reads it before writing it. Where the
    function may look at its locals (`locals()`, `eval`), all its names are live everywhere.
    """
    return _cache.computed(code, lambda: _live_before(code, normalize(code)))


def _live_before(code: CodeType, instructions: list[Instruction]) -> list[frozenset[str]]:
    names = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    if not _SEES_LOCALS.isdisjoint(code.co_names):
        return [frozenset(names)] * len(instructions)
    bit = {name: 1 << i for i, name in enumerate(names)}
    gen = [bit[i.argval] if i.op in _READS else 0 for i in instructions]
    kill = [bit[i.argval] if i.op in _WRITES else 0 for i in instructions]
    for i in _super_calls(code, instructions):
        gen[i] = bit[code.co_varnames[0]] | bit["__class__"]
    live = [0] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for instr in reversed(instructions):
            i = instr.index
            after = live[i + 1] if instr.op not in NO_FALLTHROUGH else 0
            if instr.target is not None:
                after |= live[instr.target.index]
            before = gen[i] | after & ~kill[i]
            if instr.handler is not None:
                before |= live[instr.handler.target.index]
            if before != live[i]:
                live[i], changed = before, True
    sets: dict[int, frozenset[str]] = {}
    for mask in live:
        if mask not in sets:
            sets[mask] = frozenset(name for name in names if mask & bit[name])
    return [sets[mask] for mask in live[:-1]]


def _super_calls(code: CodeType, instructions: list[Instruction]) -> list[int]:
    """Indices of super() without arguments, which reads the first argument and __class__."""
    if "__class__" not in code.co_freevars or not code.co_argcount:
        return []
    return [
        i.index
        for i in instructions
        if i.op == "CALL" and i.arg == 0 and instructions[i.index - 2].argval == "super"
    ]
