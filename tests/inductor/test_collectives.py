"""Functional collectives in compiled code: a group of one process, in which each is known."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import dynamo

ops = torch.ops._c10d_functional

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without distributed"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # torch renames these functions
]


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    store = tmp_path_factory.mktemp("group") / "store"
    if dist.is_initialized():  # by a program of another test
        dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def in_place(x, group):
    y = x * 2
    dist.all_reduce(y, group=group)
    return y + 1


def coalesced(x, group):
    a, b = ops.all_reduce_coalesced([x + 1, x * 2], "sum", group.group_name)
    return ops.wait_tensor(a) + ops.wait_tensor(b)


PROGRAMS = {
    "all_reduce": lambda x, g: ops.wait_tensor(ops.all_reduce(x + 1, "sum", g.group_name)) * 2,
    "all_gather": lambda x, g: (
        ops.wait_tensor(ops.all_gather_into_tensor(x + 1, 1, g.group_name)) * 2
    ),
    "reduce_scatter": lambda x, g: (
        ops.wait_tensor(ops.reduce_scatter_tensor(x + 1, "avg", 1, g.group_name)) * 2
    ),
    "all_to_all": lambda x, g: (
        ops.wait_tensor(ops.all_to_all_single(x + 1, [4], [4], g.group_name)) * 2
    ),
    "broadcast": lambda x, g: ops.wait_tensor(ops.broadcast(x + 1, 0, g.group_name)) * 2,
    "coalesced": coalesced,
    "function": lambda x, g: functional.all_reduce(x + 1, "sum", g) * 2,
    "gathered": lambda x, g: functional.all_gather_tensor(x + 1, 0, g) * 2,
    "scattered": lambda x, g: functional.reduce_scatter_tensor(x + 1, "sum", 0, g) * 2,
    "in place": in_place,
}

DIFFERENTIATED = {
    "all_gather": lambda x, g: functional.all_gather_tensor_autograd(x.sin(), 0, g) * 2,
    "reduce_scatter": lambda x, g: (
        functional.reduce_scatter_tensor_autograd(x.sin(), "sum", 0, g) * 2
    ),
    "all_to_all": lambda x, g: functional.all_to_all_single_autograd(x.sin(), [4], [4], g) * 2,
}


def plain(tensor):
    """A tensor that waits for its collective, waited for."""
    if isinstance(tensor, functional.AsyncCollectiveTensor):
        return tensor.wait()
    return tensor


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name, group):
    program = PROGRAMS[name]
    compiled = dynamo.compile(lambda x: program(x, group))
    for _ in range(2):
        x = torch.randn(4, 3)
        torch.testing.assert_close(plain(compiled(x)), plain(program(x, group)))


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients(name, group):
    program = DIFFERENTIATED[name]

    def gradient(fn):
        x = torch.linspace(0, 1, 12).view(4, 3).requires_grad_()
        y = plain(fn(x))
        return y.detach(), *torch.autograd.grad((y * y).sum(), x)

    wanted = gradient(lambda x: program(x, group))
    for got, expected in zip(gradient(dynamo.compile(lambda x: program(x, group))), wanted):
        torch.testing.assert_close(got, expected)


@torch.library.custom_op("framegraph_tests::waiting", mutates_args=())
def _waiting(x: torch.Tensor) -> torch.Tensor:
    return functional.AsyncCollectiveTensor(x + 1)


@_waiting.register_fake
def _(x):
    return torch.empty_like(x)


def test_a_result_that_wraps_a_tensor():
    """It has no memory for kernels to read."""
    x = torch.randn(4, 3)
    compiled = dynamo.compile(lambda x: _waiting(x) * 2 + x)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), (x + 1) * 2 + x)
