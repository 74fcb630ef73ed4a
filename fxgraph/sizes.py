"""The algebra of sizes that are known only when the code runs: integer polynomials over symbols.

A size is an int or a `Size`, a sum of products of atoms with integer coefficients, in one normal
form, so that sizes that are equal by rearrangement are equal objects. An atom is one of

    Symbol(name, low, high, hint)   a number that a call brings; low <= it <= high
    Quotient("//" or "%", a, b)     a // b or a % b, rounded towards minus infinity
    Extreme("max" or "min", a, b)
    Bits("&", "|", "^", "<<", ">>" or "**", a, b)    as of Python's integers
    Opaque(value)                   an integer of which nothing is known here

`==` compares forms: unequal forms may have equal values (s0 and s1, in one call). The orders
`<`, `<=` hold for all values in the symbols' ranges or for none, and raise Undecided where they
depend on the values; `known_le` and `known_lt` give False there. Who must choose without knowing (a
tiling, an order of loops) asks `hint`.

    >>> s = Size.of(Symbol("s0"))
    >>> (s * 64 + 5) // 64, s * 6 == (s + s) * 3, s - 1 < s
    (s0, True, True)

Capture writes sizes as sympy's expressions, which hold floats and conditions, too; these simplify
by this algebra (fxgraph/expressions.py).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import gcd
from typing import Any, Union

from fxgraph import intervals
from fxgraph.intervals import Bounds

Extent = Union[int, "Size"]
Monomial = tuple["Atom", ...]  # sorted by text; a power is a repetition


class Undecided(Exception):
    """A comparison of sizes that holds in some calls and not in others."""


def read_name(symbol: str) -> str:
    """The name under which checks know a number that depends on data. The checked condition is
    known of `symbol`, by which the check would simplify to nothing.
    """
    return f"{symbol}_read"


class Symbol:
    """See the module's docstring. None is no bound; `hint` is the value seen at compile time."""

    __slots__ = ("high", "hint", "low", "name")

    def __init__(
        self, name: str, low: int | None = 2, high: int | None = None, hint: int = 64
    ) -> None:
        self.name = name
        self.low = low
        self.high = high
        self.hint = hint

    @property
    def text(self) -> str:
        return self.name

    def bounds(self) -> Bounds:
        return self.low, self.high

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


class _OfTwo:
    """A function of two sizes, by its sign."""

    __slots__ = ("_bounds", "a", "b", "sign", "text")

    def __init__(self, sign: str, a: Extent, b: Extent) -> None:
        self.sign, self.a, self.b = sign, a, b
        self.text = f"(({a!r}) {sign} ({b!r}))"
        self._bounds: Bounds | None = None

    def bounds(self) -> Bounds:
        if self._bounds is None:  # `bounds` of a sum asks an atom three times
            self._bounds = self._bounded(bounds(self.a), bounds(self.b))
        return self._bounds

    def _bounded(self, a: Bounds, b: Bounds) -> Bounds:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """Opaque integers with one text may be different ones."""
        if self is other:
            return True
        if type(other) is not type(self):
            return False
        return self.text == other.text and self.a == other.a and self.b == other.b

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text


class Quotient(_OfTwo):
    """a // b or a % b."""

    __slots__ = ()

    def _bounded(self, a: Bounds, b: Bounds) -> Bounds:
        return (intervals.modulo if self.sign == "%" else intervals.floor_divided)(a, b)


class Extreme(_OfTwo):
    """The larger (sign "max") or smaller ("min") of two sizes."""

    __slots__ = ()

    def __init__(self, sign: str, a: Extent, b: Extent) -> None:
        super().__init__(sign, *sorted((a, b), key=repr))
        self.text = f"{sign}({self.a!r}, {self.b!r})"

    def _bounded(self, a: Bounds, b: Bounds) -> Bounds:
        return (intervals.largest if self.sign == "max" else intervals.smallest)(a, b)


class Bits(_OfTwo):
    """a & b, a | b, a ^ b, a << b, a >> b or a ** b."""

    __slots__ = ()

    def _bounded(self, a: Bounds, b: Bounds) -> Bounds:
        return intervals.of_bits(self.sign, a, b)


class Opaque:
    """An integer that this algebra does not look into; `value` is equal for the same integer."""

    __slots__ = ("text", "value")

    def __init__(self, value: Any, text: str) -> None:
        self.value = value
        self.text = text

    def bounds(self) -> Bounds:
        return intervals.ANY

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return self.text


Atom = Symbol | Quotient | Extreme | Bits | Opaque


class Size:
    """An immutable polynomial that is not a constant; see the module's docstring."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: dict[Monomial, int]) -> None:
        self.terms = terms  # () is the constant's monomial
        self._hash: int | None = None

    @staticmethod
    def of(atom: Atom) -> Size:
        return Size({(atom,): 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __repr__(self) -> str:
        parts = []
        for monomial, coefficient in sorted(self.terms.items(), key=_printed_before):
            factors = [a.text for a in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            parts.append("*".join(factors))
        return " + ".join(parts).replace("+ -", "- ")

    __str__ = __repr__

    # -- arithmetic -------------------------------------------------------------------------------

    def __add__(self, other: Extent) -> Extent:
        if isinstance(other, int):
            return of_terms({**self.terms, (): self.terms.get((), 0) + other}) if other else self
        if not isinstance(other, Size):
            return NotImplemented
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return of_terms(terms)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return Size({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Extent) -> Extent:
        if not isinstance(other, int | Size):
            return NotImplemented
        return self + (-other)

    def __rsub__(self, other: Extent) -> Extent:
        return -self + other

    def __mul__(self, other: Extent) -> Extent:
        if isinstance(other, int):
            return Size({m: c * other for m, c in self.terms.items()}) if other else 0
        if not isinstance(other, Size):
            return NotImplemented
        terms: dict[Monomial, int] = {}
        for one, c in self.terms.items():
            for two, d in other.terms.items():
                monomial = _product(one, two)
                terms[monomial] = terms.get(monomial, 0) + c * d
        return of_terms(terms)

    __rmul__ = __mul__

    def __pow__(self, power: int) -> Extent:
        result: Extent = 1
        for _ in range(power):
            result = result * self
        return result

    def __floordiv__(self, divisor: Extent) -> Extent:
        return divided(self, divisor)

    def __rfloordiv__(self, dividend: Extent) -> Extent:
        return divided(dividend, self)

    def __mod__(self, divisor: Extent) -> Extent:
        return modulo(self, divisor)

    def __rmod__(self, dividend: Extent) -> Extent:
        return modulo(dividend, self)

    # -- order ------------------------------------------------------------------------------------

    def __le__(self, other: Extent) -> bool:
        return _decided(self, other, 0)

    def __lt__(self, other: Extent) -> bool:
        return _decided(self, other, 1)

    def __ge__(self, other: Extent) -> bool:
        return not _decided(self, other, 1)

    def __gt__(self, other: Extent) -> bool:
        return not _decided(self, other, 0)

    def __bool__(self) -> bool:
        if nonzero(self):
            return True
        raise Undecided(f"whether {self} is 0")

    def __index__(self) -> int:
        raise Undecided(f"{self} where a number must be known")

    __int__ = __index__


def _printed_before(term: tuple[Monomial, int]) -> tuple[bool, int, list[str]]:
    monomial, _ = term
    return not monomial, -len(monomial), [a.text for a in monomial]


def _product(one: Monomial, two: Monomial) -> Monomial:
    return tuple(sorted((*one, *two), key=lambda a: a.text))


def of_terms(terms: dict[Monomial, int]) -> Extent:
    """The size of these terms: an int if no symbol is left."""
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    return Size(kept)


def terms_of(size: Extent) -> dict[Monomial, int]:
    return size.terms if isinstance(size, Size) else {(): size} if size else {}


# --- division ------------------------------------------------------------------------------------


def exact(a: Extent, b: Extent) -> Extent | None:
    """q with a == q * b for every value of the symbols, if found; b is not 0."""
    if isinstance(a, int) and isinstance(b, int):
        return None if a % b else a // b
    if a == 0:
        return 0
    if a == b:
        return 1
    if isinstance(a, int):
        return None
    if isinstance(b, int):
        if any(c % b for c in a.terms.values()):
            return None
        return of_terms({m: c // b for m, c in a.terms.items()})
    if len(b.terms) == 1:
        ((by, factor),) = b.terms.items()
        quotient: dict[Monomial, int] = {}
        for monomial, c in a.terms.items():
            left = _without(monomial, by)
            if left is None or c % factor:
                return None
            quotient[left] = c // factor
        return of_terms(quotient)
    return _long_division(a, b)


def _without(monomial: Monomial, by: Monomial) -> Monomial | None:
    """monomial / by, or None."""
    left = list(monomial)
    for atom in by:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _long_division(a: Size, b: Size) -> Extent | None:
    """The quotient by a sum, leading terms first in the lexicographic order of exponents."""
    atoms = sorted({x for m in (*a.terms, *b.terms) for x in m}, key=lambda x: x.text)

    def lead(size: Size) -> tuple[Monomial, int]:
        return max(size.terms.items(), key=lambda t: [t[0].count(x) for x in atoms])

    by, factor = lead(b)
    quotient: Extent = 0
    rest: Extent = a
    while isinstance(rest, Size):
        monomial, c = lead(rest)
        left = _without(monomial, by)
        if left is None or c % factor:
            return None
        part = of_terms({left: c // factor})
        quotient = part + quotient
        rest = rest - part * b
    return quotient if rest == 0 else None


def split(size: Extent, divisor: Extent) -> tuple[Extent, Extent]:
    """(q, r) with size == q * divisor + r, whatever divides by its form moved into q."""
    whole = exact(size, divisor)
    if whole is not None:
        return whole, 0
    if isinstance(size, int) or (isinstance(divisor, Size) and len(divisor.terms) > 1):
        return 0, size
    q: Extent = 0
    r: Extent = 0
    for monomial, c in size.terms.items():
        if isinstance(divisor, int):
            high, low = divmod(c, divisor) if not monomial else (c // divisor, c % divisor)
            if monomial and low:
                high, low = 0, c
            q, r = q + of_terms({monomial: high}), r + of_terms({monomial: low})
            continue
        term = of_terms({monomial: c})
        part = exact(term, divisor)
        q, r = (q, r + term) if part is None else (q + part, r)
    return q, r


def divided(a: Extent, b: Extent) -> Extent:
    """a // b, b not 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    whole, rest = split(a, b)
    if rest == 0 or (known_le(0, rest) and known_lt(rest, b)):
        return whole
    if isinstance(rest, Size) and len(rest.terms) == 1:
        ((monomial, c),) = rest.terms.items()
        inner = monomial[0] if len(monomial) == 1 and c == 1 else None
        if isinstance(inner, Quotient) and inner.sign == "//" and known_le(1, b):
            return whole + divided(inner.a, inner.b * b)
    rest, b = _reduced(rest, b)
    if isinstance(rest, int) and isinstance(b, int):
        return whole + rest // b
    return whole + Size.of(Quotient("//", rest, b))


def modulo(a: Extent, b: Extent) -> Extent:
    """a % b with the sign of b, b not 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    _, rest = split(a, b)
    if rest == 0 or (known_le(0, rest) and known_lt(rest, b)):
        return rest
    return Size.of(Quotient("%", rest, b))


def _reduced(a: Extent, b: Extent) -> tuple[Extent, Extent]:
    """Both, divided by their common factor of form."""
    common = common_factor([a, b])
    if common == 1:
        return a, b
    a, b = exact(a, common), exact(b, common)  # type: ignore[assignment]
    return a, b


def common_factor(sizes: Iterable[Extent]) -> Extent:
    """The greatest monomial that divides every term of all sizes."""
    number, shared = 0, None
    for size in sizes:
        for monomial, c in terms_of(size).items():
            number = gcd(number, c)
            shared = monomial if shared is None else _in_common(shared, monomial)
    return of_terms({shared or (): number}) if number else 1


def _in_common(one: Monomial, two: Monomial) -> Monomial:
    left, result = list(two), []
    for atom in one:
        if atom in left:
            left.remove(atom)
            result.append(atom)
    return tuple(result)


def ceil_div(a: Extent, b: Extent) -> Extent:
    return (a + b - 1) // b


def largest(a: Extent, b: Extent) -> Extent:
    return b if known_le(a, b) else a if known_le(b, a) else Size.of(Extreme("max", a, b))


def smallest(a: Extent, b: Extent) -> Extent:
    return a if known_le(a, b) else b if known_le(b, a) else Size.of(Extreme("min", a, b))


def bits(sign: str, a: Extent, b: Extent) -> Extent:
    """a OP b, OP one of the signs of Bits. Raises Undecided where Python raises, or the result has
    more than 64 bits.
    """
    if isinstance(a, Size) or isinstance(b, Size):
        return Size.of(Bits(sign, a, b))
    if sign in ("<<", ">>") and (b < 0 or (sign == "<<" and a.bit_length() + b > 63)):
        raise Undecided(f"{a} {sign} {b}, which is no integer of 64 bits")
    if sign == "**" and (b < 0 or abs(a) ** min(b, _MOST_BITS + 1) >> 63):
        raise Undecided(f"{a} ** {b}, which is no integer of 64 bits")
    return FUNCTIONS[sign](a, b)


# --- known relations -----------------------------------------------------------------------------


def bounds(size: Extent) -> Bounds:
    """Inclusive lower and upper bound, None where there is none."""
    if isinstance(size, int):
        return size, size
    found = _interval(size.terms)
    if any(c < 0 for m, c in size.terms.items() if m):
        found = intervals.both(found, (_shifted_low(size), None))
    if any(c > 0 for m, c in size.terms.items() if m):
        above = _shifted_low(-size)
        found = intervals.both(found, (None, None if above is None else -above))
    return found


def _interval(terms: Mapping[Monomial, int]) -> Bounds:
    total: Bounds = (0, 0)
    for monomial, c in terms.items():
        term = monomial[0].bounds() if monomial else (1, 1)
        for atom in monomial[1:]:
            term = intervals.multiplied(term, atom.bounds())
        total = intervals.added(total, term if c == 1 else intervals.scaled(term, c))
    return total


def _shifted_low(size: Size) -> int | None:
    """A lower bound from writing every atom as its own lower bound plus something not negative.

    s0*s1 - s0 with both at least 2:  (2 + a)(2 + b) - (2 + a)  =  2 + a + 2b + ab  >=  2
    """
    shifted: dict[Monomial, int] = {}
    for monomial, c in size.terms.items():
        parts: dict[Monomial, int] = {(): c}
        for atom in monomial:
            low = atom.bounds()[0]
            if low is None or low < 0:
                return None
            grown: dict[Monomial, int] = {}
            for m, k in parts.items():
                for more, factor in (((), low), ((atom,), 1)):
                    key = _product(m, more)
                    grown[key] = grown.get(key, 0) + k * factor
            parts = grown
        for m, k in parts.items():
            shifted[m] = shifted.get(m, 0) + k
    return shifted.get((), 0) if all(k >= 0 for m, k in shifted.items() if m) else None


def known_le(a: Extent, b: Extent) -> bool:
    """Whether a <= b for every value of the symbols, as far as is seen."""
    if isinstance(a, int) and isinstance(b, int):
        return a <= b
    low = bounds(b - a)[0]
    return low is not None and low >= 0


def known_lt(a: Extent, b: Extent) -> bool:
    return known_le(a + 1, b)


def nonzero(size: Extent) -> bool:
    """Whether a size is known not to be 0."""
    return size != 0 if isinstance(size, int) else known_le(1, size) or known_le(size, -1)


def _decided(a: Extent, b: Extent, more: int) -> bool:
    """a + more <= b, or Undecided."""
    if not isinstance(b, int | Size):
        raise Undecided(f"{a} beside {b!r}")
    if known_le(a + more, b):
        return True
    if known_lt(b, a + more):
        return False
    raise Undecided(f"{a} {'<' if more else '<='} {b}")


def where_positive(size: Extent, positive: Iterable[Extent]) -> Extent:
    """The size, where each of `positive` is at least 1: there, max(n, 1) is n."""
    if isinstance(size, int):
        return size
    known: dict[Any, Size] = {Extreme("max", n, 1): n for n in positive if isinstance(n, Size)}
    total: Extent = 0
    for monomial, c in size.terms.items():
        part: Extent = c
        for atom in monomial:
            part = part * (known[atom] if atom in known else Size.of(atom))
        total = total + part
    return total


def hint(size: Extent) -> int:
    """The size at compile time; for choices that are right for any size."""
    return size if isinstance(size, int) else evaluate(size, lambda s: s.hint)


def evaluate(size: Extent, value: Callable[[Symbol], int]) -> int:
    if isinstance(size, int):
        return size
    total = 0
    for monomial, c in size.terms.items():
        for atom in monomial:
            assert not isinstance(atom, Opaque), "its value is not known here"
            c *= value(atom) if isinstance(atom, Symbol) else _apply(atom, value)
        total += c
    return total


def _apply(atom: Quotient | Extreme | Bits, value: Callable[[Symbol], int]) -> int:
    return FUNCTIONS[atom.sign](evaluate(atom.a, value), evaluate(atom.b, value))


FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "max": max,
    "min": min,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": lambda a, b: a << min(b, _MOST_BITS) if b >= 0 else 0,
    ">>": lambda a, b: a >> b if b >= 0 else 0,
    "**": lambda a, b: a ** min(b, _MOST_BITS) if b >= 0 else 0,
}
_MOST_BITS = 62  # of a hint


def symbols(size: Any) -> Iterator[Symbol]:
    """The symbols in a size, or in a tree of sequences and mappings of sizes; with repetitions."""
    if isinstance(size, Size):
        for monomial in size.terms:
            for atom in monomial:
                if isinstance(atom, Symbol):
                    yield atom
                elif not isinstance(atom, Opaque):
                    yield from symbols([atom.a, atom.b])
    elif isinstance(size, Mapping):
        yield from symbols(list(size.values()))
    elif isinstance(size, list | tuple):
        for item in size:
            yield from symbols(item)


def product(sizes: Iterable[Extent]) -> Extent:
    result: Extent = 1
    for n in sizes:
        result = result * n
    return result


def solved_for(size: Extent) -> tuple[Symbol, int, int] | None:
    """(s, factor, const) with size == factor * s + const, if the size has that form."""
    if not isinstance(size, Size):
        return None
    const = size.terms.get((), 0)
    rest = [(monomial, factor) for monomial, factor in size.terms.items() if monomial]
    if len(rest) != 1 or len(rest[0][0]) != 1:
        return None
    ((atom,), factor) = rest[0]
    return (atom, factor, const) if isinstance(atom, Symbol) else None


def is_symbolic(sizes: Iterable[Extent]) -> bool:
    return any(isinstance(n, Size) for n in sizes)


def contiguous_strides(size: Sequence[Extent]) -> tuple[Extent, ...]:
    """The strides of a row-major tensor without gaps. An extent of 0 counts as 1."""
    strides: list[Extent] = []
    step: Extent = 1
    for extent in reversed(size):
        strides.append(step)
        step = step * (extent if isinstance(extent, Size) else max(extent, 1))
    return tuple(reversed(strides))


# --- text ----------------------------------------------------------------------------------------


def parse(text: str, table: Mapping[str, Symbol]) -> Extent:
    """The size that prints as `text`. Raises ValueError for text that is no size."""
    try:
        return _parsed(ast.parse(text, mode="eval").body, table)
    except (SyntaxError, KeyError, TypeError) as error:
        raise ValueError(f"no size: {text!r}") from error


def _parsed(node: Any, table: Mapping[str, Symbol]) -> Extent:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return Size.of(table[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_parsed(operand, table)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_parsed(left, table), _parsed(right, table))
        case ast.Call(func=ast.Name(id=name), args=[a, b]):
            return {"max": largest, "min": smallest}[name](_parsed(a, table), _parsed(b, table))
    raise ValueError(f"no size: {ast.dump(node)}")


_OPERATORS: dict[type, Callable[[Extent, Extent], Extent]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: divided,
    ast.Mod: modulo,
    **{
        kind: partial(bits, sign)
        for kind, sign in (
            (ast.BitAnd, "&"),
            (ast.BitOr, "|"),
            (ast.BitXor, "^"),
            (ast.LShift, "<<"),
            (ast.RShift, ">>"),
            (ast.Pow, "**"),
        )
    },
}
