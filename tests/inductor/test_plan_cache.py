"""Plans kept between processes: found when everything is the same, and only then."""

from __future__ import annotations

import pytest
import torch

from fxgraph import symbolic_trace
from inductor.pipeline import compile_graph, new_compilation, run_stages
from inductor.plan_cache import key_of
from inductor.runtime import cache
from tests.children import run_script


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))


def compiled(fn, *inputs, options=None):
    with torch.no_grad():
        return compile_graph(symbolic_trace(fn), list(inputs), options=options)


def key(fn, *inputs, options=None):
    with torch.no_grad():
        c = new_compilation(symbolic_trace(fn), list(inputs), options)
        run_stages(c, until="functionalize")
        return key_of(c.functional, c.static, c.options)


def scaled(x, y):
    return torch.softmax(x * 2, -1), x @ y


def test_recalled_plan_is_right():
    x, y = torch.randn(4, 5), torch.randn(5, 3)
    reports = []
    for _ in range(2):
        plan = compiled(scaled, x, y)
        for got, want in zip(plan(x, y), scaled(x, y)):
            torch.testing.assert_close(got, want)
        reports.append(plan.compile_report)
    first, second = reports
    assert "lower" in first["stages"] and "lower" not in second["stages"]
    assert first["fallback_ops"] == second["fallback_ops"] == {"mm.default": 1}
    assert first["kernels"] == second["kernels"] == 1


def test_key_sees_what_shapes_the_plan():
    x, y = torch.randn(4, 5), torch.randn(5, 3)
    same = key(scaled, x, y)
    assert same == key(scaled, torch.randn(4, 5), torch.randn(5, 3)) is not None
    others = [
        key(scaled, torch.randn(6, 5), y),
        key(scaled, torch.randn(5, 4).t(), y),
        key(scaled, x.double(), y.double()),
        key(scaled, x, y, options={"fusion": False}),
        key(lambda x, y: (torch.softmax(x * 3, -1), x @ y), x, y),
        key(lambda x, y: (torch.softmax(x * 2, -1), x @ y, x), x, y),
        key(lambda x, y: (torch.softmax(x.mul_(2), -1), x @ y), x, y),
    ]
    assert None not in others and len({same, *others}) == 8


def test_two_processes():
    script = """
import torch, inductor
from fxgraph import symbolic_trace
x = torch.arange(6.0)
with torch.no_grad():
    plan = inductor.compile_graph(symbolic_trace(lambda x: (x + 1) * 2), [x])
    assert torch.equal(plan(x)[0], (x + 1) * 2)
print(" ".join(plan.compile_report["stages"]))
"""
    done = [run_script(script) for _ in range(2)]
    assert [one.returncode for one in done] == [0, 0], done
    assert "codegen" in done[0].stdout and "codegen" not in done[1].stdout


def test_damaged_plan_is_made_again():
    x, y = torch.randn(4, 5), torch.randn(5, 3)
    compiled(scaled, x, y)
    for file in (cache.store().root / "plans").rglob("*.json"):
        file.write_bytes(file.read_bytes()[:-50])
    plan = compiled(scaled, x, y)
    assert "lower" in plan.compile_report["stages"]
    torch.testing.assert_close(plan(x, y)[0], scaled(x, y)[0])
