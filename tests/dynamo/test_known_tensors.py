"""Tensors that a frame makes of numbers alone: reading their values breaks no graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dynamo
from tests.dynamo.values_support import CountingBackend


def rows():
    return torch.arange(12.0).reshape(2, 6)


def scaled_by_an_element(x):
    return (
        x * torch.tensor([3, 5]).amax().item() + float(torch.tensor(0.1)) + int(torch.tensor(2.7))
    )


def reduced_over_listed_axes(x):
    return x.sum(torch.arange(0, 2).tolist())


def sized_by_lengths(x):
    lengths = torch.tensor([row.shape[0] for row in x])
    steps = torch.arange(lengths.max().item())
    return steps[None] < lengths[:, None], torch.zeros(int(lengths.sum()))


def branch(x):
    if torch.tensor(1.5) > 1 and not torch.zeros(1):
        return x + 1
    return x


def assertion(x):
    assert (torch.tensor([1, 2]) > 0).all(), "positive"
    return x + 1


def selection(x):
    mask = torch.tensor([True, False, True, False, False, True])
    return x[:, mask.nonzero().flatten()], torch.arange(6)[mask]


def repeated(x):
    ids = torch.repeat_interleave(torch.arange(2), torch.tensor([2, 4]))
    return x * ids, ids


def chunks(x):
    return x.split(torch.tensor([1, 2, 3]).tolist(), 1)[2], x.narrow(1, torch.tensor(1), 2)


def loop(x):
    for step in torch.linspace(0, 1, 3):
        x = x + step.item()
    return x


def shape_as_tensor(x):
    size = torch.tensor(x.shape)
    return x.reshape(tuple((size.flip(0)).tolist()))


def nested_lists(x):
    return x[:, :3] * torch.tensor(torch.eye(3).tolist())[0]


def arrays(x):
    sizes = np.array([2, 4])
    if (sizes * 2 > 3).any():
        x = x + 1
    return x * sizes.sum().item(), sizes.tolist(), int(np.arange(3)[1])


def bounds(x):
    span = torch.tensor(3)
    low, high = torch.tensor(-0.5), torch.tensor(2.5)
    return torch.clamp(x - 1, 0, span * 2 - 1), torch.clamp(x, min=low, max=high), x.clamp(0, high)


def divided(x):
    half = torch.div(x.shape[1], 2, rounding_mode="trunc")
    return x.view(-1, half), x[:, half], torch.clamp(x, 0, half)


def promoted(x):
    scalar = x.flatten()[0].to(torch.int8)
    return torch.add(scalar, torch.tensor(5), alpha=torch.tensor(2))


@pytest.mark.parametrize(
    "program",
    [
        arrays,
        bounds,
        divided,
        promoted,
        scaled_by_an_element,
        reduced_over_listed_axes,
        sized_by_lengths,
        branch,
        assertion,
        selection,
        repeated,
        chunks,
        loop,
        shape_as_tensor,
        nested_lists,
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_one_graph(program, grad):
    backend = CountingBackend()
    captured = dynamo.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        x = rows().requires_grad_(grad)
        torch.testing.assert_close(captured(x), program(x), rtol=0, atol=0)
    assert backend.graphs == 1


def test_known_bounds_are_numbers_of_the_graph():
    graphs = []
    captured = dynamo.compile(bounds, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
    captured(rows())
    clamps = [node for node in graphs[0].graph.nodes if "clamp" in str(node.target)]
    assert clamps[0].args[1:] == (0, 5)
    assert len(clamps) == 3


def test_sizes_that_vary_are_not_numbers():
    def program(x):
        return x + torch.tensor([x.shape[0], 2]).max().item()

    captured = dynamo.compile(program, backend="eager", dynamic=True)
    for n in (1, 3, 5):
        x = torch.rand(n, 2)
        assert torch.equal(captured(x), program(x))


# -- what makes the values unknown ---------------------------------------------------------------
def written(x):
    t = torch.zeros(3)
    t[1] = 4
    return x * t.sum().item()


def written_by_a_view(x):
    t = torch.zeros(3)
    view = t[1:]
    view += 2
    return x * t.sum().item()


def written_by_data(x):
    t = torch.zeros(3)
    t.data[0] = 5
    return x * t.sum().item()


def replaced_by_data(x):
    t = torch.zeros(3)
    t.data = x[0, :3] + 5
    return x * t.sum().item()


def written_by_an_earlier_view(x):
    t = torch.zeros(3)
    data = t.data
    t = t.view(3, 1)
    data.fill_(2)
    return x * t.sum().item()


def written_by_out(x):
    t = torch.zeros(3)
    torch.add(torch.ones(3), 1, out=t)
    return x * t.sum().item()


def written_as_an_array(x):
    t = torch.zeros(3)
    t.numpy()[0] = 7
    return x * t.sum().item()


def written_array(x):
    numbers = np.arange(3)
    numbers[0] = 5
    return x * numbers.sum().item()


def written_in_lists(x):
    t, u = torch.zeros(1), torch.ones(1)
    torch._foreach_add_([t, u], [x[0, 0], x[0, 1] + 1])
    return x * t.item() + u.item()


def written_without_a_version(x):
    found = torch.zeros(1)
    gradients = [x / 0]
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, torch.ones(1))
    return gradients[0], found.item()


def written_statistics(x):
    mean, variance = torch.zeros(6), torch.ones(6)
    y = torch.nn.functional.batch_norm(x, mean, variance, training=True)
    return y, mean.tolist(), variance.sum().item()


def written_by_position(x):
    t = torch.full((2,), -1.0)
    torch.nn.functional.relu(t, True)
    return x * t.sum().item()


def written_in_inference_mode(x):
    with torch.inference_mode():
        t = torch.zeros(3)
        t.add_(1)
        return x * t.sum().item()


def drawn(x):
    return x * torch.rand(3).sum().item() + torch.randperm(4).tolist()[0]


def drawn_from_known(x):
    return x * torch.nn.functional.dropout(torch.ones(8), 0.5).sum().item()


def drawn_inside(x):
    """By an operation that is no random one by name."""
    return x * torch._standard_gamma(torch.tensor([1.0, 2.0])).tolist()[0]


def from_outside(x):
    return x * OUTSIDE.max().item()


OUTSIDE = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    "program",
    [
        written,
        written_by_a_view,
        written_by_data,
        replaced_by_data,
        written_by_an_earlier_view,
        written_by_out,
        written_as_an_array,
        written_array,
        written_in_lists,
        written_without_a_version,
        written_statistics,
        written_by_position,
        written_in_inference_mode,
        drawn,
        drawn_from_known,
        drawn_inside,
        from_outside,
    ],
)
def test_values_that_are_read_when_the_graph_runs(program):
    captured = dynamo.compile(program, backend="eager")
    for seed in range(3):
        OUTSIDE.fill_(seed + 1.5)
        torch.manual_seed(seed)
        expected = program(rows())
        torch.manual_seed(seed)
        torch.testing.assert_close(captured(rows()), expected, rtol=0, atol=0, equal_nan=True)


def test_operations_that_fail_raise_as_in_eager():
    def program(x):
        return x[:, torch.tensor([1, 2])[torch.tensor([0, 5])]]

    captured = dynamo.compile(program, backend="eager")
    for call in (program, captured):
        with pytest.raises(IndexError, match="out of (range|bounds)"):
            call(rows())


@torch.library.custom_op("known_tensors::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    CALLS.append("operator")
    return x + 1


@counted.register_fake
def _(x):
    return torch.empty_like(x)


@dynamo.allow_in_graph
def allowed(x):
    if not isinstance(x, torch._subclasses.FakeTensor):
        CALLS.append("function")
    return x + 1


CALLS = []


@pytest.mark.parametrize("function", [counted, allowed])
def test_functions_of_the_program_run_once_a_call(function):
    def program(x):
        return x * function(torch.ones(2)).sum().item()

    captured = dynamo.compile(program, backend="eager")
    for number in range(1, 3):
        CALLS.clear()
        assert torch.equal(captured(rows()), rows() * 4)
        assert len(CALLS) == 1, number


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_order_in_memory(backend):
    def f():
        x = torch.tensor([[1, 3, 2, 3], [1, 2, 1, 2]])
        return x.nonzero(), torch.argwhere(x == 3), torch.unique(x, dim=1), x.nonzero()[:, 1]

    for found, wanted in zip(dynamo.compile(f, backend=backend, fullgraph=True)(), f()):
        assert torch.equal(found, wanted) and found.stride() == wanted.stride()


@pytest.mark.parametrize("data", [torch.full((4,), 3.0), torch.full((3,), 3.0).double()])
def test_gradients_of_the_data_before(data):
    """`tensor.data = ...` leaves the gradient as it was, of another size or dtype."""

    def read(p):
        return p * 2, p.grad

    p = torch.nn.Parameter(torch.ones(3))
    (p * 2).sum().backward()
    p.data = data
    result, gradient = dynamo.compile(read, backend="eager")(p)
    assert torch.equal(result, data * 2) and gradient is p.grad
