"""Effects before an operation that fails on the values of tensors, of frames whose graphs write to
tensors that are too large to copy; and operations that fail where nobody uses the result.
"""

from __future__ import annotations

import contextlib
import io
import random

import pytest
import torch

import dynamo
from dynamo.interp import checks

LOG: list[object] = []


class Holder:
    pass


def appends(x, rows, cache, holder):
    cache.add_(1)
    LOG.append("before")
    y = x[rows] * 2
    LOG.append("behind")
    return y


def writes_attributes(x, rows, cache, holder):
    holder.steps = 1
    cache[:, 0] = x[0]
    y = x.gather(0, rows)
    cache.mul_(2)
    holder.steps = 2
    return y.sin()


def prints(x, rows, cache, holder):
    cache.mul_(2)
    print("before")
    return torch.nn.functional.embedding(rows, x[:, None]) + 1


def catches(x, rows, cache, holder):
    holder.steps = 1
    cache.mul_(2)
    try:
        y = x[rows] * 2
    except IndexError:
        holder.steps = "caught"
        y = x
    return y + cache.sum()


def writes_alone(x, rows, cache, holder):
    cache.add_(1)
    small = x.detach().add_(1)
    return small[rows] + torch.rand(4)


def twice(x, rows, cache, holder):
    y = x[rows.clamp(max=3)]
    cache.add_(1)
    LOG.append("first")
    z = x[rows] * 2
    cache.add_(1)
    LOG.append("second")
    return z, y, cache[rows]


def factors(x, rows, cache, holder):
    cache.add_(1)
    holder.steps = 1
    return torch.linalg.cholesky(torch.eye(2) * (4 - rows[3])) * 2


def unused_in_a_side(x, rows, cache, holder):
    if x.sum() > 0:
        x[rows]
        y = x * 2
    else:
        torch.linalg.cholesky(torch.eye(2) * (4 - rows[3]))
        y = x + 1
    return y


def unused_in_sides_that_leave_nothing(x, rows, cache, holder):
    if x.sum() > 0:
        if x[1] > 0:
            x[rows]
    return x * 2


def unused_results_of_sides(x, rows, cache, holder):
    y = x[rows] * 2 if x.sum() > 0 else x + 1
    y.sin()
    return x * 2


def written_when_nobody_reads(x, rows, cache, holder):
    copy = x.clone()
    doubled = copy * 2
    copy[rows] = 1
    return doubled


def draws_behind(x, rows, cache, holder):
    holder.steps = 1
    return x[rows] * random.random() + cache.sum()


PROGRAMS = [draws_behind, appends, writes_attributes, prints, catches, writes_alone, twice, factors]
PROGRAMS += [unused_in_a_side, unused_in_sides_that_leave_nothing, unused_results_of_sides]
PROGRAMS += [written_when_nobody_reads]
FITS, FAILS = [0, 1, 2, 3], [0, 1, 2, 9]


def outcome(function, rows, grad):
    del LOG[:]
    torch.manual_seed(0)
    random.seed(0)
    x = torch.arange(1.0, 5.0).requires_grad_(grad) * 1
    cache, holder, text = torch.ones(16, 16), Holder(), io.StringIO()
    with contextlib.redirect_stdout(text):
        try:
            result = function(x, torch.tensor(rows), cache, holder)
            found = [t.detach() for t in (result if isinstance(result, tuple) else (result,))]
        except (IndexError, RuntimeError) as error:
            found = [type(error), str(error)]
    tensors = [*found, x.detach(), cache.detach(), torch.rand(1), random.random()]
    return tensors, [text.getvalue(), vars(holder), list(LOG)]


def same(one, other):
    assert one[1] == other[1]
    for left, right in zip(one[0], other[0], strict=True):
        if isinstance(left, torch.Tensor):
            torch.testing.assert_close(left, right)
        else:
            assert left == right


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch):
    monkeypatch.setattr(checks, "_COPIED_BYTES", 64)


def by_a_user(module, examples):
    return module.forward


@pytest.mark.parametrize(
    "backend", [by_a_user, "aot_eager", "inductor"], ids=["by_a_user", "aot_eager", "inductor"]
)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_effects(function, grad, backend):
    compiled = dynamo.compile(function, backend=backend)
    for rows in (FITS, FAILS, FITS, FAILS):
        same(outcome(compiled, rows, grad), outcome(function, rows, grad))


@pytest.mark.parametrize("backend, graphs", [("eager", 2), ("aot_eager", 1)])
def test_backends_that_write_last_need_no_break(backend, graphs):
    report = dynamo.explain(appends, backend=backend)(
        torch.ones(4), torch.tensor(FITS), torch.ones(16, 16), None
    )
    assert report.graph_count == graphs
    assert (graphs == 1) or "LOST_EFFECTS" in str(report)
