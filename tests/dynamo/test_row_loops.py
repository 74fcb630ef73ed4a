"""Loops over as many rows of a tensor as data tells: loops in the graph where an iteration only
computes tensors; values, gradients, writes and exceptions as in eager, for any number of rows.
"""

from __future__ import annotations

import pytest
import torch

import dynamo
from tests.dynamo.dynamic_support import same

MASKS = [[1, 0, 1, 0, 1], [0] * 5, [0, 0, 1, 0, 0], [1] * 5, [1, 1, 0, 1, 0]]
ONE_GRAPH, OTHERS = [], []


def one_graph(function):
    ONE_GRAPH.append(function)
    return function


def other(function):
    OTHERS.append(function)
    return function


@one_graph
def picked(x, mask):
    total = x[0] * 1
    for row in x[mask]:
        total = total * 0.5 + row.sin()
    return total


@one_graph
def places(x, mask):
    total = x.sum(0)
    for i in mask.nonzero()[:, 0]:
        total = total + x[i] * i
    return total, total * 2


@one_graph
def pairs(x, mask):
    total = x[0] * 1
    for i, j in (x * mask[:, None] > 0).nonzero():
        total = total + x[i] * (j + 1)
    return total


@one_graph
def nested(x, mask):
    total = x[0] * 1
    for one in x[mask]:
        for two in x[mask]:
            total = total + one * two.sum()
    return total


@one_graph
def branching(x, mask):
    total = x[0] * 1
    for row in x[mask]:
        if row.sum() > 0:
            total = total * 2
        else:
            total = total + row
    return total


@one_graph
def empty_too(x, mask):
    rows = x[mask]
    total = x[0] * 1
    for row in rows[:2]:
        total = total + row
    for row in torch.cat([rows, x]):
        total = total - row * 0.5
    return total, rows


@other
def columns(x, mask):
    total = x[:, 0] * 1
    for column in x.t()[:, mask].t():
        total = total + column.sum()
    return total


@other
def written(x, mask):
    rows = (x[mask] * 1).detach()
    for row in rows:
        row.mul_(2)
    return rows


@other
def written_meanwhile(x, mask):
    rows, total = (x[mask] * 1).detach(), x[0] * 1
    for row in rows:
        total = total + row
        rows[-1] = rows[-1] + 1
    return total, rows


@other
def kept(x, mask):
    seen = [row * 2 for row in x[mask]]
    for row in x[mask]:
        seen.append(row)
    return x.sum(), seen


@other
def the_last(x, mask):
    total = x[0] * 1
    for row in x[mask]:
        total = total + row
    return total, row


@other
def left_early(x, mask):
    for row in x[mask]:
        if row.sum() > 0:
            return row * 2
    return x[0] - 1


@other
def numbered(x, mask):
    total = x[0] * 1
    for i, row in enumerate(x[mask]):
        total = total + row * i
    return total


@other
def rebound(x, mask):
    rows = x[mask] * 1
    for row in rows:
        rows = rows * 0.5 + row
    return rows


@other
def failing(x, mask):
    total = x[0] * 1
    for row in x[mask]:
        total = total + row[: len(row) - 1]
    return total


def outcome(function, mask, grads):
    x = torch.linspace(-1.0, 2.0, 20).view(5, 4).clone().requires_grad_(grads)
    try:
        result = function(x, torch.tensor(mask).bool())
        leaves = torch.utils._pytree.tree_leaves(result)
        if any(leaf.requires_grad for leaf in leaves):
            sum((leaf * leaf).sum() for leaf in leaves if leaf.requires_grad).backward()
        return result, x.grad
    except (RuntimeError, UnboundLocalError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("grads", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", [*ONE_GRAPH, *OTHERS], ids=lambda function: function.__name__)
def test_program(function, backend, grads):
    compiled = dynamo.compile(function, backend=backend)
    for mask in MASKS:
        same(outcome(function, mask, grads), outcome(compiled, mask, grads))
    if function in ONE_GRAPH:
        (record,) = compiled.context.records
        assert len(record.graphs) == 1 and not record.breaks


@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda function: function.__name__)
def test_fullgraph(function):
    compiled = dynamo.compile(function, fullgraph=True)
    for mask in MASKS:
        same(outcome(function, mask, True), outcome(compiled, mask, True))
