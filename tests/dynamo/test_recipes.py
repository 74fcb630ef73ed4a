"""Recipes: the only way to say how a value is made, and what is written into it; reachability
follows their operands.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
import torch

import dynamo
from dynamo.values.base import Value
from dynamo.values.iterators.stored_iterators import IteratorValue
from dynamo.values.recipes import TUPLE, Made, exact, operand_values

dynamo.compile(lambda x: -x, backend="eager")(torch.zeros(1))  # loads all classes of values


def subclasses(cls: type) -> Iterator[type]:
    for found in cls.__subclasses__():
        yield found
        yield from subclasses(found)


VALUES = sorted(set(subclasses(Value)), key=lambda cls: cls.__qualname__)


def owner(cls: type, name: str) -> type:
    return next(base for base in cls.__mro__ if name in vars(base))


@pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__qualname__)
def test_values_emit_no_bytecode(cls: type) -> None:
    """Their recipes and writes are data, of which the code generator makes bytecode."""
    taking = [
        name
        for name, method in vars(cls).items()
        if inspect.isfunction(method) and "codegen" in inspect.signature(method).parameters
    ]
    assert taking == []


def test_there_are_recipes() -> None:
    assert sum("recipe" in vars(cls) for cls in VALUES) > 60


def test_operands_of_parts_are_reachable() -> None:
    class Leaf(Value):
        pass

    class Holder(Value):
        def recipe(self):
            return list, [exact(0), Made(TUPLE, leaf, Made(TUPLE, other))]

    leaf, other = Leaf(), Leaf()
    assert list(operand_values(Holder().recipe()[1], Value)) == [leaf, other]
    assert Holder().children() == [leaf, other]
    assert leaf.children() == ()


def test_iterators_say_how_their_rest_is_made():
    """At its end an iterator is made from its type alone: `recipe` of the base class does."""
    own = [cls for cls in subclasses(IteratorValue) if "recipe" in vars(cls)]
    assert [cls for cls in own if "super().recipe" not in inspect.getsource(cls.recipe)] == []
