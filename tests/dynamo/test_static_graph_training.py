"""Training through dynamo.Graph: step by step what the eager program leaves, in one graph."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.checkpoint import checkpoint

import dynamo
from backends.autograd import OpByOp
from dynamo.errors import GraphError

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
          data=None, model_class=Net, **options):  # fmt: skip
    """Run both programs side by side; returns the graph."""
    dynamo.reset()
    model, optimizers, schedulers = world(make, schedule, model_class)
    twin, others, their_schedulers = world(make, schedule, model_class)
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
    assert graph._graph.no_plan is None
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
    "SGD_fused_nesterov": optimizer(
        "SGD", lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1, fused=True, maximize=True
    ),
    "Adam_fused_amsgrad": optimizer(
        "Adam", lr=0.01, fused=True, amsgrad=True, maximize=True, weight_decay=0.1
    ),
    "AdamW_fused_tensor_betas": optimizer(
        "AdamW", lr=torch.tensor(0.01), betas=(torch.tensor(0.8), torch.tensor(0.95)), fused=True
    ),
    "Adam_foreach_amsgrad": optimizer("Adam", lr=0.01, foreach=True, amsgrad=True),
    "AdamW_fused": optimizer("AdamW", lr=0.01, fused=True, amsgrad=True),
    "Adagrad_fused_decay": optimizer(
        "Adagrad", lr=0.1, fused=True, lr_decay=0.1, weight_decay=0.1, maximize=True
    ),
    "RMSprop_foreach_centered": optimizer(
        "RMSprop", lr=0.01, foreach=True, centered=True, momentum=0.9, weight_decay=0.1
    ),
    "RMSprop_foreach_tensor_lr": optimizer(
        "RMSprop", lr=torch.tensor(0.01), foreach=True, centered=True
    ),
    "RMSprop_foreach_tensor_lr_momentum": optimizer(
        "RMSprop", lr=torch.tensor(0.01), foreach=True, momentum=0.9
    ),
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


DIFFERENTIABLE = ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop")
CAPTURABLE = ("Adam", "AdamW", "RMSprop")


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_differentiable_steps_are_refused_as_in_eager(name):
    """Steps that are differentiated write leaves, which eager refuses."""
    make = optimizer(name, lr=0.01, differentiable=True)
    model, optimizers, _ = world(make)
    with pytest.raises(RuntimeError) as expected:
        eager(model, optimizers, [], plain, next(batches(1)))
    twin, others, _ = world(make)
    before = {key: value.clone() for key, value in twin.state_dict().items()}
    with pytest.raises(RuntimeError, match=re.escape(str(expected.value))):
        Train(twin, others)(*next(batches(1)))
    for key, parameter in twin.named_parameters():
        assert torch.equal(parameter, before[key])


@pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])
@pytest.mark.parametrize("name", CAPTURABLE)
def test_capturable_steps(name, foreach):
    """Eager refuses the option on CPUs, but not while torch.compiler.is_compiling(): the numbers
    are those without the option.
    """
    model, optimizers, _ = world(optimizer(name, lr=0.01))
    twin, others, _ = world(optimizer(name, lr=0.01, capturable=True, foreach=foreach))
    with pytest.raises(AssertionError, match="If capturable=True"):
        eager(*world(optimizer(name, lr=0.01, capturable=True))[:2], [], plain, next(batches(1)))
    graph = Train(twin, others)
    for seed, batch in enumerate(batches()):
        torch.manual_seed(seed)
        expected = eager(model, optimizers, [], plain, batch)
        torch.manual_seed(seed)
        torch.testing.assert_close(graph(*batch), expected, rtol=2e-5, atol=2e-5)
    compare(model, twin, [], [], 2e-5)


LEAVE_SOME = ("some_parameters", "clipped_by_maximum")
SCHEDULES = {
    "step": [lambda optimizer: lr_scheduler.StepLR(optimizer, 3, 0.5)],
    "cosine": [lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 5)],
    "one_cycle": [lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)],
    "lambda": [lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch)],
    "chained": [
        lambda optimizer: lr_scheduler.ChainedScheduler(
            [
                lr_scheduler.ConstantLR(optimizer, 0.5, 2),
                lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, step_size_up=2),
            ]
        )
    ],
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
@pytest.mark.parametrize("kind", ["SGD_momentum", "Adam", "Adam_fused", "SGD_fused_nesterov"])
def test_scheduled_rates_compile_nothing_anew(kind, name):
    """Fused steps read their numbers: where these vary, their arithmetic takes their place."""
    graph = check(OPTIMIZERS[kind], SCHEDULES[name], data=list(batches(9)))
    assert len(graph._graph.context.records) == 2  # without state and with it


@pytest.mark.parametrize("kind", ["SGD_nesterov", "Adam", "Adam_foreach_amsgrad", "AdamW_fused"])
def test_cycled_momentum_is_one_plan(kind):
    check(OPTIMIZERS[kind], SCHEDULES["one_cycle"], backend="inductor", tolerance=1e-4)


def test_rates_that_a_metric_lowers():
    """ReduceLROnPlateau, and other changes between calls: one more graph."""
    model, optimizers, _ = world(OPTIMIZERS["Adam_fused"])
    twin, others, _ = world(OPTIMIZERS["Adam_fused"])
    schedulers = [
        lr_scheduler.ReduceLROnPlateau(one, factor=0.7, patience=0, threshold=1e9)
        for (one,) in (optimizers, others)
    ]
    graph = Train(twin, others)
    for seed, batch in enumerate(batches(6)):
        torch.manual_seed(seed)
        expected = eager(model, optimizers, [], plain, batch)
        torch.manual_seed(seed)
        found = graph(*batch)
        for scheduler, loss in zip(schedulers, (expected, found)):
            scheduler.step(float(loss))
        compare(model, twin, optimizers, others, 2e-5)
    assert others[0].param_groups[0]["lr"] < 0.003
    assert len(graph._graph.context.records) <= 3


def test_profiled_steps_are_the_same_graph():
    """The optimizer's named range, which is no break in a graph that cannot break."""
    graph = check(OPTIMIZERS["Adam"])
    records = len(graph._graph.context.records)
    with torch.profiler.profile() as profile:
        graph(*next(batches(1)))
    assert len(graph._graph.context.records) == records and profile.events()
    dynamo.reset()
    with torch.profiler.profile():
        check(OPTIMIZERS["Adam"])


# -- settings, each beside the eager program of its docstring --------------------------------------
def in_parts(model, x, y):
    losses = []
    for part, wanted in zip(x.chunk(3), y.chunk(3)):
        loss = loss_function(model(part), wanted)
        (loss / 3).backward()
        losses.append(loss)
    return torch.stack(losses).mean()


def mixed(model, x, y):
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_function(model(x), y)
        loss.backward()
    return loss


def mixed_in_parts(model, x, y):
    losses = []
    for part, wanted in zip(x.chunk(3), y.chunk(3)):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_function(model(part), wanted)
        (loss / 3).backward()
        losses.append(loss)
    return torch.stack(losses).mean()


def recomputed(model, x, y):
    y_pred = checkpoint(model.last, checkpoint(model.first, x, use_reentrant=False).tanh(),
                        use_reentrant=False)  # fmt: skip
    loss = loss_function(y_pred, y)
    loss.backward()
    return loss


class Plain(Net):
    """Without a buffer that a second forward would write again."""

    def forward(self, x):
        return self.last(self.first(x).tanh())


def accumulate(graph):
    graph.config.set_gradient_accumulation_steps(3)


def checkpoint_layers(graph):
    graph.config.set_activation_checkpointing(graph.model.first, graph.model.last)


def both(graph):
    accumulate(graph)
    graph.config.enable_amp()


# name -> (eager program, what the graph is told, model, tolerance, the text of its config)
SETTINGS = {
    "accumulation": (in_parts, accumulate, Net, 2e-5, "gradient_accumulation_steps=3, "),
    "amp": (mixed, lambda graph: graph.config.enable_amp(), Net, 2e-2, "amp=torch.bfloat16, "),
    "amp_in_parts": (mixed_in_parts, both, Net, 2e-2, "amp=torch.bfloat16, gradient_accumula"),
    "checkpointing": (recomputed, checkpoint_layers, Plain, 2e-5, "activation_checkpointing=2, "),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_setting(name):
    program, prepare, model_class, tolerance, text = SETTINGS[name]
    make = optimizer("SGD", lr=0.1, momentum=0.9)
    graph = check(make, (), program, prepare, tolerance, model_class=model_class)
    assert f"GraphConfig(training=True, {text}" in str(graph)


def test_accumulation_puts_results_together():
    class Parts(dynamo.Graph):
        def build(self, x, scale, name="n"):
            return {"x": x * scale, "sum": x.sum(), "count": torch.tensor(len(x)), name: name}

    graph = Parts(backend="aot_eager")
    graph.config.set_gradient_accumulation_steps(2)
    x = torch.arange(8.0).view(4, 2)
    found = graph(x, torch.tensor(2.0))
    assert torch.equal(found["x"], x * 2) and found["n"] == "n"
    assert found["sum"].item() == 14 and found["count"].item() == 4
    other = Parts(backend="aot_eager")
    other.config.set_gradient_accumulation_steps(2)
    with pytest.raises(GraphError, match=r"shape \(3, 2\) cannot be divided into 2"):
        other(x[:3], torch.tensor(2.0))


def scaled_steps(make, scalers, data, model_class=Net, **options):
    """Train with the one scaler eagerly and with the other through a Graph; returns the graph."""
    dynamo.reset()
    model, optimizers, _ = world(make, model_class=model_class)
    twin, others, _ = world(make, model_class=model_class)
    graph = Train(twin, others, **options)
    graph.set_grad_scaler(scalers[1])
    for seed, (x, y) in enumerate(data):
        torch.manual_seed(seed)
        for one in optimizers:
            one.zero_grad()
        loss = loss_function(model(x), y)
        scalers[0].scale(loss).backward()
        for one in optimizers:
            for group in one.param_groups:
                if "clip_grad_max_norm" in group:
                    scalers[0].unscale_(one)
                    nn.utils.clip_grad_norm_(group["params"], group["clip_grad_max_norm"])
            scalers[0].step(one)
        scalers[0].update()
        for one in optimizers:
            one.zero_grad()
        torch.manual_seed(seed)
        torch.testing.assert_close(graph(x, y), loss.detach(), rtol=2e-5, atol=2e-5)
        compare(model, twin, optimizers, others, 2e-5)
        assert scalers[0].state_dict() == scalers[1].state_dict()
    records = graph._graph.context.records
    assert all(len(record.graphs) == 1 and not record.breaks for record in records)
    assert graph.state_dict()["grad_scaler"] == scalers[0].state_dict()
    return graph


def scalers_of(**settings):
    return [torch.amp.GradScaler("cpu", **{"growth_interval": 2, **settings}) for _ in "ab"]


@pytest.mark.parametrize("first_scale", [64.0, 1e38], ids=["fits", "overflows"])
@pytest.mark.parametrize(
    "kind", ["SGD_momentum", "Adam", "clipped", "Adam_fused", "RMSprop_centered", "Adagrad_foreach"]
)
def test_grad_scaler(kind, first_scale):
    """A step whose gradients overflow is skipped, and the scale changes, as in eager; in one plan.
    State that a skipped first step makes is not there.
    """
    data = [(x * 100, y) for x, y in batches()]
    graph = scaled_steps(OPTIMIZERS[kind], scalers_of(init_scale=first_scale), data)
    assert len(graph._graph.context.records) <= 3 and "(PLAN" not in str(graph)


class Steep(Net):
    """The gradient of one bias is as large as the inputs."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Identity()
        self.steep = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        nothing = (self.steep - self.steep.detach()) * x.amax()
        return super().forward(x.clamp(-3, 3)) + nothing * torch.eye(3)[0]


def test_grad_scaler_takes_each_optimizers_step_by_its_own_gradients():
    def make(model):
        return [
            torch.optim.Adam([model.steep], lr=0.1),
            torch.optim.AdamW([*model.first.parameters(), *model.last.parameters()], lr=0.01),
        ]

    data = list(batches(7))
    data[3] = (torch.full_like(data[3][0], 1e37), data[3][1])
    scalers = scalers_of(init_scale=1e5, growth_factor=3.3, backoff_factor=0.3)
    graph = scaled_steps(make, scalers, data, model_class=Steep)
    steps = [next(iter(one.state.values()))["step"].item() for one in graph._graph.optimizers]
    assert steps == [6, 7]


def everything(graph):
    both(graph)
    graph.config.set_grad_scaler(torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2))


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_every_setting_and_a_schedule_are_one_plan(backend):
    """Mixed precision, a GradScaler, accumulation, clipping, a scheduler."""
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)

    def backward(model, x, y):
        losses = []
        for part, wanted in zip(x.chunk(3), y.chunk(3)):
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_function(model(part), wanted)
            scaler.scale(loss / 3).backward()
            losses.append(loss)
        for parameter in model.parameters():
            parameter.grad.div_(scaler.get_scale())
        scaler.update(64.0)
        return torch.stack(losses).mean()

    make = optimizer("AdamW", lr=0.01, weight_decay=0.1)

    def clipped(model):
        made = make(model)
        made.param_groups[0]["clip_grad_max_norm"] = 0.1
        return made

    graph = check(clipped, SCHEDULES["cosine"], backward, everything, 2e-2, backend=backend)
    assert "amp=torch.bfloat16, grad_scaler=True, gradient_accumulation_steps=3, " in str(graph)
    assert graph.config.grad_scaler.get_scale() == 256.0


def test_a_disabled_grad_scaler_changes_nothing():
    graph = scaled_steps(OPTIMIZERS["Adam"], scalers_of(enabled=False), list(batches(2)))
    assert graph._graph.no_plan is None


class Foreign(torch.optim.SGD):
    """Counts its steps in Python."""

    def step(self, closure=None):
        self.steps = getattr(self, "steps", 0) + 1
        return super().step(closure)


def test_grad_scaler_of_other_optimizers_is_a_program_of_its_own(capsys):
    def make(model):
        return Foreign(model.parameters(), lr=0.1, momentum=0.9)

    data = [(x * 100, y) for x, y in batches(6)]
    with pytest.warns(RuntimeWarning, match=r"Train_\d+ is not one plan: the GradScaler's update"):
        graph = scaled_steps(make, scalers_of(init_scale=1e38), data)
    assert "(PLAN:none:the GradScaler's update is a program of its own: Foreign" in str(graph)
    assert 0 < graph._graph.optimizers[0].steps < 6


def test_step_hooks_are_not_called_for_skipped_steps():
    """A hook that is registered between calls moves the update out of the plan."""
    model, optimizers, _ = world(OPTIMIZERS["SGD"])
    graph = Train(model, optimizers)
    (scaler, _) = scalers_of(init_scale=1e38)
    graph.set_grad_scaler(scaler)
    x, y = next(batches(1))
    graph(x, y)
    calls = []
    optimizers[0].register_step_post_hook(lambda *_: calls.append(scaler.get_scale()))
    with pytest.warns(RuntimeWarning, match="SGD has step hooks"):
        graph(x * 1e4, y)
    assert not calls
    scaler.update(64.0)
    graph(x, y)
    assert calls == [64.0]


def test_a_graph_that_is_no_plan_says_so(capsys):
    def backend(gm, example_inputs):
        return OpByOp(gm, "autograd has to watch", autograd=True)

    model, optimizers, _ = world(OPTIMIZERS["SGD"])
    graph = Train(model, optimizers, backend=backend)
    graph.debug(0)
    with pytest.warns(RuntimeWarning, match="is not one plan: autograd has to watch") as caught:
        for batch in batches(2):
            graph(*batch)
    assert len(caught) == 1
    assert f"(GRAPH:{graph.name}:Train) not one plan: autograd" in capsys.readouterr().out
    assert "(PLAN:none:autograd has to watch)" in str(graph)


# -- parts of a model, and several graphs ---------------------------------------------------------
def test_frozen_parameters():
    def make(model):
        model.first.requires_grad_(False)
        return torch.optim.AdamW(model.parameters(), lr=0.01)

    graph = check(make)
    assert graph.model.first.weight not in graph._graph.optimizers[0].state


class Generate(dynamo.Graph):
    def __init__(self, generator, judge, optimizer):
        super().__init__(backend="aot_eager")
        self.generator, self.judge = generator, judge
        self.add_optimizer(optimizer)

    def build(self, noise):
        fake = self.generator(noise)
        loss = nn.functional.softplus(-self.judge(fake)).mean()
        loss.backward()
        return loss, fake


class Judge(dynamo.Graph):
    def __init__(self, judge, optimizer):
        super().__init__(backend="aot_eager")
        self.judge = judge
        self.add_optimizer(optimizer)

    def build(self, real, fake):
        loss = nn.functional.softplus(-self.judge(real)).mean()
        loss = loss + nn.functional.softplus(self.judge(fake)).mean()
        loss.backward()
        return loss


def adversaries():
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
    judge = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    make = optimizer("Adam", lr=0.01, betas=(0.5, 0.9))
    return generator, judge, [make(generator), make(judge)]


def test_adversaries_share_modules():
    generator, judge, (ours, theirs) = adversaries()
    g, j, (one, other) = adversaries()
    generate, discern = Generate(generator, judge, ours), Judge(judge, theirs)
    for x, _ in batches(6):
        noise = x[:, :4]
        one.zero_grad()
        fake = g(noise)
        expected = nn.functional.softplus(-j(fake)).mean()
        expected.backward()
        one.step()
        loss, made = generate(noise)
        torch.testing.assert_close((loss, made), (expected.detach(), fake.detach()))
        other.zero_grad()
        expected = nn.functional.softplus(-j(x)).mean()
        expected = expected + nn.functional.softplus(j(fake.detach())).mean()
        expected.backward()
        other.step()
        torch.testing.assert_close(discern(x, made), expected.detach())
        torch.testing.assert_close(generator.state_dict(), g.state_dict())
        torch.testing.assert_close(judge.state_dict(), j.state_dict())
    assert all(len(graph._graph.context.records) <= 3 for graph in (generate, discern))


def test_training_goes_on_from_a_state_dict(tmp_path):
    """In another graph, from a file, after some steps: as if nothing had come between."""
    dynamo.reset()
    make, schedule = OPTIMIZERS["Adam"], SCHEDULES["cosine"]
    model, optimizers, schedulers = world(make, schedule)
    first = Train(*world(make, schedule))
    data = list(batches(6))
    for seed, batch in enumerate(data):
        if seed == 3:
            torch.save(first.state_dict(), tmp_path / "state")
            first = Train(*world(make, schedule))
            first(*data[0])  # built, and changed, before it is loaded
            first.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
        torch.manual_seed(seed)
        eager(model, optimizers, schedulers, plain, batch)
        torch.manual_seed(seed)
        first(*batch)
    compare(model, first.model, optimizers, first._graph.optimizers, 2e-5)
    with pytest.raises(RuntimeError, match="has no optimizers.0, lr_schedulers.0"):
        first.load_state_dict(model.state_dict())


def test_an_optimizer_added_later_builds_anew():
    model, (made,), _ = world(OPTIMIZERS["SGD"])

    class Late(dynamo.Graph):
        def __init__(self):
            super().__init__(backend="aot_eager")
            self.model = model

        def build(self, x, y):
            loss = loss_function(self.model(x), y)
            if loss.requires_grad:
                loss.backward()
            return loss

    graph = Late()
    x, y = next(batches(1))
    graph(x, y)
    before = model.last.weight.clone()
    assert model.last.weight.grad is not None
    graph.add_optimizer(made)
    graph(x, y)
    assert not torch.equal(before, model.last.weight) and model.last.weight.grad is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SGD_momentum", "Adam", "RMSprop_centered", "two", "clipped"])
def test_default_backend(name):
    graph = check(OPTIMIZERS[name], SCHEDULES["cosine"], backend="inductor", tolerance=1e-4)
    reports = [graph.report for record in graph._graph.context.records for graph in record.graphs]
    assert not [n for report in reports for n in report.get("notes", ()) if "op by op" in n]
