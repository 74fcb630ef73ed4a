"""Sizes that depend on data, compiled: generated loops over what a call finds, perhaps nothing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import dynamo

NAN = float("nan")


def rows(kind: str) -> torch.Tensor:
    """6 rows of 8, of which the first column is positive in none, one, many, or all of them."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(6, 8, generator=generator)
    signs = {
        "none": [-1] * 6,
        "one": [-1, -1, 1, -1, -1, -1],
        "many": [1, -1, 1, 1, -1, 1],
        "all": [1] * 6,
        "nan": [1, -1, 1, 1, -1, 1],
    }[kind]
    x[:, 0] = x[:, 0].abs().add(0.1) * torch.tensor(signs)
    if kind == "nan":
        x[2, 3] = NAN
    return x


KINDS = ("many", "none", "one", "all", "nan")


def positive(x):
    return x[:, 0] > 0


def picked(x):
    return x[positive(x)]


def _gathered(x):
    y = picked(x)
    return y[torch.argsort(y[:, 1])] * 2


def _added(x):
    mask = positive(x)
    return torch.zeros(6, 8).index_add(0, mask.nonzero()[:, 0], x[mask] * 2)


def _accumulated(x):
    mask = positive(x)
    return torch.zeros(6, 8).index_put((mask.nonzero()[:, 0] // 2,), x[mask] * 2, accumulate=True)


def _scattered(x):
    y = picked(x)
    return torch.zeros(8).scatter_add(0, torch.arange(y.shape[0]) % 3, y[:, 1].cos())


def _products(x):
    return torch.bmm(picked(x).view(-1, 2, 4), picked(x).view(-1, 4, 2)).relu()


def _entropy(x):
    mask = positive(x)
    return F.cross_entropy(x[mask], torch.arange(6)[mask])


# name -> (program, the operators that may be aten's)
PROGRAMS = {
    "pointwise": (lambda x: (picked(x) * 2).exp().relu() + 1, ()),
    "sum": (lambda x: picked(x).cos().sum(), ()),
    "sum of rows": (lambda x: picked(x).sum(0), ()),
    "sum of columns": (lambda x: picked(x).sum(1), ()),
    "mean": (lambda x: picked(x).mean(), ()),
    "product": (lambda x: picked(x).prod(), ()),
    "largest of rows": (lambda x: picked(x).amax(1), ()),
    "norm": (lambda x: torch.linalg.vector_norm(picked(x), dim=0), ()),
    "norm of magnitudes": (lambda x: torch.linalg.vector_norm(picked(x), 1), ()),
    "softmax of rows": (lambda x: picked(x).softmax(0), ()),
    "log-softmax of rows": (lambda x: picked(x).log_softmax(0), ()),
    "softmax": (lambda x: picked(x).softmax(1), ()),
    "layer norm": (lambda x: F.layer_norm(picked(x), (8,)), ()),
    "any": (lambda x: (picked(x) > 1).any(0), ()),
    "all": (lambda x: (picked(x) < 1).all(), ()),
    "pairs": (lambda x: (picked(x)[:, None] - picked(x)[None]).abs().sum((1, 2)), ()),
    "views": (lambda x: picked(x).view(-1, 2, 4).transpose(1, 2).reshape(-1, 8) * 2, ()),
    "joined": (lambda x: torch.cat([picked(x), x * 2]).cos(), ()),
    "gathered": (_gathered, ("sort.default",)),
    "columns": (lambda x: picked(x).index_select(1, torch.tensor([1, 3])) * 2, ()),
    "added": (_added, ("nonzero.default",)),
    "accumulated": (_accumulated, ("nonzero.default",)),
    "scattered": (_scattered, ()),
    "products": (_products, ("bmm.default",)),
    "embedding": (lambda x: F.embedding((picked(x)[:, 1] * 0).long(), torch.ones(3, 4)) * 2, ()),
    "entropy": (_entropy, ()),
    "nonzero": (lambda x: (x > 0).nonzero().sum(0), ("nonzero.default",)),
    "repeated": (
        lambda x: x.repeat_interleave(positive(x).long() * 2, dim=0).sin().sum(0),
        ("repeat_interleave.Tensor",),
    ),
    "a count": (lambda x: torch.ones(positive(x).sum().item(), 3).cos().sum(0), ()),
}
# What finds the sizes, and what checks them, whatever is done with them.
FINDING = {
    "index.Tensor",
    "_local_scalar_dense.default",
    "_assert_scalar.default",
    "sym_size.int",
}
# Of a gradient besides, what puts rows back, and a view.
BACK = {"index_put.default", "slice.Tensor", "index_add.default"}


@pytest.fixture(autouse=True)
def _options():
    both = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with dynamo.config.patch(**both):
        yield


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


def same(expected, got):
    ours, spec = pytree.tree_flatten(expected)
    theirs, other = pytree.tree_flatten(got)
    assert spec == other
    for e, g in zip(ours, theirs, strict=True):
        if isinstance(e, torch.Tensor):
            torch.testing.assert_close(g, e, equal_nan=True)
        else:
            assert e == g


def report_of(compiled):
    (record,) = compiled.context.records
    (graph,) = record.graphs
    assert not any("operator by operator" in note for note in graph.report["notes"])
    return graph.report


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name):
    """One graph, one compile, generated loops, whatever is found."""
    fn, left = PROGRAMS[name]
    compiled = dynamo.compile(fn, fullgraph=True)
    for kind in (*KINDS, "none"):
        same(outcome(fn, rows(kind)), outcome(compiled, rows(kind)))
    report = report_of(compiled)
    assert set(report["fallback_ops"]) <= FINDING | set(left)
    assert report["kernels"] > 0


def with_gradient(fn):
    def step(x):
        x = x.clone().requires_grad_()
        out = fn(x)
        if out.requires_grad:
            (out * out).sum().backward()
        return out.detach(), x.grad

    return step


NO_GRADIENT = ("any", "all", "nonzero", "a count", "product", "embedding")


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in NO_GRADIENT])
def test_gradients(name):
    fn, left = PROGRAMS[name]
    compiled = dynamo.compile(fn, fullgraph=True)
    for kind in (*KINDS, "none"):
        same(outcome(with_gradient(fn), rows(kind)), outcome(with_gradient(compiled), rows(kind)))
    report = report_of(compiled)
    assert set(report["fallback_ops"]) <= FINDING | BACK | set(left)


@pytest.mark.parametrize("shape", [(70_000,), (40_000, 3)])
def test_many(shape):
    """Enough for several threads, for reductions in two steps, and for vectors' tails."""

    def fn(x):
        y = x[x > 0.25]
        return (y * 2).cos(), y.sum(), y.softmax(0), y.mean()

    compiled = dynamo.compile(fn, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for shift in (0.0, 1.0, -1.0, 0.01):
        x = torch.rand(shape, generator=generator) + shift
        same(fn(x), compiled(x))
    report_of(compiled)


def _from_selected(x, at):
    return picked(x)[at] * 2


def _by_position(x, at):
    return picked(x).index_select(0, at) * 2


def _along(x, at):
    return picked(x).gather(0, at[:, None].expand(-1, 8)) * 2


def _written(x, at):
    return picked(x).index_put((at,), torch.ones(at.shape[0], 8)) * 2


def _summed(x, at):
    return picked(x).index_add(0, at, torch.ones(at.shape[0], 8)) * 2


@pytest.mark.parametrize("fn", [_from_selected, _by_position, _along, _written, _summed])
@pytest.mark.parametrize("at", [[], [0], [0, 0, 0], [3, 1, 2, 0]])
def test_positions_in_what_may_be_nothing(fn, at):
    """A position is out of range of nothing, before memory is read or written there."""
    at = torch.tensor(at, dtype=torch.long)
    compiled = dynamo.compile(fn, fullgraph=True)
    for kind in KINDS:
        expected, got = outcome(fn, rows(kind), at), outcome(compiled, rows(kind), at)
        if isinstance(expected, tuple):
            assert isinstance(got, tuple)
            assert got[0] is expected[0]
        else:
            same(expected, got)


def test_equal_masks_are_found_once():
    """Two sizes that turn out to be one are one name, also for the check that they are equal."""

    def fn(x):
        return x[x > 0] * x[x > 0].cos() + 1

    compiled = dynamo.compile(fn, fullgraph=True)
    for kind in KINDS:
        same(fn(rows(kind)), compiled(rows(kind)))
    assert report_of(compiled)["fallback_ops"] == {"index.Tensor": 1}


def test_unequal_masks_are_checked():
    def fn(x, y):
        return x[x > 0] * y[y > 0]

    compiled = dynamo.compile(fn)
    for one, other in (("many", "many"), ("many", "all"), ("none", "none"), ("one", "many")):
        args = rows(one)[:, 0], rows(other)[:, 0]
        same(outcome(fn, *args), outcome(compiled, *args))


def test_sizes_of_gradients_are_checked_in_the_backward():
    """x[mask] = ... of a masked value: the gradient of the write is masked anew."""

    def fn(x):
        y = x * 1
        mask = y > 0
        y[mask] = y[mask].exp() * 3
        return y * 2

    compiled = dynamo.compile(fn, fullgraph=True)
    for kind in KINDS:
        same(with_gradient(fn)(rows(kind)), with_gradient(compiled)(rows(kind)))
    report_of(compiled)
