"""Pieces of a vectorised loop in which comparisons and quotients of its variable are decided.

    out[i] = i < 1 ? x[1 - i] : x[i - 1]   for i in [0, 33)

becomes one loop over [0, 1) that reads x[1 - i], and one over [1, 33) that reads x[i - 1]: neither
has a mask. Padding and rolling are such loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from inductor import costs
from inductor.index import FloorDiv, Index, Indirect, Mod, Var
from inductor.ir import Access, Loops, Tape, Value
from inductor.ops import indirect_values, ops, recording

_COMPARISONS = frozenset(["lt", "le", "gt", "ge"])


def cuts(steps: list[Loops], lane: Var) -> list[int]:
    """The positions, in order, between which every comparison of `lane` with a number has one
    outcome; none where there are too many.
    """
    if (
        not isinstance(lane.size, int)
        or sum(len(s.tape.values) for s in steps) > costs.MOST_CUT_VALUES
    ):
        return []
    changes = (position for step in steps for position in _changes(step, lane))
    found = sorted({p for p in changes if 0 < p < lane.size})
    if not found or len(found) > costs.MOST_CUTS:
        return []
    deeper = set(found)  # what is compared may be a quotient that was not decided before
    for low, high in pairwise([0, *found, lane.size]):
        shorter, parts = pieces(steps, lane, low, high)
        deeper.update(low + position for position in cuts(parts, shorter))
    return sorted(deeper) if len(deeper) <= costs.MOST_CUTS else found


def _changes(step: Loops, lane: Var) -> Iterator[int]:
    for value in step.tape.values:
        if value.op in _COMPARISONS and (form := _difference(value, lane)) is not None:
            yield _change(value.op, *form)
    for index in [*step.tape.indices(), step.index]:
        for atom in index.terms:
            if isinstance(atom, (FloorDiv, Mod)):
                yield from _multiples(atom, lane)


def _difference(value: Value, lane: Var) -> tuple[int, int] | None:
    """(a, c) of a comparison of a * lane + c with 0."""
    slope, const = 0, 0
    for sign, operand in zip((1, -1), value.args, strict=True):
        if operand.op == "constant" and isinstance(operand.attr, int) and operand.dtype.is_signed:
            const += sign * operand.attr
        elif operand.op == "index_expr" and (form := _affine(operand.attr, lane)) is not None:
            slope, const = slope + sign * form[0], const + sign * form[1]
        else:
            return None
    return (slope, const) if slope != 0 else None


def _affine(index: Index, lane: Var) -> tuple[int, int] | None:
    """(a, c) of an index a * lane + c."""
    slope = index.terms.get(lane, 0)
    alone = not index.terms.keys() - {lane}
    if not alone or not isinstance(slope, int) or not isinstance(index.const, int):
        return None
    return slope, index.const


def _change(op: str, slope: int, const: int) -> int:
    """The first lane behind which slope * lane + const compares otherwise with 0."""
    strict = op in ("lt", "ge")  # 0 belongs to the upper side
    if slope < 0:
        slope, const, strict = -slope, -const, not strict
    return -(const // slope) if strict else -const // slope + 1


def _multiples(atom: FloorDiv | Mod, lane: Var) -> Iterator[int]:
    """Where the quotient of an index changes; nothing for an index of other variables, too."""
    form = _affine(atom.dividend, lane)
    if form is None or not isinstance(atom.divisor, int) or not isinstance(lane.size, int):
        return
    slope, const = form
    low, high = sorted((const, const + slope * (lane.size - 1)))
    if slope == 0 or high // atom.divisor - low // atom.divisor > costs.MOST_CUTS:
        return
    for quotient in range(low // atom.divisor + 1, high // atom.divisor + 1):
        yield _change("lt", slope, const - quotient * atom.divisor)


def pieces(steps: list[Loops], lane: Var, low: int, high: int) -> tuple[Var, list[Loops]]:
    """The steps over lanes [low, high), as [0, high - low) of another variable."""
    shorter = Var(lane.name, high - low)
    return shorter, [_piece(step, lane, shorter, low) for step in steps]


def _piece(step: Loops, lane: Var, shorter: Var, low: int) -> Loops:
    place = Index({shorter: 1}, low)
    values: dict[int, Value] = {}

    def swap(atom: object) -> Index | None:
        if isinstance(atom, Indirect):
            return Index({Indirect(values[atom.value.id], atom.size): 1})
        return place if atom is lane else None

    tape = Tape()
    with recording(tape):
        for v in step.tape.values:
            values[v.id] = _again(tape, v, [values[a.id] for a in v.args], swap)
    results = tuple(values[v.id] for v in step.values)
    index = step.index.substitute(swap)
    return replace(
        step,
        dims=[shorter if d is lane else d for d in step.dims],
        tape=tape.of([*results, *indirect_values(index)]),  # without what was compared
        values=results,
        index=index,
        reads={},
    )


def _again(tape: Tape, v: Value, args: list[Value], swap: Callable[[Any], Index | None]) -> Value:
    """The value recorded once more, by what is known of the shorter variable."""
    match v.op:
        case "constant":
            return tape.emit("constant", (), v.dtype, v.attr)
        case "load":
            index, masked = v.attr.index.substitute(swap), v.attr.masked
            if masked and args[0].op == "constant":
                if not args[0].attr:
                    return ops.constant(0, v.dtype)
                args, masked = args[1:], False
            return tape.emit("load", tuple(args), v.dtype, Access(v.attr.buffer, index, masked))
        case "index_expr":
            return ops.index_expr(v.attr.substitute(swap), v.dtype)
        case "to_dtype":
            return ops.to_dtype(args[0], v.attr)
        case "where":
            return ops.where(*args)
    made: Value = getattr(ops, v.op)(*args)
    return made
