"""The operations of loop bodies as Triton text: types, conversions, operators, reductions."""

from __future__ import annotations

from typing import Any

import torch

TYPES = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "i1",
}


class NoTriton(NotImplementedError):
    """A kernel has no Triton form because of `operation`; the pipeline leaves that to aten."""

    def __init__(self, operation: str, detail: str) -> None:
        super().__init__(f"{operation} {detail}")
        self.operation = operation


def type_name(dtype: torch.dtype) -> str:
    short = TYPES[dtype]
    return {"fp": "tl.float", "bf": "tl.bfloat", "u8": "tl.uint"}.get(short[:2], "tl.int") + (
        short.lstrip("fpbiu")
    )


def constant(value: Any, dtype: torch.dtype) -> str:
    """A typed scalar; a bare Python number would take Triton's default type."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        text = f'float("{value}")'
    else:
        text = repr(value)
    return f"tl.full((), {text}, {type_name(dtype)})"


def convert(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """Tensor.to; half types are rounded to and widened again."""
    if target == torch.bool:
        return f"{text} != 0"
    if target in (torch.float16, torch.bfloat16):
        return f"{text}.to({type_name(target)}).to(tl.float32)"
    if target == torch.uint8 and source.is_floating_point:
        return f"{text}.to(tl.int32).to(tl.uint8)"
    return f"{text}.to({type_name(target)})"


# --- operations
# -------------------------------------------------------------------------------------

# For any type. {0}, {1}: arguments
ANY = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "relu": "tl.where({0} < 0, 0, {0})",
    "maximum": "fg.maximum({0}, {1})",
    "minimum": "fg.minimum({0}, {1})",
    "fmax": "fg.fmax({0}, {1})",
    "fmin": "fg.fmin({0}, {1})",
    "bit_and": "{0} & {1}",
    "bit_or": "{0} | {1}",
    "bit_xor": "{0} ^ {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "logical_and": "({0} != 0) & ({1} != 0)",
    "logical_or": "({0} != 0) | ({1} != 0)",
    "logical_xor": "({0} != 0) != ({1} != 0)",
    "logical_not": "{0} == 0",
    "sign": "({0} > 0).to({T}) - ({0} < 0).to({T})",
}

FLOAT = {
    "div": "{0} / {1}",
    "div_trunc": "math.trunc({0} / {1})",
    "reciprocal": "1 / {0}",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "1 / tl.sqrt({0})",
    "exp": "tl.exp({0})",
    "exp2": "tl.exp2({0})",
    "log": "tl.log({0})",
    "log2": "tl.log2({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "erf": "tl.erf({0})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "trunc": "math.trunc({0})",
    "round": "math.rint({0})",
    "sigmoid": "1 / (1 + tl.exp(-{0}))",
    "mul_add": "tl.fma({0}, {1}, {2})",
    "remainder": "fg.remainder_float({0}, {1}, math.fmod({0}, {1}))",
    "isnan": "{0} != {0}",
    "isinf": 'tl.abs({0}) == float("inf")',
    "signbit": "{0}.to({I}, bitcast=True) < 0",
    **{
        name: f"math.{name}({{0}})"
        for name in [
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "cosh",
            "erfc",
            "erfinv",
            "expm1",
            "lgamma",
            "log10",
            "log1p",
            "sinh",
            "tan",
            "tanh",
        ]
    },
    **{
        name: f"math.{name}({{0}}, {{1}})" for name in ["atan2", "copysign", "fmod", "hypot", "pow"]
    },
}

# float32 division and square roots are approximate in Triton unless asked for by name.
FLOAT32 = {
    "div": "tl.div_rn({0}, {1})",
    "div_trunc": "math.trunc(tl.div_rn({0}, {1}))",
    "reciprocal": "tl.div_rn(tl.full((), 1.0, tl.float32), {0})",
    "sqrt": "tl.sqrt_rn({0})",
    "rsqrt": "tl.div_rn(tl.full((), 1.0, tl.float32), tl.sqrt_rn({0}))",
    "sigmoid": "tl.div_rn(tl.full((), 1.0, tl.float32), 1 + tl.exp(-{0}))",
}

INTEGER = {
    "div_trunc": "{0} // {1}",
    "div_floor": "fg.floor_div_int({0}, {1})",
    "fmod": "{0} % {1}",
    "remainder": "fg.remainder_int({0}, {1})",
    "bit_not": "~{0}",
    "floor": "{0}",
    "ceil": "{0}",
    "trunc": "{0}",
    "round": "{0}",
    "shift_left": "tl.where(({1} < 0) | ({1} >= {B}), 0, {0} << {1})",
    "shift_right": "{0} >> tl.where(({1} < 0) | ({1} >= {B}), {B} - 1, {1})",
    "isnan": "{0} != {0}",
    "isinf": "{0} != {0}",
    "signbit": "{0} < 0",
}

BOOLEAN = {
    "bit_not": "{0} == 0",
    "logical_and": "{0} & {1}",
    "logical_or": "{0} | {1}",
    "logical_xor": "{0} != {1}",
}


def operation(op: str, args: list[str], dtype: torch.dtype) -> str:
    """One operation as Triton text, for arguments of `dtype`."""
    tables = [ANY]
    if dtype == torch.bool:
        tables = [BOOLEAN, ANY]
    elif dtype.is_floating_point:
        tables = [FLOAT32, FLOAT, ANY] if dtype == torch.float32 else [FLOAT, ANY]
    else:
        tables = [INTEGER, ANY]
    if op == "div_floor" and dtype.is_floating_point:
        return _float_floor_div(args[0], args[1], dtype)
    for table in tables:
        if op in table:
            bits = dtype.itemsize * 8
            names = {"T": type_name(dtype), "I": f"tl.int{bits}", "B": bits}
            return table[op].format(*args, **names)
    raise NoTriton(op, f"on {dtype}")


def _float_floor_div(a: str, b: str, dtype: torch.dtype) -> str:
    """torch.floor_divide on floats: from a remainder, to be right for quotients near integers."""
    quotient = operation("div", [a, b], dtype)
    whole = operation("div", [f"({a} - math.fmod({a}, {b}))", b], dtype)
    return f"fg.floor_div_float({b}, math.fmod({a}, {b}), {quotient}, {whole})"


# --- reductions
# -------------------------------------------------------------------------------------

# kind: what a lane without an element holds, for floats and for integers ("low"/"high": the type's
# extremes)
NEUTRAL: dict[str, tuple[Any, Any]] = {
    "sum": (0.0, 0),
    "prod": (1.0, 1),
    "max": (float("-inf"), "low"),
    "min": (float("inf"), "high"),
    "any": (0.0, 0),
    "all": (1.0, 1),
    "argmax": (float("-inf"), "low"),
    "argmin": (float("inf"), "high"),
}
# kind: how a running value takes in another
COMBINE = {
    "sum": "{0} + {1}",
    "prod": "{0} * {1}",
    "max": "fg.maximum({0}, {1})",
    "min": "fg.minimum({0}, {1})",
    "any": "{0} | {1}",
    "all": "{0} & {1}",
}
LARGEST = 9223372036854775807


def neutral(kind: str, dtype: torch.dtype) -> str:
    if kind not in NEUTRAL:
        raise NoTriton(kind, "as a reduction")
    value = NEUTRAL[kind][0 if dtype.is_floating_point else 1]
    if dtype == torch.bool:
        value = {"low": False, "high": True}.get(value, bool(value))
    elif isinstance(value, str):
        info = torch.iinfo(dtype)
        value = info.min if value == "low" else info.max
    return constant(value, dtype)


def finish_rows(kind: str, dtype: torch.dtype, tiles: list[str]) -> str:
    if kind in ("max", "min"):
        if dtype == torch.bool:
            return f"fg.row_{'any' if kind == 'max' else 'all'}({tiles[0]})"
        return f"fg.row_{kind}{'_nan' if dtype.is_floating_point else ''}({tiles[0]})"
    result = f"fg.row_{kind}({', '.join(tiles)})"
    return result if kind not in ("sum", "prod") else f"{result}.to({type_name(dtype)})"
