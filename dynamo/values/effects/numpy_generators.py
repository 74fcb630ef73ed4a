"""numpy's generators of random numbers, np.random.default_rng(0) and RandomState(0): their methods
are drawn before the graph, as those of random.Random are (values/effects/drawn_numbers.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamo.guards.sources import Source
from dynamo.values.base import Value
from dynamo.values.builder import builder, special_builder
from dynamo.values.builtins.table import TABLE, BuiltinValue
from dynamo.values.effects.drawn_numbers import OF_NUMPY, Draw, drawn, maker_of
from dynamo.values.effects.hoisted_modules import HoistedCall
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.recipes import Attribute, Recipe

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_OF_GENERATORS = ["integers", "random", "permuted"]
_OF_GENERATORS += [name for name in OF_NUMPY if not name.startswith("rand")]


class NumpyGenerator(ObjectValue):
    """A numpy.random.Generator or RandomState from outside, or made before the graph."""

    def getattr(self, tx: Interpreter, name: str) -> Value:
        names = _OF_GENERATORS if self.cls is np.random.Generator else OF_NUMPY
        if name in names and self.source is not None:
            return NumpyDraw(self, name)
        return super().getattr(tx, name)


class NumpyDraw(Value):
    """A method of such a generator, not yet called."""

    def __init__(self, generator: NumpyGenerator, name: str) -> None:
        super().__init__()
        self.generator = generator
        self.name = name

    def describe(self) -> str:
        return f"{self.generator.cls.__name__}.{self.name}"

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        source, cls = self.generator.source, self.generator.cls
        stand_in = np.random.default_rng(0) if cls is np.random.Generator else cls(0)

        def call(draw: Draw) -> HoistedCall:
            return HoistedCall(draw, source)

        return drawn(tx, cls.__name__, self.name, stand_in, call, args, kwargs)

    def children(self) -> Sequence[Value]:
        return (self.generator,)

    def recipe(self) -> Recipe:
        return Attribute(self.name), [self.generator]


@builder(np.random.Generator, np.random.RandomState)
def build_numpy_generator(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "type", type(obj))
    value = NumpyGenerator(type(obj), source)
    value.real = obj
    return tx.output.remember(obj, source, value)


for _function in (np.random.default_rng, np.random.RandomState):
    TABLE[_function] = maker_of(_function)


@special_builder(lambda obj: obj is np.random.default_rng)
def build_maker(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, BuiltinValue(obj, source))
