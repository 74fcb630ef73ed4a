"""The program by which a plan computes its sizes: a register for each symbol, number, operation.

    s0 = argument 0; 768*s0 + 64      0: int 0  1: const 768  2: mul 1 0  3: const 64  4: add 2 3

Registers belong to stages: 0 can be computed from the arguments of a call, k after the k-th
operator that defines symbols. A plan without symbols has no registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgraph.sizes import Extent, Size, Symbol, read_name, solved_for
from inductor.runtime.plan import NumberSpec, PlanError, PlanSpec, TensorSpec


class SizeProgram:
    """`registers`: rows (stage, operation, a, b) for the executor.

    operation      a, b
    int            argument of the call, 0
    dim            argument of the call, dimension of that tensor
    result         -, -: filled by an aten step
    const          value, 0
    add mul // % max min     registers
    """

    def __init__(self, spec: PlanSpec) -> None:
        self.registers: list[tuple[int, str, int, int]] = []
        self._known: dict[Any, int] = {}
        self._stages: dict[str, int] = {}
        bound = 0
        for step in spec.steps:
            if step.kind == "aten" and step.binds:
                bound += 1
                self._stages.update((name, bound) for name, _, _ in step.binds)
        self._sources = _sources(spec)
        self._found: dict[str, int] = {}

    def number(self, value: Any) -> Any:
        """A Size as (register, 0); anything else as it is."""
        return (self._size(value), 0) if isinstance(value, Size) else value

    def numbers(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """`number` of each; tuples inside too."""
        return tuple(self.numbers(v) if isinstance(v, tuple) else self.number(v) for v in values)

    def symbol(self, name: str) -> int:
        """The register of a symbol. Raises PlanError if nothing brings it."""
        if name in self._found:
            return self._found[name]
        if name in self._stages:
            found = self._row(self._stages[name], "result", 0, 0, name)
        elif name in self._sources:
            found = self._sources[name](self)
        else:
            raise PlanError(f"no input tells {name}")
        self._found[name] = found
        return found

    def _row(self, stage: int, op: str, a: int, b: int, key: Any = None) -> int:
        row = (stage, op, a, b)
        known = self._known.setdefault((row, key), len(self.registers))
        if known == len(self.registers):
            self.registers.append(row)
        return known

    def _operation(self, op: str, a: int, b: int) -> int:
        return self._row(max(self.registers[a][0], self.registers[b][0]), op, a, b)

    def _constant(self, value: int) -> int:
        return self._row(0, "const", value, 0)

    def _extent(self, size: Extent) -> int:
        return self._size(size) if isinstance(size, Size) else self._constant(size)

    def _size(self, size: Size) -> int:
        known = self._known.get(size)
        if known is None:
            known = self._known[size] = self._sum(size)
        return known

    def _sum(self, size: Size) -> int:
        total: int | None = None
        for monomial, coefficient in size.terms.items():
            factors = [self._atom(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.append(self._constant(coefficient))
            term = factors[0]
            for factor in factors[1:]:
                term = self._operation("mul", term, factor)
            total = term if total is None else self._operation("add", total, term)
        assert total is not None
        return total

    def _atom(self, atom: Any) -> int:
        if isinstance(atom, Symbol):
            return self.symbol(atom.name)
        sign = "pow" if atom.sign == "**" else atom.sign
        return self._operation(sign, self._extent(atom.a), self._extent(atom.b))

    # -- where symbols come from ------------------------------------------------------------------

    def argument(self, position: int) -> int:
        return self._row(0, "int", position, 0)

    def dimension(self, position: int, dim: int) -> int:
        return self._row(0, "dim", position, dim)

    def solved(self, register: int, const: int, factor: int) -> int:
        """x with factor * x + const in the register."""
        if const:
            register = self._operation("add", register, self._constant(-const))
        return register if factor == 1 else self._operation("//", register, self._constant(factor))


def _sources(spec: PlanSpec) -> dict[str, Callable[[SizeProgram], int]]:
    """For each symbol, how to read it from the arguments: ints first, then sizes of tensors."""
    plain: dict[str, Callable[[SizeProgram], int]] = {}
    solved: dict[str, Callable[[SizeProgram], int]] = {}
    varying = [item for item in spec.inputs if not item.static]

    def note(size: Extent, read: Callable[[SizeProgram], int]) -> None:
        found = solved_for(size)
        if found is None:
            return
        symbol, factor, const = found
        if const == 0 and factor == 1:
            plain.setdefault(symbol.name, read)
        else:
            solved.setdefault(symbol.name, lambda p: p.solved(read(p), const, factor))

    for position, item in enumerate(varying):
        if isinstance(item, NumberSpec):
            note(item.value, lambda p, k=position: p.argument(k))  # type: ignore[misc]
    for position, item in enumerate(varying):
        if isinstance(item, TensorSpec):
            for dim, size in enumerate(item.size):
                note(size, lambda p, k=position, d=dim: p.dimension(k, d))  # type: ignore[misc]
    found = {**solved, **plain}
    return {**{read_name(name): read for name, read in found.items()}, **found}
