"""The frame hook next to another PEP 523 user: torch.compile, each compiling its own functions."""

from __future__ import annotations

import copy
import threading

import pytest
import torch

import dynamo
from dynamo import _hook
from tests.dynamo.hook_support import Converter, compiled

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def clean_state():
    yield
    assert _hook.get_state() == ("off", None)
    assert _hook.installed() == "none"
    _hook.reset_all()
    torch._dynamo.reset()


class Backend:
    """A torch.compile backend that counts what it is given."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, gm, example_inputs):
        self.graphs += 1
        return gm.forward


class OwnCode(Converter):
    """Converts functions of this file only; leaves torch's alone, and what they call."""

    def __call__(self, frame, context):
        if frame.f_code.co_filename != __file__:
            return _hook.SKIP_RECURSIVELY
        return super().__call__(frame, context)


def helper(x):
    return x + 1000


BOTH = pytest.mark.parametrize("needs_hook", [False, True])


@BOTH
def test_side_by_side(needs_hook):
    backend = Backend()
    theirs = torch.compile(helper, backend=backend)
    ours = compiled(helper, OwnCode(needs_hook=needs_hook))
    x = torch.ones(3)
    for _ in range(3):
        assert theirs(x)[0] == 1001
        assert ours(x)[0] == 2001
    assert backend.graphs == 1


@BOTH
def test_theirs_inside_ours(needs_hook):
    def their_function(x):
        return x * 3 + 7

    def f(x):
        return theirs(x) + helper(x) + 1000

    backend = Backend()
    theirs = torch.compile(their_function, backend=backend)
    convert = OwnCode(needs_hook=needs_hook)
    ours = compiled(f, convert)
    x = torch.ones(3)
    for _ in range(3):
        assert ours(x)[0] == 10 + (2001 if needs_hook else 1001) + 2000
    assert backend.graphs == 1
    assert set(convert.names) <= {"f", "helper", "their_function"}
    assert ours(x)[0] == ours(x)[0]


@BOTH
def test_ours_inside_theirs(needs_hook):
    def before(x):
        return x * 2

    def our_function(x):
        return helper(x) + 1000

    def f(x):
        y = before(x)
        torch._dynamo.graph_break()
        y = ours(y)
        torch._dynamo.graph_break()
        return before(y)

    backend = Backend()
    convert = OwnCode(needs_hook=needs_hook)
    ours = compiled(our_function, convert)
    theirs = torch.compile(f, backend=backend)
    x = torch.ones(3)
    for _ in range(3):
        assert theirs(x)[0] == 2 * (2 + 2000 + (2000 if needs_hook else 1000))
    assert backend.graphs >= 2
    assert convert.names == (["our_function", "helper"] if needs_hook else ["our_function"])


def test_deep_nesting_in_both_orders():
    def leaf(x):
        return x + 1000

    def third(x):
        return their_leaf(x) + our_leaf(x)

    def second(x):
        torch._dynamo.graph_break()
        return our_third(x) + 1

    def first(x):
        return their_second(x) + helper(x)

    backend = Backend()
    convert = OwnCode(needs_hook=True)
    their_leaf, our_leaf = torch.compile(leaf, backend=backend), compiled(leaf, convert)
    our_third = compiled(third, convert)
    their_second = torch.compile(second, backend=backend)
    our_first = compiled(first, convert)
    x = torch.ones(3)
    expected = 1001 + 2001 + 1 + 2001
    for _ in range(3):
        assert our_first(x)[0] == expected
    for _ in range(2):
        assert their_leaf(x)[0] == 1001 and our_leaf(x)[0] == 2001


@BOTH
def test_theirs_inside_convert_and_inside_backend_code(needs_hook):
    """As a torch.compile backend behind the bridge does."""

    def f(x):
        return x + 1000

    def convert(frame, context):
        if frame.f_code is not f.__code__:
            return _hook.SKIP_RECURSIVELY
        graph = torch.compile(helper, backend=backend)
        assert graph(frame.f_locals_array[0])[0] == 1001
        consts = tuple(graph if const == 1000 else const for const in new.__code__.co_consts)
        code = new.__code__.replace(co_consts=consts, co_freevars=())
        return _hook.GuardedCode(code, lambda *args: True, needs_hook, None)

    def new(x):
        graph = 1000
        return graph(x)

    backend = Backend()
    ours = compiled(f, convert)
    x = torch.ones(3)
    for _ in range(3):
        assert ours(x)[0] == 1001
    assert backend.graphs == 1


def test_exceptions_through_both():
    def their_function(x):
        torch._dynamo.graph_break()
        return our_inner(x)

    def inner(x):
        if x.shape[0] == 3:
            raise ValueError("three")
        return x + 1000

    def outer(x):
        return theirs(x)

    convert = OwnCode(needs_hook=True)
    our_inner = compiled(inner, convert)
    theirs = torch.compile(their_function, backend=Backend())
    ours = compiled(outer, convert)
    for _ in range(3):
        with pytest.raises(ValueError, match="three"):
            ours(torch.ones(3))
        assert ours(torch.ones(2))[0] == 2001
    assert compiled(helper)(1) == 2001


def test_threads_with_both():
    def mine(x):
        return helper(x) + 1000

    def theirs_function(x):
        return x * 2 + 1

    ours = compiled(mine, OwnCode(needs_hook=True))
    theirs = torch.compile(theirs_function, backend=Backend())
    errors = []

    def work(call, expected):
        try:
            x = torch.ones(2)
            for _ in range(100):
                assert call(x)[0] == expected
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=args) for args in [(ours, 4001), (theirs, 3)] * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert compiled(helper)(1) == 2001
    assert torch.compile(helper, backend="eager")(torch.ones(1))[0] == 1001


def test_modules_are_made_and_copied_after_torch_compile_was_used():
    """torch.compile wraps nn.Module.__init__ and __setstate__ for the rest of the process."""
    torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))

    def f(module, x):
        copied, made = copy.deepcopy(module), torch.nn.Linear(2, 2)
        return copied(x) + module(x), copied, made

    torch.manual_seed(0)
    module, x = (
        torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)),
        torch.rand(3, 2),
    )
    expected, *_ = f(copy.deepcopy(module), x)
    result, copied, made = dynamo.compile(f, backend="eager", fullgraph=True)(module, x)
    assert torch.equal(result, expected)
    assert type(copied) is torch.nn.Sequential and type(made) is torch.nn.Linear
    assert copied[0].weight is not module[0].weight
