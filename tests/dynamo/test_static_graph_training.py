"""Training through dynamo.Graph: step by step what the eager program leaves, in one graph."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import dynamo

STEPS = 4
loss_function = nn.CrossEntropyLoss()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 16, bias=False)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(16, 3)

    def hidden(self, x):
        return self.drop(torch.tanh(self.norm(self.first(x))))

    def forward(self, x):
        return self.last(self.hidden(x))


class Train(dynamo.Graph):
    def __init__(self, model, optimizers, schedulers=(), **options):
        super().__init__(**{"backend": "aot_eager", **options})
        self.model = model
        self.loss = loss_function
        for optimizer, scheduler in zip(optimizers, [*schedulers, *[None] * len(optimizers)]):
            self.add_optimizer(optimizer, scheduler)

    def build(self, x, y):
        loss = self.loss(self.model(x), y)
        loss.backward()
        return loss


def batches(count=STEPS, rows=12):
    generator = torch.Generator().manual_seed(3)
    for _ in range(count):
        x = torch.randn(rows, 6, generator=generator)
        yield x, torch.randint(3, (rows,), generator=generator)


def eager(model, optimizers, schedulers, backward, data):
    """The program that a Graph equals."""
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = backward(model, *data)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if "clip_grad_max_norm" in group:
                order = group.get("clip_grad_norm_type", 2.0)
                nn.utils.clip_grad_norm_(group["params"], group["clip_grad_max_norm"], order)
        optimizer.step()
    for optimizer in optimizers:
        optimizer.zero_grad()
    for scheduler in schedulers:
        scheduler.step()
    return loss.detach()


def plain(model, x, y):
    loss = loss_function(model(x), y)
    loss.backward()
    return loss


def world(make, schedule=(), model_class=Net):
    torch.manual_seed(0)
    model = model_class()
    made = make(model)
    optimizers = made if isinstance(made, list) else [made]
    return model, optimizers, [one(optimizer) for one, optimizer in zip(schedule, optimizers)]


def compare(model, twin, optimizers, others, tolerance):
    close = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(twin.state_dict(), model.state_dict(), **close)
    gradients = [{n: p.grad for n, p in one.named_parameters()} for one in (model, twin)]
    torch.testing.assert_close(gradients[1], gradients[0], **close)
    for one, other in zip(optimizers, others):
        torch.testing.assert_close(other.state_dict()["state"], one.state_dict()["state"], **close)
        rates = [[float(group["lr"]) for group in o.param_groups] for o in (one, other)]
        assert rates[0] == rates[1]


def check(make, schedule=(), backward=plain, prepare=lambda graph: None, tolerance=2e-5,
          data=None, **options):  # fmt: skip
    """Run both programs side by side; returns the graph."""
    dynamo.reset()
    model, optimizers, schedulers = world(make, schedule)
    twin, others, their_schedulers = world(make, schedule)
    graph = Train(twin, others, their_schedulers, **options)
    prepare(graph)
    for seed, batch in enumerate(data or batches()):
        torch.manual_seed(seed)
        expected = eager(model, optimizers, schedulers, backward, batch)
        torch.manual_seed(seed)
        found = graph(*batch)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
        assert not found.requires_grad
        compare(model, twin, optimizers, others, tolerance)
    records = graph._graph.context.records
    assert all(len(record.graphs) == 1 and not record.breaks for record in records)
    return graph


def optimizer(name, **options):
    return lambda model: getattr(torch.optim, name)(model.parameters(), **options)


OPTIMIZERS = {
    "SGD": optimizer("SGD", lr=0.1),
    "SGD_momentum": optimizer("SGD", lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "SGD_nesterov": optimizer("SGD", lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "SGD_maximize": optimizer("SGD", lr=0.01, maximize=True, foreach=False),
    "SGD_fused": optimizer("SGD", lr=0.1, momentum=0.9, fused=True),
    "Adam": optimizer("Adam", lr=0.01),
    "Adam_amsgrad": optimizer("Adam", lr=0.01, amsgrad=True, weight_decay=0.1, betas=(0.8, 0.9)),
    "Adam_foreach": optimizer("Adam", lr=0.01, foreach=True, maximize=True, eps=1e-6),
    "Adam_fused": optimizer("Adam", lr=0.01, fused=True),
    "Adam_decoupled": optimizer("Adam", lr=0.01, weight_decay=0.1, decoupled_weight_decay=True),
    "AdamW": optimizer("AdamW", lr=0.01, amsgrad=True, foreach=False),
    "AdamW_foreach": optimizer("AdamW", lr=0.01, foreach=True, weight_decay=0.2),
    "AdamW_tensor_lr": optimizer("AdamW", lr=torch.tensor(0.01)),
    "Adagrad": optimizer("Adagrad", lr=0.1, lr_decay=0.1, weight_decay=0.01),
    "Adagrad_foreach": optimizer(
        "Adagrad", lr=0.1, initial_accumulator_value=0.5, foreach=True, maximize=True
    ),
    "Adagrad_fused": optimizer("Adagrad", lr=0.1, fused=True),
    "RMSprop": optimizer("RMSprop", lr=0.01, alpha=0.9, eps=1e-6),
    "RMSprop_centered": optimizer("RMSprop", lr=0.01, centered=True, momentum=0.9, foreach=False),
    "RMSprop_foreach": optimizer("RMSprop", lr=0.01, foreach=True, maximize=True, weight_decay=0.1),
    "groups": lambda model: torch.optim.Adam(
        [
            {"params": model.first.parameters(), "lr": 0.05, "weight_decay": 0.1},
            {"params": [*model.norm.parameters(), *model.last.parameters()], "betas": (0.5, 0.9)},
        ],
        lr=0.01,
    ),
    "two": lambda model: [
        torch.optim.SGD(model.first.parameters(), lr=0.1, momentum=0.9),
        torch.optim.AdamW([*model.norm.parameters(), *model.last.parameters()], lr=0.01),
    ],
    "some_parameters": lambda model: torch.optim.SGD(model.last.parameters(), lr=0.1),
    "clipped": lambda model: torch.optim.SGD(
        [{"params": model.parameters(), "clip_grad_max_norm": 0.1}], lr=0.5
    ),
    "clipped_by_maximum": lambda model: torch.optim.SGD(
        [
            {"params": model.first.parameters(), "clip_grad_max_norm": 0.01}
            | {"clip_grad_norm_type": float("inf")},
            {"params": model.last.parameters()},
        ],
        lr=0.5,
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name):
    graph = check(OPTIMIZERS[name])
    # Without and with the optimizer's state; gradients of what no optimizer has are kept.
    assert len(graph._graph.context.records) <= (3 if name in LEAVE_SOME else 2)


LEAVE_SOME = ("some_parameters", "clipped_by_maximum")
SCHEDULES = {
    "step": [lambda optimizer: lr_scheduler.StepLR(optimizer, 3, 0.5)],
    "cosine": [lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 5)],
    "one_cycle": [lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)],
    "chain": [
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer,
            [
                lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3),
                lr_scheduler.ExponentialLR(optimizer, 0.9),
            ],
            [3],
        )
    ],
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("kind", ["SGD_momentum", "Adam"])
def test_scheduled_rates_compile_nothing_anew(kind, name):
    graph = check(OPTIMIZERS[kind], SCHEDULES[name], data=list(batches(9)))
    assert len(graph._graph.context.records) <= 3  # state, then a number that varies
