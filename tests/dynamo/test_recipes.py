"""Recipes: a value whose class has one is made by it, in bytecode too."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
import torch

import dynamo
from dynamo.values.base import Value

dynamo.compile(lambda x: -x, backend="eager")(torch.zeros(1))  # loads all classes of values


def subclasses(cls: type) -> Iterator[type]:
    for found in cls.__subclasses__():
        yield found
        yield from subclasses(found)


WITH_RECIPE = sorted(
    {cls for cls in subclasses(Value) if "recipe" in vars(cls)}, key=lambda cls: cls.__qualname__
)


@pytest.mark.parametrize("cls", WITH_RECIPE, ids=lambda cls: cls.__qualname__)
def test_no_other_way_of_making_comes_before(cls: type) -> None:
    """A `reconstruct` that a base class has would be called instead."""
    by = next(base for base in cls.__mro__ if "reconstruct" in vars(base))
    assert by is Value or "super().reconstruct" in inspect.getsource(by.reconstruct)


def test_there_are_recipes() -> None:
    assert len(WITH_RECIPE) > 40
