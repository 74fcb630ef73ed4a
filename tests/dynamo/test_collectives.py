"""Collectives of torch.distributed in captured functions, in two processes: values, gradients, and
what is one graph.
"""

from __future__ import annotations

import pytest
import torch.distributed as dist

from tests.children import run_script

pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo"
)

SCRIPT = """
import datetime, os, sys, tempfile, warnings
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import dynamo

warnings.simplefilter("ignore")  # torch renames these functions
store = tempfile.mktemp()
child = os.fork()
rank = 0 if child else 1
torch.set_num_threads(1)  # behind the fork: a pool of threads stays with its process
limit = datetime.timedelta(seconds=60)
place = f"file://{store}"
dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2, timeout=limit)


def in_place(x):
    y = x * 2
    dist.all_reduce(y)
    z = y.sin()
    dist.all_reduce(z, dist.ReduceOp.MAX)
    return y + z, x + 1

def unused(x):
    dist.all_reduce(x * 2)
    return x + 1

def of_an_input(x):
    dist.all_reduce(x, op=dist.ReduceOp.SUM)
    return x * 2

def of_a_view(x):
    y = x * 2
    dist.all_reduce(y[1:3])
    return y + 1

def gathered(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x * 2)
    return parts[0] - parts[1]

def gathered_along(x):
    return functional.all_gather_tensor(x * 2, 1, dist.group.WORLD) + 1

def scattered(x):
    part = torch.empty(x.shape[0] // 2, x.shape[1])
    dist.reduce_scatter_tensor(part, x * 2)
    return part + 1

def exchanged(x):
    y = torch.empty_like(x)
    dist.all_to_all_single(y, x * 2)
    return y + dist.get_rank()

def overlapping(x):
    one = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
    other = functional.all_reduce(x.sin(), "max", dist.group.WORLD)
    return one + other * (x + 3).relu()

def repeated(x):
    for _ in range(3):
        y = x * 0.5
        dist.all_reduce(y)
        x = y.relu() + x
    return x

def sent_by_one(x):
    y = x * 2
    dist.broadcast(y, 0)
    return y + 1

def waited_for(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x.sin()
    work.wait()
    return y + z

class Reduced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient

class Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient

def tensor_parallel(x):
    return (Reduced.apply(Copied.apply(x) * (rank + 1)).sin() * 3).sum()

def with_gradients(x):
    y = x * 2
    dist.all_reduce(y)  # which autograd does not look at
    return y.sin().sum()

def of_columns(x):
    y = (x * 2).t()
    dist.all_reduce(y)
    z = torch.empty_like(x.t(), memory_format=torch.contiguous_format)
    dist.all_to_all_single(z, x.t())
    return y + z

def of_too_few(x):
    dist.all_gather([torch.empty_like(x)], x)

def of_another_dtype(x):
    dist.all_gather([torch.empty_like(x).double() for _ in range(2)], x)

def into_another_dtype(x):
    dist.all_gather_into_tensor(torch.empty(x.shape[0] * 2, x.shape[1]).double(), x)

refused = [of_columns, of_too_few, of_another_dtype, into_another_dtype]
whole = [in_place, unused, of_an_input, of_a_view, gathered, gathered_along, scattered, exchanged]
whole += [overlapping, repeated]


def check(backend):
    for program in [*whole, sent_by_one, waited_for]:
        compiled = dynamo.compile(program, backend=backend, fullgraph=program in whole)
        for rows in (4, 4, 6, 8):
            torch.manual_seed(rows + rank)
            x = torch.randn(rows, 6)
            inputs = x.clone(), x.clone()
            torch.testing.assert_close(compiled(inputs[0]), program(inputs[1]))
            torch.testing.assert_close(*inputs)
        breaks = [b for record in compiled.context.records for b in record.breaks]
        names = {type(b).__name__ for b in breaks}
        assert bool(names) is (program not in whole), (program, names)
    for program in (tensor_parallel, with_gradients):
        compiled = dynamo.compile(program, backend=backend, fullgraph=program is tensor_parallel)
        x = torch.randn(4, 6)
        leaves = x.clone().requires_grad_(), x.clone().requires_grad_()
        for run, leaf in zip((program, compiled), leaves):
            run(leaf).backward()
        torch.testing.assert_close(leaves[1].grad, leaves[0].grad)


def check_refusals():
    for program in refused:
        for run in (program, dynamo.compile(program, backend="aot_eager")):
            try:
                run(torch.ones(4, 6))
            except (RuntimeError, ValueError):
                continue
            raise AssertionError(program)


def check_groups():
    groups = [dist.new_group([0, 1]), dist.new_group([0]), dist.new_group([1])]
    own = groups[1 + rank]

    def size(x, group):
        return x * dist.get_world_size(group) + dist.get_rank(group)

    def total(x, group):
        y = x + rank
        dist.all_reduce(y, group=group)
        return y

    for program in (size, total):
        compiled = dynamo.compile(program, backend="eager", fullgraph=True)
        for group in (None, groups[0], own, groups[0], None):
            x = torch.ones(3)
            torch.testing.assert_close(compiled(x, group), program(x, group))


try:
    BODY
finally:
    sys.stdout.flush()
dist.barrier()
dist.destroy_process_group()
if not child:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_collectives_are_operators_of_the_graph(backend):
    done = run_script(SCRIPT.replace("BODY", f"check({backend!r})"))
    assert done.returncode == 0, done.stderr


def test_groups_are_guarded():
    done = run_script(SCRIPT.replace("BODY", "check_groups()"))
    assert done.returncode == 0, done.stderr


def test_what_a_collective_refuses_is_refused():
    done = run_script(SCRIPT.replace("BODY", "check_refusals()"))
    assert done.returncode == 0, done.stderr
