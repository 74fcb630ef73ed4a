"""Putting the loops of one step onto the loop variables of another.

Two steps can share loops when their iteration spaces have the same elements in the same order,
though perhaps differently cut: (8, 512, 768) and (4096, 768). Both are refined to the common cut
(8, 512, 768), and the bodies rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fxgraph.sizes import Extent, exact, hint
from inductor.index import ZERO, Index, Indirect, Var
from inductor.ir import Access, Loops, Tape, Value

Renaming = Mapping[Var, Index]


def common_cut(a: Sequence[Extent], b: Sequence[Extent]) -> list[Extent] | None:
    """The coarsest list of extents that refines both, or None. Extents of 1 are dropped.

    >>> common_cut([8, 512, 768], [4096, 768])
    [8, 512, 768]
    """
    left, right = [n for n in a if n != 1], [n for n in b if n != 1]
    cut: list[Extent] = []
    while left and right:
        x, y = left.pop(), right.pop()
        if x == y:
            cut.append(x)
        elif (more := exact(x, y)) is not None:
            cut.append(y)
            left.append(more)
        elif (more := exact(y, x)) is not None:
            cut.append(x)
            right.append(more)
        else:
            return None
    if left or right:
        return None
    return cut[::-1]


def recut(vars: Sequence[Var], cut: Sequence[Var]) -> dict[Var, Index]:
    """Each of `vars` written in the finer `cut`, of the same elements in the same order."""
    result: dict[Var, Index] = {}
    rest = list(cut)
    for v in reversed(vars):
        total: Index = ZERO
        step: Extent = 1
        while step != v.size:
            part = rest.pop()
            total = total + Index({part: step})
            step = step * part.size
        result[v] = total
    return result


def same(vars: Sequence[Var], renaming: Renaming) -> bool:
    """Whether the renaming leaves these variables as they are."""
    return all(renaming.get(v) == Index({v: 1}) for v in vars)


def rewrite(step: Loops, renaming: Renaming, dims: list[Var], reduced: list[Var]) -> Loops:
    """The step with its loop variables replaced."""
    values: dict[int, Value] = {}

    def swap(atom: object) -> Index | None:
        if isinstance(atom, Indirect):
            return Index({Indirect(values[atom.value.id], atom.size): 1})
        return renaming.get(atom)  # type: ignore[call-overload]

    tape = Tape()
    for v in step.tape.values:
        attr = v.attr
        if v.op == "load":
            attr = Access(attr.buffer, attr.index.substitute(swap), attr.masked)
        elif v.op == "index_expr":
            attr = attr.substitute(swap)
        values[v.id] = tape.emit(v.op, tuple(values[a.id] for a in v.args), v.dtype, attr)
    return replace(
        step,
        dims=dims,
        reduced=reduced,
        tape=tape,
        values=tuple(values[v.id] for v in step.values),
        index=step.index.substitute(swap),
        reads={},
    )


def by_stride(vars: Sequence[Var], index: Index) -> list[Var]:
    """The variables that `index` varies with, largest coefficient first."""
    used = [v for v in vars if v in index.terms]
    return sorted(used, key=lambda v: -abs(hint(index.terms[v])))
