"""Operators that see memory: as_strided and what is written through it, results in the memory of
their arguments, operators of programs that look at strides."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo
from fxgraph import symbolic_trace
from fxgraph.aot import functionalize
from fxgraph.aot.strided import as_views
from inductor.runtime.link import link
from inductor.runtime.plan import AtenStep, OutputSpec, PlanSpec
from tests.inductor.compiling import check, staged
from tests.inductor.plan_kernels import add1, buffer, library, tensor_input

aten = torch.ops.aten


def pooled_1d(lin, x):
    return lin(torch.flatten(F.adaptive_avg_pool1d(x.transpose(1, 2), 1), 1))


def pooled_2d(lin, x):
    x = x.unflatten(1, (2, 3)).permute(0, 3, 1, 2)
    return lin(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def strided(lin, x):
    """A window with gaps, read through memory that is not the input's."""
    y = (x * 2).exp()
    return lin(y.as_strided((2, 3, 8), (48, 16, 1), 0) + y.as_strided((2, 3, 8), (48, 16, 1), 8))


def repeated(lin, x):
    """Windows that overlap."""
    return lin(x.sin().as_strided((2, 5, 8), (48, 8, 1)) + x.cos().as_strided((5, 8), (1, 1), 2))


@pytest.mark.parametrize("fn", [pooled_1d, pooled_2d, strided, repeated])
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients(fn, dynamic):
    torch.manual_seed(0)
    lin = torch.nn.Linear(8, 5)
    x = torch.randn(2, 6, 8, requires_grad=True)
    leaves = [x, lin.weight, lin.bias]
    expected = torch.autograd.grad(fn(lin, x).square().sum(), leaves)
    dynamo.reset()
    compiled = dynamo.compile(fn, dynamic=dynamic, fullgraph=True)
    got = torch.autograd.grad(compiled(lin, x).square().sum(), leaves)
    torch.testing.assert_close(got, expected)
    assert all(g.abs().max() > 0 for g in got)


def geometries():
    """Windows as views of one row of memory make them."""
    row = torch.arange(48.0)
    grid = row.view(2, 3, 8)
    yield from (grid, grid.permute(0, 2, 1), grid.permute(2, 0, 1)[:, None], grid[:, 1], grid[1])
    yield from (grid[:, :, 2:5], grid[:, 1:, ::4], grid[:, 1:, 3], row[5:6], row[40:].view(2, 4))
    yield from (grid[:, :, :1].expand(-1, -1, 4), row[7].expand(3, 2), grid[:, 1:, 4:6].mT)


@pytest.mark.parametrize("base", [(48,), (2, 3, 8), (6, 1, 8)])
def test_as_strided_is_a_chain_of_views(base):
    x = torch.arange(48.0).view(base)
    for one in (x, x.permute(*reversed(range(x.dim())))):
        for view in geometries():
            chain = as_views(one, view.shape, view.stride(), view.storage_offset())
            found = one
            for call in chain:
                found = call.op(found, *call.args)
            assert torch.equal(found, view)
            assert found.storage_offset() == view.storage_offset()


@pytest.mark.parametrize(
    "size, stride, offset",
    [((4, 2), (3, 2), 0), ((3, 3), (1, 1), 0), ((2, 6), (8, 1), 36), ((2, 2), (24, 16), 3)],
)
def test_as_strided_that_is_no_chain_of_views(size, stride, offset):
    assert as_views(torch.arange(48.0), size, stride, offset) is None


def test_functional_graphs_spell_as_strided_as_views():
    def fn(x):
        y = x.exp()
        z = y.as_strided((3, 2), (1, 3)) * 2
        y.as_strided((3,), (2,), 1).add_(1)
        return (z, y)

    graph = functionalize(symbolic_trace(fn), [torch.randn(2, 3)]).graph_module.graph
    used = {node.target for node in graph.nodes}
    assert aten.permute.default in used
    assert used.isdisjoint([aten.as_strided.default, aten.as_strided_scatter.default])


# Each reads a temporary that is not the first of its plan's arena.
SCATTERS = {
    "whole": lambda a, b: aten.as_strided_scatter(a, b, [4, 6], [6, 1]),
    "permuted": lambda a, b: aten.as_strided_scatter(a, b, [4, 6], [1, 4], 0),
    "gaps": lambda a, b: aten.as_strided_scatter(a, b[:2, :3], [2, 3], [11, 2], 3),
    "of_transposed": lambda a, b: aten.as_strided_scatter(a.t(), b, [4, 6], [6, 1], 0),
    "read": lambda a, b: aten.as_strided(a, [5, 3], [3, 2], 1) + b[:1, :3],
    "read_transposed": lambda a, b: aten.as_strided(a.t().sin(), [5, 3], [3, 2], 1) + b[:1, :3],
    "copy": lambda a, b: aten.as_strided_copy(a, [5, 3], [3, 2], 1) + b[:1, :3],
    "diagonal": lambda a, b: aten.diagonal_scatter(a, b[0, :4]),
    "diagonal_above": lambda a, b: aten.diagonal_scatter(a.t(), b[0, :3], 1),
}


def test_scatters_of_temporaries():
    def fn(x, y):
        a, b = x.exp(), y.cos()
        m = a @ b.t()  # keeps both in memory
        return (m, *(f(a.mul(2).add(k), b) + m.sum() for k, f in enumerate(SCATTERS.values())))

    x, y = torch.randn(4, 6), torch.randn(4, 6)
    check(fn, x, y, names=["m", *SCATTERS], fallbacks=["mm.default"], rtol=1e-5)


def test_scatter_beside_the_lowering_has_memory_of_its_own():
    """The same as calls of aten: their offsets count from the start of a storage."""

    def fn(x, y):
        a, b = x.exp(), y.cos()
        m = a @ b.t()
        return (m, aten.as_strided_scatter(a + 1, b + m.sum(), [4, 6], [6, 1], 0) * 2)

    names = ["as_strided_scatter.default"]
    check(
        fn,
        torch.randn(4, 6),
        torch.randn(4, 6),
        fallbacks=["mm.default", *names],
        aten_ops=["aten.as_strided_scatter"],
    )


def test_an_input_starts_anywhere_in_its_memory():
    def fn(x):
        overlapping = x[1:].as_strided((3, 3), (1, 1))
        return x[1:].as_strided((2, 2), (2, 1)) * 2, x.as_strided((3,), (2,)) + 1, overlapping.exp()

    memory = torch.arange(40.0)
    dynamo.reset()
    compiled = dynamo.compile(fn)
    for start in (0, 7):
        x = memory[start : start + 12].view(6, 2)
        torch.testing.assert_close(compiled(x), fn(x))


def test_a_result_in_an_arguments_memory_is_copied():
    """The operator's schema says that the result is new, which the memory plan relies on."""
    spec = PlanSpec(
        inputs=[tensor_input("x", 64)],
        buffers=[
            buffer("a", 64),
            buffer("v", 64, kind="aten"),
            buffer("b", 64),
            buffer("o", 64, kind="output"),
        ],
        steps=[
            add1("x", "a", 64),
            AtenStep("aten::_unsafe_view", "", [{"buf": "a"}, [64]], ["v"]),
            add1("a", "b", 64, inplace=[("b", "a")]),
            add1("b", "o", 64),
        ],
        outputs=[OutputSpec("buffer", "v"), OutputSpec("buffer", "o")],
    )
    x = torch.randn(64)
    v, o = link(spec, library())(x)
    assert torch.equal(v, x + 1) and torch.equal(o, x + 1 + 1 + 1)


@pytest.fixture
def sees_strides():
    """A program's operator whose result tells the strides that it was given."""
    with torch.library._scoped_library("fg_strided", "DEF") as lib:
        lib.define("strides(Tensor x) -> Tensor")
        lib.impl("strides", lambda x: torch.tensor(x.stride()), "CPU")
        lib.impl("strides", lambda x: x.new_empty([x.dim()], dtype=torch.int64), "Meta")
        yield torch.ops.fg_strided.strides.default


def test_operators_of_programs_are_given_eagers_strides(sees_strides):
    def fn(x):
        y = x.permute(2, 0, 1)
        made = [y.exp(), y.sum(1, keepdim=True), y.exp()[:, :, ::2], y.sin().transpose(0, 1)]
        made += [torch.cat([y, y], 1), y.mean(0).t(), y.exp().contiguous(), y.softmax(0)]
        return tuple(sees_strides(t) for t in made)

    x = torch.randn(3, 4, 6)
    c = staged(fn, [x])
    for number, (got, expected) in enumerate(zip(c.compiled(x), fn(x), strict=True)):
        assert torch.equal(got, expected), number


@pytest.mark.parametrize("order", [(2, 1, 0), (2, 0, 1)])
def test_a_product_added_to_a_transposed_tensor_has_eagers_layout(order):
    def f(x, a, b):
        return torch.baddbmm(x.permute(order), a, b)

    sizes = [5, 6, 7]
    x = torch.randn([sizes[order.index(d)] for d in range(3)])
    a, b = torch.randn(5, 6, 4), torch.randn(5, 4, 7)
    ours, theirs = dynamo.compile(f)(x, a, b), f(x, a, b)
    assert ours.stride() == theirs.stride()
    torch.testing.assert_close(ours, theirs)


def test_operators_of_several_steps_have_eagers_layout():
    def f(x, y, a):
        y = y.abs()
        return (
            (torch.xlogy(x.permute(2, 0, 1), y), torch.xlogy(y, x.permute(2, 0, 1).abs()))
            + (torch.special.xlog1py(x.permute(2, 0, 1), y), torch.xlogy(2.0, x.mT.abs()))
            + (torch.addr(a.t(), a[0], a[:, 0], beta=0), torch.addr(a.t(), a[0], a[:, 0]))
        )

    given = torch.randn(3, 4, 5), torch.randn(5, 3, 4), torch.randn(4, 4)
    for ours, theirs in zip(dynamo.compile(f)(*given), f(*given), strict=True):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("f", [torch.sgn, torch.round, torch.sign, torch.floor])
def test_gradients_that_are_zeros_without_memory(f):
    def fn(x, w):
        y = f(x @ w)
        return y @ w, y.t() @ w, y.exp()

    x, w = torch.randn(5, 5, requires_grad=True), torch.randn(5, 5, requires_grad=True)
    grads = []
    for called in (fn, dynamo.compile(fn)):
        total = sum((t * t).sum() for t in called(x, w))
        grads.append(torch.autograd.grad(total, (x, w)))
    torch.testing.assert_close(*grads)


def test_zeros_without_memory_from_outside():
    zeros = torch._efficientzerotensor((5, 5))
    x = torch.randn(5, 5)

    def fn(x, z):
        return x * 2 + z, z + 1, z @ x

    compiled = dynamo.compile(fn)
    for z in (zeros, torch.ones(5, 5), zeros):
        torch.testing.assert_close(compiled(x, z), fn(x, z))


def test_a_gradient_for_an_expanded_value_of_unknown_size():
    def fn(x, n):
        y = x.sin()
        return y.expand(n, *y.shape), y[:1].cos().expand(n, y.shape[1]), (y * y).sum(0)

    compiled = dynamo.compile(fn, dynamic=True)
    for n in (3, 4):
        x = torch.randn(n + 1, 5, requires_grad=True)
        ours, theirs = compiled(x, n), fn(x, n)
        tangents = [torch.randn(t.shape[::-1]).permute(*range(t.dim())[::-1]) for t in theirs]
        grads = [torch.autograd.grad(results, x, tangents) for results in (ours, theirs)]
        torch.testing.assert_close(*grads)


# A part of a tensor; the arguments of as_strided, of elements beside it.
BESIDE = {
    "behind": (lambda x: x[:10], ((10,), (1,), 5)),
    "more": (lambda x: x[:10], ((12,), (1,))),
    "from inside": (lambda x: x[4:9], ((9,), (1,))),
    "in gaps": (lambda x: x[::2], ((10,), (1,), 0)),
    "in gaps of rows": (lambda x: x.view(5, 4)[:, :2], ((5, 4), (4, 1), 0)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", BESIDE)
def test_writes_beside_the_elements_of_an_input(name, backend, dynamic):
    part, window = BESIDE[name]

    def fn(x):
        x.mul_(2)
        v = x.as_strided(*window)
        v.add_(1)
        return v.sum(), x * 3

    dynamo.reset()
    mine, theirs = (torch.arange(20.0) for _ in range(2))
    expected = fn(part(theirs))
    got = dynamo.compile(fn, backend=backend, dynamic=dynamic)(part(mine))
    assert torch.equal(mine, theirs)
    assert all(map(torch.equal, got, expected))


def test_results_with_gaps_of_a_size_that_varies():
    def fn(x):
        r = torch.empty_strided(x.size(), x.stride())
        r[:] = x + x
        return r

    dynamo.reset()
    compiled = dynamo.compile(fn, dynamic=True)
    for n in (16, 20):
        x = torch.randn(n, n)[:, :8]
        got = compiled(x)
        assert torch.equal(got, x + x) and got.stride() == (n, 1)
