"""Branches and loops on the values of tensors that leave tensors whose sizes are data."""

from __future__ import annotations

import pytest
import torch

from tests.dynamo import branch_support


def both_sides(x, w):
    y = w[x > 0]
    if x.sum() > 3:
        z = y * 2
    else:
        z = y + 1
    return z, y


def one_side(x, w):
    rows = torch.where(x > 0)[0]
    y = x[rows]
    if w[rows].sum() > 0.5:
        y = y * 2
    return y.exp(), rows


def on_their_number(x, w):
    y = w[x > 1]
    if y.numel() > 1:
        y = y * 2
    else:
        y = y - 1
    return y.sin()


def a_loop(x, w):
    y, n = w[x > 0], torch.zeros(())
    while n < x.sum():
        y = y * 0.5
        n = n + 1
    return y, n


def in_a_side(x, w):
    y = x[:, None].expand(4, 3)[x > 0]
    if x.sum() > 3:
        if w[0] > x[0]:
            y = y @ torch.ones(3, 3)
        else:
            y = y.cumsum(1)
    elif x[1] > 1:
        y = y + w[:3]
    return y, y.sum(0)


PROGRAMS = [both_sides, one_side, on_their_number, a_loop, in_a_side]


@pytest.mark.parametrize("kind", ["plain", "grads"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_program(function, backend, kind):
    branch_support.check_one_graph(function, kind, backend)
