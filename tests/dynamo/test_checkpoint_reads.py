"""State that the function of torch.utils.checkpoint reads, changed between forward and backward:
eager's backward computes with the new state. The compiled backward refuses, and the frame leaves
its checkpoints to torch from then on.
"""

from __future__ import annotations

import copy
import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

import dynamo

BACKENDS = ["eager", "aot_eager", "inductor"]
FACTOR = 2.0


class Program:
    """A function with a checkpoint, and a change of what it reads."""

    reentrant = False
    tensors = False  # whether tensors alone change

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.state = SimpleNamespace(k=2.0, numbers=[1.0, 2.0], w=torch.full((3,), 2.0))
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def body(self, x):
        return (x.sin() * self.state.k).sin()

    def __call__(self, x):
        return checkpoint(self.body, x, use_reentrant=self.reentrant).sum()

    def change(self, number):
        self.state.k = 3.0 + number


class Attribute(Program):
    pass


class Reentrant(Program):
    reentrant = True


class Global(Program):
    def body(self, x):
        return (x.sin() * FACTOR).sin()

    def change(self, number):
        global FACTOR
        FACTOR = 3.0 + number


class Closure(Program):
    def __init__(self):
        super().__init__()
        k = 2.0

        def body(x):
            return (x.sin() * k).sin()

        def change(number):
            nonlocal k
            k = 3.0 + number

        self.body, self.change = body, change


class GrowingList(Program):
    def body(self, x):
        return (x.sin() * sum(self.state.numbers)).sin()

    def change(self, number):
        self.state.numbers.append(1.0)


class Rebound(Program):
    def body(self, x):
        return (x.sin() * self.state.w).sin()

    def change(self, number):
        self.state.w = torch.full((3,), 3.0 + number)


class Written(Rebound):
    def change(self, number):
        self.state.w.add_(1)


class Parameter(Program):
    def body(self, x):
        return self.layers(x.sin())

    def change(self, number):
        with torch.no_grad():
            self.layers[0].weight.mul_(2)


class Data(Parameter):
    def change(self, number):
        self.layers[0].bias.data = self.layers[0].bias.data + 1


class WrittenByData(Parameter):
    def change(self, number):
        self.layers[0].weight.data.mul_(2)


class LargeWrittenByData(Rebound):
    def __init__(self):
        super().__init__()
        self.state.w = torch.full((100, 1, 3), 2.0)

    def change(self, number):
        self.state.w.data.add_(1)


class TurnedWrittenByData(LargeWrittenByData):
    def __init__(self):
        super().__init__()
        self.state.w = torch.full((3, 1, 100), 2.0).transpose(0, 2)


class GapsWrittenByData(LargeWrittenByData):
    def __init__(self):
        super().__init__()
        self.state.w = torch.full((100, 1, 6), 2.0)[..., ::2]


class Swapped(Parameter):
    def change(self, number):
        self.layers[1] = [nn.Sigmoid(), nn.SiLU(), nn.GELU()][number]


class Lifted(Program):
    def __call__(self, x):
        h = self.state.w * 2
        self.h = h
        return checkpoint(lambda y: (y.sin() * h).sin(), x, use_reentrant=False).sum()

    def change(self, number):
        self.h.add_(1)


class BehindBreak(Program):
    def __call__(self, x):
        y = checkpoint(self.body, x, use_reentrant=False)
        dynamo.graph_break()
        return y.sum() * 2


PROGRAMS = [
    *(Attribute, Reentrant, Global, Closure, GrowingList, Rebound, Written, Parameter, Data),
    *(WrittenByData, LargeWrittenByData, TurnedWrittenByData, GapsWrittenByData),
    *(Swapped, Lifted, BehindBreak),
]


def gradients(program, run, number):
    x = torch.arange(1.0, 7.0).view(2, 3).requires_grad_()
    program.layers.zero_grad()
    loss = run(x)
    program.change(number)
    loss.backward()
    return [x.grad, *(p.grad for p in program.layers.parameters())]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", PROGRAMS)
def test_changed_before_backward(kind, backend):
    global FACTOR
    FACTOR = 2.0
    program = kind()
    expected = [gradients(program, program, number) for number in range(3)]
    FACTOR = 2.0
    program = kind()
    run = dynamo.compile(lambda x: program(x), backend=backend)
    with pytest.raises(CheckpointError, match="was changed after its call"):
        gradients(program, run, 0)
    for number in (1, 2):
        found = gradients(program, run, number)
        torch.testing.assert_close(found, expected[number])


class Unchanged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
        self.calls, self.scale, self.log = 0, 1.5, []

    def block(self, layer, x):
        return layer(x).tanh() * self.scale

    def forward(self, x):
        self.calls += 1
        self.log.append(self.calls)
        for layer in self.layers:
            x = checkpoint(self.block, layer, x, use_reentrant=False)
        self.last = x
        return x.sum()


@pytest.mark.parametrize("backend", BACKENDS)
def test_unchanged_is_one_graph(backend):
    torch.manual_seed(0)
    module = Unchanged()
    x = torch.randn(2, 3)
    (module(x) + module(x)).backward()
    expected = [p.grad for p in module.parameters()]
    module.zero_grad()
    run = dynamo.compile(module, backend=backend, fullgraph=True)
    loss = run(x) + run(x)
    module.other = 3
    loss.backward()
    torch.testing.assert_close([p.grad for p in module.parameters()], expected)


class Extended(Unchanged):
    def forward(self, x):
        x = checkpoint(self.block, self.layers[0], x, use_reentrant=False)
        self.extra = nn.Parameter(x.detach()[0])
        return x.sum()


def test_module_that_gets_a_parameter_behind_the_checkpoint():
    torch.manual_seed(0)
    module = Extended()
    x = torch.randn(2, 3)
    module(x).backward()
    expected = [p.grad for p in module.parameters()]
    module.zero_grad()
    del module.extra
    dynamo.compile(module, backend="aot_eager")(x).backward()
    torch.testing.assert_close([p.grad for p in module.parameters()], expected)


@pytest.mark.parametrize("kind", ["method", "function"])
def test_function_that_the_checkpoint_alone_holds(kind):
    def run(function, x):
        return checkpoint(function, x, use_reentrant=False).sum()

    program = Attribute()
    call = dynamo.compile(run, backend="aot_eager")
    function = program.body if kind == "method" else lambda x: program.body(x) * 2
    loss = call(function, torch.ones(3, requires_grad=True))
    del function
    program.state.k = 5.0
    with pytest.raises(CheckpointError):
        loss.backward()


def test_restored_state_passes():
    program = Attribute()
    run = dynamo.compile(lambda x: program(x), backend="aot_eager", fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    loss = run(x)
    program.state.k = 5.0
    program.state.k = 2.0
    loss.backward()
    assert x.grad is not None


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_written_argument_is_autograds_error(reentrant, is_compiled):
    def f(x, z):
        return checkpoint(lambda y, z: (y.sin() + z).sin(), x, z, use_reentrant=reentrant).sum()

    run = dynamo.compile(f, backend="aot_eager") if is_compiled else f
    x, z = torch.ones(3, requires_grad=True), torch.ones(3)
    loss = run(x, z)
    z.add_(1)
    with pytest.raises(RuntimeError, match="at version 1; expected version 0") as caught:
        loss.backward()
    assert not isinstance(caught.value, CheckpointError)


def test_check_does_not_keep_the_module():
    module = Unchanged()
    run = dynamo.compile(module.forward, backend="aot_eager")
    run(torch.randn(2, 3)).backward()
    gone = weakref.ref(module)
    dynamo.reset()
    del module, run
    gc.collect()
    assert gone() is None


class Added(Rebound):
    def body(self, x):
        return (x.sin() + self.state.w).sin()


def test_tensors_that_tell_no_version():
    with torch.inference_mode():
        w = torch.full((3,), 2.0)
    program = Added()
    program.state.w = w
    run = dynamo.compile(lambda x: program(x), backend="aot_eager")
    x = torch.ones(3, requires_grad=True)
    run(x).backward()
    expected = torch.ones(3, requires_grad=True)
    program(expected).backward()
    torch.testing.assert_close(x.grad, expected.grad)
    loss = run(x)
    program.change(0)
    with pytest.raises(CheckpointError):
        loss.backward()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("norm", [nn.BatchNorm1d(3), nn.BatchNorm1d(3, momentum=None)])
def test_statistics_are_written_by_each_call(norm, reentrant):
    """Two calls before one backward, as of a discriminator: the second writes the statistics."""

    def gradients(compiled):
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(3, 3), copy.deepcopy(norm), nn.Tanh())

        def f(x):
            return checkpoint(layers, x, use_reentrant=reentrant).square().sum()

        f = dynamo.compile(f, backend="aot_eager") if compiled else f
        for _ in range(2):
            batches = [torch.randn(4, 3, requires_grad=True) for _ in range(2)]
            sum(map(f, batches)).backward()
        return [p.grad for p in layers.parameters()]

    torch.testing.assert_close(gradients(True), gradients(False))


def test_statistics_that_are_read_are_compared():
    norm = nn.BatchNorm1d(3).eval()
    f = dynamo.compile(lambda x: checkpoint(norm, x, use_reentrant=False).sum(), backend="eager")
    result = f(torch.randn(4, 3, requires_grad=True))
    norm.running_var.fill_(4.0)
    with pytest.raises(CheckpointError, match="a tensor was written"):
        result.backward()
