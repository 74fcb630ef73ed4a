"""Whole training steps, with their optimizers, in a file."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn

import dynamo
from dynamo.errors import GraphError, ProgramError


class Step(dynamo.Graph):
    def __init__(self, model, optimizer, lr_sch=None):
        super().__init__(backend="aot_eager")
        self.model = model
        self.loss = nn.CrossEntropyLoss()
        self.add_optimizer(optimizer, lr_sch)

    def build(self, x, y):
        loss = self.loss(self.model(x), y)
        loss.backward()
        return loss


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Dropout(0.2), nn.Linear(8, 3))


X, Y = torch.randn(6, 4), torch.randint(3, (6,))
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_goes_on_from_where_it_was_saved(tmp_path, name):
    net = model()
    optimizer = OPTIMIZERS[name](net.parameters())
    graph = Step(net, optimizer)
    graph(X, Y)
    exported = dynamo.export(graph)(X, Y)  # the second step
    exported.save(tmp_path / "step.fg")
    eager, eager_optimizer = copy.deepcopy((net, optimizer))
    program = dynamo.load(tmp_path / "step.fg", backend="aot_eager")
    torch.manual_seed(1)
    losses = [program(X, Y) for _ in range(4)]
    torch.manual_seed(1)
    for loss in losses:
        eager_optimizer.zero_grad()
        expected = nn.functional.cross_entropy(eager(X), Y)
        expected.backward()
        eager_optimizer.step()
        assert not loss.requires_grad
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
    state = program.state_dict()
    for key, tensor in eager.state_dict().items():
        torch.testing.assert_close(state[f"model.{key}"], tensor, rtol=1e-3, atol=1e-4)
    kept = [key for key in state if key.startswith("optimizers.0.state.")]
    held = eager_optimizer.state.values()
    assert len(kept) == sum(isinstance(t, torch.Tensor) for s in held for t in s.values())
    assert all(p.grad is None for p in program.parameters())
    with torch.no_grad(), pytest.raises(ProgramError, match="is a training step"):
        program(X, Y)


def test_a_step_by_hand(tmp_path):
    """A function that differentiates its loss and writes its parameters."""
    net = nn.Linear(4, 3)

    def step(x, y):
        loss = nn.functional.cross_entropy(net(x), y)
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(net.parameters(), gradients):
                parameter.sub_(0.1 * gradient)
        return loss.detach()

    dynamo.export(step)(X, Y).save(tmp_path / "step.fg")
    program = dynamo.load(tmp_path / "step.fg", backend="aot_eager")
    for _ in range(3):
        torch.testing.assert_close(program(X, Y), step(X, Y))


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_the_state_dict_of_the_graph_is_the_weights(tmp_path, name):
    net = model().eval()
    graph = Step(net, OPTIMIZERS[name](net.parameters()))
    graph(X, Y)
    dynamo.export(graph)(X, Y).save(tmp_path / "step.fg", weights=False)
    program = dynamo.load(tmp_path / "step.fg", graph.state_dict(), backend="aot_eager")
    twin = copy.deepcopy(graph)
    for _ in range(2):
        torch.testing.assert_close(program(X, Y), twin(X, Y))
    # They are the graph's own tensors.
    torch.testing.assert_close(net.state_dict(), twin.model.state_dict())
    with pytest.raises(ProgramError, match=r"missing: optimizers.0.state.0.\w+, "):
        dynamo.load(tmp_path / "step.fg", dict(net.state_dict(prefix="model.")))


def test_a_second_thread_is_refused(tmp_path):
    net = model()
    graph = Step(net, OPTIMIZERS["sgd"](net.parameters()))
    graph(X, Y)
    dynamo.export(graph)(X, Y).save(tmp_path / "step.fg")
    program = dynamo.load(tmp_path / "step.fg", backend="aot_eager")
    entered, leave, losses = threading.Event(), threading.Event(), []
    run = program._compiled["step"].run

    def waiting(*inputs):
        entered.set()
        leave.wait(20)
        return run(*inputs)

    program._compiled["step"].run = waiting
    thread = threading.Thread(target=lambda: losses.append(program(X, Y)))
    thread.start()
    entered.wait(20)
    with pytest.raises(ProgramError, match="is running already, in another thread"):
        program(X, Y)
    leave.set()
    thread.join()
    assert losses[0].dim() == 0 and program(X, Y) < losses[0] + 1


def test_gradients_that_stay_are_refused(tmp_path):
    """They are attributes of the parameters, which no file can set."""
    net = nn.Linear(4, 3)

    def step(x, y):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        return loss

    with pytest.raises(ProgramError, match="beside computing tensors it changes"):
        dynamo.export(step)(X, Y).save(tmp_path / "step.fg")


def test_state_that_the_first_step_makes_is_asked_for(tmp_path):
    net = model()
    graph = Step(net, torch.optim.Adam(net.parameters()))
    with pytest.raises(ProgramError, match="call it once before it is exported"):
        dynamo.export(graph)(X, Y).save(tmp_path / "step.fg")


lr_scheduler = torch.optim.lr_scheduler
SCHEDULES = {
    "step": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "chain": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=3), lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
}


@pytest.mark.parametrize("kind", ["momentum", "adam", "tensor_lr"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_scheduled_step_goes_on_as_the_scheduler_would(tmp_path, name, kind):
    net = model()
    if kind == "tensor_lr":
        optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.01))
    else:
        optimizer = OPTIMIZERS[kind](net.parameters())
    scheduler = SCHEDULES[name](optimizer)
    graph = Step(net, optimizer, scheduler)
    graph(X, Y)
    exported = dynamo.export(graph)(X, Y)  # the second step, and the scheduler's
    exported.save(tmp_path / "step.fg", steps=5)
    eager, eager_optimizer, eager_scheduler = copy.deepcopy((net, optimizer, scheduler))
    program = dynamo.load(tmp_path / "step.fg", backend="aot_eager")
    for seed in range(5):
        rate = program.schedule.rates()["optimizers.0.param_groups.0.lr"]
        assert rate == float(eager_optimizer.param_groups[0]["lr"])
        torch.manual_seed(seed)
        loss = program(X, Y)
        torch.manual_seed(seed)
        eager_optimizer.zero_grad()
        expected = nn.functional.cross_entropy(eager(X), Y)
        expected.backward()
        eager_optimizer.step()
        eager_scheduler.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
    for key, tensor in eager.state_dict().items():
        torch.testing.assert_close(
            program.state_dict()[f"model.{key}"], tensor, rtol=1e-3, atol=1e-4
        )
    with pytest.raises(ProgramError, match=r"its schedule ends after 5 steps.*steps=N"):
        program(X, Y)
    program.schedule.step = 4
    program(X, Y)
    with pytest.raises(ValueError, match="a step from 0 to 5, not 6"):
        program.schedule.step = 6


def test_a_schedule_that_ends_says_what_it_said(tmp_path):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    graph = Step(net, optimizer, lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=4))
    graph(X, Y)
    dynamo.export(graph)(X, Y).save(tmp_path / "step.fg")
    program = dynamo.load(tmp_path / "step.fg", backend="aot_eager")
    assert "schedule of 3 steps" in str(program)
    for _ in range(3):
        program(X, Y)
    with pytest.raises(ProgramError, match="Tried to step 5 times"):
        program(X, Y)


def test_what_changes_late_is_refused(tmp_path):
    """A momentum that the graph has as a constant."""

    class Late(lr_scheduler.StepLR):
        def step(self, epoch=None):
            super().step(epoch)
            if self.last_epoch > 70:
                self.optimizer.param_groups[0]["momentum"] = 0.5

    net = model()
    optimizer = OPTIMIZERS["momentum"](net.parameters())
    graph = Step(net, optimizer, Late(optimizer, 3))
    graph(X, Y)
    exported = dynamo.export(graph)(X, Y)
    exported.save(tmp_path / "step.fg", steps=20)
    with pytest.raises(ProgramError, match=r"changes optimizers.0.param_groups.0.momentum late"):
        exported.save(tmp_path / "step.fg", steps=100)
    with pytest.raises(ValueError, match="steps is a positive number"):
        exported.save(tmp_path / "step.fg", steps=0)


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_a_step_with_a_grad_scaler(tmp_path, name):
    """An overflow in the loaded program is skipped, and its scale changes, as eager's do."""
    net = model()
    optimizer = OPTIMIZERS[name](net.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    graph = Step(net, optimizer)
    graph.set_grad_scaler(scaler)
    graph(X, Y)
    dynamo.export(graph)(X, Y).save(tmp_path / "step.fg")
    eager, eager_optimizer = copy.deepcopy((net, optimizer))
    other = torch.amp.GradScaler("cpu", growth_interval=2)
    other.load_state_dict(scaler.state_dict())
    program = dynamo.load(tmp_path / "step.fg", backend="aot_eager")
    for seed, x in enumerate([X, X, X * float("inf"), X, X]):
        torch.manual_seed(seed)
        program(x, Y)
        torch.manual_seed(seed)
        eager_optimizer.zero_grad()
        other.scale(nn.functional.cross_entropy(eager(x), Y)).backward()
        other.step(eager_optimizer)
        other.update()
        state = program.state_dict()
        assert state["grad_scaler._scale"].item() == other.get_scale()
        for key, tensor in eager.state_dict().items():
            torch.testing.assert_close(state[f"model.{key}"], tensor, rtol=1e-3, atol=1e-4)


def test_a_grad_scaler_of_a_foreign_optimizer_is_refused():
    class Foreign(torch.optim.SGD):
        pass

    net = model()
    graph = Step(net, Foreign(net.parameters(), lr=0.1))
    graph.set_grad_scaler(torch.amp.GradScaler("cpu"))
    with pytest.raises(
        GraphError, match="cannot be exported with its GradScaler: Foreign may keep"
    ):
        dynamo.export(graph)(X, Y)


def test_a_graph_without_optimizers(tmp_path):
    class Forward(dynamo.Graph):
        def __init__(self):
            super().__init__(backend="aot_eager")
            self.model = model().eval()

        def build(self, x, *, scale=1.0):
            return {"y": self.model(x) * scale}

    graph = Forward()
    with torch.no_grad():
        dynamo.export(graph)(X, scale=2.0).save(tmp_path / "forward.fg")
    program = dynamo.load(tmp_path / "forward.fg", backend="aot_eager")
    torch.testing.assert_close(program(X, scale=2.0)["y"], graph.model(X).detach() * 2)
    assert set(program.state_dict()) == set(graph.state_dict())
