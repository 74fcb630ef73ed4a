"""Breaks in inlined callees, inside of loops, with, try and regions."""

from __future__ import annotations

import contextlib
import sys
import warnings

import pytest
import torch

import dynamo
from dynamo.break_regions import regions
from tests.dynamo.break_support import LOG, broken, checks_of, fail, note, registry
from tests.dynamo.capturing import compiled, outcome, same

X = torch.arange(4.0) - 1.5
PROGRAMS, program = registry(breaks=None, x=X)


# -- loops ----------------------------------------------------------------------------------------
@program(3)
def callee_in_a_loop(x):
    for _ in range(3):
        x = broken(x)
    return x


def loop(x, n):
    for _ in range(n):
        x = x + 1
        note("turn")
    return x * 2


@program(3, breaks=2, args=(X, 5))
def loop_in_callee(x, n):
    return loop(x, n) + 1


@program(2, args=(X, 1))
def loop_of_one_turn(x, n):
    return loop(x, n) + 1


@program(1, args=(X, 0))
def loop_of_no_turn(x, n):
    return loop(x, n) + 1


@program(2)
def break_after_a_loop(x):
    def callee(y):
        for i in range(3):
            y = y + i
        note("after")
        return y * 2

    return callee(x) + 1


@program(2)
def leaves_the_loop(x):
    def callee(y):
        for i in range(10):
            y = y + i
            if i == 1:
                note("leaving")
                break
        return y * 2

    return callee(x) + 1


@program(4)
def while_loop(x):
    def callee(y):
        n = 0
        while n < 3:
            y = y + 1
            n = n + note("while")
        return y * 2

    return callee(x) + 1


# -- loops that break once ------------------------------------------------------------------------
class Noted(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        note("module")
        return y * 2


SEQUENTIAL = torch.nn.Sequential(
    torch.nn.Linear(4, 4), Noted(), torch.nn.ReLU(), torch.nn.Linear(4, 4)
)
LAYERS = torch.nn.ModuleList(SEQUENTIAL)


@program(2)
def sequential(x):
    return SEQUENTIAL(x) * 2


@program(2)
def module_list(x):
    for layer in LAYERS:
        x = layer(x)
    return x + 1


@program(2)
def module_list_in_callee(x):
    def callee(y):
        for layer in LAYERS:
            y = layer(y) + y
        return y

    return callee(x * 2) + 1


@program(2)
def one_turn_breaks(x):
    for i in range(5):
        x = x + i
        if i == 2:
            note("two")
    return x * 2


@program(2)
def one_turn_breaks_over_a_list(x):
    items = [1.0, 2.0, 3.0, 4.0]
    for item in items:
        x = x * item
        if item == 2.0:
            note("two")
            items.append(5.0)
        if item == 4.0:
            items.append(6.0)
    return x, items


@program(2)
def one_turn_breaks_over_a_dict(x):
    table = {"a": x, "b": x + 1, "c": x + 2}
    total = x
    for key, value in table.items():
        total = total + value
        if key == "a":
            note(key)
    return total


@program(2)
def one_turn_breaks_over_a_tuple(x):
    for item in (x, x + 1, x + 2):
        x = x * item
        if item.shape[0] == 4 and len(LOG) == 0:
            LOG.append("first")
            note("first")
    return x


@program(2)
def left_after_the_break(x):
    for i in range(10):
        x = x + i
        if i == 1:
            note("one")
        if i == 3:
            break
    return x * 2


@program(2)
def an_error_in_a_later_turn(x):
    y = x + 1
    for i in range(10):
        y = y + i
        if i == 1:
            note("one")
        if i == 3:
            raise ValueError(i)
    return y


@program(2)
def the_iterator_is_used_later(x):
    items = iter([1.0, 2.0, 3.0, 4.0, 5.0])
    for item in items:
        x = x * item
        if item == 1.0:
            note("one")
        if item == 3.0:
            break
    return x, list(items)


@program(2)
def dict_that_changes_size(x):
    table = {"a": 1.0, "b": 2.0, "c": 3.0}
    y = x + 1
    try:
        for key in table:
            y = y * table[key]
            if key == "a":
                note(key)
                table["d"] = 4.0
    except RuntimeError as error:
        return y + 1, len(error.args)
    return y


@program(2)
def nested_loops(x):
    for i in range(3):
        for j in range(2):
            x = x + i * j
            if i == 1 and j == 0:
                note("inner")
    return x * 2


def test_a_loop_that_breaks_elsewhere_is_compiled_again_in_general():
    def f(x, at):
        for i in range(12):
            x = x + 1
            if i == at:
                note("at", i)
        return x * 2

    capturing, captured = compiled(f)
    for at in range(12):
        assert torch.equal(capturing(X, at), f(X, at))
    assert not any(b.code == "RECOMPILE_LIMIT" for r in captured.context.records for b in r.breaks)


def test_a_comprehension_has_the_name_of_a_shared_variable():
    def f(x):
        it = x

        def step():
            nonlocal it
            it = it + 1
            note("step")
            return it

        return [step() for it in (1, 2)], step()

    capturing, _ = compiled(f)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a fault of ours
        for _ in range(2):
            assert same(outcome(f, (X,)), outcome(capturing, (X,)))


# -- with -----------------------------------------------------------------------------------------
class Manager:
    def __init__(self, name, swallow=False):
        self.name = name
        self.swallow = swallow

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, kind, error, tb):
        LOG.append(("exit", self.name, kind and kind.__name__))
        return self.swallow


@program(2)
def no_grad_in_callee(x):
    def callee(y):
        with torch.no_grad():
            z = y + 1
            note("no grad", torch.is_grad_enabled())
            w = z * 2
        return w + y, torch.is_grad_enabled()

    return callee(x)[0] + 1


@program(2, args=(X.clone().requires_grad_(),))
def no_grad_in_caller(x):
    with torch.no_grad():
        y = broken(x)
    return y * 2, y.requires_grad, (x * 2).requires_grad


@program(2)
def manager_in_callee(x):
    def callee(y):
        with Manager("a"):
            z = y + 1
            note("inside")
            return z * 2

    return callee(x) + 1


@program(2)
def manager_in_caller(x):
    with Manager("a"), Manager("b"):
        y = broken(x)
    return y + 1


class NotedManager:
    def __init__(self, x):
        self.x = x

    def __enter__(self):
        y = self.x + 1
        note("enter")
        return y * 2

    def __exit__(self, *error):
        self.x = self.x * 3
        note("exit")
        self.x = self.x + 1


@program(3)
def break_in_enter_and_exit(x):
    manager = NotedManager(x)
    with manager as y:
        z = y + 1
    return z + manager.x


@program(2)
def nullcontext(x):
    with contextlib.nullcontext(x + 1) as y:
        return broken(y) + 1


# -- comprehensions -------------------------------------------------------------------------------
@program(4, breaks=2)
def comprehension_beside_a_cell(x):
    def callee(y):
        i = y + 1

        def read():
            return i

        made = [(i, note(i))[0] * y for i in range(2)]
        return read() + sum(made)

    return callee(x * 2) + 1


@program(2, breaks=3)
def comprehension_over_the_name_of_a_cell(x):
    def callee(y):
        k = 5

        def read():
            return k

        made = [(lambda: k, note(k))[0] for k in range(3)]
        return y + made[1]() + read()

    return callee(x * 2) + 1


@program(2)
def comprehension_behind_the_break(x):
    def callee(y):
        z = y + 1
        note("before")
        return {i: z * i for i in (1, 2, 3)}

    return callee(x)[2] + 1


# -- exceptions -----------------------------------------------------------------------------------
@program(1, breaks=1)
def raised_through(x):
    def callee(y):
        z = y + 1
        fail(ValueError("through"))
        return z

    y = x * 2
    return callee(y) + 1


@program(2)
def caught_in_caller(x):
    def callee(y):
        z = y + 1
        fail(ValueError("caller"))
        return z

    try:
        return callee(x)
    except ValueError as error:
        return x * len(error.args)


@program(2)
def caught_in_callee(x):
    def callee(y):
        z = y + 1
        try:
            fail(ValueError("callee"))
        except ValueError as error:
            z = z * len(error.args)
        return z

    return callee(x) + 1


@program(2, breaks=2)
def caught_in_the_middle(x):
    def inner(y):
        z = y + 1
        fail(KeyError("middle"))
        return z

    def middle(y):
        y = y * 2
        try:
            return inner(y)
        except KeyError:
            note(type(sys.exc_info()[1]).__name__)
            return y + 1

    return middle(x) * 3


@program(2)
def raised_in_the_rest(x):
    def callee(y):
        z = y + 1
        note("rest")
        if z.shape[0] == 4:
            raise ValueError("rest")
        return z

    y = x * 2
    try:
        return callee(y)
    except ValueError:
        return y + 1


@program(1, breaks=1)
def raised_in_the_rest_uncaught(x):
    def callee(y):
        z = y + 1
        note("rest")
        if z.shape[0] == 4:
            raise ValueError("rest")
        return z

    return callee(x * 2)


@program(2)
def finally_in_both(x):
    def callee(y):
        try:
            y = y + 1
            note("try")
            y = y * 2
        finally:
            LOG.append("callee")
        return y

    try:
        return callee(x) + 1
    finally:
        LOG.append("caller")


@program(2, breaks=2)
def break_in_an_except_clause(x):
    def callee(y):
        try:
            raise KeyError("here")
        except KeyError:
            y = y + 1
            note("handling", type(current_error()).__name__)
            y = y * 2
        return y

    return callee(x) + 1


@dynamo.disable
def current_error():
    return sys.exc_info()[1]


@program(2, breaks=2)
def callee_of_an_except_clause(x):
    def callee(y):
        y = y + 1
        note(type(current_error()).__name__)
        return y * 2

    try:
        raise KeyError("here")
    except KeyError:
        return callee(x) + 1


@program(1, breaks=1)
def context_of_an_error_while_handling(x):
    def callee(y):
        y = y + 1
        fail(ValueError("second"))
        return y

    try:
        y = x * 2
        raise KeyError("first")
    except KeyError:
        return callee(y)


@program(2)
def swallowed_by_a_manager(x):
    def callee(y):
        with Manager("swallows", True):
            y = y + 1
            fail(ValueError("swallowed"))
        return y * 2

    return callee(x) + 1


@program(2, breaks=3)
def raised_again(x):
    def callee(y):
        try:
            y = y + 1
            fail(ValueError("again"))
        except ValueError:
            note("seen")
            raise
        return y

    try:
        callee(x)
    except ValueError as error:
        return x * len(error.args)


# -- displays, match, names ----------------------------------------------------------------------
@program(2)
def in_f_string(x):
    def callee(y):
        y = y + 1
        text = f"{note('f')}-{len('ab')}"
        return y * len(text)

    return callee(x) + 1


@program(2)
def in_dict_display(x):
    def callee(y):
        return {"a": y + 1, "b": note("dict"), "c": y * 2}

    made = callee(x)
    return made["a"] + made["c"] * made["b"]


@program(2)
def in_match(x):
    def callee(y, shape):
        match shape:
            case (n,) if note("guard"):
                return y * n
            case _:
                return y

    return callee(x + 1, tuple(x.shape)) + 1


@program(2)
def walrus(x):
    def callee(y):
        z = y + 1
        if (n := note("walrus")) == 1:
            z = z * 2
        return z + n

    return callee(x) + 1


@program(2)
def unpacks(x):
    def callee(y):
        a = y + 1
        note("unpack")
        return a, a * 2, [a]

    first, *rest = callee(x)
    return first + rest[0] + rest[1][0]


@program(2)
def deletes(x):
    def callee(y):
        z = y + 1
        w = z * 2
        del y
        note("del")
        del z
        return w

    return callee(x) + 1


@program(2)
def unbound_later(x):
    def callee(y, flag):
        if flag:
            z = y + 1
        note("unbound")
        try:
            return z
        except UnboundLocalError:
            return y * 2

    return callee(x + 1, False) + 1


# -- regions --------------------------------------------------------------------------------------
def region_forbids(x):
    y = x + 1
    with dynamo.error_on_graph_break(True):
        return broken(y)


@dynamo.error_on_graph_break(True)
def decorated_region(x):
    return broken(x) + 1


def region_after_an_allowed_break(x):
    with dynamo.error_on_graph_break(True):
        y = allowed(x)
        return broken(y)


@dynamo.error_on_graph_break(False)
def allowed(x):
    return broken(x) * 2


@pytest.mark.parametrize(
    "function", [region_forbids, decorated_region, region_after_an_allowed_break]
)
def test_a_break_in_a_region_is_an_error(function):
    capturing, _ = compiled(function)
    for _ in range(2):
        with pytest.raises(dynamo.errors.Unsupported, match="error_on_graph_break") as caught:
            capturing(X)
        assert "in broken" in str(caught.value)
        assert regions() == ()


@program(2)
def allowed_in_a_region(x):
    with dynamo.error_on_graph_break(True):
        y = x + 1
        with dynamo.error_on_graph_break(False):
            note("allowed")
            y = y * 2
        return y + 1


@program(2)
def allowed_callee_in_a_region(x):
    with dynamo.error_on_graph_break(True):
        return allowed(x) + 1


@program(3, breaks=2)
def break_behind_a_region(x):
    with dynamo.error_on_graph_break(True):
        y = x + 1
        with dynamo.error_on_graph_break(False):
            y = broken(y)
    note("behind")
    return y * 2


def test_regions_set_outside():
    def f(x):
        y = x + 1
        note("outside")
        return y

    capturing, _ = compiled(f)
    with dynamo.error_on_graph_break(True), pytest.raises(dynamo.errors.Unsupported):
        capturing(X)
    assert torch.equal(capturing(X), X + 1)
    with pytest.raises(TypeError, match="True or False"):
        dynamo.error_on_graph_break(1)


def test_fullgraph_is_stronger_than_regions():
    capturing, _ = compiled(allowed_callee_in_a_region, fullgraph=True)
    with pytest.raises(dynamo.errors.Unsupported, match="fullgraph=True"):
        capturing(X)


test_program = checks_of(PROGRAMS)
