"""Returned views: what autograd knows of them, and what may be done to them in place."""

import re

import pytest
import torch

import dynamo


def doubled_and(make):
    def function(x):
        y = x * 2
        return y, make(y)

    return function


VIEWS = {
    "transposed": lambda y: y.t(),
    "in another shape": lambda y: y.view(-1),
    "a row": lambda y: y[1],
    "a part": lambda y: y[:, 1:3:2],
    "unsqueezed": lambda y: y[None],
    "expanded": lambda y: y.expand(2, *y.shape),
    "of a view": lambda y: y.t()[1:].unsqueeze(1),
    "another object": lambda y: y.view_as(y),
    "diagonal": lambda y: y.diagonal(),
    "one of several": lambda y: y.unbind(1)[2],
    "detached": lambda y: y.detach(),
    "detached, then a view": lambda y: y.detach()[1:],
    "a view, then detached": lambda y: y.view(-1).detach(),
}
PROGRAMS = {
    **{f"{name}, of an output": doubled_and(make) for name, make in VIEWS.items()},
    **{f"{name}, of no output": lambda x, make=make: make(x * 2) for name, make in VIEWS.items()},
    **{
        f"{name}, of an input": lambda x, make=make: (x * 2, make(x))
        for name, make in VIEWS.items()
    },
}


def tried(operation, tensor):
    try:
        operation(tensor)
    except RuntimeError as error:
        return re.sub(r"^Output \d+ of \w+ ", "", str(error))  # respelled
    return tensor._version, tensor.requires_grad, tensor.tolist()


def seen(function, leaf):
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    x = x if leaf else x * 1
    results = function(x)
    results = results if isinstance(results, tuple) else (results,)
    facts = [(r._is_view(), r.is_leaf, r.stride(), r.storage_offset()) for r in results]
    gradients = []
    for result in results:
        if result.requires_grad:
            tangent = torch.arange(float(result.numel())).reshape(result.shape)
            (found,) = torch.autograd.grad(result, x, tangent, retain_graph=True)
            gradients.append(found.tolist())
    written = [tried(lambda t: t.add_(1), r) for r in results]
    versions = [r._version for r in results]
    return facts, gradients, written, versions, [tried(torch.detach_, r) for r in results]


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_views_are_autograds_own(name, backend):
    compiled = dynamo.compile(PROGRAMS[name], backend=backend)
    for leaf in (False, True):
        assert seen(compiled, leaf) == seen(PROGRAMS[name], leaf), leaf


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_detached_results_are_no_views(backend):
    programs = (
        lambda x: (x * 2).detach(),
        lambda x: x.detach(),
        doubled_and(torch.detach),
        lambda x: (x * 2).data,
    )
    for program in programs:
        compiled = dynamo.compile(program, backend=backend)
        for x in (torch.ones(3), torch.ones(3, requires_grad=True)):
            for call in (program, compiled):
                result = call(x)
                result = result[1] if isinstance(result, tuple) else result
                assert not result._is_view() and not result.requires_grad
                result.detach_()
                result.requires_grad_()
