"""Native instructions -> a code object.

Jumps get their direction, stack depth and reachability are found in one pass over the flow graph
(unreachable ones are dropped), operands become table indices; the `bytecode` library encodes
instructions, line table and exception table.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from bytecode import CompilerFlags, ConcreteBytecode, ConcreteInstr
from bytecode.concrete import ExceptionTableEntry
from bytecode.instr import InstrLocation

from dynamo.bytecode import versions
from dynamo.bytecode.decode import CONST, JUMP, KINDS, LOCAL, NAME, Native, Positions
from dynamo.errors import InternalError

LABEL = "LABEL"
_NO_FALLTHROUGH = frozenset(
    {"JUMP", "JUMP_NO_INTERRUPT", "RETURN_VALUE", "RAISE_VARARGS", "RERAISE"}
)
_INVERSE = {
    "POP_JUMP_IF_TRUE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_IF_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE",
}
_OPMAP = dis.opmap
_HAS_ARGUMENT = frozenset(name for name, op in _OPMAP.items() if op in versions.HAS_ARGUMENT)
_CACHES = versions.CACHE_ENTRIES


@dataclass(frozen=True)
class CodeShape:
    """Everything of a code object but its instructions and tables."""

    name: str
    qualname: str
    filename: str
    firstlineno: int
    flags: int
    argcount: int
    posonlyargcount: int
    kwonlyargcount: int
    varnames: tuple[str, ...]  # arguments first; further locals are appended as they occur
    cellvars: tuple[str, ...]
    freevars: tuple[str, ...]
    docstring: str | None = None

    @staticmethod
    def of(code: CodeType) -> CodeShape:
        first = code.co_consts[0] if code.co_consts else None
        has_doc = code.co_flags & versions.CO_HAS_DOCSTRING or not versions.CO_HAS_DOCSTRING
        docstring = first if has_doc and isinstance(first, str) else None
        return CodeShape(
            code.co_name, code.co_qualname, code.co_filename, code.co_firstlineno, code.co_flags,
            code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_varnames,
            code.co_cellvars, code.co_freevars, docstring,
        )  # fmt: skip


def assemble(
    instructions: Sequence[Native],
    shape: CodeShape,
    depths_and_largest: tuple[dict[int, int], int] | None = None,
) -> CodeType:
    """Make a code object; the instructions are used up.

    Targets and handlers must be in the list themselves. `depths_and_largest` is their
    `stack_depths`, where the caller has it. Raises InternalError where control runs off the end or
    paths disagree about the stack depth.
    """
    depths, max_depth = depths_and_largest or stack_depths(instructions)
    natives = _direct_jumps([n for n in instructions if id(n) in depths or n.op == LABEL])
    table = _Tables(shape)
    table.add_locals(natives)
    args = [0 if n.op == LABEL else _operand(n, table) for n in natives]
    starts = _lay_out(natives, args)
    concrete = ConcreteBytecode(
        _encode(natives, args, starts),
        consts=tuple(table.consts),
        names=tuple(table.names),
        varnames=table.varnames,
        exception_table=_exception_entries(natives, starts),
    )
    concrete.name, concrete.qualname, concrete.filename = shape.name, shape.qualname, shape.filename
    concrete.first_lineno, concrete.flags = shape.firstlineno, CompilerFlags(shape.flags)
    concrete.argcount, concrete.posonlyargcount = shape.argcount, shape.posonlyargcount
    concrete.kwonlyargcount = shape.kwonlyargcount
    concrete.freevars, concrete.cellvars = list(shape.freevars), list(shape.cellvars)
    return concrete.to_code(stacksize=max(1, max_depth), compute_exception_stack_depths=False)


# -- jumps ----------------------------------------------------------------------------------------
def _direct_jumps(instructions: Sequence[Native]) -> list[Native]:
    """Give jumps the opcode of their direction; put PRECALL before CALL where there is one."""
    place = {id(n): i for i, n in enumerate(instructions)}
    result: list[Native] = []
    for i, instr in enumerate(instructions):
        if instr.target is not None:
            backward = place[id(instr.target)] <= i
            result += _directed(instr, backward)
        elif instr.op == "CALL" and versions.HAS_PRECALL:
            # A jump to the CALL must reach its PRECALL: the object that jumps know comes first.
            call = Native("CALL", instr.value, positions=instr.positions, handler=instr.handler)
            instr.op = "PRECALL"
            result += [instr, call]
        else:
            result.append(instr)
    return result


def _directed(instr: Native, backward: bool) -> list[Native]:
    op = instr.op
    if op in ("JUMP", "JUMP_NO_INTERRUPT"):
        if not backward:
            instr.op = "JUMP_FORWARD"
        else:
            instr.op = "JUMP_BACKWARD" if op == "JUMP" else "JUMP_BACKWARD_NO_INTERRUPT"
        return [instr]
    if op not in _INVERSE:
        return [instr]
    if versions.DIRECTED_CONDITIONAL_JUMPS:
        way = "BACKWARD" if backward else "FORWARD"
        instr.op = op.replace("POP_JUMP_", f"POP_JUMP_{way}_")
        return [instr]
    if not backward:
        return [instr]
    skip = Native(LABEL)
    jump = Native("JUMP_BACKWARD", target=instr.target, positions=instr.positions,
                  handler=instr.handler)  # fmt: skip
    instr.op, instr.target = _INVERSE[op], skip
    return [instr, jump, skip]


# -- flow -----------------------------------------------------------------------------------------
# (opcode, operand, jump) -> change of depth, filled from dis. Here are those unknown to dis: jumps
# without direction, and that a generator starts with the sent None on its stack (3.11).
_EFFECTS: dict[tuple[str, int, bool], int] = {("RETURN_GENERATOR", 0, False): 1}
for _jump in (False, True):
    _EFFECTS |= {(op, 0, _jump): 0 for op in ("JUMP", "JUMP_NO_INTERRUPT")}
    _EFFECTS |= {(op, 0, _jump): -1 for op in _INVERSE}


def _effect(op: str, arg: int, jump: bool) -> int:
    key = (op, arg, jump)
    if key not in _EFFECTS:
        effect = dis.stack_effect(_OPMAP[op], arg if op in _HAS_ARGUMENT else None, jump=jump)
        if op == "CALL" and versions.HAS_PRECALL:
            effect -= arg  # which dis attributes to PRECALL
        _EFFECTS[key] = effect
    return _EFFECTS[key]


def native_effect(instr: Native, jump: bool = False) -> int:
    """Change of the real stack's depth by `instr`, when it jumps or when it does not."""
    if instr.op == LABEL:
        return 0
    kind = KINDS.get(instr.op)
    if kind is None:
        return _effect(instr.op, instr.value, jump)
    return _effect(instr.op, instr.flags, jump)


def stack_depths(natives: Sequence[Native]) -> tuple[dict[int, int], int]:
    """Depth before each instruction that can be reached, by its id; and the largest depth.

    Sets the depth of exception regions that have none.
    """
    index = {id(n): i for i, n in enumerate(natives)}
    depths: dict[int, int] = {}
    todo: list[tuple[Native, int]] = [(natives[0], 0)]
    largest = 0
    while todo:
        instr, depth = todo.pop()
        i = index[id(instr)]
        while True:
            known = depths.get(id(instr))
            if known is not None:
                if known != depth:
                    raise InternalError(f"stack depth {known} or {depth} before {instr} ({i})")
                break
            depths[id(instr)] = depth
            region = instr.handler
            if region is not None:
                if region.depth is None:
                    region.depth = depth
                at_handler = region.depth + region.push_lasti + 1
                largest = max(largest, at_handler)
                if id(region.target) not in depths:
                    todo.append((region.target, at_handler))
            if instr.target is not None:
                at_target = depth + native_effect(instr, jump=True)
                largest = max(largest, at_target)
                todo.append((instr.target, at_target))
            if instr.op in _NO_FALLTHROUGH:
                break
            depth += native_effect(instr)
            if depth < 0:
                raise InternalError(f"stack underflow at {instr} ({i})")
            largest = max(largest, depth)
            i += 1
            if i == len(natives):
                raise InternalError(f"control runs off the end after {instr}")
            instr = natives[i]
    return depths, largest


# -- operands -------------------------------------------------------------------------------------
class _Tables:
    """Constants, names and slots of the new code, filled as operands need them."""

    def __init__(self, shape: CodeShape) -> None:
        self.consts: list[Any] = [shape.docstring]
        self.names: list[str] = []
        self.varnames = list(shape.varnames)
        self._shape = shape
        self._const_index: dict[Any, int] = {self._key(shape.docstring): 0}
        self._name_index: dict[str, int] = {}

    @staticmethod
    def _key(value: Any) -> Any:
        # Equal simple constants share an entry; anything else (1.0 and 1, -0.0 and 0.0, containers,
        # objects that cannot be hashed) is its own.
        if type(value) in (int, str, bytes, bool, type(None)):
            return type(value), value
        return id(value)

    def const(self, value: Any) -> int:
        index = self._const_index.setdefault(self._key(value), len(self.consts))
        if index == len(self.consts):
            self.consts.append(value)
        return index

    def name(self, name: str) -> int:
        index = self._name_index.setdefault(name, len(self.names))
        if index == len(self.names):
            self.names.append(name)
        return index

    def add_locals(self, natives: Sequence[Native]) -> None:
        """Give every local that is new its slot; to be called before `slot`."""
        shape = self._shape
        known = {*shape.varnames, *shape.cellvars, *shape.freevars}
        new = (n.value for n in natives if KINDS.get(n.op) == LOCAL and n.value not in known)
        self.varnames += dict.fromkeys(new)
        slots = list(self.varnames)
        slots += [name for name in shape.cellvars if name not in self.varnames]
        slots += shape.freevars
        self._slot = {name: i for i, name in reversed(list(enumerate(slots)))}

    def slot(self, name: str) -> int:
        return self._slot[name]


def _operand(instr: Native, tables: _Tables) -> int:
    """The integer operand (0 for jumps, whose distance is not known yet)."""
    kind = KINDS.get(instr.op)
    if kind == CONST:
        return tables.const(instr.value)
    if kind == NAME:
        bits = versions.NAME_FLAG_BITS.get(instr.op, 0)
        return tables.name(instr.value) << bits | instr.flags
    if kind == LOCAL:
        return tables.slot(instr.value)
    return 0 if kind == JUMP else instr.value


# -- layout and encoding --------------------------------------------------------------------------
def _prefixes(arg: int) -> int:
    """How many EXTENDED_ARGs `arg` needs."""
    return 0 if arg < 0x100 else 1 if arg < 0x10000 else 2 if arg < 0x1000000 else 3


def _lay_out(natives: list[Native], args: list[int]) -> list[int]:
    """Set the jumps' operands in `args`; returns where each instruction starts, in code units.

    A longer operand moves later instructions, so this is repeated until nothing grows any more.
    """
    index = {id(n): i for i, n in enumerate(natives)}
    jumps = [(i, index[id(n.target)]) for i, n in enumerate(natives) if n.target is not None]
    sizes = [
        0 if n.op == LABEL else 1 + _prefixes(a) + _CACHES.get(n.op, 0)
        for n, a in zip(natives, args)
    ]
    while True:
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + size)
        grown = False
        for i, target in jumps:
            args[i] = abs(starts[target] - starts[i + 1])
            needed = 1 + _prefixes(args[i]) + _CACHES.get(natives[i].op, 0)
            if needed > sizes[i]:
                sizes[i], grown = needed, True
        if not grown:
            return starts


def _encode(natives: list[Native], args: list[int], starts: list[int]) -> list[ConcreteInstr]:
    locations: dict[Positions, InstrLocation] = {}
    result: list[ConcreteInstr] = []
    for i, (instr, arg) in enumerate(zip(natives, args)):
        op = instr.op
        if op == LABEL:
            continue
        positions = instr.positions
        if positions not in locations:
            locations[positions] = InstrLocation(*positions)
        location = locations[positions]
        caches = _CACHES.get(op, 0)
        if op in _HAS_ARGUMENT:
            extended = starts[i + 1] - starts[i] - caches - 1
            result.append(ConcreteInstr(op, arg, location=location, extended_args=extended or None))
        else:
            result.append(ConcreteInstr(op, location=location))
        if caches:
            result += [ConcreteInstr("CACHE", 0, location=location)] * caches
    return result


def _exception_entries(natives: list[Native], starts: list[int]) -> list[ExceptionTableEntry]:
    """The exception table: an entry for each run of instructions with the same handler."""
    index = {id(n): i for i, n in enumerate(natives)}
    entries: list[ExceptionTableEntry] = []
    current = None
    for i, instr in enumerate(natives):
        if starts[i] == starts[i + 1]:  # a label
            continue
        region = instr.handler
        if region is not None and region is current:
            entries[-1].stop_offset = starts[i + 1] - 1
        elif region is not None:
            assert region.depth is not None
            target = starts[index[id(region.target)]]
            entries.append(
                ExceptionTableEntry(
                    starts[i], starts[i + 1] - 1, target, region.depth, region.push_lasti
                )
            )
        current = region
    return entries
