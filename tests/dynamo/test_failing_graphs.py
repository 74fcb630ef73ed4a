"""Graphs that end by an exception behind a graph break, or backends: blocks entered before are left
as in eager mode, and their handlers run. Interrupts in the midst of a compilation.
"""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import dynamo
from dynamo.errors import BackendCompilerFailed

log: list = []


class Noting:
    def __init__(self, swallows=()):
        self.swallows = swallows

    def __enter__(self):
        log.append("entered")
        return self

    def __exit__(self, kind, error, trace):
        log.append(("left", kind, str(error), trace is not None))
        return kind is not None and issubclass(kind, self.swallows)


@contextlib.contextmanager
def noted(name):
    log.append(("begins", name))
    try:
        yield name
    except ValueError as error:
        log.append(("seen", str(error)))
        raise
    finally:
        log.append(("ends", name))


def cut():
    """A graph break, in a callee."""
    torch._dynamo.graph_break()


# Each takes (x, work), of which `work` fails: in eager mode itself, compiled its graph.
def without_gradients(x, work):
    with torch.no_grad():
        cut()
        return work(x)


def autocast(x, work):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cut()
        y = work(x)
    return y


def on_a_device(x, work):
    with torch.device("meta"):
        cut()
        y = work(x)
    return y


def several(x, work):
    with Noting(), torch.no_grad(), noted("inner") as name:
        cut()
        y = work(x)
        log.append(name)
    return y


def swallowed(x, work):
    with Noting(swallows=(ValueError, KeyboardInterrupt)) as block:
        cut()
        x = work(x)
        log.append("not reached")
    log.append(block.swallows[0])
    return x + 1


def handled(x, work):
    y = x
    try:
        cut()
        y = work(x)
    except ValueError as error:
        log.append(("handled", str(error)))
    else:
        log.append("nothing raised")
    finally:
        log.append("finally")
    return y * 2


def at_last(x, work):
    try:
        cut()
        return work(x)
    finally:
        log.append("finally")


def in_a_loop(x, work):
    for turn in range(3):
        with Noting():
            cut()
            if turn == 1:
                x = work(x)
            log.append(turn)
    return x


def over_a_cell(x, work):
    def shown():
        return count

    count = 1
    try:
        cut()
        count = 2
        x = work(x)
    finally:
        log.append(type(shown()))  # a cell that the graph's frame has written by then, or not
    return x


def callee(x, work):
    with Noting():
        cut()
        return work(x)


def called(x, work):
    with torch.no_grad():
        y = callee(x, work)
    return y + 1


def again(x, work):
    try:
        cut()
        x = work(x)
    except ValueError:
        with Noting():
            raise TypeError("another") from None
    return x


PROGRAMS = [
    without_gradients,
    autocast,
    on_a_device,
    several,
    swallowed,
    handled,
    at_last,
    in_a_loop,
    over_a_cell,
    called,
    again,
]


def outcome(run, x, work):
    log.clear()
    try:
        result = run(x, work)
    except BaseException as error:
        result = type(error), str(error), type(error.__context__)
    modes = (
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_device().type,
    )
    return result, list(log), modes


def fails_where_cosines_are_taken(error, compiling):
    """A backend whose graphs with a cosine raise: when they are compiled, or when they run."""

    def fails(*_):
        raise error("ended")

    def backend(graph, examples):
        ends = any(node.target is torch.cos for node in graph.graph.nodes)
        if ends and compiling:
            fails()
        return fails if ends else graph.forward

    return backend


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_blocks_are_left(program, error):
    def fails(*_):
        raise error("ended")

    run = dynamo.compile(program, backend=fails_where_cosines_are_taken(error, False))
    x = torch.ones(3)
    for _ in range(3):
        expected, found = outcome(program, x, fails), outcome(run, x, torch.cos)
        assert found[1:] == expected[1:]
        if isinstance(expected[0], torch.Tensor):
            assert torch.equal(found[0], expected[0])
        else:
            assert found[0] == expected[0]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_blocks_are_left_where_the_backend_fails(program, error):
    """Each time: a call that compiles in vain leaves nothing in the cache."""

    def fails(*_):
        raise {ValueError: BackendCompilerFailed}.get(error, error)("ended")

    def without_texts():
        return [(entry[:2] if isinstance(entry, tuple) else entry) for entry in log]

    run = dynamo.compile(program, backend=fails_where_cosines_are_taken(error, True))
    x = torch.ones(3)
    for _ in range(dynamo.config.recompile_limit + 2):
        expected = outcome(program, x, fails), without_texts()
        found = outcome(run, x, torch.cos), without_texts()
        assert found[1] == expected[1] and found[0][2] == expected[0][2]
        assert type(found[0][0]) is type(expected[0][0])
        if isinstance(expected[0][0], tuple):
            assert found[0][0][0] is expected[0][0][0]


@pytest.mark.parametrize("cls", [TorchDispatchMode, FakeTensorMode])
def test_an_interrupt_where_a_mode_is_to_be_left_leaves_none(cls, monkeypatch):
    """Signals come in the first line of an `__exit__` of Python, as well."""

    def interrupted(*args):
        count.append(1)
        if len(count) == 1:
            raise KeyboardInterrupt
        return leave(*args)

    count: list = []
    leave = cls.__exit__
    weight = torch.ones(3, requires_grad=True)
    run = dynamo.compile(lambda x: (x * weight).sin().sum(), backend="aot_eager")
    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(cls, "__exit__", interrupted)
        run(torch.ones(3))
    assert count
    assert torch._C._len_torch_dispatch_stack() == torch._C._len_torch_function_stack() == 0
    assert torch.is_grad_enabled()
    run(torch.ones(3)).backward()
    assert torch.equal(weight.grad, torch.ones(3).cos())
