"""DTensors on one process: inputs, parameters and intermediates of graphs, as in eager."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dynamo
from backends.registry import lookup_backend

if not dist.is_available():
    pytest.skip("torch is built without distributed packages", allow_module_level=True)

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    ones,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

BACKENDS = ["eager", "aot_eager", "inductor"]


@pytest.fixture(scope="module")
def mesh():
    if dist.is_initialized():  # by a program of another test
        dist.destroy_process_group()
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def T(*shape):
    return torch.linspace(-1, 2, torch.Size(shape).numel()).reshape(shape)


def plain(value):
    """What is compared of a result: of a DTensor its placements, its local part, its gradient."""
    if isinstance(value, DTensor):
        return ["DTensor", value.placements, value.shape, value.to_local().detach()]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def check(run, backend, graphs, breaks=0):
    """run(compile) gives the same for eager and for compiled functions, of so many graphs."""
    count = []
    compiled = []

    def counting(gm, inputs):
        count.append(gm)
        return lookup_backend(backend)(gm, inputs)

    def compile(function):
        compiled.append(dynamo.compile(function, backend=counting))
        return compiled[-1]

    expected = plain(run(lambda function: function))
    dynamo.reset()
    found = plain(run(compile))
    assert _types(expected) == _types(found)
    torch.testing.assert_close(_tensors(found), _tensors(expected))
    records = [record for one in compiled for record in one.context.records]
    assert (len(count), sum(len(r.breaks) for r in records)) == (graphs, breaks)


def _types(value):
    if isinstance(value, list):
        return [_types(item) for item in value]
    return type(value) if isinstance(value, torch.Tensor) else value


def _tensors(value):
    if isinstance(value, list):
        return [t for item in value for t in _tensors(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def pointwise(compile, mesh):
    f = compile(lambda x: (x * 2 + 1).sin())
    return [f(DTensor.from_local(T(4, 3) + n, mesh, [Shard(0)])) for n in (0, 1)]


def sizes_vary(compile, mesh):
    f = compile(lambda x: x.sin() + 1)
    return [f(DTensor.from_local(T(n, 3), mesh, [Shard(0)])) for n in (4, 5, 6, 7)]


def placements_are_guarded(compile, mesh):
    def f(d):
        return d.to_local() * (2 if d.placements[0].is_shard() else 3)

    g = compile(f)
    return [g(DTensor.from_local(T(4, 3), mesh, [p])) for p in (Shard(0), Replicate())]


def made_inside(compile, mesh):
    def f(x):
        d = DTensor.from_local(x, mesh, [Shard(0)], run_check=False)
        return d.redistribute(mesh, [Replicate()]) * 2, d.to_local() + 1, d.full_tensor()

    return compile(f)(T(4, 3))


def partial_sums(compile, mesh):
    def f(x):
        d = DTensor.from_local(x, mesh, [Partial()], run_check=False)
        return d.redistribute(mesh, [Replicate()]).to_local() * 2

    return compile(f)(T(4, 3))


def distributed_inside(compile, mesh):
    f = compile(lambda x: (distribute_tensor(x, mesh, [Shard(0)]) + 1).to_local())
    return f(T(4, 3))


def factory(compile, mesh):
    f = compile(lambda x: (ones(4, 3, device_mesh=mesh, placements=[Shard(0)]) + 1).to_local() + x)
    return f(T(4, 3))


def mesh_is_an_argument(compile, mesh):
    def f(x, mesh):
        d = DTensor.from_local(x, mesh, [Shard(0)], run_check=False)
        return (
            d.to_local() * mesh.size(),
            mesh.ndim,
            d.placements == (Shard(0),),
            d.device_mesh.size(),
        )

    return compile(f)(T(4, 3), mesh)


def gradients_of_inputs(compile, mesh):
    f = compile(lambda x: (x.sin() * 2).sum())
    d = DTensor.from_local(T(4, 3), mesh, [Shard(0)]).requires_grad_()
    f(d).full_tensor().backward()
    return d.grad


def gradients_through_from_local(compile, mesh):
    def f(x):
        d = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
        return (d.sin() * 2).to_local().sum()

    x = T(4, 3).requires_grad_()
    compile(f)(x).backward()
    return x.grad


def training(compile, mesh):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    distribute_module(model, mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    f = compile(lambda x: model(x))
    for n in range(3):
        optimizer.zero_grad()
        f(DTensor.from_local(T(2, 3) + n, mesh, [Replicate()])).square().sum().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def tensor_parallel(compile, mesh):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x):
            return self.down(self.up(x).relu())

    torch.manual_seed(0)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    block = parallelize_module(Block(), mesh, plan)
    x = T(2, 4).requires_grad_()
    y = compile(lambda x: block(x))(x)
    y.sum().backward()
    return y.detach(), x.grad, [p.grad for p in block.parameters()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "run, graphs",
    [
        (pointwise, 1),
        (sizes_vary, 2),
        (placements_are_guarded, 2),
        (made_inside, 1),
        (partial_sums, 1),
        (distributed_inside, 1),
        (factory, 1),
        (mesh_is_an_argument, 1),
        (gradients_of_inputs, 1),
        (gradients_through_from_local, 1),
        (training, 1),
        (tensor_parallel, 1),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_one_graph(run, graphs, backend, mesh):
    check(lambda compile: run(compile, mesh), backend, graphs)


def test_a_check_of_the_data_breaks(mesh):
    def run(compile):
        def f(x):
            d = DTensor.from_local(x + 1, mesh, [Replicate()], run_check=True)
            return d.to_local() * 2

        return compile(f)(T(4, 3))

    check(run, "aot_eager", 2, breaks=1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backward_inside(backend, mesh):
    def run(compile):
        p = nn.Parameter(DTensor.from_local(T(4, 3), mesh, [Replicate()]))

        def f(x):
            loss = (p * x).to_local().sum()
            loss.backward()
            return loss.detach()

        g = compile(f)
        x = DTensor.from_local(T(4, 3), mesh, [Replicate()])
        return g(x), p.grad.to_local().clone(), g(x), p.grad

    check(run, backend, 2)
