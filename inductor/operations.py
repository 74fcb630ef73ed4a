"""The elementwise operations of loop bodies, one row each.

A row says an operation's number of operands, the type of its result, its cost, the aten operators
that are this operation of each element, and its C++ and Triton forms. From the rows come the
vocabulary of lowerings (`inductor.ops`), the lowerings of those aten operators
(`inductor.lowering.pointwise`), the text of both code generators, and the cost of an element
(`work` of `inductor.ir.Tensor`).

In forms, {0}, {1}, {2} are the operands. A C++ form is by default the function of the row's name in
codegen/vec*.h. A Triton form is chosen by the operands' type; {T} is that type, {I} the integer
type of its width, {B} its bits; `fg` is inductor/runtime/triton_math.py, `math` Triton's libdevice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from inductor.costs import CHEAP, HEAVIEST, HEAVY, MEDIUM

SAME, BOOL = "same", "bool"


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of the table. result: SAME (the operands' type) or BOOL. aten: names in torch.ops.aten.
    triton: forms by kind of type: "float32", "float", "integer", "bool", "any".
    """

    arity: int
    result: str
    work: int
    aten: tuple[str, ...]
    cpp: str
    triton: Mapping[str, str]
    on_cpu: bool = True

    def triton_form(self, dtype: torch.dtype) -> str | None:
        """The form for operands of a type, None where Triton has none."""
        for kind in _kinds(dtype):
            if kind in self.triton:
                return self.triton[kind]
        return None


def _kinds(dtype: torch.dtype) -> tuple[str, ...]:
    """Kinds of a type whose forms serve it, the narrowest first."""
    if dtype == torch.bool:
        return ("bool", "any")
    if not dtype.is_floating_point:
        return ("integer", "any")
    return ("float32", "float", "any") if dtype == torch.float32 else ("float", "any")


OPERATIONS: dict[str, Operation] = {}


def _row(
    name: str,
    arity: int,
    work: int = CHEAP,
    *,
    result: str = SAME,
    aten: str | None = None,
    cpp: str | None = None,
    on_cpu: bool = True,
    **triton: str,
) -> None:
    """aten: names, by default the operation's own, "" for none: its lowerings are functions."""
    call = f"{name}({', '.join(f'{{{n}}}' for n in range(arity))})"
    targets = tuple((name if aten is None else aten).split())
    OPERATIONS[name] = Operation(arity, result, work, targets, cpp or call, triton, on_cpu)


# --- one operand

# Triton before 3.9 negates by 0 - x, which has no -0.0.
_row("neg", 1, aten="neg _neg_view", float="{0} * -1.0", any="-{0}")
_row("abs", 1, any="tl.abs({0})")
_row("relu", 1, any="tl.where({0} < 0, 0, {0})")
_row("sign", 1, any="({0} > 0).to({T}) - ({0} < 0).to({T})")
_row("floor", 1, float="tl.floor({0})", integer="{0}")
_row("ceil", 1, float="tl.ceil({0})", integer="{0}")
_row("trunc", 1, float="math.trunc({0})", integer="{0}")
_row("round", 1, float="math.rint({0})", integer="{0}")
_row("bit_not", 1, aten="bitwise_not", integer="~{0}", bool="{0} == 0")
_row("logical_not", 1, result=BOOL, aten="", any="{0} == 0")
_row("isnan", 1, result=BOOL, aten="", float="{0} != {0}", integer="{0} != {0}")
_row("isinf", 1, result=BOOL, aten="", float='tl.abs({0}) == float("inf")', integer="{0} != {0}")
_row(
    "signbit", 1, result=BOOL, aten="",
    float="{0}.to({I}, bitcast=True) < 0", integer="{0} < 0",
)  # fmt: skip

# float32 division and square roots are approximate in Triton unless asked for by name.
_ONE = "tl.full((), 1.0, tl.float32)"
_row("reciprocal", 1, MEDIUM, float="1 / {0}", float32=f"tl.div_rn({_ONE}, {{0}})")
_row("sqrt", 1, MEDIUM, float="tl.sqrt({0})", float32="tl.sqrt_rn({0})")
_row(
    "rsqrt", 1, MEDIUM,
    float="1 / tl.sqrt({0})", float32=f"tl.div_rn({_ONE}, tl.sqrt_rn({{0}}))",
)  # fmt: skip
_row(
    "sigmoid", 1, HEAVY,
    float="1 / (1 + math.exp(-{0}))", float32=f"tl.div_rn({_ONE}, 1 + math.exp(-{{0}}))",
)  # fmt: skip
# Triton's own rounds x * log2(e) before it raises 2 to that: a relative error of |x| * 6e-8.
_row("exp", 1, HEAVY, float="math.exp({0})")
for _name in ("exp2", "log", "log2", "sin", "cos", "erf"):
    _row(_name, 1, HEAVY, float=f"tl.{_name}({{0}})")
for _name in (
    "expm1", "log10", "log1p", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    "atanh", "erfc",
):  # fmt: skip
    _row(_name, 1, HEAVY, float=f"math.{_name}({{0}})")
for _name in ("acosh", "lgamma"):
    _row(_name, 1, HEAVIEST, float=f"math.{_name}({{0}})")
_row("erfinv", 1, HEAVY, on_cpu=False, float="math.erfinv({0})")  # C's library has neither
_row("digamma", 1, HEAVIEST, on_cpu=False)

# --- two operands

_row("add", 2, aten="", cpp="{0} + {1}", any="{0} + {1}")
_row("sub", 2, aten="", cpp="{0} - {1}", any="{0} - {1}")
_row("mul", 2, cpp="{0} * {1}", any="{0} * {1}")
_row("div", 2, MEDIUM, aten="", float="{0} / {1}", float32="tl.div_rn({0}, {1})")
_row(
    "div_trunc", 2, MEDIUM, aten="", integer="{0} // {1}",
    float="math.trunc({0} / {1})", float32="math.trunc(tl.div_rn({0}, {1}))",
)  # fmt: skip
# torch.floor_divide of floats comes from a remainder, to be right for quotients near integers.
_MOD = "math.fmod({0}, {1})"
_row(
    "div_floor", 2, MEDIUM, aten="", integer="fg.floor_div_int({0}, {1})",
    float=f"fg.floor_div_float({{1}}, {_MOD}, {{0}} / {{1}}, ({{0}} - {_MOD}) / {{1}})",
    float32=f"fg.floor_div_float({{1}}, {_MOD}, tl.div_rn({{0}}, {{1}}), "
    f"tl.div_rn({{0}} - {_MOD}, {{1}}))",
)  # fmt: skip
_row(
    "remainder", 2, MEDIUM,
    float=f"fg.remainder_float({{0}}, {{1}}, {_MOD})", integer="fg.remainder_int({0}, {1})",
)  # fmt: skip
_row("fmod", 2, MEDIUM, float=_MOD, integer="{0} % {1}")
_row("maximum", 2, any="fg.maximum({0}, {1})")
_row("minimum", 2, any="fg.minimum({0}, {1})")
_row("fmax", 2, any="fg.fmax({0}, {1})")
_row("fmin", 2, any="fg.fmin({0}, {1})")
_row("pow", 2, HEAVIEST, aten="", float="math.pow({0}, {1})")
_row("atan2", 2, HEAVIEST, float="math.atan2({0}, {1})")
_row("hypot", 2, HEAVY, float="math.hypot({0}, {1})")
_row("copysign", 2, float="math.copysign({0}, {1})")
_row("bit_and", 2, aten="bitwise_and __and__", any="{0} & {1}")
_row("bit_or", 2, aten="bitwise_or __or__", any="{0} | {1}")
_row("bit_xor", 2, aten="bitwise_xor __xor__", any="{0} ^ {1}")
_row(
    "shift_left", 2, aten="bitwise_left_shift __lshift__",
    integer="tl.where(({1} < 0) | ({1} >= {B}), 0, {0} << {1})",
)  # fmt: skip
_row(
    "shift_right", 2, aten="bitwise_right_shift __rshift__",
    integer="{0} >> tl.where(({1} < 0) | ({1} >= {B}), {B} - 1, {1})",
)  # fmt: skip
for _name, _sign in (
    ("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="),
):  # fmt: skip
    _row(_name, 2, result=BOOL, any=f"{{0}} {_sign} {{1}}")
_row("logical_and", 2, result=BOOL, any="({0} != 0) & ({1} != 0)", bool="{0} & {1}")
_row("logical_or", 2, result=BOOL, any="({0} != 0) | ({1} != 0)", bool="{0} | {1}")
_row("logical_xor", 2, result=BOOL, any="({0} != 0) != ({1} != 0)", bool="{0} != {1}")

# --- three operands

_row(
    "mul_add", 3, aten="", float="tl.fma({0}, {1}, {2})"
)  # a * b + c, rounded once where eager does so
