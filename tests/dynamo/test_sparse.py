"""Sparse tensors: what makes or takes them runs as it is, what stands around it is compiled."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dynamo

PLACES = torch.tensor([[0, 1], [1, 0]])
WEIGHT = nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))


def product(v):
    s = torch.sparse_coo_tensor(PLACES, (v.sin() * 2).relu() + 1, (2, 2))
    return (torch.sparse.mm(s, WEIGHT).exp() * 2).sum(0), torch.sparse.mm(s.t(), WEIGHT)


def dense(v):
    s = torch.sparse_coo_tensor(PLACES, v * 2, (2, 2))
    return s.to_dense() + 1, (s + s).to_dense()


def coalesced(v):
    s = torch.sparse_coo_tensor(PLACES, v * 2, (2, 2))
    return (s * 2).coalesce().values() + 1, s.is_coalesced()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("fn", [product, dense, coalesced])
def test_made(fn, grad, backend):
    compiled = dynamo.compile(fn, backend=backend, fullgraph=fn is not coalesced)
    for _ in range(3):
        v = torch.randn(2, requires_grad=grad)
        got, expected = compiled(v), fn(v)
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other)
        if grad:
            (one,) = torch.autograd.grad(got[0].sum(), v)
            (other,) = torch.autograd.grad(expected[0].sum(), v)
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_given(backend):
    def fn(s, y):
        return (torch.sparse.mm(s, y).relu() + 1).sum(0), s

    compiled = dynamo.compile(fn, backend=backend)
    for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_coo):
        s, y = torch.eye(3).to_sparse(layout=layout), torch.randn(3, 2)
        got, expected = compiled(s, y), fn(s, y)
        torch.testing.assert_close(got[0], expected[0])
        assert got[1] is s


class Convolution(nn.Module):
    """A layer of a graph network, whose neighbours are a sparse buffer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("neighbours", torch.eye(3).to_sparse())

    def forward(self, x):
        return torch.relu(torch.sparse.mm(self.neighbours, self.layer(x)) + 1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_buffers_in_one_graph(backend):
    model = Convolution()
    compiled = dynamo.compile(model, backend=backend, fullgraph=True)
    x = torch.randn(3, 3)
    twice = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (3, 3))
    for change in (None, twice, (torch.eye(3) * 2).to_sparse()):
        if change is not None:
            model.neighbours = change
        found = []
        for run in (compiled, model):
            model.zero_grad()
            run(x).sum().backward()
            found.append([run(x).detach(), *[p.grad for p in model.parameters()]])
        torch.testing.assert_close(*found)
        with torch.no_grad():
            model.neighbours.mul_(2)
            torch.testing.assert_close(compiled(x), model(x))


def _uncoalesced():
    return torch.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], [1.0, 2.0, 3.0], (3, 3))


def _rows():
    return torch.sparse_coo_tensor([[0, 2]], torch.arange(6.0).view(2, 3), (3, 3))


def _dense(nest):
    if isinstance(nest, torch.Tensor):
        return nest if nest.layout is torch.strided else (nest._indices(), nest._values())
    return tuple(map(_dense, nest)) if isinstance(nest, tuple) else nest


FORMS = {
    "is_coalesced": lambda s: (s.is_coalesced(), s.to_dense() * 2),
    "dims": lambda s: (s.sparse_dim(), s.dense_dim(), s.to_dense() + 1),
    "coalesce": lambda s: (s.coalesce(), s.coalesce() is s),
    "sum": lambda s: torch.sparse.sum(s, 0),
    "pointwise": lambda s: (s * 2, -s, s + s, s.sin()),
    "written": lambda s: (s.mul_(2).to_dense(), s.add_(s).to_dense() + 1),
    "zeroed": lambda s: (s.zero_().to_dense(), s._nnz()),
    "values": lambda s: s._values() * 2 + 1,
    "row": lambda s: s[0],
    "text": lambda s: (s.to_dense(), len(str(s)), s.requires_grad, s.layout is torch.strided),
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", FORMS)
def test_forms_that_change(name, backend):
    compiled = dynamo.compile(FORMS[name], backend=backend)
    eye = torch.eye(3).to_sparse
    for make in (eye, eye, _uncoalesced, _rows, _uncoalesced, eye):
        given, other = make(), make()
        got, expected = compiled(given), FORMS[name](other)
        torch.testing.assert_close(_dense(got), _dense(expected))
        torch.testing.assert_close(_dense(given), _dense(other))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_sizes_that_vary(backend):
    compiled = dynamo.compile(lambda s, x: (s @ x + 1).sin(), backend=backend)
    for n in (4, 5, 6, 7):
        s, x = torch.eye(n).to_sparse(), torch.randn(n, 2)
        torch.testing.assert_close(compiled(s, x), (x + 1).sin())


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_leaves_that_are_sparse(backend):
    def step(s, x):
        leaf = s.detach().clone().requires_grad_()
        torch.sparse.mm(leaf, x).sum().backward()
        return leaf.grad.to_dense()

    s, x = _uncoalesced(), torch.randn(3, 2)
    torch.testing.assert_close(dynamo.compile(step, backend=backend)(s, x), step(s, x))


def test_gradients_that_are_sparse():
    table = nn.Embedding(6, 4, sparse=True)

    def dense(table):
        return table.weight.grad.to_dense() * 2

    def cleared(table):
        if table.weight.grad is not None:
            table.weight.grad = None
        return table.weight * 2

    table(torch.tensor([1, 2, 2])).sum().backward()
    expected = table.weight.grad.to_dense() * 2
    torch.testing.assert_close(dynamo.compile(dense, fullgraph=True)(table), expected)
    dynamo.compile(cleared, fullgraph=True)(table)
    assert table.weight.grad is None


class Ratings(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(6, 4, sparse=True)
        self.bags = nn.EmbeddingBag(6, 4, sparse=True, mode="sum")
        self.rest = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))

    def forward(self, i):
        return self.rest(self.table(i).sum(1) * self.bags(i))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_gradients_of_embeddings(backend):
    model = Ratings()
    compiled = dynamo.compile(model, backend=backend, fullgraph=True)
    i = torch.tensor([[1, 2], [2, 5]])
    found = []
    for run in (compiled, model, compiled):
        model.zero_grad()
        run(i).sum().backward()
        assert model.table.weight.grad.is_sparse and model.bags.weight.grad.is_sparse
        found.append([p.grad.to_dense() for p in model.parameters()])
    for one, other, again in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(one, again)


def test_the_rest_of_a_model_is_compiled():
    report = dynamo.explain(Ratings())(torch.tensor([[1, 2], [2, 5]]))
    assert report.graph_count == 1
    assert any("is compiled in" in note for note in report.notes), report.notes


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_training_step(backend):
    def trained(compiles):
        torch.manual_seed(0)
        model = Ratings()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(i):
            optimizer.zero_grad()
            loss = model(i).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = dynamo.compile(step, backend=backend) if compiles else step
        losses = [run(torch.tensor([[1, 2], [2, k]])) for k in range(3)]
        return [*losses, *[p.detach() for p in model.parameters()]]

    for one, other in zip(trained(True), trained(False), strict=True):
        torch.testing.assert_close(one, other)


class SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, sparse, dense):
        ctx.sparse = sparse
        return torch.dsmm(sparse, dense)

    @staticmethod
    def backward(ctx, grad):
        return None, torch.dsmm(ctx.sparse.mT, grad)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_autograd_function_of_a_sparse_tensor(backend):
    def f(v, w):
        s = torch.sparse_coo_tensor(PLACES, v, (2, 2))
        return SparseProduct.apply(s, w * 2).sin()

    compiled = dynamo.compile(f, backend=backend)
    v, found = torch.tensor([1.0, 2.0]), []
    for run in (compiled, f, compiled):
        w = WEIGHT.detach().clone().requires_grad_()
        result = run(v, w)
        result.sum().backward()
        found.append((result.detach(), w.grad))
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[2], found[1])


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(
    "made",
    [
        lambda s: s,
        lambda s: s * 2,
        lambda s: s.t(),
        lambda s: s.index_select(0, PLACES[0]),
        lambda s: s.to_dense().to_sparse_coo(),
    ],
)
def test_how_many_elements_are_stored(made, backend):
    def f(v):
        s = made(torch.sparse_coo_tensor(PLACES, v + 1, (2, 2)))
        return s._nnz(), s._values() + 1, torch.ones(s._indices().shape)

    v = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(dynamo.compile(f, backend=backend)(v), f(v))
