"""Steps of dynamo.Graph that differentiate gradients or have sizes that depend on data, complex
parameters, and the GradScaler, with the default backend: one plan, step by step equal to eager.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import dynamo


class Step(dynamo.Graph):
    def __init__(self, model, optimizer, step, **options):
        super().__init__(**options)
        self.model = model
        self.step = step
        self.add_optimizer(optimizer)

    def build(self, *args):
        return self.step(self.model, *args)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def alike(step, inputs, model, make=sgd, steps=3, **options):
    """Train eagerly and through a Graph; returns the graph, which is one plan."""
    dynamo.reset()
    twin = copy.deepcopy(model)
    optimizer, graph = make(model), Step(twin, make(twin), step, **options)
    for seed in range(steps):
        torch.manual_seed(seed)
        given = inputs()
        optimizer.zero_grad()
        expected = step(model, *given)
        optimizer.step()
        found = graph(*given)
        torch.testing.assert_close(found, torch.utils._pytree.tree_map(plain, expected))
        torch.testing.assert_close(twin.state_dict(), model.state_dict())
    assert graph._graph.no_plan is None
    assert len(graph._graph.context.records) <= 2
    return graph


def plain(value):
    return value.detach() if isinstance(value, torch.Tensor) else value


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def penalty(model, x):
    """WGAN-GP: a leaf that the step makes, and the norm of its gradient in the loss."""
    x = x.clone().requires_grad_()
    y = model(x).mean()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    loss = y + (gradient.norm(dim=1) - 1).square().mean()
    loss.backward()
    return loss, x.grad


def penalty_of_stored_gradients(model, x):
    x = x.clone().requires_grad_()
    model(x).mean().backward(create_graph=True)
    loss = x.grad.square().mean()
    loss.backward()
    return loss


def penalty_of_parameters(model, x):
    loss = model(x).square().mean()
    loss.backward(create_graph=True)
    size = sum(parameter.grad.square().sum() for parameter in model.parameters())
    (0.1 * size).backward()
    return loss


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("step", [penalty, penalty_of_stored_gradients, penalty_of_parameters])
def test_gradients_are_differentiated(step, backend):
    alike(step, lambda: (torch.randn(5, 4),), perceptron(), backend=backend)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_prediction_that_nothing_differentiates_is_returned_detached(backend):
    """Its parameters are written by the optimizer before the step ends."""

    def step(model, x):
        loss = model(x).square().mean()
        loss.backward()
        return loss, model(x * 2).detach(), model(x * 3).detach()[1:]

    alike(step, lambda: (torch.randn(5, 4),), perceptron(), backend=backend)


def retained(model, x):
    hidden = model[0](x)
    hidden.retain_grad()
    unused = model[0](x * 2)
    unused.retain_grad()
    loss = model[1:](hidden).square().mean()
    loss.backward()
    return loss, hidden.grad, unused.grad is None


def retained_twice(model, x):
    hidden = model[0](x).t()
    hidden.retain_grad()
    last = model[1:](hidden.t())
    last.retain_grad()
    last.square().mean().backward(retain_graph=True)
    first = hidden.grad
    last.abs().mean().backward()
    return first, hidden.grad, last.grad, first is hidden.grad


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("step", [retained, retained_twice])
def test_intermediates_retain_their_gradients(step, backend):
    alike(step, lambda: (torch.randn(5, 4),), perceptron(), backend=backend)


def retained_after_a_write(model, x):
    hidden = model[0](x)
    hidden.retain_grad()
    hidden.mul_(2)
    loss = model[1:](hidden).square().mean()
    loss.backward()
    return loss, hidden.grad


def hooked(model, x):
    hidden = model[0](x)
    hidden.register_hook(lambda gradient: gradient * 2)
    loss = model[1:](hidden).square().mean()
    loss.backward()
    return loss


@pytest.mark.parametrize("step", [retained_after_a_write, hooked])
def test_other_hooks_of_intermediates_are_refused(step):
    with pytest.raises(dynamo.errors.Unsupported, match="hook"):
        alike(step, lambda: (torch.randn(5, 4),), perceptron())


# -- sizes and numbers that depend on data --------------------------------------------------------
def masked(model, x, y):
    loss = nn.functional.mse_loss(model(x), y, reduction="none")
    loss = loss[y > 0].mean()
    loss.backward()
    return loss


def chosen_rows(model, x, y):
    rows = (y > 0).nonzero()[:, 0]
    loss = (model(x[rows]) - y[rows]).square().mean()
    loss.backward()
    return loss, rows


def divided(model, x, y):
    largest, count = x.abs().max().item(), (y > 0).sum().item()
    loss = (model(x / largest) - y).square().sum() / max(count, 1)
    loss.backward()
    return loss, largest


def labelled():
    y = torch.randn(9, 1)
    y[0] = 1  # one is counted in any case
    return torch.randn(9, 4), y


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("step", [masked, chosen_rows, divided])
def test_sizes_that_depend_on_data(step, backend, tmp_path):
    """Also of a step that is saved."""
    graph = alike(step, labelled, perceptron(), backend=backend)
    dynamo.export(graph)(*labelled()).save(tmp_path / "step.fg")
    program = dynamo.load(tmp_path / "step.fg", backend=backend)
    for _ in range(3):
        given = labelled()
        torch.testing.assert_close(program(*given), graph(*given))
    for name, weight in graph.model.named_parameters(prefix="model"):
        torch.testing.assert_close(program.state_dict()[name], weight.detach())


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3, dtype=torch.complex64))

    def forward(self, x):
        return (self.weight @ x).abs().sum()


@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop", "Adagrad"])
def test_complex_parameters(kind):
    def step(model, x):
        loss = model(x)
        loss.backward()
        return loss

    def make(model):
        return getattr(torch.optim, kind)(model.parameters(), lr=0.01)

    torch.manual_seed(0)
    alike(step, lambda: (torch.randn(3, dtype=torch.complex64),), Scaled(), make)


@pytest.mark.slow
@pytest.mark.parametrize("first_scale", [64.0, 1e38], ids=["fits", "overflows"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("SGD", {"momentum": 0.9}),
        # Without momentum: after a first step that overflows, eager's fused SGD reads a buffer that
        # nothing has written.
        ("SGD", {"weight_decay": 0.01, "fused": True}),
        ("AdamW", {"fused": True}),
        ("RMSprop", {"centered": True}),
        ("Adagrad", {"foreach": True}),
    ],
)
def test_grad_scaler_of_the_default_backend(kind, options, first_scale):
    """The gradients of the fourth step are none in any case."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.Linear(16, 3))
    twin = copy.deepcopy(model)
    optimizer, other = (
        getattr(torch.optim, kind)(one.parameters(), lr=0.01, **options) for one in (model, twin)
    )
    scaler, its = (
        torch.amp.GradScaler("cpu", init_scale=first_scale, growth_interval=2) for _ in "ab"
    )

    def loss_of(model, x, y):
        return nn.functional.cross_entropy(model(x), y)

    def step(model, x, y):
        loss = loss_of(model, x, y)
        loss.backward()
        return loss

    dynamo.reset()
    graph = Step(twin, other, step)
    graph.set_grad_scaler(its)
    close = {"rtol": 1e-4, "atol": 1e-5, "equal_nan": True}
    for number in range(6):
        x, y = torch.randn(8, 6) * 100, torch.randint(3, (8,))
        if number == 3:
            x[0, 0] = float("inf")
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.testing.assert_close(graph(x, y), loss.detach(), **close)
        torch.testing.assert_close(twin.state_dict(), model.state_dict(), **close)
        assert scaler.state_dict() == its.state_dict()
    assert graph._graph.no_plan is None
