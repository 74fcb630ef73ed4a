"""Resizes of symbolic sizes, and others that stay whole: results and gradients of eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo
from fxgraph.aot import functionalize

KINDS = {
    "nearest": {"scale_factor": 2},
    "nearest-exact": {"size": (7, 9)},
    "bilinear": {"scale_factor": (1.5, 2.0)},
    "bilinear corners": {"size": (5, 3), "align_corners": True},
    "linear": {"scale_factor": 1.7},
    "trilinear": {"scale_factor": (1.0, 1.5, 2.0)},
    "bicubic": {"scale_factor": 2.0},
    "bicubic recomputed": {"scale_factor": 0.6, "recompute_scale_factor": True},
}
DIMENSIONS = {"linear": lambda x: x.flatten(2), "trilinear": lambda x: x[:, :, None]}
IMAGES = (1, 3, 8, 8), (2, 3, 5, 6), (2, 4, 9, 4)


def resize(kind):
    mode, options = kind.split()[0], KINDS[kind]
    shaped = DIMENSIONS.get(mode, lambda x: x)
    return lambda x: F.interpolate(shaped(x), mode=mode, **options) * 2


@pytest.mark.parametrize(
    "kind, backend", [*((kind, "aot_eager") for kind in KINDS), ("bilinear", "inductor")]
)
def test_gradients(kind, backend):
    fn = resize(kind)
    compiled = dynamo.compile(fn, backend=backend, dynamic=True, fullgraph=True)
    for size in IMAGES:
        for layout in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(size, dtype=torch.float64).contiguous(memory_format=layout)
            given = [x.clone(memory_format=layout).requires_grad_() for _ in range(2)]
            ours, theirs = compiled(given[0]), fn(given[1])
            torch.testing.assert_close(ours, theirs)
            assert ours.stride() == theirs.stride()
            for result in (ours, theirs):
                result.square().sum().backward()
            torch.testing.assert_close(given[0].grad, given[1].grad)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - DIMENSIONS.keys()))
def test_images_of_bytes(kind):
    fn = resize(kind)
    compiled = dynamo.compile(fn, backend="aot_eager", dynamic=True, fullgraph=True)
    for size in IMAGES:
        x = torch.randint(0, 128, size, dtype=torch.uint8)
        assert torch.equal(compiled(x), fn(x))


@pytest.mark.parametrize("kind", ["nearest", "bilinear", "bicubic"])
def test_each_is_one_operator(kind):
    targets = []

    def backend(gm, inputs):
        graph = functionalize(gm, inputs).graph_module.graph
        targets.extend(str(node.target) for node in graph.nodes if "aten" in str(node.target))
        return gm

    dynamo.compile(resize(kind), backend=backend, dynamic=True)(torch.randn(1, 3, 8, 8))
    assert targets[0] == f"aten.upsample_{kind}2d.default" and len(targets) == 2


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.multilabel_margin_loss(x, torch.tensor([[0, 3, -1, 2]] * len(x))),
        lambda x: F.hardshrink(x * torch.nan, x.shape[0] / 8),
        F.softshrink,
    ],
)
def test_other_operators_that_stay_whole(fn):
    compiled = dynamo.compile(fn, backend="aot_eager", dynamic=True, fullgraph=True)
    for rows in (4, 6):
        given = [torch.arange(4.0 * rows).view(rows, 4).sin().requires_grad_() for _ in range(2)]
        ours, theirs = compiled(given[0]), fn(given[1])
        torch.testing.assert_close(ours, theirs, equal_nan=True)
        ours.sum().backward()
        theirs.sum().backward()
        torch.testing.assert_close(given[0].grad, given[1].grad, equal_nan=True)
