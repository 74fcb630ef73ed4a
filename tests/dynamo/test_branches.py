"""Branches on the values of tensors: conditionals in the graph where both sides only compute
tensors, graph breaks elsewhere; values, gradients, written inputs and effects as in eager.
"""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F

import dynamo
from backends.aot_eager import aot_eager
from backends.eager import eager
from backends.inductor import inductor
from tests.dynamo.branch_support import ARGUMENTS, CALLS, SEEN, Programs, check, same
from tests.dynamo.dynamic_support import Counting


@pytest.fixture(autouse=True)
def all_branches():
    with dynamo.config.patch(capture_branches="all"):
        yield


# program -> graphs of one call: 1 where all its branches are conditionals
program = Programs()


# -- conditionals ---------------------------------------------------------------------------------
@program(1)
def returns(x, w):
    if x.sum() > 5:
        return x * w
    return x - 1


@program(1)
def assigns(x, w):
    if (x > 2).any():
        y, z = x.sin(), x + w
    else:
        y, z = x.cos(), x * 3
    return y * z


@program(1)
def returns_from_a_block(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if x.sum() > 5:
            return x[None] @ w.t()
        return (x + 1)[None] @ w.t()


@program(1)
def writes_its_own(x, w):
    if x.sum() > 5:
        y = x * w
        y.add_(1)
    else:
        y = x - 1
    return y


@program(1)
def writes_statistics(x, w):
    mean, var = torch.zeros(2), torch.ones(2)
    if x.sum() > 5:
        y = F.batch_norm((x * w).reshape(2, 2), mean, var, training=True).reshape(-1)
    else:
        y = x - 1
    return y, mean, var


@program(1)
def changes_one(x, w):
    h = x * w
    if torch.isnan(h).any():
        h = torch.nan_to_num(h)
    return h * 2


@program(1)
def leaves_an_argument(x, w):
    if not x.sum() > 5:
        x = x * w
    return x + 1


@program(1)
def writes_another_behind(x, w):
    y = x * 1
    if not x.sum() > 5:
        y = y * w
    z = w * 2
    z.add_(1)
    return y + z


@program(1)
def nested(x, w):
    if x.sum() > 5:
        if x[0] > 2:
            x = x * w
        else:
            x = x * 3
    else:
        x = x - 1
    return x + 1


@program(1)
def one_of_four(x, w):
    s = x.sum()
    if s > 9:
        y = x * 1
    elif s > 7:
        y = x * w
    elif s > 5:
        y = x + w
    else:
        y = x * 5
    return y


@program(1)
def ternary(x, w):
    return (x * 2 if x.sum() > 5 else x - w) + 1


@program(1)
def both_of_two(x, w):
    if x.sum() > 3 and x.max() < 5:
        x = x * w
    return x + 1


@program(1)
def one_of_two(x, w):
    if x.sum() > 9 or x.max() < 2:
        x = x * w
    return x + 1


@program(1)
def value_of_and(x, w):
    return (x.sum() > 5) and (w.max() > 3)


@program(1)
def in_turns(x, w):
    for _ in range(3):
        if x.sum() > 5:
            x = x - 1
        else:
            x = x + w
    return x


@program(1)
def in_a_comprehension(x, w):
    return torch.stack([(t * 2 if t > 1 else t - 1) for t in x])


def _halved(x):
    if x.sum() > 5:
        return x / 2
    return x - 1


@program(1)
def in_a_callee(x, w):
    return _halved(x) + _halved(x + w)


@program(1)
def tuples(x, w):
    if x.sum() > 5:
        found = x * 2, (x + w, 5)
    else:
        found = x * 3, (x - w, 5)
    return found[0] + found[1][0] * found[1][1]


@program(1)
def a_loop_in_a_side(x, w):
    if x.sum() > 5:
        return torch.stack([x * i for i in range(3)]).sum(0)
    return x * w


@program(1)
def written_in_its_side(x, w):
    if x.sum() > 5:
        y = x * 2
        y.add_(w)
    else:
        y = x.clone()
        y[y > 1] = 0.0
    return y


@program(1)
def without_gradients(x, w):
    with torch.no_grad():
        if x.sum() > 5:
            y = x * 2
        else:
            y = x * w
    return y + x


@program(1)
def inside_try(x, w):
    try:
        with contextlib.nullcontext():
            if x.sum() > 5:
                y = x * 2
            else:
                y = x * w
    except ValueError:
        y = x
    return y


@program(1)
def random_numbers(x, w):
    torch.manual_seed(3)
    if x.sum() > 5:
        y = F.dropout(x, 0.5) + torch.rand(4)
    else:
        y = x + torch.rand(4) + torch.randn(4)
    return y + torch.rand(4)


@program(1)
def checked_behind(x, w):
    if x.sum() > 5:
        y = x * w
    else:
        y = x * 3
    assert not y.sum() > 17
    return y + 1


@program(1)
def a_view_of_a_side(x, w):
    pair = torch.stack([x, w])
    y = pair[1]
    if x.sum() > 5:
        y = (pair * 2)[0]
    return y + 1


@program(1)
def not_one_value(x, w):
    if x > 0:
        return x * 2
    return x * 3


@program(1)
def numbers(x, w):
    if x.sum().item() > 5:
        x = x * w
    if int((x > 0).sum()) > 2 and bool((x > 1).any()):
        x = x + 1
    y = x * 2 if float(x.detach()[0]) < 2 else x - w
    if 3 > y.max().item():
        y = y + w
    return y


@program(1)
def lists(x, w):
    if x.sum() > 5:
        found = [x * 2, [x + w]]
    else:
        found = [x * 3, [x - w]]
        found[0] = found[0] + 1
    found.append(x)
    return found[0] * found[1][0], found


@program(1)
def dicts(x, w):
    if x.sum() > 5:
        found = {"one": x * 2, "other": (x, 1)}
    else:
        found = {"one": x * w, "other": (w, 1)}
    found["third"] = found["one"] + found["other"][0]
    return found


# -- breaks ---------------------------------------------------------------------------------------
@program(2)
def one_list_twice(x, w):
    if x.sum() > 5:
        a = b = [x * 2]
    else:
        a, b = [x * 3], [x * w]
    a.append(w)
    return a[0] + b[0], len(b)


@program(2)
def keys(x, w):
    if x.sum() > 5:
        found = {"one": x * 2}
    else:
        found = {"other": x * 2}
    return list(found), found


@program(1)
def a_number_besides(x, w):
    n = x.max().item()
    if n > 2:
        x = x * w
    return x * 2, n


@program(1)
def returns_an_argument(x, w):
    if x.sum() > 5:
        return x * w
    return x


@program(2)
def tells_identity(x, w):
    y = x
    if x.sum() > 5:
        y = x * w
    return x + (1 if y is x else 2)


@program(2)
def tells_identity_in_a_list(x, w):
    h = x * 1
    y = h
    if x.sum() > 5:
        y = h * w
    return any(t is h for t in [y, x]), y * 1


@program(2)
def a_key(x, w):
    h = x * 1
    y = h
    if x.sum() > 5:
        y = h * w
    return {h: 1}.get(y, 2), y * 1


@program(1)
def returns_both(x, w):
    h = x * 1
    y = h
    if x.sum() > 5:
        y = h * w
    return h, y


@program(1)
def returns_one_twice(x, w):
    h = x * 1
    a = b = h
    if x.sum() > 5:
        a, b = h * 2, h * w
    return a, b


@program(2)
def returns_a_view(x, w):
    h = x * 1
    y = h[1:]
    if x.sum() > 5:
        y = h[:3] * 2
    return h, y


@program(1)
def two_that_may_be_one(x, w):
    y = x
    if x.sum() > 5:
        y = x * w
    z = y
    if x.max() > 4:
        z = y * 3
    return z


@program(2)
def writes_the_result(x, w):
    h = x * 1
    y = h
    if x.sum() > 5:
        y = h * w
    y.add_(1)
    return h * 2, y * 2


@program(2)
def writes_the_other(x, w):
    h = x * 1
    y = h
    if x.sum() > 5:
        y = h * w
    h.add_(1)
    return y * 2


@program(2)
def writes_the_result_by_out(x, w):
    y = x * 1
    z = y
    if x.sum() > 5:
        z = y * w
    torch.add(x.detach(), 1, out=y.detach())
    return z + 1


@program(2)
def writes_through_data(x, w):
    h = x.detach() * 1
    y = h
    if x.sum() > 5:
        y = h * 2
    y.data.add_(3)
    return h * 1


@program(2)
def writes_in_a_list(x, w):
    h = x * 1
    held, y = [h], h
    if x.sum() > 5:
        y = h * w
    held[0].mul_(2)
    return y + 1


@program(1)
def writes_an_outer_tensor(x, w):
    y = x.detach() * 1
    if x.sum() > 5:
        y.add_(1)
    return y * x


@program(2)
def writes_an_outer_tensor_with_a_gradient(x, w):
    y = x * torch.ones(4, requires_grad=True)
    if x.sum() > 5:
        y.add_(1)
    return y


@program(1)
def asks_for_a_leaf(x, w):
    y = x
    if x.sum() > 5:
        y = x * 2
    return y * 1, y.is_leaf


@program(3)
def breaks_behind(x, w):
    h = k = x + 1
    if h.sum() > 9:
        h = h * w
    dynamo.graph_break()
    return h * k


@program(1)
def number(x, w):
    k = 1
    if x.sum() > 5:
        k = 2
    return x * k


@program(2)
def word(x, w):
    k = "a"
    if x.sum() > 5:
        k = "bc"
    return x * len(k)


@program(2)
def sizes(x, w):
    if x.sum() > 5:
        x = x[:2]
    return x + 1


@program(2)
def dtypes(x, w):
    if x.sum() > 5:
        return x > 1
    return x * 2


@program(2)
def strides(x, w):
    pair = torch.stack([x, w])
    if x.sum() > 5:
        return pair.t() * 1
    return torch.cat([x[:, None], w[:, None]], 1)


@program(1)
def appends(x, w):
    found = []
    if x.sum() > 5:
        found.append(x * 2)
    else:
        found.append(x * w)
    return found[0] + 1


@program(2)
def effect_outside(x, w):
    if x.sum() > 5:
        SEEN.append("yes")
        x = x * 2
    return x + 1


@program(2)
def effect_in_a_closure(x, w):
    k = x * 1

    def double():
        nonlocal k
        k = k * 2

    if x.sum() > 5:
        double()
    return k


@program(2)
def unbound(x, w):
    if x.sum() > 5:
        y = x * 2
    try:
        return y
    except UnboundLocalError:
        return x * 0


@program(2)
def raises_in_a_side(x, w):
    if x.sum() > 9:
        y = x * 2
    elif x.sum() > 5:
        raise ValueError("between")
    else:
        y = x + 1
    return y


@program(1)
def may_fail_in_a_side(x, w):
    y = x * 1
    if x.sum() > 5:
        y = x[(x * 2).long()]
    return y


@program(2)
def asserts_in_a_side(x, w):
    y = x * 1
    if x.sum() > 5:
        assert y.sum() > 0
        y = y + 1
    return y


@program(1)
def leaves_a_loop(x, w):
    for _ in range(4):
        x = x + 1
        if x.sum() > 12:
            break
    return x * 2


@program(1)
def grad_mode_in_a_side(x, w):
    y = x * 2
    if x.sum() > 5:
        with torch.no_grad():
            k = x * 3
        y = y * k
    return y + x


@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("function", program, ids=lambda function: function.__name__)
def test_program(function, kind):
    check(function, kind, eager, program[function])


COMPILED = [changes_one, leaves_an_argument, nested, random_numbers, without_gradients, tuples]


@pytest.mark.parametrize("backend", [aot_eager, inductor])
@pytest.mark.parametrize("function", COMPILED, ids=lambda function: function.__name__)
def test_compiled(function, backend):
    check(function, "grads", backend, 1)


def test_gradients_are_those_of_the_side_that_ran():
    """A weight that only the other side uses gets none."""

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            h = x * 2
            h = self.one(h) if h.sum() > 0 else self.other(h)
            return h.relu()

    for backend in (eager, aot_eager):
        module = Two()
        compiled = dynamo.compile(module, backend=backend, fullgraph=True)
        for x, used, unused in ((1.0, "one", "other"), (-1.0, "other", "one")):
            module.zero_grad()
            compiled(torch.full((2, 4), x)).sum().backward()
            found = getattr(module, used).weight.grad.clone()
            assert getattr(module, unused).weight.grad is None
            module.zero_grad()
            module(torch.full((2, 4), x)).sum().backward()
            same(found, getattr(module, used).weight.grad)


def test_a_training_step():
    def step(w, x):
        y = x @ w
        y = y * 2 if y.sum() > 0 else y * y
        y.sum().backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        return y.detach()

    for backend in (eager, aot_eager):
        found = []
        for function in (step, dynamo.compile(step, backend=backend)):
            w = torch.full((3, 3), 0.5, requires_grad=True)
            results = [function(w, torch.full((2, 3), v)) for v in (1.0, -1.0, -2.0)]
            found.append([*results, w.detach()])
        same(*found)


def test_a_break_inside_of_autocast_compiles_once():
    """What its graph leaves switched on is no state of the next call."""

    def function(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if x.sum() > 5:
                return x[None] @ w[:, None]
            return (x + 1) @ w[:, None]  # another shape, so the graph breaks

    counting = Counting(aot_eager)
    compiled = dynamo.compile(function, backend=counting)
    for n in (9.0, 1.0, 9.0, 1.0, 9.0):
        x = torch.full((4,), n)
        assert torch.equal(compiled(x, x), function(x, x))
    assert len(counting.graphs) == 3


@pytest.mark.parametrize("wanted", ["fullgraph", "none"])
def test_the_option_turns_conditionals_off(wanted):
    x = torch.ones(4)
    with dynamo.config.patch(capture_branches=wanted):
        report = dynamo.explain(returns, backend="eager")(x, x)
        assert report.graph_count == 2 and report.branches == []
        assert [found.code for found in report.break_reasons] == ["DATA_DEPENDENT_JUMP"]
        whole = dynamo.compile(returns, backend="eager", fullgraph=True)
        if wanted == "fullgraph":
            assert torch.equal(whole(x, x), returns(x, x))
        else:
            with pytest.raises(dynamo.errors.Unsupported, match="a branch depends on"):
                whole(x, x)


def test_the_option_has_three_values():
    with pytest.raises(ValueError, match="'all', 'fullgraph', 'none'"):
        dynamo.config.capture_branches = "some"


def test_explain_says_what_became_of_branches():
    x = torch.ones(4)
    (text,) = dynamo.explain(returns, backend="eager")(x, x).branches
    assert "in returns: a conditional in the graph" in text
    for function, why in (
        (sizes, "(2,) strides (1,) float32 and (4,) strides (1,) float32"),
        (returns_a_view, "the frame returns what a side leaves as it was"),
        (writes_the_other, "what a side leaves as it was is written later"),
        (word, "the sides leave"),
    ):
        report = dynamo.explain(function, backend="eager")(x, x)
        (text,) = report.branches
        assert f"in {function.__name__}: the graph breaks" in text and why in text
        assert text in str(report)


@pytest.mark.parametrize("backend", [eager, aot_eager, inductor])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_sizes_and_numbers_that_vary(fullgraph, backend):
    def function(x, scale):
        y = x * 2
        if y.sum() > 2:
            return y.view(-1, 1) * y.shape[0] * scale
        return (y.view(-1) + x.numel())[:, None]

    counting = Counting(backend)
    compiled = dynamo.compile(function, backend=counting, fullgraph=fullgraph)
    for n, scale in ((3, 2.0), (4, 3.0), (5, 4.0), (4, 3.0), (7, 0.5)):
        for x in (torch.ones(n), torch.zeros(n)):
            gradients = []
            for run in (compiled, function):
                given = x.clone().requires_grad_()
                result = run(given, scale)
                gradients += [result.detach(), *torch.autograd.grad(result.sum(), given)]
            same(gradients[:2], gradients[2:])
    assert len(counting.graphs) == 2


def test_guards_of_both_sides():
    """What a side reads is guarded, also of the one that did not run."""
    names = {"low": "sin", "high": "cos"}

    def function(x):
        return getattr(x, names["low"])() if x.sum() < 0 else getattr(x, names["high"])()

    compiled = dynamo.compile(function, backend=eager, fullgraph=True)
    for low, high in (("sin", "cos"), ("exp", "cos"), ("exp", "tanh")):
        names.update(low=low, high=high)
        for x in (torch.ones(2), -torch.ones(2)):
            assert torch.equal(compiled(x), function(x))


def test_not_inside_transforms():
    """vmap refuses branches on data: it says so as in eager."""

    def inner(x):
        return x * 2 if x.sum() > 0 else x

    compiled = dynamo.compile(lambda x: torch.vmap(inner)(x), backend=eager)
    for function in (torch.vmap(inner), compiled):
        with pytest.raises(RuntimeError, match="data-dependent control flow"):
            function(torch.ones(2, 3))


def test_torch_backends_get_torch_cond():
    from fxgraph.torch_fx import to_torch_fx

    (graph,) = dynamo.explain(returns, backend="eager")(torch.ones(4), torch.ones(4)).graphs
    converted = to_torch_fx(graph)
    targets = [node.target for node in converted.graph.nodes]
    assert torch.ops.higher_order.cond in targets
    for values in CALLS:
        given = torch.tensor(values), torch.ones(4)
        same(converted(*given)[0], returns(*given))
