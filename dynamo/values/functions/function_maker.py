"""The functions of polyfills/rematerialise.py as captured code calls them: their results stand for
the objects from before the graph break.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.polyfills.rematerialise import (
    Drawn,
    FunctionMaker,
    accumulated,
    dropping_nothing,
    make_cell,
    map_again,
    pairs_from,
    zip_again,
    zip_longest_again,
)
from dynamo.values.base import Value, is_none
from dynamo.values.builder import builder
from dynamo.values.builtins.table import handles
from dynamo.values.containers.containers import TupleValue
from dynamo.values.functions.cell import CellValue
from dynamo.values.functions.function import NestedFunctionValue
from dynamo.values.iterators.generator import GeneratorValue
from dynamo.values.iterators.iterators import MapIterator, ZipIterator
from dynamo.values.iterators.itertools_iterators import (
    AccumulateIterator,
    DropwhileIterator,
    PairwiseIterator,
    ZipLongestIterator,
)
from dynamo.values.iterators.stored_iterators import DrawnIterator
from dynamo.values.recipes import Existing, Recipe
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


# -- closures -------------------------------------------------------------------------------------
class FunctionMakerValue(Value):
    """The maker of functions over cells, in continuations (rematerialise.FunctionMaker)."""

    def __init__(self, made: FunctionMaker) -> None:
        super().__init__()
        self.made = made

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        cells = TupleValue(list(args)) if args else None
        function = NestedFunctionValue(self.made.code, self.made.namespace, closure=cells)
        return tx.output.side_effects.track_new(function)

    def recipe(self) -> Recipe:
        return Existing(self.made), []


@builder(FunctionMaker)
def build_function_maker(tx: Interpreter, obj: FunctionMaker, source: Source | None) -> Value:
    return FunctionMakerValue(obj)


@handles(make_cell)
def _make_cell(tx):
    return tx.output.side_effects.track_new(CellValue(None))


# -- iterators ----------------------------------------------------------------------------------
@handles(Drawn)
def _drawn(tx, generator, inner):
    if not isinstance(generator, GeneratorValue):
        raise Unsupported(breaks.UncapturedCall("next"))
    return DrawnIterator(generator, inner)


@handles(zip_again)
def _zip_again(tx, strict, taken, *operands):
    count = taken.as_constant()
    made = ZipIterator(operands[count:], strict.as_constant())
    made.taken = list(operands[:count])
    return made


@handles(map_again)
def _map_again(tx, function, taken, *operands):
    count = taken.as_constant()
    made = MapIterator(function, operands[count:])
    made.taken = list(operands[:count])
    return made


@handles(zip_longest_again)
def _zip_longest_again(tx, padding, taken, *operands):
    count = taken.as_constant()
    made = ZipLongestIterator(operands[count:], padding)
    made.inners = [None if is_none(inner) else inner for inner in operands[count:]]
    made.taken = list(operands[:count])
    return made


@handles(pairs_from)
def _pairs_after(tx, left, inner):
    made = PairwiseIterator(inner)
    made.first = left
    return made


@handles(accumulated)
def _accumulate_after(tx, inner, function, total):
    made = AccumulateIterator(inner, None if is_none(function) else function, None)
    made.total = total
    return made


@handles(dropping_nothing)
def _dropwhile_after(tx, inner):
    made = DropwhileIterator(ConstantValue(None), inner)
    made.started = True
    return made
