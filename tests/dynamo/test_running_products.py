"""Gradients of cumprod: one operator whatever zeros there are, or torch's where it must be."""

from __future__ import annotations

import math

import pytest
import torch

import dynamo
from backends import lookup_backend
from fxgraph.aot import functionalize_training
from fxgraph.aot.running_product import running_product_backward

SHAPES = [((5,), 0), ((9, 7), 1), ((9, 7), 0), ((3, 21, 5), 1), ((1, 2), -1), ((2, 1), 1)]
SHAPES += [((0, 3), 1)]
INF, NAN = math.inf, math.nan
SPECIAL = [[1, NAN, 0, 2, 3], [INF, 2, 0, 0, 1], [0, 0, 1, 2, 3], [1, 2, 3, 4, 0]]
SPECIAL += [[0, NAN, 1, 0, INF]]


def both(x, dim, tangent):
    def run(x):
        return x.cumprod(dim), torch.cumprod(x * 2, dim=dim)

    found = []
    for function in (run, dynamo.compile(run, backend="aot_eager", fullgraph=True)):
        leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        results = function(leaf)
        gradient = torch.autograd.grad(results, leaf, [tangent, tangent])[0]
        found.append([*(result.detach() for result in results), gradient])
    torch.testing.assert_close(found[1], found[0], equal_nan=True, check_stride=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("zeros", [0, 0.05, 0.4])
def test_gradients(dtype, zeros):
    torch.manual_seed(0)
    for shape, dim in SHAPES:
        x = torch.randn(shape).masked_fill(torch.rand(shape) < zeros, 0)
        both(x.to(dtype), dim, torch.randn(shape).to(dtype))


def test_no_numbers_and_infinities():
    x, tangent = torch.tensor(SPECIAL), torch.linspace(-1, 1, 25).view(5, 5)
    both(x, 1, tangent)
    tangent[:, 3] = INF
    tangent[1, 1] = NAN
    both(x, 1, tangent)
    both(x.t(), 1, tangent)
    both(x.t(), 0, tangent)


def test_strides_of_single_elements():
    """They say nothing of the memory, and the gradient's are as of any result."""
    odd = torch.randn(6, 7).as_strided((6, 1), (1, 5))
    both(odd, 0, torch.randn(6, 1))
    image = torch.randn(2, 3, 1, 1).to(memory_format=torch.channels_last)
    both(image, 1, torch.randn(2, 3, 1, 1))


def products(x, dim):
    return x.prod(dim), torch.prod(x * 2, dim, keepdim=True), x.exp().prod(dim=dim), x.prod()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("zeros", [0, 0.05, 0.4])
def test_gradients_of_prod(dtype, zeros, backend):
    torch.manual_seed(0)
    for shape, dim in SHAPES[1:5] if backend == "inductor" else SHAPES:
        x = torch.randn(shape).masked_fill(torch.rand(shape) < zeros, 0).to(dtype)
        check_products(x, dim, backend)


@pytest.mark.parametrize("row", [*SPECIAL, [1, NAN, 3, INF, 2]], ids=str)
def test_prod_without_numbers(row):
    """Rows with a zero and without; eager looks for zeros in all rows at once."""
    check_products(torch.tensor([row], dtype=torch.float32), 1, "aot_eager")


def check_products(x, dim, backend):
    found = []
    for function in (products, dynamo.compile(products, backend=backend, fullgraph=True)):
        leaf = x.clone().requires_grad_()
        results = function(leaf, dim)
        weights = [torch.ones_like(result) * 1.5 for result in results]
        found.append([*(r.detach() for r in results), *torch.autograd.grad(results, leaf, weights)])
    limit = 5e-2 if x.dtype is torch.bfloat16 else 1e-5
    close = {"rtol": limit, "atol": limit, "equal_nan": True, "check_stride": True}
    torch.testing.assert_close(found[1], found[0], **close)


def test_one_operator():
    targets = []

    def counted(gm, example_inputs):
        backward = functionalize_training(gm, example_inputs).backward.graph_module
        targets.extend(node.target for node in backward.graph.nodes)
        return lookup_backend("aot_eager")(gm, example_inputs)

    x = torch.randn(4, 5, requires_grad=True)
    dynamo.compile(lambda x: x.cumprod(-1), backend=counted, fullgraph=True)(x)
    assert targets.count(running_product_backward) == 1


def test_second_derivative():
    def penalty(x):
        (gradient,) = torch.autograd.grad(x.cumprod(0).square().sum(), x, create_graph=True)
        return gradient.square().sum()

    x = torch.tensor([1.5, -2, 0.5, 1], dtype=torch.float64, requires_grad=True)
    expected = torch.autograd.grad(penalty(x), x)
    compiled = dynamo.compile(penalty, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x), expected)


@pytest.mark.parametrize("written", ["input", "result"])
def test_what_is_written_before_backward(written):
    """Eager's error: both are saved."""

    def run(x):
        y = x * 1
        return y, y.cumprod(0)

    x = torch.rand(4, requires_grad=True)
    for function in (run, dynamo.compile(run, backend="aot_eager", fullgraph=True)):
        y, z = function(x)
        (y if written == "input" else z).detach().add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
