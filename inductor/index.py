"""Index expressions of loop bodies: integer-affine in loop variables, with floor-division, modulo
and indirect (loaded) atoms where reshapes and gathers need them.

An `Index` is `const + sum(coefficient * atom)`. An atom is one of

    Var(name, size)        a loop variable that runs over [0, size)
    FloorDiv(index, d)     index // d, rounding towards minus infinity
    Mod(index, d)          index - d * (index // d)
    Indirect(value, size)  a loaded integer that is known to lie in [0, size)

Every atom knows its bounds, by which the rewrites below are exact: `(64*i + j) // 64` is `i`
because j lies in [0, 64). sympy would do the same a hundred times slower, and lowering builds
thousands of these.

The algebra of sizes (fxgraph/sizes.py) is below this one, not beside: coefficients, constants,
divisors and bounds are sizes (`sizes.Extent`: ints, or polynomials over symbols), which that module
adds, divides and compares. A rewrite is made only if it holds whatever the symbols are. An index is
not itself a `Size`, for three reasons:

    bounds     A loop variable ends at a size, so that its bounds are sizes. A symbol of a size has
               integer bounds, from the guards.
    products   Loop variables are never multiplied with each other. The strides of a loop are the
               coefficients in `terms`; a polynomial over symbols and variables alike would have to
               be sorted into these first.
    identity   Two loops may have variables of one name. They are compared by identity, and renamed
               by substitution (`substitute`); symbols of one name are one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd
from typing import Any

from fxgraph.sizes import (
    Extent,
    Size,
    Undecided,
    common_factor,
    contiguous_strides,
    exact,
    hint,
    known_le,
    known_lt,
    split,
)


def _last(size: Extent) -> Extent:
    """The greatest position in [0, size)."""
    return size - 1 if isinstance(size, Size) else max(size - 1, 0)


class Var:
    """A loop variable over [0, size); compared by identity."""

    __slots__ = ("name", "size")

    def __init__(self, name: str, size: Extent) -> None:
        self.name = name
        self.size = size

    def bounds(self) -> tuple[Extent, Extent]:
        return 0, _last(self.size)

    def __repr__(self) -> str:
        return self.name


class Indirect:
    """A loaded integer used as an index, already wrapped (negative values moved up) into [0,
    size)."""

    __slots__ = ("size", "value")

    def __init__(self, value: Any, size: Extent) -> None:
        self.value = value
        self.size = size

    def bounds(self) -> tuple[Extent, Extent]:
        return 0, _last(self.size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Indirect) and other.value is self.value and other.size == self.size

    def __hash__(self) -> int:
        return hash((id(self.value), self.size))

    def __repr__(self) -> str:
        return f"[{self.value!r}]"


class _Quotient:
    """Base of FloorDiv and Mod: a dividend, a positive divisor, value equality."""

    __slots__ = ("_hash", "dividend", "divisor")
    sign = "?"

    def __init__(self, dividend: Index, divisor: Extent) -> None:
        self.dividend = dividend
        self.divisor = divisor
        self._hash = hash((self.sign, dividend, divisor))

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and other.divisor == self.divisor
            and other.dividend == self.dividend
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"({self.dividend!r} {self.sign} {self.divisor})"


class FloorDiv(_Quotient):
    __slots__ = ()
    sign = "//"

    def bounds(self) -> tuple[Extent, Extent]:
        low, high = self.dividend.bounds()
        return low // self.divisor, high // self.divisor


class Mod(_Quotient):
    __slots__ = ()
    sign = "%"

    def bounds(self) -> tuple[Extent, Extent]:
        low, high = self.dividend.bounds()
        most = self.divisor - 1
        return 0, high if known_le(0, low) and known_le(high, most) else most


class Index:
    """An immutable index expression; see the module's docstring."""

    __slots__ = ("_hash", "const", "terms")

    def __init__(self, terms: dict[Any, Extent], const: Extent = 0) -> None:
        self.terms = terms
        self.const = const
        self._hash: int | None = None

    @staticmethod
    def of(value: Index | Var | Indirect | Extent) -> Index:
        if isinstance(value, Index):
            return value
        if isinstance(value, int | Size):
            return Index({}, value)
        return Index({value: 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.const, frozenset(self.terms.items())))
        return self._hash

    def __add__(self, other: Index | Extent) -> Index:
        if isinstance(other, int | Size):
            return Index(self.terms, self.const + other) if other != 0 else self
        if not other.terms:
            return self + other.const
        if not self.terms:
            return other + self.const
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.get(atom, 0) + coefficient
            if total != 0:
                terms[atom] = total
            else:
                del terms[atom]
        return _rejoin(Index(terms, self.const + other.const))

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Index | Extent) -> Index:
        return self + (-other)

    def __rsub__(self, other: Extent) -> Index:
        return -self + other

    def __mul__(self, factor: Extent) -> Index:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        return Index({a: c * factor for a, c in self.terms.items()}, self.const * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: Extent) -> Index:
        if divisor == 1:
            return self
        whole, rest = self._split(divisor)
        cell = rest._cell(divisor)
        if cell is not None:
            return whole + cell
        if rest.const == 0 and len(rest.terms) == 1:
            ((atom, coefficient),) = rest.terms.items()
            if coefficient == 1 and isinstance(atom, FloorDiv):
                return whole + atom.dividend // (atom.divisor * divisor)
            if coefficient == 1 and isinstance(atom, Mod):
                pieces = exact(atom.divisor, divisor)
                if pieces is not None:
                    return whole + (atom.dividend // divisor) % pieces
        shared = _shared([divisor, *rest.terms.values()], rest.const)
        if shared != 1:
            scaled = {a: c // shared for a, c in rest.terms.items()}
            return whole + Index(scaled, rest.const // shared) // (divisor // shared)
        if (parts := rest._coarse(divisor)) is not None:
            coarse, _, step = parts
            return whole + coarse // (divisor // step)
        return whole + Index({FloorDiv(rest, divisor): 1})

    def __mod__(self, divisor: Extent) -> Index:
        if divisor == 1:
            return ZERO
        _, rest = self._split(divisor)
        cell = rest._cell(divisor)
        if cell is not None:
            return rest - divisor * cell
        if rest.const == 0 and len(rest.terms) == 1:
            ((atom, coefficient),) = rest.terms.items()
            inner = exact(atom.divisor, divisor) if isinstance(atom, Mod) else None
            if coefficient == 1 and inner is not None:
                return atom.dividend % divisor
        shared = _shared([divisor, rest.const, *rest.terms.values()])
        if shared != 1:
            scaled = {a: c // shared for a, c in rest.terms.items()}
            return (Index(scaled, rest.const // shared) % (divisor // shared)) * shared
        if (parts := rest._coarse(divisor)) is not None:
            coarse, fine, step = parts
            return (coarse % (divisor // step)) * step + fine
        return Index({Mod(rest, divisor): 1})

    def _split(self, divisor: Extent) -> tuple[Index, Index]:
        """self = divisor * whole + rest, with every term that divides exactly moved into
        `whole`."""
        whole, rest = {}, {}
        for atom, coefficient in self.terms.items():
            part = exact(coefficient, divisor)
            if part is not None:
                whole[atom] = part
            else:
                rest[atom] = coefficient
        if isinstance(self.const, int) and isinstance(divisor, int):
            quotient, remainder = divmod(self.const, divisor)
            return Index(whole, quotient), Index(rest, remainder)
        first, left = split(self.const, divisor)
        return Index(whole, first), Index(rest, left)

    def _coarse(self, divisor: Extent) -> tuple[Index, Index, int] | None:
        """self = step * coarse + fine, where step divides the divisor and fine lies in [0, step),
        so that fine does not matter to the quotient: (64*i + j) // 128 is i // 2 for j < 64.
        """
        if len(self.terms) < 2 or not isinstance(divisor, int) or not isinstance(self.const, int):
            return None
        if not all(isinstance(c, int) for c in self.terms.values()):
            return None
        for step in sorted({gcd(c, divisor) for c in self.terms.values()}, reverse=True):  # type: ignore[arg-type]
            if step == 1:
                break
            coarse = {a: c // step for a, c in self.terms.items() if c % step == 0}
            fine = Index({a: c for a, c in self.terms.items() if c % step}, self.const % step)
            if fine._cell(step) == 0:
                return Index(coarse, self.const // step), fine, step
        return None

    def _cell(self, divisor: Extent) -> Extent | None:
        """self // divisor, if that is the same for all values of the atoms."""
        try:
            low, high = self.bounds()
        except Undecided:
            return None
        if isinstance(low, int) and isinstance(high, int) and isinstance(divisor, int):
            first = low // divisor
            return first if high // divisor == first else None
        return 0 if known_le(0, low) and known_lt(high, divisor) else None

    def bounds(self) -> tuple[Extent, Extent]:
        """Inclusive lower and upper bound; exact when every atom occurs once.

        Raises sizes.Undecided for a coefficient whose sign depends on the call.
        """
        low = high = self.const
        for atom, coefficient in self.terms.items():
            atom_low, atom_high = atom.bounds()
            if coefficient >= 0:
                low += coefficient * atom_low
                high += coefficient * atom_high
            else:
                low += coefficient * atom_high
                high += coefficient * atom_low
        return low, high

    def is_natural(self) -> bool:
        """Whether no value is known to be, or may be, negative."""
        try:
            return known_le(0, self.bounds()[0])
        except Undecided:
            return False

    def atoms(self) -> Iterator[Any]:
        """Every atom, those inside quotients included."""
        for atom in self.terms:
            yield atom
            if isinstance(atom, _Quotient):
                yield from atom.dividend.atoms()

    def dividends(self) -> Iterator[Index]:
        """The dividend of every quotient, those inside others included."""
        return (atom.dividend for atom in self.atoms() if isinstance(atom, _Quotient))

    def sizes(self) -> Iterator[Extent]:
        """Every size in the index: constants, coefficients, divisors, extents."""
        yield self.const
        yield from self.terms.values()
        for atom in self.terms:
            if isinstance(atom, _Quotient):
                yield atom.divisor
                yield from atom.dividend.sizes()
            else:
                yield atom.size

    def variables(self) -> set[Var]:
        return {a for a in self.atoms() if isinstance(a, Var)}

    def is_affine(self) -> bool:
        """Only plain loop variables: no quotients and nothing loaded."""
        return all(isinstance(a, Var) for a in self.terms)

    def substitute(self, replace: Callable[[Any], Any | None]) -> Index:
        """`replace` maps a Var or Indirect to an Index, Var or Indirect, or to None to keep it."""
        result = Index({}, self.const)
        kept: dict[Any, Extent] = {}
        for atom, coefficient in self.terms.items():
            if isinstance(atom, _Quotient):
                inner = atom.dividend.substitute(replace)
                new: Index | None
                new = inner // atom.divisor if isinstance(atom, FloorDiv) else inner % atom.divisor
            else:
                new = replace(atom)
                if new is None:
                    kept[atom] = coefficient
                    continue
            result = result + Index.of(new) * coefficient
        return result + Index(kept) if kept else result

    def __repr__(self) -> str:
        parts = [
            repr(a) if c == 1 else f"{_factor(c)}*{a!r}"
            for a, c in sorted(self.terms.items(), key=lambda t: (-abs(hint(t[1])), repr(t[0])))
        ]
        if self.const != 0 or not parts:
            parts.append(str(self.const))
        return " + ".join(parts).replace("+ -", "- ")


ZERO = Index({}, 0)


def _factor(coefficient: Extent) -> str:
    plain = isinstance(coefficient, int) or len(coefficient.terms) == 1
    return str(coefficient) if plain else f"({coefficient})"


def _shared(values: list[Extent], const: Extent = 0) -> Extent:
    """A common factor of all values. An int `const` need not have it: it is rounded."""
    if all(isinstance(v, int) for v in values):
        common = gcd(*values)  # type: ignore[arg-type]
        return common if isinstance(const, int) else gcd(common, *const.terms.values())
    return common_factor([*values, const] if isinstance(const, Size) else values)


def _rejoin(index: Index) -> Index:
    """c*d*(x // d) + c*(x % d) -> c*x, which undoes a reshape that was split and merged again."""
    for atom, coefficient in index.terms.items():
        if isinstance(atom, Mod):
            whole = atom.dividend // atom.divisor
            if len(whole.terms) != 1 or whole.const:
                continue
            ((quotient, one),) = whole.terms.items()
            if one == 1 and index.terms.get(quotient) == coefficient * atom.divisor:
                rest = {a: c for a, c in index.terms.items() if a != atom and a != quotient}
                return Index(rest, index.const) + atom.dividend * coefficient
    return index


def linear(indices: tuple[Index, ...] | list[Index], strides: Any, offset: Extent = 0) -> Index:
    """The position `offset + sum(index * stride)`."""
    total = Index({}, offset)
    for index, stride in zip(indices, strides, strict=True):
        if stride != 0:
            total = total + index * stride
    return total


def delinearize(position: Index, size: Any) -> tuple[Index, ...]:
    """The multi-dimensional index of a row-major position within `size`."""
    return tuple(
        ZERO if extent == 1 else (position // stride) % extent
        for extent, stride in zip(size, contiguous_strides(size), strict=True)
    )
