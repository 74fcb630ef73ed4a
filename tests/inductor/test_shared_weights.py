"""Code that several modules share knows no weights, and derives from those of each module all the
same: whatever is made of a module's parameters is kept while they live and are as they were.
"""

from __future__ import annotations

import copy
import gc
import threading
import time
import weakref

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo
from inductor.runtime.link import Derived
from tests.inductor.test_derived import CHANGES, CLOSE, Net, image, notes, settled, times_made


class Block(nn.Module):
    """Attention and a perceptron, as blocks of language models have them."""

    def __init__(self, size=32, heads=4):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.q, self.k, self.v, self.out = (nn.Linear(size, size) for _ in range(4))
        self.up, self.down = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
        self.heads = heads

    def forward(self, x):
        y = self.norm(x)
        parts = [f(y).unflatten(-1, (self.heads, -1)).mT for f in (self.q, self.k, self.v)]
        x = x + self.out(F.scaled_dot_product_attention(*parts).mT.flatten(-2))
        return x + self.down(F.gelu(self.up(x)))


def equal_modules(make, count):
    """Modules alike, with other weights each, in eval mode."""
    modules = [make().eval() for _ in range(count)]
    for number, module in enumerate(modules):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(1 + number / count).add_(0.01 * number)
    return modules


def rows():
    return torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(3))


def wide():
    """A linear layer and its norm, of a weight that is not sampled whole."""
    return settled(nn.Sequential(nn.Linear(64, 800), nn.BatchNorm1d(800)))


def compare(compiled, modules, x):
    with torch.no_grad():
        for call, module in zip(compiled, modules, strict=True):
            torch.testing.assert_close(call(x), module(x), **CLOSE)


def blocks_context(compiled):
    """That of all: they were compiled before the first call."""
    contexts = {id(call._dynamo_context) for call in compiled}
    assert len(contexts) == 1
    return compiled[-1]._dynamo_context


@pytest.fixture(scope="module")
def nets():
    """Three nets, and the code that they share, which has derived from them."""
    nets = equal_modules(lambda: settled(Net()), 3)
    with dynamo.config.patch(recompile_limit=len(CHANGES)):  # for other kinds of parameters
        compiled = [dynamo.compile(net) for net in nets]
        compare(compiled, nets, image())
        yield nets, compiled, [copy.deepcopy(net.state_dict()) for net in nets]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name, nets):
    nets, compiled, states = nets
    for net, state in zip(nets, states, strict=True):
        net.to(memory_format=torch.contiguous_format).load_state_dict(state)
        net.norm.eps = 1e-5
    compare(compiled, nets, image())
    before = [net(image()) for net in nets]
    CHANGES[name](nets[1])
    if name not in ("channels last", "shared"):
        assert not torch.allclose(nets[1](image()), before[1], **CLOSE)
    for _ in range(2):
        compare(compiled, nets, image())
    assert torch.equal(nets[2](image()), before[2])


def in_two(modules):
    """Two modules with one weight."""
    modules[1].q.weight = modules[2].q.weight
    with torch.no_grad():
        modules[2].q.weight.mul_(2)


def tied(modules):
    modules[1].q.weight = modules[1].k.weight


def views_of_one(modules):
    vector = nn.utils.parameters_to_vector(modules[1].q.parameters()).detach()
    nn.utils.vector_to_parameters(vector, modules[1].q.parameters())
    nn.utils.vector_to_parameters(vector, modules[2].q.parameters())
    vector.mul_(3)


def swapped_tensors(modules):
    torch.utils.swap_tensors(modules[1].up.weight, nn.Parameter(torch.randn(64, 32)))


def between_modules(modules):
    torch.utils.swap_tensors(modules[1].up.weight, modules[2].up.weight)
    modules[1].q.weight.data, modules[2].q.weight.data = (
        modules[2].q.weight.data,
        modules[1].q.weight.data,
    )


def exchanged(modules):
    modules[1].v, modules[2].v = modules[2].v, modules[1].v


def averaged(modules):
    """As the average of a student's weights is kept in its teacher."""
    with torch.no_grad():
        for old, new in zip(modules[1].parameters(), modules[2].parameters(), strict=True):
            old.lerp_(new, 0.5)


def trained(modules):
    optimizer = torch.optim.AdamW(modules[1].parameters(), lr=0.1)
    modules[1](rows()).square().sum().backward()
    optimizer.step()


OF_SEVERAL = {
    f.__name__: f
    for f in (
        in_two,
        tied,
        views_of_one,
        swapped_tensors,
        between_modules,
        exchanged,
        averaged,
        trained,
    )
}


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_a_change_of_several_is_seen(name):
    modules = equal_modules(Block, 4)
    compiled = [dynamo.compile(module) for module in modules]
    for _ in range(2):
        compare(compiled, modules, rows())
    for _ in range(2):
        OF_SEVERAL[name](modules)
        compare(compiled, modules, rows())
        compare(compiled[::-1], modules[::-1], rows())


def test_many_blocks_share_one_graph():
    blocks = equal_modules(Block, 48)
    compiled = [dynamo.compile(block) for block in blocks]
    for _ in range(3):
        compare(compiled, blocks, rows())
    context = blocks_context(compiled)
    assert sum(len(record.graphs) for record in context.records) == 1
    assert times_made(context) == 48


@pytest.fixture
def made(monkeypatch):
    """Weak references to all that is derived."""

    def recording(self, *sources):
        tensors = real(self, *sources)
        refs.append(weakref.ref(tensors[0]))
        return tensors

    refs, real = [], Derived.__call__
    monkeypatch.setattr(Derived, "__call__", recording)
    return refs


def alive(refs):
    return [ref() is not None for ref in refs]


def test_what_is_derived_ends_with_the_weights(made):
    blocks, x = equal_modules(wide, 5), torch.randn(4, 64)
    compiled = [dynamo.compile(block) for block in blocks]
    context = blocks_context(compiled)
    for _ in range(2):
        compare(compiled, blocks, x)
    assert alive(made) == [True] * 5
    ends = [weakref.ref(block[0].weight) for block in blocks[2:]]
    del blocks[2:], compiled[2:]
    gc.collect()
    assert alive(made) == [True, True, False, False, False]
    assert not any(alive(ends))
    blocks[0][0].weight = nn.Parameter(torch.randn(800, 64))
    compare(compiled, blocks, x)
    assert alive(made) == [False, True, False, False, False, True]
    (note,) = [note for note in notes(context) if note.startswith("derived")]
    assert "made 6 times" in note
    dynamo.reset()
    del blocks, compiled, context
    gc.collect()
    assert not any(alive(made))


def test_weights_without_room_are_read_as_they_are(made, monkeypatch):
    size = 800 * (64 + 1) * 4
    monkeypatch.setattr("inductor.costs.room_for_copies", lambda: 2 * size)
    blocks, x = equal_modules(wide, 5), torch.randn(4, 64)
    compiled = [dynamo.compile(block) for block in blocks]
    for number in range(3):
        compare(compiled, blocks, x)
        with torch.no_grad():
            blocks[-1][0].weight.mul_(2)
            blocks[0][0].weight.data[33, 5] = number
    assert alive(made).count(True) == 2
    assert len(made) == 2 + 2  # again for the changes of the first
    del blocks[:2], compiled[:2]
    compare(compiled, blocks, x)
    assert len(made) == 4 + 2


def test_training_between_calls():
    blocks, x = equal_modules(wide, 3), torch.randn(4, 64)
    compiled = [dynamo.compile(block) for block in blocks]
    optimizers = [torch.optim.AdamW(block.parameters(), lr=0.1) for block in blocks]
    for _ in range(3):
        compare(compiled, blocks, x)
        for call, block, optimizer in zip(compiled, blocks, optimizers, strict=True):
            loss, expected = call(x).square().sum(), block(x).square().sum()
            torch.testing.assert_close(loss, expected, **CLOSE)
            given = torch.autograd.grad(loss, block[0].weight)
            wanted = torch.autograd.grad(expected, block[0].weight)
            torch.testing.assert_close(given, wanted, **CLOSE)
            block(x).square().sum().backward()
            optimizer.step()
    compare(compiled, blocks, x)


def test_frozen_weights_with_gradients_of_the_input():
    blocks, x = equal_modules(wide, 3), torch.randn(4, 64)
    compiled = [dynamo.compile(block.requires_grad_(False)) for block in blocks]
    for factor in (2, 3):
        for call, block in zip(compiled, blocks, strict=True):
            torch.testing.assert_close(call(x), block(x), **CLOSE)  # grad mode is on
            results = []
            for function in (call, block):
                given = x.clone().requires_grad_()
                results.append(torch.autograd.grad(function(given).square().sum(), given))
            torch.testing.assert_close(*results, **CLOSE)
            block[0].weight.mul_(factor)


def test_inference_tensors():
    """Their writes move no version."""
    with torch.inference_mode():
        blocks, x = equal_modules(wide, 3), torch.randn(4, 64)
        compiled = [dynamo.compile(block) for block in blocks]
        for _ in range(3):
            compare(compiled, blocks, x)
            blocks[1][0].weight[700, 33] += 1
        assert not [note for note in notes(blocks_context(compiled)) if note.startswith("derived")]


def test_inference_tensors_beside_others():
    blocks, x = equal_modules(wide, 3), torch.randn(4, 64)
    with torch.inference_mode():
        blocks += equal_modules(wide, 2)
    compiled = [dynamo.compile(block) for block in blocks]
    for _ in range(3):
        compare(compiled, blocks, x)
        with torch.inference_mode():
            for block in blocks:
                block[0].weight[700, 33] += 1


@pytest.mark.parametrize("keeps", [False, True])
def test_other_parameters_in_each_call(keeps):
    """As weights that are loaded when they are needed, and of functional calls."""
    block, other = equal_modules(wide, 2)
    compiled, old = [dynamo.compile(one) for one in (block, other)], []
    for _ in range(4):
        compare(compiled, (block, other), torch.randn(4, 64))
        old += [other[0].weight] if keeps else []
        other[0].weight = nn.Parameter(torch.randn(800, 64))
        state = {name: torch.randn_like(value) for name, value in block.named_parameters()}
        with torch.no_grad():
            x = torch.randn(4, 64)
            expected = torch.func.functional_call(block, state, (x,))
            got = torch.func.functional_call(compiled[0], state, (x,))
            torch.testing.assert_close(got, expected, **CLOSE)


def test_writes_that_put_the_version_back():
    """As sharding fills parameters, which keep their memory and version."""
    blocks, x = equal_modules(wide, 3), torch.randn(4, 64)
    compiled = [dynamo.compile(block) for block in blocks]
    for row in range(30, 40):
        compare(compiled, blocks, x)
        for block in blocks:
            weight = block[0].weight
            with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(weight):
                weight[row].add_(5)


def test_new_parameters_of_one_memory_in_each_call(made):
    """Their copies go with the next ones, and none is taken for that of an earlier parameter."""
    weight, bias = nn.Parameter(torch.randn(800, 64)), torch.randn(800)
    linear, x = dynamo.compile(lambda x, w: F.linear(x, w, bias).relu()), torch.randn(4, 64)
    with torch.no_grad():
        for _ in range(2):
            linear(x, nn.Parameter(torch.randn(800, 64)))
        for row in range(100, 160):
            for of_memory in (lambda: nn.Parameter(weight.data), lambda: weight):
                expected = F.linear(x, weight, bias).relu()
                torch.testing.assert_close(linear(x, of_memory()), expected, **CLOSE)
            weight[row].add_(5)
    gc.collect()
    assert len(made) > 4
    assert alive(made).count(True) <= 2  # one of code that knows the first parameter


def test_views_of_one_buffer_as_parameters(made):
    """Parameters that are made of views for each call share the copies of these."""
    blocks, x = equal_modules(wide, 3), torch.randn(4, 64)
    compiled = [dynamo.compile(block) for block in blocks]
    compare(compiled, blocks, x)
    flat = blocks[1][0].weight.detach().clone()
    before = len(made)
    for number in range(8):
        blocks[1][0].weight = nn.Parameter(flat[:])
        compare(compiled, blocks, x)
        if number % 4 == 3:
            flat[number].add_(5)
    assert len(made) - before <= 4


def test_parameters_of_a_function():
    @dynamo.compile
    def linear(x, weight, bias):
        return F.linear(x, weight, bias).relu()

    layers, x = [nn.Linear(64, 800) for _ in range(4)], torch.randn(4, 64)
    with torch.no_grad():
        for number in range(4):
            for layer in layers:
                expected = F.linear(x, layer.weight, layer.bias).relu()
                torch.testing.assert_close(linear(x, layer.weight, layer.bias), expected, **CLOSE)
            layers[number].weight.data[700, 33] += 5


class Replacing(nn.Module):
    """Replaces a buffer that it computes from, and writes another."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.rand(128, 128))
        self.register_buffer("sums", torch.rand(128, 128))

    def forward(self, x):
        y = x @ (self.table * 2) + x @ self.sums
        self.table = self.table + 1
        self.sums += 1
        return y


def test_buffers_that_the_code_changes():
    modules = equal_modules(Replacing, 3)
    twins, x = copy.deepcopy(modules), torch.randn(3, 128)
    compiled = [dynamo.compile(module) for module in modules]
    for _ in range(3):
        compare(compiled, twins, x)


def test_an_input_that_is_written_shares_memory_with_a_weight():
    class Writing(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 64), requires_grad=False)

        def forward(self, x):
            x.mul_(2)
            return x @ self.weight.t() + self.weight.sum()

    modules, twins = equal_modules(Writing, 3), equal_modules(Writing, 3)
    for module, twin in zip(modules, twins, strict=True):
        twin.load_state_dict(module.state_dict())
    compiled = [dynamo.compile(module) for module in modules]
    for part in (lambda m: torch.ones(3, 64), lambda m: m.weight.data[:3]):
        for _ in range(2):
            for call, module, twin in zip(compiled, modules, twins, strict=True):
                torch.testing.assert_close(call(part(module)), twin(part(twin)), **CLOSE)
                torch.testing.assert_close(module.weight, twin.weight)


def test_calls_by_threads_at_once():
    """Each thread has blocks of its own and one that it shares, while weights change."""
    blocks, x = equal_modules(wide, 5), torch.randn(4, 64)
    compiled = [dynamo.compile(block) for block in blocks]
    other = copy.deepcopy(blocks[-1])
    with torch.no_grad():
        other[0].weight.mul_(2)
        compare(compiled, blocks, x)
        states = [[block(x)] for block in blocks[:-1]] + [[blocks[-1](x), other(x)]]
    failures = []

    def call(own):
        with torch.no_grad():
            for number in range(60):
                for i in (*own, 4):
                    got = compiled[i](x)
                    if not any(torch.allclose(got, state, **CLOSE) for state in states[i]):
                        failures.append((number, i))
                if number % 20 == 19:
                    dropped = equal_modules(wide, 1)[0]
                    dynamo.compile(dropped)(x)
                    blocks[own[0]][0].weight.data.mul_(1)

    threads = [threading.Thread(target=call, args=(own,)) for own in ((0, 1), (2, 3))]
    for thread in threads:
        thread.start()
    weights = blocks[-1][0].weight, other[0].weight
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.001)
        weights[0].data, weights[1].data = weights[1].data, weights[0].data
    assert not failures
    compare(compiled, blocks, x)
