"""Programs whose graphs break inside of callees, of what C functions call, and in generators.

A program is run eagerly and captured, twice, and must agree in results, arguments, exceptions,
tracebacks and effects; its number of graphs and of breaks is exact.
"""

from __future__ import annotations

import copy
import functools
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
# Callers that are eager's alone: captured, their callees are called directly.
_FOLDED = (
    torch.nn.Module._call_impl.__code__,
    torch.nn.Module._wrapped_call_impl.__code__,
    functools.cached_property.__get__.__code__,
)  # not hashed: constants of continuations need not be


def registry(breaks=1, x=X):
    """A list of cases, and a decorator that adds a program with its number of graphs, of breaks
    (`breaks`, or where that is None one fewer than graphs, unless given), of operations in all
    graphs, where that matters, and its arguments.
    """
    programs: list = []

    def program(graphs, breaks=breaks, operations=None, args=(x,)):
        def register(function):
            expected = (graphs, graphs - 1 if breaks is None else breaks, operations)
            programs.append(pytest.param(function, expected, args, id=function.__name__))
            return function

        return register

    return programs, program


def checks_of(programs):
    """The test of all programs of a registry."""

    @pytest.mark.parametrize(("function", "expected", "args"), programs)
    def test_program(function, expected, args):
        check(function, *expected, args=args)

    return test_program


@dynamo.disable
def note(*items):
    """Breaks the graph, and can be seen; sees its callers."""
    LOG.append(tuple(str(item) for item in items))
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not outcome.__code__:
        if frame.f_code not in _FOLDED:
            LOG.append((frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return len(items)


@dynamo.disable
def fail(error):
    LOG.append(str(error))
    raise error


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


def seen(function, args):
    """The result, the arguments after the call, the frames of what is raised, the log and the mode
    of autograd.
    """
    LOG.clear()
    args = [a if isinstance(a, torch.nn.Module) else copy.deepcopy(a) for a in args]
    result = outcome(function, args)
    raised = _frames_of(result) if isinstance(result, BaseException) else None
    return result, args, raised, list(LOG), torch.is_grad_enabled()


def check(function, graphs, breaks, operations=None, args=(X,)):
    expected = seen(function, args)
    capturing, captured = compiled(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a fault of ours
        for _ in range(2):
            found = seen(capturing, args)
            for wanted, got in zip(expected, found):
                assert same(wanted, got), f"{wanted!r} != {got!r}"
    places = [(b.code, b.location) for r in captured.context.records for b in r.breaks]
    assert len(captured.op_counts) == graphs, (captured.op_counts, places)
    assert len(places) == breaks, places
    assert operations is None or sum(captured.op_counts) == operations, captured.op_counts
