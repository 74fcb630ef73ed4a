"""Programs over sizes and numbers: as in eager for each call, and how many compiles that takes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import dynamo
from backends.eager import eager
from tests.dynamo.dynamic_support import Counting, check, same

# What a program does with x of n rows; two compiles serve all sizes.
OF_SIZES = {
    "f_string_of_dim": lambda x: (x * 2, f"{x.dim()}d"),
    "slice_to_half": lambda x: x[: x.size(0) // 2] + 1,
    "slice_from_end": lambda x: x[-(x.size(0) // 3 + 1) :],
    "slice_of_slice": lambda x: x[1:][: x.size(0) - 2],
    "slice_stepped": lambda x: x[::2].sum(0),
    "slice_object": lambda x: x[slice(0, x.size(0) - 1)],
    "sqrt_scale": lambda x: x / math.sqrt(x.size(0)),
    "power_scale": lambda x: x * x.size(0) ** -0.5,
    "min_of_sizes": lambda x: x[: min(x.size(0), x.size(0) + 3)],
    "max_of_sizes": lambda x: x.sum() * max(x.size(0), 2 * x.size(0)),
    "abs_difference": lambda x: x.sum() * abs(x.size(0) - 1000),
    "divmod": lambda x: (x + 1, divmod(x.size(0), 2)),
    "pow": lambda x: (x + 1, pow(x.size(0), 3)),
    "last_bits": lambda x: (x + 1, x.size(0) & 7, 3 & -x.size(0), (x.size(0) - 9) & 1),
    "all_but_last_bits": lambda x: x[: x.size(0) & ~1] + ((x.size(0) + 7) & -8) + (-x.size(0) & -4),
    "round_of_size": lambda x: (x + 1, round(x.size(0))),
    "int_of_quotient": lambda x: (x + 1, int(x.size(0) / 2)),
    "int_of_float": lambda x: (x + 1, int(float(x.size(0)))),
    "bool_of_size": lambda x: (x + 1, bool(x.size(0))),
    "chained": lambda x: (x + 1, 1 < x.size(0) <= 10**6),
    "sum_of_sizes": lambda x: (x + 1, sum([x.size(0), x.size(1), 3])),
    "sum_of_generator": lambda x: (x + 1, sum(n * 2 for n in x.shape)),
    "prod_of_shape": lambda x: (x + 1, math.prod(x.shape)),
    "numel_of_shape": lambda x: (x + 1, x.shape.numel()),
    "size_count": lambda x: (x + 1, len(x.shape)),
    "size_slice": lambda x: x.reshape(x.shape[:1] + (2, -1)),
    "size_concatenated": lambda x: torch.zeros(x.shape[:1] + x.shape[1:]),
    "size_compared": lambda x: (x + 1, x.shape == x.clone().shape),
    "size_unpacked": lambda x: x.view(*x.shape, 1),
    "size_starred": lambda x: (lambda first, *rest: x.reshape(first, *rest))(*x.shape),
    "size_reversed": lambda x: x.reshape(tuple(reversed(x.shape))),
    "size_index_of_column": lambda x: (x + 1, x.shape[-1]),
    "list_of_sizes": lambda x: (x + 1, [n + 1 for n in x.shape]),
    "dict_of_sizes": lambda x: {"rows": x.size(0), "columns": x.size(1), "x": x * 2},
    "namespace": lambda x: (x + 1, SimpleNamespace(n=x.size(0)).n),
    "enumerate": lambda x: (x + 1, [(i, n) for i, n in enumerate(x.shape)]),
    "zip": lambda x: (x + 1, [a * b for a, b in zip(x.shape, x.stride())]),
    "map": lambda x: (x + 1, list(map(lambda n: n - 1, x.shape))),
    "conditional_on_dim": lambda x: x * 2 if x.dim() == 2 else x,
    "closure": lambda x: (lambda n: lambda y: y * n)(x.size(0))(x),
    "default_argument": lambda x: (lambda y, n=x.size(0): y * n)(x),
    "keyword": lambda x: (lambda *, n: x * n)(n=x.size(0)),
    "arange": lambda x: torch.arange(x.size(0)) * 2,
    "arange_step": lambda x: torch.arange(0, x.size(0), 2),
    "positions": lambda x: torch.arange(x.size(0)).unsqueeze(1) + x,
    "eye": lambda x: torch.eye(x.size(0)) @ x,
    "causal_mask": lambda x: torch.ones(x.size(0), x.size(0)).tril(),
    "masked_scores": lambda x: (
        (x @ x.t())
        .masked_fill(torch.ones(x.size(0), x.size(0), dtype=torch.bool).triu(1), float("-inf"))
        .softmax(-1)
    ),
    "full": lambda x: torch.full((x.size(0),), x.size(0)),
    "full_like": lambda x: torch.full_like(x, x.size(0) / 2),
    "new_zeros": lambda x: x.new_zeros(x.size(0), 3) + 1,
    "expand": lambda x: torch.ones(1, x.size(1)).expand(x.size(0), -1) + x,
    "repeat": lambda x: x.repeat(2, 1),
    "repeat_by_size": lambda x: torch.ones(2).repeat(x.size(0)),
    "cat": lambda x: torch.cat([x, x[:1], x]),
    "stack": lambda x: torch.stack([x, x * 2], 1),
    "pad": lambda x: F.pad(x, (0, 0, 1, 2)),
    "pad_by_size": lambda x: F.pad(x, (0, x.size(0))),
    "roll": lambda x: x.roll(1, 0),
    "flip": lambda x: x.flip(0),
    "narrow": lambda x: x.narrow(0, 1, x.size(0) - 1),
    "select_last": lambda x: x[x.size(0) - 1],
    "index_tensor": lambda x: x[torch.tensor([0, 1])],
    "gather": lambda x: x.gather(0, torch.zeros(1, x.size(1), dtype=torch.long)),
    "diagonal": lambda x: (x @ x.t()).diagonal(),
    "topk": lambda x: x.topk(2, 0).values,
    "cumsum": lambda x: x.cumsum(0),
    "mean_by_hand": lambda x: x.sum(0) / x.size(0),
    "std": lambda x: x.std(0),
    "layer_norm": lambda x: F.layer_norm(x, (x.size(-1),)),
    "unfold": lambda x: x.t().unfold(1, 2, 1).sum(-1),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, -1)),
    "view_merged": lambda x: x.view(-1),
    "view_split": lambda x: x.view(x.size(0), 2, -1).transpose(1, 2),
    "write": lambda x: x.mul_(x.size(0)),
    "write_slice": lambda x: _write_first(x),
    "outer_loop_over_columns": lambda x: sum(x[:, i] * i for i in range(x.size(1))),
    "unbind_columns": lambda x: torch.unbind(x, 1)[0] + 1,
    "split_columns": lambda x: x.split(2, 1)[1] * 2,
    "chunk_columns": lambda x: x.chunk(2, 1)[0] * 2,
    "numel": lambda x: x.sum() / x.numel(),
    "stride": lambda x: (x + 1, x.stride()),
    "len": lambda x: x * len(x),
    "assert": lambda x: _asserted(x),
    "check": lambda x: _checked(x),
    "try": lambda x: _tried(x),
    "with": lambda x: _within(x),
    "ceil_log": lambda x: (x + 1, math.ceil(x.size(0) / 3)),
    "xor_of_truths": lambda x: (x + 1, (x.size(0) > 1) == (x.size(0) > 0)),
    "not": lambda x: (x + 1, not x.size(0)),
    "and": lambda x: (x + 1, x.size(0) and 5),
    "or": lambda x: (x + 1, x.size(0) or 5),
    "is_integer_type": lambda x: (x + 1, type(x.size(0)) is int, isinstance(x.size(0), float)),
    "sorted_shape": lambda x: (x + 1, sorted((x.size(0), x.size(0) + 1, 1))),
}


def _write_first(x):
    x[: x.size(0) - 1] = 0
    return x + 1


def _asserted(x):
    assert x.size(0) > 1, "too small"
    return x + 1


def _checked(x):
    torch._check(x.size(0) < 10**6)
    return x * 2 if x.size(0) < 10**7 else x


def _tried(x):
    try:
        return x + 1 // (x.size(0) - x.size(0))
    except ZeroDivisionError:
        return x - 1


def _within(x):
    with torch.no_grad():
        n = x.size(0)
    return x * n


@pytest.mark.parametrize("name", OF_SIZES)
def test_of_sizes(name):
    calls = [(torch.randn(n, 4),) for n in (6, 9, 5, 12, 7)]
    check(lambda x: OF_SIZES[name](x * 1), calls, compiles=2)


# Chunks of n rows: a compile for each number of chunks, not for each size.
BY_COUNT = {
    "chunk": (lambda x: x.chunk(3)[0] + 1, (9, 12, 7, 20, 8), 2),
    "chunk_all": (lambda x: [part * 2 for part in x.chunk(2)], (9, 12, 7, 20, 8), 2),
    "chunk_fewer": (lambda x: len(x.chunk(4)), (9, 12, 16, 6, 5), 3),
    "split": (lambda x: len(x.split(4)), (9, 12, 10, 11, 13), 3),
    "split_parts": (lambda x: [part.sum() for part in x.split(4)], (9, 12, 10, 11, 13), 3),
    "tensor_split": (lambda x: [part.sum() for part in x.tensor_split(2)], (9, 12, 10, 7), 3),
    "split_sizes": (lambda x: x.split([2, x.size(0) - 2])[1] + 1, (9, 12, 10, 7), 2),
}


@pytest.mark.parametrize("name", BY_COUNT)
def test_by_count(name):
    fn, sizes, compiles = BY_COUNT[name]
    calls = [(torch.randn(n, 4),) for n in sizes]
    counting = Counting()
    compiled = dynamo.compile(lambda x: (x * 2, fn(x)), backend=counting, fullgraph=True)
    for (x,) in calls:
        same((x * 2, fn(x)), compiled(x))
    assert len(counting.graphs) <= compiles


# Numbers from elsewhere: (a function that makes a program and how to change its number).
def _attribute():
    holder = SimpleNamespace(rate=0.5)
    return lambda x: x * holder.rate, lambda value: setattr(holder, "rate", value)


def _nested_attribute():
    holder = SimpleNamespace(inner=SimpleNamespace(rate=0.5))
    return lambda x: x * holder.inner.rate, lambda value: setattr(holder.inner, "rate", value)


def _in_dict():
    options = {"rate": 0.5, "other": 3}
    return lambda x: x * options["rate"], lambda value: options.update(rate=value)


def _in_list():
    rates = [0.5, 1.5]
    return lambda x: x * rates[0], lambda value: rates.__setitem__(0, value)


def _in_closure():
    rate = 0.5

    def fn(x):
        return x * rate

    def change(value):
        nonlocal rate
        rate = value

    return fn, change


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = 0.5

    def forward(self, x):
        return x * self.rate


def _of_module():
    module = Scaled()
    return module, lambda value: setattr(module, "rate", value)


def _of_inner_module():
    module = torch.nn.Sequential(Scaled(), torch.nn.Identity())
    return module, lambda value: setattr(module[0], "rate", value)


def _of_class():
    class Options:
        rate = 0.5

    return lambda x: x * Options.rate, lambda value: setattr(Options, "rate", value)


PLACES = {
    function.__name__[1:]: function
    for function in (_attribute, _nested_attribute, _in_dict, _in_list, _in_closure, _of_module)
    + (_of_inner_module, _of_class)
}


@pytest.mark.parametrize("values", [(0.5, 0.25, 0.125, 3.5, 1e-3), (7, 8, 12, 3, 99)], ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_numbers_from(place, values):
    fn, change = PLACES[place]()
    counting = Counting(eager)
    compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
    x = torch.randn(3)
    for value in values:
        change(value)
        same(compiled(x), x * value)
    assert len(counting.graphs) == 2


def test_the_length_of_a_list_unrolls():
    counting = Counting(eager)
    compiled = dynamo.compile(lambda xs: sum(xs), backend=counting, fullgraph=True)
    for n in (2, 3, 2, 4, 3):
        xs = [torch.ones(2) * i for i in range(n)]
        same(compiled(xs), sum(xs))
    assert len(counting.graphs) == 3


def test_a_step_counter_in_a_module():
    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 3

        def forward(self, x):
            self.step += 1
            return x * (1 - 0.9**self.step)

    mine, theirs = Step(), Step()
    counting = Counting(eager)
    compiled = dynamo.compile(mine, backend=counting)
    x = torch.randn(3)
    for _ in range(6):
        same(compiled(x), theirs(x))
        assert mine.step == theirs.step
    assert len(counting.graphs) == 2


def test_attributes_of_different_modules_stay_constants():
    """Models of one class, each compiled by itself: their numbers differ, but none varies."""

    class Heads(torch.nn.Module):
        def __init__(self, heads):
            super().__init__()
            self.heads = heads
            self.linear = torch.nn.Linear(12, 12)

        def forward(self, x):
            return self.linear(x).view(x.size(0), self.heads, -1)

    counting = Counting(eager)
    for heads in (3, 4, 6):
        model = Heads(heads)
        compiled = dynamo.compile(model, backend=counting)
        x = torch.randn(2, 12)
        same(compiled(x), model(x))
    inputs = [[n for n in gm.graph.nodes if n.op == "placeholder"] for gm in counting.graphs]
    values = [node.meta["val"] for nodes in inputs for node in nodes]
    assert all(isinstance(value, torch.Tensor) for value in values)


def test_comparisons_of_shapes_break_nothing():
    def program(x, y):
        found = x.stride() == y.stride(), list(x.shape) == [*y.shape], y.shape[0] in x.shape
        return x + 1, found, list(x.shape).index(x.shape[1]), (x.shape, 1) < (y.shape, 2)

    compiled = dynamo.compile(program, backend="eager", dynamic=True, fullgraph=True)
    for shapes in (((3, 4), (3, 4)), ((5, 4), (3, 4)), ((5, 6), (7, 6))):
        x, y = map(torch.ones, shapes)
        same(compiled(x, y), program(x, y))


def test_modules_that_look_at_the_shapes_of_their_inputs():
    """A lazy module's first call, and a backward hook, under symbols."""
    torch.manual_seed(0)
    lazy = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.Tanh(), torch.nn.LazyLinear(2))
    lazy[1].register_full_backward_hook(lambda module, grads, _: (grads[0] * 2,))

    def program(x):
        return lazy(x).sum(1)

    counting = Counting(eager)
    compiled = dynamo.compile(program, backend=counting, dynamic=True, fullgraph=True)
    for rows in (4, 5, 7):
        x, y = (torch.ones(rows, 6, requires_grad=True) for _ in range(2))
        compiled(x).sum().backward()
        program(y).sum().backward()
        assert x.grad is not None
        same(x.grad, y.grad)
    assert len(counting.graphs) == 1
