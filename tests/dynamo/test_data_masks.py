"""Elements that a mask picks, in one graph without any option: values, gradients, effects and few
recompiles whatever the mask is.
"""

from __future__ import annotations

import traceback
import warnings

import pytest
import torch
from torch.nn import functional as F

import dynamo
from backends.eager import eager
from tests.dynamo.branch_support import same
from tests.dynamo.dynamic_support import Counting

NONE, ONE, SOME, MOST, ALL = (
    torch.tensor(bits, dtype=torch.bool)
    for bits in ([0] * 6, [0, 0, 1, 0, 0, 0], [1, 0, 1, 0, 0, 1], [1, 1, 1, 0, 1, 1], [1] * 6)
)
SEEN: list[object] = []


def rows(x, mask):
    return (x * 2)[mask].sin() + 1


def in_batches(x, mask):
    """As masked autoencoders pick patches: each item of the batch has as many."""
    batch = torch.stack([x, x * 3])
    mask = torch.stack([mask, mask.flip(0)])
    seen = batch[~mask].reshape(2, -1, 4).tanh()
    hidden = batch[mask].reshape(2, -1, 4) * 2
    return torch.cat([seen, hidden], 1).softmax(1)


def computed(x, mask):
    scores = (x * mask[:, None]).sum(1)
    return x[scores > 0] * 2 + x.mean()


def loss(x, mask):
    labels = torch.where(mask, 1, -100)
    found = F.log_softmax(x, -1)
    return -found[labels != -100, 1].mean()


def selected(x, mask):
    return torch.masked_select(x.exp(), mask[:, None]).view(-1, 4).sum(1)


def back_at_their_places(x, mask):
    places = mask.nonzero().squeeze(1)
    return torch.zeros_like(x).index_add(0, places, (x[places] @ x.t()[:, :4]).relu())


def written(x, mask):
    y = x * 1
    y[mask] = y[mask].flip(0) * 2
    return y + 1


def counts(x, mask):
    values, count = torch.unique(mask.long(), return_counts=True)
    return x.sum() * count + values


def with_effects(x, mask):
    SEEN.append("before")
    y = x[mask].cumsum(0)
    SEEN.append(tuple(y.shape[1:]))
    return F.dropout(y, 0.5) * torch.rand(())


def length_returned(x, mask):
    y = x[mask] * 2
    return y, len(y)


def branch_on_length(x, mask):
    y = x[mask] * 2
    if y.shape[0] > 2:
        SEEN.append("many")
        return y.sum()
    return y + 1


def nothing_is_none(x, mask):
    y = (x + 1)[mask]
    if y.numel() == 0:
        return x.sum(), None
    return y.amax(), "some"


def loop_over_rows(x, mask):
    total = x.sum()
    for row in x[mask]:
        total = total * 0.5 + row.sum()
    return total


def squeezed(x, mask):
    return x[mask].squeeze(0) * 2


def added(x, mask):
    """Of one row, or as many as `x` has: broadcasting decides."""
    try:
        return x + x[mask]
    except RuntimeError:
        return x - 1


def dropped(x, mask):
    """Of no rows, torch's dropout returns a mask of numbers rather than of bools."""
    return F.dropout(x[mask] * 2, 0.5) * 3


def cut(x, mask):
    kept = x[mask][:3]
    return kept[kept.sum(1) > 0] * 2


ONE_GRAPH = [rows, in_batches, computed, loss, selected, back_at_their_places, written, counts]
ONE_GRAPH += [with_effects, length_returned, cut]
OTHERS = [branch_on_length, nothing_is_none, loop_over_rows, squeezed, added]
SEQUENCES = {
    "some": [SOME, MOST, ALL, ONE, NONE, SOME, NONE, ONE, NONE, ONE, ALL, MOST],
    "none": [NONE, SOME, ONE, NONE, ALL, NONE, NONE, MOST],
    "one": [ONE, ONE, SOME, ONE, NONE, ALL],
}


def outcome(function, mask):
    del SEEN[:]
    torch.manual_seed(0)
    x = torch.linspace(-1.0, 2.0, 24).view(6, 4).requires_grad_()
    result = function(x, mask)
    first, *others = result if isinstance(result, tuple) else (result,)
    first.sum().backward()
    return [first.detach(), x.grad, torch.rand(2)], [others, list(SEEN)]


def check(function, compiled, mask):
    (actual, others), (expected, known) = outcome(compiled, mask), outcome(function, mask)
    same(actual, expected)
    assert others == known


def uneven(x, mask):
    return torch.stack([x, x * 2])[torch.stack([mask, MOST])].reshape(2, -1, 4)


@pytest.mark.parametrize("masks", SEQUENCES)
@pytest.mark.parametrize("function", [*ONE_GRAPH, *OTHERS], ids=lambda f: f.__name__)
def test_program(function, masks):
    counting = Counting(eager)
    compiled = dynamo.compile(function, backend=counting)
    for mask in SEQUENCES[masks]:
        check(function, compiled, mask)
    assert len(counting.graphs) <= (1 if function in ONE_GRAPH else 5)


@pytest.mark.parametrize("function", [rows, in_batches, loss, written, dropped, nothing_is_none])
def test_kernels(function):
    compiled = dynamo.compile(function)
    for mask in SEQUENCES["some"]:
        check(function, compiled, mask)


@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda f: f.__name__)
def test_one_graph(function):
    x = torch.linspace(-1.0, 2.0, 24).view(6, 4)
    report = dynamo.explain(function, backend="eager")(x, SOME)
    assert (report.graph_count, report.break_reasons) == (1, [])


def grouped(x, mask):
    """As ViLT pads the patches of each image: a loop over the rows that have any."""
    y = x * mask[:, None] + 1
    found, rest = (y > 1).nonzero(), (y <= 1).nonzero()
    counts = [found[found[:, 0] == row].size(0) for row in found[:, 0].unique()]
    return (y * len(counts)).sum(), len(rest), counts


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_loop_over_what_was_picked(backend):
    """The first graph ends where the loop begins."""
    compiled = dynamo.compile(grouped, backend=backend)
    for mask in SEQUENCES["some"]:
        check(grouped, compiled, mask)
    x = torch.linspace(-1.0, 2.0, 24).view(6, 4)
    report = dynamo.explain(grouped, backend="eager")(x, SOME)
    (reason,) = report.break_reasons
    assert report.graph_count == 2 and "found[:, 0].unique()" in str(reason)


def any_rows(x, mask):
    y = (x + 1)[mask]
    return y.amax() if len(y) else x.sum()


def at_least_one(x, mask):
    y = (x + 1)[mask]
    return x.sum() if y.size(0) < 1 else y.amax()


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("function", [nothing_is_none, any_rows, at_least_one])
def test_a_question_for_rows_is_answered_as_is_usual(function, fullgraph):
    """With a check behind the graph: few wrong answers, and it breaks instead."""
    counting = Counting(eager)
    compiled = dynamo.compile(function, backend=counting, fullgraph=fullgraph)
    for mask in (SOME, MOST, ALL, NONE, ONE):
        check(function, compiled, mask)
    assert len(counting.graphs) == 1


@pytest.mark.parametrize("first", [MOST, SOME])
def test_errors(first):
    """A mask of another shape, and rows that are no batch, raise what eager raises."""
    for function, masks in ((rows, [first, first[:5], ALL]), (uneven, [MOST, first, MOST, NONE])):
        compiled = dynamo.compile(function, backend="eager")
        for mask in masks:
            found = []
            for run in (function, compiled):
                try:
                    found.append(run(torch.ones(6, 4), mask))
                except (IndexError, RuntimeError) as error:
                    found.append(f"{type(error)}: {error}")
            if isinstance(found[0], str):
                assert found[0] == found[1]
            else:
                same(*found)


def selects_the_second(x, mask):
    y = x[mask] * 2
    total = y.sum()
    return y.select(0, 1) * total


def writes_three(x, mask):
    y = x[mask] * 2
    z = torch.zeros(6)
    z[torch.arange(3)] = y[:, 0]
    return z


def one_number(x, mask):
    y = x[mask, 0] * 2
    return y.item()


def one_float(x, mask):
    return float(x[mask, 0] * 2)


def truth(x, mask):
    y = x[mask, 0] * 2
    return y * 3 if y else x


def array_backwards(x, mask):
    y = x[mask] * 2
    return torch.from_numpy(y.numpy()[::-1].copy())


ASKING = [selects_the_second, writes_three, one_number, one_float, truth, array_backwards]


def result_or_error(run, function, mask):
    """What a program returns; or what it raises, and where in the program."""
    try:
        result = run(torch.linspace(-1.0, 2.0, 24).view(6, 4), mask)
    except (IndexError, RuntimeError, ValueError) as error:
        entries = traceback.extract_tb(error.__traceback__)
        lines = [entry.lineno for entry in entries if entry.name == function.__name__]
        return [], [type(error), str(error), lines]
    return ([result], []) if isinstance(result, torch.Tensor) else ([], [result])


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("function", ASKING, ids=lambda f: f.__name__)
def test_numbers_of_rows_that_operators_refuse(function, backend):
    """No fault of capture is reported, nothing is read outside of the rows, and eager's exception
    comes from the line that raises it.
    """
    for masks in SEQUENCES.values():
        compiled = dynamo.compile(function, backend=backend)
        for mask in masks:
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                tensors, others = result_or_error(compiled, function, mask)
            known, expected = result_or_error(function, function, mask)
            same(tensors, known)
            assert others == expected


def test_a_loop_over_rows_in_the_graph():
    x = torch.linspace(-1.0, 2.0, 24).view(6, 4)
    report = dynamo.explain(loop_over_rows, backend="eager")(x, SOME)
    assert (report.graph_count, report.break_reasons) == (1, [])


def turned(x, mask):
    y = (x * 2)[mask]
    y.t_()
    return y + 1


def moved(x, mask):
    y = (x * 2)[mask]
    y.unsqueeze_(0)
    y.transpose_(1, 2)
    return y.add_(1), y.shape


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", [turned, moved])
def test_a_result_whose_dimensions_change_in_place(program, backend):
    compiled = dynamo.compile(program, backend=backend)
    x = torch.arange(12.0).reshape(4, 3)
    for chosen in ([1, 1, 1, 1], [1, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]):
        mask = torch.tensor(chosen).bool()
        torch.testing.assert_close(compiled(x, mask), program(x, mask))
    assert len(compiled.context.records) == 1
