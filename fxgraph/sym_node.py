"""SymNode: the object inside every torch.SymInt, SymFloat and SymBool of ours.

torch asks no more of such an object than the methods below (Python's operators on torch.SymInt and
the C++ class c10::SymNode call them by name). A SymNode is immutable: an expression over the
symbols of a ShapeEnv, and the Python type that it stands for.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from sympy import Expr, Integer
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean

from fxgraph import expressions
from fxgraph.expressions import is_integral, negated, real, relation

if TYPE_CHECKING:
    from fxgraph.symbols import ShapeEnv


class SymNode:
    """An int, float or bool (`pytype`) that is an expression."""

    __slots__ = ("_at", "_expr", "_now", "pytype", "shape_env")
    constant: Any = None
    fx_node: Any = None

    def __init__(self, expr: Any, shape_env: ShapeEnv, pytype: type) -> None:
        self._expr = expr
        self.shape_env = shape_env
        self.pytype = pytype
        self._at = -1
        self._now = expr

    @property
    def expr(self) -> Any:
        """The expression, simplified by the facts known by now."""
        env = self.shape_env
        if self._at != env.version:
            self._now = env.simplify(self._expr)
            self._at = env.version
        return self._now

    # -- values -----------------------------------------------------------------------------------
    @property
    def hint(self) -> Any:
        value = self.shape_env.hint(self.expr)
        return None if value is None else self.pytype(value)

    @property
    def _hint(self) -> Any:
        return self.hint

    def has_hint(self) -> bool:
        return self.hint is not None

    def require_hint(self, fallback: Any = None) -> Any:
        return fallback if self.hint is None else self.hint

    def maybe_as_int(self) -> int | None:
        return int(self.expr) if self.expr.is_Integer else None

    def maybe_as_float(self) -> float | None:
        return float(self.expr) if self.expr.is_number else None

    def maybe_as_bool(self) -> bool | None:
        return bool(self.expr) if self.expr in (sympy.true, sympy.false) else None

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return int(self.shape_env.specialise(self.expr))

    def guard_float(self, file: str = "", line: int = 0) -> float:
        return float(self.shape_env.specialise(self.expr))

    def guard_bool(self, file: str = "", line: int = 0) -> bool:
        return self.shape_env.evaluate(self.expr)

    def guard_size_oblivious(self, file: str = "", line: int = 0) -> bool:
        return self.shape_env.evaluate_or_false(self.expr)

    def guard_or_false(self, file: str = "", line: int = 0) -> bool:
        return self.shape_env.evaluate_or_false(self.expr)

    def guard_or_true(self, file: str = "", line: int = 0) -> bool:
        return self.shape_env.evaluate(self.expr, True)

    def statically_known_true(self, file: str = "", line: int = 0) -> bool:
        return self.shape_env.statically(self.expr) is True

    def expect_true(self, file: str = "", line: int = 0) -> bool:
        return self.shape_env.check(self.expr)

    def expect_size(self, file: str = "", line: int = 0) -> bool:
        return self.ge(self.wrap_int(0)).expect_true(file, line)

    def bool_(self) -> bool:
        return self.guard_bool()

    def int_(self) -> int:
        return self.guard_int()

    def evaluate(self, size_oblivious: bool = False) -> Any:
        return self.shape_env.evaluate_sym_node(self, size_oblivious)

    # -- kind -------------------------------------------------------------------------------------
    def is_int(self) -> bool:
        return self.pytype is int

    def is_float(self) -> bool:
        return self.pytype is float

    def is_bool(self) -> bool:
        return self.pytype is bool

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def wrap_int(self, num: int) -> SymNode:
        return SymNode(Integer(num), self.shape_env, int)

    def wrap_float(self, num: float) -> SymNode:
        return SymNode(sympy.Float(num), self.shape_env, float)

    def wrap_bool(self, num: bool) -> SymNode:
        return SymNode(sympy.true if num else sympy.false, self.shape_env, bool)

    def clone(self) -> SymNode:
        return self

    def with_shape_env(self, shape_env: ShapeEnv) -> SymNode:
        return SymNode(self._expr, shape_env, self.pytype)

    def str(self) -> str:
        return str(self.expr)

    def __str__(self) -> Any:
        return str(self.expr)

    def __repr__(self) -> Any:
        return f"SymNode({self.expr}, {self.pytype.__name__})"

    def _graph_repr(self) -> Any:
        return str(self.expr)

    def _value_eq(self, other: SymNode) -> bool:
        return (self.expr, self.pytype) == (other.expr, other.pytype)

    def _value_hash(self) -> int:
        return hash((self.expr, self.pytype))

    # -- sizes and strides ------------------------------------------------------------------------
    def is_contiguous(self, sizes: Sequence[SymNode], strides: Sequence[SymNode]) -> SymNode:
        return self._ordered(sizes, strides, range(len(sizes) - 1, -1, -1))

    def is_channels_last_contiguous_2d(
        self, sizes: Sequence[SymNode], strides: Sequence[SymNode]
    ) -> SymNode:
        return self._ordered(sizes, strides, (1, 3, 2, 0))

    def is_channels_last_contiguous_3d(
        self, sizes: Sequence[SymNode], strides: Sequence[SymNode]
    ) -> SymNode:
        return self._ordered(sizes, strides, (1, 4, 3, 2, 0))

    def is_channels_last_strides_2d(
        self, sizes: Sequence[SymNode], strides: Sequence[SymNode]
    ) -> SymNode:
        return self._channels_last(sizes, strides, (1, 3, 2, 0))

    def is_channels_last_strides_3d(
        self, sizes: Sequence[SymNode], strides: Sequence[SymNode]
    ) -> SymNode:
        return self._channels_last(sizes, strides, (1, 4, 3, 2, 0))

    def is_non_overlapping_and_dense(
        self, sizes: Sequence[SymNode], strides: Sequence[SymNode]
    ) -> SymNode:
        return self.wrap_bool(self._dense(sizes, strides))

    def is_non_overlapping_and_dense_indicator(
        self, sizes: Sequence[SymNode], strides: Sequence[SymNode]
    ) -> SymNode:
        return self.wrap_int(int(self._dense(sizes, strides)))

    def _dense(self, sizes: Sequence[SymNode], strides: Sequence[SymNode]) -> bool:
        """Whether sizes and strides are dense, by the order of the hints, which is guarded."""
        env = self.shape_env
        dims = [
            (size.expr, stride.expr)
            for size, stride in zip(sizes, strides)
            if env.statically(relation("eq", size.expr, Integer(1))) is not True
        ]
        if any(env.hint(part) is None for dim in dims for part in dim):
            expected = Integer(1)
            for size, stride in reversed(dims):
                if env.statically(relation("eq", stride, expected)) is not True:
                    return False
                expected = expected * size
            return True
        expected = Integer(1)
        for size, stride in sorted(dims, key=lambda dim: (env.hint(dim[1]), env.hint(dim[0]))):
            if env.statically(relation("eq", stride, expected)) is not True:
                if env.evaluate(relation("eq", size, Integer(1))):
                    continue
                if not env.evaluate(relation("eq", stride, expected)):
                    return False
            expected = expected * size
        return True

    def _ordered(
        self, sizes: Sequence[SymNode], strides: Sequence[SymNode], order: Sequence[int]
    ) -> SymNode:
        """Whether the dimensions in this order, innermost first, fill memory without gaps."""
        if len(sizes) != len(order):
            return self.wrap_bool(False)
        env = self.shape_env
        expected = Integer(1)
        for dim in order:
            size, stride = sizes[dim].expr, strides[dim].expr
            # A stride that fits needs no question whether the size is 1.
            if env.statically(relation("eq", stride, expected)) is not True:
                if env.evaluate(relation("eq", size, Integer(1)), False):
                    continue
                if not env.evaluate(relation("eq", stride, expected), False):
                    return self.wrap_bool(False)
            expected = expected * size
        return self.wrap_bool(True)

    def _channels_last(
        self, sizes: Sequence[SymNode], strides: Sequence[SymNode], order: Sequence[int]
    ) -> SymNode:
        """Whether the strides are in the order of channels-last memory."""
        if len(sizes) != len(order):
            return self.wrap_bool(False)
        env = self.shape_env

        def holds(kind: str, a: Expr, b: Expr) -> bool:
            return env.evaluate(relation(kind, a, b), False)

        least = Integer(0)
        if holds("eq", strides[1].expr, Integer(0)):
            return self.wrap_bool(False)
        for dim in order:
            size, stride = sizes[dim].expr, strides[dim].expr
            if holds("eq", size, Integer(0)) or holds("lt", stride, least):
                return self.wrap_bool(False)
            if dim == 0 and least == strides[1].expr:
                return self.wrap_bool(False)
            least = stride
            if holds("gt", size, Integer(1)):
                least = sympy.expand(least * size)
        return self.wrap_bool(True)

    # -- the rest is one method per row of the tables below ----------------------------------------
    def __getattr__(self, name: Any) -> Any:
        raise AttributeError(f"a SymNode has no {name!r}")

    def sym_sum(self, args: Sequence[SymNode]) -> SymNode:
        total: SymNode = self.wrap_int(0)
        for arg in args:
            total = total.add(arg)  # type: ignore[attr-defined]
        return total

    def sym_ite(self, yes: SymNode, no: SymNode) -> SymNode:
        condition, one, other = self.expr, yes.expr, no.expr
        if yes.pytype is not bool:
            integers = yes.pytype is int and no.pytype is int
            made = expressions.chosen(condition, one, other, integers=integers)
            return SymNode(made, self.shape_env, yes.pytype)
        first = condition if one == condition else _joined(sympy.And, condition, one)
        if other == condition:
            return SymNode(first, self.shape_env, bool)
        if first != condition:
            other = _joined(sympy.And, negated(condition), other)
        return SymNode(_joined(sympy.Or, first, other), self.shape_env, bool)

    def as_int(self) -> SymNode:
        """A bool as 0 or 1."""
        return SymNode(_as_number(self), self.shape_env, int)

    def round(self, ndigits: int | None = None) -> SymNode:
        if self.pytype is int:
            return self
        if ndigits is not None:
            return SymNode(real("rounded", self.expr, Integer(ndigits)), self.shape_env, float)
        return SymNode(expressions.Rounded(Str("round"), self.expr), self.shape_env, int)

    def is_integer(self) -> SymNode:
        if self.pytype is int:
            return self.wrap_bool(True)
        return self.wrap_bool(self.guard_float().is_integer())


def _as_number(node: SymNode) -> Any:
    """The expression as a number: a bool is 0 or 1."""
    return expressions.Truth(node.expr) if node.pytype is bool else node.expr


def _arithmetic(name: str, on_ints: Callable[[Expr, Expr], Any]) -> Callable[..., SymNode]:
    def method(self: SymNode, other: SymNode) -> SymNode:
        a, b = _as_number(self), _as_number(other)
        if float in (self.pytype, other.pytype):
            return SymNode(real(name, a, b), self.shape_env, float)
        return SymNode(on_ints(a, b), self.shape_env, int)

    method.__name__ = name
    return method


def _extreme(name: str, made: Any) -> Callable[..., SymNode]:
    opaque = _arithmetic(name, made)

    def method(self: SymNode, other: SymNode) -> SymNode:
        if float not in (self.pytype, other.pytype):
            a, b = _as_number(self), _as_number(other)
            at_most = self.shape_env.statically(relation("le", a, b))
            if at_most is None and self.shape_env.statically(relation("le", b, a)):
                at_most = False  # or they are equal
            if at_most is not None:
                return self if at_most == (name == "min") else other
        return opaque(self, other)

    method.__name__ = name
    return method


def _beside_infinity(kind: str, number: Expr, infinity: Expr) -> Boolean:
    """The comparison, as one with the largest float or, which nan shows, the number itself."""
    never, always, below, beyond = "gt", "le", sympy.Le, sympy.Gt
    largest = sympy.Float(sys.float_info.max)
    if float(infinity) < 0:
        never, always, below, beyond = "lt", "ge", sympy.Ge, sympy.Lt
        largest = -largest
    if kind == never:
        return sympy.false
    if kind == always:
        return sympy.Eq(number, number, evaluate=False)
    if kind in ("lt", "gt"):
        return below(number, largest, evaluate=False)
    is_infinite = beyond(number, largest, evaluate=False)
    return negated(is_infinite) if kind == "ne" else is_infinite


def _comparison(kind: str) -> Callable[..., SymNode]:
    def method(self: SymNode, other: SymNode) -> SymNode:
        if self.pytype is bool and other.pytype is bool:
            same = sympy.Or(
                sympy.And(self.expr, other.expr, evaluate=False),
                sympy.And(negated(self.expr), negated(other.expr), evaluate=False),
                evaluate=False,
            )
            return SymNode(same if kind == "eq" else negated(same), self.shape_env, bool)
        a, b = _as_number(self), _as_number(other)
        if b.is_infinite:
            if all(symbol.is_integer for symbol in a.free_symbols):
                return self.wrap_bool(getattr(operator, kind)(0.0, float(b)))  # sizes are finite
            return SymNode(_beside_infinity(kind, a, b), self.shape_env, bool)
        if is_integral(a) and is_integral(b):
            return SymNode(relation(kind, a, b), self.shape_env, bool)
        return SymNode(_RELATIONS[kind](a, b, evaluate=False), self.shape_env, bool)

    method.__name__ = kind
    return method


_RELATIONS = {
    "eq": sympy.Eq,
    "ne": sympy.Ne,
    "lt": sympy.Lt,
    "le": sympy.Le,
    "gt": sympy.Gt,
    "ge": sympy.Ge,
}


def _of_floats(name: str) -> Callable[..., SymNode]:
    def method(self: SymNode, *others: SymNode) -> SymNode:
        made = real(name, *(_as_number(node) for node in (self, *others)))
        return SymNode(made, self.shape_env, float)

    method.__name__ = name
    return method


def _rounding(name: str) -> Callable[..., SymNode]:
    def method(self: SymNode) -> SymNode:
        if self.pytype is not float:
            return SymNode(_as_number(self), self.shape_env, int)
        return SymNode(_rounded(name, self.expr, self.shape_env), self.shape_env, int)

    method.__name__ = name
    return method


def _rounded(name: str, expr: Expr, env: ShapeEnv) -> Expr:
    """floor, ceil, trunc or round of a float; of a quotient of ints, in ints.

    floor(a / b) is a // b exactly: below 2**53 the quotient is never rounded up to an integer.
    """
    if isinstance(expr, expressions.Real) and expr.args[0].name == "truediv":
        _, a, b = expr.args
        if name in ("floor", "ceil") and all(
            is_integral(one) and is_exact_as_float(env, one) for one in (a, b)
        ):
            if name == "floor":
                return expressions.FloorDiv(a, b)
            return -expressions.FloorDiv(-a, b)
    return expressions.Rounded(Str(name), expr)


def is_exact_as_float(env: ShapeEnv, expr: Any) -> bool:
    """Whether an integer expression is converted to a float without being rounded. Counts, which
    have a least value, are taken for small enough.
    """
    low, high = env.bounds(expr)
    if low is not None and high is not None:
        return low >= -MOST_EXACT and high <= MOST_EXACT
    ranges = [env.symbols[symbol].declared for symbol in expr.free_symbols]
    return all(least is not None and (most or 0) <= MOST_EXACT for least, most in ranges)


MOST_EXACT = 2**53  # of the integers that a float can tell from their neighbours


def _logic(name: str, made: Any) -> Callable[..., SymNode]:
    def method(self: SymNode, other: SymNode) -> SymNode:
        if self.pytype is bool and other.pytype is bool:
            return SymNode(_joined(made, self.expr, other.expr), self.shape_env, bool)
        bits = expressions.Bits(Str(name), _as_number(self), _as_number(other))
        return SymNode(bits, self.shape_env, int)

    return method


def _joined(made: Any, a: Boolean, b: Boolean) -> Boolean:
    decisive = sympy.false if made is sympy.And else sympy.true
    if decisive in (a, b):
        return decisive
    rest = [part for part in (a, b) if part not in (sympy.true, sympy.false)]
    if len(rest) < 2:
        return rest[0] if rest else negated(decisive)
    return made(*rest, evaluate=False) if a != b else a


def _shift(name: str) -> Callable[..., SymNode]:
    def method(self: SymNode, other: SymNode) -> SymNode:
        bits = expressions.Bits(Str(name), _as_number(self), _as_number(other))
        return SymNode(bits, self.shape_env, int)

    return method


def _power(self: SymNode, other: SymNode) -> SymNode:
    """Of ints, the exponent is not negative; C++ asks for the power of floats by this name, too."""
    if self.pytype is float or other.pytype is float:
        return _of_floats("pow")(self, other)
    exponent = other.expr
    if not exponent.is_Integer:
        return _shift("pow")(self, other)
    return SymNode(sympy.expand(_as_number(self) ** exponent), self.shape_env, int)


def _not(self: SymNode) -> SymNode:
    condition = self.expr if self.pytype is bool else relation("ne", self.expr, Integer(0))
    return SymNode(negated(condition), self.shape_env, bool)


def _negative(self: SymNode) -> SymNode:
    if self.pytype is float:
        return SymNode(real("neg", self.expr), self.shape_env, float)
    return SymNode(-_as_number(self), self.shape_env, int)


def _absolute(self: SymNode) -> SymNode:
    if self.pytype is float:
        return SymNode(real("abs", self.expr), self.shape_env, float)
    a = _as_number(self)
    low, _ = self.shape_env.bounds(a)
    if low is not None and low >= 0:
        return SymNode(a, self.shape_env, int)
    return SymNode(expressions.Max(a, -a), self.shape_env, int)


def _sym_int(self: SymNode) -> SymNode:
    return _rounding("trunc")(self)


def _sym_float(self: SymNode) -> SymNode:
    if self.pytype is float:
        return self
    return SymNode(real("float", _as_number(self)), self.shape_env, float)


def _product(a: Expr, b: Expr) -> Expr:
    return sympy.expand(a * b) if a.is_Add or b.is_Add else a * b


_floordiv = _arithmetic("floordiv", expressions.FloorDiv)
_METHODS: dict[str, Callable[..., SymNode]] = {
    "add": _arithmetic("add", lambda a, b: a + b),
    "sub": _arithmetic("sub", lambda a, b: a - b),
    "mul": _arithmetic("mul", _product),
    "mod": _arithmetic("mod", expressions.Mod),
    "floordiv": _floordiv,
    "int_floordiv": _floordiv,
    "sym_min": _extreme("min", expressions.Min),
    "sym_max": _extreme("max", expressions.Max),
    "truediv": _of_floats("truediv"),
    "int_truediv": _of_floats("truediv"),
    "float_truediv": _of_floats("truediv"),
    "float_pow": _of_floats("pow"),
    "pow": _power,
    "pow_by_natural": _power,
    **{kind: _comparison(kind) for kind in _RELATIONS},
    **{name: _rounding(name) for name in ("floor", "ceil", "trunc")},
    "and_": _logic("and", sympy.And),
    "or_": _logic("or", sympy.Or),
    "sym_and": _logic("and", sympy.And),
    "sym_or": _logic("or", sympy.Or),
    "bitwise_and": _logic("and", sympy.And),
    "bitwise_or": _logic("or", sympy.Or),
    "bitwise_xor": _shift("xor"),
    "lshift": _shift("lshift"),
    "rshift": _shift("rshift"),
    "neg": _negative,
    "abs": _absolute,
    "pos": lambda self: self,
    "sym_not": _not,
    "sym_int": _sym_int,
    "sym_float": _sym_float,
    **{
        f"{prefix}{name}": _of_floats(name)
        for prefix in ("sym_", "_sym_")
        for name in ("sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan")
        + ("log2",)
    },
}
for _name, _method in _METHODS.items():
    setattr(SymNode, _name, _method)


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """`yes if condition else no`, of symbolic or plain values."""
    if not isinstance(condition, torch.SymBool):
        return yes if condition else no
    node = condition.node
    wrap = {int: node.wrap_int, float: node.wrap_float, bool: node.wrap_bool}
    nodes = [v.node if hasattr(v, "node") else wrap[type(v)](v) for v in (yes, no)]
    made = node.sym_ite(*nodes)
    return {int: torch.SymInt, float: torch.SymFloat, bool: torch.SymBool}[made.pytype](made)


def sym_exp(x: Any) -> Any:
    """math.exp of a symbolic or plain number."""
    return _on_reals("exp", x)


def sym_log(x: Any) -> Any:
    """math.log of a symbolic or plain number."""
    return _on_reals("log", x)


def sym_log10(x: Any) -> Any:
    """math.log10 of a symbolic or plain number."""
    return _on_reals("log10", x)


def sym_floordiv(x: Any, y: Any) -> Any:
    """x // y, where one is a float: torch's is floor(x / y), which rounds before."""
    return _on_reals("floordiv", x, y)


def sym_least(x: Any, y: Any) -> Any:
    """min(x, y) of floats. torch.sym_min may exchange them, which shows with nan and -0.0."""
    return _on_reals("min", x, y)


def sym_greatest(x: Any, y: Any) -> Any:
    """max(x, y) of floats."""
    return _on_reals("max", x, y)


MOST_DECIMALS = 22  # of those that `sym_rounded` takes: larger powers of ten are no doubles


def sym_rounded(x: Any, decimals: int) -> Any:
    """round(x, decimals) of a float."""
    if not isinstance(x, torch.SymFloat):
        return round(x, decimals)
    made = real("rounded", x.node.expr, Integer(decimals))
    return torch.SymFloat(SymNode(made, x.node.shape_env, float))


def sym_divide(x: Any, y: Any) -> Any:
    """x / y as in C++: of zeros, infinite or no number."""
    if isinstance(x, (int, float)) and isinstance(y, (int, float)) and y == 0:
        sign = math.copysign(1.0, x) * math.copysign(1.0, y)
        return math.nan if x == 0 or math.isnan(x) else sign * math.inf
    return x / y


def _on_reals(name: str, *numbers: Any) -> Any:
    """A function of floats, symbolic or plain; ints among them are converted."""
    made = next((n.node for n in numbers if isinstance(n, torch.SymInt | torch.SymFloat)), None)
    if made is None:
        return expressions.REAL_FUNCTIONS[name](*numbers)
    nodes = [n.node if hasattr(n, "node") else made.wrap_float(float(n)) for n in numbers]
    return torch.SymFloat(_of_floats(name)(*nodes))
