"""Branches on whether a mask has any ones, and on sizes that data decides, taken as in the first
call: values, gradients, effects and random numbers are eager's in all calls, and calls unlike the
first are few.
"""

from __future__ import annotations

import pytest
import torch

import dynamo
from backends.aot_eager import aot_eager
from backends.eager import eager
from dynamo.interp import checks
from tests.dynamo import branch_support
from tests.dynamo.branch_support import same
from tests.dynamo.dynamic_support import Counting

WITH, WITHOUT = [1, 0, 2, 3], [1, 4, 2, 3]
SEEN: list[object] = []


def no_padding_is_none(ids, w):
    mask = ids.eq(0)
    if not mask.any():
        mask = None
    y = w * ids
    return y.masked_fill(mask, -1.0) if mask is not None else y * 2


def read_once(ids, w):
    if w.ndim != 1:
        raise ValueError(w.ndim)
    some = (ids == 0).flatten().any().item()
    y = w * ids
    if some:
        names = ["some"]
    y = torch.nn.functional.dropout(y, 0.5)
    if some:
        y = y * len(names)
    return y, names if some else None


def with_effects(ids, w):
    SEEN.append("first")
    y = w * torch.rand(4)
    if (ids < 1).any():
        SEEN.append("padding")
        return y.sum(), None
    SEEN.append(len(SEEN))
    return y * 3


def counted(ids, w):
    mask = ids == 0
    y = w * 2
    names = ["none"]
    if mask.sum() > 0:
        names.append("some")
    return y, names


def written(ids, w):
    mask = ids == 0
    names = []
    if mask.any():
        names.append("some")
    mask = mask.fill_(True)
    if mask.any():
        names.append("all")
    return w * 2, names


def truth_written(ids, w):
    mask = ids == 0
    names, some, count, none = [], mask.any(), mask.sum(), mask.any().logical_not()
    if mask.any():
        names.append("some")
    if some.logical_not_():
        names.append("none")
    count -= 1
    if count == 0:
        names.append("one")
    none.view(1)[0] = True
    if none:
        names.append("always")
    return w * 2, names


def truth_written_at_once(ids, w):
    mask = ids == 0
    names, some = [], mask.any()
    if some.logical_not_():
        names.append("none")
    if mask.any():
        names.append("some")
    return w * 2, names


PROGRAMS = [no_padding_is_none, read_once, with_effects, counted, written]
PROGRAMS += [truth_written, truth_written_at_once]


def outcome(function, ids):
    del SEEN[:]
    torch.manual_seed(0)
    w = torch.arange(1.0, 5.0, requires_grad=True)
    result = function(torch.tensor(ids), w)
    first, *others = result if isinstance(result, tuple) else (result,)
    first.sum().backward()
    return [first.detach(), w.grad, torch.rand(2)], [others, list(SEEN)]


def check(function, compiled, ids):
    (actual, others), (expected, known) = outcome(compiled, ids), outcome(function, ids)
    same(actual, expected)
    assert others == known


@pytest.mark.parametrize("backend", [eager, aot_eager])
@pytest.mark.parametrize("first", [WITH, WITHOUT])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_program(function, first, backend):
    counting = Counting(backend)
    compiled = dynamo.compile(function, backend=counting)
    if "written" not in function.__name__:
        for _ in range(3):
            check(function, compiled, first)
        assert len(counting.graphs) == 1
    for ids in (WITH, WITHOUT, WITH, WITHOUT, WITH, WITHOUT, WITH, WITHOUT):
        check(function, compiled, ids)


def test_after_some_calls_unlike_the_first_the_graph_breaks():
    runs = []

    def backend(gm, example_inputs):
        def run(*args):
            runs.append(gm)
            return gm.forward(*args)

        return run

    compiled = dynamo.compile(no_padding_is_none, backend=backend)
    check(no_padding_is_none, compiled, WITHOUT)
    for _ in range(3):
        check(no_padding_is_none, compiled, WITH)
    assert len(set(map(id, runs))) == 1
    del runs[:]
    for ids in (WITH, WITHOUT, WITH, WITHOUT):
        check(no_padding_is_none, compiled, ids)
    assert len(runs) == 2 * 4


def test_a_whole_graph_is_refused_as_before():
    """An error in the fourth call would come late."""
    compiled = dynamo.compile(no_padding_is_none, backend="eager", fullgraph=True)
    with pytest.raises(dynamo.errors.Unsupported, match="a branch depends on"):
        compiled(torch.tensor(WITHOUT), torch.ones(4))


def test_region_behind_a_truth_that_was_written():
    def function(ids):
        mask, out = ids == 0, ids * 1.0
        count = mask.sum()
        count -= 1
        if count > 0:
            out[mask] = out[mask] + 5
        return out + 1

    compiled = dynamo.compile(function, backend="eager")
    for ids in (WITH, WITHOUT, [0, 0, 1, 0]):
        same(function(torch.tensor(ids)), compiled(torch.tensor(ids)))


def test_explain_says_so():
    report = dynamo.explain(no_padding_is_none, backend="eager")(
        torch.tensor(WITHOUT), torch.ones(4)
    )
    assert report.graph_count == 1
    assert any("taken as in this call, with a check" in text for text in report.branches)


def test_not_of_masks_that_much_is_computed_for():
    def function(x):
        for _ in range(80):
            x = x.sin() + 1
        names = []
        if (x == 0).any():
            names.append("zero")
        return x * 2, names

    assert dynamo.explain(function, backend="eager")(torch.ones(3)).graph_count == 2


# -- sizes that data decides ----------------------------------------------------------------------
def none_is_left(x, w):
    y = (x * w)[x > 0]
    if y.numel() == 0:
        branch_support.SEEN.append("none")
        return x * 2
    branch_support.SEEN.append("some")
    return y.exp().sum()


def more_than_two(x, w):
    y = (w * 2)[x > 0]
    return y * torch.rand(y.shape) if len(y) > 2 else w.sum()


def nothing_found(x, w):
    rows = torch.where(x > 0)[0]
    if not len(rows):
        return None
    if rows.shape[0] == x.shape[0]:
        return x * w, "all"
    return (x * w)[rows] + 1


def first_ones(x, w):
    y = (x * w)[x > 0.5]
    if y.shape[0] > 2:
        y = y[:2]
    kept = y.numel() or "none"
    return y.relu() * 2, "none" if kept == "none" else "some"


def levels(x, w):
    found = []
    for level, at_least in enumerate((0.5, 1.5, 4.5)):
        rows = torch.where(x >= at_least)[0]
        if rows.numel() == 0:
            continue
        branch_support.SEEN.append(level)
        found.append((x * w)[rows] * level)
    return torch.cat(found) if found else x * 0


def in_place(x, w):
    rows = torch.where(x > 1)[0]
    branch_support.SEEN.append("before")
    if len(rows) and len(rows) < len(x):
        y = w * 1.0
        y[rows] = 0.5
        return y * x, y
    return w + x, w * 2


SIZES = [none_is_left, more_than_two, nothing_found, first_ones, levels, in_place]


def size_outcome(function, values, kind):
    torch.manual_seed(0)
    return (*branch_support.outcome(function, values, kind), torch.rand(2))


@pytest.mark.parametrize(
    "kind, backend", [("plain", eager), ("grads", aot_eager), ("one", aot_eager)]
)
@pytest.mark.parametrize("function", SIZES, ids=lambda function: function.__name__)
def test_sizes(function, kind, backend):
    counting = Counting(backend)
    compiled = dynamo.compile(function, backend=counting)
    for values in branch_support.CALLS[:1] * 3:
        branch_support._same(
            size_outcome(function, values, kind), size_outcome(compiled, values, kind)
        )
    assert len(counting.graphs) == 1
    for values in branch_support.CALLS * 3:
        branch_support._same(
            size_outcome(function, values, kind), size_outcome(compiled, values, kind)
        )


def test_sizes_that_decide_how_many_turns_a_loop_makes():
    """Guessed, each turn of the first call would be in the graph."""

    def shrinking(x):
        turns = 0
        while len(x) > 1:
            x = x[x > x.mean()]
            turns += 1
        return x * 2, turns

    compiled = dynamo.compile(shrinking, backend="eager")
    for x in (torch.arange(9.0), torch.tensor([1.0, 1.0]), torch.arange(3.0), torch.tensor([])):
        same(shrinking(x), compiled(x))
    assert dynamo.explain(shrinking, backend="eager")(torch.arange(9.0)).graph_count > 1


class _Checked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.first(x)
        if (y.abs() > 1e6).any():
            raise ValueError("large")
        return self.last(y)


def test_large_writes_behind_a_check_are_a_graph_of_their_own(monkeypatch):
    monkeypatch.setattr(checks, "_COPIED_BYTES_OF_STEPS", 64)

    def trained(compiles):
        torch.manual_seed(0)
        model, found = _Checked(), []
        optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)

        def step(x):
            optimizer.zero_grad(set_to_none=False)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run, report = step, None
        if compiles:
            report = dynamo.explain(step, backend="eager")(torch.ones(2, 4))
            run = dynamo.compile(step, backend="eager")
        else:
            step(torch.ones(2, 4))
        for scale in (1, 2, 1e9, 3):
            try:
                found.append(run(torch.ones(2, 4) * scale).detach())
            except ValueError as error:
                found.append(str(error))
        state = [t for p in model.parameters() for t in (p.detach(), p.grad)]
        return found, state, report

    (expected, kept, _), (actual, written, report) = trained(False), trained(True)
    assert actual[2] == expected[2] == "large"
    torch.testing.assert_close(actual[:2] + actual[3:], expected[:2] + expected[3:])
    torch.testing.assert_close(written, kept)
    assert report.graph_count == 2 and "LOST_EFFECTS" in str(report)
