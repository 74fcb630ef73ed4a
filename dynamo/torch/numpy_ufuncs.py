"""The functions of torch that compute numpy's ufuncs: to the last bit, or within rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def sign(x: torch.Tensor) -> torch.Tensor:
    """NaN stays NaN, as in numpy."""
    return torch.where(torch.isnan(x), x, torch.sign(x))


def heaviside(x: torch.Tensor, at_zero: torch.Tensor) -> torch.Tensor:
    """NaN stays NaN, as in numpy."""
    return torch.where(torch.isnan(x), x, torch.heaviside(x, at_zero))


# ufunc -> (torch function, whether it computes in the dtype of the result or of its operands)
RESULT, OPERANDS = "result", "operands"
UFUNCS: dict[Any, tuple[Callable[..., Any], str]] = {
    np.add: (torch.add, RESULT),
    np.subtract: (torch.sub, RESULT),
    np.multiply: (torch.mul, RESULT),
    np.true_divide: (torch.true_divide, RESULT),
    np.negative: (torch.neg, RESULT),
    np.absolute: (torch.abs, RESULT),
    np.floor: (torch.floor, RESULT),
    np.ceil: (torch.ceil, RESULT),
    np.trunc: (torch.trunc, RESULT),
    np.rint: (torch.round, RESULT),
    np.maximum: (torch.maximum, RESULT),
    np.minimum: (torch.minimum, RESULT),
    np.bitwise_and: (torch.bitwise_and, RESULT),
    np.bitwise_or: (torch.bitwise_or, RESULT),
    np.bitwise_xor: (torch.bitwise_xor, RESULT),
    np.invert: (torch.bitwise_not, RESULT),
    np.left_shift: (torch.bitwise_left_shift, RESULT),
    np.right_shift: (torch.bitwise_right_shift, RESULT),
    np.positive: (torch.positive, RESULT),
    np.nextafter: (torch.nextafter, RESULT),
    np.heaviside: (heaviside, RESULT),
    np.logical_and: (torch.logical_and, OPERANDS),
    np.logical_or: (torch.logical_or, OPERANDS),
    np.logical_xor: (torch.logical_xor, OPERANDS),
    np.logical_not: (torch.logical_not, OPERANDS),
    np.isnan: (torch.isnan, OPERANDS),
    np.isinf: (torch.isinf, OPERANDS),
    np.isfinite: (torch.isfinite, OPERANDS),
    np.equal: (torch.eq, OPERANDS),
    np.not_equal: (torch.ne, OPERANDS),
    np.less: (torch.lt, OPERANDS),
    np.less_equal: (torch.le, OPERANDS),
    np.greater: (torch.gt, OPERANDS),
    np.greater_equal: (torch.ge, OPERANDS),
}
# The same within rounding. Which of two zeros is the larger counts as rounding.
ROUNDED_UFUNCS: dict[Any, tuple[Callable[..., Any], str]] = {
    np.sqrt: (torch.sqrt, RESULT),
    np.exp: (torch.exp, RESULT),
    np.exp2: (torch.exp2, RESULT),
    np.expm1: (torch.expm1, RESULT),
    np.log: (torch.log, RESULT),
    np.log2: (torch.log2, RESULT),
    np.log10: (torch.log10, RESULT),
    np.log1p: (torch.log1p, RESULT),
    np.sin: (torch.sin, RESULT),
    np.cos: (torch.cos, RESULT),
    np.tan: (torch.tan, RESULT),
    np.arcsin: (torch.arcsin, RESULT),
    np.arccos: (torch.arccos, RESULT),
    np.arctan: (torch.arctan, RESULT),
    np.sinh: (torch.sinh, RESULT),
    np.cosh: (torch.cosh, RESULT),
    np.tanh: (torch.tanh, RESULT),
    np.arcsinh: (torch.arcsinh, RESULT),
    np.arccosh: (torch.arccosh, RESULT),
    np.arctanh: (torch.arctanh, RESULT),
    np.degrees: (torch.rad2deg, RESULT),
    np.rad2deg: (torch.rad2deg, RESULT),
    np.radians: (torch.deg2rad, RESULT),
    np.deg2rad: (torch.deg2rad, RESULT),
    np.reciprocal: (torch.reciprocal, RESULT),
    np.square: (torch.square, RESULT),
    np.fabs: (torch.abs, RESULT),
    np.conjugate: (torch.conj_physical, RESULT),
    np.signbit: (torch.signbit, OPERANDS),
    np.sign: (sign, RESULT),
    np.arctan2: (torch.arctan2, RESULT),
    np.hypot: (torch.hypot, RESULT),
    np.copysign: (torch.copysign, RESULT),
    np.power: (torch.pow, RESULT),
    np.float_power: (torch.pow, RESULT),
    np.logaddexp: (torch.logaddexp, RESULT),
    np.logaddexp2: (torch.logaddexp2, RESULT),
    np.fmax: (torch.fmax, RESULT),
    np.fmin: (torch.fmin, RESULT),
    np.floor_divide: (torch.floor_divide, RESULT),
    np.remainder: (torch.remainder, RESULT),
    np.fmod: (torch.fmod, RESULT),
    np.gcd: (torch.gcd, RESULT),
    np.lcm: (torch.lcm, RESULT),
}
# dtype.kind of what they are the same for: torch has no abs of bool, and integers have divisions by
# zero, and powers, of their own.
KINDS: dict[Any, str] = {
    np.maximum: "biu",
    np.minimum: "biu",
    **dict.fromkeys([np.absolute, np.floor, np.ceil, np.trunc, np.positive], "iuf"),
    **dict.fromkeys([np.left_shift, np.right_shift], "iu"),
    **dict.fromkeys([np.nextafter, np.heaviside], "f"),
}
ROUNDED_KINDS: dict[Any, str] = {
    np.maximum: "biuf",
    np.minimum: "biuf",
    np.absolute: "iufc",
    np.gcd: "iu",
    np.lcm: "iu",
    np.sign: "iuf",
    np.signbit: "f",
    np.square: "iufc",
    np.conjugate: "iufc",
    **dict.fromkeys([np.add, np.subtract, np.multiply, np.true_divide, np.negative], "biufc"),
    **dict.fromkeys([np.equal, np.not_equal], "biufc"),
    **dict.fromkeys([np.sqrt, np.exp, np.log, np.sin, np.cos, np.power], "fc"),
}
SYMBOLS = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide,
    "//": np.floor_divide, "%": np.remainder, "**": np.power,
    "<<": np.left_shift, ">>": np.right_shift,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
    ">": np.greater, ">=": np.greater_equal, "-x": np.negative, "+x": np.positive, "~x": np.invert,
}  # fmt: skip
