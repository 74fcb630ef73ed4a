"""Loops over range(n) where a tensor holds n: loops in the graph where an iteration only computes
tensors, breaks elsewhere; values, gradients and exceptions as in eager, for any n.
"""

from __future__ import annotations

import pytest
import torch

import dynamo
from tests.dynamo.dynamic_support import same

X = torch.linspace(-1, 1, 12).view(6, 2)
COUNTS = (3, 0, 1, 6, -2, 8)
# program -> whether one graph holds it; of calls with gradients, too
PROGRAMS: dict[object, tuple[bool, bool]] = {}


def program(captured, with_grads=None):
    graded = captured if with_grads is None else with_grads
    return lambda function: PROGRAMS.update({function: (captured, graded)}) or function


@program(True)
def steps(x, n):
    for _ in range(n):
        x = torch.tanh(x * 2)
    return x + 1


@program(True)
def counted(x, n):
    for i in range(n):
        x = x * 0.5 + i
    return x + n


@program(True)
def from_a_start(x, n):
    for i in range(2, n + 1):
        x = x + (i - 1) * 0.25 - (7 - i) / 4 + i // 2
    return x


@program(True)
def branches(x, n):
    for i in range(n):
        if i % 2 == 0:
            x = x * 2
        else:
            x = x + i * 0.1
    return x


@program(True, False)  # the sum of no rows requires no gradient
def rows(x, n):
    total = torch.zeros(2)
    for i in range(n):
        total = total + x[i] * (i + 1)
    return total


@program(True)
def rows_of_another(x, n):
    weights = torch.arange(6.0)
    for i in range(n):
        x = x * weights[i]
    return x


@program(True)
def two_loops(x, n):
    for _ in range(n):
        x = x * 0.5
    for i in range(n * 2):
        x = x + i
    return x


@program(True)
def one_in_the_other(x, n):
    for i in range(n):
        for j in range(n + 1):
            x = x * 0.5 + j
        x = x - i
    return x


@program(True)
def draws(x, n):
    for i in range(n):
        x = x + torch.rand(2) * i
    return x + torch.rand(1)


@program(True)
def last_way_out(x, n):
    for i in range(n):
        x = x + i
    else:
        x = x * 2
    return x


@program(False)
def a_type_for_which_numbers_are_others(x, n):
    y = (x * 10).to(torch.int32)
    for i in range(n):
        y = y + i
    return y * x


@program(True)
def swapped(x, n):
    a, b = x * 1, x * 3
    for _ in range(n):
        a, b = b, a + 1
    return a - 2 * b


@program(False)
def the_last_number(x, n):
    for i in range(n):
        x = x + i
    return x, i


@program(False)
def kept(x, n):
    seen = []
    for i in range(n):
        x = x + 1
        seen.append(i)
    return x, seen


@program(False)
def left_early(x, n):
    for i in range(n):
        x = x + i
        if i == 2:
            break
    return x


@program(False)
def an_iterator_of_its_own(x, n):
    numbers = iter(range(n))
    for i in numbers:
        x = x + i
    return x, list(numbers)


@program(False)
def written(x, n):
    y = x * 1
    for i in range(n):
        y[i] = i
    return y


@program(False)
def row_that_is_written(x, n):
    y, row = x * 1, x[0] * 2
    for i in range(n):
        row = y[i]
    row.add_(1)
    return y


@program(False)
def source_of_a_row_that_is_written(x, n):
    y, row = x * 1, x[0] * 2
    for i in range(n):
        row = y[i]
    y.add_(1)
    return row * 1


@program(False)
def as_an_argument(x, n):
    for i in range(n):
        x = x.roll(i, 0)
    return x


@program(False)
def ints_beyond_64_bits(x, n):
    for i in range(n):
        x = x + i * 1000000 * 1000000 * 1000000 % 7
    return x


@program(False)
def large_numbers_from_the_start(x, n):
    for i in range(n << 60, (n << 60) + 2):
        x = x + i * 100 % 7
    return x


@program(False)
def of_other_sizes(x, n):
    for _ in range(n):
        x = torch.cat([x, x])
    return x


def outcome(function, count, trains):
    torch.manual_seed(0)
    leaf = X.clone().requires_grad_(trains)
    try:
        found = function(leaf, torch.tensor(count))
    except Exception as error:
        return type(error), str(error)
    first = found[0] if type(found) is tuple else found
    if first.requires_grad:
        first.sum().backward()
    return found, first.requires_grad, leaf.grad


def compare(function, backend, trains):
    def reading(x, t):
        return function(x, t.item())

    compiled = dynamo.compile(reading, backend=backend, isolate_recompiles=True)
    with dynamo.config.patch(capture_scalar_outputs=True):
        for count in COUNTS:
            same(outcome(reading, count, trains), outcome(compiled, count, trains))
    return [len(record.graphs) for record in compiled.context.records]


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_program(function, trains):
    graphs = compare(function, "eager", trains)
    assert (graphs == [1]) is PROGRAMS[function][trains]


@pytest.mark.parametrize("trains", [False, True])
def test_kernels(trains):
    for function in (branches, counted):
        assert compare(function, "inductor", trains) == [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_quotients_have_eager_s_bits(dtype):
    """Tensor.__rtruediv__ multiplies by the reciprocal."""

    def function(x, t):
        y = (2 if t > 1 else 3) / x
        for i in range(t.item()):
            y = y + (i + 7) / x
        return y

    x = torch.arange(3, 200).to(dtype)
    compiled = dynamo.compile(function, backend="eager")
    with dynamo.config.patch(capture_scalar_outputs=True):
        for n in (1, 3):
            assert torch.equal(function(x, torch.tensor(n)), compiled(x, torch.tensor(n)))
    assert [len(record.graphs) for record in compiled.context.records] == [1]
