"""Gradients that are a tangent or a view of one: whose memory they are, as in eager."""

import pytest
import torch
from torch.nn.utils import parameters_to_vector

import dynamo

PROGRAMS = {
    "sum of inputs": (lambda x, y: x + y, 2),
    "difference": (lambda x, y: x - y, 2),
    "view": (lambda x: x.view(6), 1),
    "views": (lambda x, y: x.view(6) + y.view(6), 2),
    "a view and a value": (lambda x, y: x.view(6) + y.t().reshape(6), 2),
    "another object": (lambda x: x.view_as(x), 1),
    "joined": (lambda x, y: torch.cat([x, y]), 2),
    "joined in rows": (lambda x, y: torch.cat([x, y], 1), 2),
    "stacked": (lambda x, y: torch.stack([x, y]), 2),
    "twice": (lambda x: x + x, 1),
    "beside a product": (lambda x, y: x * y + x, 2),
    "of three": (lambda x, y, z: x + y + z * 2, 3),
    "summed": (lambda x, y: x.sum(0) + y[0], 2),
    "repeated": (lambda x: x.unsqueeze(0).expand(4, 2, 3) + 0, 1),
    "permuted": (lambda x, y: (x.t() + y.t()).contiguous(), 2),
    "detached in part": (lambda x, y: x + y.detach() + y, 2),
}
PARTS = {
    "joined and scaled": (lambda x, y, z: torch.cat([x, y, z]).sin() * 2, 3),
    "joined flat": (lambda x, y: torch.cat([x.view(-1), y.view(-1)]) * y.sum(), 2),
    "joined in rows and scaled": (lambda x, y: torch.cat([x, y], 1) * 2, 2),
    "stacked and scaled": (lambda x, y: torch.stack([x, y]).tanh(), 2),
    "parameters": (lambda x, y: parameters_to_vector([x, y]).cos(), 2),
    "unbound twice": (lambda x, y: torch.stack([*x.unbind(), *y.unbind()]).sin(), 2),
    "of one value": (lambda x, y: (x.view(6) + y.t().reshape(6)) * 2, 2),
}
TANGENTS = {
    "held": lambda shape: torch.ones(shape),
    "expanded": lambda shape: torch.ones(()).expand(shape),
    "a part": lambda shape: torch.ones(2, *shape)[1],
    "transposed": lambda shape: torch.ones(shape[::-1]).permute(*range(len(shape))[::-1]),
}


def memory(tensor):
    return tensor.untyped_storage().data_ptr()


def inputs(count):
    return [torch.arange(6.0).reshape(2, 3).requires_grad_() for _ in range(count)]


def accumulated(function, count, tangent, times):
    """What is seen of gradients after `times` backwards of one tangent."""
    given = inputs(count)
    result = function(*given)
    tangent = tangent(result.shape)
    for _ in range(times):
        result.backward(tangent, retain_graph=True)
    places = [memory(x.grad) for x in given]
    shared = [place == memory(tangent) for place in places]
    return shared, len(set(places)), [(x.grad.tolist(), x.grad.stride()) for x in given]


def returned(function, count, tangent):
    given = inputs(count)
    result = function(*given)
    tangent = tangent(result.shape)
    found = torch.autograd.grad(result, given, tangent)
    shared = [memory(one) == memory(tangent) for one in found]
    strides = [one.stride() for one, shares in zip(found, shared) if shares]
    return shared, strides, [(one is tangent, one.tolist()) for one in found]


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_of_gradients(name, backend):
    function, count = PROGRAMS[name]
    compiled = dynamo.compile(function, backend=backend)
    for kind, tangent in TANGENTS.items():
        once = accumulated(function, count, tangent, 1)
        assert accumulated(compiled, count, tangent, 1) == once, kind
        if not any(once[0]):  # eager itself would add to the tangent
            thrice = accumulated(function, count, tangent, 3)
            assert accumulated(compiled, count, tangent, 3) == thrice, kind
        assert returned(compiled, count, tangent) == returned(function, count, tangent), kind


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_one_gradient_are_views_of_it(name):
    function, count = PARTS[name]
    compiled = dynamo.compile(function, backend="aot_eager")
    expected = accumulated(function, count, torch.ones, 1)
    assert accumulated(compiled, count, torch.ones, 1) == expected
    assert returned(compiled, count, torch.ones) == returned(function, count, torch.ones)


def test_a_tangent_that_is_dropped_is_kept_by_the_leaf():
    def step(function):
        x, y = inputs(2)
        (function(x, y) * 2).sum().backward()
        return memory(x.grad) == memory(y.grad), x.grad.tolist(), y.grad.tolist()

    for function, _ in (PROGRAMS["sum of inputs"], PROGRAMS["views"], PROGRAMS["joined"]):
        assert step(dynamo.compile(function)) == step(function)


def test_hooks_see_and_change_handed_on_gradients():
    def step(function):
        x, y = inputs(2)
        seen = []
        x.register_hook(lambda grad: seen.append(grad.tolist()))
        y.register_hook(lambda grad: grad * 3)
        z = x * 1
        z.register_hook(lambda grad: (grad.mul_(2), None)[1])
        function(z, y).backward(torch.ones(2, 3))
        return seen, x.grad.tolist(), y.grad.tolist()

    function, _ = PROGRAMS["sum of inputs"]
    assert step(dynamo.compile(function)) == step(function)


def test_an_absent_tangent_hands_on_the_other():
    def function(x, y):
        return x + y, x.view(6)[1:], y * 2

    compiled = dynamo.compile(function)
    for chosen in ([0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]):
        results = []
        for call in (function, compiled):
            given = inputs(2)
            made = call(*given)
            sums = sum((made[n] * 3).sum() for n in chosen)
            found = torch.autograd.grad(sums, given, allow_unused=True)
            results.append([None if one is None else one.tolist() for one in found])
        assert results[0] == results[1], chosen


def test_handed_on_gradients_over_varying_sizes():
    def function(x, y):
        return torch.cat([x, y.view(y.shape[0] * y.shape[1]).view_as(y)]) + 0

    compiled = dynamo.compile(function, dynamic=True)
    for rows in (2, 3, 5):
        for call in (function, compiled):
            x, y = torch.ones(rows, 4, requires_grad=True), torch.ones(3, 4, requires_grad=True)
            call(x, y).backward(torch.arange(4.0 * (rows + 3)).view(-1, 4))
            assert torch.equal(torch.cat([x.grad, y.grad]).view(-1), torch.arange(4.0 * (rows + 3)))
