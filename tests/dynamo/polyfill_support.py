"""Programs with breaks inside of what C functions call, or in generators, for
test_polyfill_breaks*.py and test_generator_breaks*.py.
"""

from __future__ import annotations

import sys
import traceback
import warnings

import pytest
import torch

import dynamo
from tests.dynamo import capturing
from tests.dynamo.capturing import compiled, outcome, same

X = torch.arange(3.0)
LOG: list = []


def registry():
    """A list of cases, and a decorator that adds a program with its number of graphs, of breaks,
    and of operations in all graphs, where that matters.
    """
    programs: list = []

    def program(graphs, breaks=1, operations=None):
        def register(function):
            case = (function, graphs, breaks, operations)
            programs.append(pytest.param(*case, id=function.__name__))
            return function

        return register

    return programs, program


@dynamo.disable
def note(*items):
    """Breaks the graph, and can be seen; sees its callers."""
    LOG.append(tuple(str(item) for item in items))
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not outcome.__code__:
        LOG.append((frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back


def broken(x, *said):
    y = x + 1
    note(*said)
    return y * 2


class Held:
    def __init__(self, x, n=0):
        self.x, self.n = x, n


class Index(Held):
    def __index__(self):
        broken(self.x, "index")
        return self.n


class Number(Held):
    def __add__(self, other):
        return Number(broken(self.x + other.x, "add"))


def _frames_of(error):
    """All frames of a traceback but the tests' own; a frame and its continuations count as one."""
    frames: list = []
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename != capturing.__file__ and (frame.name, frame.lineno) not in frames[-1:]:
            frames.append((frame.name, frame.lineno))
    return frames


def seen(function):
    """The result, the frames of what is raised, and the log."""
    LOG.clear()
    result = outcome(function, (X.clone(),))
    raised = _frames_of(result) if isinstance(result, BaseException) else None
    return result, raised, list(LOG)


def check(function, graphs, breaks, operations=None):
    """Eager and captured, twice, agree in results, exceptions, tracebacks and effects."""
    expected = seen(function)
    capturing, captured = compiled(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a fault of ours
        for _ in range(2):
            found = seen(capturing)
            for wanted, got in zip(expected, found):
                assert same(wanted, got), f"{wanted!r} != {got!r}"
    places = [(b.code, b.location) for r in captured.context.records for b in r.breaks]
    assert len(captured.op_counts) == graphs, (captured.op_counts, places)
    assert len(places) == breaks, places
    assert operations is None or sum(captured.op_counts) == operations, captured.op_counts
