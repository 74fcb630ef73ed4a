"""The driver: what it tells while it compiles, and what it reports at the end."""

from __future__ import annotations

import logging

import pytest
import torch

import dynamo
from fxgraph import symbolic_trace
from fxgraph.aot import training
from fxgraph.torch_fx import fake_tensor_mode
from inductor.pipeline import STAGES, compile_graph, new_compilation, run_stages
from inductor.runtime import toolchain
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
    x = torch.randn(256, 256, dtype=torch.float64)  # whose products are the library's
    with torch.no_grad():
        report = compile_graph(symbolic_trace(fn), [x]).compile_report
    (note,) = (note for note in report["notes"] if not note.startswith("products"))
    assert note.startswith("memory: at most 1.00 MiB at once")
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


def test_a_forward_is_compiled_while_its_backward_comes_as_far(caplog, monkeypatch, tmp_path):
    """Its compiler starts before the backward is lowered, and is waited for behind that; a backward
    that cannot be compiled changes nothing of it.
    """
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))
    x, w = torch.randn(8, 16), torch.randn(16, requires_grad=True)

    def program(x, w):
        return (torch.softmax(x * w, -1) * x).sum()

    expected = torch.autograd.grad(program(x, w), w)
    with caplog.at_level(logging.DEBUG, "inductor.times"):
        found = dynamo.compile(program)(x, w)
    torch.testing.assert_close(torch.autograd.grad(found, w), expected)
    stages = [r.getMessage().split()[0] for r in caplog.records if r.name == "inductor.times"]
    names = [name for name, *_ in STAGES]
    until = names.index("codegen") + 1
    assert stages == [*names[:until], *names, *names[until:]]
    assert not list(tmp_path.glob("*/tmp/*"))


def test_a_forward_whose_backward_fails_leaves_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))
    stopped = []
    stop = toolchain.Started.stop
    monkeypatch.setattr(toolchain.Started, "stop", lambda s: (stopped.append(s), stop(s)))

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(training._Backwards, "_compiled", interrupted)
    w = torch.randn(16, requires_grad=True)
    with pytest.raises(KeyboardInterrupt):
        dynamo.compile(lambda w: torch.softmax(w * 2, -1).sum())(w)
    assert len(stopped) == 1
    assert not list(tmp_path.glob("*/tmp/*")) and not list(tmp_path.glob("*/kernels/*/*.so"))
