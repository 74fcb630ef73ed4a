"""Numbers that are symbols: sizes of tensors, ints and floats that change from call to call.

Arithmetic and comparisons give further symbolic numbers. Whatever needs the number itself (a text,
a range, the key of a dict, `if`) gets the one of this call, and that is guarded.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.exceptions import call_real, raise_python
from dynamo.values.recipes import Existing, GraphOutput, Loaded, Made, Recipe
from dynamo.values.scalars.arithmetic import BY_ZERO, masked
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.int_members import has_operators_of_int
from dynamo.values.scalars.operators import BINARY_FUNCTIONS, COMPARE_FUNCTIONS, binary_op
from fxgraph.python_numbers import name_of
from fxgraph.sym_node import (
    MOST_DECIMALS,
    MOST_EXACT,
    choose,
    is_exact_as_float,
    sym_exp,
    sym_floordiv,
    sym_greatest,
    sym_least,
    sym_log,
    sym_log10,
    sym_rounded,
)
from fxgraph.symbols import DataDependent, ShapeEnv

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph

Symbolic = torch.SymInt | torch.SymFloat | torch.SymBool
_TYPES = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


@bound_late
class SymbolValue(Value):
    """An int, float or bool that is an expression over symbols (`symbolic`)."""

    def __init__(
        self, output: OutputGraph, symbolic: Symbolic, source: Source | None = None
    ) -> None:
        super().__init__(source)
        self.output = output
        self.symbolic = symbolic

    @property
    def env(self) -> ShapeEnv:
        return self.symbolic.node.shape_env

    def python_type(self) -> type:
        return _TYPES[type(self.symbolic)]

    def is_symbolic(self) -> bool:
        return True

    def depends_on_data(self) -> bool:
        """Whether only the call knows the number."""
        return _is_data(self.symbolic)

    def as_constant(self) -> Any:
        """The number of this call; guarded."""
        with deciding():
            return self.python_type()(_decided(self.symbolic))

    def as_proxy(self) -> Any:
        if isinstance(self.symbolic, torch.SymBool):
            return self.as_constant()
        return self.output.symbols.node(self.symbolic)

    @property
    def node(self) -> Any:
        """As a result of the graph."""
        if self.env.hint(self.symbolic.node.expr) is None:
            return self.output.symbols.node(self.symbolic)
        return self.as_proxy()

    def describe(self) -> str:
        return f"{self.python_type().__name__} {self.env.describe(self.symbolic.node.expr)}"

    # -- operators --------------------------------------------------------------------------------
    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        number = _operand_of(other)
        op = op[:-1] if op.endswith("=") else op
        if number is None and other.is_constant():
            return self._folded(tx, op, other.as_constant(), reflected)
        if number is None:
            return None
        ours: Any = self.symbolic
        left, right = (number, ours) if reflected else (ours, number)
        rule = _BINARY.get(op)
        if rule is None:
            return None
        with deciding():
            try:
                if not is_exact(number):
                    return _by_python(tx, BINARY_FUNCTIONS[op], (left, right)) or self._folded(
                        tx, op, number, reflected
                    )
                return self._by_rule(tx, op, rule, left, right)
            except DataDependent:
                value = _by_python(tx, BINARY_FUNCTIONS[op], (left, right))
                if value is None:
                    raise
                return value

    def _by_rule(
        self, tx: Interpreter, op: str, rule: Callable[[Any, Any], Any], left: Any, right: Any
    ) -> Value:
        if op in ("/", "//", "%"):
            kinds = _types(left, right)
            right = _where(right != 0, right)
            if right is None:
                raise_python(tx, ZeroDivisionError, BY_ZERO[op, float in kinds])
        if op in ("<<", ">>") and not _usually(right >= 0):
            raise_python(tx, ValueError, "negative shift count")
        try:
            made = rule(left, right)
        except ArithmeticError as error:  # of the numbers themselves, see _power
            raise_python(tx, type(error), *error.args)
        return number_value(tx, made)

    def _folded(self, tx: Interpreter, op: str, other: Any, reflected: bool) -> Value | None:
        """The operator's result for the number of this call; None for operands of other types,
        whose error names the operator of the program (`+=`).
        """
        ours, function = self.as_constant(), BINARY_FUNCTIONS[op]
        operands = (other, ours) if reflected else (ours, other)
        try:
            function(*operands)
        except TypeError:
            return None
        except Exception:
            pass  # raised in the program below
        return ConstantValue(call_real(tx, function, *operands))

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        number = _operand_of(other)
        if number is None:
            return None
        compare = COMPARE_FUNCTIONS[op]
        left, right = _plain(self.symbolic), _plain(number)
        with deciding():
            infinite = isinstance(number, float) and math.isinf(number)
            if infinite or (is_exact(number) and _compare_as_floats(left, right)):
                return number_value(tx, compare(left, right))
            made = _by_python(tx, compare, (left, right))
            return made or ConstantValue(compare(_number(left), _number(right)))

    def unary(self, tx: Interpreter, op: str) -> Value | None:
        number = _plain(self.symbolic)
        if op == "~":
            if isinstance(number, torch.SymFloat):
                return None
            return number_value(tx, -number - 1)
        return number_value(tx, -number if op == "-" else number)

    def truth(self, tx: Interpreter) -> bool:
        if tx.output.guesses and self.env.hint(self.symbolic.node.expr) is None:
            return False
        with deciding():
            return bool(self.symbolic != 0 if not _is_bool(self.symbolic) else self.symbolic)

    def truth_value(self, tx: Interpreter, negated: bool = False) -> Value:
        """Of data, the graph has it."""
        if tx.output.guesses or not self.depends_on_data():
            return super().truth_value(tx, negated)
        condition = condition_of(self)
        return number_value(tx, torch.sym_not(condition) if negated else condition)

    def hash_key(self, tx: Interpreter) -> Hashable:
        return self.as_constant()

    # -- everything else is asked of the number ---------------------------------------------------
    def _constant(self) -> ConstantValue:
        return ConstantValue(self.as_constant())

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "__class__":
            return tx.wrap(self.python_type())
        found = getattr(self.python_type(), name, None)
        if name in ("real", "numerator") and found is not None:
            return number_value(tx, _plain(self.symbolic))
        if name in ("imag", "denominator") and found is not None:  # of no number another
            return ConstantValue(getattr(self.python_type()(1), name))
        if name in _METHODS or name_of(found) is not None:
            return tx.builtin_method(self, name, found)
        return self._constant().getattr(tx, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        self._constant().setattr(tx, name, value)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        function = _METHODS.get(name)
        if function is not None and not args and not kwargs:
            return function(tx, self)
        numbers = [self.symbolic, *map(number_of, args)]
        if not kwargs and not any(number is None for number in numbers):
            made = _by_python(tx, getattr(self.python_type(), name, None), numbers)
            if made is not None:
                return made
        return self._constant().call_method(tx, name, args, kwargs)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self._constant().call(tx, args, kwargs)

    def length(self, tx: Interpreter) -> int:
        return self._constant().length(tx)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        return self._constant().getitem(tx, key)

    def contains(self, tx: Interpreter, item: Value) -> Value:
        return self._constant().contains(tx, item)

    def iterate(self, tx: Interpreter) -> Value:
        return self._constant().iterate(tx)

    # -- made again -------------------------------------------------------------------------------
    def children(self) -> Sequence[Value]:
        return ()

    def recipe(self) -> Recipe:
        expr = self.symbolic.node.expr
        export = self.output.context.export
        decided = export and isinstance(self.symbolic, torch.SymBool)
        if expr.is_number or expr in (sympy.true, sympy.false) or decided:
            return Existing(self.as_constant()), []
        symbols = sorted(expr.free_symbols, key=str)
        sources = [self.env.symbols[symbol].source for symbol in symbols]
        if export or any(source is None for source in sources):
            return GraphOutput(self), []
        sizes = [Made(Loaded(source)) for source in sources]
        if expr.is_Symbol:
            return Loaded(sources[0]), []
        return self.output.symbols.function(expr, symbols), sizes


# -- numbers --------------------------------------------------------------------------------------
class deciding:
    """A region in which a need of a data-dependent number's value breaks the graph, with the
    reason.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, DataDependent):
            raise Unsupported(breaks.DataDependentValue(str(error))) from error


def _decided(symbolic: Symbolic) -> Any:
    node = symbolic.node
    return node.guard_bool() if _is_bool(symbolic) else node.shape_env.specialise(node.expr)


def _is_bool(number: Any) -> bool:
    return isinstance(number, torch.SymBool)


def _types(*numbers: Any) -> set[type]:
    return {_TYPES.get(type(number), type(number)) for number in numbers}


def _plain(number: Any) -> Any:
    """A bool as an int, as arithmetic takes it."""
    if isinstance(number, torch.SymBool):
        return torch.SymInt(number.node.as_int())
    return int(number) if isinstance(number, bool) else number


def number_of(value: Value) -> Any:
    """The number, symbolic or not, that a value is; None for other values."""
    if isinstance(value, SymbolValue):
        return value.symbolic
    storage = getattr(value, "storage", None)
    value = storage if isinstance(storage, ConstantValue) else value
    if not value.is_constant():
        return None
    constant = value.as_constant()
    # Members of an IntEnum and other subclasses stay themselves, with operators of their own.
    return constant if type(constant) in (int, float, bool) else None


def _operand_of(value: Value) -> Any:
    """The same; also of an int that operators take for a number: a member of an IntEnum."""
    number = number_of(value)
    if number is None and value.is_constant():
        constant = value.as_constant()
        return int(constant) if has_operators_of_int(type(constant)) else None
    return number


def _is_plain_number(value: Value) -> bool:
    """Whether a value is no object of a subclass of int or float."""
    return isinstance(value, SymbolValue) or getattr(value, "storage", None) is None


def condition_of(value: SymbolValue) -> Any:
    """The truth of a symbolic number."""
    return value.symbolic if _is_bool(value.symbolic) else value.symbolic != 0


def is_among(tx: Interpreter, number: Value, others: Iterable[Value]) -> Value | None:
    """`number in others`, of an int that varies and a few constants, as one condition: more calls
    satisfy it than its parts. None: of other values, or of data.
    """
    if not isinstance(number, SymbolValue) or number.depends_on_data():
        return None
    given = list(itertools.islice((number_of(other) for other in others), MOST_COMPARED + 1))
    if len(given) > MOST_COMPARED or not all(type(one) is int for one in given):
        return None
    if not isinstance(number.symbolic, torch.SymInt) or not given:
        return None
    found = functools.reduce(operator.or_, [number.symbolic == one for one in given])
    return number_value(tx, found)


def place_among(
    tx: Interpreter, number: Value, others: Iterable[Value], after_equal: bool
) -> Value | None:
    """The place of an int or float that varies among a few constants in ascending order, as
    bisect's: the number of those that are less. None: of other values.
    """
    if not isinstance(number, SymbolValue) or _is_bool(number.symbolic):
        return None
    given = list(itertools.islice((number_of(other) for other in others), MOST_COMPARED + 1))
    kind = int if isinstance(number.symbolic, torch.SymInt) else float
    if not 0 < len(given) <= MOST_COMPARED or not all(type(one) is kind for one in given):
        return None
    if not all(one <= other for one, other in itertools.pairwise(given)):
        return None
    with deciding():
        before = [
            torch.sym_not(number.symbolic < one) if after_equal else number.symbolic > one
            for one in given
        ]
        return number_value(tx, functools.reduce(operator.add, map(_plain, before)))


MOST_COMPARED = 32


def number_value(tx: Interpreter, number: Any) -> Value:
    """The Value of a number that arithmetic gave: a constant if no symbol is left."""
    if isinstance(number, Symbolic):
        known = _known(number)
        return SymbolValue(tx.output, number) if known is None else ConstantValue(known)
    return ConstantValue(number)


def _known(number: Symbolic) -> Any:
    node = number.node
    if isinstance(number, torch.SymBool):
        return node.shape_env.statically(node.expr)
    return node.maybe_as_int() if isinstance(number, torch.SymInt) else None


def is_exact(number: Any) -> bool:
    """Whether an expression can hold the number: inf, nan and -0.0 are not sympy's."""
    if not isinstance(number, float):
        return True
    return math.isfinite(number) and not (number == 0 and math.copysign(1, number) < 0)


def _compare_as_floats(left: Any, right: Any) -> bool:
    """Whether numbers compare as Python's do where an int beside a float is converted, as torch
    does. Compiled code is for ints from outside that floats can hold.
    """
    if _types(left, right) != {int, float}:
        return True
    whole, real = (left, right) if int in _types(left) else (right, left)
    if not isinstance(whole, torch.SymInt):
        return abs(whole) <= MOST_EXACT
    if is_exact_as_float(whole.node.shape_env, whole.node.expr):
        return True
    if not isinstance(real, torch.SymFloat):
        return abs(real) < MOST_EXACT
    return not _is_data(whole) and _usually_within(whole, MOST_EXACT)


def _usually(condition: Any) -> bool:
    """The truth of a condition that is usual; of data, the graph checks that it holds."""
    if not isinstance(condition, torch.SymBool):
        return bool(condition)
    env = condition.node.shape_env
    if env.side_telling(condition) is not None:  # not so where the side does not run
        raise DataDependent(condition.node.expr, env.describe(condition.node.expr))
    return env.expect(condition)


def _usually_within(number: Any, limit: float) -> bool:
    return _usually(abs(number) <= limit)


def _where(condition: Any, number: Any) -> Any:
    """The number, which `condition` says to be one that a function takes; None: it is not. Where
    only the side that is captured says so, 1 takes its place in calls that do not run the side: the
    graph computes numbers of both.
    """
    if isinstance(condition, torch.SymBool):
        side = condition.node.shape_env.side_telling(condition)
        if side is not None:
            return choose(side, number, 1.0 if float in _types(number) else 1)
    return number if _usually(condition) else None


def _where_asked(number: Any) -> Any:
    """The number, of which a function may raise. Where only the side that is captured calls it, 1
    takes its place in calls that do not run the side.
    """
    if not isinstance(number, torch.SymFloat) or not _is_data(number):
        return number
    side = number.node.shape_env.side()
    return number if side is None else choose(side, number, 1.0)


def _is_data(*numbers: Any) -> bool:
    """Whether one of the numbers depends on data."""
    nodes = [number.node for number in numbers if isinstance(number, Symbolic)]
    return any(node.shape_env.hint(node.expr) is None for node in nodes)


def _shift(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def rule(left: Any, right: Any) -> Any:
        left, right = _plain(left), _plain(right)
        if isinstance(right, torch.SymInt) and _fits_shifted(function, left, right):
            return function(left, right)
        count = int(right)
        return left * 2**count if function is operator.lshift else left // 2**count

    return rule


def _fits_shifted(function: Callable[[Any, Any], Any], left: Any, right: Any) -> bool:
    """Whether a shift by data is one of 64 bits, as graphs compute it."""
    if function is operator.rshift:
        return _usually(right < 64)
    return isinstance(left, int) and _usually(right < 63 - left.bit_length())


def _power(left: Any, right: Any) -> Any:
    """A power that is too large for a float raises; of numbers from outside, compiled code is for
    those that are not.
    """
    made = _unbounded_power(left, right)
    if not isinstance(made, torch.SymFloat) or _is_data(left, right):
        return made
    try:
        fits = _finite(made) is not None
    except OverflowError:  # of the numbers of this call
        fits = False
    return made if fits else _number(_plain(left)) ** _number(_plain(right))


def _finite(number: Any) -> Any:
    """The float, for which compiled code takes finite ones from outside; None: it is not finite."""
    if not isinstance(number, torch.SymFloat) or _of_counts(number):
        return number
    if _is_data(number):
        return _where_asked(number)
    return number if _usually_within(number, sys.float_info.max) else None


def _of_counts(number: torch.SymFloat) -> bool:
    """Whether a float is made of sizes alone."""
    symbols = number.node.shape_env.symbols
    return all(symbols[one].declared[0] is not None for one in number.node.expr.free_symbols)


def _unbounded_power(left: Any, right: Any) -> Any:
    """To a constant natural power, or of a positive constant float: neither raises, nor is complex.
    Else of the numbers themselves.
    """
    left, right = _plain(left), _plain(right)
    if isinstance(right, int) and right >= 0:
        # torch's ** of a float asks for a base that is not negative, whatever the power.
        if isinstance(left, torch.SymFloat):
            return (left if right < 2 else _where_asked(left)).__float_pow__(right)
        return left**right
    if isinstance(left, float) and left > 0:
        return left ** _where_asked(torch.sym_float(right))
    if isinstance(right, float) and _usually(left > 0):
        return torch.sym_float(left) ** right
    if isinstance(right, int) and _is_data(left) and _usually(left != 0):
        return torch.sym_float(left).__float_pow__(float(right))
    if isinstance(left, int) and left in _POWERS_OF_TWO and isinstance(right, torch.SymInt):
        if _usually(right >= 0):
            return _shift(operator.lshift)(1, right * (left.bit_length() - 1))
        return float(left) ** torch.sym_float(right)
    if isinstance(right, torch.SymInt) and _types(left) == {int} and _power_fits(left, right):
        return left**right
    return _number(left) ** _number(right)


def _power_fits(base: Any, exponent: Any) -> bool:
    """Whether a power by a number that varies is one of 64 bits, as graphs compute it."""
    if not _usually(exponent >= 0):
        return False
    if isinstance(base, int):
        most = 62 // max(abs(base).bit_length(), 1)
        return _usually(exponent <= most)
    small = [base <= _SMALL_BASE, base >= -_SMALL_BASE, exponent <= _SMALL_BASE]
    return all(map(_usually, small))


_SMALL_BASE = 15  # to itself, of 59 bits
_POWERS_OF_TWO = frozenset(1 << n for n in range(1, 32))


def _number(value: Any) -> Any:
    return _decided(value) if isinstance(value, Symbolic) else value


def _on_numbers(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda left, right: function(_plain(left), _plain(right))


def _logic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def rule(left: Any, right: Any) -> Any:
        if _types(left, right) == {bool} and function is not operator.xor:
            return function(left, right)
        if bool in _types(left, right):
            return function(_number(left), _number(right))
        remainder = masked(left, right) if function is operator.and_ else None
        return function(left, right) if remainder is None or _is_data(left, right) else remainder

    return rule


def _floordiv(left: Any, right: Any) -> Any:
    return (sym_floordiv if float in _types(left, right) else operator.floordiv)(left, right)


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    **{op: _on_numbers(BINARY_FUNCTIONS[op]) for op in ("+", "-", "*", "/", "%")},
    "//": _on_numbers(_floordiv),
    "**": _power,
    "<<": _shift(operator.lshift),
    ">>": _shift(operator.rshift),
    **{op: _logic(BINARY_FUNCTIONS[op]) for op in ("&", "|", "^")},
}


# -- functions of numbers -------------------------------------------------------------------------
def call_on_symbols(
    tx: Interpreter, function: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """A call of a pure function of numbers, some of them symbols; None: as of constants."""
    if function is divmod and len(args) == 2:
        return _divmod(tx, *args)
    if function is pow and len(args) == 2 and not kwargs:
        return binary_op(tx, "**", args[0], args[1])
    if function in (int, float, operator.index) and len(args) == 1 and not kwargs:
        args = [getattr(args[0], "number", args[0])]  # of a numpy scalar
    if function in (min, max) and not all(map(_is_plain_number, args)):
        return None  # the result is one of the objects
    if function in _OF_CONSTANTS:
        known = [ConstantValue(arg.as_constant()) if arg.is_symbolic() else arg for arg in args]
        return tx.wrap(function).call(tx, known, kwargs)
    numbers = [number_of(arg) for arg in args]
    if kwargs or function in _OPERATORS or any(number is None for number in numbers):
        return None
    return _called(tx, function, _FUNCTIONS.get(function, _unknown), numbers)


def _called(
    tx: Interpreter, function: Any, rule: Callable[..., Any], numbers: Sequence[Any]
) -> Value | None:
    """The result of a rule; that of Python's own function if there is none, of data; or None."""
    with deciding():
        try:
            made = rule(*numbers) if all(map(is_exact, numbers)) else None
        except DataDependent:
            value = _by_python(tx, function, numbers)
            if value is None:
                raise
            return value
        if made is None:
            return _by_python(tx, function, numbers)
        return number_value(tx, made)


def _unknown(*numbers: Any) -> None:
    """The rule of functions that have none."""


def _by_python(tx: Interpreter, function: Any, numbers: Sequence[Any]) -> Value | None:
    """The result of Python's own function: in the graph, of data; else before the graph."""
    if _is_data(*numbers):
        return late_bound.call_python(tx, function, numbers)
    made = tx.output.symbols.computed.result(function, numbers)
    if type(made) is tuple:
        return tx.new_tuple([number_value(tx, one) for one in made])
    return None if made is None else number_value(tx, made)


# Functions that SymbolValue.binary and compare answer.
_OPERATORS = frozenset([*BINARY_FUNCTIONS.values(), *COMPARE_FUNCTIONS.values()])
# Functions that need the numbers themselves.
_OF_CONSTANTS = frozenset([complex, hex, oct, bin, chr, hash, ascii])


def _divmod(tx: Interpreter, left: Value, right: Value) -> Value | None:
    if number_of(left) is None or number_of(right) is None:
        return None
    if right.is_constant() and right.as_constant() == 0 and not _is_data(number_of(left)):
        return ConstantValue(call_real(tx, divmod, left.as_constant(), right.as_constant()))
    return tx.new_tuple([binary_op(tx, op, left, right) for op in ("//", "%")])


def _as_int(number: Any) -> Any:
    if int in _types(_plain(number)):
        return _plain(number)
    taken = _finite(number)
    return None if taken is None else torch.sym_int(taken)


def _as_float(number: Any) -> Any:
    return torch.sym_float(_plain(number))


def _extreme(pick: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    """min or max of numbers; of ints beside floats by comparing them, and each comparison is a
    guard.
    """

    def rule(*numbers: Any) -> Any:
        if len(numbers) < 2:
            return None
        best = numbers[0]
        for number in numbers[1:]:
            if _types(best, number) == {int}:
                best = (torch.sym_min if pick is operator.lt else torch.sym_max)(best, number)
            elif _types(best, number) == {float}:
                best = (sym_least if pick is operator.lt else sym_greatest)(best, number)
            else:
                best = number if _compared(pick, _plain(number), _plain(best)) else best
        return best

    return rule


def _compared(function: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    if not _compare_as_floats(left, right):
        left, right = _number(left), _number(right)
    return bool(function(left, right))


def _rounding(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def rule(number: Any, *digits: Any) -> Any:
        number = _plain(number)
        if digits:
            return _to_decimals(number, *digits)
        if int in _types(number) or (number := _finite(number)) is None:
            return number
        return function(number)

    return rule


def _to_decimals(number: Any, digits: Any) -> Any:
    """round(number, digits); None: of the numbers themselves."""
    if type(digits) is not int or not 0 <= digits <= MOST_DECIMALS:
        return None
    return number if int in _types(number) else sym_rounded(number, digits)


def _rounded(number: torch.SymFloat) -> torch.SymInt | int:
    """The integer to which a finite number that 64 bits hold is rounded."""
    if not (_usually(number > -_LARGEST_INT) and _usually(number < _LARGEST_INT)):
        return round(number.node.guard_float())
    return torch.SymInt(number.node.round())


def _math(name: str) -> Callable[..., Any]:
    symbolic = _OURS.get(name) or getattr(torch, f"_sym_{name}", None)

    def rule(number: Any, base: Any = None) -> Any:
        taken = None if symbolic is None else _in_domain(name, number)
        if symbolic is None or taken is None:
            return None
        found = symbolic(_plain(taken))
        if base is None:
            return found
        return found / math.log(base) if type(base) in (int, float) and base > 1 else None

    return rule


def _in_domain(name: str, number: Any) -> Any:
    """The number, where the real function does not raise; None: the number itself is asked."""
    if name == "sqrt":
        return _where(number >= 0, number)
    if name == "exp":
        return _where(number <= _LARGEST_EXPONENT, number)
    if name in ("cos", "sin", "tan"):
        return _finite(number)
    if name in ("tanh", "atan"):
        return number
    return _where(number > 0, number)


def _math_pow(base: Any, exponent: Any) -> Any:
    """A root, or a decay; other powers may raise, and the numbers themselves are asked."""
    root = type(exponent) in (int, float) and -1 <= exponent <= 1 and _usually(base >= 1)
    decay = type(base) in (int, float) and 0 < base <= 1 and _usually(exponent >= 0)
    return _as_float(base) ** _as_float(exponent) if root or decay else None


_LARGEST_EXPONENT = 709.0  # of e, in a float
_LARGEST_INT = 2.0**62  # of those that graphs compute with
_OURS: dict[str, Callable[[Any], Any]] = {"exp": sym_exp, "log": sym_log, "log10": sym_log10}


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    int: _as_int,
    float: _as_float,
    bool: lambda number: number if _is_bool(number) else number != 0,
    abs: lambda number: abs(_plain(number)),
    operator.index: _plain,
    operator.neg: lambda number: -_plain(number),
    operator.pos: _plain,
    round: _rounding(_rounded),
    min: _extreme(operator.lt),
    max: _extreme(operator.gt),
    math.floor: _rounding(math.floor),
    math.ceil: _rounding(math.ceil),
    math.trunc: _rounding(math.trunc),
    math.pow: _math_pow,
    math.radians: lambda n: _plain(n) * (math.pi / 180),
    math.degrees: lambda n: _plain(n) * (180 / math.pi),
    math.isfinite: lambda n: float not in _types(n) or abs(n) <= sys.float_info.max,
    math.isnan: lambda n: float in _types(n) and n != n,
    math.isinf: lambda n: float in _types(n) and abs(n) > sys.float_info.max,
    **{
        getattr(math, name): _math(name)
        for name in ("sqrt", "cos", "sin", "tan", "tanh", "atan", "log2", "exp", "log", "log10")
    },
}
_METHODS: dict[str, Callable[[Interpreter, SymbolValue], Value]] = {
    "__int__": lambda tx, value: (
        _called(tx, int, _as_int, [value.symbolic])
        or ConstantValue(call_real(tx, int, value.as_constant()))
    ),
    "__index__": lambda tx, value: number_value(tx, _plain(value.symbolic)),
    "__float__": lambda tx, value: number_value(tx, _as_float(value.symbolic)),
    "__neg__": lambda tx, value: number_value(tx, -_plain(value.symbolic)),
    "conjugate": lambda tx, value: number_value(tx, _plain(value.symbolic)),
    "__abs__": lambda tx, value: number_value(tx, abs(_plain(value.symbolic))),
    "__bool__": lambda tx, value: ConstantValue(value.truth(tx)),
}


@builder(torch.SymInt, torch.SymFloat, torch.SymBool)
def build_symbol(tx: Interpreter, obj: Symbolic, source: Source | None) -> Value:
    if not hasattr(obj.node, "expr"):  # the ragged size of a nested tensor
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    return number_value(tx, obj)
