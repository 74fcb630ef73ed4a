"""Steps of optimizers: as few graphs as there are kinds of steps, values and state as in eager."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn, optim
from torch.optim import swa_utils

from tests.dynamo.capturing import compiled

KINDS = [
    (optim.Adam, {}),
    (optim.Adam, {"amsgrad": True, "foreach": True}),
    (optim.AdamW, {"fused": True}),
    (optim.NAdam, {}),
    (optim.RAdam, {}),
    (optim.Adadelta, {"maximize": True}),
    (optim.Adagrad, {}),
    (optim.Adamax, {"foreach": True}),
    (optim.ASGD, {}),
    (optim.RMSprop, {"centered": True, "momentum": 0.9}),
    (optim.Rprop, {}),
    (optim.Adafactor, {}),  # which reads numbers from tensors for each parameter
    (optim.Muon, {}),
]


def gradients(parameters, seed):
    torch.manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)


def parameters_of(kind):
    torch.manual_seed(0)
    shapes = [(4, 3), (3, 4)] if kind is optim.Muon else [(4, 3), (3,)]
    return [nn.Parameter(torch.randn(shape)) for shape in shapes]


def stepped(optimizer, parameters, step, count=4):
    for seed in range(count):
        gradients(parameters, seed)
        step()
    return parameters, optimizer.state_dict()


def captures_of(run, **tolerance):
    """What run(wrap) compiles of the steps that it wraps: its result is eager's."""
    wanted, captures = run(lambda step: step), []

    def wrap(step):
        fast, captured = compiled(step)
        captures.append(captured)
        return fast

    torch.testing.assert_close(run(wrap), wanted, **tolerance)
    return captures


@pytest.mark.parametrize(
    ("kind", "options"), KINDS, ids=[f"{kind.__name__}-{'-'.join(o)}" for kind, o in KINDS]
)
def test_the_first_step_is_one_of_all(kind, options):
    expected = parameters_of(kind)
    optimizer = kind(expected, **options)
    wanted = stepped(optimizer, expected, optimizer.step)
    found = parameters_of(kind)
    optimizer = kind(found, **options)
    step, captured = compiled(optimizer.step)
    torch.testing.assert_close(stepped(optimizer, found, step), wanted, rtol=1e-4, atol=1e-5)
    assert len(captured.op_counts) == 1 and not captured.codes


@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW, optim.RAdam, optim.Adamax])
def test_rates_that_depend_on_the_step_round_as_in_eager(kind):
    def run(wrap):
        parameters = parameters_of(kind)
        optimizer = kind(parameters)
        return stepped(optimizer, parameters, wrap(optimizer.step))

    captures_of(run, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.RMSprop, optim.NAdam])
@pytest.mark.parametrize("rates", ["ExponentialLR", "MultiStepLR", "OneCycleLR"])
def test_rates_of_schedulers_are_numbers_of_the_first_graph(kind, rates):
    """A scheduler also has each step store an attribute of the optimizer."""
    options = {
        "ExponentialLR": {"gamma": 0.9},
        "MultiStepLR": {"milestones": [2, 4]},
        "OneCycleLR": {"max_lr": 0.2, "total_steps": 10, "cycle_momentum": False},
    }

    def run(wrap):
        parameters = parameters_of(kind)
        optimizer = kind(parameters, lr=0.1)
        scheduler = getattr(optim.lr_scheduler, rates)(optimizer, **options[rates])
        step = wrap(optimizer.step)

        def both():
            step()
            scheduler.step()

        return stepped(optimizer, parameters, both, 6)

    (found,) = captures_of(run, rtol=1e-4, atol=1e-5)
    assert len(found.op_counts) == 1


def test_parameters_that_come_later():
    def run(wrap):
        parameters = parameters_of(optim.Adam)
        optimizer = optim.Adam(parameters[:1])
        step = wrap(optimizer.step)
        stepped(optimizer, parameters, step, 3)
        optimizer.add_param_group({"params": parameters[1:], "lr": 0.1})
        stepped(optimizer, parameters, step, 3)
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        return stepped(optimizer, parameters, step, 2)

    found = captures_of(run)
    assert len(found[0].op_counts) == 2


def test_a_frame_that_asks_for_the_state():
    """The state is made where the program makes it, if the frame has seen that there is none."""

    def run(wrap):
        parameters = parameters_of(optim.Adam)
        optimizer, log = optim.Adam(parameters), []

        def step():
            log.append(len(optimizer.state))
            optimizer.step()
            log.append(len(optimizer.state))

        def early():
            for parameter in parameters[1:]:
                parameter.grad = None
            optimizer.step()
            log.append(len(optimizer.state))

        stepped(optimizer, parameters, wrap(early), 2)
        return stepped(optimizer, parameters, wrap(step), 2), log

    assert str(run(lambda step: compiled(step)[0])) == str(run(lambda step: step))


# -- optimizers that branch on tensors ------------------------------------------------------------
class Ratio(optim.Optimizer):
    """The trust ratio of LAMB, and the least scale of Adafactor."""

    def __init__(self, params, lr=0.1, least=1e-3):
        super().__init__(params, {"lr": lr, "least": least})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                norm, update = p.norm(), p.grad.norm()
                if norm == 0 or update == 0:
                    ratio = 1
                else:
                    ratio = norm / update
                self.state[p]["ratio"] = ratio
                scale = max(group["least"], p.square().mean()) * math.sqrt(group["lr"])
                p.grad.mul_(scale)
                p.add_(-group["lr"] * ratio * p.grad)


def test_ratios():
    def run(wrap):
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.zeros(3))]
        optimizer = Ratio(parameters)
        found = stepped(optimizer, parameters, wrap(optimizer.step))
        ratios = [optimizer.state[p]["ratio"] for p in parameters]
        kinds = [isinstance(ratio, torch.Tensor) for ratio in ratios]
        return found, kinds, [p.grad for p in parameters]

    captures = captures_of(run)
    assert len(captures[0].op_counts) <= 3 and not captures[0].codes


class Lamb(optim.Optimizer):
    """Its step scales by a ratio of norms, or by 1, through `alpha`."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                norm, update = p.norm(), p.grad.norm()
                ratio = 1 if norm == 0 or update == 0 else norm / update
                p.add_(p.grad, alpha=-group["lr"] * ratio)


def trained(wrap, optimizer_of, changes=lambda model: None):
    """(losses, parameters) after four compiled steps of a small model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    nn.init.zeros_(model[2].bias)
    optimizer, change = optimizer_of(model.parameters()), changes(model)

    def step(x):
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        if isinstance(optimizer, optim.LBFGS):
            loss = optimizer.step(closure)
        else:
            loss = closure()
            optimizer.step()
        if change is not None:
            change.update_parameters(model)
        return loss.detach()

    step = wrap(step)
    losses = [step(torch.randn(5, 4)) for _ in range(4)]
    return losses, [*model.parameters()], change and change.state_dict()


AVERAGES = {
    "ema": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)},
    "ema of each": {"avg_fn": swa_utils.get_ema_avg_fn(0.9)},
    "swa": {},
}


@pytest.mark.parametrize(
    ("most", "options"),
    [(2, {"optimizer_of": lambda p: Lamb(p, {"lr": 0.1})})]
    + [(4, {"optimizer_of": lambda p: optim.LBFGS(p, max_iter=4)})]
    + [
        (
            2,
            {
                "optimizer_of": lambda p: optim.SGD(p, lr=0.1),
                "changes": lambda m, how=how: swa_utils.AveragedModel(m, **how),
            },
        )
        for how in AVERAGES.values()
    ],
    ids=["lamb", "lbfgs", *AVERAGES],
)
def test_training_steps(most, options):
    captures = captures_of(lambda wrap: trained(wrap, **options), rtol=1e-4, atol=1e-5)
    assert len(captures[0].op_counts) <= most


def test_sparse_adam_runs_as_it_is():
    def run(wrap):
        torch.manual_seed(0)
        table = nn.Embedding(10, 4, sparse=True)
        optimizer = optim.SparseAdam(table.parameters(), lr=0.1)

        def step(index):
            optimizer.zero_grad()
            table(index).square().sum().backward()
            optimizer.step()

        step = wrap(step)
        for number in range(4):
            step(torch.tensor([number, number + 1, 2]))
        return table.weight

    found = captures_of(run)
    assert len(found[0].context.records) <= 8
