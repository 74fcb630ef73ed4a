"""Faults of ours, injected into each stage: results and gradients are those of eager, one warning
names the stage and the switch, the report has it, and config.strict raises."""

from __future__ import annotations

import functools
import warnings

import pytest
import torch

import dynamo
from backends import inductor as backend
from fxgraph import faults, symbolic_trace
from fxgraph.aot import joint, training
from inductor import pipeline, plan_cache
from inductor.codegen import cpp_body
from inductor.codegen.triton import TritonModule
from inductor.lowering.registry import LOWERINGS
from inductor.runtime import cache, toolchain

aten = torch.ops.aten


class Injected(Exception):
    pass


def fail(*args, **kwargs):
    raise Injected("by the test")


def program(x, w):
    h = torch.sigmoid(x @ w).tanh()
    return h * 2, h.sum(0)


def arguments(grad):
    torch.manual_seed(0)
    return [torch.randn(3, 4, requires_grad=grad), torch.randn(4, 5, requires_grad=grad)]


def answers(fn, grad, outputs=(0, 1)):
    """Results, and gradients of those numbered by `outputs`."""
    args = arguments(grad)
    results = fn(*args)
    if not grad:
        return list(results)
    loss = sum((results[n] ** 2).sum() for n in outputs)
    return [*results, *torch.autograd.grad(loss, args)]


@pytest.fixture
def lenient(monkeypatch):
    """Faults are gone around, none has been told of, and all stages run."""
    monkeypatch.setattr(plan_cache, "key_of", lambda *args: None)
    monkeypatch.setattr(faults, "_warned", set())
    with dynamo.config.patch(strict=False):
        yield


def notes_of(compiled):
    return [
        note
        for record in compiled.context.records
        for graph in record.graphs
        for note in graph.report["notes"]
    ]


def check_gone_around(stage, grad, way):
    """One warning, the same answers as eager's, and the note of the report."""
    compiled = dynamo.compile(program, isolate_recompiles=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = answers(compiled, grad)
        again = answers(compiled, grad)
        other = answers(compiled, grad, outputs=(1,))
    expected = answers(program, grad)
    for actual, wanted in (
        (got, expected),
        (again, expected),
        (other, answers(program, grad, (1,))),
    ):
        for a, w in zip(actual, wanted, strict=True):
            torch.testing.assert_close(a, w)
            assert a.stride() == w.stride() and a.requires_grad == w.requires_grad
    texts = [str(w.message) for w in caught if "fault" in str(w.message)]
    assert len(texts) == 1, texts
    assert f"stage {stage!r}" in texts[0] and "dynamo.config.strict" in texts[0]
    found = [note for note in notes_of(compiled) if f"stage {stage!r}" in note]
    assert found and way in found[-1], found
    return texts[0]


def check_strict(grad):
    with dynamo.config.patch(strict=True):
        with pytest.raises((dynamo.errors.BackendCompilerFailed, Injected)) as info:
            answers(dynamo.compile(program), grad)
        assert isinstance(info.value, Injected) or isinstance(info.value.__cause__, Injected)


@pytest.mark.parametrize("part", ["inference", "forward", "backward"])
@pytest.mark.parametrize("stage", [name for name, *_ in pipeline.STAGES])
def test_a_stage_that_fails(stage, part, lenient, monkeypatch):
    def failing(c):
        if (c.gm is None) == (part == "backward"):
            fail()
        real(c)

    real = next(function for name, function, *_ in pipeline.STAGES if name == stage)
    stages = tuple((n, failing if n == stage else f, *rest) for n, f, *rest in pipeline.STAGES)
    monkeypatch.setattr(pipeline, "STAGES", stages)
    grad = part != "inference"
    way = "aot_eager" if (stage, part) == ("functionalize", "inference") else "operator by operator"
    check_gone_around(stage, grad, way)
    check_strict(grad)


@pytest.mark.parametrize(
    ("stage", "module", "name", "grad", "way"),
    [
        ("functionalize", pipeline, "functionalize", False, "aot_eager"),
        ("functionalize", pipeline, "functionalize_training", True, "aot_eager"),
        ("partition", joint, "partition", True, "the captured graph runs as it is"),
        ("functionalize", backend, "under_autograd", True, "aot_eager"),
        ("functionalize", backend, "whole_or_split", True, "the captured graph runs as it is"),
        ("link", pipeline, "training_callable", True, "aot_eager"),
        ("recall", plan_cache, "key_of", False, "made anew"),
        ("recall", plan_cache, "recall", True, "made anew"),
        ("lower", pipeline, "plan_outputs", False, "operator by operator"),
        ("schedule", pipeline, "schedule", True, "operator by operator"),
        ("codegen", pipeline, "build_plan", True, "operator by operator"),
        ("link", pipeline, "link", False, "operator by operator"),
        ("backward", training._Backwards, "_compiled", True, "operator by operator"),
    ],
)
def test_a_function_that_fails(stage, module, name, grad, way, lenient, monkeypatch):
    monkeypatch.setattr(module, name, fail)
    check_gone_around(stage, grad, way)
    check_strict(grad)


@pytest.mark.parametrize("grad", [False, True])
def test_a_lowering_that_fails_leaves_its_operator_to_aten(grad, lenient, monkeypatch):
    monkeypatch.setitem(LOWERINGS, aten.tanh.default, fail)
    text = check_gone_around("lower", grad, "aten.tanh.default left to aten")
    assert "at aten.tanh.default" in text and __file__ in text and ".tanh()" in text
    with pytest.warns(UserWarning, match="fault"):
        faults._warned.clear()
        explained = dynamo.explain(program)(*arguments(grad))
    assert "aten.tanh.default left to aten" in str(explained)
    assert explained.fallback_ops.get("tanh.default") == 1
    check_strict(grad)


@pytest.mark.parametrize("stage", ["codegen", "compile"])
def test_the_operator_whose_code_fails_is_found(stage, lenient, monkeypatch):
    real = cpp_body.Body._emit

    def emit(self, key, text, *args):
        if "tanh(" in text and stage == "codegen":
            fail()
        return real(self, key, text.replace("tanh(", "no_such_function("), *args)

    monkeypatch.setattr(cpp_body.Body, "_emit", emit)
    check_gone_around(stage, False, "aten.tanh.default left to aten")
    with dynamo.config.patch(strict=True):
        with pytest.raises(dynamo.errors.BackendCompilerFailed) as info:
            answers(dynamo.compile(program), False)
    expected = Injected if stage == "codegen" else toolchain.CompileError
    assert isinstance(info.value.__cause__, expected)


def test_no_memory_is_no_fault(lenient, monkeypatch):
    def no_memory(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(pipeline, "schedule", no_memory)
    with pytest.raises(dynamo.errors.BackendCompilerFailed) as info:
        answers(dynamo.compile(program), False)
    assert isinstance(info.value.__cause__, MemoryError)


def infinite(x):
    """A derivative that is infinite, of an output that is not differentiated."""
    return (x - x).sqrt(), x * 2, x


def in_segments(x):
    """Two nodes of autograd, since the first result is used."""
    h = (x * 2).sin()
    return h, h.cos(), (h * x).sum(0), x.expand(2, *x.shape)


def writing(x):
    y = x.exp()
    buffer = torch.zeros_like(x)
    buffer.copy_(y)
    buffer.mul_(2)
    return buffer, y.t(), (y * y).sum()


PARTS = [(infinite, (0, 1, 2)), (in_segments, (0, 1, 2, 3)), (writing, (0, 1, 2))]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("fn", "outputs"), PARTS, ids=[fn.__name__ for fn, _ in PARTS])
def test_a_part_of_the_backward_that_fails(fn, outputs, dynamic, lenient, monkeypatch):
    """Each subset of the tangents: a fault while the part for a proper one is made."""

    def backward_part(training, segment, present):
        if list(present) != list(segment.tangents):
            fail()
        return real(training, segment, present)

    real = training.backward_part
    monkeypatch.setattr(training, "backward_part", backward_part)
    compiled = dynamo.compile(fn, dynamic=dynamic)
    for size in (3, 5) if dynamic else (3,):
        for chosen in range(1, 2 ** len(outputs)):
            gradients = []
            for run in (fn, compiled):
                torch.manual_seed(0)
                x = torch.randn(size, 4, requires_grad=True)
                results = run(x)
                loss = sum((results[n] ** 2).sum() for n in outputs if chosen & 2**n)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    loss.backward()
                gradients.append(x.grad)
            wanted, got = gradients
            torch.testing.assert_close(got, wanted, equal_nan=True)
            assert got.stride() == wanted.stride()
    (told,) = faults._warned
    assert told[0] == "backward" and "by the test" in told[2]


def test_a_part_of_the_backward_that_fails_is_told_of(lenient, monkeypatch):
    def backward_part(graph, segment, present):
        return real(graph, segment, present) if len(present) == 2 else fail()

    real = training.backward_part
    monkeypatch.setattr(training, "backward_part", backward_part)
    check_gone_around("backward", True, "operator by operator")
    with dynamo.config.patch(strict=True), pytest.raises(Injected):
        answers(dynamo.compile(program), True, outputs=(1,))


def test_a_fault_for_sizes_that_vary(lenient, monkeypatch):
    """The graph compiled anew with symbols runs on aten; the first one keeps its kernels."""

    def lower_graph(module, **options):
        if any(isinstance(n.meta.get("val"), torch.SymInt) for n in module.graph.nodes):
            fail()
        return real(module, **options)

    real = pipeline.lower_graph
    monkeypatch.setattr(pipeline, "lower_graph", lower_graph)
    compiled = dynamo.compile(program)
    with pytest.warns(UserWarning, match="fault of framegraph in the stage 'lower'") as caught:
        for size in (3, 5, 7):
            args = torch.randn(size, 4), torch.randn(4, 5)
            for got, wanted in zip(compiled(*args), program(*args), strict=True):
                torch.testing.assert_close(got, wanted)
    assert len([w for w in caught if "fault" in str(w.message)]) == 1


class Kernel:
    """A Triton kernel that cannot be launched here, and whose compilation may fail."""

    def __init__(self, source, name, wrong):
        self.fails = wrong in source

    def warmup(self, *args, **options):
        return fail() if self.fails else None

    def __getitem__(self, grid):
        return fail


@pytest.fixture
def triton_kernels(lenient, monkeypatch):
    """Graphs on the CPU get Triton kernels; those with a given text in them do not compile."""
    launch = pytest.importorskip("inductor.runtime.triton_launch")
    everywhere = functools.partial(TritonModule, everywhere=True)
    monkeypatch.setattr(pipeline, "TritonModule", everywhere)
    return lambda wrong: monkeypatch.setattr(launch, "load", functools.partial(Kernel, wrong=wrong))


@pytest.mark.parametrize("grad", [False, True])
def test_triton_kernels_that_do_not_compile(grad, triton_kernels):
    triton_kernels("def")
    check_gone_around("compile", grad, "aten.mul.Tensor")
    check_strict(grad)


def test_the_operator_whose_triton_kernel_does_not_compile_is_found(triton_kernels):
    triton_kernels("tanh")
    gm = symbolic_trace(lambda x: (torch.sin(x).sum(0), torch.tanh(x)))
    with torch.no_grad(), pytest.warns(UserWarning, match="fault .* 'compile'"):
        compiled = pipeline.compile_graph(gm, [torch.randn(3, 4)])
    assert any("aten.tanh.default left to aten" in n for n in compiled.compile_report["notes"])
    assert compiled.compile_report["fallback_ops"] == {"tanh.default": 1}


def test_a_triton_launch_that_fails(triton_kernels):
    triton_kernels("no such text")
    check_gone_around("launch", False, "operator by operator")
    check_strict(False)


def test_the_programs_own_error_is_no_fault_of_a_launch(triton_kernels):
    triton_kernels("no such text")

    def program(x, i):
        return x[i] * 2

    args = torch.randn(3), torch.tensor([7])
    with pytest.raises(IndexError) as wanted:
        program(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(IndexError) as got:
            dynamo.compile(program)(*args)
    assert str(got.value) == str(wanted.value)


@pytest.fixture
def plans(monkeypatch, tmp_path):
    """A cache folder of the test's own, which holds the plan of `program`."""
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(faults, "_warned", set())
    with dynamo.config.patch(strict=False):
        dynamo.compile(program)(*arguments(False))
        yield tmp_path / cache.LAYOUT / "plans"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format": 0}', b"\xff\x00"])
def test_a_plan_on_disk_that_is_none(content, plans):
    """Its checksum is right, its content is not."""
    (entry,) = plans.glob("*/*.json")
    cache.store().write("plans", entry.stem, ".json", content)
    compiled = dynamo.compile(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(answers(compiled, False), answers(program, False))
    assert "recall" in pipeline_stages(compiled) and "lower" in pipeline_stages(compiled)


def pipeline_stages(compiled):
    (record,) = compiled.context.records
    return record.graphs[0].report["stages"]


@pytest.mark.parametrize(
    ("stage", "module", "name"),
    [("recall", cache, "load_plan"), ("compile", toolchain, "load_library")]
    + [("link", pipeline, "link")],
)
def test_a_plan_on_disk_that_fails_is_made_anew(stage, module, name, plans, monkeypatch):
    def fails_once(*args, **options):
        calls.append(name)
        return fail() if len(calls) == 1 else real(*args, **options)

    real, calls = getattr(module, name), []
    monkeypatch.setattr(module, name, fails_once)
    check_gone_around(stage, False, "the plan is made anew")
    assert not calls[2:]  # in one attempt
