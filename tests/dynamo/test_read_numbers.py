"""Numbers read from tensors: arithmetic that fails on some of them, in one graph.

A check in the graph says that this call's numbers are fine; where they are not, the frame runs
again, and eager raises.
"""

from __future__ import annotations

import math
import random
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dynamo
from tests.dynamo.dynamic_support import same
from tests.dynamo.test_dynamic_data import notes_of, outcome

T = torch.tensor
X = torch.linspace(-1, 1, 12).view(6, 2)
COUNTS = [T(3), T(1), T(0), T(6), T(-2), T(70), T(4)]
FLOATS = [T(n) for n in (2.5, 0.0, -1.5, math.nan, math.inf, 800.0, -0.0, -math.inf, 1e30)]

OF_COUNTS = """
x * (1 / n); x * (7 // n); x * (7 % n); x * divmod(n, n - 1)[0]; x * (7.5 / n); x * (7.5 // n)
x * (7.5 % n); x / (n / (n - 3)); x * math.sqrt(n); x * math.log(n); x * math.log2(n)
x * math.log10(n + 1); x * math.exp(n * 100); x * n**-1; x * n**-2; x * 2**n; x * n**0.5
x * (1 << n); x * (100 >> n); x * (n & 3); x * (n | 4); x * (n ^ 5); x * round(n / 4)
x * round(n); math.pow(n, 0.5) * x; math.pow(0.9, n) * x; x.sum() / (1 + 1 / n)
torch.arange(0, n * 0.5, 0.5); torch.arange(0, 10, n); x[: 12 // n]; x.reshape(n, 12 // n) * 1
F.interpolate(x[None], size=n) + 1
F.interpolate(x[None], size=n, mode="linear", align_corners=True) * 2
F.interpolate(x[None, None], size=(n, 3), mode="bilinear", align_corners=True) + 1
F.interpolate(x[None, None], size=(4, n), mode="bicubic", align_corners=True)
x.repeat(n, 1) * (1 / n); x[6 // n :] * 2; x, 3 % n
x * (n > 2); x * bool(n); x[n] * 1; x.select(0, n - 3) * 1; F.pad(x, (0, 0, n, -n)) * 2
x[:n].squeeze(0) * 1; torch.select_scatter(x, x[0], 0, n)
torch.linspace(0, 1, n); F.one_hot(torch.tensor([0, 2, 1]), n) * 2
min(n * 1.0, 2.5) * x, max(0.0, 1.0 - n / 4) * x; (2 if n > 2 else 5) * x
x * (n if n > 2 else 1), n; x[: n if n > 2 else 2] * (n if n > 2 else 2); x * (not n)
x * (n > 2 and n < 5), 0 < n < 5, not (n > 2); x * (n == 3 or n == 1); x.sum() / (n or 1)
x * (1.0 / n if n > 0 else 0.0); x * (7 // n if n > 2 else n - 1); x * round(n, 1)
x * (math.log(n) if n > 0 else -1.0); x * (math.sqrt(n) if n >= 0 else 0.0), n
x * (1 / n if n != 3 and n else 4.0); torch.zeros(n if 0 < n < 4 else 1) + 1
x[: max(n, 0)] * (n if n > 2 else 2 if n > 0 else 7); (x * n, n) if n > 2 else (x + n, 3)
x[n] * 2 if 0 <= n < 6 else x[0] * 3; x[:n].mean() if n > 0 else x.sum()
x * (x[:n].sum() if n > 1 else x.sum()) * n; x.square().mean() if n else x.sum() * 2
torch.cat([x, x[:n]]).sum(0) if n > 0 else x.sum(0); x[[5]] * 2 if n > 2 else x[:1] * 3
x[torch.full((2,), n)] * 2 if n > 2 else x[:2] * 3
torch.zeros(n if 0 < n < 4 else 1); torch.zeros(n if not 0 < n < 4 and n > 1 else 1)
torch.zeros(n if 0 < n < 4 and n != 2 else 1); torch.zeros(n if n > 5 or 0 < n < 4 else 1)
torch.zeros(n if 0 < n else 2).neg(); x * (2 if 0 < n < 4 else n)
x.add(n if 0 < n < 4 < n + 3 else 1)
x[[n - 1, 0]] * 1; x[:, [n // 4, 0]] + 1; x[[n, 0], [1, 0]]; x[[n]] * 2
"""
OF_FLOATS = """
x * (1 / n); x * (7 // n); x * (7.5 % n); x * math.sqrt(n); x * math.log(n); x * math.exp(n)
x * n**-1; x * n**0.5; x * round(n); x * 0.5**n; x * (n / 3) + 4 / n
x * min(n, 2.5), x * max(0.5, n); x * (n < 2); x * math.sin(n); x * int(n); x * math.ceil(n)
x * round(n, 2) + round(n, 0); x * (1 / n if n > 0 else 0.0); x * (n if n > 0.5 else 0.5), n < 2
x * (math.floor(n) if n > 1 else 7); x * (7 if n != n or n < -9 or n > 9 else int(n))
x * (math.trunc(n) if 1 < n < 900 else 7); x * (math.sin(n) if -9 < n < 900 else 0.5)
x * (2.0**n if n < 9 else 7.0); x * (n**20 if n < 9 else 7.0), 0.5 < n < 3
x * (0.0 if n != n else n); x * (min(n, 1.0) if n < 2 else 3.0); x / n if n > 1 else x * 2
"""


def _choices(text):
    return [one.strip() for line in text.strip().splitlines() for one in line.split(";")]


CASES = [
    *((text, COUNTS) for text in _choices(OF_COUNTS)),
    *((text, FLOATS) for text in _choices(OF_FLOATS)),
]


def program(text):
    scope = {"math": math, "torch": torch, "F": F}
    source = f"def f(x, t):\n    n = (t + 0).item()\n    return {text}"
    exec(compile(source, "<read>", "exec"), scope)
    return scope["f"]


@pytest.mark.filterwarnings("error:the graph of .* failed")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("text", "calls"), CASES, ids=[text for text, _ in CASES])
def test_arithmetic(text, calls, backend):
    """Values and exceptions are eager's, and all calls run one graph."""
    function = program(text)
    compiled = dynamo.compile(function, backend=backend, fullgraph=True)
    for n in calls:
        same(outcome(function, X, n), outcome(compiled, X, n))
    (record,) = compiled.context.records
    assert len(record.graphs) == 1 and not record.breaks


KERNELS = {
    "x * (1 / n)": COUNTS,
    "x * n**-1": COUNTS,
    "x[6 // n :] * 2": COUNTS,
    "x * (1 << n) + x * (n & 3), 5 ^ n": COUNTS,
    "torch.zeros(1 << (n & 3)) + (n > 2) * 1": COUNTS,
    "torch.arange(0, n * 0.5, 0.5), x.repeat(round(n / 4), 1) + 1": COUNTS,
    "x.clamp(max=n) * math.sqrt(n), x * math.log2(n)": FLOATS,
    "x.double() * (7.5 // n) + (-n % 7.5), x * (n // -0.7)": FLOATS,
    "x.view(-1)[: 2 * round(n)] * 3, x.long() > n": FLOATS,
    "x * min(n, 2.5), x * max(0.5, n), x * (n < 2)": FLOATS,
    "x * math.sin(n) + 0.5**n": [*FLOATS, T(-3e4)],
    "x[: int(n)] * 2, x * math.ceil(n)": [*FLOATS, T(1e30)],
    "x[n] * 1": COUNTS,
    'F.interpolate(x[None, None], size=(4, n), mode="bilinear", align_corners=True) * 2': COUNTS,
    "x[[n - 1, 0]] * 1": COUNTS,
    "F.pad(x.sum().expand(abs(n)), (0, 3)) * 1": COUNTS,
    "torch.select_scatter(x, x[0], 0, n)": COUNTS,
    "torch.slice_scatter(x, torch.ones(abs(n), 2), 0, 0, n)": COUNTS,
    "F.pad(x, (0, 0, n, -n)) * 2": COUNTS,
    "x[:n].squeeze(0) * 1, torch.addmm(x[:n], x, x.t() @ x)": COUNTS,
    "x[: n if n > 2 else 2] * (n or 4), x * (1.0 / n if n > 0 else 0.0)": COUNTS,
    "x * (n > 2 and n < 5), 0 < n < 5, not n": COUNTS,
    "x * (n if n > 0.5 else 0.5) + (1 / n if n > 0 else 0.0), n < 2": FLOATS,
    "x * round(n, 2) + round(n, 1)": FLOATS,
    "x[n] * 2 if 0 <= n < 6 else x[0] * 3": COUNTS,
    "x * n + (x[:n].sum() * n if n > 1 else x.sum()), n": COUNTS,
}


@pytest.mark.parametrize(("text", "calls"), KERNELS.items(), ids=list(KERNELS))
def test_kernels(text, calls):
    function = program(text)
    compiled = dynamo.compile(function, fullgraph=True)
    for n in calls:
        same(outcome(function, X, n), outcome(compiled, X, n))
    assert len(compiled.context.records) == 1 and not notes_of(compiled)


def in_a_side(x, n):
    y = x * n.item() if n > 2 else x + 1
    return y * n.item(), torch.ones(n * n).cumsum(0) + y.sum()


def behind_a_check(x, n):
    if n <= 0:
        return x, x
    picked = x[torch.arange(n) % 6]
    return picked.sum(0), torch.arange(picked.shape[0]) + 1


def in_a_refused_side(x, n):
    if n <= 0:
        y = x[0]
    else:
        y = torch.ones(n).cumsum(0)
    return y.sum(0), torch.arange(y.shape[0]) + n


@pytest.mark.parametrize("function", [in_a_side, behind_a_check, in_a_refused_side])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_read_again_behind_a_side(function, backend):
    """The side's graph has read the number, and the graph around it has not."""
    compiled = dynamo.compile(function, backend=backend)
    for n in (T(4), T(5), T(0), T(3), T(-1), T(1)):
        same(outcome(function, X, n), outcome(compiled, X, n))
    graphs = [record.graphs for record in compiled.context.records]
    assert len(graphs) <= 2 and all(len(found) == 1 for found in graphs)


def test_rounding_to_decimals():
    """Of numbers between two decimals, the nearest is told by digits behind the double's own."""
    draw = random.Random(0)
    halves = [(draw.randrange(10**5) + 0.5) / 100 for _ in range(100)]
    beside = [math.nextafter(half, draw.choice([0, 1e9])) for half in halves]
    large = [1e300, 4503599627370497.5e-2, 4.6e13, 9e15, -9e15, 8.99e13 + 0.125, 5e-324, 1e-5]
    given = [2.675, 1.005, 1.115, 0.285, -0.125, 0.375, -0.0, -0.001, math.inf, math.nan, *large]
    function = program("x * round(n, 3), round(n, 2), round(n, 0)")
    compiled = dynamo.compile(function, fullgraph=True)
    for number in (*given, *halves, *beside):
        t = torch.tensor(number, dtype=torch.float64)
        one, other = (f(X.double(), t) for f in (function, compiled))
        assert str(one[1:]) == str(other[1:]) and torch.equal(
            one[0].nan_to_num(), other[0].nan_to_num()
        )
    assert len(compiled.context.records) == 1 and not notes_of(compiled)


VIEWS = {
    "view": lambda x, n: x[:n],
    "views": lambda x, n: (x[:n], x[n:].t(), n),
    "view_of_a_written_one": lambda x, n: x.add_(1)[:n],
    "view_written": lambda x, n: x[:n].add_(1),
    "views_of_a_result": lambda x, n: (lambda y: (y[:n], y[n:], y))(x * 2),
    "at_a_place": lambda x, n: (x[n - 1], x[n - 2 :], x[:, n // 4], x.narrow(0, n // 2, 2)),
    "narrowed": lambda x, n: (x.narrow(0, 0, n).view(n, 2, 1), x[None, : n + 1]),
    "copy_or_view": lambda x, n: (x[:, :n].reshape(-1).add_(1), x),
    "contiguous_or_not": lambda x, n: (x[:, :n].contiguous().add_(1), x),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", VIEWS)
def test_views(name, backend):
    """Returned views of sizes that depend on data are views of the same memory as eager's."""

    def function(x, t):
        return VIEWS[name](x, int((t > 0).sum()))

    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(function, backend=backend, fullgraph=True)
    for n in (3, 2, 6, 0):
        t, seen = torch.arange(8) < n, []
        for one in (function, compiled):
            x = X.clone()
            result = outcome(one, x, t)
            given = result if isinstance(result, tuple) else (result,)
            given = [r for r in given if isinstance(r, torch.Tensor)]
            places = [(r.storage_offset(), r._base is x) for r in given]
            for r in given:
                r.mul_(3)
            seen.append((result, x, places))
        same(*seen)
    copies = name in ("copy_or_view", "contiguous_or_not")
    assert len(compiled.context.records) == 1 and bool(notes_of(compiled)) == copies


def finite(x, t, log):
    n = (t.sum() / t[0]).item()
    if not math.isfinite(n):
        raise ValueError(f"{n} is not finite")
    return x * n


def validated(x, t, log):
    n = t.sum().item()
    log.append(n)
    if not 0 <= n <= 6:
        raise ValueError(f"no place for {n}")
    assert n != 1, "one"
    return x[:n] * 2


def handled(x, t, log):
    n = int((t > 0).sum())
    log.append(n)
    try:
        y = x * (1 / n)
    except ZeroDivisionError as error:
        log.append(str(error))
        return x - 1
    log.append("divided")
    return y


def finished(x, t, log):
    n = int((t > 0).sum())
    try:
        return x * (7 % n)
    finally:
        log.append("left")


def written(x, t, log):
    x.add_(1)
    log.append("written")
    y = x / (6 // int(t.sum()))
    x.mul_(2)
    return y


def drawn(x, t, log):
    y = torch.rand(3) * (1 / int(t.sum()))
    return y + torch.rand(3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("function", [finite, validated, handled, finished, written, drawn])
def test_effects(function, captured, backend):
    """What happens beside a division that fails is as in eager, and happens once."""
    with dynamo.config.patch(capture_scalar_outputs=captured):
        compiled = dynamo.compile(function, backend=backend)
        for t in (T([1, 1]), T([0, 0]), T([-1, 1]), T([3, 0])):
            seen = []
            for one in (function, compiled):
                x, log = X.clone(), []
                torch.manual_seed(0)
                seen.append((outcome(one, x, t, log), x, log, torch.rand(1)))
            same(*seen)


def test_training_of_spreads():
    """One element has nan as gradient, and none has none."""

    def function(x, m):
        y = x[m]
        return y.std() + y.var(0).sum() + F.kl_div(y.log_softmax(-1), y.softmax(-1))

    with dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = dynamo.compile(function, backend="aot_eager", fullgraph=True)

        def trained(one, count):
            x = X.clone().requires_grad_()
            one(x, (torch.arange(12) < count).view(6, 2)[:, 0]).backward()
            return x.grad

        for n in (7, 1, 0, 12):
            same(outcome(trained, function, n), outcome(trained, compiled, n))
    assert len(compiled.context.records) == 1 and not notes_of(compiled)


def test_training():
    function = program("(x * (2 / n)).sum() + x[n:].square().sum() * math.log(n)")
    compiled = dynamo.compile(function, backend="aot_eager", fullgraph=True)

    def trained(one, n):
        x = X.clone().requires_grad_()
        one(x, n).backward()
        return x.grad

    for n in COUNTS:
        same(outcome(trained, function, n), outcome(trained, compiled, n))
    assert len(compiled.context.records) == 1 and not notes_of(compiled)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_sizes_made_of_floats_in_training(backend):
    """The node of autograd is told the float, of which the size of a returned tensor is made."""

    def fn(x):
        n = x[1].item()
        return torch.arange(n), x * 2

    compiled = dynamo.compile(fn, backend=backend)
    for number in (0.5, 2.5, 3.0, 0.0):
        x = T([1.0, number], requires_grad=True)
        same(compiled(x), fn(x))
    assert len(compiled.context.records) == 1 and not notes_of(compiled)


def test_the_average_of_all_batches():
    """BatchNorm(momentum=None) has its counter in the graph: all steps share one."""
    norm, expected = (torch.nn.BatchNorm1d(2, momentum=None) for _ in range(2))
    fast = dynamo.compile(norm, backend="eager")
    for step in range(5):
        x = X * (step + 1)
        torch.testing.assert_close(fast(x), expected(x))
        torch.testing.assert_close(norm.state_dict(), expected.state_dict())
    assert len(fast._dynamo_context.records) == 1


@pytest.mark.parametrize("flag", [True, False])
def test_no_bool_is_subtracted_from_a_tensor(flag):
    """Other operators take a bool as a number, 1 or 0."""

    def f(x, flags, subtracts):
        for i in range(2):
            x = x - flags[i].item() if subtracts else x + flags[i].item()
        return x

    compiled = dynamo.compile(f, backend="eager")
    flags = T([flag, not flag])
    same(compiled(X, flags, False), X + 1)
    with pytest.raises(RuntimeError, match="with a bool tensor is not supported"):
        compiled(X, flags, True)


# -- items of sequences ---------------------------------------------------------------------------
def item_at(sequence, place):
    """A callee, where a break stands at the item."""
    try:
        return sequence[place]
    except TypeError:
        return "no index"
    except IndexError:
        return "too far"


def items_at(x, places):
    y = x * 2
    found = [item_at(s, places[1]) for s in ([x, y], (y, x, 3), range(3), "abc")]
    first = [x, y, 5]
    first[places[1:2] * 0] = item_at(first, x[0])
    return y, [*found, item_at([x, y], x[0] > 1), item_at([y], x[0]), *first]


@pytest.mark.parametrize("captured", [False, True])
def test_tensors_as_indices_of_sequences(captured):
    with dynamo.config.patch(capture_scalar_outputs=captured):
        compiled = dynamo.compile(items_at, backend="eager")
        for places in ([0, 1], [0, 2], [9, -1], [1, 7]):
            args = torch.tensor([1.0, 2.0]), torch.tensor(places)
            same(compiled(*args), items_at(*args))
        whole = dynamo.compile(item_at, backend="eager", fullgraph=True)
        with pytest.raises(dynamo.errors.Unsupported):  # no TypeError, which the program handles
            whole([torch.ones(2), torch.zeros(2)], torch.tensor([1]))


# -- torch.allclose, torch.equal -------------------------------------------------------------------
def close_or_not(x, y):
    return x * 2 if torch.allclose(x, y, rtol=1e-3, equal_nan=True) else x + 1


def unequal(x, y):
    if not x.equal(y):
        x = x + 1
    return x * 2


def asserted(x, y):
    assert torch.allclose(x, y, 0, 0.5), "far"
    return x - y


def returned(x, y):
    return torch.equal(x, y), x.allclose(y, equal_nan=True), x + 1


ONES = torch.ones(3)
PAIRS = {
    "equal": (ONES, ONES + 0),
    "close": (ONES, ONES + 1e-6),
    "far": (ONES, ONES * 2),
    "nan": (ONES * math.nan, ONES * math.nan),
    "infinite": (ONES * math.inf, ONES * math.inf),
    "zeros": (ONES * 0, ONES * -0.0),
    "itself": (ONES * math.nan,) * 2,
    "empty": (ONES[:0], ONES[:0]),
    "others": (ONES.long(), ONES.long()),
    "broadcast": (ONES, ONES[:1] * 1),
    "types": (ONES, ONES.double()),
    "gradients": (ONES.clone().requires_grad_(), ONES * 1),
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("function", [close_or_not, unequal, asserted, returned])
def test_whether_tensors_are_equal(function, backend):
    def result(called, pair):
        try:
            return re.sub("grad_fn.*?>", "grad_fn", repr(called(*pair)))
        except (AssertionError, RuntimeError, TypeError) as error:
            return repr(error)[:60]

    for pairs in (list(PAIRS.values()), list(PAIRS.values())[::-1]):
        compiled = dynamo.compile(function, backend=backend)
        for pair in pairs:
            assert result(function, pair) == result(compiled, pair)
    dynamo.reset()
    compiled = dynamo.compile(function, backend=backend)
    for name in ("equal", "close", "far", "nan", "infinite", "zeros"):
        assert result(function, PAIRS[name]) == result(compiled, PAIRS[name])
    (record,) = compiled.context.records
    assert len(record.graphs) == 1 and not record.breaks


@pytest.mark.parametrize("text", ["np.isnan(n)", "not np.isfinite(n)", "n > 1 or np.isinf(n)"])
def test_numpy_asks_of_a_number(text):
    scope = {"np": np}
    exec(f"def f(x):\n    n = x.sum().item()\n    return x + 1 if {text} else x * n", scope)
    compiled = dynamo.compile(scope["f"], backend="eager")
    for number in (1.0, math.nan, math.inf, -1.0, -math.inf, 0.0):
        same(compiled(ONES * number), scope["f"](ONES * number))
    (record,) = compiled.context.records
    assert len(record.graphs) == 1 and not record.breaks
