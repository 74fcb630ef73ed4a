"""Numbers and sizes that depend on data, captured where config says so."""

from __future__ import annotations

import pytest
import torch

import dynamo
from backends.eager import eager
from tests.dynamo.dynamic_support import Counting, same

CALLS = [torch.tensor([1.0, 0.0, 2.0, 3.0]), torch.tensor([0.0, 0.0, 5.0, 1.0])]

SCALARS = {
    "item": lambda x: x.sum().item(),
    "multiplied": lambda x: x * x.max().item(),
    "int_item": lambda x: x.long().sum().item() + 1,
    "arithmetic": lambda x: (x * (x.long().sum().item() * 2 + 1), 3),
    "twice": lambda x: x * x.max().item() - x.min().item(),
    "tolist": lambda x: x.long().tolist(),
    "full": lambda x: torch.full((2,), x.long().max().item()),
}
SIZES = {
    "nonzero": lambda x: x.nonzero(),
    "nonzero_sum": lambda x: x.nonzero().sum() + x.sum(),
    "masked_select": lambda x: x.masked_select(x > 0) * 2,
    "mask_index": lambda x: x[x > 0].sum(),
    "unique": lambda x: torch.unique(x),
    "size_of_nonzero": lambda x: x.sum() / x.nonzero().size(0),
    "repeat_interleave": lambda x: x.repeat_interleave(x.long()),
}


@pytest.mark.parametrize("name", SCALARS)
def test_scalar(name):
    counting = Counting(eager)
    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(SCALARS[name], backend=counting, fullgraph=True)
        for x in CALLS:
            same(SCALARS[name](x), compiled(x))
    assert len(counting.graphs) == 1


@pytest.mark.parametrize("name", SIZES)
def test_size(name):
    counting = Counting(eager)
    with dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = dynamo.compile(SIZES[name], backend=counting, fullgraph=True)
        for x in CALLS:
            same(SIZES[name](x), compiled(x))
    assert len(counting.graphs) == 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_backends_are_right_all_the_same(backend):
    def fn(x):
        y = x.cos() + 1
        return y * x.max().item()

    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(fn, backend=backend)
        for x in CALLS:
            torch.testing.assert_close(compiled(x), fn(x))


@pytest.mark.parametrize("name", ["item", "nonzero"])
def test_without_the_option_the_graph_breaks(name):
    fn = {**SCALARS, **SIZES}[name]
    with pytest.raises(dynamo.errors.Unsupported):
        dynamo.compile(lambda x: fn(x + 1), backend="eager", fullgraph=True)(CALLS[0])


def test_a_branch_on_data_names_the_line_and_the_expression():
    def fn(x):
        n = x.long().sum().item()
        return x * 2 if n > 3 else x

    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(fn, backend="eager", fullgraph=True)
        with pytest.raises(dynamo.errors.Unsupported) as caught:
            compiled(CALLS[0])
    text = str(caught.value)
    assert "u0 >= 4" in text
    assert "return x * 2 if n > 3 else x" in text
    assert "torch._check" in text


def test_check_decides():
    def fn(x):
        n = x.long().sum().item()
        torch._check(n > 3)
        return x * 2 if n > 2 else x

    counting = Counting(eager)
    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
        for x in CALLS:
            same(fn(x), compiled(x))
        with pytest.raises(RuntimeError, match="Expected cond to be True"):
            compiled(torch.zeros(4))
    assert len(counting.graphs) == 1
