"""The operations of loop bodies, and tapes of them.

A lowering describes one element of its result by a function of index expressions, written against
`ops`:

    lambda idx: ops.mul(x.load(idx), ops.constant(2.0, torch.float32))

Running that function once under `recording(tape)` leaves a `Tape`: the body as a flat list of
`Value`s, equal ones made once. Everything later reads the tape through a handler, which is any
object with the methods of `Handler`: the printer below, the read set, the C++ emitter, Triton.

Values have *compute* types: half and bfloat16 are widened to float32 by a load and rounded by a
store (or by an explicit `to_dtype`), so a fused kernel rounds once where eager rounds after every
operation.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fxgraph.sizes import Extent, Size, Undecided, known_le, known_lt
from inductor.index import Index, Indirect
from inductor.operations import BOOL, OPERATIONS

COMPUTE_TYPES = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    **{
        t: t
        for t in (
            torch.float32,
            torch.float64,
            torch.int64,
            torch.int32,
            torch.int16,
            torch.int8,
            torch.uint8,
            torch.bool,
        )
    },
}


class Value:
    """An operation of a tape. `attr` holds non-value arguments: a constant, (buffer, index), a
    type.
    """

    __slots__ = ("args", "attr", "dtype", "id", "op")

    def __init__(self, id: int, op: str, args: tuple[Value, ...], dtype: torch.dtype, attr: Any):
        self.id = id
        self.op = op
        self.args = args
        self.dtype = dtype
        self.attr = attr

    def __repr__(self) -> str:
        return f"v{self.id}"


@dataclass(frozen=True)
class Access:
    """Where a load reads: one element of `buffer`. A masked load yields 0 where its mask is
    false."""

    buffer: str
    index: Index
    masked: bool = False


class Handler(Protocol):
    """An interpreter of a tape. `args` are the handler's own results of earlier values."""

    def load(self, value: Value, access: Access, mask: Any | None) -> Any: ...
    def constant(self, value: Value) -> Any: ...
    def index_expr(self, value: Value, index: Index) -> Any: ...
    def to_dtype(self, value: Value, arg: Any) -> Any: ...
    def where(self, value: Value, condition: Any, yes: Any, no: Any) -> Any: ...
    def call(self, value: Value, *args: Any) -> Any: ...


class Tape:
    """A body: values in order, every argument before its use."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.masks: list[Value] = []
        self._known: dict[Any, Value] = {}

    def emit(self, op: str, args: tuple[Value, ...], dtype: torch.dtype, attr: Any = None) -> Value:
        key: tuple[Any, ...] = (op, tuple(a.id for a in args), dtype, attr)
        if op == "constant":  # 0.0 == -0.0 and nan != nan, so a key needs the exact spelling
            key = (op, dtype, repr(attr))
        found = self._known.get(key)
        if found is None:
            found = Value(len(self.values), op, args, dtype, attr)
            self.values.append(found)
            self._known[key] = found
        return found

    def interpret(self, handler: Any) -> dict[Value, Any]:
        """Run the body under `handler`; the handler's result of every value."""
        results: dict[Value, Any] = {}
        for value in self.values:
            args = [results[a] for a in value.args]
            match value.op:
                case "load":
                    mask = args[0] if value.attr.masked else None
                    results[value] = handler.load(value, value.attr, mask)
                case "constant":
                    results[value] = handler.constant(value)
                case "index_expr":
                    results[value] = handler.index_expr(value, value.attr)
                case "to_dtype":
                    results[value] = handler.to_dtype(value, *args)
                case "where":
                    results[value] = handler.where(value, *args)
                case _:
                    results[value] = handler.call(value, *args)
        return results

    def of(self, wanted: list[Value]) -> Tape:
        """The values that `wanted` ones are made of, as a tape of their own."""
        needed: set[int] = set()
        while wanted:
            value = wanted.pop()
            if value.id in needed:
                continue
            needed.add(value.id)
            wanted += value.args
            index = value.attr.index if value.op == "load" else value.attr
            if isinstance(index, Index):
                wanted += indirect_values(index)
        result = Tape()
        result.values = [v for v in self.values if v.id in needed]
        return result

    def loads(self) -> Iterator[Access]:
        return (v.attr for v in self.values if v.op == "load")

    def indices(self) -> Iterator[Index]:
        for value in self.values:
            if value.op == "load":
                yield value.attr.index
            elif value.op == "index_expr":
                yield value.attr


_state = threading.local()


@contextmanager
def recording(tape: Tape) -> Iterator[Tape]:
    """Operations called inside are recorded on `tape`."""
    before = getattr(_state, "tape", None)
    _state.tape = tape
    try:
        yield tape
    finally:
        _state.tape = before


def indirect_values(index: Index) -> tuple[Value, ...]:
    """The loaded values in an index."""
    found = {a.value.id: a.value for a in index.atoms() if isinstance(a, Indirect)}
    return tuple(found.values())


class Ops:
    """The vocabulary. The rows of OPERATIONS are methods too: ops.add(a, b), ops.exp(a), ..."""

    def __getattr__(self, name: str) -> Callable[..., Value]:
        try:
            row = OPERATIONS[name]
        except KeyError:
            raise AttributeError(name) from None

        def operation(*args: Value) -> Value:
            assert len(args) == row.arity, name
            dtype = torch.bool if row.result == BOOL else args[0].dtype
            assert all(a.dtype == args[0].dtype for a in args), (name, [a.dtype for a in args])
            simple = _SIMPLIFY.get(name)
            if simple is not None and (result := simple(*args)) is not None:
                return result
            return _state.tape.emit(name, args, dtype)

        operation.__name__ = name
        setattr(self, name, operation)
        return operation

    def load(self, buffer: str, index: Index, dtype: torch.dtype) -> Value:
        """An element of a buffer of type `dtype`."""
        tape = _state.tape
        masks = (self._mask(),) if tape.masks else ()
        args = masks + indirect_values(index)
        return tape.emit("load", args, COMPUTE_TYPES[dtype], Access(buffer, index, bool(masks)))

    def constant(self, value: bool | int | float | Size, dtype: torch.dtype) -> Value:
        dtype = COMPUTE_TYPES[dtype]
        if isinstance(value, Size) and dtype == torch.bool:
            number = self.index_expr(Index({}, value), torch.int64)
            return self.ne(number, self.constant(0, torch.int64))
        if isinstance(value, Size):
            return self.index_expr(Index({}, value), dtype)
        if dtype == torch.bool:
            value = bool(value)
        elif dtype.is_floating_point:
            value = float(value)
        else:
            value = _wrap_integer(value, dtype)
        return _state.tape.emit("constant", (), dtype, value)

    def index_expr(self, index: Index, dtype: torch.dtype) -> Value:
        """An index as a number. In 32 bits, one that does not fit is some number of its sign."""
        if not index.terms and not isinstance(index.const, Size):
            info = torch.iinfo(dtype) if dtype == torch.int32 else torch.iinfo(torch.int64)
            return self.constant(min(max(index.const, info.min), info.max), dtype)
        return _state.tape.emit("index_expr", indirect_values(index), dtype, index)

    def indirect(self, value: Value, size: Extent) -> Index:
        """A loaded integer as an index into [0, size); negative values count from the end."""
        value = self.to_dtype(value, torch.int64)
        zero = self.constant(0, torch.int64)
        wrapped = self.where(
            self.lt(value, zero), self.add(value, self.constant(size, torch.int64)), value
        )
        return self.indirect_checked(wrapped, size)

    def indirect_checked(self, value: Value, size: Extent) -> Index:
        """A loaded integer as an index; out of [0, size) it is moved inside, so that memory is
        safe."""
        last = self.constant(size - 1, torch.int64)
        inside = self.minimum(self.maximum(value, self.constant(0, torch.int64)), last)
        return Index({Indirect(inside, size): 1})

    def to_dtype(self, value: Value, dtype: torch.dtype) -> Value:
        """Conversion as Tensor.to does it: rounds to a half type's values, which stay float32
        here."""
        if value.dtype == dtype:
            return value
        foldable = value.op == "constant" and COMPUTE_TYPES[dtype] == dtype
        if foldable and (folded := _convert_constant(value, dtype)):
            return self.constant(folded[0], dtype)
        if value.op == "where" and all(v.op == "constant" for v in value.args[1:]):
            numbers = (self.to_dtype(v, dtype) for v in value.args[1:])
            return self.where(value.args[0], *numbers)
        if value.dtype == torch.float32 and COMPUTE_TYPES[dtype] == torch.float32:
            return _state.tape.emit("to_dtype", (value,), torch.float32, dtype)
        if COMPUTE_TYPES[dtype] != dtype:  # to float32 first, then round
            return self.to_dtype(self.to_dtype(value, torch.float32), dtype)
        return _state.tape.emit("to_dtype", (value,), dtype, dtype)

    def to_compute(self, value: Value, dtype: torch.dtype) -> Value:
        """Conversion of an operand to the type that an operation computes in: never rounds to
        half."""
        return self.to_dtype(value, COMPUTE_TYPES[dtype])

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        assert condition.dtype == torch.bool and yes.dtype == no.dtype
        if condition.op == "constant":
            return yes if condition.attr else no
        if yes is no:
            return yes
        return _state.tape.emit("where", (condition, yes, no), yes.dtype)

    def masked(self, mask: Value, body: Callable[[], Value], other: float) -> Value:
        """`body()` where `mask` holds, `other` elsewhere; loads inside do not touch memory
        elsewhere."""
        if mask.op == "constant":
            return body() if mask.attr else self.constant(other, body().dtype)
        tape = _state.tape
        tape.masks.append(mask)
        try:
            result = body()
        finally:
            tape.masks.pop()
        if other == 0 and result.op == "load" and math.copysign(1.0, other) > 0:
            return result
        return self.where(mask, result, self.constant(other, result.dtype))

    def _mask(self) -> Value:
        first, *rest = _state.tape.masks
        for mask in rest:
            first = self.logical_and(first, mask)
        return first


def _wrap_integer(value: float, dtype: torch.dtype) -> int:
    if isinstance(value, float) and not math.isfinite(value):
        info = torch.iinfo(dtype)
        return info.max if value > 0 else info.min
    info = torch.iinfo(dtype)
    span = 1 << info.bits
    wrapped = int(value) % span
    return wrapped - span if wrapped > info.max else wrapped


def _convert_constant(value: Value, dtype: torch.dtype) -> tuple[Any] | None:
    """A one-tuple with the converted constant, or None where the conversion is not exact to
    fold."""
    if isinstance(value.attr, float) and not dtype.is_floating_point and dtype != torch.bool:
        return (torch.tensor([value.attr], dtype=value.dtype).to(dtype).item(),)  # wraps round
    if dtype == torch.float32 and isinstance(value.attr, (int, float)):
        return (float(torch.tensor(value.attr, dtype=torch.float32)),)
    return (value.attr,)


def _is(value: Value, number: float) -> bool:
    return (
        value.op == "constant"
        and value.attr == number
        and math.copysign(1.0, value.attr) == math.copysign(1.0, number)
    )


def _add(a: Value, b: Value) -> Value | None:
    if _is(b, 0) and not a.dtype.is_floating_point:  # -0.0 + 0.0 is 0.0
        return a
    return _of_indices(a, b, lambda x, y: x + y)


def _sub(a: Value, b: Value) -> Value | None:
    return _of_indices(a, b, lambda x, y: x - y)


def _of_indices(a: Value, b: Value, fn: Callable[[Index, Index], Index]) -> Value | None:
    """The sum or difference of two indices as an index."""
    one, other = _index(a), _index(b)
    if a.op == b.op == "constant" or one is None or other is None:
        return None
    return ops.index_expr(fn(one, other), torch.int64)


def _index(value: Value) -> Index | None:
    """The 64-bit integer as an index, if loop variables and sizes make it."""
    if value.dtype != torch.int64:
        return None
    if value.op == "constant":
        return Index({}, value.attr)
    if value.op != "index_expr" or any(isinstance(atom, Indirect) for atom in value.attr.atoms()):
        return None
    return value.attr


def _mul(a: Value, b: Value) -> Value | None:
    return a if _is(b, 1) else b if _is(a, 1) else None


def _logical_and(a: Value, b: Value) -> Value | None:
    for one, other in ((a, b), (b, a)):
        if one.op == "constant":
            return other if one.attr else one
    return None


def _compare(name: str) -> Callable[[Value, Value], Value | None]:
    """Comparisons of an index with a constant that its bounds decide; masks of padding need
    them."""
    holds = {"lt": known_lt, "le": known_le, "gt": _known_gt, "ge": _known_ge}
    rule, opposite = holds[name], holds[_OPPOSITE[name]]

    def simplify(a: Value, b: Value) -> Value | None:
        decided = decide(a, b)
        return _compared_in_32_bits(name, a, b) if decided is None else decided

    def decide(a: Value, b: Value) -> Value | None:
        number = _number(b)
        if number is None or a.op not in ("index_expr", "constant"):
            return None
        if a.dtype.is_floating_point or a.dtype == torch.bool:
            return None
        try:
            low, high = a.attr.bounds() if a.op == "index_expr" else (a.attr, a.attr)
        except Undecided:
            return None
        if name in ("gt", "ge"):
            low, high = high, low
        if rule(high, number):
            return ops.constant(True, torch.bool)
        return ops.constant(False, torch.bool) if opposite(low, number) else None

    return simplify


def _compared_in_32_bits(name: str, a: Value, b: Value) -> Value | None:
    """The comparison of two indices in 32 bits: twice as many in a vector. Of two that may not fit
    the difference is compared with 0, as its sign is right even where 32 bits do not hold it.
    """
    one, other = _index(a), _index(b)
    if a.op == b.op == "constant" or one is None or other is None:
        return None
    if not (fits_in_32_bits(one) and fits_in_32_bits(other)):
        if not (_is_position(one) and _is_position(other)):
            return None
        one, other = one - other, Index({}, 0)
    narrow = [ops.index_expr(index, torch.int32) for index in (one, other)]
    return _state.tape.emit(name, tuple(narrow), torch.bool)


def _is_position(index: Index) -> bool:
    """Whether an index is known to have no large negative value, as positions and sizes have none:
    64 bits hold a difference of two such. A number of the program may be any.
    """
    try:
        return known_le(-(1 << 31), index.bounds()[0])
    except Undecided:
        return False


def fits_in_32_bits(index: Index) -> bool:
    """Whether an index is known to have 32 bits for every value of its sizes."""
    try:
        low, high = index.bounds()
        return known_le(-(1 << 31), low) and known_lt(high, 1 << 31)
    except Undecided:
        return False


_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}


def _known_gt(a: Extent, b: Extent) -> bool:
    return known_lt(b, a)


def _known_ge(a: Extent, b: Extent) -> bool:
    return known_le(b, a)


def _number(value: Value) -> Extent | None:
    """The integer value of an operation that depends on no loop; None otherwise."""
    if value.dtype.is_floating_point or value.dtype == torch.bool:
        return None
    if value.op == "constant":
        return value.attr
    return value.attr.const if value.op == "index_expr" and not value.attr.terms else None


# Rewrites that are exact for every value, NaN and signed zero included.
_SIMPLIFY: dict[str, Callable[..., Value | None]] = {
    "add": _add,  # x + 0 -> x (integers)
    "sub": _sub,
    "mul": _mul,  # x * 1 -> x
    "logical_and": _logical_and,  # x & true -> x
    **{name: _compare(name) for name in ("lt", "le", "gt", "ge")},  # i < n -> true, within bounds
    **{name: functools.partial(_compared_in_32_bits, name) for name in ("eq", "ne")},
}

ops: Any = Ops()


class Printer:
    """The handler that prints a tape, one line a value."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def _line(self, value: Value, text: str) -> str:
        name = f"v{value.id}"
        self.lines.append(f"{name}: {str(value.dtype).removeprefix('torch.')} = {text}")
        return name

    def load(self, value: Value, access: Access, mask: str | None) -> str:
        where = f" if {mask}" if mask else ""
        return self._line(value, f"{access.buffer}[{access.index!r}]{where}")

    def constant(self, value: Value) -> str:
        return self._line(value, repr(value.attr))

    def index_expr(self, value: Value, index: Index) -> str:
        return self._line(value, repr(index))

    def to_dtype(self, value: Value, arg: str) -> str:
        return self._line(value, f"{arg}.to({str(value.attr).removeprefix('torch.')})")

    def where(self, value: Value, condition: str, yes: str, no: str) -> str:
        return self._line(value, f"where({condition}, {yes}, {no})")

    def call(self, value: Value, *args: str) -> str:
        return self._line(value, f"{value.op}({', '.join(args)})")


def print_tape(tape: Tape) -> str:
    printer = Printer()
    tape.interpret(printer)
    return "\n".join(printer.lines)
