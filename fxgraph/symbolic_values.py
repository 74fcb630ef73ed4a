"""Numbers and tensors with symbols in them: whether a value is symbolic, its expression, its hint,
the numbers in a nest of values, and expressions as text.

The symbols and all that is known of them are in fxgraph/symbols.py.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from fxgraph.args import leaves
from fxgraph.expressions import FORMS
from fxgraph.wrapper_parts import flatten


def expr_of(value: Any) -> Any:
    """The sympy expression of a number, torch.SymInt, SymFloat, SymBool or expression."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value.node.expr
    return sympy.sympify(value)


def is_symbolic(value: Any) -> bool:
    """Whether `value` is a torch.SymInt, SymFloat or SymBool."""
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def depends_on_data(value: Any) -> bool:
    """Whether a number is symbolic, other than a ragged size, and has no value while compiling."""
    if not is_symbolic(value) or not hasattr(value.node, "shape_env"):
        return False
    return value.node.shape_env.hint(value.node.expr) is None


def is_symbol(value: Any) -> bool:
    """Whether `value` is a torch.SymInt or SymFloat that was made as a symbol: an input."""
    return isinstance(value, torch.SymInt | torch.SymFloat) and value.node._expr.is_Symbol


def numbers_of(tree: Any) -> list[Any]:
    """The numbers in a result, and the sizes of the tensors in it."""
    found: list[Any] = []
    for leaf in leaves(tree):
        found += leaf.shape if isinstance(leaf, torch.Tensor) else [leaf]
    return found


def layout_numbers(value: Any) -> list[Any]:
    """The symbolic numbers among the sizes and strides of a tensor and of those that it wraps; of
    a number, itself. Ragged sizes of jagged tensors are no numbers.
    """
    if not isinstance(value, torch.Tensor):
        return [value] if is_symbolic(value) else []
    found = [n for n in (*value.shape, *value.stride()) if is_symbolic(n) and not is_ragged(n)]
    if is_traceable_wrapper_subclass(value):
        for name in flatten(value)[0]:
            found += layout_numbers(getattr(value, name))
    return found


def is_ragged(value: Any) -> bool:
    """Whether `value` is the size of a jagged tensor that each of its parts has another of."""
    return isinstance(value, torch.SymInt) and value.node.is_nested_int()


def hint_of(value: Any) -> Any:
    """The value of a size while compiling: an int itself, a torch.SymInt's hint."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value.node.hint
    return value


def readable(expr: Any) -> str:
    """A condition or expression as Python would write it."""
    form = FORMS.get(type(expr))
    if form is not None and form.is_condition and form.arity == 2:
        return f"{readable(expr.args[0])} {form.sign} {readable(expr.args[1])}"
    if isinstance(expr, sympy.And | sympy.Or):
        word = " and " if isinstance(expr, sympy.And) else " or "
        return word.join(readable(arg) for arg in expr.args)
    if isinstance(expr, sympy.Not):
        return f"not ({readable(expr.args[0])})"
    return str(float(expr)) if expr.is_Float else sympy.sstr(expr)
