"""Native instructions of the running version -> canonical instructions (see opcodes.CANONICAL).

    LOAD_GLOBAL (NULL + f)          LOAD_GLOBAL f
    LOAD_FAST x                     PUSH_NULL
    KW_NAMES ('y',)          ->     LOAD_FAST x
    PRECALL 1                       LOAD_CONST ('y',)
    CALL 1                          CALL_KW 1

The canonical stack and the frame's real stack hold the same items, with two differences, of which
the first is of 3.11 and 3.12 only (`real_stack` converts, given an instruction and the canonical
stack before it):

- The NULL of a call is below its callable: `callable NULL` is really `NULL callable`. Code pushes
  it before it evaluates the callable; canonical code does so after. Between the two the real stack
  has one item more, at the depths in `Instruction.pending_nulls`. (A method loaded by LOAD_METHOD
  is `method self` in both orders; without a self it is `callable NULL`, really `NULL callable`.)
- The tuple of keyword names is not taken along: a frame that goes on at CALL_KW goes on where its
  names are loaded (`Instruction.native`). On 3.11 and 3.12 it is no stack item at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeVar

from dynamo.bytecode import versions
from dynamo.bytecode.cache import CodeMap
from dynamo.bytecode.decode import NO_POSITIONS, Native, Positions, decode
from dynamo.bytecode.nulls import MisplacedNull, NullFlow, bits
from dynamo.bytecode.opcodes import CANONICAL

T = TypeVar("T")

FUNCTION_FLAGS = {1: "defaults", 2: "kwdefaults", 4: "annotations", 8: "closure"}
_HAS_ARGUMENT = frozenset(
    name for name, op in versions.OPMAP.items() if op in versions.HAS_ARGUMENT
)
_CONVERSIONS = {1: "str", 2: "repr", 3: "ascii"}


@dataclass(eq=False, slots=True)
class ExceptionHandler:
    """Where an exception goes: unwind the canonical stack to `depth`, push lasti if so, push it."""

    target: Instruction
    depth: int
    push_lasti: bool


class Instruction:
    """A canonical instruction; compared by identity.

    op: its name in opcodes.CANONICAL. arg: the integer operand, on which the stack effect may
    depend (0 where there is none). argval: the constant, name, operator symbol, ... target: where
    it jumps to. index: its place in the list. native: index of the native instruction at which the
    frame continues if it is to continue here (a native instruction may be several canonical ones,
    or less than one). landing: of FOR_ITER, where the native one goes: its target, or an END_FOR
    before it that is never executed.
    """

    __slots__ = (
        "arg", "argval", "handler", "index", "landing", "native", "offset", "op", "pending_nulls",
        "positions", "target",
    )  # fmt: skip

    def __init__(
        self, op: str, arg: int = 0, argval: Any = None, *, native: int = -1, offset: int = -1,
        positions: Positions = NO_POSITIONS,
    ) -> None:  # fmt: skip
        self.op = op
        self.arg = arg
        self.argval = argval
        self.target: Instruction | None = None
        self.landing: Instruction | None = None
        self.handler: ExceptionHandler | None = None
        self.native = native
        self.offset = offset
        self.positions = positions
        self.pending_nulls: tuple[int, ...] = ()
        self.index = -1

    @property
    def lineno(self) -> int | None:
        return self.positions[0]

    def __repr__(self) -> str:
        target = f" -> {self.target.index}" if self.target is not None else ""
        value = "" if self.argval is None and self.op != "LOAD_CONST" else f" {self.argval!r}"
        return f"<{self.index}: {self.op}{value or (f' {self.arg}' if self.arg else '')}{target}>"


class NormalizeError(Exception):
    """Code that no compiler of this version makes, or an opcode outside of functions' code."""


# -- one row per native opcode: its canonical (op, arg, argval) instructions -----------------------
_Row = tuple[str, int, Any]


def _same(native: Native) -> list[_Row]:
    """Equal name and meaning: an integer operand is both arg and argval."""
    op, value = native.op, native.value
    if type(value) is not int:
        return [(op, 0, value)]
    return [(op, value, value if op in _HAS_ARGUMENT else None)]


def _operand(native: Native) -> list[_Row]:
    """Equal name; the operand is a constant or a name."""
    return [(native.op, 0, native.value)]


def _to(op: str) -> Callable[[Native], list[_Row]]:
    return lambda native: [(op, 0, native.value)]


def _intrinsic(op: str, names: Sequence[str]) -> Callable[[Native], list[_Row]]:
    def rows(native: Native) -> list[_Row]:
        name = names[native.value].removeprefix("INTRINSIC_")
        if name in ("LIST_TO_TUPLE", "UNARY_POSITIVE"):
            return [(name, 0, None)]
        return [(op, 0, name)]

    return rows


def _load_global(native: Native) -> list[_Row]:
    load: _Row = ("LOAD_GLOBAL", 0, native.value)
    return [("PUSH_NULL", 0, None), load] if native.flags else [load]


def _load_attr(native: Native) -> list[_Row]:
    return [("LOAD_METHOD" if native.flags else "LOAD_ATTR", 0, native.value)]


def _load_super(native: Native) -> list[_Row]:
    op = "LOAD_SUPER_METHOD" if native.flags & 1 else "LOAD_SUPER_ATTR"
    return [(op, 0, (native.value, bool(native.flags & 2)))]


def _compare(native: Native) -> list[_Row]:
    symbol = versions.COMPARE_SYMBOLS[native.value >> versions.COMPARE_SHIFT]
    return [("COMPARE_OP", native.value, symbol)]


def _format_value(native: Native) -> list[_Row]:
    if native.value & 4:
        return [("FORMAT_WITH_SPEC", 0, None)]
    convert: list[_Row] = []
    if native.value:
        convert = [("CONVERT_VALUE", native.value, _CONVERSIONS[native.value])]
    return [*convert, ("FORMAT_SIMPLE", 0, None)]


def _make_function(native: Native) -> list[_Row]:
    flags = frozenset(name for bit, name in FUNCTION_FLAGS.items() if native.value & bit)
    return [("MAKE_FUNCTION", native.value, flags)]


# Rules other than `_same`, of all versions; names unknown to this version do no harm.
_RULES: dict[str, Callable[[Native], list[_Row]]] = {
    "LOAD_CONST": _operand,
    "KW_NAMES": _to("LOAD_CONST"),
    "LOAD_FAST_CHECK": _to("LOAD_FAST"),
    "LOAD_GLOBAL": _load_global,
    "LOAD_SUPER_ATTR": _load_super,
    "BINARY_OP": lambda n: [("BINARY_OP", n.value, versions.BINARY_SYMBOLS[n.value])],
    "COMPARE_OP": _compare,
    "IS_OP": lambda n: [("IS_OP", n.value, bool(n.value))],
    "CONTAINS_OP": lambda n: [("CONTAINS_OP", n.value, bool(n.value))],
    "CALL_FUNCTION_EX": lambda n: [("CALL_FUNCTION_EX", n.value & 1, bool(n.value & 1))],
    "CALL_INTRINSIC_1": _intrinsic("CALL_INTRINSIC_1", versions.INTRINSICS_1),
    "CALL_INTRINSIC_2": _intrinsic("CALL_INTRINSIC_2", versions.INTRINSICS_2),
    "ASYNC_GEN_WRAP": lambda n: [("CALL_INTRINSIC_1", 0, "ASYNC_GEN_WRAP")],
    "PREP_RERAISE_STAR": lambda n: [("CALL_INTRINSIC_2", 0, "PREP_RERAISE_STAR")],
    "FORMAT_VALUE": _format_value,
    "CONVERT_VALUE": lambda n: [("CONVERT_VALUE", n.value, _CONVERSIONS[n.value])],
    "MAKE_FUNCTION": _make_function,
    "SET_FUNCTION_ATTRIBUTE": lambda n: [
        ("SET_FUNCTION_ATTRIBUTE", n.value, FUNCTION_FLAGS[n.value])
    ],
    "JUMP_NO_INTERRUPT": lambda n: [("JUMP", 1, None)],
}
if versions.LOAD_ATTR_LOADS_METHODS:
    _RULES["LOAD_ATTR"] = _load_attr

_cache: CodeMap[list[Instruction]] = CodeMap()


def normalize(code: CodeType) -> list[Instruction]:
    """Canonical instructions of `code`; the same list every time, not to be changed.

    Raises NormalizeError where the code cannot be understood (it was not made by CPython's
    compiler).
    """
    return _cache.computed(code, lambda: normalize_natives(decode(code), code))


# -- building the list ----------------------------------------------------------------------------
def normalize_natives(natives: Sequence[Native], code: CodeType) -> list[Instruction]:
    """The work of `normalize`; `natives` is what `decode(code)` returns."""
    if not {*code.co_cellvars}.isdisjoint(code.co_freevars):
        raise NormalizeError("a cell and a free variable of one name (a class body)")
    draft, first = _translate(natives, {*code.co_cellvars, *code.co_freevars})
    position = {id(native): i for i, native in enumerate(natives)}
    regions: dict[int, ExceptionHandler] = {}
    for i, native in enumerate(natives):
        region = native.handler
        if region is None:
            continue
        if id(region) not in regions:
            assert region.depth is not None
            target = draft[first[position[id(region.target)]]]
            regions[id(region)] = ExceptionHandler(target, region.depth, region.push_lasti)
        for instr in draft[first[i] : first[i + 1]]:
            instr.handler = regions[id(region)]
    for i, native in enumerate(natives):
        if native.target is not None:
            instr, to = draft[first[i + 1] - 1], position[id(native.target)]
            instr.target = draft[first[to]]
            if native.op == "FOR_ITER" and versions.FOR_ITER_LANDING:
                instr.landing = instr.target
                instr.target = draft[first[to + len(versions.FOR_ITER_LANDING)]]
    if not versions.HAS_END_SEND:
        draft = _add_end_sends(draft)
    for i, instr in enumerate(draft):
        instr.index = i
    if versions.NULL_BELOW_CALLABLE and any(instr.op == "PUSH_NULL" for instr in draft):
        draft = _move_nulls(draft)
        for i, instr in enumerate(draft):
            instr.index = i
    return draft


def _translate(natives: Sequence[Native], cells: set[str]) -> tuple[list[Instruction], list[int]]:
    """Row by row; also the index of each native's first canonical instruction (and the end)."""
    draft: list[Instruction] = []
    first: list[int] = []
    keyword_names: Instruction | None = None  # the LOAD_CONST of the CALL_KW that must follow
    for i, native in enumerate(natives):
        first.append(len(draft))
        rule = _RULES.get(native.op)
        if rule is None and native.op not in CANONICAL:
            raise NormalizeError(f"opcode {native.op} at offset {native.offset}")
        for op, arg, argval in rule(native) if rule is not None else _same(native):
            instr = Instruction(
                op, arg, argval, native=i, offset=native.offset, positions=native.positions
            )
            draft.append(instr)
        last = draft[-1]
        if native.op == "KW_NAMES":
            keyword_names = last
        elif native.op == "CALL" and keyword_names is not None:
            last.op, last.argval = "CALL_KW", keyword_names.argval
            last.native = keyword_names.native
            keyword_names = None
        elif native.op == "CALL_KW":
            last.argval, last.native = draft[-2].argval, draft[-2].native
        elif native.op == "LOAD_FAST" and native.value in cells and _loads_cell(natives, i):
            last.op = "LOAD_CLOSURE"
        elif native.op == "FORMAT_VALUE" and native.value in _CONVERSIONS:
            # One native instruction converts and formats. Formatting a str gives itself, so a frame
            # that continues between the two may continue after both.
            last.native = i + 1
    first.append(len(draft))
    return draft, first


def _loads_cell(natives: Sequence[Native], i: int) -> bool:
    """Whether LOAD_FAST of a cell variable (3.13) is LOAD_CLOSURE, for a function's closure.

    Else it reads the variable of an inlined comprehension, which is no cell there: the
    comprehension puts the cell of this name aside and uses its slot. (The cells that class bodies
    load are no variables of comprehensions.)
    """
    if str(natives[i].value).startswith("__class"):
        return True
    start = end = i
    while start and natives[start - 1].op == "LOAD_FAST":
        start -= 1
    while natives[end].op == "LOAD_FAST":
        end += 1
    if natives[end].op != "BUILD_TUPLE" or natives[end + 1].op != "LOAD_CONST":
        return False
    closure = tuple(native.value for native in natives[end - natives[end].value : end])
    code = natives[end + 1].value
    return start <= end - len(closure) <= i and closure == getattr(code, "co_freevars", None)


def _add_end_sends(draft: list[Instruction]) -> list[Instruction]:
    """3.11's SEND drops the receiver when it jumps; give it the END_SEND of later versions."""
    ends: dict[int, Instruction] = {}
    for instr in draft:
        if instr.op == "SEND":
            after = instr.target
            assert after is not None
            end = Instruction(
                "END_SEND", native=after.native, offset=after.offset, positions=instr.positions
            )
            end.handler = after.handler
            instr.target = ends[id(after)] = end
    result: list[Instruction] = []
    for instr in draft:
        if id(instr) in ends:
            result.append(ends[id(instr)])
        result.append(instr)
    return result


def _move_nulls(draft: list[Instruction]) -> list[Instruction]:
    """Move every PUSH_NULL behind its callable (see nulls.py) and count handlers' depths so."""
    try:
        flow = NullFlow(draft)
    except MisplacedNull as error:
        raise NormalizeError(str(error)) from error
    result: list[Instruction] = []
    # By index in draft, where a jump there goes now: to the PUSH_NULL put before it, or past that.
    with_null: dict[int, Instruction] = {}
    without_null: dict[int, Instruction] = {}
    removed: list[int] = []  # the PUSH_NULLs right before this instruction
    for i, instr in enumerate(draft):
        pending = flow.pending[i] or 0
        if flow.insert[i]:
            null = Instruction(
                "PUSH_NULL", native=instr.native, offset=instr.offset, positions=instr.positions
            )
            null.handler = instr.handler
            null.pending_nulls = bits(pending | flow.insert[i])
            with_null[i] = null
            result.append(null)
            result += _below_arguments(instr, null) if flow.is_swapped(instr) else []
        if instr.op == "PUSH_NULL" and flow.depth[i] is not None:
            removed.append(i)
            continue
        if removed and draft[i - 1].native == instr.native:  # LOAD_GLOBAL pushes the NULL itself
            pending = flow.pending[i - 1] or 0
        instr.pending_nulls = bits(pending)
        result.append(instr)
        for index in (*removed, i):
            without_null[index] = instr
        removed.clear()
    handlers: set[int] = set()
    for instr in draft:
        if instr.target is not None:
            to = instr.target.index
            takes_null = flow.jumps_to_insert[instr.index] and to in with_null
            instr.target = with_null[to] if takes_null else without_null[to]
        handler = instr.handler
        if handler is not None and id(handler) not in handlers:
            handlers.add(id(handler))
            below = (flow.pending[instr.index] or 0) & ((1 << handler.depth) - 1)
            handler.target = without_null[handler.target.index]
            handler.depth -= below.bit_count()
    return result


def _below_arguments(call: Instruction, null: Instruction) -> Iterator[Instruction]:
    """Instructions that move the NULL from the top of the stack below the call's one or two
    arguments.
    """
    for depth in range(call.arg + 1, 1, -1):
        swap = Instruction("SWAP", depth, depth, native=call.native, offset=call.offset,
                           positions=call.positions)  # fmt: skip
        swap.handler, swap.pending_nulls = call.handler, null.pending_nulls
        yield swap


# -- stacks ---------------------------------------------------------------------------------------
def real_order(operands: Sequence[T], is_null: Callable[[T], bool]) -> list[T]:
    """Canonical stack items in the order in which this version wants them on the real stack.

    Each NULL of a call changes places with the callable below it on 3.11 and 3.12. `is_null` must
    not be true of an unbound local's place (LOAD_FAST_AND_CLEAR), which is another thing.
    """
    result: list[T] = []
    for item in operands:
        if versions.NULL_BELOW_CALLABLE and is_null(item):
            result.insert(len(result) - 1, item)
        else:
            result.append(item)
    return result


def real_stack(
    instr: Instruction, stack: Sequence[T], is_null: Callable[[T], bool], null: T
) -> list[T]:
    """The real stack before `instr`, bottom first, where the canonical one is `stack`.

    `null` is put where the real stack has a NULL that the canonical one does not have yet.
    """
    items = list(stack)
    if instr.op == "CALL_KW":
        items.pop()  # `native` of CALL_KW is where its names are loaded
    items = real_order(items, is_null)
    for depth in instr.pending_nulls:
        items.insert(depth, null)
    return items
