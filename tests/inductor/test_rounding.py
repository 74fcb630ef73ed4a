"""What operators that tell neighbouring numbers apart see of half types; signs of zero; types and
numbers that eager refuses. Against eager, by way of dynamo.compile."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import dynamo

HALVES = [torch.bfloat16, torch.float16]


def outcome(function, *args):
    try:
        result = function(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))
    except Exception as error:
        return type(error), str(error).partition("\n")[0].partition(" [torch")[0]
    return result


def same(function, *args):
    """Bits of the results (signs of zero included), or exceptions."""
    expected = outcome(function, *args)
    for dynamic in (None, True):
        dynamo.reset()
        got = outcome(dynamo.compile(function, dynamic=dynamic), *args)
        if not isinstance(expected, torch.Tensor):
            assert got == expected
            continue
        assert isinstance(got, torch.Tensor), got
        assert (got.dtype, got.stride()) == (expected.dtype, expected.stride())
        assert torch.equal(got.nan_to_num(7), expected.nan_to_num(7)), (got, expected)
        if expected.is_floating_point():
            known = ~expected.isnan()
            assert torch.equal(got[known].signbit(), expected[known].signbit())


SCALARS = {
    "compared": lambda x: (x == 3.3) | (x > 0.7),
    "compared with a tensor": lambda x: x <= torch.tensor(3.3),
    "added": lambda x: x + 3.3,
    "taken from": lambda x: 3.3 - x,
    "times alpha": lambda x: torch.add(x, x, alpha=0.3),
    "multiplied": lambda x: x * 3.3,
    "multiplied by a tensor": lambda x: x * torch.tensor(3.3),
    "divided": lambda x: x / 3.3,
    "remainder": lambda x: x % 0.7,
    "filled, compared": lambda x: x.masked_fill(x > 0, 0.3) == 0.3,
    "padded, compared": lambda x: F.pad(x, (1, 1), value=0.3) == 0.3,
    "an integer tensor": lambda x: x == torch.full((64,), 4097),
    "the largest": lambda x: x.nan_to_num(),
    "shrunk": lambda x: F.hardshrink(x, 3.3),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", SCALARS)
def test_scalars_are_rounded_as_operands(name, dtype):
    torch.manual_seed(0)
    x = torch.randn(64).to(dtype)
    x[:6] = torch.tensor([3.3, -0.0, float("inf"), -float("inf"), float("nan"), 4097]).to(dtype)
    same(SCALARS[name], x)


STEPS = {
    "equal to its maximum": lambda x: (x * 1.7) == (x * 1.7).amax(1, keepdim=True),
    "position of the maximum": lambda x: (x * 1.7 / 3).argmax(1),
    "maximum with its position": lambda x: (x * 1.7 / 3).max(1).indices,
    "floor": lambda x: (x * 1.7 / 3 * 30).floor(),
    "to an integer": lambda x: (x * 1.7 / 3 * 30).int(),
    "infinite": lambda x: (x * 1e4 * x * 1e30).isinf(),
    "finite": lambda x: (x * 1e4 * x * 1e30).isfinite(),
    "whole quotients": lambda x: torch.div(x * 1.7 / 3 * 30, 3, rounding_mode="floor"),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", STEPS)
def test_steps_take_rounded_numbers(name, dtype):
    torch.manual_seed(0)
    same(STEPS[name], (torch.randint(-9, 9, (16, 40)) / 4).to(dtype))


TIES = {
    "amax": lambda x: (x * 1.7).amax(-1),
    "amin of several": lambda x: (x * 1.7).amin((0, 1)),
    "min": lambda x: (x * x).log1p().min(),
    "of a softmax": lambda x: (x * 1.7).softmax(-1).amax(-1),
    "norm": lambda x: (x * 1.7).norm(float("inf")),
    "scatter_reduce": lambda x: (x * 1.7).scatter_reduce(0, (x * 0).long(), x * 1.7, "amax"),
}


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
@pytest.mark.parametrize("name", TIES)
def test_gradients_of_extremes(name, dtype):
    """The backward looks for the elements that equal the kept maximum."""
    torch.manual_seed(0)
    x = (torch.randint(-6, 7, (6, 8)) / 4).to(dtype)
    grads = []
    for function in (TIES[name], dynamo.compile(TIES[name])):
        leaf = x.clone().requires_grad_()
        function(leaf).sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads, rtol=2e-2, atol=2e-2)
    assert grads[0].any()


ZEROS = {
    "relu": lambda x: x.relu(),
    "clamp": lambda x: x.clamp(0, 1),
    "clamp of one side": lambda x: x.clamp(max=-0.0),
    "relu6": lambda x: F.relu6(x),
    "fmax": lambda x: torch.fmax(x, x.flip(0)),
    "fmax of one": lambda x: torch.fmax(x[:1], -x[:1]) * torch.fmin(x[1:2], -x[1:2]),
    "fmin": lambda x: torch.fmin(x.flip(0).repeat(7), -x.repeat(7)),
    "its reciprocal": lambda x: 1 / x.relu(),
}


@pytest.mark.parametrize("name", ZEROS)
def test_zero_keeps_its_sign(name):
    same(ZEROS[name], torch.tensor([0.0, -0.0, 1.0, -1.0, float("nan"), -0.0, 3.0, 0.0, -0.0]))


BYTES = torch.tensor([1, 200], dtype=torch.uint8)
INTEGERS = torch.arange(-3, 5)
REFUSED = {
    "softmax": (lambda x: x.softmax(0), INTEGERS),
    "gelu": (lambda x: F.gelu(x), INTEGERS),
    "silu": (lambda x: F.silu(x), INTEGERS),
    "hypot": (lambda x: torch.hypot(x, x), INTEGERS),
    "lerp": (lambda x: torch.lerp(x, x, 0.5), INTEGERS),
    "logaddexp": (lambda x: torch.logaddexp(x, x), INTEGERS),
    "standard deviation": (lambda x: x.std(), INTEGERS),
    "max_pool1d": (lambda x: F.max_pool1d(x[None], 2), INTEGERS),
    "less a bool": (lambda x: x - True, INTEGERS),
    "bool less": (lambda x: True - x, INTEGERS),
    "alpha is a bool": (lambda x: x.sub(1, alpha=True), INTEGERS),
    "power of bools": (lambda x: True ** (x > 0), INTEGERS),
    "product of bools": (lambda x: (x > 0) @ (x > 0), INTEGERS),
    "product of two types": (lambda x: x @ x.double(), torch.ones(3, 3)),
    "floor of bools": (lambda x: (x > 0).floor(), INTEGERS),
    "huber": (lambda x: F.huber_loss(x, x), INTEGERS),
    "too large to fill": (lambda x: torch.full((2,), 1e40), INTEGERS),
    "too large to clamp": (lambda x: x.clamp_min(-3.4e39), torch.ones(3)),
    "too large for a byte": (lambda x: x.clamp(-5, 300), BYTES),
    "too large to pad": (lambda x: F.pad(x, (1, 1), value=300), BYTES),
    "too large in place": (lambda x: x.fill_(300), BYTES),
    "linear of two types": (lambda x: F.linear(x, torch.ones(4, 4)), torch.ones(4, 4).double()),
    "layer norm of two types": (
        lambda x: F.layer_norm(x, (4,), torch.ones(4)), torch.ones(4).double(),
    ),
    "index_put of two types": (
        lambda x: x.index_put((torch.tensor([0]),), torch.ones(1).double()), torch.ones(3),
    ),
    "index_add of two types": (
        lambda x: x.index_add(0, torch.tensor([0]), torch.ones(1).double()), torch.ones(3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_in_eager(name):
    function, x = REFUSED[name]
    assert isinstance(outcome(function, x), tuple)
    same(function, x)


def test_a_bool_to_the_power_of_a_bool():
    same(lambda x: x**True, torch.tensor([True, False]))


DIVISIONS = {
    "floor": lambda a, b: a // b,
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "by a number": lambda a, b: a // 255 + a % 255,
    "by a number less than zero": lambda a, b: torch.fmod(a, -1),
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_bytes_divided_by_255(name):
    a = torch.arange(256, dtype=torch.uint8)
    same(DIVISIONS[name], a, a.flip(0).clamp(min=1))


# Floats beyond a narrow integer type: as a result, converted on, of the graph's own numbers.
WRAPPED = {
    "stored": lambda x, dtype: x.to(dtype),
    "converted on": lambda x, dtype: x.to(dtype).float(),
    "of a number": lambda x, dtype: (
        torch.full((3,), -1.5).to(dtype) + torch.full((), 300.5).to(dtype)
    ),
    "infinite": lambda x, dtype: torch.full((3,), float("inf")).to(dtype),
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32], ids=str)
@pytest.mark.parametrize("name", WRAPPED)
def test_conversions_wrap_round(name, dtype):
    x = torch.tensor([0.5, 254.5, 256.0, -1.5, 300.7, -129.0, 40000.0, -1e5, 127.0, 2.0] * 4)
    same(lambda x: WRAPPED[name](x, dtype), x)


def test_a_base_less_than_zero():
    same(lambda x: torch.logspace(0, 1, 3, -1) + x, torch.ones(3))


def test_views_that_negate():
    same(lambda x: (torch.complex(x, x) * 2).conj().imag + 1, torch.arange(5.0))
    same(lambda x: (torch.complex(x, x) * 2).conj().imag.clone().view(-1)[1:].sum(), torch.ones(4))


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_channels_stay_innermost(dynamic, backend):
    x = torch.arange(2.0 * 12 * 4 * 6).reshape(2, 12, 4, 6).to(memory_format=torch.channels_last)
    rolled = lambda x: (x.roll(1, 2) * 1, F.channel_shuffle(x, 3) * 1)  # noqa: E731
    whole = lambda x: (x.roll(0, 1) * 1, x.roll((1, -6), (2, 3)) * 1, x.roll(5), x.roll(12, 1))  # noqa: E731
    one = lambda x: (x[:1].roll(1, 3) * 1, x[:1].roll(1, 2), x[..., :1].roll(1, 2))  # noqa: E731
    normed = lambda x: (F.group_norm(x, 3) * 1,)  # noqa: E731
    for f in (rolled, whole, normed) if dynamic else (rolled, whole, normed, one):
        dynamo.reset()
        compiled = dynamo.compile(f, dynamic=dynamic, backend=backend)
        for ours, theirs in zip(compiled(x), f(x), strict=True):
            assert ours.stride() == theirs.stride()
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("training", [False, True])
def test_layout_of_batch_norm(training):
    """In the memory format that the input suggests, not in the input's order of dimensions."""

    def f(x):
        c = x.shape[1]
        return F.batch_norm(x, torch.zeros(c), torch.ones(c), training=training) * 1

    with torch.no_grad():
        for order in [(0, 2, 1), (3, 2, 1, 0), (0, 3, 1, 2)]:
            size = [2, 3, 4, 5][: len(order)]
            x = torch.zeros(size).permute(order)
            for dynamic in (None, True):
                dynamo.reset()
                assert dynamo.compile(f, dynamic=dynamic)(x).stride() == f(x).stride()


def test_float16_beyond_its_range_is_infinite_in_wider_types():
    x = torch.tensor([5000.0, -7000.0, 1.0, 70000.0, 0.3, float("nan")])
    same(lambda x: (x.half() * x.half()).float(), x)
    same(lambda x: (x.half() + 60000).double() - 1, x)
    same(lambda x: (x.half() * 3).bfloat16(), x)


@pytest.mark.parametrize("dtype", HALVES)
def test_quotients_of_half_types_are_rounded_before_they_are_cut_off(dtype):
    a = torch.tensor([1, 0.5, 6, 1, -1, 0, torch.inf, torch.nan, 5, -7, 1e-3], dtype=dtype)
    b = torch.tensor([0.1, 0.1, 0.2, 1 / 3, 0.1, -0.0, 2, 1, torch.inf, 7, -3], dtype=dtype)
    same(lambda a, b: torch.div(a, b, rounding_mode="trunc"), a, b)
    same(lambda a, b: torch.div(a, b, rounding_mode="floor"), a, b)


@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_beside_half_types_are_rounded_where_they_come_first(dtype):
    x, t = torch.linspace(-20, 20, 1000).to(dtype), torch.tensor(3.7)
    for fn in (torch.mul, torch.div):
        same(lambda x, t: fn(t, x), x, t)  # noqa: B023
        same(lambda x, t: fn(x, t), x, t)  # noqa: B023
    for by in (0.3, torch.tensor(0.3)):  # the quotient is cut off as it is
        same(lambda x: torch.div(x, by, rounding_mode="trunc"), x)


@pytest.mark.parametrize("power", [0.5, -0.5])
@pytest.mark.parametrize("dtype", HALVES)
def test_roots_of_special_numbers(dtype, power):
    """Eager's powers of float16 are no roots: those of -inf and -0.0 are positive."""
    numbers = [-math.inf, -0.0, 0.0, math.inf, -1.0, 2.0, math.nan]
    same(lambda x: x**power, torch.tensor(numbers, dtype=dtype))


@pytest.mark.parametrize("shape", [(7, 10), (33, 100)])
def test_numbers_that_are_equal_do_not_vary(shape):
    def deviations(x):
        columns = [*torch.var_mean(x, 0), x.std(0)]
        rows = [*torch.var_mean(x, 1), x.std(1)]
        return torch.cat([*columns, *rows])

    same(deviations, torch.full(shape, 0.33))
    same(lambda x: x.std(0), torch.tensor([[math.nan, 1.0, math.inf], [2.0, 1.0, math.inf]]))


SPREADS = {
    "std": lambda x: x.std(),
    "std of rows": lambda x: x.std(-1, keepdim=True),
    "std of columns": lambda x: torch.std(x, 0, correction=0),
    "var": lambda x: x.var(),
    "var of rows": lambda x: x.var(1, unbiased=False),
    "std_mean": lambda x: torch.std_mean(x, 1),
    "var_mean": lambda x: torch.var_mean(x, 0, correction=2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", SPREADS)
def test_squares_of_large_and_small_numbers(name, dynamic, dtype):
    """Squares of float32 are float64 in eager: they neither overflow nor vanish."""
    rtol = 2e-6 if dtype == torch.float32 else torch.finfo(dtype).eps
    numbers = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    dynamo.reset()
    compiled = dynamo.compile(SPREADS[name], dynamic=dynamic)
    for x in (numbers, numbers * 1e19, numbers * 1e-25, torch.full((6, 90), 0.5), numbers.t()):
        for special in (None, math.nan, math.inf):
            some = x.to(dtype, copy=True)
            if special is not None:
                some[:, 2] = special
            expected, found = SPREADS[name](some), compiled(some)
            if special == math.inf and "mean" in name:  # eager's running mean is NaN
                expected, found = expected[0], found[0]
            torch.testing.assert_close(found, expected, rtol=rtol, atol=0, equal_nan=True)
    notes = [n for r in compiled.context.records for g in r.graphs for n in g.report["notes"]]
    assert not [note for note in notes if "on aten" in note]
