"""Random programs: pointwise, view, reduction, cat, pad and index operators put together at random,
over types, sizes and memory layouts, must agree with eager."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import inductor
from fxgraph import symbolic_trace
from tests.inductor.compiling import same_layout

EXAMPLES = int(os.environ.get("PROGRAM_EXAMPLES", "100"))
DTYPES = [torch.float32] * 4 + [
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
LAYOUTS = ["plain", "transposed", "gaps", "unaligned", "expanded"]
SIZES = [0, 1, 2, 3, 5, 8, 17, 33, 70]


def make(dtype: torch.dtype, size: tuple[int, ...], layout: str, seed: int) -> torch.Tensor:
    """A tensor of small numbers, so that no operator of a program overflows in every type."""
    g = torch.Generator().manual_seed(seed)

    def values(*shape: int) -> torch.Tensor:
        if dtype == torch.bool:
            return torch.rand(shape, generator=g) > 0.5
        if dtype.is_floating_point:
            return torch.randn(shape, generator=g).to(dtype)
        return torch.randint(0, 7, shape, generator=g).to(dtype)

    if layout == "transposed":
        return values(*reversed(size)).permute(*reversed(range(len(size))))
    if layout == "gaps" and size:
        return values(*size[:-1], 2 * size[-1])[..., ::2]
    if layout == "unaligned":
        numel = int(torch.Size(size).numel())
        return values(numel + 1)[1:].view(size)
    if layout == "expanded" and size:
        return values(1, *size[1:]).expand(size)
    return values(*size)


# An operator is a function of its operands' example values and a small number that stands for a
# choice; it gives Python text about "x" (and "y"), or None where it does not fit them.


def numeric(x: torch.Tensor, name: str = "x") -> str:
    return f"{name}.to(torch.int32)" if x.dtype == torch.bool else name


def floating(x: torch.Tensor, name: str = "x") -> str:
    return name if x.dtype.is_floating_point else f"{name}.float()"


def dim(x: torch.Tensor, k: int) -> int:
    return k % x.dim()


def cut(x: torch.Tensor, k: int) -> str:
    n = x.shape[dim(x, k)]
    return f"x.narrow({dim(x, k)}, {min(1, n)}, {max(0, n - 1)})"


def every_second(x: torch.Tensor, k: int) -> str:
    return f"x[{':, ' * dim(x, k)}::2]"


UNARY: dict[str, Callable[[torch.Tensor, int], str | None]] = {
    "relu": lambda x, k: f"{numeric(x)}.relu()",
    "exp": lambda x, k: f"torch.exp(-{floating(x)}.abs())",
    "tanh": lambda x, k: f"torch.tanh({floating(x)})",
    "gelu": lambda x, k: f"F.gelu({floating(x)})",
    "sigmoid": lambda x, k: f"{floating(x)}.sigmoid()",
    "abs": lambda x, k: f"{numeric(x)}.abs()",
    "scale": lambda x, k: f"{numeric(x)} * {k + 1} - 2",
    "greater": lambda x, k: f"{numeric(x)} > {k}",
    "float": lambda x, k: "x.float()",
    "bfloat16": lambda x, k: "x.to(torch.bfloat16)",
    "int": lambda x, k: f"{floating(x)}.nan_to_num().clamp(-99, 99).to(torch.int64)",
    "remainder": lambda x, k: f"{numeric(x)} % {k + 1}",
    "floor_divide": lambda x, k: f"{numeric(x)} // {k + 2}",
    "clamp": lambda x, k: f"{numeric(x)}.clamp(-1, {k})",
    "transpose": lambda x, k: "x.transpose(0, -1)",
    "contiguous": lambda x, k: "x.transpose(0, -1).contiguous()",
    "flip": lambda x, k: f"x.flip({dim(x, k)})",
    "cut": cut,
    "step": every_second,
    "select": lambda x, k: "x.select(0, -1)" if x.dim() > 1 and x.shape[0] else None,
    "unsqueeze": lambda x, k: f"x.unsqueeze({k % (x.dim() + 1)})" if x.dim() < 4 else None,
    "flatten": lambda x, k: "x.reshape(-1)",
    "expand": lambda x, k: f"x.expand(3, {str(tuple(x.shape))[1:-1]})" if x.dim() < 3 else None,
    "roll": lambda x, k: f"x.roll(1, {dim(x, k)})",
    "pad": lambda x, k: f"F.pad({numeric(x)}, (1, {k}), value={k})",
    "sum": lambda x, k: f"{numeric(x)}.sum({dim(x, k)}, keepdim=True)",
    "sum_all": lambda x, k: f"{numeric(x)}.sum().reshape(1)",
    "mean": lambda x, k: f"{floating(x)}.mean({dim(x, k)}, keepdim=True)",
    "amax": lambda x, k: f"x.amax({dim(x, k)}, keepdim=True)" if x.numel() else None,
    "argmax": lambda x, k: f"{numeric(x)}.argmax({dim(x, k)}, keepdim=True)" if x.numel() else None,
    "any": lambda x, k: f"x.bool().any({dim(x, k)}, keepdim=True)",
    "softmax": lambda x, k: f"torch.softmax({floating(x)}, {dim(x, k)})",
    "layer_norm": lambda x, k: (
        f"F.layer_norm({floating(x)}, ({x.shape[-1]},))" if x.shape[-1] > 1 else None
    ),
    "cat": lambda x, k: f"torch.cat([x, {cut(x, k)}, x], {dim(x, k)})",
    "cat_half": lambda x, k: "torch.cat([x, x.to(torch.float16)], 0)",
    "stack": lambda x, k: f"torch.stack([x, x.flip(0)], {dim(x, k)})" if x.dim() < 3 else None,
    "index": lambda x, k: "x[(x.reshape(-1)[:2] * 0).to(torch.int64)]" if x.shape[0] else None,
    "gather": lambda x, k: (
        f"x.gather({dim(x, k)}, (x * 0).to(torch.int64))" if x.dtype != torch.bool else None
    ),
    "tril": lambda x, k: f"x.tril({k - 1})" if x.dim() > 1 else None,
    "masked_fill": lambda x, k: f"{numeric(x)}.masked_fill({numeric(x)} > 1, {k})",
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], str]] = {
    "add": lambda x, y: f"{numeric(x)} + {numeric(y, 'y')}",
    "sub": lambda x, y: f"{numeric(x)} - {numeric(y, 'y')}",
    "mul": lambda x, y: "x * y",
    "div": lambda x, y: f"{numeric(x)} / ({numeric(y, 'y')}.abs() + 1)",
    "maximum": lambda x, y: "torch.maximum(x, y)",
    "where": lambda x, y: f"torch.where({numeric(x)} > {numeric(y, 'y')}, x, y)",
    "eq": lambda x, y: "x == y",
    "lerp": lambda x, y: f"torch.lerp({floating(x)}, y.to({floating(x)}.dtype), 0.25)",
}
Row = tuple[str, int, int, int]  # operator, choice, operand, other operand


def meets(x: torch.Tensor, y: torch.Tensor) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(x.shape[::-1], y.shape[::-1], strict=False))


def written(rows: list[Row], write: bool, inputs: list[torch.Tensor]) -> str:
    """The program as the text of a function of a and b, made by running it line by line."""
    values = dict(zip("ab", inputs, strict=True))
    lines = []
    for name, k, first, second in rows:
        names = list(values)
        one, other = names[first % len(names)], names[second % len(names)]
        x, y = values[one], values[other]
        if name in UNARY:
            text = UNARY[name](x, k) if x.dim() else None
        else:
            text = BINARY[name](x, y) if meets(x, y) else None
        if text is None:
            continue
        text = re.sub(r"\bx\b", one, re.sub(r"\by\b", other, text))
        try:
            value = eval(text, {"torch": torch, "F": F}, dict(values))
        except (RuntimeError, TypeError):
            continue  # eager refuses
        if value.numel() <= 200_000:
            values[result := f"v{len(lines)}"] = value
            lines.append(f"{result} = {text}")
    if write:
        lines.append("a.copy_(a.flip(0))")
    made = ", ".join(v for v in values if v not in "ab")
    return "\n    ".join(["def program(a, b):", *lines, f"return ({made}{',' if made else ''})"])


@st.composite
def programs(draw: Any) -> tuple[list[Row], bool, list[tuple]]:
    names = st.sampled_from([*UNARY, *BINARY])
    rows = draw(
        st.lists(
            st.tuples(names, st.integers(0, 3), st.integers(0, 20), st.integers(0, 20)),
            min_size=1,
            max_size=7,
        )
    )
    size = tuple(draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3)))
    inputs = [
        (draw(st.sampled_from(DTYPES)), draw(st.sampled_from(["same", "last"])),
         draw(st.sampled_from(LAYOUTS)), seed)
        for seed in range(2)
    ]  # fmt: skip
    tensors = [
        (dtype, size if shape == "same" else size[-1:], layout, seed)
        for dtype, shape, layout, seed in inputs
    ]
    dtype, _, layout, _ = tensors[0]
    writable = layout != "expanded" and dtype != torch.bool
    return rows, draw(st.booleans()) and writable, tensors


def tolerance(dtype: torch.dtype, half: bool) -> tuple[float, float]:
    if half:  # fused kernels round to half types once where eager does so after every step
        return 0.05, 0.05
    return (1e-4, 1e-4) if dtype == torch.float32 else (1e-7, 1e-7)


@given(programs())
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES == 100,
    suppress_health_check=list(HealthCheck),
)
def test_random_programs(program: tuple[list[Row], bool, list[tuple]]) -> None:
    check_program(*program)


def check_program(rows: list[Row], write: bool, tensors: list[tuple]) -> None:
    with torch.no_grad():
        text = written(rows, write, [make(*t) for t in tensors])
        scope: dict[str, Any] = {"torch": torch, "F": F}
        exec(text, scope)
        theirs, ours = ([make(*t) for t in tensors] for _ in range(2))
        expected = scope["program"](*theirs)
        if not expected:
            return
        got = inductor.compile_graph(symbolic_trace(scope["program"]), ours)(*ours)
    half = any(x.dtype in (torch.float16, torch.bfloat16) for x in [*expected, *theirs])
    single = any(x.dtype == torch.float32 for x in [*expected, *theirs])
    for number, (e, g) in enumerate(zip([*expected, *theirs], [*got, *ours], strict=True)):
        where = f"result {number} of\n{text}\n"
        assert (e.dtype, e.shape) == (g.dtype, g.shape), where
        if theirs[0].dtype == theirs[1].dtype:  # torch's meta kernels promote to other strides
            assert e.numel() < 2 or same_layout(e, g), f"{where} {e.stride()} {g.stride()}"
        if half and not e.dtype.is_floating_point:
            continue  # a comparison may have gone the other way
        rtol, atol = tolerance(torch.float32 if single else e.dtype, half)
        torch.testing.assert_close(
            g, e, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m, w=where: w + m
        )
