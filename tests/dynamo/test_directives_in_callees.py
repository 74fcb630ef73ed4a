"""What users said about single functions, where callees call them: inside of with, try and for."""

from __future__ import annotations

import contextlib

import pytest
import torch

import dynamo
from dynamo import directives
from tests.dynamo.break_support import LOG, checks_of, registry
from tests.dynamo.capturing import compiled

X = torch.arange(4.0)
PROGRAMS, program = registry(breaks=None, x=X)


# -- functions with rules -------------------------------------------------------------------------
@dynamo.disable
def disabled(x):
    LOG.append("disabled")
    return x + 1


@dynamo.disable(recursive=False)
def disabled_itself(x):
    LOG.append("itself")
    return below(x) + 1


def below(x):
    return x * 2 + 1


@dynamo.disable
def failing(x):
    LOG.append("failing")
    raise ValueError("failing")


def opaque(x):
    """In the graph as one call."""
    return torch.relu(x) + float(1.0)


def unwanted(x):
    return x * 5


@dynamo.assume_constant_result
def constant():
    return 3


class Settings:
    scale = 2

    @dynamo.assume_constant_result
    def factor(self):
        return self.scale * 2


SETTINGS = Settings()


def original(x, n):
    LOG.append("never captured")
    return x * n


def replacement(x, n):
    return x * n


@pytest.fixture(autouse=True)
def registered():
    """Rules hold for the process: they are taken back."""
    dynamo.allow_in_graph(opaque)
    dynamo.disallow_in_graph(unwanted)
    yield
    directives.ALLOWED.pop(id(opaque), None)
    directives.DISALLOWED.pop(id(unwanted), None)


class Manager:
    """Says what it sees."""

    def __enter__(self):
        LOG.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        LOG.append(("exit", kind and kind.__name__))
        return False


def through(function):
    """A program that calls `function` in the middle of its own operations, two frames deep."""

    def callee(x):
        y = x * 2
        z = function(y)
        return z - 1

    def caller(x):
        return callee(x + 1) * 3

    return caller


# -- plain calls ----------------------------------------------------------------------------------
@program(2)
def disabled_in_a_callee(x):
    return through(disabled)(x)


@program(3, breaks=1)
def disabled_itself_in_a_callee(x):
    """What it calls is captured again."""
    return through(disabled_itself)(x)


@program(1)
def allowed_in_a_callee(x):
    return through(opaque)(x)


@program(3, breaks=1)
def disallowed_in_a_callee(x):
    """What the graph breaks at is captured on its own."""
    return through(unwanted)(x)


@program(1)
def constant_in_a_callee(x):
    return through(lambda y: y * constant())(x)


@program(1)
def constant_of_a_method(x):
    return through(lambda y: y * SETTINGS.factor())(x)


@program(2)
def requested_in_a_callee(x):
    def callee(y):
        y = y + 1
        dynamo.graph_break("here")
        return y * 2

    return through(callee)(x)


@program(1)
def disabled_function_is_not_called(x):
    return through(lambda y: y + 1 if y.shape[0] == 4 else disabled(y))(x)


# -- in `with` ------------------------------------------------------------------------------------
def inside(function, manager):
    def callee(x):
        y = x * 2
        with manager():
            z = y + 1
            z = function(z)
            w = z * 3
        return w - 1

    return callee


@program(2)
def disabled_inside_a_manager(x):
    return inside(disabled, Manager)(x) + 1


@program(2)
def disabled_inside_no_grad(x):
    return inside(disabled, torch.no_grad)(x) + 1


@program(2)
def disabled_inside_a_null_context(x):
    return inside(disabled, contextlib.nullcontext)(x) + 1


@program(1)
def allowed_inside_a_manager(x):
    return inside(opaque, Manager)(x) + 1


@program(3, breaks=1)
def disallowed_inside_a_manager(x):
    return inside(unwanted, Manager)(x) + 1


@program(1)
def constant_inside_a_manager(x):
    return inside(lambda y: y * constant(), Manager)(x) + 1


@program(2)
def requested_inside_two_managers(x):
    def callee(y):
        with Manager(), torch.no_grad():
            y = y + 1
            dynamo.graph_break()
            y = y * 2
        return y - 1

    return callee(x) + 1


# The second: the exception comes to this frame from outside, and its traceback grows.
@program(1, breaks=2)
def failing_inside_a_manager(x):
    try:
        return inside(failing, Manager)(x) + 1
    except ValueError:
        return x


@program(1, breaks=1)
def failing_inside_a_manager_and_out(x):
    return inside(failing, Manager)(x) + 1


# -- in `try` -------------------------------------------------------------------------------------
def trying(function):
    def callee(x):
        y = x * 2
        try:
            z = function(y + 1)
            w = z * 3
        except ValueError:
            LOG.append("caught")
            w = y * 4
        finally:
            LOG.append("finally")
        return w - 1

    return callee


@program(2)
def disabled_inside_try(x):
    return trying(disabled)(x) + 1


@program(2)
def failing_inside_try(x):
    return trying(failing)(x) + 1


@program(1)
def allowed_inside_try(x):
    return trying(opaque)(x) + 1


@program(3, breaks=1)
def disallowed_inside_try(x):
    return trying(unwanted)(x) + 1


@program(1)
def constant_inside_try(x):
    return trying(lambda y: y * constant())(x) + 1


@program(2)
def disabled_in_a_handler(x):
    def callee(y):
        try:
            raise ValueError("own")
        except ValueError as error:
            y = y + 1
            y = disabled(y)
            return y * len(error.args)

    return callee(x * 2) + 1


@program(2)
def disabled_in_finally(x):
    def callee(y):
        try:
            y = y + 1
        finally:
            y = disabled(y)
        return y * 2

    return callee(x * 2) + 1


# -- in `for` -------------------------------------------------------------------------------------
def looping(function, n=3):
    def callee(x):
        for i in range(n):
            x = x + i
            x = function(x)
            x = x * 2
        return x - 1

    return callee


@program(5, breaks=3)
def disabled_inside_for(x):
    """A turn ends in a graph of its own, which the turns share."""
    return looping(disabled)(x) + 1


@program(1)
def allowed_inside_for(x):
    return looping(opaque)(x) + 1


@program(6, breaks=3)
def disallowed_inside_for(x):
    return looping(unwanted)(x) + 1


@program(1)
def constant_inside_for(x):
    return looping(lambda y: y * constant())(x) + 1


@program(2)
def disabled_once_inside_for(x):
    def callee(y):
        for i in range(4):
            y = y + i
            if i == 2:
                y = disabled(y)
            y = y * 2
        return y

    return callee(x) + 1


@program(3, breaks=1)
def requested_inside_all_three(x):
    def callee(y):
        for _ in range(1):
            try:
                with Manager():
                    y = y + 1
                    dynamo.graph_break()
                    y = y * 2
            except ValueError:
                return x
        return y

    return callee(x) + 1


# -- regions --------------------------------------------------------------------------------------
@dynamo.error_on_graph_break(False)
def tolerant(x):
    y = x + 1
    y = disabled(y)
    return y * 2


@program(2)
def region_of_false(x):
    return through(tolerant)(x)


@program(2)
def region_of_false_in_one_of_true(x):
    def callee(y):
        with dynamo.error_on_graph_break(True):
            y = y * 3
            try:
                y = tolerant(y)
            finally:
                LOG.append("finally")
            return y - 1

    return callee(x) + 1


@program(1)
def region_of_true_without_breaks(x):
    @dynamo.error_on_graph_break(True)
    def callee(y):
        return opaque(y) * constant()

    return callee(x) + 1


test_program = checks_of(PROGRAMS)


# -- what differs from eager on purpose -----------------------------------------------------------
def test_signatures_of_substitutes():
    def original(x, k=2):
        return x * len(f"{x}") * k

    for other in (lambda y, k=2: y, lambda x, k=3: x, lambda x, *k: x):
        with pytest.raises(TypeError, match="skip_signature_check"):
            dynamo.substitute_in_graph(original)(other)
    dynamo.substitute_in_graph(original, skip_signature_check=True)(lambda *args: args[0] + 1)
    compiled = dynamo.compile(lambda x: original(x, 3), backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


@pytest.mark.parametrize("wrap", [through, looping, trying, lambda f: inside(f, Manager)])
def test_substitute_in_graph(wrap):
    """The substitute is captured, also where callees call the original."""
    dynamo.substitute_in_graph(original)(replacement)
    try:
        capturing, captured = compiled(wrap(lambda y: original(y, 3)))
        LOG.clear()
        found = capturing(X)
        assert "never captured" not in LOG
        assert torch.equal(found, wrap(lambda y: replacement(y, 3))(X))
        assert len(captured.op_counts) == 1 and not captured.codes
    finally:
        directives.SUBSTITUTES.pop(id(original))


@pytest.mark.parametrize("wrap", [through, looping, trying, lambda f: inside(f, Manager)])
@pytest.mark.parametrize("function", [disabled, unwanted, tolerant])
def test_error_on_graph_break_in_callees(wrap, function):
    """The break is an error wherever it stands, but for what says otherwise."""
    region = dynamo.error_on_graph_break(True)(wrap(function))
    capturing, captured = compiled(lambda x: region(x) + 1)
    if function is tolerant:
        assert torch.equal(capturing(X), wrap(function)(X) + 1)
        assert captured.codes
        return
    with pytest.raises(dynamo.errors.Unsupported, match="error_on_graph_break") as caught:
        capturing(X)
    assert __file__ in str(caught.value)
