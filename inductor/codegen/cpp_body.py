"""The handler that renders tapes as C++ statements.

A statement goes to the block of the innermost loop its value depends on: `row` (before the loops
over a row), `mid` (inside all but the last of them) or `body`. A value is a vector exactly if it
depends on the vectorised variable; scalars are splatted where a vector needs them, in the block
they were made in. The same text serves scalars and vectors, since vec.h overloads every name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from fxgraph.sizes import Extent, hint, largest
from inductor.codegen.kernel import FEW, narrow_positions, positions_in_order, transposes
from inductor.index import ZERO, FloorDiv, Index, Indirect, Mod, Var
from inductor.ir import Loops
from inductor.operations import OPERATIONS
from inductor.ops import COMPUTE_TYPES, Access, Value, fits_in_32_bits

CPP_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.int16: "int16_t",
    torch.int8: "int8_t",
    torch.uint8: "uint8_t",
    torch.bool: "bool",
}

ROW, MID, BODY = range(3)
# Operators whose result is one of their operands, but for its sign.
MOVING = frozenset(["where", "maximum", "minimum", "relu", "abs", "neg"])
# A gather is tried as one load where a quotient of its index is constant over as many elements.
EVERY = range(2, FEW)  # strides at which elements are picked from whole loads
LONG_RUN, LAST_LANE = 16, "(lane_count(lanes) - 1)"
CHOSEN, IN_TURN = "[decltype(u)::value]", "[u]"  # of an array over the vectors of a group

# reduction: (start value, combining expression of a and v, lanes of a to one value)
REDUCTIONS = {
    "sum": ("0", "{a} + {v}", "sum_lanes"),
    "prod": ("1", "{a} * {v}", "prod_lanes"),
    "max": ("lowest", "maximum({a}, {v})", "max_lanes"),
    "min": ("highest", "minimum({a}, {v})", "min_lanes"),
    "any": ("false", "logical_or({a}, {v})", "any_lanes"),
    "all": ("true", "logical_and({a}, {v})", "all_lanes"),
}

# mode of a scatter -> the element of the old one, a, and the new, v
MODES = {
    "add": "{a} + {v}",
    "mul": "{a} * {v}",
    "max": "maximum({a}, {v})",
    "min": "minimum({a}, {v})",
}


@dataclass(frozen=True)
class Operand:
    """A rendered value: its C++ text, compute type, whether it is a vector, and its block."""

    text: str
    dtype: torch.dtype
    vector: bool = False
    level: int = ROW


@dataclass
class _Accumulator:
    name: str
    kind: str
    dtype: torch.dtype
    vector: bool
    extra: str = ""  # positions, for argmax
    extra_dtype: torch.dtype = torch.int64
    extra_start: str = ""


def literal(value: Any, dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        if value == torch.iinfo(torch.int64).min:
            return "INT64_MIN"
        return f"({CPP_TYPES[dtype]}){value}"
    suffix = "f" if dtype == torch.float32 else ""
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    if dtype == torch.float32:
        value = float(torch.tensor(value, dtype=torch.float32))
        if math.isinf(value):
            return literal(value, dtype)
    return f"{value!r}{suffix}"


def limit(dtype: torch.dtype, low: bool) -> Any:
    """The least (or greatest) value of a type: where a maximum (minimum) starts."""
    if dtype.is_floating_point:
        return -math.inf if low else math.inf
    if dtype == torch.bool:
        return not low
    info = torch.iinfo(dtype)
    return info.min if low else info.max


class Body:
    """Renders the steps of one kernel; `emitter` names constants and pointers and knows the
    loops."""

    def __init__(self, emitter: Any) -> None:
        self.emitter = emitter
        self.count = 0
        self.blocks: list[list[str]] = [[], [], []]
        self.declarations: list[str] = []
        self.after: list[str] = []
        self.known: dict[Any, Operand] = {}  # row-level values, for the whole kernel
        self.known_here: dict[Any, Operand] = {}  # deeper ones, for this pass
        self.made: dict[str, Operand] = {}  # buffers made at row level
        self.made_here: dict[str, Operand] = {}
        self.unrounded: dict[str, Operand] = {}  # values rounded to f16, and of what they are
        self.vectors: set[torch.dtype] = set()  # the types of which there are any
        self.rounded: set[str] = set()  # texts of values that bf16 holds exactly
        self.accumulators: list[_Accumulator] = []
        # statements around the rows of a square (see cpp_loops.py's _tiles)
        self.before_tile: list[str] = []
        self.after_tile: list[str] = []

    # -- blocks -----------------------------------------------------------------------------------

    def begin_pass(self) -> None:
        self.known_here, self.made_here, self.accumulators = {}, {}, []

    def _take(self, level: int) -> list[str]:
        lines, self.blocks[level] = self.blocks[level], []
        return lines

    def take_row(self) -> list[str]:
        return self._take(ROW)

    def take_mid(self) -> list[str]:
        return self._take(MID)

    def take_body(self) -> list[str]:
        return self._take(BODY)

    def take_declarations(self) -> list[str]:
        lines, self.declarations = self.declarations, []
        return lines

    def take_after(self) -> list[str]:
        lines, self.after = self.after, []
        return lines

    def take_tiles(self) -> tuple[list[str], list[str]]:
        return self.before_tile, self.after_tile

    def _is_tiled(self, index: Index) -> bool:
        tile, lane = self.emitter.tile, self.emitter.lane
        if self.emitter.interleaved is not None:
            return False
        return tile is not None and transposes(index, lane, tile)

    def _is_interleaved(self, index: Index) -> bool:
        short, lane = self.emitter.interleaved, self.emitter.lane
        if short is None or index.terms.get(short) != 1:
            return False
        return index.terms.get(lane) == short.size

    def _first_of_short(self, atom: Any) -> Index | None:
        return ZERO if atom is self.emitter.interleaved else None

    def _new_tile(self, dtype: torch.dtype) -> tuple[str, str]:
        """A declared square, and the expression for its current row."""
        name = f"g{self.count}"
        self.count += 1
        self.before_tile.append(f"{self._type(dtype, True)} {name}[W];")
        return name, f"{name}[q]"

    def take_inner_accumulators(self) -> tuple[list[str], list[str]]:
        """With sums taken in two levels: lines before and after each innermost loop."""
        opened, closed = [], []
        for a in self.accumulators:
            if self._has_total(a):
                opened += self._start(a, a.name)
                closed += self._join_unrolled(a)
                total = self._combine(a.kind, f"{a.name}t", self._first(a))
                line = f"{a.name}t = {total};"
                if self.emitter.grouped:
                    total = self._combine(a.kind, f"{a.name}t[k]", f"{a.name}[k]")
                    line = f"for (int k = 0; k < N; ++k) {a.name}t[k] = {total};"
                closed.append(line)
            else:
                self.declarations += self._start(a, a.name)
                self.after[:0] = self._join_unrolled(a)
        return opened, closed

    def _has_total(self, a: _Accumulator) -> bool:
        return bool(self.emitter.two_level) and not a.extra

    # -- names ------------------------------------------------------------------------------------

    def _chosen(self) -> str:
        return IN_TURN if self.emitter.streamed else CHOSEN

    def _level(self, vars: set[Var]) -> int:
        inner = self.emitter.inner
        if inner and inner[-1] in vars:
            return BODY
        return MID if any(v in vars for v in inner) else ROW

    def _type(self, dtype: torch.dtype, vector: bool) -> str:
        if not vector:
            return CPP_TYPES[dtype]
        self.vectors.add(dtype)
        return "mask" if dtype == torch.bool else f"vec<{CPP_TYPES[dtype]}>"

    def _emit(self, key: Any, text: str, dtype: torch.dtype, vector: bool, level: int) -> Operand:
        found = self.known.get(key) or self.known_here.get(key)
        if found is not None:
            return found
        name = self._define(self.blocks[level], text, dtype, vector, level)
        operand = Operand(name, dtype, vector, level)
        (self.known if level == ROW else self.known_here)[key] = operand
        return operand

    def _define(
        self, lines: list[str], text: str, dtype: torch.dtype, vector: bool, level: int
    ) -> str:
        """Give a value a name: in a group of columns, one of all of its vectors at row level."""
        name, kind = f"t{self.count}", self._type(dtype, vector)
        self.count += 1
        if level == ROW and self.emitter.grouped:
            self.declarations.append(f"{kind} {name}[N];")
            name += self._chosen()
            lines.append(f"{name} = {text};")
        else:
            lines.append(f"const {kind} {name} = {text};")
        return name

    def _vector(self, x: Operand) -> Operand:
        if x.vector:
            return x
        made = self._emit(("splat", x.text), f"splat({x.text})", x.dtype, True, x.level)
        if x.text in self.rounded:
            self.rounded.add(made.text)
        return made

    def _same_kind(self, args: tuple[Operand, ...]) -> tuple[list[Operand], bool]:
        vector = any(a.vector for a in args)
        return [self._vector(a) for a in args] if vector else list(args), vector

    # -- index expressions ------------------------------------------------------------------------

    def index(self, index: Index, lane: str | None = None) -> str:
        """C++ of an index; `lane` is added to the vectorised variable (and picks lanes of loaded
        indices)."""
        emitter = self.emitter
        parts: list[str] = []
        for atom, coefficient in sorted(index.terms.items(), key=lambda t: _rank(t[0], emitter)):
            text = self._atom(atom, lane)
            if coefficient == 1:
                parts.append(text)
            elif coefficient == -1:
                parts.append(f"-{text}")
            else:
                parts.append(f"{emitter.constant(coefficient)} * {text}")
        if index.const != 0 or not parts:
            parts.append(emitter.constant(index.const))
        return " + ".join(parts).replace("+ -", "- ")

    def _atom(self, atom: Any, lane: str | None) -> str:
        if isinstance(atom, Var):
            if lane is not None and atom is self.emitter.lane:
                return f"({atom.name} + {lane})"
            return atom.name
        if isinstance(atom, Indirect):
            operand = self.values[atom.value]
            return f"{operand.text}[{lane}]" if operand.vector else operand.text
        assert isinstance(atom, (FloorDiv, Mod))
        dividend = self.index(atom.dividend, lane)
        divisor = self.emitter.constant(largest(atom.divisor, 1))  # 0 where nothing is computed
        if not atom.dividend.is_natural():
            return f"{'idiv' if isinstance(atom, FloorDiv) else 'imod'}({dividend}, {divisor})"
        inner = dividend if dividend.isidentifier() else f"({dividend})"
        return f"({inner} {'/' if isinstance(atom, FloorDiv) else '%'} {divisor})"

    def _along_lane(self, index: Index) -> Extent | None:
        """The stride along the vectorised variable, or None if it is none."""
        lane = self.emitter.lane
        if lane is None:
            return 0
        for atom in index.terms:
            if isinstance(atom, (FloorDiv, Mod)):
                if self._varies(atom.dividend):
                    return None
            elif isinstance(atom, Indirect) and self.values[atom.value].vector:
                return None
        return index.terms.get(lane, 0)

    def _run(self, index: Index) -> tuple[int, str] | None:
        """Of an index with quotients along the lane: its step where none of them changes from the
        first lane to the last, and the condition for that; None: too few vectors are so."""
        whole: list[str] = []
        step = self._run_step(index, whole)
        if step not in (-1, 0, 1) or not whole:
            return None
        return step, " && ".join(whole)

    def _run_step(self, index: Index, whole: list[str]) -> int | None:
        total: Extent = 0
        for atom, coefficient in index.terms.items():
            if atom is self.emitter.lane:
                total = total + coefficient
            elif isinstance(atom, Indirect) and self.values[atom.value].vector:
                return None
            elif isinstance(atom, (FloorDiv, Mod)) and self._varies(atom.dividend):
                inner = self._run_step(atom.dividend, whole)
                if inner is None or hint(atom.divisor) < LONG_RUN * abs(inner):
                    return None
                first, last = (self._quotient(atom, lane) for lane in (None, LAST_LANE))
                if (unchanged := f"{first} == {last}") not in whole:
                    whole.append(unchanged)
                total = total + coefficient * (inner if isinstance(atom, Mod) else 0)
        return total if isinstance(total, int) else None

    def _quotient(self, atom: FloorDiv | Mod, lane: str | None) -> str:
        return self._atom(FloorDiv(atom.dividend, atom.divisor), lane)

    def _varies(self, index: Index) -> bool:
        return any(
            a is self.emitter.lane or (isinstance(a, Indirect) and self.values[a.value].vector)
            for a in index.atoms()
        )

    def _index_level(self, index: Index) -> int:
        level = self._level(index.variables())
        for atom in index.atoms():
            if isinstance(atom, Indirect):
                level = max(level, self.values[atom.value].level)
        return level

    def _index_key(self, index: Index) -> Any:
        """Equal for equal positions, also between tapes (whose loaded indices are different
        objects)."""
        if not any(isinstance(a, Indirect) for a in index.atoms()):
            return index
        return self.index(index, "l")

    # -- the handler ------------------------------------------------------------------------------

    def step(self, step: Loops) -> None:
        self.values: dict[Value, Operand] = {}
        self.narrow = narrow_positions(self.emitter.kernel, step)
        for v in step.tape.values:
            args = tuple(self.values[a] for a in v.args)
            method = getattr(self, f"_op_{v.op}", self._op_call)
            made = self.values[v] = method(v, *args)
            if self._is_rounded(v, args):
                self.rounded.add(made.text)
        results = [self.values[v] for v in step.values]
        if step.mode is not None:
            self._scatter(step, results[0])
        elif step.reduction is not None:
            self._reduce(step, results)
        else:
            self._store(step, results[0], self._index_level(step.index))

    def _is_rounded(self, v: Value, args: tuple[Operand, ...]) -> bool:
        """Whether bf16 holds a value exactly, so that storing it need not round."""
        if v.op == "to_dtype":
            return v.attr == torch.bfloat16
        if v.op == "load":
            name = v.attr.buffer
            computed = name in self.emitter.scratch or name in self.made or name in self.made_here
            return not computed and self.emitter.target(name).dtype == torch.bfloat16
        if v.op == "constant":
            return v.dtype == torch.float32 and v.attr == 0
        return v.op in MOVING and all(a.text in self.rounded for a in args if a.dtype != torch.bool)

    def _op_constant(self, v: Value) -> Operand:
        return Operand(literal(v.attr, v.dtype), v.dtype)

    def _op_load(self, v: Value, *args: Operand) -> Operand:
        access: Access = v.attr
        name = access.buffer
        made = self.made.get(name) or self.made_here.get(name)
        mask = args[0] if access.masked else None
        if made is not None and mask is not None:  # a load gives 0 outside of its mask
            nothing = literal(False if made.dtype == torch.bool else 0, made.dtype)
            return self._op_where(v, mask, made, Operand(nothing, made.dtype))
        if made is not None:
            return made
        stride = self._along_lane(access.index)
        vector = stride != 0
        level = self._index_level(access.index)
        if name in self.emitter.scratch:
            pointer, position = self._scratch(name)
            level = BODY if self.emitter.inner else ROW
            stride, vector = (1, True) if self.emitter.lane is not None else (0, False)
        else:
            pointer, position = self.emitter.pointer(name), self.index(access.index)
        if mask is not None:
            level = max(level, mask.level)
            vector = vector or mask.vector
        key = ("load", name, self._index_key(access.index), mask.text if mask else None)
        if mask is None and self._is_tiled(access.index):
            if (found := self.known_here.get(key)) is not None:
                return found
            square, row = self._new_tile(v.dtype)
            jump = self.emitter.constant(stride)
            self.before_tile.append(
                f"load_tile({square}, {pointer} + {position}, {jump}, lanes, across);"
            )
            return self._emit(key, row, v.dtype, True, BODY)
        if not vector:
            at = f"{pointer}[{position}]"
            text = f"get({at})" if mask is None else f"get_if({mask.text}, &{at})"
            return self._emit(key, text, v.dtype, False, level)
        condition = f"{mask.text}, " if mask else ""
        suffix = "_if" if mask else ""
        if stride == 0:
            text = f"load_same_if({condition}{pointer} + {position}, lanes)"
        elif stride == 1:
            text = f"load{suffix}({condition}{pointer} + {position}, lanes)"
        elif stride in EVERY and (mask is None or not mask.vector):
            text = f"load_every{suffix}<{stride}>({condition}{pointer} + {position}, lanes)"
        elif stride == -1:
            text = f"load_reversed{suffix}({condition}{pointer} + {position}, lanes)"
        else:
            each = f"[&](int64_t l) {{ return {self.index(access.index, 'l')}; }}"
            text = f"gather{suffix}({condition}{pointer}, lanes, {each})"
            if (run := self._run(access.index)) is not None:
                step_of_run, whole = run
                condition = f"{condition}{whole}, "
                text = f"load_run{suffix}<{step_of_run}>({condition}{pointer}, lanes, {each})"
        return self._emit(key, text, v.dtype, True, level)

    def _op_index_expr(self, v: Value, *args: Operand) -> Operand:
        index: Index = v.attr
        stride = self._along_lane(index)
        level = self._index_level(index)
        dtype = torch.int32 if v is self.narrow else v.dtype
        key = ("index", self._index_key(index), dtype)
        kind = CPP_TYPES[dtype]
        large = dtype == torch.int32 and v is not self.narrow and not fits_in_32_bits(index)
        number = "in_32_bits" if large else ""
        if stride == 0:
            return self._emit(key, f"({kind}){number}({self.index(index)})", dtype, False, level)
        if stride is None or (large and not (isinstance(stride, int) and abs(stride) < 1 << 16)):
            each = f"[&](int64_t l) {{ return {number}({self.index(index, 'l')}); }}"
            return self._emit(key, f"each_lane<{kind}>({each})", dtype, True, level)
        text = f"iota<{kind}>({number}({self.index(index)}), {self.emitter.constant(stride)})"
        return self._emit(key, text, dtype, True, level)

    def _op_to_dtype(self, v: Value, x: Operand) -> Operand:
        to = v.attr
        key = ("cast", to, x.text)
        if to != COMPUTE_TYPES[to]:
            text = f"round_{CPP_TYPES[to]}({x.text})"
        elif to == torch.bool:
            text = f"nonzero({x.text})" if x.vector else f"{x.text} != 0"
        elif x.dtype == torch.bool and x.vector:
            text = f"cast_mask<{CPP_TYPES[to]}>({x.text})"
        else:
            text = f"cast<{CPP_TYPES[to]}>({x.text})"
        made = self._emit(key, text, v.dtype, x.vector, x.level)
        if to == torch.float16 and x.dtype == torch.float32:
            self.unrounded[made.text] = x
        return made

    def _op_where(self, v: Value, condition: Operand, yes: Operand, no: Operand) -> Operand:
        (c, y, n), vector = self._same_kind((condition, yes, no))
        level = max(c.level, y.level, n.level)
        text = f"select({c.text}, {y.text}, {n.text})"
        return self._emit(text, text, v.dtype, vector, level)

    def _op_call(self, v: Value, *args: Operand) -> Operand:
        operands, vector = self._same_kind(args)
        level = max(a.level for a in operands)
        text = OPERATIONS[v.op].cpp.format(*(a.text for a in operands))
        return self._emit(text, text, v.dtype, vector, level)

    # -- results ----------------------------------------------------------------------------------

    def _scratch(self, name: str) -> tuple[str, str]:
        """Pointer and position of the current element in a row kept on the stack."""
        number = list(self.emitter.scratch).index(name)
        position = ""
        step: Extent = 1
        for v in reversed(self.emitter.inner):
            term = v.name if step == 1 else f"{self.emitter.constant(step)} * {v.name}"
            position = f"{term} + {position}" if position else term
            step = step * v.size
        if self.emitter.grouped:
            return f"s{number}", f"W * (N * ({position or 0}) + decltype(u)::value)"
        if self.emitter.lane_outer:
            return f"s{number}", f"W * ({position or 0})"
        return f"s{number}", position or "0"

    def _store(self, step: Loops, value: Operand, level: int) -> None:
        name = step.target.name
        table = self.made if level == ROW else self.made_here
        table[name] = value
        level = max(level, value.level)
        lines = self.blocks[level]
        if name in self.emitter.scratch:
            pointer, position = self._scratch(name)
            if self.emitter.lane is None:
                lines.append(f"put({pointer} + {position}, {value.text});")
            else:
                lines = self.blocks[BODY]
                lines.append(f"store({pointer} + {position}, {self._vector(value).text}, lanes);")
        elif name in self.emitter.live:
            self._write(step, value, lines)

    def _write(self, step: Loops, value: Operand, lines: list[str]) -> None:
        if step.target.dtype == torch.float16:  # a store rounds; once is enough
            value = self.unrounded.get(value.text, value)
        pointer = self.emitter.pointer(step.target.name)
        position = self.index(step.index)
        stride = self._along_lane(step.index)
        if stride == 0 or self.emitter.lane is None:
            assert not value.vector, "a vector for one element"
            lines.append(f"put({pointer} + {position}, {value.text});")
        elif stride == 1:
            text = self._written(value, lines)
            rounded = value.text in self.rounded and step.target.dtype == torch.bfloat16
            store = "store_rounded" if rounded else "store"
            lines.append(f"{store}({pointer} + {position}, {text}, lanes);")
        elif self._is_interleaved(step.index):
            values, short = f"g{self.count}", self.emitter.interleaved
            self.count += 1
            self.before_tile.append(f"{self._type(value.dtype, True)} {values}[{short.size}];")
            self.blocks[BODY].append(f"{values}[{short.name}] = {self._vector(value).text};")
            place = self.index(step.index.substitute(self._first_of_short))
            self.after_tile.append(f"store_interleaved({pointer} + {place}, {values}, lanes);")
        elif self._is_tiled(step.index):
            square, row = self._new_tile(value.dtype)
            self.blocks[BODY].append(f"{row} = {self._vector(value).text};")
            jump = self.emitter.constant(stride)
            self.after_tile.append(
                f"store_tile({pointer} + {position}, {jump}, {square}, lanes, across);"
            )
        else:
            each = self.index(step.index, "l")
            text = self._written(value, lines)
            lines.append(f"scatter({pointer}, {text}, lanes, [&](int64_t l) {{ return {each}; }});")

    def _written(self, value: Operand, lines: list[str]) -> str:
        """The vector that `lines` store. The result of a reduction is known only after the loop."""
        if lines is self.after and not value.vector:
            return f"splat({value.text})"
        return self._vector(value).text

    def _scatter(self, step: Loops, value: Operand) -> None:
        """Read, combine, write: one lane after another where lanes may meet."""
        mode, emitter = step.mode, self.emitter
        lines = self.blocks[BODY if emitter.inner else ROW]
        pointer = emitter.pointer(step.target.name)
        place = f"{pointer} + {self.index(step.index)}"
        if emitter.lane is None:
            lines.append(f"put({place}, {self._combined(mode, f'get(*({place}))', value.text)});")
            return
        new = self._vector(value).text
        if self._along_lane(step.index) == 1:
            new = self._combined(mode, f"load({place}, lanes)", new)
            lines.append(f"store({place}, {new}, lanes);")
            return
        each = f"[&](int64_t l) {{ return {self.index(step.index, 'l')}; }}"
        if mode == "set":
            lines.append(f"scatter({pointer}, {new}, lanes, {each});")
            return
        combine = f"[](auto a, auto v) {{ return {self._combined(mode, 'a', 'v')}; }}"
        lines.append(f"scatter({pointer}, {new}, lanes, {each}, {combine});")

    @staticmethod
    def _combined(mode: str | None, old: str, new: str) -> str:
        return MODES[mode].format(a=old, v=new) if mode in MODES else new

    # -- reductions -------------------------------------------------------------------------------

    def _start(self, a: _Accumulator, name: str) -> list[str]:
        """Declaration of an accumulator (or of four, see each_vector4)."""
        start = self._start_value(a)
        kind = self._type(a.dtype, a.vector)
        if a.vector:
            start = f"splat({start})"
        if self.emitter.unroll and name == a.name:
            return [f"{kind} {name}[4] = {{{', '.join([start] * 4)}}};"]
        variables = [(kind, name, start)]
        if a.extra:
            variables.append((self._type(a.extra_dtype, a.vector), a.extra, a.extra_start))
        if self.emitter.grouped:
            return [f"{t} {n}[N]; fill_all({n}, {x});" for t, n, x in variables]
        return [f"{t} {n} = {x};" for t, n, x in variables]

    @staticmethod
    def _start_value(a: _Accumulator) -> str:
        if a.kind in ("argmax", "argmin"):
            return literal(limit(a.dtype, a.kind == "argmax"), a.dtype)
        start = REDUCTIONS[a.kind][0]
        if start in ("lowest", "highest"):
            return literal(limit(a.dtype, start == "lowest"), a.dtype)
        if a.dtype == torch.bool:
            return start
        return literal(float(start) if a.dtype.is_floating_point else int(start), a.dtype)

    @staticmethod
    def _combine(kind: str, a: str, v: str) -> str:
        return REDUCTIONS[kind][1].format(a=a, v=v)

    def _first(self, a: _Accumulator) -> str:
        return f"{a.name}[0]" if self.emitter.unroll else a.name

    def _join_unrolled(self, a: _Accumulator) -> list[str]:
        if not self.emitter.unroll:
            return []
        pairs = [(0, 1), (2, 3), (0, 2)]
        return [
            f"{a.name}[{i}] = {self._combine(a.kind, f'{a.name}[{i}]', f'{a.name}[{j}]')};"
            for i, j in pairs
        ]

    def _reduce(self, step: Loops, results: list[Operand]) -> None:
        emitter = self.emitter
        kind = step.reduction
        assert kind is not None
        looped = (
            emitter.lane is not None and bool(emitter.inner) and emitter.lane is emitter.inner[-1]
        )
        operands = [self._vector(r) for r in results] if looped else results
        if any(r.vector for r in operands):
            operands = [self._vector(r) for r in operands]
        vector = operands[0].vector
        name = f"a{self.count}"
        self.count += 1
        arg = kind in ("argmax", "argmin")
        accumulator = _Accumulator(name, kind, results[0].dtype, vector)
        chosen = self._chosen() if emitter.unroll or emitter.grouped else ""
        target = name + chosen
        if arg:
            self._positions(accumulator, step, operands[1].dtype, looped)
        self.accumulators.append(accumulator)
        if self._has_total(accumulator):
            self.declarations += self._start(accumulator, f"{name}t")
        lines = self.blocks[BODY]
        if arg:
            x, i, at = operands[0].text, operands[1].text, f"{accumulator.extra}{chosen}"
            compared = [x, target]
            if not positions_in_order(emitter.kernel, step):
                compared = [x, i, target, at]
            better = f"{'arg_greater' if kind == 'argmax' else 'arg_less'}({', '.join(compared)})"
            if looped:
                better = f"some(lanes, {better})"
            lines.append(f"arg_step({better}, {target}, {at}, {x}, {i});")
            text = f"{kind}_lanes({target}, {at})" if looped else f"cast<int64_t>({at})"
            dtype = torch.int64
        else:
            combined = self._combine(kind, target, operands[0].text)
            if looped:
                combined = f"keep(lanes, {combined}, {target})"
            lines.append(f"{target} = {combined};")
            final = f"{name}t" if emitter.two_level else self._first(accumulator)
            if emitter.grouped:
                final += chosen
            text = f"{REDUCTIONS[kind][2]}({final})" if looped else final
            dtype = results[0].dtype
        kept_vector = vector and not looped
        out = self._define(self.after, text, dtype, kept_vector, ROW)
        operand = Operand(out, dtype, kept_vector, ROW)
        self.made[step.target.name] = operand
        if step.target.name in emitter.live:
            self._write(step, operand, self.after)

    def _positions(self, a: _Accumulator, step: Loops, dtype: torch.dtype, looped: bool) -> None:
        """Where the positions of an argmax start: at those that come first, or, if they come in
        no order, beyond all."""
        a.extra, a.extra_dtype = f"{a.name}i", dtype
        kind = CPP_TYPES[dtype]
        if positions_in_order(self.emitter.kernel, step):
            a.extra_start = f"iota<{kind}>(0, 1)" if looped else f"({kind})0"
        else:
            a.extra_start = "INT64_MAX" if dtype == torch.int64 else "INT32_MAX"
        if a.vector and not a.extra_start.startswith("iota"):
            a.extra_start = f"splat({a.extra_start})"


def _rank(atom: Any, emitter: Any) -> tuple[int, str]:
    """A fixed order of the terms of an index: outer variables, inner ones, the rest."""
    order = [*emitter.outer, *emitter.inner]
    if isinstance(atom, Var):
        return order.index(atom) if atom in order else len(order), atom.name
    return len(order) + 1, ""
