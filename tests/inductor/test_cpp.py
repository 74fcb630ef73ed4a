"""C++ of kernels: golden texts, the vector header on every path, ranges cut anywhere."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dynamo
from inductor.runtime import toolchain
from tests.inductor.compiling import check, kernels, staged

PROGRAMS = {
    "pointwise": (lambda x, w: (torch.relu(x + w) * 2,), [(33, 17), (17,)]),
    "softmax": (lambda x: (torch.softmax(x, -1),), [(8, 100)]),
    "columns": (lambda x: (x.sum(0),), [(64, 100)]),
    "layer_norm": (lambda x, w: (F.layer_norm(x + 1, (96,), w),), [(64, 96), (96,)]),
    "cat_bn_relu": (
        lambda x, y, m, v: (F.relu(F.batch_norm(torch.cat([x, y], 1), m, v)),),
        [(2, 3, 8, 8), (2, 5, 8, 8), (8,), (8,)],
    ),
    "transpose": (lambda x: (x.t().contiguous() + 1,), [(40, 24)]),
    "cut": (lambda x: (F.pad(x, (1, 2), mode="reflect").roll(3, -1),), [(2, 3, 40)]),
    "interleaved": (lambda x: (F.interpolate(x, scale_factor=2) > 0,), [(2, 3, 5, 20)]),
    "scatter": (
        lambda g, i: (torch.zeros(30, 48).index_put((i.long(),), g * 2, accumulate=True),),
        [(5, 12, 48), (5, 12)],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden_text(name: str, golden) -> None:
    fn, sizes = PROGRAMS[name]
    c = staged(fn, [torch.zeros(s) for s in sizes], until="codegen")
    assert c.spec is not None
    golden(f"inductor/{name}.cpp", c.spec.source)


def test_equal_kernels_share_their_text() -> None:
    def fn(a, b, c):
        return torch.relu(a * 2 + 1), torch.relu(b * 2 + 1), torch.relu(c * 2 + 1)

    c = check(fn, torch.randn(50), torch.randn(7, 9), torch.randn(300, 4))
    assert kernels(c) == 3 and c.module is not None and len(c.module._functions) == 1


def test_units_divide_the_kernels() -> None:
    fns = [torch.sin, torch.exp, torch.tanh, torch.erf, torch.sqrt, torch.abs]
    c = staged(
        lambda x: tuple(f(x.view(-1, k + 1)) for k, f in enumerate(fns)),
        [torch.randn(60)],
        until="codegen",
    )
    assert c.module is not None
    units = c.module.units(2)
    assert len(units) == 2
    for k in range(len(fns)):
        assert sum(f"void k{k}(" in unit for unit in units) == 1


def test_any_cut_of_the_range_gives_the_same() -> None:
    """The runtime may cut [0, total) anywhere."""
    fns = [
        (lambda x: (torch.relu(x) + 1,), torch.randn(5, 37)),
        (lambda x: (x.t().contiguous() * 2,), torch.randn(37, 9)),
        (lambda x: (F.pad(x, (1, 2), mode="reflect"),), torch.randn(4, 37)),
        (lambda x: (F.pad(x.roll(3, -1), (2, 0), mode="replicate"),), torch.randn(4, 5)),
        (lambda x: (x.sum(1),), torch.randn(21, 50)),
        (lambda x: (x.sum(0),), torch.randn(50, 77)),
        (lambda x: (x.softmax(0),), torch.randn(9, 77)),
        (lambda x: (x.softmax(1),), torch.randn(3, 40, 150)),
        (lambda x: (torch.cat([x, x * 2], 1) + 1,), torch.randn(6, 11)),
        (lambda x: (F.interpolate(x, scale_factor=2) + 1,), torch.randn(1, 2, 3, 37)),
        (lambda x: (F.interpolate(x, scale_factor=2) + 1,), torch.randn(1, 2, 37)),
    ]
    for fn, x in fns:
        c = staged(fn, [x])
        assert c.spec is not None
        (step,) = c.spec.steps
        run = ctypes.CDLL(str(toolchain.compile_library(c.spec.units or c.spec.source)))[
            step.symbol
        ]
        (expected,) = fn(x)
        for pieces in (1, 2, 3, 7, step.total):
            out = torch.full_like(expected, -1)
            buffers = {"arg0": x}
            pointers = (ctypes.c_void_p * len(step.args))(
                *(buffers.get(name, out).data_ptr() for name, _ in step.args)
            )
            cuts = [step.total * k // pieces for k in range(pieces + 1)]
            for begin, end in zip(cuts, cuts[1:]):
                run(pointers, ctypes.c_int64(begin), ctypes.c_int64(end))
            torch.testing.assert_close(out, expected, msg=f"{step.total} in {pieces}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_columns_are_kept_between_passes(dtype: torch.dtype) -> None:
    """Of one vector of columns and of several, on the stack; of very long columns in memory."""

    def fn(x):
        spread = (x - x.amax(0)).exp()
        return spread / spread.sum(0), torch.where(x > x.mean(0), x, -x)

    for rows, columns in ((2, 5), (7, 130), (40, 70), (33, 257), (3000, 19), (2000, 300)):
        x = torch.randn(rows, columns)
        x[0, 0], x[1, 1], x[0, 2], x[:, 3] = math.nan, math.inf, -math.inf, -math.inf
        c = check(fn, x.to(dtype), rtol=4e-2 if dtype == torch.bfloat16 else 1e-5)
        assert c.spec is not None and ("alignas" in c.spec.source) == (rows < 2000)
    check(fn, torch.randn(6, 3, 20).to(dtype).mT, rtol=4e-2 if dtype == torch.bfloat16 else 1e-5)
    check(lambda x: (x.softmax(0),), torch.zeros(4, 0, dtype=dtype), fallbacks=["_softmax.default"])


FUNCTIONS = [
    "exp",
    "log",
    "tanh",
    "erf",
    "sigmoid",
    "expm1",
    "log1p",
    *("exp2", "log2", "log10", "tan", "asin", "acos", "atan", "sinh", "cosh"),
    *("asinh", "acosh", "atanh", "erfc", "lgamma"),
    "sqrt",
    "rsqrt",
    "floor",
    "round",
    "trunc",
    "ceil",
]
HARNESS = """
#include "vec.h"
namespace fg {
%s
}
"""
ONE = """
extern "C" void %(name)s(const float* x, float* y, int64_t n) {
  using namespace wide;
  each_vector<W, 0>(0, n, [&](int64_t j, auto lanes, auto) {
    store(y + j, %(name)s(load(x + j, lanes)), lanes);
  });
}
extern "C" void half_%(name)s(const float* x, float* y, int64_t n) {
  using namespace half;
  each_vector<W, 0>(0, n, [&](int64_t j, auto lanes, auto) {
    store(y + j, %(name)s(load(x + j, lanes)), lanes);
  });
}
extern "C" void scalar_%(name)s(const float* x, float* y, int64_t n) {
  for (int64_t j = 0; j < n; ++j) y[j] = %(name)s(x[j]);
}
"""


@pytest.mark.parametrize("flags", ["native", "avx2", "plain"])
def test_vector_functions(flags: str, tmp_path: Path) -> None:
    """Every instruction set that this machine can run: within 2.5 ulp of the true value (3 for
    erfc, 6 for tanh and erf), special values exact."""
    options = {"native": ["-march=native"], "avx2": ["-mavx2", "-mfma"], "plain": []}[flags]
    if flags == "avx2" and os.uname().machine != "x86_64":
        pytest.skip("x86 only")
    source = tmp_path / "unit.cpp"
    source.write_text(HARNESS % "".join(ONE % {"name": n} for n in FUNCTIONS))
    compiler = toolchain.find_compiler()
    library = tmp_path / "unit.so"
    command = [
        *compiler.command,
        *toolchain.FLAGS,
        *options,
        "-I",
        str(toolchain.INCLUDE),
        str(source),
        "-o",
        str(library),
    ]
    subprocess.run(command, check=True)
    run = ctypes.CDLL(str(library))
    g = torch.Generator().manual_seed(0)
    edge = [
        0.0,
        -0.0,
        float("inf"),
        float("-inf"),
        float("nan"),
        1e-40,
        -1e-40,
        3.4e38,
        1e-45,
        -1.0,
        0.5,
        1.0,
        1.5,
        2.5,
    ]
    x = torch.cat(
        [torch.randn(5000, generator=g) * 3, torch.linspace(-104, 88.5, 5000), torch.tensor(edge)]
    )
    for name in FUNCTIONS:
        exact = getattr(torch, name)(x.double())
        for variant in (name, f"half_{name}", f"scalar_{name}"):
            y = torch.full_like(x, 7.0)
            getattr(run, variant)(
                ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_int64(len(x))
            )
            _close_in_ulps(variant, x, y, exact)


@pytest.mark.parametrize("name", ["sqrt", "floor", "ceil", "trunc", "round"])
def test_roundings_of_doubles(name: str) -> None:
    """Exact in every lane, of whole vectors and of a rest."""
    fn = getattr(torch, name)

    def exact(given: torch.Tensor) -> torch.Tensor:
        with np.errstate(invalid="ignore"):  # torch's own sqrt of doubles is MKL's: off by a bit
            return torch.from_numpy(getattr(np, name)(given.numpy()))

    ties = torch.arange(-9, 9, dtype=torch.float64) / 2
    edge = [0.0, -0.0, math.inf, -math.inf, math.nan, 2.0**52 + 0.5, -1e-310, 1e300]
    ends = torch.tensor(edge, dtype=torch.float64)
    x = torch.cat([ties, ends, torch.randn(61, dtype=torch.float64) * 1e3])
    for given in (x, x[::2], x[:3], x[:0]):
        y, expected = dynamo.compile(fn)(given), exact(given)
        assert torch.equal(y.isnan(), expected.isnan())
        y, expected = y.nan_to_num(7), expected.nan_to_num(7)
        assert torch.equal(y, expected) and torch.equal(y.signbit(), expected.signbit())


def _close_in_ulps(name: str, x: torch.Tensor, y: torch.Tensor, exact: torch.Tensor) -> None:
    expected = exact.float()
    assert torch.equal(y.isnan(), expected.isnan()), name
    finite = expected.isfinite()
    assert torch.equal(y[~finite & ~y.isnan()], expected[~finite & ~y.isnan()]), name
    ulp = (torch.nextafter(expected, torch.tensor(float("inf"))) - expected)[finite].double().abs()
    error = (y[finite].double() - exact[finite]).abs()
    normal = expected[finite].abs() > 1e-37  # products round to a denormal by more than its ulp
    least = 1e-7 if name.endswith("lgamma") else 1e-45  # around its zeros
    worst = (error / ulp.clamp_min(least))[normal].max().item()
    limit = 6 if name.endswith(("tanh", "erf")) else 3 if name.endswith("erfc") else 2.5
    assert worst < limit, f"{name}: {worst:.2f} ulp"
    zero = x[finite] == 0
    assert torch.equal(y[finite][zero].signbit(), expected[finite][zero].signbit()), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_round_as_torch(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    edge = [
        0.0,
        -0.0,
        float("inf"),
        float("-inf"),
        float("nan"),
        65504.0,
        65519.0,
        65520.0,
        1e-8,
        6e-8,
        5.9e-8,
        6.1e-5,
        1e38,
        -3.4e38,
    ]
    x = torch.cat(
        [torch.randn(3000, generator=g), torch.randn(3000, generator=g) * 1e-6, torch.tensor(edge)]
    )
    check(lambda x: (x.to(dtype), x.to(dtype).float()), x, rtol=0, atol=0)
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    check(lambda h: (h.float(),), every, rtol=0, atol=0)


@pytest.mark.parametrize("short", [2, 3, 4, 5, 7, 8])
def test_interleaved_stores(short):
    """Images of few channels whose channels come to lie innermost. Lengths are in one graph, where
    they share functions.
    """

    def fn(a, b, c, d):
        return tuple(x.transpose(-2, -1).contiguous() for x in (a, b, c, d))

    def twice(a, b, c, d):
        made = [((y * 2).t().contiguous(), y.contiguous()) for y in (a, b, c, d)]
        return sum(made, ())

    lengths = (8, 33, 48, 100)
    kinds = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
    for dtype in kinds:
        images = [(torch.randn(2, short, length) * 50).to(dtype) for length in lengths]
        if dtype.is_floating_point:
            for x in images:
                x[0, 1, 3], x[1, 0, 7] = torch.nan, -torch.inf
        found = check(fn, *images, rtol=0, atol=0)
        # More channels are transposed in squares.
        assert ("store_interleaved(" in found.spec.source) == (short < 8)
    check(twice, *(torch.randn(n, short).t() for n in lengths), rtol=0, atol=0)  # read so, too


def pairs(fn, *args):
    """Of the last kernel, which buffers may take the memory of which."""
    c = staged(fn, args, until="codegen")
    return [step.inplace for step in c.spec.steps if step.kind == "kernel"][-1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("width", [8, 16, 48, 64, 65, 320, 4096, 4160])
def test_sizes_that_are_whole_vectors(width: int, dtype: torch.dtype) -> None:
    """Loops over known sizes leave out what cannot run: rows, columns, groups and tiles."""

    def fn(x, y):
        rows = torch.softmax(x, -1), x.sum(-1), (x * x).mean(-1)
        columns = x.sum(0), (x - x.mean(0)).square().sum(0), torch.amax(y, 0)
        return *rows, *columns, x.t().contiguous() + 1, y.transpose(1, 2).contiguous()

    close = 0.02 if dtype == torch.bfloat16 else 1e-4
    x, y = torch.randn(48, width).to(dtype), torch.randn(3, 32, width).to(dtype)
    check(fn, x, y, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("width", [5, 64, 67, 600])
def test_columns_that_several_passes_read(width: int, dtype: torch.dtype) -> None:
    """Several vectors of columns together: what one pass leaves of each is there for the next."""

    def fn(x, y):
        moments = x.var(0), x.mean(0)
        flags = (x > 0).any(0) & (x == x).all(0)
        extremes = x.argmax(0), (x - x.amax(0)).square().mean(0)
        shared = (x - x.mean()) * flags
        stacked = (y - y.mean((0, 1))) * y.amax((0, 1))
        return x.softmax(0), x.log_softmax(0), *moments, *extremes, shared, stacked

    close = 0.02 if dtype == torch.bfloat16 else 1e-4
    x, y = torch.randn(70, width), torch.randn(5, 40, width)
    check(fn, x.to(dtype), y.to(dtype), rtol=close, atol=close)
    x[3, 0], x[4, 1], x[5, 2], x[:, 3] = math.nan, math.inf, -math.inf, -math.inf
    check(fn, x.to(dtype), y.to(dtype), rtol=close, atol=close)
    check(fn, x.to(dtype)[::2, :3], y.to(dtype).mT, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_columns_of_large_matrices(dtype: torch.dtype) -> None:
    """Row after row, as they lie in memory: more columns than are reduced together, and the end of
    a vector."""

    def fn(x):
        moments = x.var(0), x.mean(0), x.argmax(0), x.amin(0)
        return *moments, (x > 0).any(0) & (x == x).all(0), (x - x.mean(0)) * x.amax(0)

    x = torch.randn(257, 1029)
    x[3, 0], x[4, 1], x[5, 2], x[:, 3] = math.nan, math.inf, -math.inf, -math.inf
    close = 0.02 if dtype == torch.bfloat16 else 1e-4
    c = check(fn, x.to(dtype), rtol=close, atol=close)
    assert "each_column<" in c.spec.source
    check(fn, x.to(dtype).mT, rtol=close, atol=close)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 50.0, 3e4, 1e7])
def test_sines(scale: float) -> None:
    """Of vectors with far numbers and without, and near multiples of pi / 2."""
    quarters = torch.arange(-600, 600) * (math.pi / 2)
    x = torch.cat([torch.randn(4001) * scale, quarters, torch.tensor([0.0, -0.0])])
    c = staged(lambda x: (x.sin(), x.cos()), [x])
    for got, exact in zip(c.compiled(x), (x.double().sin(), x.double().cos())):
        assert ((got - exact).abs() <= 2e-7 * exact.abs() + 1e-45).all()
        assert torch.equal(got.signbit()[-2:], exact.signbit()[-2:])
    x[1700], x[1900], x[-1] = math.nan, math.inf, -math.inf
    for got, exact in zip(c.compiled(x), (x.sin(), x.cos())):
        assert torch.equal(got.isnan(), exact.isnan())


def test_positions_wrap_as_numbers_do() -> None:
    def fn(x):
        at = torch.arange(40, dtype=torch.int64)
        far = at * 2**31 + 2**62
        return x.triu(-3), x.tril(5), at - 7, far * 4, (at * -3).int(), far > 2**62 + 2**33

    check(fn, torch.randn(37, 40), rtol=0, atol=0)


def test_in_place_pairs() -> None:
    x, w = torch.randn(32, 32), torch.randn(32, 32)

    def after(then):
        return lambda x, w: (torch.mm(then(torch.mm(x, w)), w),)

    assert len(pairs(after(torch.relu), x, w)) == 1
    assert len(pairs(after(lambda y: torch.softmax(y, -1)), x, w)) == 1
    assert pairs(after(lambda y: y + y.flip(0)), x, w) == []
    assert pairs(after(lambda y: y.t().contiguous().exp()), x, w) == []
    assert pairs(after(lambda y: y[16:].exp()), x, w) == []


@pytest.mark.parametrize(
    "then",
    [torch.relu, lambda y: torch.softmax(y, -1), lambda y: (y * 2).relu() + y.mean(0), torch.t],
)
def test_in_place_computes_the_same(then) -> None:
    x, w = torch.randn(64, 64), torch.randn(64, 64) / 8

    def fn(x, w):
        y = then(x @ w)
        z = y @ w
        return (z.tanh() @ w + z, then(z.tanh() @ w) @ w)

    check(fn, x, w, fallbacks=["mm.default"], rtol=1e-4, atol=1e-4)


def test_an_operator_that_returns_its_argument_is_not_overwritten() -> None:
    def fn(x):
        y, _ = torch.native_dropout(x, 0.5, False)
        return (torch.mm(y.exp(), x),)

    x = torch.randn(8, 8)
    kept = x.clone()
    c = staged(fn, [x], aten_ops=["aten.native_dropout"])
    torch.testing.assert_close(c.compiled(x)[0], fn(kept)[0])
    assert torch.equal(x, kept)


def test_padding_of_a_sum_that_is_in_a_register() -> None:
    def fn(x):
        total = x.sum(1, keepdim=True)
        sign = total.expand(-1, 2) > 0
        return F.pad(total.expand(-1, 3), (1, 4)) + x, F.pad(sign, (0, 6)), total

    check(fn, torch.randn(3, 8) + 1)


def test_a_sum_that_is_equal_along_the_vector() -> None:
    def fn(x):
        return (x.expand(5, 2, 3).square().sum(-1),)

    check(fn, torch.randn(2, 6)[:, ::2])
    check(fn, torch.randn(2, 6)[:, ::2].double())


def test_work_of_threads():
    """Counted by the time that elements take: of columns, all of a unit's."""

    def of(function, x):
        (step,) = staged(lambda x: (function(x),), [x]).spec.steps
        return step.total, step.grain

    x = torch.rand(1 << 14)
    grains = [of(f, x)[1] for f in (lambda x: x + 1, torch.exp, lambda x: x**1.7)]
    assert grains[0] > 2 * grains[1] > 8 * grains[2] > 0
    total, grain = of(lambda x: x.sum(0), torch.rand(8192, 64))
    assert total > grain
    total, grain = of(lambda x: x.sum(0), torch.rand(64, 64))
    assert total <= grain
