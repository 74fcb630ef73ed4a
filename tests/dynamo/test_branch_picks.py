"""Branches and loops on the values of tensors whose sides pick elements, or read numbers, of their
own.
"""

from __future__ import annotations

import pytest
import torch

import dynamo
from tests.dynamo import branch_support
from tests.dynamo.test_dynamic_data import notes_of


def picks(x, w):
    if x.sum() > 3:
        y = x[x > 0].sum() * w
    else:
        y = w + x
    return y


def whether_any(x, w):
    mask = x > 1
    if mask.any():
        y = w[mask].mean() + x
    else:
        y = w + x
    return y


def whether_all(x, w):
    mask = x > 0
    if not mask.all():
        x = torch.where(mask, x, w[mask].sum())
    return x + w


def places(x, w):
    if x.sum() > 3:
        rows = (x > 0).nonzero().squeeze(1)
        y = w.index_add(0, rows, x[rows])
    else:
        y = w + x
    return y


def a_number(x, w):
    if x.sum() > 3:
        n = int((x > 0).sum())
        y = x[:n].sum() + w * n
    else:
        y = w + x
    return y


def branches_in_sides(x, w):
    if x.sum() > 3:
        if x[0] > 0:
            y = x[x > 0].sum() + w
        else:
            y = w[x > 0].cumsum(0).sum() * x
    elif x[1] > 0:
        y = torch.unique(x.detach()).sum() + w
    else:
        y = w * x.masked_select(w > 0).mean()
    return y


def experts(x, w):
    y = torch.zeros(4)
    for e in range(3):
        chosen = x.detach().nan_to_num().long() == e
        if chosen.any():
            rows = chosen.nonzero().squeeze(1)
            y = y.index_add(0, rows, x[rows] * w[rows] + e)
        else:
            y = y + 1
    return y


def of_rows_from_outside(x, w):
    p = x[w > 0]
    if x.sum() > 3:
        y = p[p > 0].sum() + p
    else:
        y = p * 2
    return y, p


def in_turns(x, w):
    n = torch.zeros(())
    while n < 3:
        x = x + x[x > 0].sum() * 0.1 + w
        n = n + 1
    return x


def both_return(x, w):
    if x.sum() > 3:
        return x[x > 0].sum() * w
    return x[x <= 0].sum() + w


def sorts(x, w):
    if x.sum() > 3:
        y = x[x > 0].sort()[0].sum() * w
    else:
        y = w
    return y * 2


def leaves_rows(x, w):
    if x.sum() > 3:
        y = x[x > 0]
    else:
        y = w[w > 0]
    return y * 2


def leaves_all_or_some(x, w):
    y = x * 1
    if x.sum() > 3:
        y = y[x > 0]
    return y * 2, x.sum() + w, y


def leaves_a_matrix(x, w):
    h = x[:, None] * w
    if x.sum() > 3:
        h = h[x > 0]
    y = h @ torch.ones(4, 2)
    return y.relu(), h.shape[0]


def first_of_rows(x, w):
    rows = x[x > 0] if x.sum() > 3 else w[x > 0]
    return rows[0] * w


def without_gradients(x, w):
    if x.sum() > 3:
        with torch.no_grad():
            k = x[x > 0].mean()
        y = w * k + x
    else:
        y = w + x
    return y


@torch.no_grad()
def _places(x):
    return (x > 0).nonzero().squeeze(1)


def in_a_callee_without_gradients(x, w):
    if x.sum() > 3:
        rows = _places(x)
        y = w.index_add(0, rows, x[rows])
    else:
        y = w + x
    return y


def returns_without_gradients(x, w):
    if x.sum() > 3:
        with torch.no_grad():
            return x[x > 0].sum()
    return w.sum().detach()


def turns_without_gradients(x, w):
    n = torch.zeros(())
    while n < x.sum():
        with torch.no_grad():
            k = x[x > 0].mean()
        w, n = w * k.clamp(-1, 1), n + 1
    return w


def fails_without_gradients(x, w):
    if x.sum() > 3:
        with torch.no_grad():
            k = w[x[x > 0].long() + 1]
        y = w * k.sum() + x
    else:
        y = w + x
    return y


def under_autocast(x, w):
    if x.sum() > 3:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            k = (x[:, None] @ x[None])[x > 0].sum()
        y = w * k
    else:
        y = w + x
    return (y[:, None] @ w[None]).sum(0)


def fails_under_autocast(x, w):
    if x.sum() > 3:
        with torch.autocast("cpu", torch.bfloat16):
            y = (x[:, None] @ w[None])[x[x > 0].long() + 1].sum(0).float()
    else:
        y = w + x
    return y


def inside_autocast(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        h = x[:, None] @ w[None]
        if x.sum() > 3:
            h = (h @ h)[x > 0].sum(0)
        else:
            h = h.sum(0)
    return (h.float()[:, None] @ w[None]).sum(0)


def behind_autocast(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        h = x[:, None] @ w[None]
    if x.sum() > 3:
        h = h.float() @ h.float()
    else:
        h = h.float() * 2
    return h @ w


def turns_inside_autocast(x, w):
    n = torch.zeros(())
    with torch.autocast("cpu", torch.bfloat16):
        h = x[:, None] @ w[None]
        while n < 2.5:
            h, n = (h @ h).tanh(), n + x.sum().clamp(1)
    return h.float() @ h.float()


MODES = [without_gradients, in_a_callee_without_gradients, returns_without_gradients]
MODES += [turns_without_gradients, fails_without_gradients, under_autocast, fails_under_autocast]
MODES += [inside_autocast, behind_autocast, turns_inside_autocast]
PROGRAMS = [picks, whether_any, whether_all, places, a_number, branches_in_sides, experts]
PROGRAMS += [of_rows_from_outside, in_turns, both_return, sorts]
PROGRAMS += [leaves_rows, leaves_all_or_some, leaves_a_matrix, first_of_rows]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", ["plain", "grads"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_program(function, kind, backend):
    branch_support.check_one_graph(function, kind, backend)


@pytest.mark.parametrize("kind", ["plain", "grads"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", MODES, ids=lambda function: function.__name__)
def test_modes_inside_and_around(function, backend, kind):
    branch_support.check_one_graph(function, kind, backend)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("function", [branches_in_sides, experts, leaves_a_matrix, first_of_rows])
def test_kernels(function):
    compiled = dynamo.compile(function)
    for kind in ("plain", "grads"):
        for values in branch_support.CALLS:
            branch_support._same(
                branch_support.outcome(function, values, kind),
                branch_support.outcome(compiled, values, kind),
            )
    assert len(compiled.context.records) == 2 and not notes_of(compiled)


def selects(x, w):
    if x.sum() > 3:
        y = x[x > 0][1] * w
    else:
        y = w
    return y


def reshapes(x, w):
    if x.sum() > 3:
        y = x[x > 0].view(2, -1).sum() * w
    else:
        y = w
    return y


def leaves_a_number(x, w):
    n = 0
    if x.sum() > 3:
        n = int((x > 0).sum())
    return x[:n].sum() + w


def a_side_of_nothing(x, w):
    p = x[x > 0]
    if p.sum() > 3:
        q = p[p > 1]
        if q.numel() > 2:
            q = q[q > 2]
    else:
        q = p
    return q.sum() + w, p


@pytest.mark.parametrize("kind", ["plain", "grads"])
@pytest.mark.parametrize("function", [selects, reshapes, leaves_a_number, a_side_of_nothing])
def test_what_depends_on_the_size_breaks_the_graph(function, kind):
    compiled = dynamo.compile(function, backend="eager")
    for values in branch_support.CALLS:
        branch_support._same(
            branch_support.outcome(function, values, kind),
            branch_support.outcome(compiled, values, kind),
        )
    codes = {b.code for record in compiled.context.records for b in record.breaks}
    assert codes == {"DATA_DEPENDENT_JUMP"}
