"""Faults of ours, injected into each stage: results and gradients are those of eager, one warning
names the stage and the switch, the report has it, and config.strict raises."""

from __future__ import annotations

import warnings

import pytest
import torch

import dynamo
from backends import inductor as backend
from fxgraph import faults
from fxgraph.aot import joint
from inductor import pipeline, plan_cache
from inductor.codegen import cpp_body
from inductor.lowering.registry import LOWERINGS
from inductor.runtime import toolchain

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


def check_gone_around(stage, grad, way, fn=program):
    """One warning, the same answers as eager's, and the note of the report."""
    compiled = dynamo.compile(fn)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = answers(compiled, grad)
        again = answers(compiled, grad)
        other = answers(compiled, grad, outputs=(1,))
    expected = answers(fn, grad)
    for actual, wanted in ((got, expected), (again, expected), (other, answers(fn, grad, (1,)))):
        for a, w in zip(actual, wanted, strict=True):
            torch.testing.assert_close(a, w)
            assert a.stride() == w.stride() and a.requires_grad == w.requires_grad
    texts = [str(w.message) for w in caught if "fault" in str(w.message)]
    assert len(texts) == 1, texts
    assert f"stage {stage!r}" in texts[0] and "dynamo.config.strict" in texts[0]
    found = [note for note in notes_of(compiled) if f"stage {stage!r}" in note]
    assert found and way in found[-1], found
    return texts[0]


def check_strict(grad, fn=program):
    with dynamo.config.patch(strict=True):
        with pytest.raises((dynamo.errors.BackendCompilerFailed, Injected)) as info:
            answers(dynamo.compile(fn), grad)
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
