"""Jagged tensors (torch.nested, layout torch.jagged): given to a frame, made in one, and trained.

Each program is called with tensors of several raggednesses: values, offsets and gradients are
eager's, and as few graphs are made as the sizes ask for.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nested import as_nested_tensor, nested_tensor, nested_tensor_from_jagged
from torch.nested._internal import nested_tensor as internal

import dynamo
from backends.registry import lookup_backend

SIZES = [(2, 3), (2, 3), (3, 4), (4, 2, 2), (5, 2, 2, 3)]


def jagged(*lengths, grad=False, d=4):
    parts = [torch.randn(n, d) for n in lengths]
    return nested_tensor(parts, layout=torch.jagged, requires_grad=grad)


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, torch.Tensor) and expected.is_nested:
        assert (got.dim(), got.dtype, got.requires_grad, got._ragged_idx) == (
            expected.dim(), expected.dtype, expected.requires_grad, expected._ragged_idx,
        )  # fmt: skip
        torch.testing.assert_close(got.values(), expected.values())
        torch.testing.assert_close(got.offsets(), expected.offsets())
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got, expected)
    else:
        assert got == expected


def dense(results):
    results = results if isinstance(results, (list, tuple)) else [results]
    tensors = [t for t in results if isinstance(t, torch.Tensor) and t.requires_grad]
    return sum((t.values() if t.is_nested else t).sum() for t in tensors)


def counted(fn, backend):
    graphs = []

    def counting(gm, example_inputs):
        graphs.append(gm)
        return lookup_backend(backend)(gm, example_inputs)

    return dynamo.compile(fn, backend=counting, fullgraph=True), graphs


def pointwise(x):
    return x.sin() * 2 + 1, x.relu()


def parts(x):
    return x.values() + 1, x.offsets().diff(), x.size(0), x.is_nested, x.layout is torch.jagged


def reductions(x):
    return x.sum(dim=1), x.sum(dim=-1), torch.softmax(x, -1)


def padded(x):
    return (x.to_padded_tensor(0.0) * 2,)


def shapes(x):
    B, rows, D = x.shape
    same = rows == (x * 2).size(1)
    return x.values().reshape(-1, D // 2) * B, same, x.shape[-1], x.size(-1), len(x.shape), x.shape


def joined(x):
    return (torch.cat([x, x * 2], -1).transpose(1, 2),)


def with_values_of_another(x):
    return (x + nested_tensor_from_jagged(x.values() * 3, x.offsets()),)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "fn", [pointwise, parts, reductions, padded, shapes, joined, with_values_of_another]
)
def test_given(fn, grad, backend):
    compiled, graphs = counted(fn, backend)
    for lengths in SIZES:
        x = jagged(*lengths, grad=grad)
        got, expected = compiled(x), fn(x)
        assert_same(got, expected)
        if grad and fn not in (padded, reductions):  # eager has no gradients of these
            (one,) = torch.autograd.grad(dense(got), x)
            (other,) = torch.autograd.grad(dense(expected), x)
            assert_same(one, other)
    assert len(graphs) == 2


def of_list(a, b):
    x = nested_tensor([a, b], layout=torch.jagged)
    return (x * 2).values(), x.offsets()


def of_list_with_history(a, b):
    return (as_nested_tensor([a, b], layout=torch.jagged) * 2,)


def of_parts(a, b):
    offsets = torch.tensor([0, 1, 3])
    x = nested_tensor_from_jagged(torch.cat([a, b]), offsets)
    return x.sin(), x.values() * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    ("fn", "count"), [(of_list, 3), (of_list_with_history, 3), (of_parts, 2)]
)  # torch makes offsets of lengths as Python numbers: other lengths are another graph
def test_made(fn, count, backend):
    compiled, graphs = counted(fn, backend)
    for n in (4, 4, 5, 6):
        a, b = torch.randn(n, 4, requires_grad=True), torch.randn(3, 4)
        got, expected = compiled(a, b), fn(a, b)
        assert_same(got, expected)
        if fn is not of_list:
            (one,) = torch.autograd.grad(dense(got), a)
            (other,) = torch.autograd.grad(dense(expected), a)
            torch.testing.assert_close(one, other)
    assert len(graphs) == count


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_modules(backend):
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4))
    compiled, graphs = counted(net, backend)
    for lengths in SIZES:
        x = jagged(*lengths)
        found = []
        for run in (compiled, net):
            net.zero_grad()
            y = run(x)
            y.values().sum().backward()
            found.append((y, [p.grad.clone() for p in net.parameters()]))
        assert_same(*found)
    assert len(graphs) == 2


def from_list(a, b):
    x, offsets = internal.jagged_from_list([a, b], None)
    return x.cos(), offsets


def from_view(a, b):
    x = internal.nested_view_from_values_offsets(torch.cat([a, b]), torch.tensor([0, 1, 3]))
    return (internal.buffer_from_jagged(x * 2),)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [from_list, from_view])
def test_made_by_torchs_own_functions(fn, backend):
    compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        a, b = torch.randn(4, 4, requires_grad=True), torch.randn(3, 4)
        got, expected = compiled(a, b), fn(a, b)
        assert_same(got, expected)
        (one,), (other,) = (torch.autograd.grad(dense(found), a) for found in (got, expected))
        torch.testing.assert_close(one, other)


def computes_with_a_ragged_size(x):
    B, rows, D = x.shape
    return x.view(B, rows, 2, D // 2).transpose(1, 2)


def test_a_ragged_size_in_a_call():
    compiled = dynamo.compile(computes_with_a_ragged_size, backend="aot_eager")
    for lengths in SIZES:
        x = jagged(*lengths)
        assert_same(compiled(x), computes_with_a_ragged_size(x))


def test_results_are_as_ragged_as_the_input():
    x = jagged(2, 3)
    y = dynamo.compile(lambda x: x * 2, fullgraph=True)(x)
    assert_same(y + x, x * 2 + x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_which_are_equally_ragged_is_guarded(backend):
    def fn(x, y):
        return x + y

    def alike():
        x = jagged(2, 3)
        return x, nested_tensor_from_jagged(torch.randn(5, 4), x.offsets())

    compiled = dynamo.compile(fn, backend=backend)
    for given in (alike(), (jagged(2, 3), jagged(2, 3)), alike()):
        try:
            expected = fn(*given)
        except RuntimeError:
            with pytest.raises(RuntimeError, match="cannot call binary pointwise function"):
                compiled(*given)
        else:
            assert_same(compiled(*given), expected)


def test_a_break():
    def fn(x):
        y = x * 2
        dynamo.graph_break()
        return y + x

    compiled = dynamo.compile(fn, backend="aot_eager")
    for lengths in SIZES:
        x = jagged(*lengths)
        assert_same(compiled(x), fn(x))


def test_a_width_that_varies():
    """torch multiplies ragged sizes by no symbol: the width of each tensor is a constant."""

    def fn(x):
        return (x * 2).sum(-1), x.size(0)

    compiled = dynamo.compile(fn, backend="eager")
    for width in (4, 5, 6):
        for lengths in SIZES[:3]:
            x = jagged(*lengths, d=width)
            assert_same(compiled(x), fn(x))


def test_parts_of_tensors_made_in_the_frame():
    def fn(*parts):
        made = nested_tensor(list(parts), layout=torch.jagged) * 2
        return [part.sum() for part in made.unbind()]

    compiled = dynamo.compile(fn, backend="eager", fullgraph=True)
    for lengths in ((2, 3), (3, 1)):
        parts = [torch.randn(n, 4) for n in lengths]
        assert_same(compiled(*parts), fn(*parts))


def test_parts_go_through_a_break():
    def fn(x):
        parts = (x * 2).unbind()
        dynamo.graph_break()
        return [part + 1 for part in parts]

    compiled = dynamo.compile(fn, backend="eager")
    for lengths in SIZES:
        x = jagged(*lengths)
        assert_same(compiled(x), fn(x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_part_is_an_argument(backend):
    """A view of the jagged tensor, whose sizes are numbers in memory."""

    def fn(part):
        return part.sin() * 2

    compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
    for lengths in SIZES:
        x = jagged(*lengths, grad=True)
        got, expected = (call((x * 2).unbind()[1]) for call in (compiled, fn))
        assert_same(got, expected)
        assert_same(*(torch.autograd.grad(y.sum(), x)[0] for y in (got, expected)))
