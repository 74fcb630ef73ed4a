"""Every lowering against eager, over dtypes, layouts, sizes and special values."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import dynamo
from tests.inductor.compiling import check, staged

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def make(dtype: torch.dtype, *size: int, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(size, generator=g) > 0.5
    if dtype.is_floating_point:
        return (torch.randn(size, generator=g) * 3).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -9, 10, size, generator=g).to(dtype)


def special(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values where elementary functions go wrong."""
    edge = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 1e-3, 1e30, -1e30, 3.3e38, 1e-38, 1e-42, 88.0,
            89.5, -87.0, -104.0, 0.625, -0.625, 4.0, 9.0, 20.0, -20.0, math.inf, -math.inf,
            math.nan, 0.99999, 7.5]  # fmt: skip
    return torch.tensor(edge, dtype=torch.float64).to(dtype)


def table(fns: dict, *args: torch.Tensor, **kwargs: object) -> None:
    """All functions in one graph, which is one run of the compiler."""

    def every(*a: torch.Tensor) -> tuple:
        return tuple(f(*a) for f in fns.values())

    fixed = {  # tracing needs a number of arguments
        1: lambda a: every(a),
        2: lambda a, b: every(a, b),
        4: lambda a, b, c, d: every(a, b, c, d),
        5: lambda a, b, c, d, e: every(a, b, c, d, e),
    }
    check(fixed[len(args)], *args, names=list(fns), **kwargs)


# --- elementwise
# -----------------------------------------------------------------------------------

UNARY = {
    name: getattr(torch, name)
    for name in """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos
    atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid floor ceil round trunc sign abs neg relu
    isnan isinf isfinite signbit logical_not square frac lgamma deg2rad nan_to_num sgn
    logit""".split()
}
ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "relu6": F.relu6,
    "elu": lambda x: F.elu(x, 1.3),
    "celu": lambda x: F.celu(x, 1.3),
    "selu": F.selu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "mish": F.mish,
    "softplus": lambda x: F.softplus(x, 2.0, 10.0),
    "logsigmoid": F.logsigmoid,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.5),
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 7.0),
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "glu": lambda x: F.glu(x, 0),
    "clamp": lambda x: x.clamp(-1, 2),
    "clamp_min": lambda x: x.clamp(min=0.5),
    "clamp_max": lambda x: x.clamp(max=0.5),
    "pow2": lambda x: x**2,
    "pow3": lambda x: x**3,
    "pow_half": lambda x: x**0.5,
    "pow_minus": lambda x: x**-1,
    "pow_odd": lambda x: x**1.7,
    "rpow": lambda x: 2.0**x,
    "rsub": lambda x: 1 - x,
    "rdiv": lambda x: 1 / x,
    "xlogy": lambda x: torch.xlogy(x, x),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_unary_at_special_values(dtype: torch.dtype) -> None:
    table(UNARY, special(dtype), rtol=2e-6)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_activations(dtype: torch.dtype) -> None:
    half = dtype in (torch.float16, torch.bfloat16)
    # Fused kernels round to half types once where eager does so after every step.
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(dtype, 3e-6)
    finite = special(dtype)[special(dtype).abs() < 1e20]  # eager's gelu(inf) is nan
    x = make(dtype, 6, 37) if half else torch.cat([finite, make(dtype, 70)])
    table(ACTIVATIONS, x, rtol=tolerance, atol=tolerance if half else 1e-6)


def test_float_vectors_and_tails() -> None:
    for n in (1, 3, 15, 16, 17, 31, 64, 100):
        check(lambda x: (torch.exp(x) + 1,), make(torch.float32, n))


BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "add_alpha": lambda a, b: torch.add(a, b, alpha=2),
    "sub_alpha": lambda a, b: torch.sub(a, b, alpha=3),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "where": lambda a, b: torch.where(a > b, a, b),
    "where_scalar": lambda a, b: torch.where(a > b, a, 1),
    "masked_fill": lambda a, b: a.masked_fill(a > b, 2),
    "scalar_add": lambda a, b: a + 2,
    "scalar_mul": lambda a, b: b * 3,
}
FLOAT_BINARY = {
    "div": lambda a, b: a / b,
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "copysign": torch.copysign,
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.5),
    "pow": lambda a, b: torch.pow(a.abs(), b),
}
INTEGER_BINARY = {
    "div": lambda a, b: a / b,
    "floor_divide": lambda a, b: a // b,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a, b: ~a,
    "shift_left": lambda a, b: a << 2,
    "shift_of_bool": lambda a, b: (a > 0) >> (b.abs() & 1),
    "shift_by_bool": lambda a, b: a << (b > 0),
    "shift_right": lambda a, b: a >> 1,
    "pow2": lambda a, b: a**2,
    "pow3": lambda a, b: a**3,
    "abs": lambda a, b: a.abs(),
    "neg": lambda a, b: -a,
    "sign": lambda a, b: a.sign(),
    "clamp": lambda a, b: a.clamp(0, 5),
    "exp": lambda a, b: torch.exp(a),
    "add_float": lambda a, b: a + 0.5,
    "isnan": lambda a, b: torch.isnan(a),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_binary_floats(dtype: torch.dtype) -> None:
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(dtype)
    a, b = make(dtype, 5, 37), make(dtype, 5, 37, seed=1)
    table(BINARY | FLOAT_BINARY, a, b, rtol=tolerance, atol=tolerance)


def test_binary_special_values() -> None:
    x = special()
    x = x[~((x.abs() < 1e-37) & (x != 0))]
    a, b = x[:, None].expand(-1, len(x)).contiguous(), x[None, :].expand(len(x), -1).contiguous()
    fns = BINARY | FLOAT_BINARY
    table({k: fns[k] for k in fns if k not in ("remainder", "fmod")}, a, b)  # see the next test


def test_where_eager_differs_from_itself() -> None:
    """Eager's vectors and the rest of a row that fills none disagree in places: gelu overflows near
    the greatest float, remainders are nan where the quotient overflows. We give what the rest of a
    row gives, which is the mathematical value.
    """
    big = torch.full((1,), 3.3e38)
    one, tiny = torch.ones(1), torch.full((1,), 1e-42)
    fns = {
        "gelu": lambda big, one, tiny, wide: F.gelu(big),
        "remainder": lambda big, one, tiny, wide: torch.remainder(one, tiny),
        "remainder_big": lambda big, one, tiny, wide: torch.remainder(big, one * 0.5),
        "fmod": lambda big, one, tiny, wide: torch.fmod(one, tiny),
        "fmod_big": lambda big, one, tiny, wide: torch.fmod(big, one * 0.5),
    }
    table(fns, big, one, tiny, big)
    many = [x.expand(64).contiguous() for x in (big, one, tiny, big)]
    c = staged(lambda a, b, t, w: tuple(f(a, b, t, w) for f in fns.values()), many)
    for name, f, got in zip(fns, fns.values(), c.compiled(*many), strict=True):
        assert torch.equal(got, f(big, one, tiny, big).expand(64)), name


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_binary_integers(dtype: torch.dtype) -> None:
    a, b = make(dtype, 5, 37), make(dtype, 5, 37, seed=1)
    b = torch.where(b == 0, 3, b).to(dtype)
    table(BINARY | INTEGER_BINARY, a, b)


def test_bool() -> None:
    a, b = make(torch.bool, 5, 37), make(torch.bool, 5, 37, seed=1)
    names = ("maximum", "minimum", "eq", "ne", "lt", "ge", "logical_and", "logical_or",
             "logical_xor", "where", "where_scalar", "scalar_add", "scalar_mul", "add",
             "mul")  # fmt: skip
    fns = {name: BINARY[name] for name in names} | {
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "not": lambda a, b: ~a,
        "any": lambda a, b: a.any(1),
        "all": lambda a, b: a.all(0),
        "sum": lambda a, b: a.sum(1),
        "float": lambda a, b: a.float(),
        "amax": lambda a, b: a.amax(1),
        "signbit": lambda a, b: a.signbit(),
        "isfinite": lambda a, b: a.isfinite(),
        "isneginf": lambda a, b: a.isneginf(),
    }
    table(fns, a, b)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_sign_of_integers(dtype: torch.dtype) -> None:
    table({"signbit": torch.signbit, "sign": torch.sign, "sgn": torch.sgn}, make(dtype, 5, 37))


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_conversions(source: torch.dtype) -> None:
    x = make(source, 7, 19)
    if source.is_floating_point:
        x = x.abs()  # a negative float to an unsigned type is undefined
    targets = [*FLOATS, *INTEGERS, torch.bool]
    table({str(t): (lambda x, t=t: x.to(t)) for t in targets}, x)


def test_mixed_types_promote_as_eager() -> None:
    args = [
        make(t, 4, 9, seed=k)
        for k, t in enumerate((torch.int32, torch.float32, torch.float64, torch.bool))
    ]
    zero_dim = torch.tensor(2.5, dtype=torch.float64)
    table(
        {
            "int+float": lambda i, f, d, b, z: i + f,
            "float+double": lambda i, f, d, b, z: f + d,
            "bool+int": lambda i, f, d, b, z: b + i,
            "int<float": lambda i, f, d, b, z: i < f,
            "float+0dim double": lambda i, f, d, b, z: f + z,
            "float<0dim double": lambda i, f, d, b, z: f < z,
            "where": lambda i, f, d, b, z: torch.where(b, i, f),
            "int*2.5": lambda i, f, d, b, z: i * 2.5,
            "int>1.5": lambda i, f, d, b, z: i > 1.5,
        },
        *args,
        zero_dim,
    )


def test_explicit_half_conversion_rounds() -> None:
    check(
        lambda x: (x.to(torch.bfloat16).float() * 2, x.half().float() + 1), make(torch.float32, 50)
    )


# --- layouts
# ---------------------------------------------------------------------------------------

VIEWS = {
    "t": lambda x: x.transpose(0, 1) * 2,
    "permute": lambda x: x.permute(2, 0, 1) + 1,
    "contiguous": lambda x: x.permute(2, 0, 1).contiguous(),
    "reshape": lambda x: x.permute(1, 0, 2).reshape(5, -1) + 1,
    "reshape_lazy": lambda x: (x + 1).reshape(2, 20, 3).permute(1, 0, 2) * 2,
    "flatten": lambda x: (x * 2).flatten(1),
    "unflatten": lambda x: (x * 2).view(4, 5, 2, 3).transpose(1, 2).sum(3),
    "slice": lambda x: x[1:3, ::2, 1:] + 1,
    "slice_lazy": lambda x: (x + 1)[:, 1:, ::3] * 2,
    "select": lambda x: x[:, 2] + (x * 2)[1, 0, 0],
    "negative_select": lambda x: x[:, -1] + 1,
    "expand": lambda x: x[:, :1].expand(4, 5, 6) + x,
    "expand_lazy": lambda x: (x[:1] + 1).expand(4, 5, 6) * x,
    "unsqueeze": lambda x: x.unsqueeze(1) * x.unsqueeze(2),
    "squeeze": lambda x: (x[:, :1] + 1).squeeze(1) + x[:, 0:1].squeeze(1),
    "squeeze_all": lambda x: (x[:1, :1] + 1).squeeze(),
    "flip": lambda x: x.flip(0, 2) + 1,
    "roll": lambda x: torch.roll(x, (1, -2), (0, 2)) + 1,
    "roll_flat": lambda x: torch.roll(x, 7) + 1,
    "repeat": lambda x: x.repeat(2, 1, 3) + 1,
    "repeat_lead": lambda x: (x + 1).repeat(2, 1, 2, 1),
    "diagonal": lambda x: x.diagonal(1, 1, 2) + 1,
    "diagonal_lazy": lambda x: (x + 1).diagonal(-1, 0, 2) * 2,
    "unfold": lambda x: x.unfold(2, 3, 2) * 2,
    "chunk": lambda x: x.chunk(3, 2)[1] + x.chunk(3, 2)[2],
    "split": lambda x: x.split([2, 3], 1)[1] * 2,
    "unbind": lambda x: x.unbind(0)[2] + 1,
    "stack": lambda x: torch.stack([x, x + 1], 1),
    "cat": lambda x: torch.cat([x, x * 2, x[:, :1]], 1) + 1,
    "cat_last": lambda x: torch.cat([x, x + 1], -1).relu(),
    "cat_then_sum": lambda x: torch.cat([x, x + 1], 0).sum(0),
    "cat_types": lambda x: torch.cat([x, x.double()], 0),
    "tril": lambda x: x.tril(1) + x.triu(-1),
    "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=4.0),
    "pad_crop": lambda x: F.pad(x, (-1, 2)) + 1,
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(4, 5, 6), 2),
    "movedim": lambda x: x.movedim(0, 2).reshape(-1) * 2,
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:, 1:3] * 2, 1, 2, 4),
    "slice_scatter_step": lambda x: torch.slice_scatter(x, x[:, :3] * 2, 1, 0, 5, 2),
    "select_scatter": lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, 3) + 1,
    "narrow": lambda x: x.narrow(2, 1, 4) * 3,
    "view_as_other": lambda x: (x * 2).view(2, 60).t(),
}


@pytest.mark.parametrize("layout", ["contiguous", "permuted", "gaps"])
def test_views(layout: str) -> None:
    x = {
        "contiguous": make(torch.float32, 4, 5, 6),
        "permuted": make(torch.float32, 6, 4, 5).permute(1, 2, 0),
        "gaps": make(torch.float32, 8, 5, 12)[::2, :, ::2],
    }[layout]
    fns = {k: f for k, f in VIEWS.items() if k != "pixel_shuffle"}
    if layout != "contiguous":
        fns.pop("view_as_other")
        fns.pop("unflatten")
    table(fns, x, fallbacks=["as_strided.default"])


def test_channels_last_is_kept() -> None:
    x = make(torch.float32, 2, 8, 5, 7).to(memory_format=torch.channels_last)
    w = make(torch.float32, 8)[:, None, None]
    c = check(lambda x, w: (torch.relu(x * w + 1), (x + 1).contiguous()), x, w)
    assert c.program is not None


def test_conv_neighbours_keep_their_layout() -> None:
    x = make(torch.float32, 2, 3, 12, 12).to(memory_format=torch.channels_last)
    w = make(torch.float32, 8, 3, 3, 3).to(memory_format=torch.channels_last)
    check(
        lambda x, w: (F.relu(F.conv2d(x + 1, w, padding=1)) * 2,),
        x,
        w,
        fallbacks=["convolution.default"],
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("size", [(0,), (3, 0), (0, 4)])
def test_empty(size: tuple[int, ...]) -> None:
    x = torch.empty(size)
    check(lambda x: (x + 1, x.exp().transpose(0, -1), torch.cat([x, x])), x)


def test_scalars() -> None:
    check(
        lambda x, y: (x + y, x.exp(), (x * y).view(1, 1), x.sum(), x > y),
        torch.tensor(1.5),
        torch.tensor(2.0),
    )


# --- reductions
# ------------------------------------------------------------------------------------

REDUCTIONS = {
    "sum": lambda x: x.sum(),
    "sum1": lambda x: x.sum(1),
    "sum0_keep": lambda x: x.sum(0, keepdim=True),
    "sum02": lambda x: x.sum((0, 2)),
    "sum_last": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(),
    "mean1": lambda x: x.mean(1),
    "mean_12": lambda x: x.mean((1, 2), keepdim=True),
    "amax": lambda x: x.amax((0, 1)),
    "amin": lambda x: x.amin(2),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max_dim": lambda x: x.max(1)[0],
    "max_indices": lambda x: x.max(1)[1],
    "min_dim": lambda x: x.min(2, keepdim=True)[0],
    "min_indices": lambda x: x.min(2)[1],
    "argmax": lambda x: x.argmax(),
    "argmax0": lambda x: x.argmax(0),
    "argmin": lambda x: x.argmin(2, keepdim=True),
    "prod": lambda x: (x / 3).prod(2),
    "any": lambda x: (x > 2).any(1),
    "all": lambda x: (x > -2).all(2),
    "any_all": lambda x: (x > 100).any(),
    "var": lambda x: x.var(),
    "var1": lambda x: x.var(1),
    "var_biased": lambda x: x.var(2, correction=0),
    "std": lambda x: x.std((0, 2)),
    "var_mean": lambda x: torch.var_mean(x, 1)[0] + torch.var_mean(x, 1)[1],
    "norm": lambda x: x.norm(),
    "norm1": lambda x: torch.linalg.vector_norm(x, 1, dim=1),
    "norm2": lambda x: torch.linalg.vector_norm(x, 2, dim=2),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, math.inf, dim=0),
    "logsumexp": lambda x: x.logsumexp(2),
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax1": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "log_softmax0": lambda x: torch.log_softmax(x, 0),
    "count_nonzero": lambda x: torch.count_nonzero(x > 0, 1),
    "normalize": lambda x: F.normalize(x, dim=2),
    "lazy_input": lambda x: (x * 2 + 1).sum(1),
    "transposed": lambda x: x.transpose(0, 2).sum(1),
    "size_one": lambda x: x[:, :1].sum(1) + x[:, :1].argmax(1),
}


@pytest.mark.parametrize("layout", ["contiguous", "permuted"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reductions(dtype: torch.dtype, layout: str) -> None:
    x = make(dtype, 7, 5, 37)
    if layout == "permuted":
        x = make(dtype, 37, 7, 5).permute(1, 2, 0)
    tolerance = {torch.float16: 2e-2, torch.bfloat16: 8e-2}.get(dtype, 2e-5)
    table(REDUCTIONS, x, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_reductions(dtype: torch.dtype) -> None:
    names = (
        "sum",
        "sum1",
        "sum02",
        "amax",
        "amin",
        "max_dim",
        "max_indices",
        "argmin",
        "argmax",
        "any",
    )
    table({n: REDUCTIONS[n] for n in names}, make(dtype, 7, 5, 37))


def test_reductions_with_nan_and_infinity() -> None:
    x = make(torch.float32, 6, 40)
    x[1, 3], x[2, 5], x[3, :], x[4, 7], x[4, 20], x[5, 9] = (
        math.nan,
        math.inf,
        -math.inf,
        math.nan,
        math.nan,
        -math.inf,
    )
    names = (
        "sum",
        "amax",
        "min",
        "max",
        "max_dim",
        "max_indices",
        "argmax",
        "argmax0",
        "argmin",
        "softmax",
    )
    fns = {
        "amax1": lambda x: x.amax(1),
        "argmax1": lambda x: x.argmax(1),
        "argmin1": lambda x: x.argmin(1),
        "min1": lambda x: x.min(1)[0],
        "min1i": lambda x: x.min(1)[1],
        "logsumexp": lambda x: x.logsumexp(1),
    }
    fns |= {n: REDUCTIONS[n] for n in names if n not in ("argmin",)}
    table(fns, x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reductions_of_one_number(dtype: torch.dtype) -> None:
    """Without a square, which would overflow; a sum is no negative zero."""
    x = torch.tensor([3e38, -0.0, math.inf, -2.5]).to(dtype).view(4, 1)

    def reduced(x: torch.Tensor) -> list[torch.Tensor]:
        norms = [torch.linalg.vector_norm(x, order, dim=1) for order in (2, 1, 3, math.inf, -1)]
        one = x[0, 0]
        sums = [x.sum(1), x.mean(1), x[1].sum(), x.bool().sum(1)]
        signs = [torch.signbit(s) for s in sums]
        return [*norms, one.norm(), F.normalize(x, dim=1), *sums, *signs]

    table({"one": lambda x: torch.cat([r.flatten() for r in reduced(x)])}, x)


def test_argmax_takes_the_first_of_equals() -> None:
    x = torch.zeros(3, 50)
    x[:, [7, 30, 44]] = 1.0
    check(lambda x: (x.argmax(1), x.argmin(1), x.argmax(0), x.max(1)[1]), x)


def test_long_sums_are_accurate() -> None:
    x = torch.rand(3, 300_001)
    c = check(lambda x: (x.sum(1), x.mean(1), x.t().contiguous().sum(0)), x, rtol=3e-7, atol=0)
    with torch.no_grad():
        (rows, _, _) = c.compiled(x)
    torch.testing.assert_close(rows.double(), x.double().sum(1), rtol=2e-7, atol=0)


def test_whole_reductions_use_all_cores() -> None:
    x = make(torch.float32, 512, 640)
    c = check(lambda x: (x.sum(), x.amax(), (x * x).mean()), x, rtol=1e-5)
    assert c.spec is not None
    assert max(s.total for s in c.spec.steps) >= 4


# --- normalisation, indexing, pooling
# --------------------------------------------------------------


def test_normalisation() -> None:
    x, w, b = (
        make(torch.float32, 4, 8, 6, 6),
        make(torch.float32, 8),
        make(torch.float32, 8, seed=1),
    )
    mean, var = make(torch.float32, 8, seed=2), make(torch.float32, 8, seed=3).abs() + 0.1
    table(
        {
            "layer": lambda x, w, b, m, v: F.layer_norm(x, (6, 6)),
            "layer_affine": lambda x, w, b, m, v: F.layer_norm(x.transpose(1, 3), (8,), w, b, 1e-6),
            "batch": lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b),
            "batch_plain": lambda x, w, b, m, v: F.batch_norm(x, m, v),
            "batch_train": lambda x, w, b, m, v: F.batch_norm(x, None, None, w, b, True),
            "instance": lambda x, w, b, m, v: F.instance_norm(x, weight=w, bias=b),
            "group": lambda x, w, b, m, v: F.group_norm(x, 4, w, b),
            "group_plain": lambda x, w, b, m, v: F.group_norm(x, 2),
            "rms": lambda x, w, b, m, v: F.rms_norm(x.transpose(1, 3), (8,), w, 1e-6),
        },
        x, w, b, mean, var, rtol=2e-5, atol=2e-5,
    )  # fmt: skip


def test_layer_norm_of_half_types() -> None:
    for dtype, tolerance in ((torch.bfloat16, 3e-2), (torch.float16, 4e-3)):
        x, w, b = make(dtype, 8, 96), make(dtype, 96), make(dtype, 96, seed=1)
        check(
            lambda x, w, b: (F.layer_norm(x, (96,), w, b),), x, w, b, rtol=tolerance, atol=tolerance
        )


def test_batch_norm_training_updates_its_statistics() -> None:
    x, w, b = (
        make(torch.float32, 4, 8, 6, 6),
        make(torch.float32, 8),
        make(torch.float32, 8, seed=1),
    )
    mean, var = torch.zeros(8), torch.ones(8)
    check(
        lambda x, m, v, w, b: (torch.relu(F.batch_norm(x, m, v, w, b, True, 0.2)),),
        x, mean, var, w, b, rtol=2e-5, atol=2e-5,
    )  # fmt: skip


def test_gathers() -> None:
    x = make(torch.float32, 9, 7, 5)
    i = torch.tensor([[0, 8, -1], [3, -9, 4]])
    j = torch.tensor([2, 0, 6])
    g = torch.randint(0, 9, (4, 7, 5))
    table(
        {
            "embedding": lambda x, i, j, g: F.embedding(i.abs().clamp(max=8), x[:, :, 0]) + 1,
            "index": lambda x, i, j, g: x[i],
            "index2": lambda x, i, j, g: x[i, j],
            "index_middle": lambda x, i, j, g: x[:, j] * 2,
            "index_apart": lambda x, i, j, g: x[i[0], :, i[1] % 5],
            "index_lazy": lambda x, i, j, g: (x + 1)[j],
            "index_select": lambda x, i, j, g: x.index_select(1, j),
            "gather": lambda x, i, j, g: x.gather(0, g),
            "take_along": lambda x, i, j, g: torch.take_along_dim(x, g, 0),
            "computed": lambda x, i, j, g: x[(j * 2) % 7],
            "scatter": lambda x, i, j, g: x.scatter(0, g[:1], 2.5) + 1,
            "scatter_last": lambda x, i, j, g: (x * 2).scatter(-1, (x[..., :1] > 0).long(), 1),
            "scatter_source": lambda x, i, j, g: x.scatter(0, g[:1], x.sum(0, keepdim=True)),
            "scatter_bools": lambda x, i, j, g: (x > 0).scatter(0, g[:1], True),
            "one_hot": lambda x, i, j, g: F.one_hot(j, 8),
        },
        x, i, j, g,
    )  # fmt: skip


def test_indices_out_of_range_raise() -> None:
    w, i = make(torch.float32, 11, 24), torch.tensor([3, 10, 0])
    for fn in (
        lambda w, i: (F.embedding(i, w),),
        lambda w, i: (w[i],),
        lambda w, i: (w.index_select(0, i),),
        lambda w, i: (w.t().index_select(1, i),),
        lambda w, i: (w.gather(0, i.abs()[:, None] * i.sign()[:, None]),),
        lambda w, i: (w.t()[:3].scatter(1, i[:, None] * 1, 2.0),),
    ):
        c = check(fn, w, i)
        for bad in (11, -12):
            same_error(fn, c, w, torch.tensor([3, bad, 0]))


def test_numbers_that_are_stored_are_rounded() -> None:
    x, i = make(torch.float16, 4, 5), torch.tensor([[1], [4], [0], [0]])
    check(lambda x, i: (x.scatter(1, i, 0.1) == torch.tensor(0.1).half(),), x, i)
    check(lambda x, i: ((x * 1).masked_fill(x > 0, 0.1).float() * 3,), x, i)
    for fn in (lambda x, i: x.scatter(1, i, 1e10), lambda x, i: x.byte().scatter(1, i, 300)):
        with pytest.raises(RuntimeError, match="overflow"):
            dynamo.compile(fn)(x, i)


def same_error(fn, c, *args) -> None:
    """Eager and the compiled function raise the same."""
    with pytest.raises((IndexError, RuntimeError)) as expected:
        fn(*args)
    with pytest.raises(type(expected.value)) as got:
        c.compiled(*args)
    assert str(got.value) == str(expected.value)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_by_zero_raises(dtype: torch.dtype) -> None:
    a, b = make(dtype, 6, 37), make(dtype, 37, seed=1).clamp(min=1)
    zero = b.clone()
    zero[30] = 0
    for fn in (
        lambda a, b: (a // b,),
        lambda a, b: (a % (b * 1),),
        lambda a, b: (torch.fmod(a, b),),
        lambda a, b: (torch.div(a, b, rounding_mode="trunc"),),
    ):
        same_error(fn, check(fn, a, b), a, zero)
    by_zero = staged(lambda a: (a // 0,), [a])
    same_error(lambda a: (a // 0,), by_zero, a)


def test_embedding_of_int32_indices() -> None:
    check(
        lambda w, i: (F.embedding(i, w) * 2,),
        make(torch.float32, 11, 24),
        torch.tensor([3, 10, 0], dtype=torch.int32),
    )


def test_creation() -> None:
    x = make(torch.float32, 4, 6)
    table(
        {
            "arange": lambda x: torch.arange(10),
            "arange_float": lambda x: torch.arange(0.5, 4.0, 0.25),
            "arange_step": lambda x: torch.arange(10, -4, -3, dtype=torch.int32),
            "zeros": lambda x: torch.zeros(3, 4) + x[:3, :4],
            "ones_like": lambda x: torch.ones_like(x),
            "full": lambda x: torch.full((2, 3), 7),
            "full_like": lambda x: torch.full_like(x, math.inf),
            "eye": lambda x: torch.eye(4, 6) * x,
            "linspace": lambda x: torch.linspace(0, 1, 7),
            "new_zeros": lambda x: x.new_zeros(5) + 1,
            "half": lambda x: torch.full((3,), 0.1, dtype=torch.bfloat16),
            "mask": lambda x: torch.ones(6, 6, dtype=torch.bool).tril(),
        },
        x,
    )


POOLS = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max3": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max3s1": lambda x: F.max_pool2d(x, 3, 1, 1),
    "max_ceil": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "max_dilated": lambda x: F.max_pool2d(x, 2, 1, 0, 2),
    "max_indices": lambda x: F.max_pool2d(x, 2, return_indices=True)[1],
    "avg": lambda x: F.avg_pool2d(x, 2),
    "avg3": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "adaptive1": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (5, 3)),
    "nearest": lambda x: F.interpolate(x, scale_factor=2.0),
    "nearest3": lambda x: F.interpolate(x, scale_factor=3.0),
    "nearest_size": lambda x: F.interpolate(x, size=(20, 24)),
    "after_relu": lambda x: F.max_pool2d(F.relu(x - 1), 3, 2, 1),
}


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_pooling(memory_format: torch.memory_format) -> None:
    x = make(torch.float32, 2, 5, 10, 12).to(memory_format=memory_format)
    x[0, 0, 3, 3] = math.nan
    table(POOLS, x, rtol=1e-5)


# --- what stays with aten
# --------------------------------------------------------------------------


def test_fallbacks_keep_their_place() -> None:
    check(
        lambda x, y: (
            ((x + 1) @ y).relu(), torch.cumsum(x * 2, 1) + 1,
            torch.sort(x, 1)[0] * 2, x.topk(3)[0]),
        make(torch.float32, 5, 6), make(torch.float32, 6, 7), rtol=1e-4, atol=1e-4,
        fallbacks=["mm.default", "cumsum.default", "sort.default", "topk.default"],
    )  # fmt: skip


@pytest.mark.parametrize("scales", [(1.05, 1.5), (2.05, 1.5)])
def test_nearest_of_nearly_whole_factors(scales: tuple[float, float]) -> None:
    """Where sizes come out as they were, or doubled, aten's kernel for small images copies."""
    x = torch.arange(240.0).view(2, 1, 10, 12)
    y = F.interpolate(x, scale_factor=scales)
    assert torch.equal(y[0, 0, :: y.shape[2] // 10, 0], x[0, 0, :, 0])
    check(
        lambda x: (F.interpolate(x * 2, scale_factor=scales),),
        x,
        fallbacks=["upsample_nearest2d.default"],
    )


def test_complex_falls_back() -> None:
    x = torch.randn(4, 5, dtype=torch.complex64)
    check(lambda x: ((x * 2).abs() + 1,), x, fallbacks=["mul.Tensor", "abs.default"])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32])
def test_comparisons_with_complex_numbers_fall_back(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 2]).to(dtype)
    check(
        lambda x: (x == 1 + 2j, torch.ne(x, 1 + 0j)),
        x,
        fallbacks=["eq.Scalar", "ne.Scalar"],
    )


def test_operators_kept_on_request() -> None:
    c = check(
        lambda x: (F.gelu(x + 1) * 2,),
        make(torch.float32, 9),
        fallbacks=["gelu.default"],
        aten_ops=["aten.gelu"],
    )
    assert c.program is not None and c.program.fallbacks == {"gelu.default": 1}


# --- outputs, mutation
# -----------------------------------------------------------------------------


def test_outputs_of_every_kind() -> None:
    def fn(x, y):
        z = x + 1
        return z, z.t(), x, x[1:], z, y.view(-1), (x @ y).t(), 3, None

    check(fn, make(torch.float32, 4, 5), make(torch.float32, 5, 6), fallbacks=["mm.default"])


def test_written_inputs() -> None:
    def fn(x, y):
        old = x * 2
        x.add_(y)
        y.mul_(x)
        return old, x + y, x

    check(fn, make(torch.float32, 4, 5), make(torch.float32, 4, 5, seed=1))


def test_an_input_written_from_its_own_flip() -> None:
    def fn(x):
        x.copy_(x.flip(0) + x)
        return (x.sum(),)

    check(fn, make(torch.float32, 64, 33), rtol=1e-4, atol=1e-4)


def test_swapped_inputs() -> None:
    def fn(x, y):
        t = x.clone()
        x.copy_(y)
        y.copy_(t)
        return (x - y,)

    check(fn, make(torch.float32, 40), make(torch.float32, 40, seed=1))


def test_what_is_written_is_read_later() -> None:
    def fn(x, y, z):
        new, other = x + 1, y + 2
        x.copy_(new)
        y.copy_(new)
        z[::2].copy_(other)
        return new, other, new * other

    check(fn, make(torch.float32, 40), make(torch.float32, 40, seed=1), make(torch.float32, 80))
    check(fn, *(make(torch.float32, 2 * n, seed=n)[::2] for n in (40, 40, 80)))


def test_part_of_an_input_written() -> None:
    def fn(x):
        x[1:3].zero_()
        x[:, 2] = 5.0
        return (x * 2,)

    check(fn, make(torch.float32, 5, 7))


def test_a_mutated_statistic_and_its_old_value() -> None:
    def fn(x, s):
        m = x.mean(0)
        before = s + 0
        s.lerp_(m, 0.1)
        return (x - s) * before, before

    check(fn, make(torch.float32, 30, 17), make(torch.float32, 17))
