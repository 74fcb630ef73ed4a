"""Floats that vary from call to call: one graph for all of them, under autograd too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dynamo.api.compile import compile_fresh

W = torch.linspace(-1, 1, 5)
OTHER = torch.linspace(-2, 3, 20).view(4, 5)
SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 0.25, -0.25, 8e1])

ELEMENTWISE = {
    "clamp_min": lambda x, s: x.clamp(min=s),
    "clamp_both": lambda x, s: torch.clamp(x, -s, s),
    "clamp_max": lambda x, s: torch.clamp_max(x, s),
    "clamp_in_place": lambda x, s: (x * 1).clamp_(-s, s),
    "leaky_relu": lambda x, s: F.leaky_relu(x, s),
    "leaky_relu_in_place": lambda x, s: F.leaky_relu(x * 1, s, inplace=True),
    "leaky_relu_positional": lambda x, s: F.leaky_relu(x * 1, s, True),
    "elu": lambda x, s: F.elu(x, s),
    "softplus": lambda x, s: F.softplus(x, s + 1),
    "hardtanh": lambda x, s: F.hardtanh(x, -s, s),
    "threshold": lambda x, s: F.threshold(x, s, s + 1),
    "pow": lambda x, s: x.abs() ** (s + 1),
}
FUNCTIONS = {
    **ELEMENTWISE,
    "lerp": lambda x, s: x.lerp(OTHER, s),
    "add": lambda x, s: torch.add(x, OTHER, alpha=s),
    "sub": lambda x, s: x.sub(OTHER, alpha=s),
    "addcmul": lambda x, s: torch.addcmul(x, OTHER, OTHER, value=s),
    "layer_norm": lambda x, s: F.layer_norm(x, (5,), W, W, eps=s),
    "normalize": lambda x, s: F.normalize(x, eps=s + 1),
}


def gradients(function, value, s):
    x = value.clone().requires_grad_()
    y = function(x, s)
    y.backward(torch.linspace(-1, 1, y.numel()).view(y.shape))
    return y.detach(), x.grad


def check(function, backend, values):
    compiled, context = compile_fresh(function, backend=backend)
    for value in values:
        before = len(context.records)
        for s in (0.1, 0.2, 0.25, 0.45):
            expected = gradients(function, value, s)
            for a, e in zip(gradients(compiled, value, s), expected, strict=True):
                torch.testing.assert_close(a, e, equal_nan=True)
        assert len(context.records) - before <= 2
    notes = [note for r in context.records for g in r.graphs for note in g.report.get("notes", ())]
    assert not [note for note in notes if "operator by operator" in note or "op by op" in note]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph_for_all(name):
    values = [torch.linspace(-2, 2, 20).view(4, 5)]
    check(FUNCTIONS[name], "aot_eager", values + [SPECIAL] * (name in ELEMENTWISE))


def test_one_compiled_graph_for_all():
    def stacked(x, s):
        return torch.stack([function(x, s) for function in ELEMENTWISE.values()])

    check(stacked, "inductor", [SPECIAL])
    rest = [FUNCTIONS[name] for name in FUNCTIONS.keys() - ELEMENTWISE.keys()]
    together = lambda x, s: torch.stack([function(x, s) for function in rest])  # noqa: E731
    check(together, "inductor", [torch.linspace(-2, 2, 20).view(4, 5)])


def test_numbers_that_a_rule_has_no_form_for():
    """Other dtypes and arguments: compiled for each number."""
    function = lambda x, s: x.clamp(min=s) + torch.add(x, x, alpha=s)  # noqa: E731
    compiled, _ = compile_fresh(function, backend="aot_eager")
    for s in (0.1, 0.2, 0.3):
        x = torch.linspace(-2, 2, 20, dtype=torch.bfloat16)
        assert torch.equal(compiled(x, s), function(x, s))
