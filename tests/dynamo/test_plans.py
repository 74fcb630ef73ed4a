"""The attempts to capture a frame: which plan follows which, and that there is an end."""

from __future__ import annotations

import logging

import pytest
import torch

import dynamo
from dynamo.framestate import attempts
from dynamo.plans import BreakBefore, Plan, Search

X = torch.arange(4.0)


def one_graph(x):
    return x * 2


def prints(x):
    y = x * 2
    print(end="")
    return y + 1


def in_a_callee(x):
    y = x * 2
    shows(y)
    return y + 1


def shows(y):
    z = y + 1
    print(end="")
    return z


def sorts(x):
    def key(n):
        dynamo.graph_break()
        return -n

    return x * sorted([1, 2, 3], key=key)[0]


def reads(x):
    y = x + 1
    for i in range(3):
        y = y * x[i].item()
    return y * 2


def reads_many(x):
    y = x + 1
    for i in range(40):
        y = y * x[i % 3].item()
    return y * 2


def keeps(x):
    y = x * 2
    KEPT.append(y.sum().item())
    return y + 1


def looks_up(x):
    y = x * 2
    return y + {12: 3}.get(int(y.sum()), 5)


def looks_up_in_a_callee(x):
    return looks_up(x + 1) * 2


KEPT: list[float] = []

# function -> the causes of the attempts at its own frame after the first, in order
CAUSES = {
    one_graph: [],
    prints: [],  # broken at in place
    in_a_callee: ["break before step"],
    sorts: ["break before step"],
    reads: ["a loop reads numbers that are data"],
    keeps: ["numbers that are data"],
    looks_up: ["numbers that are data", "data breaks the graph"],
    looks_up_in_a_callee: ["break before", "numbers that are data", "data breaks the graph"],
    reads_many: ["numbers that are data", "data breaks the graph", "a loop reads values"],
}


def plans_of(function, caplog) -> list[str]:
    with caplog.at_level(logging.DEBUG, logger="dynamo.plans"):
        compiled = dynamo.compile(function, backend="eager")
        assert torch.equal(compiled(X), function(X))
    texts = [record.getMessage() for record in caplog.records if record.name == "dynamo.plans"]
    frame = texts[0].partition(" ")[0]
    return [text for text in texts if text.startswith(f"{frame} ")]


@pytest.mark.parametrize("function", CAUSES, ids=lambda function: function.__name__)
def test_causes_of_attempts(function, caplog):
    first, *others = plans_of(function, caplog)
    assert first.endswith("attempt 1: the first attempt")
    causes = CAUSES[function]
    assert len(others) == len(causes), others
    assert all(cause in text for cause, text in zip(causes, others)), others


def test_attempts_have_an_end(monkeypatch):
    monkeypatch.setattr(attempts, "MOST_ATTEMPTS", 1)
    monkeypatch.setattr(dynamo.config, "strict", False)
    with pytest.warns(RuntimeWarning, match="no end after 1 attempts"):
        result = dynamo.compile(in_a_callee, backend="eager")(X)
    assert torch.equal(result, in_a_callee(X))


def test_a_plan_keeps_what_the_next_one_needs():
    stop = BreakBefore(7, "reason")
    search = Search(fits=2, too_late=9)
    plan = Plan(unrolls=False).breaking(stop, search)
    assert (plan.stop, plan.search, plan.unrolls) == (stop, search, False)
    assert plan.breaking(BreakBefore(3, "other")).search == search
    capturing = plan.capturing_loops()
    assert (capturing.stop, capturing.search) == (None, Search())
    assert (capturing.leaves_loops, capturing.unrolls) == (False, False)
    log = plan.after([1, 2, 3])
    assert log.search.step_log == (1, 2, 3)
    assert log.after([1]) is log
