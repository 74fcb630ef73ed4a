"""Programs over what data chooses: one graph serves none, one, many and all, inference and
training, with numbers and sizes captured.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo
from backends.aot_eager import aot_eager
from backends.inductor import inductor
from tests.dynamo.branch_support import same
from tests.dynamo.dynamic_support import Counting
from tests.dynamo.test_dynamic_data import notes_of

NAN = float("nan")
W = [torch.linspace(-1, 1, 16).view(4, 4) * (i + 1) for i in range(3)]


def checked(x, n):
    k = int(n.sum())
    torch._check(k >= 0)
    torch._check(k <= 100)
    return torch.arange(k) * 2 + x.sum()


def narrowed(x, n):
    k = n.sum().item()
    torch._check(k >= 0)
    torch._check(k <= x.shape[0])
    return x.narrow(0, 0, k) * 2


def sliced(x, n):
    return x[: int(n.max())].sum(0)


def added(x, n):
    chosen = torch.arange(6) < n.sum()
    out = torch.zeros(5, 4)
    out.index_add_(0, n.new_tensor([0, 4, 2, 2, 1, 0])[chosen], x[chosen])
    return out


def scattered(x, n):
    chosen = torch.arange(6) < n.sum()
    return torch.zeros(5).scatter_add(0, n.new_tensor([0, 4, 2, 2, 1, 0])[chosen], x[chosen, 0])


def written(x, n):
    y = x * 1
    y[torch.arange(6) < n.sum()] = 1
    return y


def mixture(x, n):
    out = torch.zeros_like(x)
    expert = torch.arange(6) % 3 * (torch.arange(6) < n.sum())
    for e in range(3):
        rows = (expert == e).nonzero().squeeze(-1)
        out.index_add_(0, rows, x[rows] @ W[e])
    return out


def mixture_of_masks(x, n):
    out = torch.zeros_like(x)
    expert = torch.arange(6) % 3 * (torch.arange(6) < n.sum())
    for e in range(3):
        out[expert == e] = x[expert == e] @ W[e]
    return out


def padded(x, n):
    rows = torch.arange(6)[None] < torch.stack([n.sum(), n.sum() * 0 + 2])[:, None]
    return (x[None].expand(2, -1, -1)[rows] * 2).sum(0)


def unpadded(x, n):
    lengths = torch.stack([n.sum(), n.sum() * 0 + 2]).tolist()
    return torch.cat([x[:k] * (i + 1) for i, k in enumerate(lengths)])


def repeated(x, n):
    return x.repeat_interleave((torch.arange(6) < n.sum()).long() * 2, 0) + 1


def statistics(x, n):
    return x[torch.arange(6) < n.sum()].mean(0), x[torch.arange(6) < n.sum()].exp()


def loss(x, n):
    chosen = torch.arange(6) < n.sum()
    return F.cross_entropy(x[chosen], torch.arange(6)[chosen] % 4, reduction="sum")


def sums_of_equals(x, n):
    """Several results of one operator share a size that the graph uses."""
    keys = (n.new_tensor([0, 4, 2, 2, 1, 0]) * (torch.arange(6) < n.sum())).float()
    values, inverse, counts = torch.unique(keys, return_inverse=True, return_counts=True)
    sums = torch.zeros(values.shape[0], 4).index_add(0, inverse, x)
    runs, lengths = torch.unique_consecutive(keys, return_counts=True)
    return values, counts, sums, torch.ones(runs.shape[0]) * lengths


PROGRAMS = [
    sums_of_equals,
    checked, narrowed, sliced, added, scattered, written, mixture, mixture_of_masks, padded,
    unpadded, repeated, statistics, loss,
]  # fmt: skip


def outcome(function, k, value, grad):
    x = torch.linspace(-2, 2, 24).view(6, 4)
    x[1, 2] = value
    x.requires_grad_(grad)
    result = function(x, torch.tensor([k]))
    results = result if isinstance(result, tuple) else (result,)
    if grad:
        sum(t.sum() for t in results if t.requires_grad).backward()
    return [*(t.detach() for t in results), x.grad if grad else torch.zeros(())]


@pytest.mark.parametrize("backend", [aot_eager, inductor])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_one_graph_serves_all(function, backend):
    captured = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    for grad in (False, True):
        counting = Counting(backend)
        with dynamo.config.patch(**captured):
            compiled = dynamo.compile(function, backend=counting)
            for k, value in ((3, 0.5), (0, 0.5), (1, NAN), (6, 2.0), (2, NAN), (0, 1.0), (5, -1.0)):
                one, other = (outcome(f, k, value, grad) for f in (function, compiled))
                same(one, other)
                assert [t.shape for t in one] == [t.shape for t in other]
        assert len(counting.graphs) == 1


# Bounds that data tells: beyond the ends, and from behind.
SLICES = {
    "end": lambda x, n: x[: int(n)] * 2,
    "start": lambda x, n: x[int(n) :] * 2,
    "both": lambda x, n: x[int(n) : int(n) + 2] * 1.5,
    "from behind": lambda x, n: x[-int(n) :] + 1,
    "step": lambda x, n: x[int(n) :: 3].sum(0),
    "columns": lambda x, n: x[:, : int(n)].sum(1),
    "flat": lambda x, n: x.view(-1)[int(n) :].exp(),
    "put together": lambda x, n: torch.cat([x[int(n) :], x[: int(n)]]),
    "a product": lambda x, n: (x[: int(n)] @ x[: int(n)].t()).sum(),
    "softmax": lambda x, n: x[: int(n)].softmax(-1),
    "of a slice": lambda x, n: x[1:5][: int(n)].relu(),
    "an input": lambda x, n: x[int(n) :],
    "reshaped": lambda x, n: x[: int(n)].reshape(-1),
    "padded": lambda x, n: F.pad(x[: int(n)], (0, 1)),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", SLICES)
def test_slices(name, backend):
    function = SLICES[name]
    with dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        for grad in (False, True):
            compiled = dynamo.compile(function, backend=backend, isolate_recompiles=True)
            for n in (3, 0, 1, 6, 8, -1, -3, -9, 2):
                found = []
                for run in (function, compiled):
                    x = torch.linspace(-2, 2, 24).view(6, 4).requires_grad_(grad)
                    result = run(x, torch.tensor(n))
                    if grad:
                        result.sum().backward()
                    found.append((result.detach(), torch.zeros(()) if x.grad is None else x.grad))
                same(*found)
                assert found[0][0].shape == found[1][0].shape
            assert len(compiled.context.records) == 1


# Views of what data chose, as a function returns them.
VIEWS = {
    "repeated": lambda x: x[x[:, 0] > 0][:, None].expand(-1, 3, -1),
    "computed and repeated": lambda x: (x[x[:, 0] > 0] * 2)[:, None].expand(-1, 3, -1),
    "transposed": lambda x: (x[x[:, 0] > 0] * 2).t(),
    "permuted": lambda x: (x[x[:, 0] > 0] * 2).view(-1, 2, 2).permute(1, 0, 2),
    "a repeated sum": lambda x: x[x > 0].sum().expand(4),
    "a diagonal": lambda x: (lambda y: y @ y.t())(x[x[:, 0] > 0]).diagonal(),
    "each other column": lambda x: (x[x[:, 0] > 0] * 2)[:, ::2],
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", VIEWS)
def test_strides_of_views(name, backend):
    function = VIEWS[name]
    with dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        for grad in (False, True):
            compiled = dynamo.compile(function, backend=backend)
            for shift in (0.0, 3.0, -9.0, 9.0):
                found = []
                for run in (function, compiled):
                    x = (torch.linspace(-2, 2, 24).view(6, 4) + shift).requires_grad_(grad)
                    result = run(x)
                    if grad:
                        (result * result).sum().backward()
                    found.append((result.detach(), torch.zeros(()) if x.grad is None else x.grad))
                same(*found)
                expected, got = (pair[0] for pair in found)
                assert expected.shape == got.shape
                assert expected.numel() == 0 or expected.stride() == got.stride()


# Views with data in their sizes, beside each other, their base or an input.
SEVERAL_VIEWS = {
    "of an input": lambda x, n: (x[: int(n)], x * 2),
    "beside the base": lambda x, n: (lambda y: (y[: int(n)], y))(x * 2),
    "two parts": lambda x, n: (lambda y: (y[: int(n)], y[int(n) :]))(x * 2),
    "split": lambda x, n: (x * 2).split([int(n), 6 - int(n)]),
    "at a place": lambda x, n: (x * 2).tensor_split(n.view(1)),
    "transposed": lambda x, n: (lambda y: (y, y.t()))(x[x[:, 0] > n] * 2),
    "columns": lambda x, n: (x[x[:, 0] > n] * 2).unbind(1),
    "detached": lambda x, n: (lambda y: (y.detach(), y[: int(n)]))(x * 2),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", SEVERAL_VIEWS)
def test_views_that_training_returns(name, backend):
    function = SEVERAL_VIEWS[name]
    compiled = dynamo.compile(function, backend=backend, fullgraph=True)
    for n in (3, 0, 1, 6, 2):
        found = []
        for run in (function, compiled):
            x = torch.arange(24.0).view(6, 4).requires_grad_()
            given = x * 1
            results = run(given, torch.tensor(n))
            sum((t * t).sum() for t in results if t.requires_grad).backward()
            same_memory = [t.data_ptr() == u.data_ptr() for t in results for u in (*results, given)]
            facts = [(t.stride(), t.storage_offset(), t._is_view()) for t in results if t.numel()]
            found.append(([*(t.detach() for t in results), x.grad], facts, same_memory))
        same(found[0][0], found[1][0])
        assert found[0][1:] == found[1][1:]
    assert len(compiled.context.records) == 1 and not notes_of(compiled)


def test_a_view_whose_sizes_vary_is_returned_from_training():
    def function(x):
        return x.view(-1), (x * 2)[1:]

    compiled = dynamo.compile(function, backend="aot_eager", dynamic=True)
    for n in (3, 5, 2, 7):
        results = function(torch.ones(n, 4)), compiled(torch.ones(n, 4, requires_grad=True))
        same(*([t.detach() for t in one] for one in results))
    assert len(compiled.context.records) == 1 and not notes_of(compiled)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_part_of_no_rows_is_returned_from_training(backend):
    def function(x):
        return (x[x[:, 0] > 0] * 2)[:, 1:3]

    with dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        compiled = dynamo.compile(function, backend=backend)
        for shift in (0.0, -9.0, 9.0, -9.0):
            found = []
            for run in (function, compiled):
                x = (torch.linspace(-2, 2, 24).view(6, 4) + shift).requires_grad_()
                result = run(x)
                (result * result).sum().backward()
                found.append((result.detach(), x.grad))
            same(*found)
            assert found[0][0].shape == found[1][0].shape
