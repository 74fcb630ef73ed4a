"""The driver: what it tells while it compiles, and what it reports at the end."""

from __future__ import annotations

import logging

import pytest
import torch

import dynamo
from fxgraph import symbolic_trace
from fxgraph.torch_fx import fake_tensor_mode
from inductor.pipeline import STAGES, compile_graph, new_compilation, run_stages
from tests.inductor.compiling import check, staged


def fn(x):
    return (torch.softmax(x @ x, -1) @ x,)


def test_a_line_for_each_stage_as_it_ends(caplog) -> None:
    with caplog.at_level(logging.DEBUG, "inductor.times"):
        staged(fn, [torch.randn(16, 16)])
    lines = [r.getMessage() for r in caplog.records if r.name == "inductor.times"]
    assert [line.split()[0] for line in lines] == [name for name, *_ in STAGES]
    (compiled,) = [line for line in lines if line.startswith("compile ")]
    assert compiled.endswith("(1 kernel in 1 unit)")


def test_the_report_says_how_much_memory_a_call_takes() -> None:
    x = torch.randn(256, 256)
    with torch.no_grad():
        report = compile_graph(symbolic_trace(fn), [x]).compile_report
    (note,) = (note for note in report["notes"] if not note.startswith("products"))
    assert note.startswith("memory: at most 0.50 MiB at once")
    assert report["kernels"] == 1 and set(report["stages"]) >= {"functionalize", "compile", "link"}


@pytest.mark.parametrize(
    ("body", "dtype", "left"),
    [
        (lambda x: torch.digamma(x + 1) * 2, torch.float32, {"aten.digamma"}),
        (lambda x: (x + 1) ** x, torch.int64, {"aten.pow"}),
        (lambda x: torch.digamma(x).sum() + x**x, torch.int32, {"aten.digamma", "aten.pow"}),
        (lambda x: torch.relu(x) * 2, torch.float32, set()),
    ],
)
def test_what_triton_cannot_say_is_left_to_aten(body, dtype, left) -> None:
    with fake_tensor_mode():
        x = torch.empty(3, dtype=dtype, device="cuda")
    c = new_compilation(symbolic_trace(lambda x: (body(x),)), [x])
    run_stages(c, until="codegen")
    assert c.left_to_aten == left
    assert {"aten." + s.op.removeprefix("aten::") for s in c.spec.steps if s.kind == "aten"} == left
    assert c.triton.kernels
    assert len(c.notes) == len(left)


def test_tensors_without_memory_run_on_aten():
    def fn(x, y):
        y.mul_(2)
        return torch.empty(3, device="meta").uniform_() + y, x + 1

    compiled = dynamo.compile(fn)
    found, moved = compiled(torch.ones(3), torch.ones(3, device="meta"))
    assert (found.device.type, found.shape) == ("meta", (3,))
    assert torch.equal(moved, torch.full((3,), 2.0))


def test_equal_operators_are_computed_once():
    """Masks that each layer makes anew; but not what is random, nor what a write parts."""

    def masked(x, y, m):
        return tuple((z.sin() + torch.where(m, 0.0, -1.0)).cos() for z in (x, y))

    def drawn(x):
        return x + torch.rand_like(x), x + torch.rand_like(x)

    def written(x):
        a = x.exp()
        x.add_(1)
        return a, x.exp()

    def count(fn, args, name):
        c = staged(fn, args, until="functionalize")
        return sum(name in str(node.target) for node in c.functional.graph_module.graph.nodes)

    x, y, m = torch.randn(4, 5), torch.randn(4, 5), torch.randn(4, 5) > 0
    assert count(masked, (x, y, m), "where") == 1
    check(masked, x, y, m)
    assert count(drawn, (x,), "rand") == 2
    assert count(written, (x.clone(),), "exp.") == 2
    check(written, x)
