"""torch.manual_seed and torch.seed in captured frames: behind and between random numbers."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.nn import functional as F

import dynamo
from backends.aot_eager import aot_eager
from backends.eager import eager
from tests.dynamo.branch_support import same
from tests.dynamo.dynamic_support import Counting


class Settings:
    seed = 3


def between_draws(x, w):
    y = F.dropout(x, 0.5)
    torch.manual_seed(7)
    z = torch.randn(4)
    torch.manual_seed(7)
    return y * w + z * torch.rand(4)


def of_a_setting(x, w):
    y = F.dropout(x * w, 0.5)
    torch.manual_seed(Settings.seed)
    return F.dropout(y, 0.5) + torch.rand(4)


def twice(x, w):
    torch.manual_seed(Settings.seed)
    y = x * w * torch.rand(4)
    torch.manual_seed(Settings.seed + 1)
    return y * F.dropout(x, 0.5)


def in_front_of_a_module(x, w):
    torch.manual_seed(2)
    return torch.nn.Linear(4, 4)(x * w)


def unused_draws(x, w):
    torch.randn(3)
    torch.manual_seed(11)
    torch.randn(5)
    return x * w


def drawn_from_what_is_returned(x, w):
    y = torch.rand(4) * w
    generator = torch.manual_seed(5)
    return y + torch.rand(4, generator=generator) * x


def checked(x, w):
    """Raises in the last call, between the seeds."""
    y = F.dropout(x * w, 0.5)
    torch.manual_seed(1)
    y = F.dropout(y, 0.5)
    if (x > 100).any():
        raise ValueError
    torch.manual_seed(2)
    return y * torch.rand(4)


def raises_before_the_seed(x, w):
    y = F.dropout(x * w, 0.5)
    if (x > 100).any():
        raise ValueError
    torch.manual_seed(1)
    return y * torch.rand(4)


def raises_behind_the_first(x, w):
    torch.manual_seed(Settings.seed)
    if (x > 100).any():
        raise ValueError
    return x * w * torch.rand(4)


class Reseeded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        torch.manual_seed(4)
        ctx.save_for_backward(x)
        return x * torch.rand(4)

    @staticmethod
    def backward(ctx, grad):
        torch.manual_seed(4)
        return grad * torch.rand(4)


def in_an_autograd_function(x, w):
    """The backward seeds in the backward."""
    y = F.dropout(x * w, 0.5)
    return Reseeded.apply(y) * torch.rand(4)


def in_a_branch(x, w):
    y = F.dropout(x * w, 0.5)
    if x.sum() > 20:
        torch.manual_seed(4)
        y = y * 2
    return y + torch.rand(4)


def given_a_bool(x, w):
    y = torch.rand(4) * w
    torch.manual_seed(True)
    return y * torch.rand(4) * x


ONE_GRAPH = [between_draws, of_a_setting, twice, in_front_of_a_module, unused_draws]
ONE_GRAPH += [checked, raises_before_the_seed, raises_behind_the_first]
OTHERS = [drawn_from_what_is_returned, in_an_autograd_function, in_a_branch, given_a_bool]


def outcome(function, number):
    Settings.seed = number
    torch.manual_seed(100 + number)
    x, w = torch.arange(1.0, 5.0), torch.ones(4, requires_grad=True)
    if number == 5:
        x = x * 1000
    try:
        result = function(x, w)
    except ValueError:
        return [torch.rand(3)]
    drawn = torch.rand(3)
    result.sum().backward()
    return [result.detach(), w.grad, drawn, torch.rand(3), torch.tensor(torch.initial_seed())]


@pytest.mark.parametrize("backend", [eager, aot_eager, "inductor"])
@pytest.mark.parametrize("function", [*ONE_GRAPH, *OTHERS], ids=lambda f: f.__name__)
def test_program(function, backend):
    compiled = dynamo.compile(function, backend=backend)
    for number in range(6):
        same(outcome(compiled, number), outcome(function, number))


@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda f: f.__name__)
def test_one_graph(function):
    counting = Counting(eager)
    compiled = dynamo.compile(function, backend=counting, fullgraph=True)
    for number in range(4):
        same(outcome(compiled, number), outcome(function, number))
    assert len(counting.graphs) == 1


def test_capture_leaves_the_generator_alone():
    compiled = dynamo.compile(between_draws, backend="eager")
    torch.manual_seed(0)
    with pytest.raises(TypeError):
        compiled(torch.ones(4), None)
    torch.manual_seed(0)
    with pytest.raises(TypeError):
        between_draws(torch.ones(4), None)
    expected = torch.rand(2)
    torch.manual_seed(0)
    with pytest.raises(TypeError):
        compiled(torch.ones(4), None)
    assert torch.equal(torch.rand(2), expected)


def of_63_bits(x):
    y = F.dropout(x, 0.5)
    torch.manual_seed(2**63 - 1)
    return y * torch.rand(4)


def of_64_bits(x):
    y = F.dropout(x, 0.5)
    torch.manual_seed(2**64 - 1)
    return y * torch.rand(4)


def of_65_bits(x):
    y = F.dropout(x, 0.5)
    torch.manual_seed(2**64)
    return y * torch.rand(4)


@pytest.mark.parametrize("seeded", [of_63_bits, of_64_bits, of_65_bits])
def test_large_seeds(seeded):
    """torch takes 64 bits, and raises for more."""
    outcomes = []
    for run in (seeded, dynamo.compile(seeded, backend="eager")):
        torch.manual_seed(1)
        try:
            outcomes.append(([run(torch.ones(4))], torch.initial_seed()))
        except ValueError as error:
            outcomes.append(([], str(error)))
    same(outcomes[1][0], outcomes[0][0])
    assert outcomes[1][1] == outcomes[0][1]


def behind_a_lock(x):
    """torch takes the lock as well, for the device's seed."""
    with torch.mtia._initialization_lock:
        word = str(x.tolist())
    torch.manual_seed(3)
    return x * torch.rand(4), len(word)


def of_a_seed_drawn(x):
    seed = torch.seed() % 2**62
    torch.manual_seed(seed)
    y = F.dropout(x, 0.5)
    return y, seed == torch.initial_seed(), torch.mtia._initialization_lock.locked()


@pytest.mark.parametrize("seeded", [behind_a_lock, of_a_seed_drawn])
def test_locks_of_devices(seeded):
    """They are let go before torch.manual_seed."""
    run = dynamo.compile(seeded, backend="eager")
    for _ in range(2):
        y, *rest = run(torch.ones(4))
        state = torch.get_rng_state()
        expected, *others = seeded(torch.ones(4))
        assert rest == others
        if seeded is behind_a_lock:
            same([y, state], [expected, torch.get_rng_state()])


class Layers(torch.nn.Module):
    """Dropout whose seeds are kept, so that it can be computed again."""

    seeds: tuple[int, ...] = ()

    def forward(self, x):
        first = int(torch.seed() % sys.maxsize)
        torch.manual_seed(first)
        y = F.dropout(x, 0.5)
        second = torch.seed()
        self.seeds = first, second
        return y, F.dropout(y * 2, 0.5), torch.rand(4)


class SeededWhileDraws(Layers):
    def forward(self, x):
        noise = torch.rand(3)
        return *super().forward(x), noise


class Checked(Layers):
    """A call that raises leaves the seed that it drew."""

    def forward(self, x):
        results = super().forward(x)
        if (x > 100).any():
            raise ValueError
        return results


@pytest.mark.parametrize("backend", [eager, aot_eager, "inductor"])
@pytest.mark.parametrize("layers", [Layers, SeededWhileDraws, Checked])
def test_drawn_seeds(layers, backend):
    """Each call draws seeds of its own, and the numbers behind are theirs."""
    module, x = layers(), torch.ones(30)
    compiled = dynamo.compile(module, backend=backend, fullgraph=True)
    seen = set()
    for _ in range(3):
        torch.manual_seed(3)
        y, z, numbers, *noise = compiled(x)
        after = torch.rand(2)
        first, second = module.seeds
        assert type(second) is int and torch.initial_seed() == second
        seen |= {first, second}
        torch.manual_seed(3)
        same(noise, [torch.rand(3)] if noise else [])
        torch.manual_seed(first)
        same([y], [F.dropout(x, 0.5)])
        torch.manual_seed(second)
        same([z, numbers, after], [F.dropout(y * 2, 0.5), torch.rand(4), torch.rand(2)])
    assert len(seen) == 6
    if layers is Checked:
        with pytest.raises(ValueError):
            compiled(x * 1000)
        assert torch.initial_seed() == module.seeds[1] not in seen


class Drawn:
    """A generator of a device that this machine has not."""

    seed, offset = 5, 8

    def initial_seed(self):
        return self.seed

    def get_offset(self):
        return self.offset

    def manual_seed(self, seed):
        self.seed, self.offset = seed, 0
        return self

    def set_offset(self, offset):
        self.offset = offset


def test_compilation_draws_nothing_from_other_devices(monkeypatch):
    """A backend, and calls that find out types, may draw: afterwards generators are as before."""
    own = Drawn()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "default_generators", (own,))

    def backend(gm, inputs):
        own.set_offset(own.offset + 4)
        own.manual_seed(6)
        return gm.forward

    assert torch.equal(
        dynamo.compile(lambda x: x + 1, backend=backend)(torch.ones(2)), torch.full((2,), 2.0)
    )
    assert (own.seed, own.offset) == (5, 8)
