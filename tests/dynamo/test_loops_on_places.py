"""Loops over mask.nonzero(): one graph where iterations that are not made would have no effect,
graph breaks elsewhere; values and gradients as in eager, also those that are None.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo
from backends.aot_eager import aot_eager
from backends.eager import eager
from backends.inductor import inductor
from tests.dynamo.branch_support import same
from tests.dynamo.dynamic_support import Counting

EXPERTS, TOKENS, WIDTH = 4, 5, 4
# Experts of each token: all, some, one, none but the last, which does nothing.
CHOICES = [
    [[0, 1], [2, 3], [1, 0], [3, 2], [0, 3]],
    [[0, 2], [2, 0], [0, 2], [2, 0], [2, 0]],
    [[1, 4], [4, 4], [4, 4], [4, 4], [4, 1]],
    [[4, 4]] * TOKENS,
]
SEEN: list[object] = []
LAYERS = torch.nn.ModuleList(torch.nn.Linear(1, i + 1) for i in range(EXPERTS))


def rows_of(chosen):
    return F.one_hot(chosen, num_classes=EXPERTS + 1).permute(2, 1, 0)


def stacked(x, w, each, chosen):
    out = torch.zeros_like(x)
    with torch.no_grad():
        rows = rows_of(chosen)
        hit = torch.greater(rows.sum(dim=(-1, -2)), 0).nonzero()
    for e in hit:
        e = e[0]
        if e == EXPERTS:
            continue
        _, at = torch.where(rows[e])
        gate, up = F.linear(x[at], torch.cat([w[e], w[e]])).chunk(2, dim=-1)
        out.index_add_(0, at, (F.silu(gate) * up).to(out.dtype))
    return out


def by_name(x, w, each, chosen):
    """Of each expert the weights of its own; the number in a text."""
    out = torch.zeros_like(x)
    rows = rows_of(chosen)
    for e in torch.greater(rows.sum(dim=(-1, -2)), 0).nonzero():
        slot, at = torch.where(rows[e].squeeze(0))
        weight = each.get(f"expert_{e[0]}")
        if weight is not None:
            y = x[None, at].reshape(-1, WIDTH) @ weight
            out.index_add_(0, at, y * (slot[:, None] + 1))
    return out


def by_number(x, w, each, chosen):
    out = x * 1
    rows = rows_of(chosen)
    for e in rows.bool().any(-1).any(-1).nonzero(as_tuple=False):
        number = int(e.item())
        slot, at = torch.where(rows[number])
        if at.numel() == 0:
            continue
        out[at] += x[at] if number >= EXPERTS else x[at] @ w[number]
    return out


def flat(x, w, each, chosen):
    out = torch.zeros_like(x)
    rows = (chosen == torch.arange(EXPERTS).view(-1, 1, 1)) * 1
    for e in (rows.sum((1, 2)) != 0).nonzero().squeeze(-1):
        at = rows[e].nonzero()[:, 0]
        out.index_add_(0, at, x[at] * w[e, 0])
    return out * 2


def listed(x, w, each, chosen):
    out = torch.zeros_like(x)
    rows = rows_of(chosen)
    for e in rows.sum((1, 2)).nonzero().flatten().tolist():
        at = torch.where(rows[e] > 0)[1]
        out = out.index_add_(0, at, x[at] * (e + 1))
    return out


def masks(x, w, each, chosen):
    out = torch.zeros_like(x)
    rows = (chosen == torch.arange(EXPERTS).view(-1, 1, 1)).any(-1)
    for e in torch.nonzero(rows.any(1)):
        here = rows[e[0]]
        out[here] += x[here] @ w[e[0]]
    return out


def by_module(x, w, each, chosen):
    """Of a ModuleList, whose index is a tensor of one element."""
    out = torch.zeros_like(x)
    rows = rows_of(chosen)[:EXPERTS]
    for e in rows.sum((1, 2)).nonzero():
        at = torch.where(rows[e].squeeze(0))[1]
        out.index_add_(0, at, x[at] * (LAYERS[e].out_features + 1))
    return out


def as_tuple(x, w, each, chosen):
    out = torch.zeros_like(x)
    rows = rows_of(chosen)[:EXPERTS]
    for e in rows.sum((1, 2)).nonzero(as_tuple=True)[0].tolist():
        at = torch.where(rows[e])[1]
        out.index_add_(0, at, x[at] @ w[e])
    return out


def first_of(chosen):
    """Places, smaller than the number of experts."""
    return F.one_hot(chosen[:, 0].clamp(max=EXPERTS - 1), EXPERTS).argmax(-1)


def found_numbers(x, w, each, chosen):
    out = torch.zeros_like(x)
    for e in torch.unique(first := first_of(chosen)):
        here = first == e
        out[here] += x[here] @ w[int(e)]
    return out


def pieces(x, w, each, chosen):
    first = first_of(chosen)
    counts = torch.bincount(first, minlength=EXPERTS).tolist()
    parts = x[first.argsort(stable=True)].split(counts)
    return torch.cat([part @ w[e] for e, part in enumerate(parts)])


def drops(x, w, each, chosen):
    out = torch.zeros_like(x)
    rows = rows_of(chosen)
    for e in rows.sum((1, 2)).nonzero():
        at = torch.where(rows[e[0]])[1]
        out.index_add_(0, at, F.dropout(x[at], 0.5))
    return out


# -- where it is known that an iteration ran, or how many -----------------------------------------
def counts(x, w, each, chosen):
    out, count, rows = torch.zeros_like(x), 0, rows_of(chosen)
    for e in rows.sum((1, 2)).nonzero():
        at = torch.where(rows[e[0]])[1]
        out.index_add_(0, at, x[at])
        count += 1
    return out, count


def logs(x, w, each, chosen):
    rows = rows_of(chosen)
    for e in rows.sum((1, 2)).nonzero():
        SEEN.append(e)
    return x * 2


def leaves_last(x, w, each, chosen):
    rows, e = rows_of(chosen), torch.zeros(1)
    for e in rows.sum((1, 2)).nonzero():
        at = torch.where(rows[e[0]])[1]
        x.detach().index_add_(0, at, x[at])
    return x * e


def stops(x, w, each, chosen):
    out, rows = torch.zeros_like(x), rows_of(chosen)
    for e in rows.sum((1, 2)).nonzero():
        at = torch.where(rows[e[0]])[1]
        out.index_add_(0, at, x[at])
        if e[0] == 1:
            break
    return out


def returns(x, w, each, chosen):
    rows = rows_of(chosen)
    for e in rows.sum((1, 2)).nonzero():
        return x[torch.where(rows[e[0]])[1]]
    return x


def numbered(x, w, each, chosen):
    out, rows = torch.zeros_like(x), rows_of(chosen)
    for i, e in enumerate(rows.sum((1, 2)).nonzero()):
        at = torch.where(rows[e[0]])[1]
        out.index_add_(0, at, x[at] * i)
    return out


def measured(x, w, each, chosen):
    out, rows = torch.zeros_like(x), rows_of(chosen)
    hit = rows.sum((1, 2)).nonzero()
    for e in hit:
        at = torch.where(rows[e[0]])[1]
        out.index_add_(0, at, x[at])
    return out * len(hit)


def writes_all(x, w, each, chosen):
    out, rows = torch.zeros_like(x), rows_of(chosen)
    for e in rows.sum((1, 2)).nonzero():
        out += w[e[0] % EXPERTS].sum()
    return out


def other_row(x, w, each, chosen):
    out, rows = torch.zeros_like(x), rows_of(chosen)
    for e in rows.sum((1, 2)).nonzero():
        at = torch.where(rows[EXPERTS - e[0]])[1]
        out.index_add_(0, at, x[at])
    return out


def signs(x, w, each, chosen):
    """A row whose sum is 0 has ones."""
    out, rows = torch.zeros_like(x), rows_of(chosen) * torch.tensor([1, -1])[:, None]
    for e in rows.sum((1, 2)).nonzero():
        at = torch.where(rows[e[0]])[1]
        out.index_add_(0, at, x[at])
    return out


def written_between(x, w, each, chosen):
    out, rows = torch.zeros_like(x), rows_of(chosen).contiguous()
    hit = rows.sum((1, 2)).nonzero()
    rows.fill_(1)
    for e in hit:
        at = torch.where(rows[e[0]])[1]
        out.index_add_(0, at, x[at])
    return out


def written_numbers(x, w, each, chosen):
    """More than the operation gives that found them."""
    first, out = first_of(chosen), torch.zeros_like(x)
    first += 1
    for e in first.unique():
        at = torch.where(first == e)[0]
        out.index_add_(0, at, x[at] * (e + 1))
    return out, torch.bincount(first, minlength=EXPERTS)


def first_row(x, w, each, chosen):
    """What fails on nothing."""
    out, rows = torch.zeros_like(x), rows_of(chosen)
    for e in rows.sum((1, 2)).nonzero():
        at = torch.where(rows[e[0]])[1]
        out.index_add_(0, at, x[at] * x[at][0])
    return out


WHOLE = [
    stacked, by_name, by_number, flat, listed, masks, by_module, as_tuple, found_numbers, pieces,
]  # fmt: skip
OTHERS = [
    counts, logs, leaves_last, stops, returns, numbered, measured, writes_all, other_row, signs,
    written_between, first_row, written_numbers,
]  # fmt: skip


def outcome(function, choice, graded):
    del SEEN[:]
    torch.manual_seed(0)
    x = torch.linspace(-2, 2, TOKENS * WIDTH).view(TOKENS, WIDTH).requires_grad_(graded)
    w = torch.linspace(-1, 1, EXPERTS * WIDTH * WIDTH).view(EXPERTS, WIDTH, WIDTH)
    each = {f"expert_{i}": w[i].clone().requires_grad_(graded) for i in range(EXPERTS)}
    w.requires_grad_(graded)
    result = function(x, w, each, torch.tensor(choice))
    first = result[0] if isinstance(result, tuple) else result
    facts = first.requires_grad, list(SEEN)
    if first.requires_grad:
        first.sum().backward()
    grads = [t.grad for t in (x, w, *each.values())]
    count = result[1] if isinstance(result, tuple) else 0
    return first.detach(), count, facts, grads, torch.rand(1)  # random numbers are as far


COMPILED = [(eager, f) for f in WHOLE] + [(b, stacked) for b in (aot_eager, inductor)]
COMPILED += [(inductor, masks)]


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize(("backend", "function"), COMPILED, ids=lambda f: f.__name__)
def test_iterations_without_effect_are_in_the_graph(backend, function, graded):
    counting = Counting(backend)
    compiled = dynamo.compile(function, backend=counting)
    for choice in CHOICES:
        same(outcome(function, choice, graded), outcome(compiled, choice, graded))
    assert len(counting.graphs) == 1


@pytest.mark.parametrize("graded", [False, True])
def test_random_numbers_are_those_of_the_iterations_that_are_made(graded):
    """Where some are not made, the frame runs again; too often, and it is captured otherwise."""
    counting = Counting(eager)
    compiled = dynamo.compile(drops, backend=counting)
    made = []
    for choice in [[[0, 1], [2, 3], [4, 4], [3, 2], [0, 3]], *CHOICES, *CHOICES]:
        same(outcome(drops, choice, graded), outcome(compiled, choice, graded))
        made.append(len(counting.graphs))
    assert made[:4] == [1] * 4 and made[-1] > 1 and made[-3] == made[-1]


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("function", OTHERS, ids=lambda f: f.__name__)
def test_what_can_be_told_breaks_the_graph(function, graded):
    counting = Counting(eager)
    compiled = dynamo.compile(function, backend=counting)
    for choice in CHOICES:
        same(outcome(function, choice, graded), outcome(compiled, choice, graded))
    assert len(counting.graphs) != 1


@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_fullgraph(function):
    compiled = dynamo.compile(function, backend="eager", fullgraph=True)
    for choice in CHOICES:
        same(outcome(function, choice, False), outcome(compiled, choice, False))


@pytest.mark.parametrize("whole", [False, True])
def test_many_experts(whole):
    """Iterations that a call does not make take their time: of many, a graph that need not be whole
    captures none.
    """

    def f(x, chosen):
        out = torch.zeros_like(x)
        rows = F.one_hot(chosen, num_classes=40).permute(2, 1, 0)
        for e in rows.sum((1, 2)).nonzero():
            at = torch.where(rows[e[0]])[1]
            out.index_add_(0, at, x[at] * 2)
        return out

    x, chosen = torch.linspace(-1, 1, 12).view(3, 4), torch.tensor([[1, 39], [1, 0], [20, 1]])
    counted = Counting(eager)
    compiled = dynamo.compile(f, backend=counted, fullgraph=whole)
    same(compiled(x, chosen), f(x, chosen))
    largest = max(len(graph.graph.nodes) for graph in counted.graphs)
    assert largest > 200 if whole else largest < 60  # of three experts
