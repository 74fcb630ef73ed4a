"""Symbolic sizes: the room that capture, graphs and backends share for integers that vary.

A size that is no constant is a `torch.SymInt` over our own `SymNode` (fxgraph/sym_node.py); its
`node.expr` is a sympy expression over the symbols of one `ShapeEnv`. That is all a backend has to
know:

    value = node.meta["val"]              # a FakeTensor, or a torch.SymInt for an integer node
    size = value.shape[0]                 # int, or torch.SymInt
    size.node.expr                        # sympy: s0, 2*s0 + 1, FloorDiv(s0, 2), Mod(...), Max(...)
    env = size.node.shape_env             # this module's ShapeEnv

In the graph every symbol that is used has a placeholder: an integer at run time, `meta["val"]` the
torch.SymInt of the symbol. They come before the tensors. An expression as an argument is a chain of
call_function nodes of `operator` functions over these (fxgraph/expression_nodes.py).

Questions about expressions, from the cheapest to the one that costs the user a guard:

    env.bounds(expr)      -> (low, high), ends included, None for no bound
    env.statically(cond)  -> True or False if it holds (fails) for every size allowed, else None
    env.hint(expr)        -> the value for the sizes that the program was compiled with (for
                             heuristics and tuning only; None for data-dependent expressions)
    env.evaluate(cond)    -> bool, by the hint if need be: then it is guarded, and compiled code
                             runs only while it holds (same as `bool(symbool)`)
    env.specialise(expr)  -> int, guarded `expr == int` (same as `int(symint)`)

A backend may ask all of them while it compiles: guards are read after it has returned. Symbols of
sizes begin at 0, or at 1 where strides depend on them (`assume_elements`); symbols compare by name,
and belong to one compilation. Those of sizes are named s0, s1, ...; data-dependent ones u0, u1, ...
(no hint).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from sympy import Expr, Integer
from sympy.logic.boolalg import Boolean

from fxgraph import expressions, general_case
from fxgraph.expressions import (
    Bounds,
    difference_of,
    is_condition,
    is_integral,
    is_product,
    negated,
    relation,
    tells_positive,
)
from fxgraph.sym_node import SymNode
from fxgraph.symbolic_values import expr_of, readable

__all__ = ["DataDependent", "ShapeEnv", "ShapeGuard", "SymbolInfo"]


class DataDependent(RuntimeError):
    """A decision on a data-dependent symbol, which has no value while compiling."""

    def __init__(self, condition: Any, names: str) -> None:
        self.condition = condition
        super().__init__(
            f"cannot decide {names}, which depends on data (torch._check tells what is known): that"
        )


@dataclass
class SymbolInfo:
    """The properties of a symbol. `low` and `high` belong to its range; None: no bound."""

    symbol: sympy.Symbol
    hint: int | float | None  # its value while compiling; None: data-dependent
    low: int | None
    high: int | None
    name: str  # as the user would write it: "x.size(0)"
    source: Any = None  # where capture reads it; opaque here
    declared: Bounds = (None, None)  # the range it was made with

    @property
    def is_float(self) -> bool:
        return not self.symbol.is_integer


@dataclass
class _Learned:
    """A learned fact. kind: "guard", "check" (of data, at run time), "given" (by the operator that
    gives the data), "side" (where a side of a branch runs), "range" or "name"; what: a condition,
    or arguments.
    """

    kind: str
    what: Any


@dataclass(frozen=True)
class ShapeGuard:
    """A condition that compiled code relies on, and the user's line that asked for it."""

    condition: Boolean
    where: str | None  # "file:line in function"
    line: str = ""  # the source line


class ShapeEnv:
    """The symbols of one compilation, with known facts and assumptions (`guards`) about them.

    Torch's fake tensors and meta kernels read the attributes below "for torch".
    """

    def __init__(self) -> None:
        self.symbols: dict[sympy.Symbol, SymbolInfo] = {}
        self.guards: list[ShapeGuard] = []
        # Conditions on data-dependent symbols that the program itself checks at run time.
        self.assertions: list[ShapeGuard] = []
        self._history: list[_Learned] = []  # in order; a check's holds from the check on
        # Asked when a guard is recorded: the user's ("file:line in function", source line).
        self.locate: Callable[[], tuple[str | None, str]] = lambda: (None, "")
        self.replacements: dict[Expr, Expr] = {}
        self.renamed: dict[sympy.Symbol, sympy.Symbol] = {}  # two names of one value, always
        self.version = 0  # grows when something new is known: simplified forms are kept per version
        self._ranges: dict[sympy.Symbol, Bounds] = {}
        self._upper: dict[Expr, int] = {}  # expression without constant -> its known largest value
        self._facts: set[Boolean] = set()
        self._simplified: dict[Expr, Expr] = {}
        self._static: dict[Any, bool | None] = {}
        self._suppressed = 0
        self.takes_guards = True  # until capture has ended; a backward may be compiled later
        self.takes_general_case = False
        self.asks_ones = False  # whether False for "this size is 1" is guarded in any case
        self._passed_over: dict[Boolean, None] = {}  # answers False without a guard
        self.sides: list[Boolean] = []  # conditions of the sides that are being captured
        self.is_read: Callable[[Expr], bool] = lambda expr: True  # by nodes of the place of now
        # Capture's way to rely on a condition on data; raises DataDependent where there is none.
        self.rely_on: Callable[[Boolean], None] | None = None
        self._named: Counter[str] = Counter()  # symbols by the letter of their names
        # -- for torch ----------------------------------------------------------------------------
        self.allow_scalar_outputs = False
        self.allow_dynamic_output_shape_ops = False
        self.fake_tensor_cache: dict[Any, Any] = {}
        self.settings = None
        self.pending_fresh_unbacked_symbols: list[sympy.Symbol] = []
        self.real_tensor_prop_unbacked_vals: dict[Any, Any] = {}
        self.unbacked_renamings: dict[Any, Any] = {}

    # -- symbols ----------------------------------------------------------------------------------
    def new_symbol(
        self,
        hint: int,
        name: str,
        low: int | None = 2,
        high: int | None = None,
        source: Any = None,
    ) -> torch.SymInt:
        """A symbol whose value is `hint` while compiling, known to lie in [low, high]."""
        symbol = integer_symbol(self._new_name("s"), low)
        self._register(SymbolInfo(symbol, hint, low, high, name, source, (low, high)))
        return self.symint(symbol)

    def new_float(self, hint: float | None, name: str, source: Any) -> torch.SymFloat:
        """A symbol for a Python float; without a hint, nothing may be assumed of it."""
        symbol = sympy.Symbol(self._new_name("f"), real=True)
        self._register(SymbolInfo(symbol, hint, None, None, name, source))
        return torch.SymFloat(SymNode(symbol, self, float))

    def new_unbacked(
        self,
        name: str = "",
        low: int | None = None,
        high: int | None = None,
        source: Any = None,
    ) -> torch.SymInt:
        """A symbol for an integer that depends on data, or, with a source, for one of an input of
        which nothing may be assumed.
        """
        symbol = integer_symbol(self._new_name("u"), low)
        info = SymbolInfo(symbol, None, low, high, name or symbol.name, source, (low, high))
        self._register(info)
        if source is None:
            self.pending_fresh_unbacked_symbols.append(symbol)
        return self.symint(symbol)

    def _new_name(self, letter: str) -> str:
        self._named[letter] += 1
        return f"{letter}{self._named[letter] - 1}"

    def declare(self, info: SymbolInfo) -> None:
        """Take over a symbol of another compilation, by its name."""
        self._named[info.symbol.name[0]] = max(
            self._named[info.symbol.name[0]], int(info.symbol.name[1:]) + 1
        )
        self._register(info)

    def _register(self, info: SymbolInfo) -> None:
        self.symbols[info.symbol] = info
        self._ranges[info.symbol] = (info.low, info.high)
        self.version += 1

    def symint(self, expr: Expr | int) -> Any:
        """The torch.SymInt of an expression; an int where it is one."""
        expr = self.simplify(sympy.sympify(expr))
        return int(expr) if expr.is_Integer else torch.SymInt(SymNode(expr, self, int))

    def has_data(self) -> bool:
        """Whether a symbol depends on data."""
        return any(info.hint is None for info in self.symbols.values())

    # -- known facts ------------------------------------------------------------------------------
    def simplify(self, expr: Any) -> Any:
        """`expr` with everything put in that is known to be equal to something simpler."""
        if not self.replacements or expr.is_Integer:
            return expr
        known = self._simplified.get(expr)
        if known is None:
            known = expr
            for _ in range(8):
                changed = known.xreplace(self.replacements)
                if changed == known:
                    break
                known = changed
            if is_condition(known):
                known = _canonical(known)
            self._simplified[expr] = known
        return known

    def bounds(self, expr: Expr | int | torch.SymInt) -> Bounds:
        """(low, high) of an integer expression, both included; None: no bound."""
        expr = self.simplify(expr_of(expr))
        low, high = expressions.bounds(expr, self._ranges)
        constant, rest = expr.as_coeff_Add()
        if (upper := self._upper.get(rest)) is not None:
            high = upper + int(constant) if high is None else min(high, upper + int(constant))
        if (upper := self._upper.get(-rest)) is not None:
            low = int(constant) - upper if low is None else max(low, int(constant) - upper)
        return low, high

    def tightest(self, rest: Expr) -> int | None:
        """The least bound b of all guards `rest <= b`; None: there is none."""
        return self._upper.get(rest)

    def hint(self, expr: Expr | int | torch.SymInt) -> Any:
        """The value of `expr` while compiling; None if a data-dependent symbol is in it."""
        expr = expr_of(expr)
        values = {}
        for symbol in expr.free_symbols:
            info = self.symbols.get(symbol)
            if info is None or info.hint is None:
                return None
            values[symbol] = info.hint
        return expressions.evaluate(expr, values)

    def statically(self, condition: Any) -> bool | None:
        """Whether `condition` holds (True) or fails (False) for all values allowed; else None."""
        if isinstance(condition, torch.SymBool):
            condition = condition.node.expr
        condition = self.simplify(sympy.sympify(condition))
        if condition in (sympy.true, sympy.false):
            return bool(condition)
        key = (condition, self.version)
        if key not in self._static:
            self._static[key] = self._decide(condition)
        return self._static[key]

    def _decide(self, condition: Boolean) -> bool | None:
        if condition in self._facts:
            return True
        if negated(condition) in self._facts:
            return False
        if isinstance(condition, sympy.And | sympy.Or):
            known = [self.statically(arg) for arg in condition.args]
            decisive = isinstance(condition, sympy.Or)
            if decisive in known:
                return decisive
            return None if None in known else not decisive
        if isinstance(condition, sympy.Not):
            inner = self.statically(condition.args[0])
            return None if inner is None else not inner
        if not isinstance(condition, sympy.Rel):
            return None
        if not is_integral(condition):
            return self._decide_sign(condition)
        return self._decide_relation(*difference_of(condition))

    def _decide_sign(self, condition: Boolean) -> bool | None:
        """A float compared with 0, where it is known to be positive."""
        left, right = condition.args
        if not right.is_zero or not self._is_positive(left):
            return None
        return isinstance(condition, sympy.Ne | sympy.Gt | sympy.Ge)

    def _is_positive(self, expr: Expr) -> bool:
        if is_integral(expr):
            low = self.bounds(expr)[0]
            return low is not None and low > 0
        if expr.is_Float:
            return bool(expr > 0)
        known = any(tells_positive(fact, expr) for fact in self._facts)
        if known or not isinstance(expr, expressions.Real):
            return known
        name, args = expr.args[0].name, expr.args[1:]
        return expressions.stays_positive(name, args) and all(map(self._is_positive, args))

    def _decide_relation(self, kind: str, difference: Expr) -> bool | None:
        low, high = self._difference_bounds(difference)
        if kind == "le":
            if high is not None and high <= 0:
                return True
            return False if low is not None and low > 0 else None
        if low == high == 0:
            return kind == "eq"
        if (low is not None and low > 0) or (high is not None and high < 0):
            return kind == "ne"
        return None

    def _difference_bounds(self, difference: Expr) -> Bounds:
        low, high = self.bounds(difference)
        open_ = (low is None or low <= 0) and (high is None or high >= 0)
        if open_ and difference.is_Add and any(map(is_product, difference.args)):
            # s0*s1 - s0 says little about s0*(s1 - 1).
            factored = sympy.factor_terms(difference)
            if factored.is_Mul:
                low2, high2 = expressions.bounds(factored, self._ranges)
                low = low2 if low is None else low if low2 is None else max(low, low2)
                high = high2 if high is None else high if high2 is None else min(high, high2)
        return low, high

    @property
    def guards_suppressed(self) -> bool:
        """Whether decisions are not guarded now."""
        return self._suppressed > 0

    # -- decisions --------------------------------------------------------------------------------
    def evaluate(self, condition: Any, fallback: bool | None = None) -> bool:
        """The truth of `condition`; guarded where it depends on the sizes. fallback: the answer
        where it depends on data, or can be guarded no more. Without one, DataDependent is raised.
        """
        if isinstance(condition, torch.SymBool):
            condition = condition.node.expr
        condition = self.simplify(sympy.sympify(condition))
        known = self.statically(condition)
        if known is not None:
            return known
        value = self.hint(condition)
        if value is None and fallback is not None:
            self._passed_over[negated(condition) if fallback else condition] = None
            return fallback
        general = general_case.answer(self, condition)
        if general is not None and value in (None, general):
            return general
        if value is None:
            raise DataDependent(condition, self.describe(condition))
        value = bool(value)
        if fallback is not None and not self.takes_guards:
            return fallback
        if not self._suppressed:
            self.assume(condition if value else negated(condition))
        return value

    def expect(self, condition: Any) -> bool:
        """The truth of `condition`, which the program's usual calls have: where it depends on data,
        it is checked when the graph runs.
        """
        if isinstance(condition, torch.SymBool):
            condition = condition.node.expr
        condition = self.simplify(sympy.sympify(condition))
        unknown = self.hint(condition) is None and self.statically(condition) is None
        if unknown and self.rely_on is not None:
            self.rely_on(condition)
        return self.evaluate(condition)

    @contextmanager
    def inside(self, side: Boolean) -> Iterator[None]:
        """Inside, code is captured that runs only where this condition on data holds."""
        since = len(self._history)
        self._history.append(_Learned("side", side))
        self._learn(side)
        self.sides.append(side)
        try:
            yield
        finally:
            self.sides.pop()
            self._drop_checks(since)

    def side_telling(self, condition: Any) -> Any:
        """The torch.SymBool of the sides that are being captured, if these alone tell that
        `condition` holds.
        """
        condition = condition.node._expr
        if not self.sides or self.hint(condition) is not None:
            return None
        if self.statically(condition) is not True:
            return None
        self._relearn(lambda learned: learned.kind != "side")
        known = self.statically(condition)
        self._relearn(lambda learned: True)
        return None if known is True else self.side()

    def side(self) -> Any:
        """The torch.SymBool of the sides that are being captured; None: there are none."""
        if not self.sides:
            return None
        side = sympy.And(*self.sides, evaluate=False) if len(self.sides) > 1 else self.sides[0]
        return torch.SymBool(SymNode(side, self, bool))

    def evaluate_or_false(self, condition: Any) -> bool:
        """The truth of `condition`, for code that is right in both cases if it gets False. That a
        size is not 1, or nothing is empty, is not guarded then, but the next comparison is.
        """
        condition = self.simplify(condition)
        if not self.asks_ones and self._wants_few(condition):
            self._passed_over[condition] = None
            return False
        return self.evaluate(condition, False)

    def settle_few(self) -> None:
        """Rely on all answers that were given without a guard, of which strides tell."""
        while self._passed_over:
            condition = next(iter(self._passed_over))
            if not self.expect(negated(condition)):
                raise DataDependent(condition, self.describe(condition))
            del self._passed_over[condition]

    def assume_elements(self, size: Expr) -> None:
        """Guard that a size of an input, by which strides are computed, is at least 1."""
        if not self._suppressed and self.bounds(size)[0] == 0 and (self.hint(size) or 0) > 0:
            self.evaluate(relation("ge", size, Integer(1)))

    def assume_stride(self, stride: Expr) -> None:
        """Guard that sizes of inputs are at least 1 where a stride has max(size, 1) in it."""
        for counted in stride.atoms(expressions.Max):
            one, size = counted.args
            if one != 1 or (self.hint(size) or 0) < 1 or self._suppressed:
                continue
            self.evaluate(relation("ge", size, Integer(1)))
            self.define(counted, size)

    def _wants_few(self, condition: Any) -> bool:
        """Whether `condition`, which fails now, needs a size of 1, or no elements."""
        if isinstance(condition, sympy.And):
            return any(map(self._wants_few, condition.args))
        if isinstance(condition, sympy.Or):
            return all(map(self._wants_few, condition.args))
        if not isinstance(condition, sympy.Eq | sympy.Le):
            return False
        size, few = condition.args
        if few == 1:
            counted = size.is_Symbol or isinstance(condition, sympy.Le)
            return counted and (self.hint(size) or 0) > 1
        return few == 0 and self.bounds(size)[0] == 0 and (self.hint(size) or 0) > 0

    @contextmanager
    def asking_ones(self, asks: bool) -> Iterator[None]:
        """Inside, the answer that a size is not 1 is guarded (`asks`, or if it is outside)."""
        before = self.asks_ones
        self.asks_ones = before or asks
        try:
            yield
        finally:
            self.asks_ones = before

    def specialise(self, expr: Any) -> Any:
        """The value that `expr` has while compiling, guarded to be it."""
        expr = self.simplify(expr_of(expr))
        if expr.is_number:
            return expressions.evaluate(expr, {})
        low, high = self.bounds(expr) if is_integral(expr) else (None, 0)
        if low is not None and low == high:
            return low
        value = self.hint(expr)
        if value is None:
            raise DataDependent(expr, self.describe(expr))
        if not self._suppressed:
            self._fix(expr)
        return value

    def _fix(self, expr: Expr) -> None:
        """Guard the value of `expr`: of a float, those of its symbols; of the least or greatest of
        floats, which one it is, so that a bound serves all numbers behind it.
        """
        compare = expressions.second_is_taken(expr)
        if compare is not None:
            return self._fix(expr.args[2 if self.evaluate(compare) else 1])
        for part in [expr] if is_integral(expr) else sorted(expr.free_symbols, key=str):
            self.assume(expressions.equal(part, self.hint(part)))

    def assume(self, condition: Boolean) -> None:
        """Guard `condition`, and use it from now on."""
        where, line = self.locate()
        self.guards.append(ShapeGuard(condition, where, line))
        self._history.append(_Learned("guard", condition))
        self._learn(condition)

    def check(self, condition: Any) -> bool:
        """torch._check: the program promises `condition`. Guarded where it depends on sizes only;
        on data-dependent symbols it is used from now on, and kept in `assertions`.
        """
        if isinstance(condition, torch.SymBool):
            condition = condition.node.expr
        condition = self.simplify(sympy.sympify(condition))
        known = self.statically(condition)
        if known is not None:
            return known
        if self.hint(condition) is not None:
            return self.evaluate(condition)
        where, line = self.locate()
        self.assertions.append(ShapeGuard(condition, where, line))
        self._history.append(_Learned("check", condition))
        self._learn(condition)
        return True

    def given(self, condition: Any) -> None:
        """Drop `condition`, of `assertions`, from the checks: an operator guarantees it of its
        result.
        """
        for learned in reversed(self._history):
            if learned.kind == "check" and learned.what is condition:
                learned.kind = "given"
                return

    def _drop_checks(self, since: int) -> None:
        kept = [f for f in self._history[since:] if f.kind not in ("check", "side")]
        self._history[since:] = kept
        self._relearn(lambda learned: True)

    def abandoning(self, whole: bool = False) -> Callable[[], None]:
        """A function that drops the checks of data, and the answers without a guard, made from now
        on (whole: ever), with the operations that asked for these.
        """
        since, passed_over = (0, {}) if whole else (len(self._history), dict(self._passed_over))

        def abandon() -> None:
            self._drop_checks(since)
            self._passed_over = {c: None for c in self._passed_over if c in passed_over}

        return abandon

    @contextmanager
    def unchecked(self) -> Iterator[None]:
        """Inside, a graph runs anew: conditions on data that it checks are known after these checks
        (`checked`), as they were when the graph was captured, and not before.
        """
        self._relearn(lambda learned: learned.kind != "check")
        try:
            yield
        finally:
            self._relearn(lambda learned: True)

    def checked(self, condition: Any) -> None:
        """Inside of `unchecked`: a check of the condition was passed."""
        condition = self.simplify(sympy.sympify(condition))
        if self.statically(condition) is None:
            self._learn(condition)

    def _relearn(self, holds: Callable[[_Learned], bool]) -> None:
        self._ranges = {symbol: (info.low, info.high) for symbol, info in self.symbols.items()}
        self._upper.clear()
        self._facts.clear()
        self.replacements.clear()
        self._forget_answers()
        for learned in filter(holds, self._history):
            if learned.kind == "range":
                self._constrain(*learned.what)
            elif learned.kind == "name":
                self.replacements[learned.what[0]] = learned.what[1]
            else:
                self._learn(learned.what)
        self._forget_answers()

    def _forget_answers(self) -> None:
        self.version += 1
        self._static.clear()
        self._simplified.clear()

    def _learn(self, condition: Boolean) -> None:
        self._forget_answers()
        self._facts.add(condition)
        if isinstance(condition, sympy.And):
            for arg in condition.args:
                self._learn(arg)
            return
        if not isinstance(condition, sympy.Rel):
            return
        if not is_integral(condition):
            left, right = condition.args
            if isinstance(condition, sympy.Eq) and left.is_Symbol and right.is_number:
                self.replacements[left] = right
            return
        kind, difference = difference_of(condition)
        if kind == "eq":
            self._learn_equal(condition, difference)
        elif kind == "le":
            self._learn_at_most(difference)
        else:
            self._learn_different(difference)

    def _learn_at_most(self, difference: Expr) -> None:
        """difference <= 0"""
        constant, rest = difference.as_coeff_Add()
        known = self._upper.get(rest)
        limit = -int(constant)
        self._upper[rest] = limit if known is None else min(known, limit)
        coefficient, symbol = rest.as_coeff_Mul()
        if symbol.is_Symbol and coefficient.is_Integer:
            low, high = self._ranges[symbol]
            if coefficient > 0:
                bound = limit // int(coefficient)
                self._ranges[symbol] = (low, bound if high is None else min(high, bound))
            else:
                bound = -(limit // -int(coefficient))
                self._ranges[symbol] = (bound if low is None else max(low, bound), high)

    def _learn_different(self, difference: Expr) -> None:
        """difference != 0: at the end of a range, the range is one shorter."""
        constant, rest = difference.as_coeff_Add()
        coefficient, symbol = rest.as_coeff_Mul()
        if not symbol.is_Symbol or abs(coefficient) != 1:
            return
        excluded = -int(constant) * int(coefficient)
        low, high = self._ranges[symbol]
        if low == excluded:
            self._ranges[symbol] = (low + 1, high)
        elif high == excluded:
            self._ranges[symbol] = (low, high - 1)

    def _learn_equal(self, condition: Boolean, difference: Expr) -> None:
        """difference == 0: the youngest symbol that it gives in terms of the others is replaced."""
        for symbol in sorted(difference.free_symbols, key=self._age, reverse=True):
            coefficient = difference.coeff(symbol)
            rest = difference - coefficient * symbol
            if abs(coefficient) == 1 and not rest.has(symbol):
                value = sympy.expand(-rest * coefficient)
                self.replacements[symbol] = value
                if value.is_Integer:
                    self._ranges[symbol] = (int(value), int(value))
                return
        left, right = condition.args
        if isinstance(left, expressions.Mod) and right.is_Integer:
            self.replacements[left] = right

    def rename(self, symbol: sympy.Symbol, known: sympy.Symbol) -> None:
        """`symbol` is another name for `known`."""
        if symbol in self.renamed:
            self.merge(known, symbol)
            return
        self._forget_answers()
        self._history.append(_Learned("name", (symbol, known)))
        self.replacements[symbol] = known
        self.renamed[symbol] = known

    def define(self, symbol: Expr, value: Expr) -> None:
        """`symbol` has always this value."""
        self._forget_answers()
        self._history.append(_Learned("name", (symbol, value)))
        self.replacements[symbol] = value

    def merge(self, symbol: sympy.Symbol, known: sympy.Symbol) -> None:
        """`symbol` turns out to be another name for `known`; either may be replaced already."""
        symbol, known = self.first_name(symbol), self.first_name(known)
        if symbol == known:
            return
        self.renamed[symbol] = known
        equal = self.simplify(relation("eq", symbol, known))
        if isinstance(equal, sympy.Rel):
            self._history.append(_Learned("given", equal))
            self._learn(equal)

    def first_name(self, symbol: sympy.Symbol) -> sympy.Symbol:
        """The first of the several names of a value: unlike an equality that is known from a check,
        this one holds also before the check.
        """
        while symbol in self.renamed:
            symbol = self.renamed[symbol]
        return symbol

    def _age(self, symbol: sympy.Symbol) -> tuple[bool, int]:
        info = self.symbols[symbol]
        return info.hint is None, list(self.symbols).index(symbol)

    # -- text -------------------------------------------------------------------------------------
    def describe(self, expr: Any) -> str:
        """`expr` in terms of the user's names: "2*x.size(0) <= 10"."""
        expr = expr if is_condition(expr) else expr_of(expr)
        names = {
            symbol: sympy.Symbol(self.symbols[symbol].name)
            for symbol in expr.free_symbols
            if symbol in self.symbols
        }
        return readable(expr.xreplace(names))

    # -- for torch --------------------------------------------------------------------------------
    def evaluate_sym_node(
        self, node: SymNode, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> Any:
        if node.pytype is bool and fallback_value is False:
            return self.evaluate_or_false(node.expr)
        if node.pytype is bool:
            return self.evaluate(node.expr, fallback_value)
        return self.specialise(node.expr)

    def evaluate_expr(self, orig_expr: Any, *_: Any, **__: Any) -> Any:
        if is_condition(orig_expr):
            return self.evaluate(orig_expr)
        return self.specialise(orig_expr)

    def _maybe_evaluate_static(self, expr: Any, **_: Any) -> Expr | None:
        if is_condition(expr):
            known = self.statically(expr)
            return None if known is None else sympy.true if known else sympy.false
        expr = self.simplify(expr)
        return expr if expr.is_number else None

    def create_unbacked_symint(self, source: Any = None) -> torch.SymInt:
        return self.new_unbacked()

    def create_unbacked_symfloat(self) -> torch.SymFloat:
        symbol = sympy.Symbol(self._new_name("u"), real=True)
        self._register(SymbolInfo(symbol, None, None, None, symbol.name))
        self.pending_fresh_unbacked_symbols.append(symbol)
        return torch.SymFloat(SymNode(symbol, self, float))

    def create_unbacked_symbool(self) -> torch.SymBool:
        number = self.new_unbacked(low=0, high=1)
        return torch.SymBool(SymNode(relation("eq", number.node.expr, Integer(1)), self, bool))

    def create_symintnode(self, sym: Any, *, hint: Any = None, source: Any = None) -> Any:
        return self.symint(sym)

    def constrain_symbol_range(self, s: sympy.Symbol, compiler_min: Any, compiler_max: Any) -> None:
        self._history.append(_Learned("range", (s, compiler_min, compiler_max)))
        self._constrain(s, compiler_min, compiler_max)

    def _constrain(self, s: sympy.Symbol, compiler_min: Any, compiler_max: Any) -> None:
        low, high = self._ranges[s]
        if abs(compiler_min) != math.inf:
            low = int(compiler_min) if low is None else max(low, int(compiler_min))
        if abs(compiler_max) != math.inf:
            high = int(compiler_max) if high is None else min(high, int(compiler_max))
        self._ranges[s] = (low, high)
        self._static.clear()

    def _constrain_range_for_size(
        self, a: sympy.Symbol, min: int | None = None, max: int | None = None
    ) -> None:
        self.constrain_symbol_range(a, 0 if min is None else min, math.inf if max is None else max)

    def bound_sympy(self, expr: Expr) -> Any:
        from torch.utils._sympy.value_ranges import ValueRanges

        low, high = self.bounds(expr)
        return ValueRanges(-sympy.oo if low is None else low, sympy.oo if high is None else high)

    def is_unbacked_symint(self, symbol: sympy.Symbol) -> bool:
        return symbol in self.symbols and self.symbols[symbol].hint is None

    @property
    def var_to_range(self) -> dict[sympy.Symbol, Any]:
        return {symbol: self.bound_sympy(symbol) for symbol in self.symbols}

    @property
    def backed_var_to_val(self) -> dict[sympy.Symbol, Expr]:
        infos = self.symbols.values()
        return {info.symbol: sympy.sympify(info.hint) for info in infos if info.hint is not None}

    def ignore_fresh_unbacked_symbols(self) -> AbstractContextManager[Any]:
        return nullcontext()

    @contextmanager
    def suppress_guards(self) -> Iterator[None]:
        """Decisions within are by the hints, and not guarded."""
        self._suppressed += 1
        try:
            yield
        finally:
            self._suppressed -= 1

    def freeze(self) -> None:
        """torch's entry point for "no more guards"; ours are read once, when all is compiled."""


def integer_symbol(name: str, low: int | None) -> sympy.Symbol:
    """The symbol of a size or an int that is at least `low`."""
    if low is None or low < 0:
        return sympy.Symbol(name, integer=True)
    return sympy.Symbol(name, integer=True, **{"positive" if low > 0 else "nonnegative": True})


def _canonical(condition: Boolean) -> Boolean:
    """A condition whose sides were replaced, in canonical form again."""
    if isinstance(condition, sympy.Rel) and is_integral(condition):
        kind = {sympy.Eq: "eq", sympy.Ne: "ne", sympy.Le: "le", sympy.Ge: "ge"}.get(type(condition))
        if kind is not None:
            return relation(kind, *condition.args)
    return condition
