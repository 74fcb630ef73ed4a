"""Forward and backward over sizes that vary: two compiles, gradients as in eager."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import dynamo
from backends.aot_eager import aot_eager
from backends.inductor import inductor
from tests.dynamo.dynamic_support import Counting, same

TABLE = torch.randn(11, 6)
KERNEL = torch.randn(4, 3, 3, 3)


def attention(x, w):
    q = k = v = x @ w
    return F.scaled_dot_product_attention(q[None], k[None], v[None])


# (x of size (n, 6) with a gradient, w of size (6, 6) with one) -> anything
PROGRAMS = {
    "matmul": lambda x, w: x @ w,
    "gelu": lambda x, w: F.gelu(x @ w).sum(0),
    "mean": lambda x, w: (x @ w).mean(),
    "mean_by_hand": lambda x, w: (x @ w).sum() / x.size(0),
    "softmax": lambda x, w: (x @ w).softmax(0),
    "layer_norm": lambda x, w: F.layer_norm(x @ w, (6,)),
    "attention": attention,
    "broadcast": lambda x, w: x[:, None] * w[None],
    "expand": lambda x, w: w.unsqueeze(0).expand(x.size(0), 6, 6) * x[:, :, None],
    "cat": lambda x, w: torch.cat([x, w]) * 2,
    "slice": lambda x, w: (x @ w)[1:] * (x @ w)[:-1].detach(),
    "view": lambda x, w: (x @ w).view(-1, 2, 3),
    "flat": lambda x, w: (x @ w).reshape(-1),
    "transpose": lambda x, w: (x @ w).t().contiguous().cumsum(1),
    "two_outputs": lambda x, w: (x @ w, x.sum()),
    "with_a_size": lambda x, w: ((x @ w) * x.size(0), x.size(0)),
    "gather": lambda x, w: x.gather(1, torch.zeros(x.size(0), 2, dtype=torch.long)) @ w[:2],
    "loss": lambda x, w: F.cross_entropy(x @ w, torch.zeros(x.size(0), dtype=torch.long)),
    "norm": lambda x, w: (x @ w).norm(dim=1),
    "max": lambda x, w: (x @ w).max(0).values,
    "power": lambda x, w: (x @ w) ** 2 * x.numel(),
    "where": lambda x, w: torch.where(x > 0, x @ w, x),
    "pad": lambda x, w: F.pad(x @ w, (0, 0, 1, 1)),
    "repeat": lambda x, w: x.repeat(2, 1) @ w,
    "index": lambda x, w: (x @ w)[torch.tensor([0, 2])],
}


def compare(fn, calls, backend, compiles=2):
    counting = Counting(backend)
    compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
    for args in calls:
        results = []
        for function in (fn, compiled):
            given = [
                a.detach().clone().requires_grad_(a.is_floating_point())
                if isinstance(a, torch.Tensor)
                else a
                for a in args
            ]
            out = function(*given)
            tensors = [
                t for t in (out if isinstance(out, tuple) else (out,)) if not isinstance(t, int)
            ]
            torch.autograd.backward([t.sum() * (i + 1) for i, t in enumerate(tensors)])
            grads = [a.grad for a in given if isinstance(a, torch.Tensor)]
            results.append(([t.detach() for t in tensors], grads))
        same(*results)
    assert len(counting.graphs) == compiles


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    torch.manual_seed(0)
    fn = PROGRAMS[name]
    calls = [(torch.randn(n, 6), torch.randn(6, 6)) for n in (4, 7, 3, 9)]
    compare(lambda x, w: fn(x, w), calls, aot_eager)


@pytest.mark.parametrize("name", ["gelu", "attention", "view", "loss", "with_a_size"])
def test_program_on_inductor(name):
    torch.manual_seed(0)
    fn = PROGRAMS[name]
    calls = [(torch.randn(n, 6), torch.randn(6, 6)) for n in (4, 7, 3)]
    compare(lambda x, w: fn(x, w), calls, inductor)


def test_convolution():
    sizes = [(2, 3, 8, 10), (3, 3, 12, 6), (5, 3, 6, 14)]
    calls = [(torch.randn(*size), KERNEL) for size in sizes]
    compare(lambda x, w: F.conv2d(x, w, padding=1).relu().mean((2, 3)), calls, aot_eager)


@pytest.mark.parametrize("backend", [aot_eager, inductor])
def test_numbers(backend):
    calls = [(torch.randn(3), k, a) for k, a in ((5, 0.1), (6, 0.2), (9, 0.3), (2, -1.5))]
    compare(lambda x, k, a: (x * k).sin() * a + k, calls, backend)


def test_gradients_of_other_strides():
    counting = Counting(aot_eager)
    compiled = dynamo.compile(lambda x: (x * 2).sin(), backend=counting, fullgraph=True)
    for n in (3, 5, 8):
        x = torch.randn(n, 4, requires_grad=True)
        gradient = torch.randn(4, n).t()
        (wanted,) = torch.autograd.grad((x * 2).sin(), x, gradient)
        (found,) = torch.autograd.grad(compiled(x), x, gradient)
        torch.testing.assert_close(wanted, found)
    assert len(counting.graphs) == 2


def test_second_derivatives():
    compiled = dynamo.compile(lambda x: (x**3).sum() / x.size(0), backend=Counting(aot_eager))
    for n in (3, 5, 8):
        x = torch.randn(n, requires_grad=True)
        (first,) = torch.autograd.grad(compiled(x), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        same(6 * x.detach() / n, second)


def test_a_growing_cache():
    def fn(x, cache, w):
        cache = torch.cat([cache, x @ w])
        return cache, cache.mean(0)

    counting = Counting(aot_eager)
    compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
    w = torch.randn(4, 4)
    mine = theirs = torch.randn(2, 4)
    for _ in range(10):
        x = torch.randn(1, 4)
        theirs, wanted = fn(x, theirs, w)
        mine, found = compiled(x, mine, w)
        same((theirs, wanted), (mine, found))
    assert len(counting.graphs) == 2


LAYERS = {
    "lstm": lambda: nn.LSTM(3, 4, 2, dropout=0.5, batch_first=True),
    "lstm_both_ways": lambda: nn.LSTM(3, 4, 2, bias=False, bidirectional=True),
    "lstm_projected": lambda: nn.LSTM(3, 4, 2, dropout=0.5, proj_size=2),
    "gru": lambda: nn.GRU(3, 4, 2, dropout=0.5, batch_first=True),
    "rnn": lambda: nn.RNN(3, 4, 2, dropout=0.5, bidirectional=True),
}
WHOLE = ("lstm", "lstm_both_ways")  # of any length too: one operator of oneDNN's


def copying_hooks():
    """Saved tensors without the memory that was behind them."""
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t)


@pytest.mark.parametrize("hooks", [contextlib.nullcontext, copying_hooks])
@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers(name, hooks):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    counting = Counting(aot_eager)
    compiled = dynamo.compile(layer, backend=counting, fullgraph=True)
    for n in (4, 7, 3, 9):
        length, batch = (n + 1 if name in WHOLE else 3), n
        x = torch.randn(*((batch, length) if layer.batch_first else (length, batch)), 3)
        found = []
        for function in (layer, compiled):
            layer.zero_grad()
            torch.manual_seed(n)
            mine = x.clone().requires_grad_()
            with hooks():
                output, last = function(mine)
            states = last if isinstance(last, tuple) else (last,)
            sum((output.sin().sum(), *(state.cos().sum() for state in states))).backward()
            gradients = [p.grad.clone() for p in layer.parameters()]
            found.append((output.detach(), *(s.detach() for s in states), mine.grad, *gradients))
        same(*found)
    assert len(counting.graphs) == 2


def test_a_recurrent_layer_that_is_checkpointed():
    torch.manual_seed(0)
    layer = nn.LSTM(3, 4, 2, dropout=0.5)

    def fn(x):
        return checkpoint(layer, x, use_reentrant=False)[0]

    counting = Counting(aot_eager)
    compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
    for n in (4, 7, 3, 9):
        x = torch.randn(3, n, 3)
        found = []
        for function in (fn, compiled):
            torch.manual_seed(n)
            mine = x.clone().requires_grad_()
            output = function(mine)
            output.square().sum().backward()
            found.append((output.detach(), mine.grad))
        same(*found)
    assert len(counting.graphs) == 2


def test_zeros_for_absent_tangents():
    """A gradient that does not arrive is zeros of the symbols' size where it is needed."""
    fn = lambda x, w: [t.sin() for t in torch.stack([x @ w, x * 2]).unbind()]  # noqa: E731
    counting = Counting(aot_eager)
    compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
    for n in (4, 7, 3):
        given = torch.randn(n, 6), torch.randn(6, 6)
        found = []
        for function in (fn, compiled):
            x, w = (t.clone().requires_grad_() for t in given)
            function(x, w)[0].sum().backward()
            found.append((x.grad, w.grad))
        same(*found)
    assert len(counting.graphs) == 2


# (x with a gradient, data that its graph depends on; w with one) -> anything
DATA = {
    "masked": lambda x, w: (x * w)[x > 0].sum(),
    "masked_and_returned": lambda x, w: (x * w)[x > 0].sin() * 2,
    "number": lambda x, w: x * w * x.detach().max().item(),
    "size": lambda x, w: (x * w).sum() / (x > 0).nonzero().size(0),
    "indexed": lambda x, w: (x * w)[x.nonzero().squeeze(1)].exp() * 2,
    "added": lambda x, w: (x * w).index_add(0, x.nonzero().squeeze(1), w[x > 0].cos()),
    "made": lambda x, w: torch.cat([torch.ones(x.detach().long().max().item()) * w[0], x * w]),
    "truncated": lambda x, w: torch.cat([torch.zeros(int(x.detach().max())), x * w]),
    "returned": lambda x, w: ((x * w)[x > 0], x.detach().sum().item(), x.nonzero().size(0)),
    "two": lambda x, w: ((x * w)[x > 0].sin(), w[x < 2].cos()),
    "stacked": lambda x, w: [t.exp() for t in torch.stack([(x * w)[x > 0], w[x > 0]]).unbind()],
    "outer": lambda x, w: (x[x > 0][:, None] * w).t().contiguous().tanh(),
    "pooled": lambda x, w: (x * w)[x > 0].mean() + torch.relu(w[x > 0] - 0.5).square().sum(),
    "checked": lambda x, w: _checked((x * w)[x > 0]),
    "broadcast": lambda x, w: (x * w)[x > 0] * w[:2],
}


def _checked(values):
    torch._check(values.size(0) > 1, lambda: "two at least")
    return values.exp() / values.size(0)


def _gradients(fn, x, w, which=None):
    """The results, and gradients of some of them; or the exception."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    try:
        out = fn(x, w)
    except Exception as error:
        return type(error), str(error)
    leaves = list(out) if isinstance(out, (tuple, list)) else [out]
    tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
    wanted = tensors if which is None else [tensors[which % len(tensors)]]
    torch.autograd.backward([t.sum() * (i + 1) for i, t in enumerate(wanted)])
    return [t.detach() if isinstance(t, torch.Tensor) else t for t in leaves], x.grad, w.grad


@pytest.mark.parametrize("backend", [aot_eager, inductor])
@pytest.mark.parametrize("name", DATA)
def test_data(name, backend):
    """Sizes and numbers that depend on data, differentiated: one graph, compiled."""
    fn = DATA[name]
    counting = Counting(backend)
    both = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    calls = [
        [1.0, 0.0, 2.0, -3.0],
        [0.0, -1.0, 5.0, 1.0],
        [0.0, 0.0, 5.0, 0.0],
        [3.0, 1.0, 4.0, 1.0],
    ]
    w = torch.tensor([0.5, 1.5, -2.0, 1.0])
    with dynamo.config.patch(**both):
        compiled = dynamo.compile(lambda x, w: fn(x, w), backend=counting, fullgraph=True)
        for which in (None, 0, 1):
            for x in map(torch.tensor, calls):
                same(_gradients(fn, x, w, which), _gradients(compiled, x, w, which))
    assert len(counting.graphs) == 1


def test_data_of_two_calls_at_once():
    """Each backward has the sizes of its own call."""
    fn = DATA["masked_and_returned"]
    both = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with dynamo.config.patch(**both):
        compiled = dynamo.compile(lambda x, w: fn(x, w), backend=Counting(aot_eager))
        found = []
        for function in (fn, compiled):
            w = torch.ones(4, requires_grad=True)
            xs = [torch.tensor([1.0, 0.0, 2.0, 3.0]), torch.tensor([0.0, 0.0, 5.0, 0.0])]
            first, second = (function(x, w) for x in xs)
            for result in (first, second, first):
                result.sum().backward(retain_graph=True)
            (once,) = torch.autograd.grad(first.sum(), w, create_graph=True)
            (twice,) = torch.autograd.grad(once.sum(), w)
            found.append((first.detach(), second.detach(), w.grad.detach(), twice))
        same(*found)


@pytest.mark.parametrize("backend", [aot_eager, inductor])
def test_derivatives_that_divide_by_zero_as_in_c(backend):
    """The variance of as many elements as its correction has an infinite gradient, and no error."""
    compiled = dynamo.compile(lambda x: x.var(0, correction=2), backend=backend, dynamic=True)
    for n in (4, 2, 3):
        found = []
        for function in (compiled, lambda x: x.var(0, correction=2)):
            x = torch.arange(n * 3.0).view(n, 3).cos().requires_grad_()
            result = function(x)
            result.sum().backward()
            found.append((result.detach(), x.grad))
        torch.testing.assert_close(*found, equal_nan=True)


def test_a_gradient_that_is_a_view_before_its_parameter():
    weight = torch.nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(1, 4).view(4)

    def step(gradient, weight, rate):
        return (gradient + 1) * rate + weight

    compiled = dynamo.compile(step, backend="eager", fullgraph=True)
    for rate in (3, 5, 6):
        same(compiled(weight.grad, weight, rate), step(weight.grad, weight, rate))


def test_writes_to_tensors_with_histories():
    """Of sizes that vary; they are no views of leaves, to which autograd refuses writes."""
    weight = torch.randn(6, requires_grad=True)

    def add(x, w):
        x += w
        return x * 2

    def run(function, rows):
        weight.grad = None
        given = torch.arange(rows * 6.0).reshape(rows, 6) * weight
        result = function(given, weight)
        (result.sum() + given.square().sum()).backward()
        return [result.detach(), given.detach(), weight.grad.clone(), given._version]

    counting = Counting(lambda gm, inputs: gm.forward)
    compiled = dynamo.compile(add, backend=counting, fullgraph=True)
    for rows in (2, 3, 4):
        same(run(compiled, rows), run(add, rows))
    assert len(counting.graphs) == 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_layers_that_drop_all_draw_no_numbers(backend):
    layer = torch.nn.GRU(4, 5, 2, dropout=1.0)
    compiled = dynamo.compile(layer, backend=backend, dynamic=True)
    for size in (3, 4), (5, 6):
        x, found = torch.randn(*size, 4), []
        for run in (layer, compiled):
            torch.manual_seed(0)
            found.append([run(x)[0], torch.rand(1)])
        torch.testing.assert_close(found[1], found[0])
