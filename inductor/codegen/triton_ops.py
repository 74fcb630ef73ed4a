"""Pieces of Triton text: types, conversions, operations, reductions."""

from __future__ import annotations

import math
from typing import Any

import torch

from inductor.operations import OPERATIONS

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
    torch.float8_e4m3fn: "fp8e4nv",  # of operands of products alone
    torch.float8_e5m2: "fp8e5",
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
    if dtype.is_floating_point and value == 0 and math.copysign(1, value) < 0:
        return f"({constant(0.0, dtype)} * -1.0)"  # Triton before 3.9 makes 0.0 of -0.0
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


def operation(op: str, args: list[str], dtype: torch.dtype) -> str:
    """An operation as Triton text, for arguments of `dtype`."""
    form = OPERATIONS[op].triton_form(dtype)
    if form is None:
        raise NoTriton(op, f"on {dtype}")
    bits = dtype.itemsize * 8
    return form.format(*args, T=type_name(dtype), I=f"tl.int{bits}", B=bits)


# --- reductions
# -------------------------------------------------------------------------------------

# kind -> the value of a lane without an element, for floats and for integers ("low"/"high": the
# type's extremes)
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
