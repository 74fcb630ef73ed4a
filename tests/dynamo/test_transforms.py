"""torch.func inside compiled functions: captured with their bodies, and equal to eager."""

from __future__ import annotations

import collections

import pytest
import torch
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)
from torch.nn import functional as F

from tests.dynamo.transform_support import PROGRAMS, check, grads, plain, program, recompiles


# -- grad -----------------------------------------------------------------------------------------
@program(plain(3), inductor=True)
def grad_of_a_lambda(x):
    return grad(lambda y: (y**2).sum())(x) + 1


@program(plain(3, 3))
def grad_of_a_nested_function_with_a_closure(x, w):
    def loss(y):
        return (y * w).sin().sum()

    return grad(loss)(x) * w


def outer_loss(x, w):
    return ((x * w) ** 2).sum()


@program(plain(3, 3))
def grad_of_a_global_function(x, w):
    return grad(outer_loss)(x, w)


@program(plain(3, 3))
def grad_by_the_second_argument(x, w):
    return grad(outer_loss, argnums=1)(x, w)


@program(plain(3, 3))
def grad_by_the_last_argument(x, w):
    return grad(outer_loss, argnums=-1)(x, w)


@program(plain(3, 3), inductor=True)
def grad_by_both_arguments(x, w):
    return grad(outer_loss, argnums=(0, 1))(x, w)


@program(plain(3))
def grad_with_aux(x):
    def loss(y):
        z = y.exp()
        return z.sum(), {"z": z, "n": z * 3}

    return grad(loss, has_aux=True)(x)


@program(plain(3))
def grad_with_a_tuple_as_aux(x):
    return grad(lambda y: (y.sum(), (y * 2, [y * 3, y])), has_aux=True)(x)


@program(plain(3, 3))
def grad_of_a_dict(x, w):
    params = {"w": w, "b": x}
    return grad(lambda p, y: (p["w"] * y + p["b"]).pow(2).sum())(params, x)


@program(plain(3, 3))
def grad_of_nested_containers(x, w):
    return grad(lambda p: (p[0] * p[1]["k"][0]).sum())([x, {"k": (w,)}])


Pair = collections.namedtuple("Pair", "left right")


@program(plain(3, 3))
def grad_of_a_named_tuple(x, w):
    return grad(lambda p: (p.left * p.right**2).sum())(Pair(x, w))


@program(plain(3, 3))
def grad_of_an_ordered_dict(x, w):
    both = collections.OrderedDict(a=x, b=w)
    return grad(lambda p: sum((v**2).sum() for v in p.values()))(both)


@program(plain(3))
def grad_with_keyword_arguments(x):
    def loss(y, *, scale, shift=0.0):
        return (y * scale + shift).pow(2).sum()

    return grad(loss)(x, scale=x * 2, shift=3.0)


@program(plain(3))
def grad_of_grad(x):
    return grad(lambda y: grad(lambda z: (z**3).sum())(y).sum())(x)


@program(plain(()), inductor=True)
def third_derivative(x):
    return grad(grad(grad(torch.sin)))(x)


@program(plain(3))
def grad_and_value_of_a_loss(x):
    g, value = grad_and_value(lambda y: (y**2).sum())(x)
    return g * value


@program(plain(3))
def grad_and_value_with_aux(x):
    return grad_and_value(lambda y: ((y**2).sum(), y + 1), has_aux=True)(x)


@program(plain(3))
def grad_under_no_grad(x):
    with torch.no_grad():
        return grad(lambda y: (y**2).sum())(x)


@program(plain(3))
def no_grad_inside_grad(x):
    def loss(y):
        with torch.no_grad():
            c = y * 2
        return (c * y).sum()

    return grad(loss)(x)


@program(plain(3))
def detach_inside_grad(x):
    return grad(lambda y: (y.detach() * y).sum())(x)


@program(plain(3))
def the_flags_that_the_body_sees(x):
    seen = []

    def loss(y):
        return (y * (2 if y.requires_grad and torch.is_grad_enabled() else 3)).sum()

    return grad(loss)(x), seen


@program(grads(3, 3))
def grad_of_tensors_that_require_grad(x, w):
    return grad(lambda y: (y * w).sin().sum())(x)


@program(plain(3))
def grad_stored_and_called_twice(x):
    derivative = grad(lambda y: (y**3).sum())
    return derivative(x) + derivative(x * 2)


@program(plain(3))
def grad_of_a_partial(x):
    import functools

    return grad(functools.partial(outer_loss, w=x))(x * 2)


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return (x * self.factor).sum()

    def loss(self, x):
        return (x * self.factor).exp().sum()


@program(plain(3))
def grad_of_a_callable_object(x):
    return grad(Scale(3.0))(x)


@program(plain(3))
def grad_of_a_method(x):
    return grad(Scale(3.0).loss)(x)


@program(plain(3))
def grad_in_a_loop(x):
    for i in range(3):
        x = x - 0.1 * grad(lambda y, i=i: (y ** (i + 1)).sum())(x)
    return x


@program(plain((2, 3)))
def loop_inside_grad(x):
    def loss(y):
        total = 0
        for row in y:
            total = total + (row**2).sum()
        return total

    return grad(loss)(x)


@program(plain(3))
def in_place_inside_grad(x):
    def loss(y):
        z = y * 2
        z.mul_(y)
        return z.sum()

    return grad(loss)(x)


@program(plain(3))
def a_list_made_in_the_body(x):
    def loss(y):
        parts = []
        for i in range(3):
            parts.append(y * i)
        return torch.stack(parts).sum()

    return grad(loss)(x)


# -- vmap -----------------------------------------------------------------------------------------
@program(plain((4, 3)), inductor=True)
def vmap_of_a_sum(x):
    return vmap(torch.sum)(x) * 2


@program(plain((4, 3), (4, 3)))
def vmap_of_two(x, y):
    return vmap(torch.dot)(x, y)


@program(plain((4, 3), 3), inductor=True)
def vmap_with_in_dims(x, y):
    return vmap(lambda a, b: a * b + a.sum(), in_dims=(0, None))(x, y)


@program(plain((4, 3), 3))
def vmap_with_a_negative_dim(x, y):
    return vmap(lambda a, b: a.sum() + b, in_dims=(-1, 0))(x, y)


@program(plain((4, 3)))
def vmap_with_out_dims(x):
    return vmap(lambda a: (a, a * 2), out_dims=(1, 0))(x)


@program(plain((4, 3)))
def vmap_of_containers(x):
    return vmap(lambda d: {"s": d["a"].sum(), "t": (d["b"][0],)}, in_dims=({"a": 0, "b": 1},))(
        {"a": x, "b": [x.t()]}
    )


@program(plain((4, 3), 3))
def vmap_with_a_closure(x, w):
    return vmap(lambda a: torch.dot(a, w))(x)


@program(plain((4, 3)))
def vmap_of_vmap(x):
    return vmap(vmap(lambda a: a**2 + 1))(x)


@program(plain((4, 3)))
def the_shape_that_the_body_sees(x):
    return vmap(lambda a: a * a.shape[0] + a.dim())(x)


@program(plain((6, 3)))
def vmap_with_chunks(x):
    return vmap(lambda a: a.exp().sum(), chunk_size=2)(x)


@program(plain((4, 3)))
def vmap_with_the_same_randomness(x):
    return vmap(lambda a: a + torch.rand(3), randomness="same")(x)


@program(plain((4, 3)))
def vmap_with_different_randomness(x):
    return vmap(lambda a: F.dropout(a, 0.5), randomness="different")(x)


@program(plain((4, 3)), graphs=0, codes=("OP_ERROR",))
def vmap_refuses_randomness(x):
    return vmap(lambda a: a + torch.rand(3))(x)


@program(plain((4, 3)), graphs=0, codes=("OP_ERROR",))
def vmap_refuses_a_python_result(x):
    return vmap(lambda a: 3)(x)


@program(plain((4, 3)), graphs=0, codes=("OP_ERROR",))
def vmap_with_in_dims_that_do_not_fit(x):
    return vmap(lambda a: a, in_dims=(0, 0))(x)


@program(plain((4, 3)), graphs=0, codes=("OP_ERROR",))
def vmap_over_a_missing_dim(x):
    return vmap(lambda a: a, in_dims=5)(x)


@program(plain((4, 3), 2), graphs=0, codes=("OP_ERROR",))
def vmap_of_different_sizes(x, y):
    return vmap(lambda a, b: a.sum() + b)(x, y)


@program(plain((4, 3)), graphs=0)
def the_body_raises(x):
    def body(a):
        raise ValueError("no")

    return vmap(body)(x)


@program(plain((4, 3)), graphs=1, codes=("BODY_RAISES",))
def the_body_raises_and_the_frame_catches(x):
    def body(a):
        raise ValueError("no")

    try:
        return vmap(body)(x)
    except ValueError:
        return x + 1


@program(plain((4, 3)), graphs=0, codes=("DATA_DEPENDENT_VALUE",))
def the_body_needs_a_value(x):
    return vmap(lambda a: a * a.sum().item())(x)


@program(plain((4, 3), 4))
def vmap_with_a_constant_argument(x, y):
    return vmap(lambda a, n, b: a * n + b, in_dims=(0, None, 0))(x, 3, y)


@program(plain((4, 3)))
def vmap_of_a_where(x):
    return vmap(lambda a: torch.where(a > 0, a, -a).cumsum(0))(x)


@program(plain((4, 3, 3), (4, 3)))
def vmap_of_linear_algebra(a, b):
    return vmap(torch.linalg.solve)(a + 5 * torch.eye(3), b)


@program(grads((4, 3)))
def vmap_is_differentiated(x):
    return vmap(lambda a: (a**2).sum())(x)


@program(plain((4, 3)))
def vmap_mutates_its_argument(x):
    def body(a):
        a.add_(1)
        return a * 2

    return vmap(body)(x)


# -- transforms of transforms ----------------------------------------------------------------------
@program(plain((4, 3), 3), inductor=True)
def gradients_per_example(x, w):
    return vmap(grad(lambda a, b: (a * b).sin().sum(), argnums=1), in_dims=(0, None))(x, w)


@program(plain(3), inductor=True)
def hessian_of_a_cube(x):
    return hessian(lambda y: (y**3).sum())(x)


@program(plain(3, 3))
def hessian_by_two_arguments(x, w):
    return hessian(outer_loss, argnums=(0, 1))(x, w)


@program(plain(3))
def jacobians_agree(x):
    f = lambda y: (y.sin() * y.sum(), y**2)  # noqa: E731
    return jacrev(f)(x), jacfwd(f)(x)


@program(plain((2, 3)))
def jacrev_of_vmap(x):
    return jacrev(vmap(lambda a: (a**2).sum()))(x)


@program(plain((2, 3)))
def vmap_of_jacrev(x):
    return vmap(jacrev(torch.sin))(x)


@program(plain((2, 3)))
def vmap_of_hessian(x):
    return vmap(hessian(lambda a: (a**4).sum()))(x)


@program(plain(3))
def jacfwd_of_jacrev(x):
    return jacfwd(jacrev(lambda y: (y**3).sum()))(x)


@program(plain(4))
def jacrev_in_chunks(x):
    return jacrev(torch.cos, chunk_size=2)(x)


@program(plain(3))
def jacrev_with_aux(x):
    return jacrev(lambda y: (y**2, y + 1), has_aux=True)(x)


@program(plain(3))
def jacfwd_with_aux(x):
    return jacfwd(lambda y: (y**2, y + 1), has_aux=True, randomness="same")(x)


@program(plain(3, 3))
def jacrev_by_two_arguments(x, w):
    return jacrev(lambda a, b: a * b, argnums=(0, 1))(x, w)


@program(grads(3))
def hessian_of_what_requires_grad(x):
    return hessian(lambda y: (y**3).sum())(x)


# -- vjp, jvp -------------------------------------------------------------------------------------
@program(plain(3), inductor=True)
def vjp_of_sin(x):
    out, pull = vjp(torch.sin, x)
    return out, pull(out)


@program(plain(3, 3))
def vjp_of_two_called_twice(x, w):
    out, pull = vjp(lambda a, b: (a * b, a + b), x, w)
    one = pull((x, w))
    return out, one, pull((w, x))


@program(plain(3))
def vjp_with_aux(x):
    out, pull, aux = vjp(lambda y: (y**2, {"twice": y * 2}), x, has_aux=True)
    return out, pull(x)[0], aux


@program(plain(3), graphs=1, codes=("CANNOT_RECONSTRUCT",))
def the_function_of_vjp_is_returned(x):
    y = x * 2
    return vjp(torch.sin, y)[1](x), vjp(torch.sin, y)[1]


@program(plain(3))
def vmap_of_a_vjp_function(x):
    out, pull = vjp(torch.sin, x)
    return vmap(pull)(torch.eye(3))


@program(plain(3, 3), inductor=True)
def jvp_of_a_product(x, t):
    return jvp(lambda y: y * y.sum(), (x,), (t,))


@program(plain(3, 3))
def jvp_of_two(x, t):
    return jvp(lambda a, b: a * b, (x, t), (t, x))


@program(plain(3, 3))
def jvp_with_aux(x, t):
    return jvp(lambda y: (y**2, y + 1), (x,), (t,), has_aux=True)


@program(plain(3, 3))
def hessian_vector_product(x, t):
    return jvp(grad(lambda y: (y**3).sum()), (x,), (t,))[1]


@program(plain(3), graphs=0, codes=("OP_ERROR",))
def grad_with_a_number_as_aux(x):
    return grad(lambda y: (y.sum(), 3), has_aux=True)(x)


@program(plain(3), graphs=0, codes=("OP_ERROR",))
def jvp_wants_tuples(x):
    return jvp(torch.sin, x, x)


@program(plain(3), graphs=0, codes=("OP_ERROR",))
def grad_wants_a_scalar(x):
    return grad(torch.sin)(x)


@program(lambda: (torch.arange(3),), graphs=0, codes=("OP_ERROR",))
def grad_wants_floats(x):
    return grad(lambda y: y.sum())(x)


@program(plain(3), graphs=0, codes=("OP_ERROR",))
def grad_by_a_missing_argument(x):
    return grad(lambda y: y.sum(), argnums=3)(x)


# -- modules --------------------------------------------------------------------------------------
def small():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


def model_and(*shapes):
    return lambda: (small(), *[torch.randn(*shape) for shape in shapes])


@program(model_and((5, 3)))
def functional_call_with_other_parameters(model, x):
    params = {name: p.detach() * 2 for name, p in model.named_parameters()}
    return functional_call(model, params, (x,))


@program(model_and((5, 3)))
def functional_call_with_a_single_argument(model, x):
    return functional_call(model, {"0.weight": torch.ones(4, 3)}, x)


@program(model_and((5, 3), (5, 1)))
def gradients_of_parameters(model, x, y):
    params = dict(model.named_parameters())

    def loss(p):
        return F.mse_loss(functional_call(model, p, (x,)), y)

    return grad(loss)(params)


@program(model_and((5, 3), (5, 1)), inductor=True)
def gradients_of_parameters_per_example(model, x, y):
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(p, a, b):
        return F.mse_loss(functional_call(model, p, (a.unsqueeze(0),)), b.unsqueeze(0))

    return vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)


@program(model_and((5, 3)))
def grad_of_a_module_by_its_input(model, x):
    return grad(lambda y: model(y).sum())(x)


@program(model_and((5, 3)))
def vmap_of_a_module(model, x):
    return vmap(model)(x)


def normed(training):
    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        return model.train(training), torch.randn(5, 3)

    return make


@program(normed(True), graphs=0, codes=("OP_ERROR",))
def batch_norm_in_a_body(model, x):
    return grad(lambda y: model(y).pow(2).sum())(x)


@program(normed(False))
def batch_norm_that_does_not_train(model, x):
    return vmap(lambda a: model(a.unsqueeze(0)).squeeze(0))(x)


@program(normed(True))
def buffers_given_to_functional_call(model, x):
    state = {name: b.clone() for name, b in model.named_buffers()}
    state |= {name: p.detach() for name, p in model.named_parameters()}
    return functional_call(model, state, (x,)), state


@program(normed(True))
def functional_call_of_all_names(model, x):
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    return functional_call(model, (parameters, buffers), (x,), strict=True)


@program(model_and((5, 3)), graphs=0, codes=("OP_ERROR",))
def functional_call_of_too_few_names(model, x):
    state = dict(model.named_parameters())
    state.popitem()
    return functional_call(model, state, (x,), strict=True)


@program(model_and((5, 3)), graphs=0, codes=("OP_ERROR",))
def functional_call_of_a_missing_name(model, x):
    return functional_call(model, {"nothing": x}, (x,), strict=True)


# -- made outside of the frame --------------------------------------------------------------------
def sum_of_sines(x):
    return (x * x).sin().sum()


MADE = [grad(sum_of_sines), jacrev(sum_of_sines), jacfwd(sum_of_sines), hessian(sum_of_sines)]
BY_EXAMPLE = vmap(grad(outer_loss, argnums=1), in_dims=(0, None))


@program(plain(3, 3))
def made_outside(x, w):
    return [one(x) for one in MADE], BY_EXAMPLE(w[None], x), MADE[0] is MADE[0]


program(plain(3))(grad_and_value(sum_of_sines))


@program(lambda: ({"w": torch.ones(3), "b": torch.ones(())}, torch.ones(3)))
def grad_of_a_dict_of_arguments(weights, x):
    return grad(lambda p, x: (p["w"] * x + p["b"]).sin().sum())(weights, x)


# -- what the body does outside --------------------------------------------------------------------
@program(plain(3))
def the_body_appends_to_a_list_outside(x):
    seen = []

    def loss(y):
        seen.append(y.shape)
        return (y**2).sum()

    return grad(loss)(x) + 1, seen


@program(plain(3))
def the_body_changes_a_variable_outside(x):
    count = 0

    def loss(y):
        nonlocal count
        count += 1
        return (y**2).sum()

    return grad(loss)(x) + 1, count


calls = {"n": 0}


@program(plain(3))
def the_body_changes_a_global_dict(x):
    def loss(y):
        calls["n"] = y.numel()
        return (y**2).sum()

    return grad(loss)(x) + 1, dict(calls)


@program(plain(3))
def bodies_inside_bodies_change_more(x):
    places, seen = iter([1.0, 2.0, 3.0]), collections.deque([0])

    def loss(y):
        inside = []

        def inner(z):
            inside.append(z.shape)
            seen.append(len(inside))
            return (z * next(places)).sum()

        return (y * next(places)).sum() + grad(inner)(y).sum()

    return grad(loss)(x), list(seen), list(places)


@program(plain(3), codes=("BODY_SIDE_EFFECT",))
def the_body_keeps_tensors(x):
    seen = {}

    def loss(y):
        seen["y"] = [y.sin()]
        return (y**2).sum()

    return grad(loss)(x) + 1, len(seen)


@program(plain((3, 2)), graphs=1, codes=("BODY_SIDE_EFFECT",))
def a_body_that_runs_for_each_chunk(x):
    seen = []
    return vmap(lambda y: (seen.append(1), y * 2)[1], chunk_size=1)(x) + 1, seen


class Counting(torch.nn.Linear):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


@program(lambda: (Counting(3, 3), torch.ones(2, 3)))
def a_module_that_counts_its_calls(module, x):
    weights = dict(module.named_parameters())
    slope = grad(lambda w, x: torch.func.functional_call(module, w, (x,)).sum())
    return vmap(slope, in_dims=(None, 0))(weights, x), module.calls


@pytest.mark.parametrize("case, backend", PROGRAMS[__name__])
def test_program(case, backend):
    check(case, backend)


# -- guards ---------------------------------------------------------------------------------------
SCALE = 2.0


def test_what_the_body_read_is_guarded():
    def f(x):
        return grad(lambda y: (y**2 * SCALE).sum())(x)

    def with_scale(value):
        def make():
            globals()["SCALE"] = value
            return (torch.ones(3),)

        return make

    assert recompiles(f, with_scale(2.0), with_scale(2.0), with_scale(3.0)) == 2


def test_the_closure_of_a_body_is_guarded():
    holder = {"factor": 1.0}

    def f(x):
        return vmap(lambda y: y * holder["factor"])(x)

    def with_factor(value):
        def make():
            holder["factor"] = value
            return (torch.ones(3, 2),)

        return make

    assert recompiles(f, with_factor(1.0), with_factor(1.0), with_factor(5.0)) == 2


def test_a_tensor_in_the_closure_is_an_input():
    holder = {"w": torch.ones(3)}

    def f(x):
        return grad(lambda y: (y * holder["w"]).sum())(x)

    def with_weight(value):
        def make():
            holder["w"] = torch.full((3,), value)
            return (torch.ones(3),)

        return make

    assert recompiles(f, with_weight(1.0), with_weight(4.0)) == 1


def test_a_module_attribute_that_the_body_read_is_guarded():
    model = small()
    model.scale = 1.0

    def f(x):
        return grad(lambda y: (model(y) * model.scale).sum())(x)

    def with_scale(value):
        def make():
            model.scale = value
            return (torch.ones(2, 3),)

        return make

    assert recompiles(f, with_scale(1.0), with_scale(1.0), with_scale(2.0)) == 2


def test_other_functions_are_other_bodies():
    def f(x, function):
        return grad(lambda y: function(y).sum())(x)

    def square(x):
        return x**2

    def sine(x):
        return x.sin()

    assert recompiles(f, *[lambda g=g: (torch.ones(3), g) for g in (square, sine, square)]) == 2

    def apply(x, made):
        return made(x)

    both = [lambda g=g: (torch.ones(3, 3), vmap(g)) for g in (square, square, sine)]
    by_row = [lambda d=d: (torch.ones(3, 3), vmap(square, out_dims=d)) for d in (0, 1)]
    assert recompiles(apply, *both, *by_row) == 3
