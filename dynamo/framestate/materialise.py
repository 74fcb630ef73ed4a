"""Values back to bytecode.

A Codegen wraps an Emitter (all of its methods can be called on the Codegen) and knows how to push
any Value: from its source, from a temporary local if it was made before, or by its recipe. A
frame's code is emitted twice: the first run finds which tensors the graph must return and which
values are needed more than once; only the second is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import MadeSource, Source
from dynamo.plans import Retry
from dynamo.values.base import Value
from dynamo.values.builder import Lazy
from dynamo.values.recipes import Make, Part, Recipe, Store
from dynamo.values.scalars.constant import is_constant_type, is_literal
from dynamo.values.scalars.symbolic_text import SymbolicText
from dynamo.values.tensors.choice import ChoiceValue

if TYPE_CHECKING:
    from dynamo.bytecode.emit import Emitter
    from dynamo.interp.output import OutputGraph
    from dynamo.values.tensors.tensor import TensorValue


class Codegen:
    """Pushes Values. `first_run` is the Codegen of the first run over the same code, or None in
    that run.
    """

    def __init__(
        self, output: OutputGraph, emit: Emitter, first_run: Codegen | None = None
    ) -> None:
        self.output = output
        self.emit = emit
        self.first_run = first_run
        self.uses: Counter[int] = Counter()  # id(value) -> how often it is pushed
        self.graph_outputs: dict[int, TensorValue] = {}  # in the order of first use
        self._temporaries: dict[int, str] = {}  # id(value) -> local that holds it
        self._in_progress: dict[int, Value] = {}
        self._made: list[Value] = []  # alive, so that no other gets the id of one made for emission

    def __getattr__(self, name: str) -> Any:
        return getattr(self.emit, name)

    # -- values ---------------------------------------------------------------------------------
    def __call__(self, value: Value | Lazy) -> None:
        """Push a value."""
        if isinstance(value, Lazy):
            self.pending(value.obj, value.source)
            return
        value = value.holder or value
        key = id(value)
        self.uses[key] += 1
        local = self._temporaries.get(key)
        if local is not None:
            self.emit.load_fast(local)
        elif value.is_constant() and _is_plain(value):
            self.emit.load_const(value.as_constant())
        elif value.source is not None and not self._by_graph(value):
            value.source.load(self.emit)
        else:
            self._materialise(value)

    def _by_graph(self, value: Value) -> bool:
        """Whether the graph returns the value although it could be loaded: a program has no other
        source.
        """
        return self.output.context.export and value.is_symbolic()

    def pending(self, obj: Any, source: Source | None) -> None:
        """Push an outside object that capture did not look at."""
        if source is not None:
            source.load(self.emit)
        else:
            self.constant(obj)

    def _materialise(self, value: Value) -> None:
        key = id(value)
        if self.output.context.export and isinstance(value, ChoiceValue):
            value.refuse()  # no Python around the graph chooses
        self._made.append(value)
        if key in self._in_progress:
            ring = list(self._in_progress.values())
            self._fill_later(ring[list(self._in_progress).index(key) :], "it holds itself")
        elif not value.is_made_bare and value.hashes_objects():
            self._fill_later([value], "its keys are hashed by methods")
        self._in_progress[key] = value
        self.make(*value.recipe())
        del self._in_progress[key]
        # A mutable object is made once; other objects that are needed twice are cheaper from a
        # local.
        if key in self.graph_outputs:
            return
        if self.first_run is None or self.first_run.uses[key] > 1:
            local = self.new_local()
            self.emit.copy(1)
            self.emit.store_fast(local)
            self._temporaries[key] = local

    def make(self, make: Callable[..., Any], operands: Sequence[Any]) -> None:
        """Push make(*operands), the recipe of a value."""
        if isinstance(make, Make):
            make.emit(self, operands)
        else:
            self._push_call(make, operands)
            self.emit.call(len(operands))

    def _push_call(self, function: Callable[..., Any], operands: Sequence[Any]) -> None:
        self.emit.load_callable(lambda: self.emit.load_const(function))
        for operand in operands:
            self.operand(operand)

    def fill(self, writes: Sequence[Recipe], between: Callable[[], None] = lambda: None) -> None:
        """Push the operands of all writes, those of the first on top, emit what comes between, and
        execute the writes in order.
        """
        for make, operands in reversed(writes):
            if isinstance(make, Store):
                make.push(self, operands)
            else:
                self._push_call(make, operands)
        between()
        for make, operands in writes:
            if isinstance(make, Store):
                make.execute(self, operands)
            else:
                self.emit.call(len(operands))
                self.emit.pop_top()

    def operand(self, operand: Value | Lazy | Part) -> None:
        """Push an operand of a recipe."""
        if isinstance(operand, Part):
            operand.push(self)
        else:
            self(operand)

    def _fill_later(self, values: list[Value], why: str) -> NoReturn:
        """Retry with one of these values (it holds itself, or hashes its keys) made bare."""
        effects = self.output.side_effects
        for value in values:
            if value.source is not None or not value.can_be_bare:
                continue
            if value.mutation is None:
                effects.track_new(value)
            value.mutation.dirty = value.is_made_bare = True
            raise Retry(self.output.emission.filling(id(value)))
        raise Unsupported(breaks.CannotReconstruct(f"{values[0].describe()} ({why})"))

    def graph_output(self, value: TensorValue) -> None:
        """Push a tensor that the graph computes."""
        self.graph_outputs.setdefault(id(value), value)
        self.emit.load_fast(self.output_local(value))

    def output_local(self, value: TensorValue) -> str:
        """The local in which the rewritten frame keeps a result of the graph."""
        return f"__out_{list(self.graph_outputs).index(id(value))}"

    def new_local(self) -> str:
        return f"__tmp_{len(self._temporaries)}"

    @property
    def output_locals(self) -> list[str]:
        """The locals of the graph's results."""
        return [f"__out_{i}" for i in range(len(self.graph_outputs))]

    @property
    def temporaries(self) -> list[str]:
        """Locals that hold values made here, for clearing."""
        made = [MadeSource(index).local for index in range(len(self.output.hoisted_calls))]
        return [*self._temporaries.values(), *made, *self.emit.targets.values()]

    # -- objects --------------------------------------------------------------------------------
    def load_source(self, source: Source) -> None:
        source.load(self.emit)

    def constant(self, obj: Any) -> None:
        """Push a real object: a literal of the code, or an installed one."""
        if is_literal(obj):
            self.emit.load_const(obj)
        else:
            self.load_object(obj, type(obj).__name__)

    def load_object(self, obj: Any, name: str) -> None:
        """Push an object that exists already (a class, a function)."""
        self.output.install(name, obj).load(self.emit)

    def load_continuation(self, code: CodeType, namespace: dict[str, Any]) -> None:
        """Push the function over a continuation's code."""
        self.output.continuation(code, namespace).load(self.emit)

    def load_globals(self, namespace: dict[str, Any]) -> None:
        """Push a globals dict."""
        self.load_object(namespace, "globals")


def _is_plain(value: Value) -> bool:
    return type(value) is not SymbolicText and is_constant_type(type(value.as_constant()))
