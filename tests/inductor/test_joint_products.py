"""Products of one matrix with several weights, as one: against eager, and when they are joint."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo
from dynamo.api.compile import compile_fresh
from tests.inductor.test_derived import notes

CLOSE = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-4},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
}
WIDTH, HEADS, LENGTH = 128, 4, 3


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Attention(nn.Module):
    """keys: how many heads of keys and values. biases: of queries, keys and values."""

    def __init__(self, keys=HEADS, biases=(True, True, True)):
        super().__init__()
        torch.manual_seed(0)
        each = WIDTH // HEADS
        self.size = each
        self.query = nn.Linear(WIDTH, WIDTH, biases[0])
        self.key = nn.Linear(WIDTH, keys * each, biases[1])
        self.value = nn.Linear(WIDTH, keys * each, biases[2])
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        repeats = q.shape[1] // k.shape[1]
        k, v = (t.repeat_interleave(repeats, 1) if repeats > 1 else t for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, False) for _ in range(2))

    def forward(self, x):
        return F.silu(self.gate(x)) * self.up(x)


def tokens(batch=1, length=LENGTH, dtype=torch.float32):
    generator = torch.Generator().manual_seed(batch * 10 + length)
    return torch.randn(batch, length, WIDTH, generator=generator).to(dtype)


def joint(context):
    """How many products became how many."""
    found = [note for note in notes(context) if note.endswith("joint weights")]
    return found[0].removeprefix("products: ") if found else None


def same(got, expected, dtype=torch.float32):
    torch.testing.assert_close(got, expected, equal_nan=True, **CLOSE[dtype])
    assert got.stride() == expected.stride()


def compared(module, x, **options):
    """The context, when the compiled module gave what eager gives, twice."""
    compiled, context = compile_fresh(module.eval(), **options)
    with torch.no_grad():
        for _ in range(2):
            same(compiled(x), module(x), x.dtype)
    return context


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (1, 3), (4, 1), (2, 4)])
@pytest.mark.parametrize("keys", [HEADS, 2, 1])
def test_queries_keys_and_values(keys, batch, length, dtype):
    module = Attention(keys).to(dtype)
    compared(module, tokens(batch, length, dtype))


def test_joint_where_rows_are_few():
    assert joint(compared(Attention(), tokens())) == "3 with 1 joint weights"
    assert joint(compared(Attention(1), tokens())) is not None
    assert joint(compared(Attention(), tokens(4, 4))) is None
    assert joint(compared(Attention(), tokens(), options={"pack": False})) is None
    assert joint(compared(Attention(), tokens(), options={"tuning": "off"})) is None


def test_one_thread_gains_nothing():
    torch.set_num_threads(1)
    assert joint(compared(Attention(), tokens())) is None


def test_measured_where_everything_is():
    compared(Attention(), tokens(4, 5), options={"tuning": "full"})


def turned(x, angles):
    one, other = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-other, one), -1) * angles.sin()


def test_a_step_of_decoding_takes_fewer_kernels():
    """Turned queries and keys, and keys and values behind those of earlier steps."""
    module, generator = Attention(2), torch.Generator().manual_seed(0)
    angles, keys, values = (
        torch.randn(size, generator=generator) for size in ((1, 32), (1, 2, 5, 32), (1, 2, 5, 32))
    )

    def step(x):
        q, k, v = (
            layer(x).unflatten(-1, (-1, 32)).transpose(1, 2)
            for layer in (module.query, module.key, module.value)
        )
        k, v = torch.cat((keys, turned(k, angles)), 2), torch.cat((values, v), 2)
        y = F.scaled_dot_product_attention(turned(q, angles), k, v, enable_gqa=True)
        return y.transpose(1, 2).flatten(2), k, v

    counts = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        compiled, context = compile_fresh(step)
        x = tokens(1, 1)
        with torch.no_grad():
            for got, expected in zip(compiled(x), step(x), strict=True):
                same(got, expected)
        counts.append([g.report["kernels"] for r in context.records for g in r.graphs])
        assert (joint(context) is not None) == (threads > 1)
    assert counts[1] < counts[0]


def test_a_layer_without_a_bias_stays_apart():
    context = compared(Attention(biases=(True, False, True)), tokens())
    assert joint(context) == "2 with 1 joint weights"
    assert joint(compared(Attention(biases=(False, True, False)), tokens())) is not None


def test_halves_of_a_gated_layer_are_read_together():
    assert joint(compared(Gated(), tokens())) is None


@pytest.mark.parametrize("steps", [30, 1200])
def test_long_chains_of_readers(steps):
    """Of which there are many ways from a product to the end, or one that is deep."""
    module = Attention()

    def function(x):
        y = module.query(x)
        for _ in range(steps):
            y = (y * 0.5) * (y + 1) if steps < 100 else y.neg()
        return y.sum(), module.key(x).cos(), module.value(x).sin()

    compiled, context = compile_fresh(function)
    x = tokens()
    with torch.no_grad():
        for got, expected in zip(compiled(x), function(x), strict=True):
            same(got, expected)
    assert joint(context) == "3 with 1 joint weights"


def test_results_of_the_graph_stay_apart():
    module = Attention()

    def function(x):
        k = module.key(x)
        return module.query(x).relu(), k[:, 1:], module.value(x).exp(), k

    compiled, context = compile_fresh(function)
    x = tokens()
    with torch.no_grad():
        for got, expected in zip(compiled(x), function(x), strict=True):
            same(got, expected)
    assert joint(context) == "2 with 1 joint weights"


def test_readers_that_the_strides_of_the_whole_do_not_fit():
    module = Attention()

    def function(x):
        q, k, v = module.query(x), module.key(x), module.value(x)
        flat = k.view(-1)
        return q.exp().sum(-1), flat.cumsum(0), v.sort(-1)[0], torch.cat([q, v]).cos()

    compiled, _ = compile_fresh(function)
    x = tokens()
    with torch.no_grad():
        for got, expected in zip(compiled(x), function(x), strict=True):
            same(got, expected)


@torch.library.custom_op("framegraph_tests::in_order_of_memory", mutates_args=())
def in_order_of_memory(x: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(x, (x.numel(),), (1,), x.storage_offset()).clone()


@in_order_of_memory.register_fake
def _(x):
    return x.new_empty((x.numel(),))


READERS_OF_MEMORY = {
    "as_strided": lambda x: x.as_strided((4, 5), (3, 7)).clone(),
    "of a view": lambda x: x.transpose(0, 1).as_strided((5,), (2,), 3).cos(),
    "copy": lambda x: torch.as_strided_copy(x, (4, 5), (3, 7)),
    "of a program": in_order_of_memory,
}


@pytest.mark.parametrize("reader", READERS_OF_MEMORY)
def test_what_is_read_by_its_place_in_memory_stays_apart(reader):
    module, read = Attention(), READERS_OF_MEMORY[reader]

    def function(x):
        return module.query(x).exp(), read(module.key(x)), module.value(x).cos()

    compiled, context = compile_fresh(function)
    x = tokens()
    with torch.no_grad():
        for got, expected in zip(compiled(x), function(x), strict=True):
            same(got, expected)
    assert joint(context) == "2 with 1 joint weights"


def test_views_of_another_element_size_fit_the_part_itself():
    layers = nn.ModuleList([nn.Linear(WIDTH, columns) for columns in (127, 128, 129, 128)])

    def function(x):
        one, pairs, other, doubles = (layer(x) for layer in layers)
        pairs = torch.view_as_complex(pairs.unflatten(-1, (-1, 2))) * 1j
        return one.exp(), torch.view_as_real(pairs), other.cos(), doubles.view(torch.float64) * 2

    compiled, context = compile_fresh(function)
    x = tokens()
    with torch.no_grad():
        got, expected = compiled(x), function(x)
    for one, other in zip(got[:3], expected[:3], strict=True):
        same(one, other)
    assert joint(context) is not None


@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf])
def test_special_values(special):
    module = Attention()
    x = tokens()
    x[0, 1, 5] = special
    compared(module, x)
    with torch.no_grad():
        module.key.weight[3, 7] = special
        module.value.bias[2] = special
    compared(module, tokens())


def test_inputs_with_strides_and_without_rows():
    module = Attention()
    assert joint(compared(module, tokens(1, 6)[:, ::2])) is not None
    compared(module, tokens(1, 3).transpose(1, 2).contiguous().transpose(1, 2))
    compiled = dynamo.compile(module)
    with torch.no_grad():
        for size in ((0, 3, WIDTH), (2, 3, WIDTH), (0, 3, WIDTH)):
            x = torch.randn(size)
            same(compiled(x), module(x))


def test_a_batch_that_varies():
    module = Attention().eval()
    compiled, context = compile_fresh(module, dynamic=True)
    with torch.no_grad():
        for batch in (2, 1, 5, 3, 40):
            x = tokens(batch, 2)
            same(compiled(x), module(x))
    assert joint(context) is not None


def test_a_weight_of_two_layers():
    module = Attention()
    module.key.weight = module.query.weight
    compiled, context = compile_fresh(module.eval())
    x = tokens()
    with torch.no_grad():
        same(compiled(x), module(x))
        module.key.weight.mul_(2)
        same(compiled(x), module(x))
    assert joint(context) is not None


def in_place(module):
    with torch.no_grad():
        module.key.weight[2].add_(1)


def loaded(module):
    other = copy.deepcopy(module.state_dict())
    module.load_state_dict({key: value * 1.5 for key, value in other.items()})


def stepped(module):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    module(tokens()).square().sum().backward()
    optimizer.step()


CHANGES = {
    "in place": in_place,
    "bias": lambda module: module.value.bias.data.add_(3),
    "data in place": lambda module: module.value.weight.data.neg_(),
    "data assigned": lambda m: setattr(m.query.weight, "data", torch.randn(WIDTH, WIDTH)),
    "parameter": lambda m: setattr(m.key, "weight", nn.Parameter(torch.randn(WIDTH, WIDTH))),
    "layer": lambda module: setattr(module, "query", nn.Linear(WIDTH, WIDTH)),
    "load_state_dict": loaded,
    "optimizer": stepped,
    "requires_grad_": lambda module: module.requires_grad_(False) and in_place(module),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_after_the_weights_were_put_together(change):
    module = Attention().eval()
    compiled = dynamo.compile(module)
    x = tokens()
    with torch.no_grad():
        same(compiled(x), module(x))
    before = module(x).detach()
    CHANGES[change](module)
    with torch.no_grad():
        same(compiled(x), module(x))
        assert not torch.allclose(compiled(x), before)


def test_training_leaves_them_apart():
    module, twin = Attention(), Attention()
    compiled, context = compile_fresh(module)
    for step in range(2):
        x = tokens(1, 2 + step).requires_grad_()
        y = x.detach().clone().requires_grad_()
        compiled(x).square().sum().backward()
        twin(y).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-3)
    for one, other in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-3)
    assert joint(context) is None


def test_two_threads():
    module = Attention().eval()
    compiled = dynamo.compile(module)
    faults = []

    def run(length):
        with torch.no_grad():
            for _ in range(20):
                x = tokens(1, length)
                if not torch.allclose(compiled(x), module(x), rtol=1e-4, atol=1e-4):
                    faults.append(length)

    threads = [threading.Thread(target=run, args=(length,)) for length in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_one_set_of_copies_is_kept():
    """Of joint weights no more than their panels, as of separate ones."""
    context = compared(Attention(), tokens())
    (note,) = [note for note in notes(context) if note.startswith("derived")]
    kept = 4 * WIDTH * WIDTH * 4 + 3 * WIDTH * 4
    assert f"{kept / 2**20:.2f} MiB" in note
