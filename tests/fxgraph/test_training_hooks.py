"""Hooks, anomaly mode, profiler, threads, checkpoints around compiled graphs, as in eager."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import dynamo
from tests.fxgraph.training_support import BACKENDS, assert_same, check, facts, r

COMPILED = BACKENDS[1:]


def net(x, w):
    return torch.tanh(x @ w).exp() * x


def inputs():
    return [r(4, 4), r(4, 4)]


def module_world(backend, use):
    """use(model, call, log) in a world of its own."""

    def run(compile):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        model = model.double()
        log = []
        torch.manual_seed(1)
        use(model, compile(model), log.append)
        return [*log, *[facts(p) for p in model.parameters()]]

    dynamo.reset()
    expected = run(lambda model: model)
    assert_same(expected, run(lambda model: dynamo.compile(model, backend=backend)))


def full_backward_hook(model, call, log):
    model.register_full_backward_hook(lambda m, gi, go: log([gi[0] is None, go[0].detach()]))
    call(r(2, 3)).sum().backward()


def inner_backward_hook(model, call, log):
    model[0].register_full_backward_hook(lambda m, gi, go: log(go[0].detach()))
    call(r(2, 3)).sum().backward()


def forward_hook(model, call, log):
    model[1].register_forward_hook(lambda m, i, o: o * 2)
    y = call(r(2, 3))
    y.sum().backward()
    log(y.detach())


def parameter_hook(model, call, log):
    model[0].weight.register_hook(lambda g: g * 3)
    model[2].weight.register_hook(lambda g: log(g.detach()))
    call(r(2, 3)).sum().backward()


def post_accumulate_hook(model, call, log):
    model[0].weight.register_post_accumulate_grad_hook(lambda p: log(p.grad.detach().clone()))
    for _ in range(2):
        call(r(2, 3)).sum().backward()


def hook_inside_optimizer(model, call, log):
    """The optimizer steps as soon as a gradient is there."""

    def step(parameter):
        with torch.no_grad():
            parameter -= 0.1 * parameter.grad
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        log(call(torch.ones(2, 3, dtype=torch.float64)).detach())
        call(torch.ones(2, 3, dtype=torch.float64)).sum().backward()


def multi_grad_hook(model, call, log):
    wanted = list(model.parameters())
    torch.autograd.graph.register_multi_grad_hook(wanted, lambda gs: log(len(gs)))
    call(r(2, 3)).sum().backward()


def node_hooks(model, call, log):
    y = call(r(2, 3))
    y.grad_fn.register_prehook(lambda go: log(go[0].detach()))
    y.sum().backward()


def edge_of_output(model, call, log):
    y = call(r(2, 3))
    edge = torch.autograd.graph.get_gradient_edge(y)
    (g,) = torch.autograd.grad(edge, model[0].weight, torch.ones_like(y))
    log(g)


def checkpointed(model, call, log):
    x = r(2, 3)
    checkpoint(call, x, use_reentrant=False).sum().backward()
    log(x.grad)


def checkpointed_reentrant(model, call, log):
    x = r(2, 3)
    checkpoint(call, x, use_reentrant=True).sum().backward()
    log(x.grad)


def on_cpu(model, call, log):
    with torch.autograd.graph.save_on_cpu():
        y = call(r(2, 3))
    y.sum().backward()


def hooks_disabled(model, call, log):
    with torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
        call(r(2, 3)).sum().backward()


def reentrant_backward(model, call, log):
    def inner(g):
        with torch.enable_grad():
            z = r(2, 3)
            call(z).sum().backward()
            log(z.grad)
        return g

    x = r(2, 3)
    y = call(x)
    y.register_hook(inner)
    y.sum().backward()
    log(x.grad)


def batched_gradients(model, call, log):
    x = r(3)
    y = call(x)
    rows = torch.eye(2, dtype=torch.float64)
    log(torch.autograd.grad(y, x, rows, is_grads_batched=True)[0])


def vectorized_jacobian(model, call, log):
    x = r(3)
    log(torch.autograd.functional.jacobian(call, x, vectorize=True))
    log(torch.autograd.functional.jacobian(call, x))
    log(torch.autograd.functional.hessian(lambda x: call(x).sum(), x))


def forward_mode(model, call, log):
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(r(3), torch.ones(3, dtype=torch.float64))
        log(torch.autograd.forward_ad.unpack_dual(call(x)).tangent.detach())


def gradient_penalty(model, call, log):
    x = r(2, 3)
    (g,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
    (call(x).sum() + g.square().sum()).backward()
    log(x.grad)


def second_derivative_of_chain(model, call, log):
    x = r(3)
    h = x * 2
    y = (call(h) * x.sum()).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    log(g.detach())
    log(torch.autograd.grad(g.sum(), x)[0])


MODULE_USES = [
    full_backward_hook, inner_backward_hook, forward_hook, parameter_hook, post_accumulate_hook,
    hook_inside_optimizer, multi_grad_hook, node_hooks, edge_of_output, checkpointed,
    checkpointed_reentrant, on_cpu, hooks_disabled, reentrant_backward, batched_gradients,
    vectorized_jacobian, forward_mode, gradient_penalty, second_derivative_of_chain,
]  # fmt: skip


@pytest.mark.parametrize("use", MODULE_USES, ids=lambda use: use.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_module(use, backend):
    module_world(backend, use)


def biased(x, b):
    return F.relu(x + b)


def residual(x, b):
    h = x * 2
    for _ in range(2):
        h += biased(h, b)  # eager does not save h
    return h


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_eager_does_not_save_may_be_written(backend, monkeypatch):
    x, b = inputs()
    expected = torch.autograd.grad(residual(x, b).sum(), [x, b])
    monkeypatch.setitem(globals(), "biased", dynamo.compile(biased, backend=backend))
    for _ in range(2):
        assert_same(expected, torch.autograd.grad(residual(x, b).sum(), [x, b]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_saved_tensor_hooks_see_what_eager_saves(backend):
    def use(result, inputs, log):
        result.sum().backward()

    packed = []

    def pack(t):
        packed.append(t.detach().clone())
        return t

    def hooked(fn):
        def call(*args):
            with saved_tensors_hooks(pack, lambda t: t):
                return fn(*args)

        return call

    torch.manual_seed(0)
    x, w = inputs()
    hooked(net)(x, w).sum().backward()
    expected, packed[:] = list(packed), []
    call = dynamo.compile(net, backend=backend)
    call(x, w)  # compiled without the hooks
    hooked(call)(x, w).sum().backward()
    assert_same(expected, packed)


@pytest.mark.parametrize("backend", COMPILED)
def test_anomaly_mode_names_the_compiled_function(backend):
    def f(x, w):
        return (x * w).sqrt()

    call = dynamo.compile(f, backend=backend)
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    with pytest.warns(UserWarning, match="Error detected in framegraph::fBackward.*\n(.|\n)*call"):
        with pytest.raises(RuntimeError, match="framegraph::fBackward.*nan values"):
            with torch.autograd.detect_anomaly():
                call(x, x.detach()).sum().backward()


@pytest.mark.parametrize("backend", COMPILED)
def test_the_profiler_shows_the_compiled_function(backend):
    call = dynamo.compile(net, backend=backend)
    call(*inputs())
    with torch.profiler.profile() as profile:
        call(*inputs()).sum().backward()
    names = [event.name for event in profile.events()]
    assert "framegraph::net" in names and "framegraph::netBackward" in names
    assert type(call(*inputs()).grad_fn).__name__ == "CompiledBackward"


@pytest.mark.parametrize("backend", COMPILED)
def test_threads(backend):
    call = dynamo.compile(net, backend=backend)
    x, w = inputs()
    (expected,) = torch.autograd.grad(net(x, w).sum(), w)
    call(x, w).sum().backward(retain_graph=True)
    found = []

    def work():
        for _ in range(20):
            found.append(torch.autograd.grad(call(x, w).sum(), w)[0])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    for gradient in found:
        torch.testing.assert_close(gradient, expected)


def test_one_graph_backward_from_many_threads():
    call = dynamo.compile(net, backend="aot_eager")
    x, w = inputs()
    y = call(x, w).sum()
    threads = [
        threading.Thread(target=lambda: y.backward(retain_graph=True, inputs=[w])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (once,) = torch.autograd.grad(net(x, w).sum(), w)
    torch.testing.assert_close(w.grad, 4 * once)


# -- random numbers -------------------------------------------------------------------------------
def dropout(x, w):
    return F.dropout(x @ w, 0.5) * x


def factories(x, w):
    return x * torch.rand(4, 4, dtype=x.dtype) + torch.randn_like(w) * w, torch.randint(9, (3,))


def in_order(x, w):
    a = torch.rand(4, dtype=x.dtype)
    y = F.dropout(x * a, 0.3)
    return y + torch.randn(4, dtype=x.dtype), torch.bernoulli(torch.full((4,), 0.5)), a


def several_dropouts(x, w):
    for _ in range(3):
        x = F.dropout(x @ w, 0.2)
    return x, F.alpha_dropout(x, 0.5), F.feature_dropout(x[None], 0.5)


def random_write(x, w):
    y = torch.empty_like(x).uniform_()
    return y.normal_() * x, y.bernoulli_(0.3) * w


def rrelu(x, w):
    return F.rrelu(x, training=True) * w


def attention(x, w):
    q = (x @ w)[None, None]
    return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)


def checkpointed_dropout(x, w):
    return checkpoint(dropout, x, w, use_reentrant=False)


def drawn_in_backward(result, inputs, log):
    """The stream goes on where eager's does, and the mask of the forward is used."""
    first = result[0] if isinstance(result, tuple) else result
    log(torch.rand(2))
    first.sum().backward(retain_graph=True)
    log(torch.rand(2))
    first.sum().backward()


RANDOM = [
    dropout, factories, in_order, several_dropouts, random_write, rrelu, attention,
    checkpointed_dropout,
]  # fmt: skip


@pytest.mark.parametrize("fn", RANDOM, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_random_numbers(fn, backend):
    check(fn, inputs, drawn_in_backward, backend)


@pytest.mark.parametrize("fn", [dropout, in_order], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_recomputed_under_a_checkpoint(fn, backend):
    call = dynamo.compile(fn, backend=backend)

    def first(function):
        def run(x, w):
            result = function(x, w)
            return result[0] if isinstance(result, tuple) else result

        torch.manual_seed(0)
        x, w = inputs()
        y = checkpoint(run, x, w, use_reentrant=False)
        y.square().sum().backward()
        return [y.detach(), x.grad, w.grad, torch.rand(2)]

    assert_same(first(fn), first(call))


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_hear_nothing_of_gradients_for_other_outputs(backend):
    def two(x, y):
        return x * 2, y.sin() * x

    def seen(function):
        x, y = r(3, 4), r(3, 4)
        first, second = function(x, y)
        heard = []
        first.register_hook(lambda g: heard.append(("first", g.tolist())))
        second.register_hook(lambda g: g * 2)
        torch.autograd.graph.register_multi_grad_hook(
            (first, second), lambda grads: heard.append([grad is None for grad in grads])
        )
        first.retain_grad()
        first.sum().backward(retain_graph=True)
        second.sum().backward(retain_graph=True)
        (first * second).sum().backward()
        return heard, first.grad

    torch.manual_seed(0)
    wanted = seen(two)
    torch.manual_seed(0)
    assert_same(seen(dynamo.compile(two, backend=backend)), wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_saved_output_that_was_written_has_no_second_derivative(backend):
    def relu(x):
        return x.relu()

    for function in (relu, dynamo.compile(relu, backend=backend)):
        x = torch.arange(-2.0, 3.0, requires_grad=True)
        y = function(x)
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(y.sum(), x, create_graph=True)


class FirstOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        return x * 2 + w, x - w

    @staticmethod
    def backward(ctx, given, other):
        return given * 2 + other, None


class Neither(FirstOnly):
    @staticmethod
    def backward(ctx, given, other):
        return None, None


class Upstream(torch.autograd.Function):
    """Has a gradient of zeros where none arrives."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, given):
        return given * 3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", ["leaf", "accumulated", "upstream", "before", "retained"])
@pytest.mark.parametrize("function", [FirstOnly, Neither])
@pytest.mark.parametrize("reads", [(0,), (1,), (0, 1)])
def test_inputs_that_get_no_gradient_are_reached_all_the_same(reads, function, way, backend):
    def f(a, b):
        results = function.apply(a.sin(), b)
        return [results[number].exp() for number in reads]

    def seen(call):
        found = []
        for _ in range(2):
            called = []
            x, w = r(3), r(3)
            a, b = (x, w) if way in ("leaf", "accumulated") else map(Upstream.apply, (x, w))
            for name, one in (("a", a), ("b", b)):

                def note(*given, name=name):
                    called.append((name, *map(str, given)))

                if way == "accumulated":
                    one.register_post_accumulate_grad_hook(note)
                elif way == "before":
                    one.grad_fn.register_prehook(note)
                elif way == "retained":
                    one.retain_grad()
                else:
                    one.register_hook(note)
            sum(result.sum() for result in call(a, b)).backward()
            leaves = (a, b) if way == "retained" else ()
            found += [sorted(called), [str(one.grad) for one in (x, w, *leaves)]]
        return found

    torch.manual_seed(0)
    expected = seen(f)
    torch.manual_seed(0)
    assert seen(dynamo.compile(f, backend=backend)) == expected


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [FirstOnly, Neither])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_a_second_derivative_through_outputs_that_get_no_gradient(order, function, backend):
    def f(x, w):
        a, b, c = x.sin(), w.sinh(), w.cos()
        y, _ = function.apply(a, b)
        outputs = a, b, c, y.exp() * c
        return [outputs[number] for number in order]

    def derivatives(call):
        found = []
        for number in range(len(order)):
            x, w = r(3), r(3)
            outputs = call(x, w)
            y = outputs[order.index(3)].sum() + outputs[number].square().sum()
            first = torch.autograd.grad(y, (x, w), create_graph=True, materialize_grads=True)
            total = sum(one.square().sum() for one in first)
            found += [*first, *torch.autograd.grad(total, (x, w), materialize_grads=True)]
        return found

    torch.manual_seed(0)
    expected = derivatives(f)
    torch.manual_seed(0)
    torch.testing.assert_close(derivatives(dynamo.compile(f, backend=backend)), expected)


def left(x):
    y = x.clone()
    z = x + y
    with torch.no_grad():
        y.mul_(2)
    return y, z


def detached(x):
    y = x.clone()
    z = x + y
    y.detach().mul_(2)
    return y, z


def written_twice(x):
    y = x.clone()
    z = x + y
    with torch.no_grad():
        y[0] = 3
    z = z * y
    y[1] = 2
    return y, z


def activated(x):
    y = x.clone()
    F.leaky_relu(y, 0.2, inplace=True)
    z = x + y
    return y, z


def activated_by_position(x):
    y = x.clone()
    F.relu(y, True)
    z = x + y
    return y, z


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "function", [left, detached, written_twice, activated, activated_by_position]
)
def test_a_gradient_of_a_result_that_is_written_behind_its_use_is_whole(function, backend):
    def use(result, inputs, log):
        result[0].register_hook(lambda gradient: log("hook", gradient))
        result[1].sum().backward()

    check(function, lambda: [r(3)], use, backend)
