"""Real models in eval mode: one graph each, and eager's outputs within float32 rounding."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import dynamo
from tests.models.zoo import ZOO, make

pytestmark = pytest.mark.slow


def tensors(output: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


@pytest.fixture(autouse=True)
def fresh():
    dynamo.reset()
    yield
    dynamo.reset()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ZOO)
def test_one_graph_and_eager_values(name: str, backend: str) -> None:
    model, inputs = make(name)
    with torch.no_grad():
        expected = model(**inputs)
        compiled = dynamo.compile(model, backend=backend, fullgraph=True)
        first = compiled(**inputs)
        second = compiled(**inputs)
        report = dynamo.explain(model, backend="eager")(**inputs)
    assert report.graph_count == 1, str(report)
    assert report.graph_break_count == 0, str(report)
    assert type(first) is type(expected)
    for actual in (first, second):
        for ours, theirs in zip(tensors(actual), tensors(expected), strict=True):
            assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_weights_that_change_are_seen() -> None:
    model, inputs = make("resnet18")
    with torch.no_grad():
        compiled = dynamo.compile(model, fullgraph=True)
        compiled(**inputs)
        for parameter in model.parameters():
            parameter.mul_(1.01)
        model.bn1.running_mean.add_(0.1)
        torch.testing.assert_close(compiled(**inputs), model(**inputs), rtol=1e-4, atol=1e-5)
        model.fc = torch.nn.Linear(512, 10)
        torch.testing.assert_close(compiled(**inputs), model(**inputs), rtol=1e-4, atol=1e-5)
        model.fc.weight.data = torch.randn(10, 512)
        torch.testing.assert_close(compiled(**inputs), model(**inputs), rtol=1e-4, atol=1e-5)


def test_gradients_are_eagers() -> None:
    model, inputs = make("resnet18")
    twin, _ = make("resnet18")
    dynamo.compile(model)(**inputs).square().mean().backward()
    twin(**inputs).square().mean().backward()
    for (name, ours), (_, theirs) in zip(model.named_parameters(), twin.named_parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6, msg=name)
