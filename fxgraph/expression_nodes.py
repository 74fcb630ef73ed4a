"""Expressions as nodes of a graph.

before                      after
    view(x, [2*s0 + 1])         mul = operator.mul(s0, 2)
                                add = operator.add(mul, 1)
                                view(x, [add])
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from sympy import Expr

from fxgraph import expressions
from fxgraph.expressions import FORMS, REAL_FUNCTIONS
from fxgraph.node import Node
from fxgraph.sym_node import (
    SymNode,
    choose,
    sym_exp,
    sym_floordiv,
    sym_greatest,
    sym_least,
    sym_log,
    sym_log10,
    sym_rounded,
)
from fxgraph.symbols import ShapeEnv

# The function that a node calls -> its form for torch.SymInt; other functions take both.
_FOR_NUMBERS: dict[str, Callable[..., Any]] = {
    **REAL_FUNCTIONS,
    **{
        name: getattr(torch, f"_sym_{name}")
        for name in REAL_FUNCTIONS
        if hasattr(torch, f"_sym_{name}")
    },
    "floordiv": sym_floordiv,
    "exp": sym_exp,
    "log": sym_log,
    "log10": sym_log10,
    "float": torch.sym_float,
    "min": sym_least,
    "max": sym_greatest,
    "choose": choose,
    "rounded": sym_rounded,
}
# Kinds whose nodes call another function than that of Python numbers.
_OF_KINDS: dict[Any, Callable[..., Any]] = {
    expressions.Max: torch.sym_max,
    expressions.Min: torch.sym_min,
    expressions.Choose: choose,
    sympy.Not: torch.sym_not,
}


class ExpressionNodes:
    """Makes nodes for expressions, each once.

    symbol_node: the node of a symbol (a placeholder).
    create: (function, args) -> a call_function node at the place where the value is needed.
    """

    def __init__(
        self,
        env: ShapeEnv,
        symbol_node: Callable[[sympy.Symbol], Node],
        create: Callable[[Callable[..., Any], tuple[Any, ...]], Node],
    ) -> None:
        self.env = env
        self.symbol_node = symbol_node
        self.create = create
        self.known: dict[Any, Any] = {}

    def bind(self, symbol: sympy.Symbol, node: Node) -> None:
        """Have a symbol read from a node."""
        self.known[symbol] = node

    def is_known(self, symbol: sympy.Symbol) -> bool:
        return symbol in self.known

    def of(self, value: Any) -> Any:
        """The node of a torch.SymInt, SymFloat or SymBool; a number where it has become one."""
        if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return value
        return self.of_expression(value.node.expr)

    def of_expression(self, expr: Any) -> Any:
        """The node of an expression, or its number."""
        if expr.is_Integer:
            return int(expr)
        if expr.is_Float:
            return float(expr)
        if expr in (sympy.true, sympy.false):
            return bool(expr)
        known = self.known.get(expr)
        if known is None:
            known = self.symbol_node(expr) if expr.is_Symbol else self._make(expr)
            self.known[expr] = known
        return known

    def _make(self, expr: Any) -> Node:
        kind = type(expr)
        if kind is sympy.Add:
            return self._sum(expr)
        if kind is expressions.Truth:
            return self._call(choose, expr, self.of_expression(expr.args[0]), 1, 0)
        form, args = FORMS[kind], expr.args
        function: Any = _OF_KINDS.get(kind, form.value)
        if form.functions is not None:
            known = _FOR_NUMBERS if kind is expressions.Real else form.functions
            function, args = known[args[0].name], args[1:]
        elif form.arity is None:
            first, *rest = _in_order(expr)
            made = self.of_expression(first)
            for arg in rest:
                first = kind(first, arg)
                made = self._call(function, first, made, self.of_expression(arg))
            return made
        return self._call(function, expr, *map(self.of_expression, args))

    def _sum(self, expr: Expr) -> Node:
        """a + 2*b - c, with a subtraction where a term is negative."""
        first, *rest = _in_order(expr)
        made, total = self.of_expression(first), first
        for term in rest:
            negative = term.could_extract_minus_sign()
            total = total + term
            function = operator.sub if negative else operator.add
            made = self._call(
                function, total, made, self.of_expression(-term if negative else term)
            )
        return made

    def _call(self, function: Callable[..., Any], expr: Any, *args: Any) -> Node:
        node = self.create(function, args)
        node.meta["val"] = node.meta["example_value"] = value_of(self.env, expr)
        return node


def value_of(env: ShapeEnv, expr: Any) -> Any:
    """The torch.SymInt, SymFloat or SymBool of an expression, or its number."""
    if expressions.is_condition(expr):
        return torch.SymBool(SymNode(expr, env, bool))
    if expr.is_integer:
        return env.symint(expr)
    return torch.SymFloat(SymNode(expr, env, float))


def _in_order(expr: Any) -> list[Any]:
    """Positive terms first, numbers last: n - 1 rather than -1 + n."""
    if not isinstance(expr, sympy.Add | sympy.Mul):
        return list(expr.args)
    keyed = sorted(expr.args, key=lambda arg: arg.sort_key())
    return sorted(keyed, key=lambda arg: (arg.is_number, arg.could_extract_minus_sign()))


def python_code(expr: Any, name_of: Callable[[sympy.Symbol], str]) -> str:
    """A Python expression with the value of `expr`; it names the symbols and `math`."""
    if expr.is_Symbol:
        return name_of(expr)
    if expr.is_Integer:
        return str(int(expr)) if expr >= 0 else f"({int(expr)})"
    if expr.is_Float:
        return repr(float(expr))
    if expr in (sympy.true, sympy.false):
        return str(bool(expr))
    if expressions.is_choice(expr):
        condition, yes, no = (python_code(arg, name_of) for arg in expr.args[-3:])
        return f"({yes} if {condition} else {no})"
    form = FORMS[type(expr)]
    if form.functions is not None:
        name, args = expr.args[0].name, [python_code(arg, name_of) for arg in expr.args[1:]]
        sign = _SIGNS_OF_NAMES.get(name)
        if sign is not None:
            return f"({sign.join(args)})"
        if name == "neg":
            return f"(-{args[0]})"
        if name == "rounded":
            name = "round"
        return f"{'math.' if hasattr(math, name) else ''}{name}({', '.join(args)})"
    args = [python_code(arg, name_of) for arg in _in_order(expr)]
    if form.sign:
        return f"({f' {form.sign} '.join(args)})"
    return f"{form.call}({', '.join(args)})"


_SIGNS_OF_NAMES = {
    "add": " + ",
    "sub": " - ",
    "mul": " * ",
    "truediv": " / ",
    "floordiv": " // ",
    "mod": " % ",
    "pow": " ** ",
    "and": " & ",
    "or": " | ",
    "xor": " ^ ",
    "lshift": " << ",
    "rshift": " >> ",
}


def function_of(expr: Any, symbols: Sequence[sympy.Symbol]) -> Callable[..., Any]:
    """A Python function with the value of `expr`, of the values of these symbols."""
    parameters = ", ".join(symbol.name for symbol in symbols)
    code = python_code(expr, lambda symbol: symbol.name)
    # Of this module, so that the frame is none of the program's, to be compiled.
    return eval(f"lambda {parameters}: {code}", {"math": math, "__name__": __name__})


def integers_of(exprs: Sequence[Any], symbols: Sequence[sympy.Symbol]) -> Callable[..., list[int]]:
    """A function with the values of all these integers, of the values of the symbols."""
    functions = [
        function_of(expr, list(symbols)) if expr.free_symbols else int(expr) for expr in exprs
    ]
    return lambda *values: [n if isinstance(n, int) else int(n(*values)) for n in functions]
