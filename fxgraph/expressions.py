"""Integer expressions over symbols: sympy's Add and Mul, with our own floor division, modulo,
minimum and maximum, and with bounds.

sympy's own `floor`, `Mod`, `Max` and `Min` ask its assumptions system about every sub-expression,
which takes milliseconds; these four, and relations, decide by the arguments' form
only: by the algebra of sizes (fxgraph/sizes.py), to which `polynomial` and `expression` lead and
back. Everything that is known from ranges is decided by `bounds`.

A condition has one of the forms `Eq(a, b)`, `Ne(a, b)`, `Le(a, b)`, `Ge(a, b)` over integers
(`relation` brings every comparison there), or And, Or, Not of such.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from sympy import Expr, Integer
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean

from fxgraph import intervals, sizes
from fxgraph.intervals import ANY, Bounds
from fxgraph.sizes import Extent, Size


class _IntegerFunction(sympy.Function):
    """A function of integers with an integer result."""

    is_integer = True
    is_real = True
    is_commutative = True

    def __reduce__(self) -> Any:
        return type(self), self.args


class FloorDiv(_IntegerFunction):
    """a // b, rounded towards minus infinity as Python does; b is not 0."""

    nargs = (2,)
    precedence = 50

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        return _quotient("//", a, b)

    def _sympystr(self, printer: Any) -> str:
        a, b = (printer.parenthesize(arg, 51) for arg in self.args)
        return f"({a}//{b})"


class Mod(_IntegerFunction):
    """a % b with the sign of b, as Python's; b is not 0."""

    nargs = (2,)
    precedence = 50

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        return _quotient("%", a, b)

    def _sympystr(self, printer: Any) -> str:
        a, b = (printer.parenthesize(arg, 51) for arg in self.args)
        return f"({a} % {b})"


class Max(_IntegerFunction):
    """The larger of two integers."""

    nargs = (2,)

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        one, two = polynomial(a), polynomial(b)
        if sizes.known_le(one, two) or sizes.known_le(two, one):
            return b if sizes.known_le(one, two) else a
        return cls(b, a) if b.sort_key() < a.sort_key() else None


class Min(_IntegerFunction):
    """The smaller of two integers."""

    nargs = (2,)

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        one, two = polynomial(a), polynomial(b)
        if sizes.known_le(one, two) or sizes.known_le(two, one):
            return a if sizes.known_le(one, two) else b
        return cls(b, a) if b.sort_key() < a.sort_key() else None


class Truth(_IntegerFunction):
    """1 if the condition holds, else 0: a bool used as a number."""

    nargs = (1,)

    @classmethod
    def eval(cls, condition: Boolean) -> Expr | None:
        if condition in (sympy.true, sympy.false):
            return Integer(bool(condition))
        return None


class Choose(_IntegerFunction):
    """The second argument if the first, a condition, holds, else the third."""

    nargs = (3,)

    @classmethod
    def eval(cls, condition: Boolean, yes: Expr, no: Expr) -> Expr | None:
        if condition == sympy.true or yes == no:
            return yes
        return no if condition == sympy.false else None


def chosen(condition: Boolean, yes: Any, no: Any, *, integers: bool) -> Any:
    """`yes if condition else no` of two integers, whatever these were chosen by, or two floats."""
    if integers or condition in (sympy.true, sympy.false):
        return Choose(condition, yes, no)
    return yes if yes == no else real("choose", condition, yes, no)


class Bits(_IntegerFunction):
    """a OP b; the first argument names OP, one of `BIT_FUNCTIONS`. A power of this kind is one by a
    number that varies, which no polynomial is.
    """

    nargs = (3,)

    def _sympystr(self, printer: Any) -> str:
        return _python_text(self, printer)


class Real(sympy.Function):
    """A Python float: the function named by the first argument, of the others.

    Floating-point arithmetic is not associative, so sympy may not rearrange it and sees
    one opaque function. Values are those of Python's own operators (`REAL_FUNCTIONS`).
    """

    is_real = True
    is_commutative = True

    def __reduce__(self) -> Any:
        return type(self), self.args

    def _sympystr(self, printer: Any) -> str:
        return _python_text(self, printer)


class Rounded(_IntegerFunction):
    """An int made of a float: floor, ceil, trunc or round (the first argument names it)."""

    nargs = (2,)

    def _sympystr(self, printer: Any) -> str:
        return _python_text(self, printer)


_PYTHON_SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}


def _python_text(expr: Expr, printer: Any) -> str:
    """A function that the first argument names, as Python would write it: "0.1*n"."""
    name, *operands = expr.args
    sign = _PYTHON_SIGNS.get(name.name)
    if name.name == "float":  # a conversion, which arithmetic does by itself
        return printer._print(operands[0])
    texts = [str(float(one)) if one.is_Float else printer._print(one) for one in operands]
    if sign is None:
        return f"{name.name}({', '.join(texts)})"
    return sign.join(t if re.fullmatch(r"[\w.]+", t) else f"({t})" for t in texts)


# name -> the function of Python numbers that a Real or a Rounded of this name is.
REAL_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "neg": operator.neg,
    "abs": abs,
    "min": min,
    "max": max,
    "float": float,
    "choose": lambda condition, yes, no: yes if condition else no,
    "rounded": round,  # to so many decimals
    **{
        name: getattr(math, name)
        for name in ("sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan", "tanh", "sinh")
        + ("cosh", "asin", "acos", "atan")
    },
}
ROUNDINGS: dict[str, Callable[..., int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
}


def real(name: str, *args: Expr) -> Expr:
    """The Real of this name."""
    return Real(Str(name), *args)


def is_choice(expr: Any) -> bool:
    """Whether `expr` is one of two numbers, by a condition; its last three arguments are these."""
    return isinstance(expr, Choose) or (isinstance(expr, Real) and expr.args[0].name == "choose")


def second_is_taken(expr: Any) -> Boolean | None:
    """The condition that the least or greatest of two floats is the second; None: another kind."""
    if not isinstance(expr, Real) or expr.args[0].name not in ("min", "max"):
        return None
    kind = sympy.Lt if expr.args[0].name == "min" else sympy.Gt
    return kind(expr.args[2], expr.args[1], evaluate=False)


def equal(expr: Expr, value: Any) -> Boolean:
    if isinstance(value, int) and is_integral(expr):
        return relation("eq", expr, Integer(value))
    return sympy.Eq(expr, sympy.sympify(value), evaluate=False)


# -- the algebra of sizes -------------------------------------------------------------------------
@functools.lru_cache(maxsize=4096)
def polynomial(expr: Expr) -> Extent:
    """An integer expression as a size; terms unknown to the algebra are opaque atoms."""
    if expr.is_Integer:
        return int(expr)
    if expr.is_Add or expr.is_Mul:
        parts = map(polynomial, expr.args)
        return sum(parts) if expr.is_Add else sizes.product(parts)
    if expr.is_Pow and expr.args[1].is_Integer and expr.args[1] > 0:
        return sizes.product([polynomial(expr.args[0])] * int(expr.args[1]))
    kind = type(expr)
    if kind in _SIGNS:
        a, b = map(polynomial, expr.args)
        made = sizes.Quotient if kind in (FloorDiv, Mod) else sizes.Extreme
        return Size.of(made(_SIGNS[kind], a, b))
    return Size.of(sizes.Opaque(expr, str(expr)))


@functools.lru_cache(maxsize=4096)
def expression(size: Extent) -> Expr:
    """The expression that a size is, of `polynomial`'s."""
    if isinstance(size, int):
        return Integer(size)
    terms = [
        sympy.Mul(Integer(factor), *map(_of_atom, monomial))
        for monomial, factor in size.terms.items()
    ]
    return sympy.Add(*terms)


def _of_atom(atom: sizes.Atom) -> Expr:
    if isinstance(atom, sizes.Opaque):
        return atom.value
    assert not isinstance(atom, sizes.Symbol), "symbols of expressions are sympy's"
    a, b = expression(atom.a), expression(atom.b)
    if isinstance(atom, sizes.Extreme):
        return _KINDS[atom.sign](a, b)
    return _KINDS[atom.sign](a, b, evaluate=False)


# The kinds of expressions that are atoms of sizes.
_SIGNS: dict[Any, str] = {FloorDiv: "//", Mod: "%", Max: "max", Min: "min"}
_KINDS: dict[str, Any] = {sign: kind for kind, sign in _SIGNS.items()}


def _quotient(sign: str, a: Expr, b: Expr) -> Expr | None:
    """a // b or a % b where the algebra knows a simpler form."""
    if b == 0:
        return None
    one, two = polynomial(a), polynomial(b)
    made = sizes.divided(one, two) if sign == "//" else sizes.modulo(one, two)
    same = isinstance(made, Size) and made == Size.of(sizes.Quotient(sign, one, two))
    return None if same else expression(made)


# -- bounds ---------------------------------------------------------------------------------------
def bounds(expr: Expr, ranges: Mapping[sympy.Symbol, Bounds]) -> Bounds:
    """Bounds of an integer expression whose symbols lie in `ranges` (absent: anywhere).

    The rules are those of `sizes.bounds` (fxgraph/intervals.py). Sizes have no conditions, and
    their symbols hold their ranges; those of an expression lie where the caller says.
    """
    if expr.is_Integer:
        return int(expr), int(expr)
    if expr.is_Symbol:
        return ranges.get(expr, ANY)
    kind = type(expr)
    if kind is Truth:
        return 0, 1
    if kind is sympy.Pow:
        base, power = expr.args
        return intervals.raised(bounds(base, ranges), int(power)) if power.is_Integer else ANY
    rule = _BOUNDS.get(kind)
    if rule is None:
        return ANY
    operands = expr.args[1:] if kind is Choose else expr.args
    return functools.reduce(rule, (bounds(arg, ranges) for arg in operands))


# Kind -> the bounds of its value from those of its operands.
_BOUNDS: dict[Any, Callable[..., Bounds]] = {
    sympy.Add: intervals.added,
    sympy.Mul: intervals.multiplied,
    FloorDiv: intervals.floor_divided,
    Mod: intervals.modulo,
    Max: intervals.largest,
    Min: intervals.smallest,
    Choose: intervals.either,
}


# -- conditions -----------------------------------------------------------------------------------
@functools.lru_cache(maxsize=4096)
def relation(kind: str, a: Expr, b: Expr) -> Boolean:
    """a KIND b for integers, KIND one of eq, ne, lt, le, gt, ge, in its canonical form.

    2*s0 < 2*s1 + 3  ->  s0 <= s1 + 1
    """
    if kind in ("gt", "ge"):
        kind, a, b = {"gt": "lt", "ge": "le"}[kind], b, a
    left, right = _symbol_plus(a), _symbol_plus(b)
    if left is not None and right is not None and left[0] != right[0]:
        return _of_symbols(kind, *left, *right)
    difference = polynomial(a) - polynomial(b) + (kind == "lt")
    kind = "le" if kind == "lt" else kind
    if isinstance(difference, int):
        holds = {"eq": difference == 0, "ne": difference != 0, "le": difference <= 0}[kind]
        return sympy.true if holds else sympy.false
    constant = difference.terms.get((), 0)
    factors = {monomial: factor for monomial, factor in difference.terms.items() if monomial}
    common = math.gcd(*factors.values())
    constant, odd = divmod(constant, common)
    if odd and kind != "le":
        return sympy.false if kind == "eq" else sympy.true
    # rest*common + constant <= 0: the constant is rounded up.
    rest = {monomial: factor // common for monomial, factor in factors.items()}
    return _written(kind, rest, constant + (1 if odd else 0))


def _symbol_plus(expr: Expr) -> tuple[Expr | None, int] | None:
    """(symbol or None, number) of an expression that is no more than their sum."""
    if expr.is_Symbol:
        return expr, 0
    if expr.is_Integer:
        return None, int(expr)
    if expr.is_Add and len(expr.args) == 2 and expr.args[0].is_Integer and expr.args[1].is_Symbol:
        return expr.args[1], int(expr.args[0])
    return None


def _of_symbols(kind: str, a: Expr | None, m: int, b: Expr | None, n: int) -> Boolean:
    """a + m KIND b + n without the algebra; KIND is eq, ne, lt or le."""
    more = n - m - (kind == "lt")
    made = {"eq": sympy.Eq, "ne": sympy.Ne, "lt": sympy.Le, "le": sympy.Le}[kind]
    if a is None:
        made, a, b, more = sympy.Ge if made is sympy.Le else made, b, None, -more
    return made(a, Integer(more) if b is None else b + more, evaluate=False)


def _written(kind: str, rest: dict[sizes.Monomial, int], constant: int) -> Boolean:
    """rest + constant KIND 0 with negative terms on the other side, so that it reads well."""
    left = expression(sizes.of_terms({m: factor for m, factor in rest.items() if factor > 0}))
    right = expression(sizes.of_terms({m: -factor for m, factor in rest.items() if factor < 0}))
    negative = sum(factor < 0 for factor in rest.values())
    positive = len(rest) - negative
    if not positive or (kind != "le" and negative > positive):
        # -s0 + 5 <= 0  ->  s0 >= 5
        flipped = {"eq": sympy.Eq, "ne": sympy.Ne, "le": sympy.Ge}[kind]
        return flipped(right, left + constant, evaluate=False)
    made = {"eq": sympy.Eq, "ne": sympy.Ne, "le": sympy.Le}[kind]
    return made(left, right - constant, evaluate=False)


def difference_of(condition: Boolean) -> tuple[str, Expr]:
    """(kind, d) with the condition being `d KIND 0`; KIND is eq, ne or le."""
    a, b = condition.args
    if isinstance(condition, sympy.Ge):
        return "le", b - a
    return {sympy.Eq: "eq", sympy.Ne: "ne", sympy.Le: "le"}[type(condition)], a - b


@functools.lru_cache(maxsize=4096)
def negated(condition: Boolean) -> Boolean:
    """not condition, in canonical form."""
    if condition in (sympy.true, sympy.false):
        return sympy.false if condition == sympy.true else sympy.true
    if isinstance(condition, sympy.And | sympy.Or):
        other = sympy.Or if isinstance(condition, sympy.And) else sympy.And
        return other(*(negated(arg) for arg in condition.args), evaluate=False)
    if isinstance(condition, sympy.Not):
        return condition.args[0]
    if isinstance(condition, sympy.Eq | sympy.Ne | sympy.Le | sympy.Ge) and is_integral(condition):
        return relation(_OPPOSITES[type(condition)], *condition.args)
    return sympy.Not(condition, evaluate=False)


_OPPOSITES: dict[Any, str] = {sympy.Eq: "ne", sympy.Ne: "eq", sympy.Le: "gt", sympy.Ge: "lt"}


def is_condition(expr: Any) -> bool:
    """Whether `expr` is true or false rather than a number (sympy takes symbols for both)."""
    return isinstance(expr, Boolean) and not expr.is_Symbol


@functools.lru_cache(maxsize=4096)
def is_integral(expr: Any) -> bool:
    """Whether `expr` is made of integers; one that is made of a float is an atom."""
    if isinstance(expr, Rounded):
        return True
    if isinstance(expr, Real) or expr.is_Float or (expr.is_Symbol and not expr.is_integer):
        return False
    return all(map(is_integral, expr.args))


def tells_positive(fact: Boolean, expr: Expr) -> bool:
    """Whether a known condition compares a float with a number that is not negative, as larger."""
    strict = isinstance(fact, sympy.Gt | sympy.Lt)
    if not (strict or isinstance(fact, sympy.Ge | sympy.Le)) or fact.gts != expr:
        return False
    least = fact.lts
    return bool(least.is_number and (least > 0 or (strict and least >= 0)))


def stays_positive(name: str, args: Sequence[Expr]) -> bool:
    """Whether a function of positive floats is positive: products and quotients of small ones may
    be 0.
    """
    if name in ("mul", "truediv"):
        grows = [arg.is_number and (arg >= 1 if name == "mul" else arg <= 1) for arg in args]
        return bool(grows[-1] or (name == "mul" and grows[0]))
    return name in ("add", "sqrt", "float")


def is_product(term: Expr) -> bool:
    """Whether more than a number is multiplied."""
    return bool(term.is_Pow or (term.is_Mul and sum(not arg.is_number for arg in term.args) > 1))


# -- values ---------------------------------------------------------------------------------------
def evaluate(expr: Any, values: Mapping[sympy.Symbol, Any]) -> Any:
    """The Python int, float or bool that `expr` is for these values of its symbols.

    Raises KeyError for a symbol without a value, and the errors of Python's arithmetic.
    """
    if expr.is_Symbol:
        return values[expr]
    if expr.is_Integer:
        return int(expr)
    if expr.is_Float:
        return float(expr)
    if expr is sympy.true or expr is sympy.false:
        return bool(expr)
    if is_choice(expr):
        condition, yes, no = expr.args[-3:]
        return evaluate(yes if evaluate(condition, values) else no, values)
    form, args = FORMS[type(expr)], expr.args
    function: Any = form.value
    if form.functions is not None:
        function, args = form.functions[args[0].name], args[1:]
    return form.applied(function, [evaluate(arg, values) for arg in args])


BIT_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "pow": operator.pow,
}


@dataclass(frozen=True)
class Form:
    """A kind of expression, for all that reads expressions: values, nodes of graphs, Python text,
    programs of guards, files.

    arity: how many operands; None: two or more, from the left. value: the function of Python
    numbers that the kind is. sign: in Python text, between the operands; call: before them.
    functions: where the first argument names one of these instead.
    """

    kind: Any
    name: str
    arity: int | None
    value: Callable[..., Any] | None = None
    sign: str = ""
    call: str = ""
    functions: Mapping[str, Callable[..., Any]] | None = None
    is_condition: bool = False

    def applied(self, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
        """The value for these operands."""
        if self.arity is None and self.functions is None:
            return functools.reduce(function, operands)
        return function(*operands)


FORMS: dict[Any, Form] = {
    form.kind: form
    for form in (
        Form(sympy.Add, "Add", None, operator.add, "+"),
        Form(sympy.Mul, "Mul", None, operator.mul, "*"),
        Form(sympy.Pow, "Pow", 2, operator.pow, "**"),
        Form(FloorDiv, "FloorDiv", 2, operator.floordiv, "//"),
        Form(Mod, "Mod", 2, operator.mod, "%"),
        Form(Max, "Max", 2, max, call="max"),
        Form(Min, "Min", 2, min, call="min"),
        Form(Truth, "Truth", 1, int, call="int"),
        Form(Choose, "Choose", 3, REAL_FUNCTIONS["choose"]),
        Form(Bits, "Bits", None, functions=BIT_FUNCTIONS),
        Form(Real, "Real", None, functions=REAL_FUNCTIONS),
        Form(Rounded, "Rounded", None, functions=ROUNDINGS),
        Form(sympy.Eq, "Eq", 2, operator.eq, "==", is_condition=True),
        Form(sympy.Ne, "Ne", 2, operator.ne, "!=", is_condition=True),
        Form(sympy.Le, "Le", 2, operator.le, "<=", is_condition=True),
        Form(sympy.Ge, "Ge", 2, operator.ge, ">=", is_condition=True),
        Form(sympy.Lt, "Lt", 2, operator.lt, "<", is_condition=True),
        Form(sympy.Gt, "Gt", 2, operator.gt, ">", is_condition=True),
        Form(sympy.And, "And", None, operator.and_, "and", is_condition=True),
        Form(sympy.Or, "Or", None, operator.or_, "or", is_condition=True),
        Form(sympy.Not, "Not", 1, operator.not_, call="not ", is_condition=True),
    )
}
