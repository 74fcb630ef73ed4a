"""A whole training step as one compiled function: zero_grad, forward, loss, backward, step, and
what people put between them.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dynamo

STEPS = 3
BACKENDS = ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 16, bias=False)  # what the norm removes is noise
        self.norm = torch.nn.BatchNorm1d(16)
        self.last = torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


class Smooth(Net):
    """No mask to flip: where processors multiply bfloat16 in another order, a rounding near zero
    would change a whole row of relu's gradients.
    """

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))


class Checkpointed(Net):
    def hidden(self, x):
        return torch.tanh(self.last(x))

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        return checkpoint(self.hidden, x, use_reentrant=False)


class CheckpointedNorm(Net):
    """The buffers are written twice a step: backward computes the norm again."""

    def hidden(self, x):
        return torch.relu(self.norm(self.first(x)))

    def forward(self, x):
        return self.last(checkpoint(self.hidden, x, use_reentrant=False))


def plain(model, optimizer, scaler, data):
    optimizer.zero_grad(True)
    loss = torch.nn.functional.cross_entropy(model(data[0]), data[1])
    loss.backward()
    optimizer.step()
    return loss


def kept_grads(model, optimizer, scaler, data):
    optimizer.zero_grad(set_to_none=False)
    loss = torch.nn.functional.cross_entropy(model(data[0]), data[1])
    loss.backward()
    optimizer.step()
    return loss.detach()


def clipped(model, optimizer, scaler, data):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(data[0]), data[1])
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return loss.detach() + norm


def clipped_by_value(model, optimizer, scaler, data):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(data[0]), data[1])
    loss.backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.05)
    optimizer.step()
    return loss.detach()


def accumulated(model, optimizer, scaler, data):
    optimizer.zero_grad()
    total = 0.0
    for x, y in zip(data[0].chunk(3), data[1].chunk(3)):
        loss = torch.nn.functional.cross_entropy(model(x), y) / 3
        loss.backward()
        total = total + loss.detach()
    optimizer.step()
    return total


def autocast(model, optimizer, scaler, data):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(data[0]), data[1])
    loss.backward()
    optimizer.step()
    return loss.detach()


def scaled(model, optimizer, scaler, data):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(data[0]), data[1])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def as_number(model, optimizer, scaler, data):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(data[0]), data[1])
    loss.backward()
    optimizer.step()
    return loss.item()


# name -> (function, model, graphs of a step that is compiled)
STEP_FUNCTIONS = {
    "plain": (plain, Net, 1),
    "kept_grads": (kept_grads, Net, 1),
    "clipped": (clipped, Net, 1),
    "clipped_by_value": (clipped_by_value, Net, 1),
    "accumulated": (accumulated, Net, 1),
    "autocast": (autocast, Smooth, 1),
    "scaled": (scaled, Net, 1),
    "checkpointed": (plain, Checkpointed, 1),
    "as_number": (as_number, Net, 1),
}
OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 0.01},
    "AdamW": {"lr": 0.01, "foreach": True},
    "RMSprop": {"lr": 0.01},
    "Adagrad": {"lr": 0.1},
}


def batches():
    generator = torch.Generator().manual_seed(3)
    for _ in range(STEPS):
        x = torch.randn(9, 6, generator=generator)
        yield x, torch.randint(3, (9,), generator=generator)


def world(model_class, optimizer="SGD", **options):
    torch.manual_seed(0)
    model = model_class()
    cls = getattr(torch.optim, optimizer)
    made = cls(model.parameters(), **{**OPTIMIZERS[optimizer], **options})
    return model, made, torch.amp.GradScaler("cpu", init_scale=64.0)


def state(model, optimizer):
    """Everything that a step leaves behind."""
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return copy.deepcopy((model.state_dict(), gradients, optimizer.state_dict()["state"]))


def check(step, eager, compiled, backend, tolerance=2e-5, after=None):
    """Run both worlds side by side; returns the records of what was compiled."""
    run = dynamo.compile(step, backend=backend)
    for data in batches():
        expected, found = step(*eager, data), run(*compiled, data)
        close = {"rtol": tolerance, "atol": tolerance}
        torch.testing.assert_close(found, expected, **close)
        for one, other in zip(state(*eager[:2]), state(*compiled[:2])):
            torch.testing.assert_close(other, one, **close)
        if after is not None:
            after()
    return run.context.records


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", STEP_FUNCTIONS)
def test_step(name, backend):
    step, model, graphs = STEP_FUNCTIONS[name]
    dynamo.reset()
    tolerance = 2e-2 if name == "autocast" else 2e-5
    records = check(step, world(model), world(model), backend, tolerance)
    assert sum(len(record.graphs) for record in records) == 2 * graphs  # two compilations
    reports = [graph.report for record in records for graph in record.graphs]
    notes = [note for report in reports for note in (report or {}).get("notes", ())]
    assert not [note for note in notes if "op by op" in note]


def test_checkpointed_writes():
    """They run op by op, as eager does."""
    dynamo.reset()
    check(plain, world(CheckpointedNorm), world(CheckpointedNorm), "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizer(optimizer):
    dynamo.reset()
    records = check(plain, world(Net, optimizer), world(Net, optimizer), "inductor")
    assert [len(r.graphs) for r in records] == [1, 1]
    kernels = [graph.report["kernels"] for record in records for graph in record.graphs]
    assert kernels[1] <= 16, kernels


@pytest.mark.parametrize(
    "optimizer, backend",
    [
        pytest.param(name, backend, marks=[] if name == "SGD" else pytest.mark.slow)
        for name in OPTIMIZERS
        for backend in ("aot_eager", "inductor")
    ],
)
def test_a_scheduled_rate_compiles_nothing(optimizer, backend):
    """The learning rate is another number in every step."""
    dynamo.reset()
    eager, compiled = world(Net, optimizer), world(Net, optimizer)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(one[1], lambda epoch: 1 / (1 + epoch))
        for one in (eager, compiled)
    ]
    rates = []

    def after():
        rates.append(compiled[1].param_groups[0]["lr"])
        for schedule in schedules:
            schedule.step()

    run = dynamo.compile(plain, backend=backend)
    for data in [*batches(), *batches()]:
        torch.testing.assert_close(run(*compiled, data), plain(*eager, data), rtol=1e-4, atol=2e-5)
        for one, other in zip(eager[0].parameters(), compiled[0].parameters()):
            torch.testing.assert_close(other, one, rtol=1e-4, atol=2e-5)
        after()
    assert len(set(rates)) == 2 * STEPS
    assert len(run.context.records) == 2  # without and with the optimizer's state
    reports = [g.report or {} for record in run.context.records for g in record.graphs]
    assert not [n for report in reports for n in report.get("notes", ()) if "op" in n.split()]
