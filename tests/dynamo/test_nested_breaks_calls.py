"""Breaks inside of functions that builtins, slots and classes call as their last act, of special
methods of tensors, and of methods of classes and modules (see break_support.check).
"""

from __future__ import annotations

import functools
import operator
import types

import torch
from torch.utils.checkpoint import checkpoint

import dynamo
from tests.dynamo.break_support import Held, X, broken, checks_of, registry

PROGRAMS, program = registry()


def step(x):
    return broken(x, "step") * 2


class Stepping(Held):
    def step(self, x):
        return step(x) + self.n


# -- calls that are nothing but another call ------------------------------------------------------
@program(2)
def call_of_operator(x):
    return operator.call(step, x * 2) + 1


@program(2)
def method_wrapper_of_a_function(x):
    return step.__call__(x * 2) + 1


@program(2)
def slot_of_functions(x):
    return types.FunctionType.__call__(step, x * 2) + 1


@program(2)
def method_wrapper_of_a_method(x):
    return Stepping(x, 1).step.__call__(x * 2) + 1


@functools.singledispatch
def dispatched(x):
    return step(x)


@program(2)
def single_dispatch(x):
    return dispatched(x * 2) + 1


@program(3, breaks=2)
def count_of_operator(x):
    x = x * 2
    return operator.countOf([Equal(x, 1), Equal(x, 2)], 2), x + 1


class Equal(Held):
    def __eq__(self, other):
        broken(self.x, "eq", self.n)
        return self.n == other


# -- modules --------------------------------------------------------------------------------------
class Own(torch.nn.Module):
    def __call__(self, x):
        return super().__call__(x * 2) + 3

    def forward(self, x):
        return step(x)


class Plain(torch.nn.Module):
    def forward(self, x):
        return step(x)


OWN, PLAIN = Own(), Plain()


@program(2)
def call_by_the_class(x):
    return torch.nn.Module.__call__(PLAIN, x * 2) * 5


@program(2)
def call_past_the_wrapper(x):
    return PLAIN._call_impl(x * 2) * 5


def attribute_of_module(name):
    if name.startswith("__"):
        raise AttributeError(name)
    broken(X, name)
    return len(name)


MODULE = types.ModuleType("made_up")
MODULE.__getattr__ = attribute_of_module


@program(3, breaks=2)
def attribute_that_a_module_makes(x):
    x = x * 2
    return x * MODULE.four + MODULE.five


@program(1, breaks=0)
def attributes_that_every_module_has(x):
    return x * len(MODULE.__dict__) + (MODULE.__class__ is types.ModuleType)


# -- classes --------------------------------------------------------------------------------------
class Returning:
    def __init__(self, x, result=None):
        self.y = step(x)
        return self.end(result)

    def end(self, result):
        return result


@program(2)
def initializer_that_returns_a_call(x):
    return Returning(x * 2).y + 1


@program(2)
def initializer_that_returns_a_number(x):
    x = x * 2
    try:
        Returning(x, result=3)
    except TypeError as error:
        return str(error), x + 1


class Sized(Held):
    def __len__(self):
        broken(self.x, "len", self.n)
        return self.n


@program(3, breaks=2)
def built_in_key_of_objects(x):
    x = x * 2
    found = [Sized(x, n) for n in (2, 1)]
    return max(found, key=len).n, x + 1


@program(3, breaks=2)
def sort_by_a_built_in_key(x):
    x = x * 2
    found = [Sized(x, n) for n in (2, 1)]
    found.sort(key=len)
    return [sized.n for sized in found], x + 1


# -- special methods of tensors -------------------------------------------------------------------
class Special(torch.Tensor):
    def plain(self):
        return self.as_subclass(torch.Tensor)

    def __add__(self, other):
        return step(self.plain()) if other == 1 else NotImplemented

    def __radd__(self, other):
        return step(self.plain()) + other

    def __lt__(self, other):
        return step(self.plain()) < other

    def __neg__(self):
        return step(self.plain())

    def __getitem__(self, key):
        return step(self.plain()) + key

    def __setitem__(self, key, value):
        self.last = step(self.plain()) + value


@program(2)
def operator_of_a_subclass(x):
    return ((x * 2).as_subclass(Special) + 1) * 5


@program(2)
def reflected_operator_of_a_subclass(x):
    return (1 + (x * 2).as_subclass(Special)) * 5


class Right:
    def __radd__(self, other):
        return 7


@program(1, breaks=0)
def operator_of_a_subclass_that_refuses(x):
    return ((x * 2).as_subclass(Special) + Right()) * 5, x + 1


@program(2)
def comparison_of_a_subclass(x):
    return ((x * 2).as_subclass(Special) < 3) * 5


@program(2)
def negation_of_a_subclass(x):
    return -(x * 2).as_subclass(Special) * 5


@program(3, breaks=2)
def items_of_a_subclass(x):
    special = (x * 2).as_subclass(Special)
    special[1] = 4
    return special[2] * 5, special.last + 1


test_program = checks_of(PROGRAMS)


# -- through functions of torch that eager alone has on its stack ----------------------------------
def check_one_break(function):
    report = dynamo.explain(function, backend="eager")(X)
    assert torch.equal(dynamo.compile(function, backend="eager")(X), function(X))
    assert (report.graph_count, report.graph_break_count) == (2, 1)


def test_break_in_a_function_under_a_checkpoint_without_gradients():
    def without_gradients(x):
        with torch.no_grad():
            return checkpoint(step, x * 2, use_reentrant=False) + 1

    check_one_break(without_gradients)


def test_break_below_a_call_of_the_base_class():
    check_one_break(lambda x: OWN(x) * 5)


def replacement(self, other):
    return torch.mul(step(self), other)


def test_break_in_a_function_in_the_place_of_an_operator(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "__matmul__", replacement)
    check_one_break(lambda x: ((x * 2) @ 3) * 5)
