"""Gradients inside compiled functions: torch.autograd.grad, custom functions, checkpoints,
torch.autograd.functional, and what happens natively.
"""

from __future__ import annotations

import functools

import pytest
import torch
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
from torch.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import dynamo
from tests.dynamo.transform_support import PROGRAMS, check, grads, plain, program, recompiles


# -- torch.autograd.grad --------------------------------------------------------------------------
@program(grads(3))
def gradient_of_a_loss(x):
    y = (x**2).sum()
    return torch.autograd.grad(y, x)[0] + 1


@program(grads(3, 3))
def gradients_by_two(x, w):
    y = (x * w).sin().sum()
    return torch.autograd.grad(y, [x, w])


@program(grads(3))
def gradient_with_create_graph(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return (g**2).sum()


@program(grads(3))
def second_derivative(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    return h


@program(grads(3))
def gradient_with_grad_outputs(x):
    y = x.exp()
    return torch.autograd.grad(y, x, grad_outputs=torch.arange(3.0))[0]


@program(grads(3))
def gradients_of_two_outputs(x):
    return torch.autograd.grad([x.sum(), (x**2).sum()], x, grad_outputs=None)


@program(grads(3))
def the_graph_is_retained(x):
    y = (x**2).sum()
    (a,) = torch.autograd.grad(y, x, retain_graph=True)
    (b,) = torch.autograd.grad(y, x)
    return a + b


@program(grads(3), graphs=1, codes=("OP_ERROR",))
def the_graph_is_not_retained(x):
    y = (x**2).sum()
    (a,) = torch.autograd.grad(y, x)
    (b,) = torch.autograd.grad(y, x)
    return a + b


@program(grads(3, 3))
def an_unused_input_gives_none(x, w):
    return torch.autograd.grad((x**2).sum(), [x, w], allow_unused=True)


@program(grads(3, 3))
def an_unused_input_gives_zeros(x, w):
    return torch.autograd.grad((x**2).sum(), [x, w], materialize_grads=True)


@program(grads(3, 3), graphs=1, codes=("OP_ERROR",))
def an_unused_input_is_an_error(x, w):
    return torch.autograd.grad((x**2).sum(), [x, w])


@program(grads(3))
def gradient_by_an_intermediate(x):
    h = x * 2
    return torch.autograd.grad((h**2).sum(), h)[0]


@program(grads(3))
def batched_gradients(x):
    y = x**2
    return torch.autograd.grad(y, x, grad_outputs=torch.eye(3), is_grads_batched=True)[0]


@program(grads(3))
def gradient_penalty(x):
    score = (x.tanh() ** 2).sum()
    (g,) = torch.autograd.grad(score, x, create_graph=True)
    return score + (g.norm() - 1) ** 2


@program(plain(3), graphs=1, codes=("OP_ERROR",))
def no_gradient_needed(x):
    return torch.autograd.grad((x**2).sum(), x)


def with_history():
    x = torch.randn(3, requires_grad=True)
    return x, x * 2


@program(with_history, graphs=1, codes=("OUTSIDE_HISTORY",))
def gradient_through_what_was_before(x, h):
    return torch.autograd.grad((h**2).sum(), [x], allow_unused=True)


def test_a_leaf_that_is_no_leaf_the_next_time():
    def f(x, w):
        return torch.autograd.grad((x * 2).sum(), [x, w], allow_unused=True)

    compiled = dynamo.compile(f, backend="eager")
    w = torch.ones(3, requires_grad=True)
    for make in (lambda: torch.ones(3, requires_grad=True), lambda: w * 3):
        expected, found = f(make(), w), compiled(make(), w)
        assert [g is None for g in expected] == [g is None for g in found]


def written(x):
    y = x * 3
    try:
        x.view(3)[1:].sin_()
    except RuntimeError:
        return x - 1
    return y + x


def view_without_grad(x):
    with torch.no_grad():
        return x[:]


LATER = {
    "a leaf": lambda leaf: leaf,
    "a view of a leaf": lambda leaf: leaf[:],
    "one of several views": lambda leaf: torch.stack([leaf * 1, leaf * 2]).unbind()[0],
    "a view made in no_grad": lambda leaf: view_without_grad(leaf * 1),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("later", LATER)
def test_whether_autograd_lets_a_tensor_be_written_is_guarded(later, backend):
    compiled = dynamo.compile(written, backend=backend)
    records = []
    for make in (lambda leaf: leaf * 1, LATER[later]) * 3:
        given = [make(torch.arange(3.0).requires_grad_()) for _ in range(2)]
        found, expected = compiled(given[0]), written(given[1])
        torch.testing.assert_close((found, given[0]), (expected, given[1]))
        records.append(len(compiled.context.records))
    assert records[3] == records[5]


# -- custom functions -----------------------------------------------------------------------------
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 + x


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, scale):
        ctx.scale = scale
        ctx.save_for_backward(x, w)
        return x * w * scale, x + w

    @staticmethod
    def backward(ctx, g, h):
        x, w = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (g * w * ctx.scale + h if wanted[0] else None), g * x * ctx.scale + h, None


class WithSetup(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, power):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.power = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.power * x ** (ctx.power - 1), None


class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, indices = x.sort()
        ctx.mark_non_differentiable(indices)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(indices)
        return values, indices

    @staticmethod
    def backward(ctx, g, _):
        (indices,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(0, indices, g)


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g.expand(ctx.shape)


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


log: list[str] = []


class Loud(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        log.append("forward")
        return x * 2

    @staticmethod
    def backward(ctx, g):
        log.append("backward")
        return g * 2


class LoudBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        log.append("backward")
        return g * 2


@program(grads(3))
def custom_function(x):
    return Double.apply(x) + 1


@program(plain(3), inductor=True)
def custom_function_without_gradients(x):
    return Double.apply(x) + 1


@program(grads(3))
def custom_function_under_no_grad(x):
    with torch.no_grad():
        return Double.apply(x) + 1


@program(grads(3, 3))
def custom_function_of_several(x, w):
    a, b = Several.apply(x, w, 3.0)
    return a * b


@program(lambda: (torch.randn(3), torch.randn(3, requires_grad=True)))
def custom_function_of_which_one_needs_gradients(x, w):
    return Several.apply(x, w, 3.0)[0]


@program(grads(3))
def custom_function_with_setup_context(x):
    return WithSetup.apply(x, 3).sum()


@program(grads(3))
def custom_function_with_marks(x):
    values, indices = Marked.apply(x * 2)
    return values * indices


@program(grads(3))
def custom_function_in_place(x):
    y = x + 1
    z = InPlace.apply(y)
    return y * z


@program(grads(3))
def custom_function_differentiable_once(x):
    return Once.apply(x) * 2


@program(grads(3), inductor=True)
def straight_through(x):
    return StraightThrough.apply(x * 3).sum()


@program(grads(3))
def custom_function_twice(x):
    return Double.apply(Double.apply(x))


@program(grads(3))
def custom_function_and_autograd_grad(x):
    y = Double.apply(x).sum()
    return torch.autograd.grad(y, x)[0]


@program(plain(3))
def custom_function_inside_grad(x):
    return torch.func.grad(lambda y: WithSetup.apply(y, 2).sum())(x)


@program(plain((2, 3)))
def custom_function_inside_vmap(x):
    return torch.func.vmap(lambda y: WithSetup.apply(y, 2))(x)


@program(plain(3), graphs=0, codes=("OP_ERROR",))
def custom_function_without_setup_inside_grad(x):
    return torch.func.grad(lambda y: Double.apply(y).sum())(x)


@program(grads(3), graphs=2, codes=("BODY_SIDE_EFFECT",))
def custom_function_with_a_side_effect(x):
    log.clear()
    y = Loud.apply(x) + 1
    return y, list(log)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_backward_runs_as_python_each_time(backend):
    dynamo.reset()
    compiled = dynamo.compile(lambda x: LoudBackward.apply(x) + 1, backend=backend)
    log.clear()
    for turn in range(3):
        x = torch.ones(3, requires_grad=True)
        compiled(x).sum().backward()
        assert len(log) == turn + 1
        assert torch.equal(x.grad, torch.full((3,), 2.0))


FACTOR = 2.0


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * FACTOR

    @staticmethod
    def backward(ctx, g):
        return g * FACTOR


def test_what_forward_reads_is_guarded():
    def with_factor(value):
        def make():
            globals()["FACTOR"] = value
            return (torch.ones(3, requires_grad=True),)

        return make

    def f(x):
        return Scaled.apply(x).detach()

    assert recompiles(f, with_factor(2.0), with_factor(2.0), with_factor(5.0)) == 2


@program(grads(3))
def hook_of_one_of_several(x):
    y = torch.stack((x, x)).unbind()[0]
    y.register_hook(lambda g: g * 3)
    return y.sum()


# -- checkpoints ----------------------------------------------------------------------------------
def block(x, w):
    return torch.tanh(x @ w).relu()


@program(grads((2, 3), (3, 3)), inductor=True)
def checkpointed(x, w):
    return checkpoint(block, x, w, use_reentrant=False).sum()


@program(grads((2, 3), (3, 3)))
def checkpointed_reentrant(x, w):
    return checkpoint(block, x, w, use_reentrant=True).sum()


@program(plain((2, 3), (3, 3)))
def checkpointed_without_gradients(x, w):
    return checkpoint(block, x, w, use_reentrant=False).sum()


@program(grads((2, 3), (3, 3)))
def checkpointed_under_no_grad(x, w):
    with torch.no_grad():
        return checkpoint(block, x, w, use_reentrant=False).sum()


@program(grads((2, 3), (3, 3)))
def checkpointed_with_a_closure(x, w):
    h = w * 2
    return checkpoint(lambda y: block(y, h), x, use_reentrant=False)


@program(grads((2, 3), (3, 3)))
def checkpointed_reentrant_with_a_closure(x, w):
    return checkpoint(lambda y: block(y, w), x, use_reentrant=True)


@program(grads((2, 3), (3, 3)))
def checkpointed_with_keywords(x, w):
    def function(y, *, weight, scale=1.0):
        return block(y, weight) * scale

    return checkpoint(function, x, weight=w, scale=3.0, use_reentrant=False)


@program(grads((2, 3), (3, 3)))
def checkpointed_containers(x, w):
    def function(pair, flag):
        return {"a": pair[0] @ pair[1], "b": (pair[0] * 2, None)} if flag else None

    out = checkpoint(function, (x, w), True, use_reentrant=False)
    return out["a"] + out["b"][0], out["b"][1]


@program(grads((2, 3)))
def checkpointed_dropout(x):
    return checkpoint(lambda y: F.dropout(y * 2, 0.5) * y, x, use_reentrant=False)


@program(grads((2, 3)))
def checkpointed_dropout_reentrant(x):
    return checkpoint(lambda y: F.dropout(y * 2, 0.5) * y, x, use_reentrant=True)


@program(grads((2, 3)))
def checkpointed_with_the_rng_state_not_preserved(x):
    return checkpoint(lambda y: y.sin() * y, x, use_reentrant=False, preserve_rng_state=False)


@program(grads((2, 3), (3, 3)))
def checkpoint_in_a_checkpoint(x, w):
    def inner(y):
        return block(y, w)

    def outer(y):
        return checkpoint(inner, y, use_reentrant=False) * 2

    return checkpoint(outer, x, use_reentrant=False)


@program(grads((2, 3), (3, 3)))
def checkpoints_in_a_loop(x, w):
    run = functools.partial(checkpoint, use_reentrant=False)
    for _ in range(3):
        x = run(block, x, w)
    return x


@program(grads((2, 3)))
def no_grad_in_a_checkpoint(x):
    def function(y):
        with torch.no_grad():
            c = y * 2
        return c * y

    return checkpoint(function, x, use_reentrant=False)


@program(grads((2, 3)), graphs=0, codes=("OP_ERROR",))
def no_grad_in_a_reentrant_checkpoint(x):
    def function(y):
        with torch.no_grad():
            c = y * 2
        return c * y

    return checkpoint(function, x, use_reentrant=True)


@program(grads((2, 3)), graphs=0, codes=("OP_ERROR",))
def keywords_of_a_reentrant_checkpoint(x):
    return checkpoint(lambda y, k: y, x, k=3, use_reentrant=True)


@program(grads((2, 3)), graphs=1, codes=("BODY_SIDE_EFFECT",))
def a_checkpoint_with_a_side_effect(x):
    seen = []

    def function(y):
        seen.append(1)
        return y.sin()

    return checkpoint(function, x, use_reentrant=False) + 1, len(seen) > 0


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.drop = torch.nn.Dropout(0.3)

    def forward(self, x, mask=None):
        y = self.drop(self.linear(x).relu())
        return y if mask is None else y * mask


class Model(torch.nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))
        self.run = functools.partial(checkpoint, use_reentrant=reentrant)

    def forward(self, x, mask):
        for layer in self.layers:
            if self.training:
                x = self.run(layer.__call__, x, mask)
            else:
                x = layer(x, mask)
        return x


def model_args(reentrant, training=True):
    def make():
        model = Model(reentrant).train(training)
        return model, torch.randn(2, 3, requires_grad=True), torch.ones(2, 3)

    return make


@program(model_args(False))
def checkpointed_layers(model, x, mask):
    return model(x, mask).sum()


@program(model_args(True))
def checkpointed_layers_reentrant(model, x, mask):
    return model(x, mask).sum()


@program(model_args(False, training=False))
def layers_that_do_not_train(model, x, mask):
    return model(x, mask).sum()


def sequential():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers), torch.randn(2, 3, requires_grad=True)


@program(sequential)
def checkpointed_sequential(model, x):
    return checkpoint_sequential(model, 2, x, use_reentrant=False)


@program(sequential)
def checkpointed_sequential_reentrant(model, x):
    return checkpoint_sequential(model, 2, x, use_reentrant=True)


# -- torch.autograd.functional --------------------------------------------------------------------
@program(plain(3), inductor=True)
def functional_jacobian(x):
    return jacobian(lambda y: y**2, x)


@program(plain(3, 3))
def functional_jacobian_of_two(x, w):
    return jacobian(lambda a, b: (a * b, a.sum()), (x, w))


@program(plain(3))
def functional_jacobian_vectorized(x):
    return jacobian(torch.exp, x, vectorize=True)


@program(plain(3))
def functional_jacobian_forward(x):
    return jacobian(torch.exp, x, vectorize=True, strategy="forward-mode")


@program(grads(3))
def functional_jacobian_with_create_graph(x):
    return jacobian(lambda y: (y**3).sum(), x, create_graph=True)


@program(plain(3), graphs=1, codes=("UNCAPTURED_CALL",))
def functional_jacobian_with_create_graph_of_a_constant(x):
    made = jacobian(lambda y: y.sin() * y, x, create_graph=True)
    return made.requires_grad, made * 2


@program(plain(3))
def functional_hessian(x):
    return hessian(lambda y: (y**3).sum(), x)


@program(plain(3, 3))
def functional_products(x, v):
    f = lambda y: (y**3).sum()  # noqa: E731
    return vhp(f, x, v), hvp(f, x, v)


@program(plain(3, 3))
def functional_vjp_and_jvp(x, v):
    return vjp(torch.sin, x, v), jvp(torch.sin, x, v)


@program(plain(3), graphs=0, codes=("OP_ERROR",))
def functional_hessian_of_a_vector(x):
    return hessian(torch.sin, x)


@program(grads(3), graphs=1)
def backward_inside(x):
    y = (x**2).sum()
    y.backward(retain_graph=True)
    return y * 2


# -- what happens natively ------------------------------------------------------------------------
@program(plain(3, 3), graphs=1, codes=("UNCAPTURED_CALL", "UNCAPTURED_CALL"))
def linearize_runs_natively(x, t):
    out, push = torch.func.linearize(torch.sin, x)
    return push(t) + 1


def test_backward_inside_accumulates():
    model = torch.nn.Linear(3, 1)
    x = torch.randn(4, 3)

    def step(x):
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss.detach() * 2, model.weight.grad * 2

    compiled = dynamo.compile(step, backend="aot_eager")
    gradients = []
    for function in (step, compiled):
        model.zero_grad()
        results = [function(x) for _ in range(3)]
        gradients.append([r[1] for r in results])
    for one, other in zip(*gradients):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_tangents_are_not_lost(backend):
    dynamo.reset()
    compiled = dynamo.compile(lambda x: torch.sin(x) * 2, backend=backend)
    x = torch.randn(3)
    compiled(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(3))
        tangent = forward_ad.unpack_dual(compiled(dual)).tangent
    torch.testing.assert_close(tangent, torch.cos(x) * 2)
    torch.testing.assert_close(compiled(x), torch.sin(x) * 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_compiled_function_inside_a_transform(backend):
    dynamo.reset()
    compiled = dynamo.compile(lambda x: torch.sin(x) * 2, backend=backend)
    x = torch.randn(4, 3)
    compiled(x[0])
    torch.testing.assert_close(torch.func.vmap(compiled)(x), torch.sin(x) * 2)
    gradient = torch.func.grad(lambda y: compiled(y).sum())(x[0])
    torch.testing.assert_close(gradient, torch.cos(x[0]) * 2)
    assert len(compiled.context.records) == 1


def forward_mode(x):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        out = forward_ad.unpack_dual(dual * dual)
        return out.primal * 2, out.tangent * 2


def saved_tensor_hooks(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
        return (x * x).sum()


def saved_on_cpu(x):
    with torch.autograd.graph.save_on_cpu():
        return (x * x).sum()


def anomaly(x):
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        return (x * x).sum()


def no_views(x):
    with torch.autograd.graph.disable_saved_tensors_hooks("no"):
        return (x * x).sum()


@pytest.mark.filterwarnings("ignore:Anomaly")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    "function", [forward_mode, saved_tensor_hooks, saved_on_cpu, anomaly, no_views]
)
def test_modes_of_autograd_are_those_of_eager(function, backend):
    dynamo.reset()
    gradients, results = [], []
    for run in (function, dynamo.compile(function, backend=backend)):
        x = torch.arange(3.0, requires_grad=function is not forward_mode)
        results.append(run(x))
        if results[-1] is not None and function is not forward_mode:
            results[-1].backward()
        gradients.append(x.grad)
        assert not torch.is_anomaly_enabled()
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_functional_derivatives_in_inference_mode(backend):
    def f(x):
        y = x * 1
        return jacobian(lambda t: t * 2, y), vjp(lambda t: t * 2, y, y)[1]

    dynamo.reset()
    with torch.inference_mode():
        expected, result = f(torch.ones(2)), dynamo.compile(f, backend=backend)(torch.ones(2))
    assert not expected[0].any()  # autograd records nothing
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("case, backend", PROGRAMS[__name__])
def test_program(case, backend):
    check(case, backend)
