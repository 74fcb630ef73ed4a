"""What a compiled backward holds: a saved tensor's memory is free after its last use, unless it is
needed again."""

from __future__ import annotations

import weakref

import pytest
import torch

import dynamo

seen: list[bool] = []  # by call of the probe: whether the watched memory is still there
watched: list[weakref.ref] = []


@torch.library.custom_op("training_memory::probe", mutates_args=())
def probe(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("training_memory::probe_backward", mutates_args=())
def probe_backward(grad: torch.Tensor) -> torch.Tensor:
    seen.extend(storage() is not None for storage in watched)
    return grad.clone()


probe.register_fake(lambda x: torch.empty_like(x))
probe_backward.register_fake(lambda grad: torch.empty_like(grad))
probe.register_autograd(lambda ctx, grad: probe_backward(grad))


def product(w, x):
    """Its backward multiplies with x, then probes."""
    return probe(w) * x


def product_of_saved(w, x):
    """The backward needs x once more after the probe."""
    return probe(w * x) * 2


def call(compiled):
    """The result for an x of which nothing but the backward knows."""
    seen.clear()
    watched.clear()
    w = torch.randn(64, 64, requires_grad=True)
    x = torch.randn(64, 64).exp()
    watched.append(weakref.ref(x.untyped_storage()))
    return w, compiled(w, x), x.clone()


@pytest.fixture(params=["aot_eager", "inductor"])
def compiling(request):
    """Compiles a function, at the sizes of `call`."""
    dynamo.reset()

    def compiled(function):
        made = dynamo.compile(function, backend=request.param)
        call(made)
        return made

    return compiled


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_dead_after_the_last_use(backend):
    """The first call's too: what it compiled holds none of its inputs."""
    dynamo.reset()
    compiled = dynamo.compile(product, backend=backend)
    for _ in range(2):
        w, y, x = call(compiled)
        y.sum().backward()
        assert seen == [False]
        assert torch.equal(w.grad, x)


def test_alive_until_the_last_use(compiling):
    compiled = compiling(product_of_saved)
    w, y, x = call(compiled)
    y.sum().backward()
    assert seen == [True]
    assert watched[0]() is None
    assert torch.equal(w.grad, 2 * x)


def test_kept_for_another_backward(compiling):
    compiled = compiling(product)
    w, y, x = call(compiled)
    y.sum().backward(retain_graph=True)
    assert seen == [True] and watched[0]() is not None
    y.sum().backward()
    assert watched[0]() is None
    assert torch.equal(w.grad, 2 * x)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()


def test_kept_where_another_backward_needs_it(compiling):
    """Of two results that share what is saved, the first one's backward frees it, as in eager."""

    def both(w, x):
        y = probe(w) * x
        return y * 2, y * 3, w * 4

    compiled = compiling(both)
    w, (a, b, c), x = call(compiled)
    c.sum().backward()
    assert seen == [] and watched[0]() is not None
    (a + b).sum().backward()
    assert torch.equal(w.grad, 4 + 5 * x)
    assert watched[0]() is None


def test_a_hook_that_raises_leaves_the_backward_to_be_done_again(compiling):
    compiled = compiling(product)
    w, y, x = call(compiled)

    def refuse(grad_inputs, grad_outputs):
        raise ValueError("not yet")

    handle = y.grad_fn.register_hook(refuse)
    with pytest.raises(ValueError, match="not yet"):
        y.sum().backward()
    assert watched[0]() is not None
    handle.remove()
    y.sum().backward()
    assert torch.equal(w.grad, x)
    assert watched[0]() is None


def test_tensors_of_others_stay_as_they_are(compiling):
    """What is let go is not written: the caller may have it still."""
    compiled = compiling(lambda w, x: (w * x).exp() * x)
    w, x = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64)
    kept = x.clone()
    tangent = torch.randn(64, 64)
    given = tangent.clone()
    y = compiled(w, x)
    y.backward(tangent)
    assert torch.equal(x, kept) and torch.equal(tangent, given)
    torch.testing.assert_close(w.grad, tangent * y.detach() * x)


def test_computed_again_just_before_the_use():
    """What the backward computes again is not all computed at its beginning."""
    from fxgraph import symbolic_trace
    from fxgraph.aot import functionalize_training

    def layers(x, w0, w1, w2, w3):
        for w in (w0, w1, w2, w3):
            x = torch.sin(torch.exp(x @ w))
        return x

    inputs = [torch.randn(8, 8, requires_grad=True) for _ in range(5)]
    gm = symbolic_trace(layers)
    training = functionalize_training(gm, inputs)
    nodes = [n for n in training.backward.graph_module.graph.nodes if n.op == "call_function"]
    place = {node: i for i, node in enumerate(nodes)}
    products = [n for n in nodes if n.target is torch.ops.aten.mm.default]
    again = [n for n in nodes if n.target is torch.ops.aten.sin.default]
    assert len(again) == 3 and len(products) == 8
    # One for each layer's products, not three before the first.
    before = [sum(place[one] < place[product] for one in again) for product in products]
    assert before[0] <= before[1] == 1 and before[2] <= before[3] == 2
    assert before[4] <= before[5] == 3
