"""What dynamo.load does at once, and what it finds in the cache."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn

import dynamo
from dynamo.errors import ProgramError
from dynamo.saved import loading
from inductor import plan_cache
from inductor.runtime import toolchain


class Net(nn.Module):
    """A buffer that is written, dropout, and a chain of kernels around products."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        y = self.last(nn.functional.dropout(self.first(x).sin() * 2 + 1, 0.5, self.training))
        self.seen += y.detach().sum(0)
        return y


class Step(dynamo.Graph):
    def __init__(self, model, optimizer, lr_sch=None):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer, lr_sch)

    def build(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        return loss


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path / "cache"))
    torch.manual_seed(0)
    return tmp_path / "cache"


X, Y = torch.randn(5, 6), torch.randn(5, 3)


def step_graph():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    graph = Step(model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
    graph(X, Y)
    return graph


def dynamic(x):
    x = x.clone()
    dynamo.mark_dynamic(x, 0, min=2, max=64)
    return x


# name -> (what is exported, arguments, whether in grad mode)
CASES = {
    "inference": lambda: (Net().eval(), (X,), False),
    "training": lambda: (Net(), (X,), True),
    "step": lambda: (step_graph(), (X, Y), True),
    "dynamic": lambda: (Net().eval(), (dynamic(X),), False),
    "dynamic training": lambda: (Net(), (dynamic(X),), True),
    "selected": lambda: (lambda x: x[x > 0].exp() * 2, (X,), False),
}
NAMED = ("inference", "step", "dynamic", "selected")  # without a backward: their plans are kept


def saved(name, path):
    fn, args, grad = CASES[name]()
    dynamo.reset()
    with torch.set_grad_enabled(grad):
        dynamo.export(fn)(*args).save(path)
    return args, grad


def run(program, args, grad):
    """Results, and gradients, of two calls."""
    torch.manual_seed(1)
    found = []
    for _ in range(2):
        with torch.set_grad_enabled(grad):
            result = program(*args)
        if result.requires_grad:
            result.sum().backward()
            found += [parameter.grad.clone() for parameter in program.parameters()]
        found += [result.detach(), *program.state_dict().values()]
    return copy.deepcopy(found)


def forbid(monkeypatch, owner, name):
    def called(*args, **kwargs):
        raise AssertionError(f"{name} was called")

    monkeypatch.setattr(owner, name, called)


@pytest.mark.parametrize("name", CASES)
def test_the_first_call_compiles_nothing(name, tmp_path, monkeypatch):
    args, grad = saved(name, tmp_path / "m.fg")
    expected = run(dynamo.load(tmp_path / "m.fg", backend="aot_eager"), args, grad)
    with torch.set_grad_enabled(grad):
        program = dynamo.load(tmp_path / "m.fg")
    for owner, called in ((toolchain, "_start"), (toolchain, "load_library"),
                          (loading._Compiled, "_compile")):  # fmt: skip
        forbid(monkeypatch, owner, called)
    torch.testing.assert_close(run(program, args, grad), expected)
    (compiled,) = program._compiled.values()
    assert compiled.run.compile_report["kernels"] > 0


def test_the_grad_mode_decides_which_graph_is_compiled(tmp_path):
    saved("training", tmp_path / "m.fg")
    with torch.no_grad():
        assert set(dynamo.load(tmp_path / "m.fg")._compiled) == {"inference"}
    program = dynamo.load(tmp_path / "m.fg")
    assert set(program._compiled) == {"training"}
    with torch.no_grad():
        program(X)
    assert set(program._compiled) == {"training", "inference"}


@pytest.mark.parametrize("name", NAMED)
def test_a_second_load_neither_reads_graphs_nor_compiles(name, tmp_path, monkeypatch):
    args, grad = saved(name, tmp_path / "m.fg")
    expected = run(dynamo.load(tmp_path / "m.fg"), args, grad)
    for owner, called in ((toolchain, "_start"), (loading, "read_graphs"),
                          (loading._Compiled, "_compile")):  # fmt: skip
        forbid(monkeypatch, owner, called)
    program = dynamo.load(tmp_path / "m.fg")
    torch.testing.assert_close(run(program, args, grad), expected, rtol=0, atol=0)
    (compiled,) = program._compiled.values()
    assert compiled.run.compile_report["kernels"] > 0


def test_sizes_that_kernels_exclude_are_served_by_a_recalled_program(tmp_path):
    """Compiling assumes of a size what its range does not say: the graph is read after all."""

    def halves(x):
        return torch.cat([x * 2, x + 1]).view(2, -1)

    dynamo.export(halves)(dynamic(X)).save(tmp_path / "m.fg")
    for _ in range(2):
        program = dynamo.load(tmp_path / "m.fg")
        (compiled,) = program._compiled.values()
        compiled.guards.append(lambda values: values["s0"] != 7)
        for rows in (3, 7, 64):
            x = torch.randn(rows, 6)
            torch.testing.assert_close(program(x), halves(x))


def test_written_inputs_that_share_memory_are_refused_by_a_recalled_program(tmp_path):
    def plus(x, y):
        return x.add_(1), y * 2

    dynamo.export(plus)(torch.ones(3), torch.ones(3)).save(tmp_path / "m.fg")
    for _ in range(2):
        memory = torch.ones(4)
        program = dynamo.load(tmp_path / "m.fg")
        with pytest.raises(ProgramError, match="share memory"):
            program(memory[:3], memory[1:])
        assert memory.tolist() == [1, 1, 1, 1]
        x, y = program(memory, memory * 3) if memory.numel() == 3 else program(*torch.ones(2, 3))
        assert x.tolist() == [2, 2, 2] and y.tolist() == [2, 2, 2]


def test_a_damaged_plan_in_the_cache_is_made_anew(tmp_path, cache):
    args, grad = saved("inference", tmp_path / "m.fg")
    expected = run(dynamo.load(tmp_path / "m.fg"), args, grad)
    (entry,) = cache.rglob("*.program")
    whole = entry.read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"", whole.replace(b'"k0"', b'"k9"', 1)):
        entry.write_bytes(damaged)
        found = run(dynamo.load(tmp_path / "m.fg"), args, grad)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert entry.read_bytes() == whole
    for text in (b"[]", b'{"plan": {}}', b"{"):  # whole entries with something else in them
        key = entry.stem
        plan_cache.cache.store().write("plans", key, ".program", text)
        torch.testing.assert_close(run(dynamo.load(tmp_path / "m.fg"), args, grad), expected)
        assert entry.read_bytes() == whole


def test_another_program_or_setting_is_another_plan(tmp_path, cache):
    saved("inference", tmp_path / "m.fg")
    dynamo.load(tmp_path / "m.fg")

    def plans():
        return len(list(cache.rglob("*.program")))

    assert plans() == 1
    (tmp_path / "copy.fg").write_bytes((tmp_path / "m.fg").read_bytes())
    dynamo.load(tmp_path / "copy.fg")
    assert plans() == 1
    with torch.backends.mkldnn.flags(enabled=False):
        dynamo.load(tmp_path / "m.fg")
    assert plans() == 2
    saved("dynamic", tmp_path / "other.fg")
    dynamo.load(tmp_path / "other.fg")
    assert plans() == 3


def test_a_failure_of_the_compiler_shows_at_load(tmp_path, monkeypatch):
    saved("inference", tmp_path / "m.fg")

    def broken(command):
        raise toolchain.CompileError(command, "internal error")

    monkeypatch.setattr(toolchain, "_start", broken)
    monkeypatch.setattr(dynamo.config, "strict", True)
    with pytest.raises(ProgramError, match=r"Net: its graph cannot be compiled .CompileError: "):
        dynamo.load(tmp_path / "m.fg")
    monkeypatch.setattr(dynamo.config, "strict", False)
    with pytest.warns(UserWarning, match="internal error"):
        program = dynamo.load(tmp_path / "m.fg")
    assert program(X).shape == (5, 3)


def test_threads_load_and_run(tmp_path):
    args, grad = saved("inference", tmp_path / "m.fg")
    with torch.no_grad():
        expected = dynamo.load(tmp_path / "m.fg", backend="aot_eager")(*args)
    found, shared = [], dynamo.load(tmp_path / "m.fg")

    def work():
        with torch.no_grad():
            found.append(dynamo.load(tmp_path / "m.fg")(*args))
            found.extend(shared(*args) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 84
    for one in found:
        torch.testing.assert_close(one, expected)


# -- the state of torch while loading -------------------------------------------------------------
def test_a_program_that_was_loaded_in_inference_mode_is_of_use_outside(tmp_path):
    saved("training", tmp_path / "m.fg")
    with torch.inference_mode():
        program = dynamo.load(tmp_path / "m.fg")
        assert set(program._compiled) == {"inference"}
        program(X)
    program(X).sum().backward()
    assert all(parameter.grad is not None for parameter in program.parameters())


def test_another_default_dtype_is_refused(tmp_path):
    """Operators ask for it when they run."""

    def program(x):
        return torch.ones(3) + x.sum()

    dynamo.export(program)(X).save(tmp_path / "m.fg")
    loaded = dynamo.load(tmp_path / "m.fg")
    torch.set_default_dtype(torch.float64)
    try:
        for refused in (lambda: loaded(X), lambda: dynamo.load(tmp_path / "m.fg")):
            with pytest.raises(ProgramError, match=r"default dtype torch.float32, not torch.float"):
                refused()
    finally:
        torch.set_default_dtype(torch.float32)
    assert loaded(X).dtype is torch.float32
