"""Functions whose backward has effects, or reads what may change: as in eager, in order."""

import math

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dynamo

BACKENDS = ["inductor", "eager"]
LOG: list[object] = []
COUNTS = torch.zeros(2)


class Logged(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        LOG.append("backward")
        return gradient * 3


class Printed(Logged):
    @staticmethod
    def backward(ctx, gradient):
        print("backward")
        return gradient * 3


class Counted(Logged):
    calls = 0

    @staticmethod
    def backward(ctx, gradient):
        Counted.calls += 1
        return gradient * 3


class Written(Logged):
    @staticmethod
    def backward(ctx, gradient):
        COUNTS.add_(1)
        return gradient * 3


class Kept(torch.autograd.Function):
    """backward reads the argument `kept` again, and writes it."""

    @staticmethod
    def forward(ctx, x, kept):
        ctx.kept = kept
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return read_and_write(ctx.kept, gradient), None


class Read(Kept):
    @staticmethod
    def backward(ctx, gradient):
        return gradient * first(ctx.kept), None


class Holder:
    def __init__(self, number):
        self.number = number


def first(kept):
    if isinstance(kept, (list, tuple)):
        return first(kept[0])
    return kept["number"] if isinstance(kept, dict) else getattr(kept, "number", kept)


def read_and_write(kept, gradient):
    if isinstance(kept, torch.Tensor):
        return gradient * kept.add_(1).sum()
    target = kept[0] if isinstance(kept, tuple) else kept
    target.append(float(gradient.sum()))
    return gradient * len(target)


def leaf():
    return torch.arange(3.0).requires_grad_()


def in_frame(function):
    def step(x):
        loss = function.apply(x).sum()
        LOG.append("before")
        print("before")
        loss.backward()
        LOG.append("after")
        print("after")
        return loss.detach()

    return step


def by_grad(function):
    def step(x):
        loss = function.apply(x).sum()
        LOG.append("before")
        print("before")
        (gradient,) = torch.autograd.grad(loss, x)
        LOG.append("after")
        return gradient + 1

    return step


def by_transform(function):
    def step(x):
        LOG.append("before")
        gradient = torch.func.grad(lambda x: function.apply(x).sum())(x)
        LOG.append("after")
        return gradient

    return step


def by_pullback(function):
    def step(x):
        _, pullback = torch.func.vjp(lambda x: function.apply(x), x)
        LOG.append("before")
        return pullback(x)[0]

    return step


def checkpointed(function):
    def step(x):
        region = checkpoint(lambda x: function.apply(x.sin()).cos(), x, use_reentrant=False)
        LOG.append("before")
        print("before")
        return region.sum()

    return step


def seen(call, capsys):
    """What three calls show, those that can be are differentiated after each."""
    LOG.clear()
    COUNTS.zero_()
    Counted.calls = 0
    capsys.readouterr()
    x = leaf()
    results = []
    for _ in range(3):
        result = call(x)
        if result.requires_grad:
            result.sum().backward()
        results.append((result.tolist(), None if x.grad is None else x.grad.tolist()))
    return results, list(LOG), COUNTS.tolist(), Counted.calls, capsys.readouterr().out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [Logged, Printed, Counted, Written])
@pytest.mark.parametrize("around", [in_frame, by_grad, by_transform, by_pullback, checkpointed])
def test_effects_of_a_backward(around, function, backend, capsys):
    if function is Written and around in (by_transform, by_pullback):
        return  # torch refuses the write
    step = around(function)
    wanted = seen(step, capsys)
    assert seen(dynamo.compile(step, backend=backend), capsys) == wanted


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [list, lambda: ([], 3), lambda: torch.ones(2)])
def test_a_backward_writes_its_argument(make, backend):
    def step(x, kept):
        return Kept.apply(x, kept).sum()

    results = []
    for call in (step, dynamo.compile(step, backend=backend)):
        x, kept = leaf(), make()
        for _ in range(2):
            call(x, kept).backward()
        inside = kept[0] if isinstance(kept, tuple) else kept
        results.append((list(map(float, inside)), x.grad.tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["list", "nested", "dict", "object"])
def test_a_backward_reads_its_argument_as_it_is_then(kind, backend):
    def step(x, kept):
        return Read.apply(x, kept).sum()

    made = {
        "list": lambda: [2.0],
        "nested": lambda: ([2.0], 1),
        "dict": lambda: {"number": 2.0},
        "object": lambda: Holder(2.0),
    }[kind]
    results = []
    for call in (step, dynamo.compile(step, backend=backend)):
        x, kept = leaf(), made()
        loss = call(x, kept)
        changed = kept[0] if kind == "nested" else kept
        if kind == "dict":
            changed["number"] = 5.0
        elif kind == "object":
            changed.number = 5.0
        else:
            changed[0] = 5.0
        loss.backward()
        results.append(x.grad.tolist())
    assert results[0] == results[1] == [5.0, 5.0, 5.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_list_that_the_frame_makes_and_changes(backend):
    def step(x):
        numbers = [2.0]
        loss = Read.apply(x, numbers).sum()
        numbers[0] = 5.0
        loss.backward()
        return numbers

    x = leaf()
    assert dynamo.compile(step, backend=backend)(x) == [5.0]
    assert x.grad.tolist() == [5.0, 5.0, 5.0]


class Surrogate(torch.autograd.Function):
    """A step, whose slope is that of a smooth function."""

    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return (x > 0).float()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        slope = ctx.alpha / (1 + (torch.pi / 2 * ctx.alpha * x).pow_(2))
        return slope * gradient.clone() * math.tau, None


def test_a_backward_reads_constants_of_modules():
    def step(x):
        spikes = [Surrogate.apply(x * k - 0.5, 2.0) for k in (0.4, 0.8)]
        sum(s.square().sum() for s in spikes).backward()
        return spikes

    results = []
    for call in (step, dynamo.compile(step, backend="eager", fullgraph=True)):
        x = leaf()
        results.append(([s.tolist() for s in call(x)], x.grad.tolist()))
    assert results[0] == results[1]
