"""Generated products: of every height and width, with each kind of kernel behind them."""

from __future__ import annotations

import functools
import math

import pytest
import torch
import torch.nn.functional as F

import dynamo
from inductor import panel_sample
from inductor.measure import Budget
from inductor.panels import PANEL, in_panels, panel_mm
from tests.inductor.compiling import run_twice

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def matrix(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


compiled = functools.partial(run_twice, close=CLOSE)


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 47, 48, 49, 96, 101])
def test_sizes(rows):
    def fn(a, b, c, d, v, w, x, y):
        return panel_mm(a, v, 1), panel_mm(b, w, 17), panel_mm(c, x, 130), panel_mm(d, y, 300)

    inners, widths = [1, 7, 513, 1100], [1, 17, 130, 300]
    given = [matrix(rows, inner) for inner in inners]
    weights = [in_panels(matrix(i, n)) for i, n in zip(inners, widths, strict=True)]
    compiled(fn, *given, *weights)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x, w, bias = matrix(100, 70), matrix(70, 700), matrix(700)
        compiled(lambda x, w, b: (F.silu(panel_mm(x, w, 700) + b),), x, in_panels(w), bias)
    finally:
        torch.set_num_threads(before)


def test_sizes_that_vary():
    fn = dynamo.compile(lambda x, w: torch.relu(panel_mm(x, w, 40)) * 2, dynamic=True)
    w = matrix(24, 40)
    for rows in (5, 3, 48, 50, 97, 2, 0, 1):
        x = matrix(rows, 24)
        torch.testing.assert_close(fn(x, in_panels(w)), torch.relu(x @ w) * 2, **CLOSE)


@pytest.mark.parametrize(("rows", "inner"), [(0, 5), (4, 0), (0, 0)])
def test_nothing_to_multiply(rows, inner):
    x, w = matrix(rows, inner), in_panels(matrix(inner, 3))
    compiled(lambda x, w: (panel_mm(x, w, 3) + 1,), x, w)


def test_the_operator_itself():
    x, w = matrix(5, 20), matrix(20, 35)
    torch.testing.assert_close(panel_mm(x, in_panels(w), 35), x @ w)
    assert in_panels(w).shape == (3, 20, PANEL)
    torch.library.opcheck(panel_mm, (x, in_panels(w), 35), test_utils="test_schema")
    torch.library.opcheck(panel_mm, (x, in_panels(w), 35), test_utils="test_faketensor")


# --- what is multiplied ---------------------------------------------------------------------------

OPERANDS = {
    "a step": lambda: matrix(6, 32)[:, ::2],
    "rows apart": lambda: matrix(12, 16)[::2],
    "an offset": lambda: matrix(9, 20)[2:8, 3:19],
    "transposed": lambda: matrix(16, 6).t(),
    "expanded": lambda: matrix(16).expand(6, 16),
    "one value": lambda: torch.tensor(2.0).expand(6, 16),
    "not numbers": lambda: torch.tensor([math.inf, -math.inf, math.nan, -0.0]).repeat(6, 4),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands(name):
    w = in_panels(matrix(16, 40))
    compiled(lambda x, w: (panel_mm(x, w, 40), panel_mm(x * 2, w, 40).relu()), OPERANDS[name](), w)


# --- what follows ---------------------------------------------------------------------------------

WIDE = 64
FOLLOWING = {
    "nothing": (1, lambda p, x, b, r: (p,)),
    "bias": (1, lambda p, x, b, r: (p + b,)),
    "gelu": (1, lambda p, x, b, r: (F.gelu(p + b),)),
    "residual": (1, lambda p, x, b, r: (torch.tanh(p + b) + r,)),
    "what is multiplied": (1, lambda p, x, b, r: (p + x,)),
    "another type": (1, lambda p, x, b, r: ((p + b).double(),)),
    "integers": (1, lambda p, x, b, r: ((p > b),)),
    "layer norm": (1, lambda p, x, b, r: (F.layer_norm(p + r, (WIDE,), b, b),)),
    "softmax": (1, lambda p, x, b, r: (torch.softmax(p + b, -1),)),
    "halves": (1, lambda p, x, b, r: (p[:, : WIDE // 2] * torch.sigmoid(p[:, WIDE // 2 :]),)),
    "heads": (1, lambda p, x, b, r: ((p + b).view(-1, 4, WIDE // 4).softmax(-1),)),
    "both": (1, lambda p, x, b, r: (p, F.relu(p))),
    "a sum of rows": (2, lambda p, x, b, r: (p.sum(0),)),
    "rows in order": (2, lambda p, x, b, r: (p + p.flip(0),)),
    "transposed": (2, lambda p, x, b, r: ((p + b).t().contiguous(),)),
    "as indices": (None, lambda p, x, b, r: (b[p.abs().long().clamp(max=3)] + p.flip(0),)),
    "a product": (None, lambda p, x, b, r: (p + b, (p + b) @ r.t())),
}


@pytest.mark.parametrize("rows", [200, 9])
@pytest.mark.parametrize("name", FOLLOWING)
def test_what_follows(name, rows):
    steps, follow = FOLLOWING[name]
    if name in ("layer norm", "softmax", "halves", "heads") and rows == 9:
        steps = None  # whole rows may leave a thread with nothing to do
    w = in_panels(matrix(WIDE, WIDE))
    args = matrix(rows, WIDE), w, matrix(WIDE), matrix(rows, WIDE)
    compiled(lambda x, w, b, r: follow(panel_mm(x, w, WIDE), x, b, r), *args, steps=steps)


def test_a_residual_that_ends_here():
    """Its memory is not where the product is put before the residual is read."""

    def fn(x, w, r):
        r = torch.exp(r * 2)
        return (F.layer_norm(panel_mm(x, w, WIDE) + r, (WIDE,)) * 3,)

    compiled(fn, matrix(300, WIDE), in_panels(matrix(WIDE, WIDE)), matrix(300, WIDE))


def test_an_operand_that_ends_here():
    """The result does not overwrite it: other blocks still multiply it."""

    def fn(x, w):
        for _ in range(3):
            x = torch.tanh(panel_mm(x, w, WIDE)) + x
        return (x,)

    compiled(fn, matrix(300, WIDE), in_panels(matrix(WIDE, WIDE)))


# --- several products that one kernel reads ------------------------------------------------------

GATED = {
    "gate and up": lambda a, b, c: F.silu(a) * b + c.sum(),
    "three": lambda a, b, c: torch.where(a > 0, b.exp(), c) - a,
    "rows": lambda a, b, c: (a * b).softmax(1) + c.sum(),
    "turned": lambda a, b, c: a.t() * b.cos().t() + c.sum(),
    "kept": lambda a, b, c: torch.cat([a * b, a.cos(), b]) + c.sum(),
}


def of_three(x, y, u, v, w, function, columns):
    a, b, c = panel_mm(x, u, columns), panel_mm(x, v, columns), panel_mm(y, w, columns)
    return (function(a, b, c),)


@pytest.mark.parametrize("rows", [1, 5, 48, 100])
@pytest.mark.parametrize("columns", [1, 40, 300])
@pytest.mark.parametrize("name", GATED)
def test_several_products(name, columns, rows):
    """Of two depths, with NaN and infinities in a row of one."""

    def fn(x, y, u, v, w):
        return of_three(x, y, u, v, w, GATED[name], columns)

    x, y = matrix(rows, 70), matrix(rows, 530)
    x[rows // 2, 3], y[0, 0] = math.inf, math.nan if rows > 1 else 1.0
    weights = [in_panels(matrix(n, columns) * 0.1) for n in (70, 71, 530)]
    weights[1] = in_panels(matrix(70, columns))
    compiled(fn, x, y, *weights)


@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_of_several_products(threads):
    """One kernel, of which no product is in memory."""

    def gated(x, v, w):
        return (F.silu(panel_mm(x, v, 300)) * panel_mm(x, w, 300),)

    def three(x, y, u, v, w):
        return of_three(x, y, u, v, w, lambda a, b, c: a * b - c, 300)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        v, w = in_panels(matrix(70, 300)), in_panels(matrix(70, 300) * 2)
        c = compiled(gated, matrix(100, 70), v, w, steps=1)
        assert len(c.spec.buffers) == len(c.spec.outputs) == 1
        compiled(three, matrix(100, 70), matrix(100, 50), v, w, in_panels(matrix(50, 300)), steps=1)
    finally:
        torch.set_num_threads(before)


def test_products_that_something_else_reads():
    def fn(x, v, w):
        a, b = panel_mm(x, v, WIDE), panel_mm(x, w, WIDE)
        return F.silu(a) * b, b

    v, w = in_panels(matrix(WIDE, WIDE)), in_panels(matrix(WIDE, WIDE) * 2)
    compiled(fn, matrix(100, WIDE), v, w, steps=2)


def test_products_one_after_the_other():
    """The second multiplies the first, and one kernel reads both."""

    def fn(x, v, w):
        a = panel_mm(x, v, WIDE)
        return (a + panel_mm(a, w, WIDE),)

    v, w = in_panels(matrix(WIDE, WIDE)), in_panels(matrix(WIDE, WIDE) * 2)
    compiled(fn, matrix(100, WIDE), v, w, steps=2)


def test_several_products_of_rows_that_vary():
    module = dynamo.compile(
        lambda x, v, w: F.gelu(panel_mm(x, v, 200)) * panel_mm(x, w, 200), dynamic=True
    )
    v, w = in_panels(matrix(70, 200)), in_panels(matrix(70, 200) * 2)
    for rows in (5, 100, 48, 0, 7):
        x = matrix(rows, 70)
        expected = F.gelu(panel_mm(x, v, 200)) * panel_mm(x, w, 200)
        torch.testing.assert_close(module(x, v, w), expected, **CLOSE)


def test_a_write_in_between():
    """The input that a product has read changes before the product's result is read."""

    def fn(x, w, r):
        p = panel_mm(x, w, WIDE)
        x.mul_(2)
        return (p * x + r,)

    module = dynamo.compile(fn)
    w, r = in_panels(matrix(WIDE, WIDE)), matrix(60, WIDE)
    ours, theirs = matrix(60, WIDE), matrix(60, WIDE)
    torch.testing.assert_close(module(ours, w, r), fn(theirs, w, r), **CLOSE)
    torch.testing.assert_close(ours, theirs)


def test_samples():
    x, w = matrix(2 * panel_sample.HEIGHTS[-1], 40), matrix(40, 50)
    for rows in (*panel_sample.HEIGHTS, len(x)):
        assert panel_sample.height(rows) == rows
        got = panel_sample.sample(x[:rows].contiguous(), w, Budget(1.0))()
        torch.testing.assert_close(got, x[:rows] @ w, **CLOSE)
    assert panel_sample.height(3) == 4 and panel_sample.height(49) == 96
