"""Backwards of a part of a compiled graph's results: hooks are called where eager calls them."""

import gc
import threading
import weakref

import pytest
import torch
from torch import nn

import dynamo


class Heads(nn.Module):
    """Two results of a trunk, each with a head of its own; hooks that log."""

    def __init__(self, log):
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 2), nn.Linear(3, 2)
        for name, parameter in self.named_parameters():
            parameter.register_hook(lambda g, name=name: log.append(("hook", name, g.clone())))
            parameter.register_post_accumulate_grad_hook(
                lambda p, name=name: log.append(("accumulated", name, p.grad.clone()))
            )

    def forward(self, x):
        hidden = self.trunk(x).tanh()
        return self.one(hidden), self.two(hidden).exp()


def one(net, results):
    results[0].sum().backward()


def other(net, results):
    results[1].sum().backward()


def both(net, results):
    (results[0].sum() + results[1].sum()).backward()


def in_turn(net, results):
    results[0].sum().backward(retain_graph=True)
    results[1].sum().backward(retain_graph=True)
    (results[0] * results[1]).sum().backward()


def of_some(net, results):
    net.two.weight.grad = None
    total = results[1].sum()
    total.backward(inputs=[net.two.weight], retain_graph=True)
    torch.autograd.grad(total, [net.two.bias, net.trunk.weight])


def of_one_from_both(net, results):
    (results[0].sum() + results[1].sum()).backward(inputs=[net.one.bias])


def twice(net, results):
    (grad,) = torch.autograd.grad(results[1].sum(), net.two.weight, create_graph=True)
    grad.pow(2).sum().backward()


def hooked_results(net, results):
    results[0].register_hook(lambda g: net.log.append(("result", "0", g)))
    results[1].register_hook(lambda g: net.log.append(("result", "1", g)))
    results[1].retain_grad()
    results[0].sum().backward()
    net.log.append(("kept", "", results[1].grad))


def freed(net, results):
    """Each second backward that eager refuses, behind a backward of some inputs alone."""
    outcomes = []
    for wanted in ([net.two.weight], [net.one.bias, net.trunk.bias], [net.two.bias]):
        try:
            torch.autograd.grad(results[1].sum(), wanted, allow_unused=True)
        except RuntimeError as error:
            outcomes.append(str(error))
        else:
            outcomes.append("done")
    net.log.append(("freed", "", [len(text) for text in outcomes]))


USES = [one, other, both, in_turn, of_some, of_one_from_both, twice, hooked_results, freed]


def outcome(use, backend):
    log = []
    net = Heads(log)
    net.log = log
    call = net if backend is None else dynamo.compile(net, backend=backend)
    x = torch.arange(12.0).reshape(4, 3) / 12
    for _ in range(2):
        use(net, call(x.requires_grad_()))
    grads = [x.grad, *(parameter.grad for parameter in net.parameters())]
    log.sort(key=lambda entry: entry[:2])  # autograd promises no order between tensors
    return [entry[:2] for entry in log], [entry[2] for entry in log], grads


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("use", USES)
def test_hooks(use, backend):
    names, values, grads = outcome(use, None)
    got_names, got_values, got_grads = outcome(use, backend)
    assert got_names == names
    torch.testing.assert_close((got_values, got_grads), (values, grads))


def two_heads(x, w, v):
    return (x * w).sin(), (x * v).cos()


def hooked(log):
    x, w, v = torch.arange(12.0).reshape(3, 4).unbind()
    x, w, v = (one.clone().requires_grad_() for one in (x, w, v))
    w.register_hook(lambda g: log("w", g))
    v.register_hook(lambda g: log("v", g))
    return x, w, v


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_hooks_registered_behind_the_call(backend):
    seen = []
    x, w, v = torch.arange(12.0).reshape(3, 4).unbind()
    x, w, v = (one.clone().requires_grad_() for one in (x, w, v))
    results = dynamo.compile(two_heads, backend=backend)(x, w, v)
    for name, one in zip("xwv", (x, w, v)):
        one.register_hook(lambda g, name=name: seen.append((name, g is None)))
        one.register_post_accumulate_grad_hook(lambda p, name=name: seen.append(name))
    results[0].sum().backward(retain_graph=True)
    assert sorted(map(str, seen)) == sorted(map(str, [("x", False), ("w", False), "x", "w"]))
    assert v.grad is None
    seen.clear()
    results[1].sum().backward()
    assert sorted(map(str, seen)) == sorted(map(str, [("x", False), ("v", False), "x", "v"]))


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_backward_of_the_only_result_that_is_kept(backend, kept):
    seen = []
    inputs = hooked(lambda name, gradient: seen.append(name))
    for _ in range(20):
        result = dynamo.compile(two_heads, backend=backend)(*inputs)[kept]
        more = [torch.ones(5).requires_grad_() * 2 for _ in range(10)]  # memory is used again
        grads = torch.autograd.grad(result.sum(), inputs, allow_unused=True)
        assert [gradient is None for gradient in grads] == [False, kept == 1, kept == 0]
    assert set(seen) == {"wv"[kept]} and more


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_backwards_of_threads_at_once(backend):
    seen = []
    inputs = hooked(lambda name, gradient: seen.append((name, gradient)))
    results = dynamo.compile(two_heads, backend=backend)(*inputs)
    totals = [results[0].sum(), results[1].sum(), results[0].sum() + results[1].sum()]
    wanted = [torch.autograd.grad(t, inputs, retain_graph=True, allow_unused=True) for t in totals]
    hooks = {name: gradient for name, gradient in seen}
    seen.clear()
    found = []

    def differentiate(number):
        for _ in range(100):
            grads = torch.autograd.grad(
                totals[number], inputs, retain_graph=True, allow_unused=True
            )
            found.append((grads, wanted[number]))

    threads = [threading.Thread(target=differentiate, args=(n % 3,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 600 and len(seen) == 800
    assert all(str(grads) == str(alone) for grads, alone in found)
    assert all(torch.equal(gradient, hooks[name]) for name, gradient in seen)


def through_hooks(backend):
    """A backward through the graph from within each hook of another."""
    log, inner = [], []

    def hook(name, gradient):
        log.append((name, gradient))
        if not inner:
            inner.append(name)
            with torch.enable_grad():
                total = (results[0] * 2).sum() + results[1].sum()
            grads = torch.autograd.grad(total, inputs[1:], retain_graph=True)
            log.extend(zip(("inner w", "inner v"), grads))
            inner.clear()

    inputs = hooked(hook)
    call = two_heads if backend is None else dynamo.compile(two_heads, backend=backend)
    results = call(*inputs)
    (results[0].sum() + results[1].sum()).backward(retain_graph=True)
    log.sort(key=lambda entry: (entry[0], float(entry[1].sum())))
    return [name for name, _ in log], [value for _, value in log], [x.grad for x in inputs]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_backward_in_a_hook(backend):
    names, *values = through_hooks(None)
    got_names, *got_values = through_hooks(backend)
    assert got_names == names
    torch.testing.assert_close(got_values, values)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("raising", [0, 1, 2])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_nothing_stays_of_a_backward_whose_hooks_raise(backend, raising, create_graph):
    def refuse(gradient):
        raise ValueError("refused")

    def fail():
        inputs = hooked(lambda name, gradient: None)
        inputs[raising].register_hook(refuse)
        results = call(*inputs)
        total = results[0].pow(2).sum() + results[1].pow(2).sum()
        with pytest.raises(ValueError, match="refused"):
            torch.autograd.grad(total, inputs, create_graph=create_graph)
        return [weakref.ref(x) for x in inputs]

    call = dynamo.compile(two_heads, backend=backend)
    for _ in range(2):
        references = fail()
        torch.ones(1, requires_grad=True).sum().backward()  # what the engine had still to do ends
        gc.collect()
        assert [reference() for reference in references] == [None] * 3


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_results_deleted_in_a_backward_of_others(backend):
    def square(x, w, v):
        shared = x.exp()
        return shared * w, shared * v

    inputs = hooked(lambda name, gradient: None)
    results = list(dynamo.compile(square, backend=backend)(*inputs))
    wanted = torch.autograd.grad(results[1].sum(), inputs[0], retain_graph=True)
    torch.autograd.grad(results[0].sum(), inputs[:2], retain_graph=True)
    other = torch.ones(3, requires_grad=True)
    other.register_hook(lambda gradient: results.__setitem__(0, None))
    torch.autograd.grad((other * 2).sum(), other)
    assert results[0] is None
    torch.testing.assert_close(torch.autograd.grad(results[1].sum(), inputs[0]), wanted)
