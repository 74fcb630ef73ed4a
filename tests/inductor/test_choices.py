"""Matrix products by the library that is measured to be fastest: the same values by each, and what
is remembered of the measuring.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune
from torch.utils._python_dispatch import TorchDispatchMode

import dynamo
from dynamo.api.compile import compile_fresh
from inductor import costs, measure, products
from inductor.measure import Budget, Choice
from inductor.reports import fallbacks, report
from inductor.runtime import cache
from tests.inductor.compiling import check, staged
from tests.inductor.test_derived import notes

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
LINEAR = "mkldnn._linear_pointwise.default"


@pytest.fixture(autouse=True)
def own_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))
    measure.forget()
    yield
    measure.forget()


@pytest.fixture
def fixed(monkeypatch):
    """Let the candidate of a name be the fastest, where there is one of that name."""

    def fix(name):
        def measured(candidates, budget, ahead, before):
            calls = {one: prepare()() for one, prepare in candidates.items()}  # each is right
            first = calls["aten"]
            for value in calls.values():
                torch.testing.assert_close(value, first, **CLOSE)
            chosen = name if name in calls else "aten"
            return Choice(chosen, {**dict.fromkeys(calls, 2.0), chosen: 1.0})

        monkeypatch.setattr(measure, "_measured", measured)
        monkeypatch.setattr(costs, "LEAST_PRODUCT", 1)
        monkeypatch.setattr(products, "Budget", lambda seconds: Budget(1e6))  # a busy machine

    return fix


# --- values ---------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self, act=None, bias=True, inner=24):
        super().__init__()
        self.lin = nn.Linear(16, inner, bias=bias)
        self.act = act

    def forward(self, x):
        y = self.lin(x)
        return y if self.act is None else self.act(y)


class Rows(nn.Module):
    """A weight that lies with a row for each input, as GPT-2's."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 24))
        self.bias = nn.Parameter(torch.randn(24))

    def forward(self, x):
        y = torch.addmm(self.bias, x.view(-1, 16), self.weight)
        return y.view(*x.shape[:-1], 24) + 1


class Shared(nn.Module):
    """A weight of two products, one of which has other rows; a product that two operators read."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 16)

    def forward(self, x):
        y = self.lin(x)
        return F.silu(y) + y, self.lin(y[:2])


class Residual(nn.Module):
    """The input is multiplied, added to the product, scales it and is returned."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 16)

    def forward(self, x):
        return (self.lin(x) + x) * x, x


class Sliced(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(40, 24))

    def forward(self, x):
        return F.linear(x, self.weight[4:20, 2:18]), x.flatten(0, -2) @ self.weight[:16, ::2]


MODULES = {
    "bias": Net(),
    "no bias": Net(bias=False),
    "gelu": Net(nn.GELU()),
    "gelu tanh": Net(nn.GELU("tanh"), bias=False),
    "silu": Net(nn.SiLU()),
    "tanh": Net(nn.Tanh()),
    "sigmoid": Net(nn.Sigmoid()),
    "hardswish": Net(nn.Hardswish()),
    "leaky_relu": Net(nn.LeakyReLU(0.2)),
    "relu": Net(nn.ReLU()),
    "clamp": Net(nn.Hardtanh()),
    "softmax": Net(nn.Softmax(-1)),
    "layer norm": nn.Sequential(Net(), nn.LayerNorm(24), nn.Linear(24, 3)),
    "two layers": nn.Sequential(Net(nn.GELU()), nn.Linear(24, 16), Net(nn.SiLU())),
    "rows": Rows(),
    "shared": Shared(),
    "residual": Residual(),
    "sliced": Sliced(),
    "batch norm": nn.Sequential(nn.Flatten(0, -2), Net(), nn.BatchNorm1d(24)),
}
INPUTS = {
    "three dims": torch.randn(2, 5, 16),
    "two dims": torch.randn(6, 16),
    "one row": torch.randn(1, 16),
    "a step": torch.randn(6, 32)[:, ::2],
    "an offset": torch.randn(9, 20)[2:8, 3:19],
    "expanded": torch.randn(16).expand(6, 16),
    "not numbers": torch.tensor([math.inf, -math.inf, math.nan, -0.0]).repeat(5, 4),
    "no rows": torch.randn(0, 16),
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A cache that tests share, for each way of its own."""
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.parametrize("way", ["generated", "packed", "plain"])
@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("name", MODULES)
def test_values(fixed, kernels, monkeypatch, name, given, way):
    """Inputs share kernels, whose text is the same; each candidate computes all of them."""
    fixed(way)
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(kernels / way))
    monkeypatch.setattr(measure, "_keep", lambda entry, choice: None)
    module, x = MODULES[name].eval(), INPUTS[given]
    compiled, context = compile_fresh(module)
    with torch.no_grad():
        for _ in range(2):
            expected, got = module(x), compiled(x)
            torch.testing.assert_close(got, expected, equal_nan=True, **CLOSE)
    chosen = [note for note in notes(context) if f"by {way}" in note]
    assert chosen or not x.numel(), notes(context)


def dynamic(x, y):
    return x @ y, x.t() @ x, torch.addmm(y[0], x, y), (x @ (y * 2).t().contiguous().t()).relu()


def test_products_of_inputs(fixed):
    fixed("plain")
    x, y = torch.randn(6, 16), torch.randn(16, 9)
    c = check(dynamic, x, y, rtol=1e-4, fallbacks=(LINEAR,))
    assert fallbacks(c.spec) == {LINEAR: 4}
    # A bias that is not in one piece the library would read as if.
    x, y = x.t().contiguous().t(), y.t().contiguous().t()
    c = check(dynamic, x, y, rtol=1e-4, fallbacks=(LINEAR, "addmm.default"))
    assert fallbacks(c.spec) == {LINEAR: 3, "addmm.default": 1}


@pytest.mark.parametrize(("times", "of_its_own"), [((100, 95), False), ((100, 80), True)])
def test_memory_of_its_own_is_for_products_that_are_ahead(times, of_its_own, monkeypatch):
    def measured(candidates, budget, ahead, before):
        return Choice("plain", dict(zip(("aten", "plain"), times, strict=True)))

    monkeypatch.setattr(measure, "_measured", measured)
    monkeypatch.setattr(costs, "LEAST_PRODUCT", 1)
    x, y = torch.randn(6, 16), torch.randn(16, 9)
    c = staged(lambda x, y: (x @ y,), (x, y))
    assert (LINEAR in fallbacks(c.spec)) is of_its_own


def test_what_stays_with_aten(fixed):
    fixed("plain")

    def others(a, b, x):
        double = a @ b
        scaled = torch.addmm(x, a.float(), b.float(), beta=0.5)
        matrix = torch.addmm(x, a.float(), b.float())
        return double, scaled, matrix, a.half() @ b.half(), torch.bmm(a[None], b[None])

    a, b = torch.randn(6, 8).double(), torch.randn(8, 4).double()
    c = staged(others, (a, b, torch.randn(6, 4)))
    assert LINEAR not in fallbacks(c.spec)
    got = c.compiled(a, b, x := torch.randn(6, 4))
    for one, other in zip(got, others(a, b, x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("fastest", "chosen"), [("packed", "aten"), ("generated", "generated")])
def test_rows_that_vary(fixed, fastest, chosen):
    """No code of the library for each number of rows."""
    fixed(fastest)
    module = Net(nn.GELU()).eval()
    compiled, context = compile_fresh(module, dynamic=True)
    with torch.no_grad():
        for rows in (4, 7, 50, 1, 99):
            x = torch.randn(rows, 16)
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)
    assert len(context.records) <= 2  # 1 row may have a version of its own
    found = [note for note in notes(context) if note.startswith("products")]
    assert found and all("4 (varies)x" in note and f"by {chosen}" in note for note in found[:1])


@pytest.mark.parametrize("found", ["disabled", "without operators"])
def test_without_the_library(fixed, monkeypatch, found):
    fixed("packed")
    if found == "without operators":
        monkeypatch.setattr(products, "_KERNELS", (("mkldnn::unknown", "CPU"),))
    module, x = Net().eval(), torch.randn(4, 16)
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=found != "disabled"):
        compiled, context = compile_fresh(module)
        torch.testing.assert_close(compiled(x), module(x), **CLOSE)
    (found,) = (note for note in notes(context) if note.startswith("products"))
    assert "(aten 1 µs, generated 2 µs)" in found and "packed" not in found


@pytest.mark.parametrize("way", ["plain", "direct"])
@pytest.mark.parametrize("name", ["two layers", "layer norm", "rows", "shared", "gelu"])
def test_gradients(fixed, name, way):
    fixed(way)
    module = MODULES[name].train()
    compiled, context = compile_fresh(module)
    results = []
    for fn in (module, compiled):
        module.zero_grad()
        x = torch.randn(5, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
        out = fn(x)
        sum(one.square().sum() for one in (out if isinstance(out, tuple) else [out])).backward()
        results.append([x.grad, *(p.grad for p in module.parameters())])
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-3)
    found = [n for n in notes(context) if f"by {way}" in n]
    assert found and not [n for n in notes(context) if "packed" in n], notes(context)


# --- a weight that changes ------------------------------------------------------------------------


def loaded(net):
    net.load_state_dict({name: value * 2 for name, value in net.state_dict().items()})


def by_data(net):
    net.lin.weight.data = torch.randn(24, 16)


def in_place(net):
    with torch.no_grad():
        net.lin.weight.mul_(3)


def by_an_optimizer(net):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.5)
    net(torch.randn(4, 16)).sum().backward()
    optimizer.step()


def replaced(net):
    net.lin.weight = nn.Parameter(torch.randn(24, 16))


def pruned(net):
    prune.random_unstructured(net.lin, "weight", 0.5)


@pytest.mark.parametrize("change", [loaded, by_data, in_place, by_an_optimizer, replaced, pruned])
def test_a_changed_weight(fixed, change):
    fixed("packed")
    module, x = Net(nn.GELU()).eval(), torch.randn(6, 16)
    compiled = dynamo.compile(module)
    for _ in range(3):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)
        if change is not pruned or not hasattr(module.lin, "weight_orig"):
            change(module)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), **CLOSE)


# --- measuring ------------------------------------------------------------------------------------


def fastest(key, candidates, budget):
    return measure.fastest(key, candidates, budget, ahead=0.9)


class Counted:
    """Candidates that take a given number of seconds, and how often they were called."""

    def __init__(self, **seconds):
        self.calls = dict.fromkeys(seconds, 0)
        self.seconds = seconds

    def __call__(self):
        return {name: lambda name=name: lambda: self.run(name) for name in self.seconds}

    def run(self, name):
        self.calls[name] += 1
        threading.Event().wait(self.seconds[name])


def test_the_fastest_is_chosen_and_remembered():
    counted = Counted(slow=0.004, fast=0.001)
    choice = fastest("a", counted(), Budget(1.0))
    assert choice.name == "fast" and choice.times["slow"] > choice.times["fast"]
    calls = dict(counted.calls)
    assert fastest("a", counted(), Budget(0.0)) == choice
    measure.forget()
    assert fastest("a", counted(), Budget(0.0)) == choice  # from disk
    assert counted.calls == calls
    assert fastest("b", counted(), Budget(0.0)) is None


@pytest.mark.parametrize(("ahead", "name"), [(0.01, "slow"), (0.9, "fast")])
def test_the_first_stays_unless_another_is_ahead(ahead, name):
    found = measure.fastest("a", Counted(slow=0.004, fast=0.001)(), Budget(1.0), ahead=ahead)
    assert found.name == name


class Clocked(Counted):
    """Calls by a clock of their own; each takes a multiple of its seconds while it is interrupted.

    interrupted: of each candidate, how many of the first calls that count. late: its threads then
    wake up late, instead of being taken from their processors.
    """

    def __init__(self, monkeypatch, interrupted, late=False, **seconds):
        super().__init__(**seconds)
        self.now, self.interruptions, self.interrupted = 0.0, 0, interrupted
        self.late, self.waited = late, 0.0
        monkeypatch.setattr(measure._Waits, "seconds", lambda _: self.waited)
        clock = SimpleNamespace(perf_counter=lambda: self.now, time=lambda: self.now)
        monkeypatch.setattr(measure, "time", clock)
        monkeypatch.setattr(measure, "_interruptions", lambda: self.interruptions)

    def run(self, name):
        self.calls[name] += 1
        hit = 1 < self.calls[name] <= 1 + self.interrupted[name]
        if self.late:
            self.waited += self.seconds[name] * (4 if hit else measure.LATE / 2)
        else:
            self.interruptions += hit
        self.now += self.seconds[name] * (5 if hit else 1)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("turns", [0, 1, 6])
def test_interrupted_calls_say_nothing(monkeypatch, turns, late):
    counted = Clocked(monkeypatch, {"slow": 0, "fast": turns}, late, slow=4e-4, fast=1e-4)
    choice = fastest("a", counted(), Budget(1.0))
    assert choice.name == "fast" and choice.times["fast"] < 101 and not choice.disturbed


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("slower", "name"), [(1.5, "first"), (6, "other")])
def test_where_all_calls_are_interrupted(monkeypatch, slower, name, late):
    """The first stays, unless another is far ahead, and two other processes measure again."""
    always = {"first": 1000, "other": 1000}
    counted = Clocked(monkeypatch, always, late, first=1e-3 * slower, other=1e-3)
    choice = fastest("a", counted(), Budget(1.0))
    assert choice.disturbed and choice.name == name
    calls = dict(counted.calls)
    assert calls["first"] <= 10
    assert fastest("a", counted(), Budget(0.0)) == choice and counted.calls == calls
    for attempts, measured, later in ((2, True, 0), (3, True, 0), (3, False, 0), (3, True, 3600)):
        measure.forget()
        counted.now += later
        assert fastest("a", counted(), Budget(1.0)).disturbed == attempts
        assert (counted.calls != calls) == measured
        calls = dict(counted.calls)


def test_least_times_of_processes_that_were_disturbed(monkeypatch):
    always = {"first": 1000, "other": 1000}
    fastest("a", Clocked(monkeypatch, always, first=3e-3, other=1e-3)(), Budget(1.0))
    measure.forget()
    choice = fastest("a", Clocked(monkeypatch, always, first=3e-3, other=2e-3)(), Budget(1.0))
    assert choice.name == "other" and choice.times["other"] == pytest.approx(5e3)
    measure.forget()
    calm = {"first": 0, "other": 0}
    choice = fastest("a", Clocked(monkeypatch, calm, first=3e-3, other=4e-3)(), Budget(1.0))
    assert choice.name == "first" and not choice.disturbed
    measure.forget()
    assert fastest("a", Counted(first=0, other=0)(), Budget(0.0)) == choice


def test_the_system_tells_of_interruptions():
    before = measure._interruptions()
    assert before >= 0 and measure._interruptions() >= before


HOG = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
print("begun", flush=True)
while True:
    pass
"""


@pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="the system does not tell of waiting threads"
)
def test_the_system_tells_of_threads_that_wait():
    """A thread that shares its processor with another process waits for half of the time."""
    before = os.sched_getaffinity(0)
    processor = min(before)
    command = [sys.executable, "-c", HOG, str(processor)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as hog:
        try:
            assert hog.stdout.readline() == b"begun\n"
            os.sched_setaffinity(0, {processor})
            with measure._Waits() as waits:
                start, waited = time.perf_counter(), waits.seconds()
                while time.perf_counter() < start + 0.3:
                    pass
                waited = waits.seconds() - waited
        finally:
            os.sched_setaffinity(0, before)
            hog.kill()
    assert waited > 0.05 and waited > measure.LATE * 0.3


def test_the_budget_is_kept():
    budget = Budget(0.02)
    counted = Counted(one=0.01, other=0.01)
    fastest("a", counted(), budget)
    assert budget.left < 0
    assert counted.calls == {"one": 3, "other": 3}  # a call to make code, and two that count


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"name": "fast"}',
        b'{"name": 1, "times": {"slow": 1, "fast": 2}, "disturbed": 0}',
        b'{"name": "fast", "times": {"slow": 1, "fast": 2}}',
        b'{"name": "fast", "times": {"slow": 1, "fast": 2}, "disturbed": "x"}',
        b'{"name": "fast", "times": {"fast": 1}, "disturbed": 0}',
        b'{"name": "fast", "times": {"slow": [], "fast": 1}, "disturbed": 0}',
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_damaged_entry_is_measured_again(content, whole):
    counted = Counted(slow=0.002, fast=0.0)
    fastest("a", counted(), Budget(1.0))
    (path,) = (cache.store().root / "choices").glob("*/*.json")
    if whole:  # with a right checksum
        cache.store().write("choices", path.stem, ".json", content)
    else:
        path.write_bytes(content)
    measure.forget()
    calls = counted.calls["fast"]
    assert fastest("a", counted(), Budget(1.0)).name == "fast"
    assert counted.calls["fast"] > calls
    assert json.loads(cache.store().read("choices", path.stem, ".json"))["name"] == "fast"


def test_candidates_that_were_not_there():
    fastest("a", Counted(slow=0.002, fast=0.0)(), Budget(1.0))
    measure.forget()
    counted = Counted(slow=0.002, fast=0.0, other=0.0)
    assert len(fastest("a", counted(), Budget(1.0)).times) == 3


def test_a_store_that_cannot_be_written(monkeypatch):
    def full(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(cache.Store, "write", full)
    assert fastest("a", Counted(slow=0.002, fast=0.0)(), Budget(1.0)).name == "fast"


def test_two_threads_that_measure_at_once():
    found = []

    def run():
        for number in range(20):
            found.append(fastest(str(number % 4), Counted(slow=0.001, fast=0.0)(), Budget(1.0)))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80 and {choice.name for choice in found} == {"fast"}


def large(x, w):
    return (x @ w,)


def test_measuring_leaves_the_program_alone():
    """Neither its random numbers nor its modes nor autocast have to do with each other."""
    x, w = torch.randn(64, 256), torch.randn(256, 256)
    state, seen = torch.get_rng_state(), []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
            seen.append(fn)
            return fn(*args, **(kwargs or {}))

    def run():
        return lambda: dtypes.add((x @ w).dtype)

    dtypes = set()
    with torch.autocast("cpu"), Mode(), torch.device("meta"):
        assert fastest("a", {"one": run, "other": run}, Budget(1.0)) is not None
    assert dtypes == {torch.float32} and not seen
    c = staged(large, (x, w))
    assert torch.equal(torch.get_rng_state(), state)
    assert any(note.startswith("products: 1 of 64x256x256 by") for note in report(c)["notes"])


def test_products_too_small_to_measure():
    c = staged(large, (torch.randn(4, 8), torch.randn(8, 4)))
    assert not [note for note in report(c)["notes"] if note.startswith("products")]


@pytest.mark.parametrize("tuning", ["quick", "full", "off"])
def test_how_much_is_measured(monkeypatch, tuning):
    keys = []
    monkeypatch.setattr(costs, "LARGEST_PRODUCT", 1 << 21)
    monkeypatch.setattr(
        products, "fastest", lambda key, *rest, **more: keys.append(key.partition(", direct")[0])
    )
    staged(large, (torch.randn(130, 256), torch.randn(256, 256)), tuning=tuning)
    assert (
        keys
        == {
            "quick": ["float32 128x128 by rows @ 128x128 by rows, for larger"],
            "full": ["float32 130x256 by rows @ 256x256 by rows"],
            "off": [],
        }[tuning]
    )


def test_no_time_to_measure(monkeypatch):
    monkeypatch.setattr("inductor.pipeline._TUNING", {"quick": 0.0})
    c = staged(large, (torch.randn(64, 256), torch.randn(256, 256)))
    assert "products: 1 by aten, for want of time to measure" in report(c)["notes"]
    assert fallbacks(c.spec) == {"mm.default": 1}


def test_no_time_to_measure_a_product_of_a_weight(monkeypatch):
    monkeypatch.setattr("inductor.pipeline._TUNING", {"quick": 0.0})
    module, x = nn.Linear(256, 256).eval(), torch.randn(64, 256)
    compiled, context = compile_fresh(module)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), **CLOSE)
    assert "products: 1 of 64x256x256 by generated" in notes(context)


@pytest.mark.parametrize("name", ["generated", "aten"])
def test_products_left_unmeasured_follow_the_others(monkeypatch, name):
    measured = []

    def some(key, candidates, budget, ahead):
        if len(measured) == 2:
            return None
        measured.append(candidates)
        return Choice(name, dict.fromkeys(candidates, 1.0))

    monkeypatch.setattr(products, "fastest", some)
    widths = [128, 192, 256, 320]
    layers = [nn.Linear(64 if k == 0 else widths[k - 1], n) for k, n in enumerate(widths)]
    module = nn.Sequential(*layers).eval()
    compiled, context = compile_fresh(module)
    x = torch.randn(300, 64)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), **CLOSE)
    found = [note for note in notes(context) if note.startswith("products: 1 of")]
    assert len(found) == (4 if name == "generated" else 2), found
    assert all(f" by {name}" in note for note in found)


@pytest.mark.parametrize(
    "sizes",
    [(1, 4096, 50257), (4096, 4096, 4096), (512, 768, 3072), (10**6, 64, 64), (1 << 28, 1, 1)],
)
def test_representatives(sizes):
    found = products.representative(*sizes)
    assert math.prod(found) <= costs.LARGEST_PRODUCT
    assert math.prod(found) * 2 > min(costs.LARGEST_PRODUCT, math.prod(sizes) / 8)
    assert all(0 < a <= b for a, b in zip(found, sizes))


def test_an_unknown_tuning():
    with pytest.raises(ValueError, match="tuning='all'.*'quick', 'full', 'off'"):
        dynamo.compile(large, options={"tuning": "all"})
