"""Raw code bytes -> native instructions of the running version, with names and targets resolved.

Native instructions can be put into another code object as they are (`assemble`). To keep what
follows small, decoding already removes instructions without a meaning of their own: caches and
EXTENDED_ARG go, instructions that are two in one are split, and jumps lose their direction
(assembly finds it again).
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from dynamo.bytecode import versions

Positions = tuple[int | None, int | None, int | None, int | None]
NO_POSITIONS: Positions = (None, None, None, None)

_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_HAS_CONST, _HAS_NAME = frozenset(dis.hasconst), frozenset(dis.hasname)
_HAS_LOCAL = frozenset(dis.haslocal) | frozenset(dis.hasfree)
_HAS_JUMP = frozenset(dis.hasjrel)

# Kind of operand by native opcode name; others have a plain integer.
CONST, NAME, LOCAL, JUMP = "const", "name", "local", "jump"
KINDS: dict[str, str] = {
    name: kind
    for kind, ops in (
        (CONST, _HAS_CONST),
        (NAME, _HAS_NAME),
        (LOCAL, _HAS_LOCAL),
        (JUMP, _HAS_JUMP),
    )
    for name, op in dis.opmap.items()
    if op in ops
}
_CONDITIONS = ("TRUE", "FALSE", "NONE", "NOT_NONE")
# Native jump -> the name without direction that decoded code uses.
UNDIRECTED = {
    "JUMP_FORWARD": "JUMP",
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP_NO_INTERRUPT",
    **{
        f"POP_JUMP_{way}_IF_{c}": f"POP_JUMP_IF_{c}"
        for way in ("FORWARD", "BACKWARD")
        for c in _CONDITIONS
    },
}
KINDS |= dict.fromkeys(UNDIRECTED.values(), JUMP)

_Part = tuple[str, Any, int]  # op, value, flags


def _split_compare(arg: Any, flags: int) -> list[_Part]:
    bit = versions.COMPARE_TO_BOOL_BIT
    to_bool: list[_Part] = [("TO_BOOL", 0, 0)] if arg & bit else []
    return [("COMPARE_OP", arg & ~bit, 0), *to_bool]


def _split_format(arg: Any, flags: int) -> list[_Part]:
    """FORMAT_VALUE with a conversion (1 to 3) and a spec (4): convert the item below the spec."""
    if not (arg & 3 and arg & 4):
        return [("FORMAT_VALUE", arg, 0)]
    convert: list[_Part] = [("SWAP", 2, 0), ("FORMAT_VALUE", arg & 3, 0), ("SWAP", 2, 0)]
    return [*convert, ("FORMAT_VALUE", 4, 0)]


def _split_global(name: Any, flags: int) -> list[_Part]:
    if flags and not versions.NULL_BELOW_CALLABLE:
        return [("LOAD_GLOBAL", name, 0), ("PUSH_NULL", 0, 0)]
    return [("LOAD_GLOBAL", name, flags)]


# Native opcode -> its parts. For superinstructions over two locals the value is the pair of names.
_SPLIT: dict[str, Callable[[Any, int], list[_Part]]] = {
    "LOAD_FAST_LOAD_FAST": lambda v, _: [("LOAD_FAST", v[0], 0), ("LOAD_FAST", v[1], 0)],
    "STORE_FAST_LOAD_FAST": lambda v, _: [("STORE_FAST", v[0], 0), ("LOAD_FAST", v[1], 0)],
    "STORE_FAST_STORE_FAST": lambda v, _: [("STORE_FAST", v[0], 0), ("STORE_FAST", v[1], 0)],
    "RETURN_CONST": lambda v, _: [("LOAD_CONST", v, 0), ("RETURN_VALUE", 0, 0)],
    "COMPARE_OP": _split_compare,
    "FORMAT_VALUE": _split_format,
    "LOAD_GLOBAL": _split_global,
    # Assembly puts PRECALL back before each CALL.
    "PRECALL": lambda v, _: [],
}
_PAIRS = frozenset({"LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"})


class Native:
    """An instruction of the running version, or a label (op LABEL, of no size).

    value: the constant, name or local's name, or the integer operand (for names: its flag bits are
    in `flags`). target: the instruction that a jump goes to. handler: the exception region around
    it.
    """

    __slots__ = ("flags", "handler", "offset", "op", "positions", "target", "value")

    def __init__(
        self,
        op: str,
        value: Any = 0,
        flags: int = 0,
        *,
        target: Native | None = None,
        positions: Positions = NO_POSITIONS,
        handler: Region | None = None,
        offset: int = -1,
    ) -> None:
        self.op = op
        self.value = value
        self.flags = flags
        self.target = target
        self.positions = positions
        self.handler = handler
        self.offset = offset

    def __repr__(self) -> str:
        return f"<{self.op} {self.value!r}{f' -> {self.target}' if self.target else ''}>"


@dataclass(eq=False, slots=True)
class Region:
    """Exceptions go to `target`, with `depth` items left on the stack (None: as at its start)."""

    target: Native
    depth: int | None
    push_lasti: bool


def localsplus_names(code: CodeType) -> tuple[str, ...]:
    """Names by slot of the frame: locals, cells that are not among them, free variables."""
    local = code.co_varnames
    return local + tuple(n for n in code.co_cellvars if n not in local) + code.co_freevars


def decode(code: CodeType) -> list[Native]:
    """Native instructions of `code`, in order. Fresh objects: the caller may change them."""
    raw, opname, caches = code.co_code, dis.opname, versions.CACHE_ENTRIES
    positions = list(code.co_positions())
    operand = _operand_reader(code)
    natives: list[Native] = []
    index_at: dict[int, int] = {}  # code unit -> index of the instruction that a jump there reaches
    jumps: list[tuple[Native, int]] = []
    unit, extended = 0, 0
    while 2 * unit < len(raw):
        opcode, arg = raw[2 * unit], raw[2 * unit + 1] | extended
        index_at[unit] = len(natives)
        if opcode == _EXTENDED_ARG:
            extended = arg << 8
            unit += 1
            continue
        op = opname[opcode]
        after = unit + 1 + caches.get(op, 0)
        if opcode in _HAS_JUMP:
            natives.append(
                Native(UNDIRECTED.get(op, op), positions=positions[unit], offset=2 * unit)
            )
            jumps.append((natives[-1], after - arg if "BACKWARD" in op else after + arg))
        else:
            value, flags = operand(op, opcode, arg)
            parts = _SPLIT[op](value, flags) if op in _SPLIT else ((op, value, flags),)
            for part in parts:
                natives.append(Native(*part, positions=positions[unit], offset=2 * unit))
        unit, extended = after, 0
    for instr, target in jumps:
        instr.target = natives[index_at[target]]
    _set_handlers(code.co_exceptiontable, natives, index_at)
    return natives


def _operand_reader(code: CodeType) -> Callable[[str, int, int], tuple[Any, int]]:
    local, names, consts = localsplus_names(code), code.co_names, code.co_consts

    def read(op: str, opcode: int, arg: int) -> tuple[Any, int]:
        if opcode in _HAS_CONST:
            return consts[arg], 0
        if op in _PAIRS:
            return (local[arg >> 4], local[arg & 15]), 0
        if opcode in _HAS_LOCAL:
            return local[arg], 0
        if opcode in _HAS_NAME:
            bits = versions.NAME_FLAG_BITS.get(op, 0)
            return names[arg >> bits], arg & ((1 << bits) - 1)
        return arg, 0

    return read


def _varints(table: bytes) -> Iterator[int]:
    """The numbers of co_exceptiontable: 6 bits a byte, most significant first."""
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0


def _set_handlers(table: bytes, natives: list[Native], index_at: dict[int, int]) -> None:
    numbers = _varints(table)
    entries = list(zip(numbers, numbers, numbers, numbers))
    if not entries:
        return
    regions = [
        (2 * start, 2 * (start + length), Region(natives[index_at[to]], dl >> 1, bool(dl & 1)))
        for start, length, to, dl in entries
    ]
    todo = iter(regions)
    current = next(todo, None)
    for instr in natives:
        while current is not None and instr.offset >= current[1]:
            current = next(todo, None)
        if current is not None and instr.offset >= current[0]:
            instr.handler = current[2]
