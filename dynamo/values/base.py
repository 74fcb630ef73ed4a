"""The symbolic value: an item of the interpreter's stack and locals.

A Value knows its Python type, where it came from (`source`, or None if the frame made it), how the
frame may use it (attribute, call, item, iteration, truth), and how to be made again (`recipe`).
Whatever a value cannot do symbolically raises `Unsupported`, which is a graph break.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.values import late_bound
from dynamo.values.classes.lookup import type_holds
from dynamo.values.containers.identity_keys import IdentityKey
from dynamo.values.recipes import operand_values

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.plans import BreakBefore
    from dynamo.values.recipes import Recipe
    from dynamo.values.tensors.tensor import TensorValue


# A call: the function and its arguments.
Forwarded = tuple["Value", Sequence["Value"], dict[str, "Value"]]


class Value:
    """Base class of all symbolic values. `tx` is the interpreter of the frame that uses the
    value.
    """

    source: Source | None = None
    outside: Any = None  # the object that it stands for, if that came from outside
    # The object to which mutations are recorded (values/effects/side_effects.py); None: immutable
    # or not tracked.
    mutation: Any = None
    serial: int = -1  # of one that is not tracked, but changes: as that of a Mutation
    # The object of a class of the program's with this as its built-in part (objects/storage.py).
    holder: Value | None = None
    # True: `recipe` makes a new object bare, and `fill` gives it its contents (its attributes are
    # always written so). Emission sets it for a container that holds itself (`can_be_bare`).
    is_made_bare: bool = False
    can_be_bare: bool = False
    # The graph computes it: `deferred_truth` may say where its truth will be.
    is_deferred: bool = False
    # Of a tensor: it may be the same object as another one.
    may_be_another: bool = False
    # Two of such kinds from outside are guarded to be two objects where capture told them apart.
    is_guarded_distinct: bool = False
    # Reading an attribute ends with the call of its getter, if that is the program's.
    calls_getters_last: bool = False
    # Whether the program can see if it is still there without holding it.
    is_weakly_held: bool = False
    # Whether the graph chooses between two values (values/tensors/choice.py).
    alternatives: Sequence[Value] = ()
    left: Sequence[Any] = ()  # of an exception: the values of the frames that it left

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    # -- type and identity ----------------------------------------------------------------------
    def python_type(self) -> type:
        """The exact type that the real value has."""
        known, real = self.identity()
        if known:
            return type(real)
        raise Unsupported(breaks.UnknownType(self.describe()))

    def python_type_is(self, *types: type) -> bool:
        """Whether the type is known, and one of these exactly."""
        try:
            return self.python_type() in types
        except Unsupported:
            return False

    def is_constant(self) -> bool:
        return False

    def is_symbolic(self) -> bool:
        """Whether the value is a number with a symbol in it (values/scalars/symbol.py)."""
        return False

    def as_constant(self) -> Any:
        """The real Python value, where it is a literal or a container of literals."""
        raise Unsupported(breaks.NotConstant(self.describe()))

    def as_proxy(self) -> Any:
        """The value in the graph's arguments: a Node, a constant, or a nest of them."""
        if self.is_constant():
            return self.as_constant()
        raise Unsupported(breaks.NotGraphArgument(self.describe()))

    def identity(self) -> tuple[bool, Any]:
        """(True, the real object) if the value is an object that exists while capturing."""
        return (True, self.as_constant()) if self.is_constant() else (False, None)

    def describe(self) -> str:
        """Short text for messages."""
        where = f" from {self.source.name}" if self.source is not None else ""
        return f"{type(self).__name__}{where}"

    asking: Value | None = None  # the one that an iterator asks for its next item at the moment

    @property
    def resumed(self) -> bool:
        """Whether the value is a generator between two yields: a graph break stands there."""
        return False

    # -- how it is used -------------------------------------------------------------------------
    def getattr(self, tx: Interpreter, name: str) -> Value:
        """value.name; for a C type, the attribute of the type."""
        return late_bound.attribute_of_type(tx, self, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        raise Unsupported(breaks.AttributeMutation(self.describe(), name))

    def delattr(self, tx: Interpreter, name: str) -> None:
        raise Unsupported(breaks.AttributeMutation(self.describe(), name))

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return not late_bound.is_absent(self, self.python_type(), name)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        forwarded = self.forwards(tx, args, kwargs)
        if forwarded is None:
            raise Unsupported(breaks.NotCallable(self.describe()))
        function, args, kwargs = forwarded
        return function.call(tx, args, kwargs)

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Forwarded | None:
        """The call of which self(*args, **kwargs) consists; None: the call does more."""
        return None

    def tail_call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """As `call`, where the current instruction only pushes the result."""
        return self.call(tx, args, kwargs)

    def is_plain_function(self) -> bool:
        """Whether a call is nothing but the execution of the function's code."""
        return False

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        return self.getattr(tx, name).call(tx, args, kwargs)

    def has_special(self, tx: Interpreter, name: str) -> bool:
        """True if the type defines the special method `name` in Python (user classes only)."""
        return False

    def truth(self, tx: Interpreter) -> bool:
        """bool(value), where that is known while capturing: of a type without `__bool__`, whether
        there is a length other than 0, or no length.
        """
        kind = self.python_type()
        if type_holds(kind, "__bool__"):
            raise Unsupported(breaks.UnknownTruth(self.describe()))
        return not type_holds(kind, "__len__") or self.length_value(tx).truth(tx)

    def truth_value(self, tx: Interpreter, negated: bool = False) -> Value:
        """bool(value), or `not value`, as a Value; a number whose truth serves a check may be
        unknown.
        """
        return tx.constant(self.truth(tx) is not negated)

    def as_condition(self) -> Value:
        """The value whose truth a conditional jump takes for this one's."""
        return self

    def deferred_truth(self, tx: Interpreter) -> tuple[TensorValue, BreakBefore] | None:
        """A boolean tensor with the value's truth, and the graph break for the case that the
        program needs the truth now. None: there is no such tensor.
        """
        return None

    def length_value(self, tx: Interpreter) -> Value:
        """len(value), which may be symbolic."""
        return tx.constant(self.length(tx))

    def length(self, tx: Interpreter) -> int:
        raise Unsupported(breaks.NotSized(self.describe()))

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        raise Unsupported(breaks.ItemAccess(self.describe()))

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        raise Unsupported(breaks.ItemMutation(self.describe()))

    def delitem(self, tx: Interpreter, key: Value) -> None:
        raise Unsupported(breaks.ItemMutation(self.describe()))

    def iterate(self, tx: Interpreter) -> Value:
        """iter(value): a Value with `next_value`."""
        raise Unsupported(breaks.NotIterable(self.describe()))

    def next_value(self, tx: Interpreter) -> Value | None:
        """next(iterator), or None when exhausted."""
        raise Unsupported(breaks.NotIterable(self.describe()))

    def step_runs_code(self) -> bool:
        """Whether next(iterator) may run the program's code (values/builtins/program_code.py)."""
        return False

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        """`self op other` (`other op self` if reflected), or None for NotImplemented.

        `op` is the operator's symbol; in-place forms carry their "=" ("+=").
        values/scalars/operators.py decides which operand is asked first, as Python does.
        """
        return None

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        """`self op other` for one of == != < <= > >=, or None for NotImplemented."""
        return None

    def unary(self, tx: Interpreter, op: str) -> Value | None:
        """`op self` for one of - + ~, or None where the type has no such operator."""
        return None

    def contains(self, tx: Interpreter, item: Value) -> Value:
        """`item in self`, as a Value."""
        raise Unsupported(breaks.NotIterable(self.describe()))

    def hash_key(self, tx: Interpreter) -> Hashable:
        """The value's key in a symbolic dict or set (see values/containers/hash_keys.py)."""
        if self.python_type().__hash__ is None:
            return late_bound.unhashable(tx, self)
        return self.hash_key_by_identity()

    def hash_key_by_identity(self) -> Hashable:
        if self.may_be_another:
            raise Unsupported(breaks.NotConstant(f"which object {self.describe()} is"))
        known, real = self.identity()
        if known and type(real).__hash__ is not object.__hash__ and not self.is_constant():
            return IdentityKey(real)  # it hashes in a way of its own, or not at all
        return real if known else IdentityKey(self)

    def unpack(self, tx: Interpreter) -> list[Value]:
        """All items, for unpacking and star arguments."""
        iterator = self.iterate(tx)
        items = []
        while (item := iterator.next_value(tx)) is not None:
            items.append(item)
        return items

    def each(self, tx: Interpreter) -> Iterator[Value]:
        """The items one by one, for consumers that may stop or fail between two of them."""
        if type(self).unpack is not Value.unpack:
            yield from self.unpack(tx)  # nobody sees how far it was read
            return
        iterator = self.iterate(tx)
        while (item := iterator.next_value(tx)) is not None:
            yield item

    def each_hinted(self, tx: Interpreter) -> Iterator[Value]:
        """The items one by one, for consumers that ask for a length hint first."""
        return self.each(tx)

    # -- how it is made again -------------------------------------------------------------------
    def recipe(self) -> Recipe:
        """(make, operands): the value is make(*operands), see values/recipes.py.

        Asked only of values without a source that is still valid.
        """
        raise Unsupported(breaks.CannotReconstruct(self.describe()))

    def fill(self) -> Sequence[Recipe]:
        """The writes, in order, that give the object its recorded changes once all values are made:
        one that was loaded, or one that the recipe has made. The stores of attributes, unless
        there is more that can change.
        """
        return self.mutation.attribute_stores(self)

    def hashes_objects(self) -> bool:
        """Its keys or members are found by methods of user classes: to be filled when they are
        ready.
        """
        return False

    def children(self) -> Sequence[Value]:
        """Values held by this one, which live as long as it does (for liveness of side effects).

        The operands of its recipe; a class that holds more, or whose recipe may be refused, says.
        """
        if type(self).recipe is Value.recipe:
            return ()
        return list(operand_values(self.recipe()[1], Value))

    def instance_dict(self) -> dict[str, Any] | None:
        """The real instance dict; None if there is none."""
        raise Unsupported(breaks.AttributeAccess(self.describe(), "__dict__"))

    def unwrapped_objects(self) -> Iterable[Any]:
        """Objects from outside that the value holds, and that may have no Value of their own."""
        return ()

    def held(self) -> Sequence[Any]:
        """Values (or Lazy ones) that do not end before this one does (effects/lifetimes.py)."""
        return (*self.children(), *self.left)

    def __repr__(self) -> str:
        return f"<{self.describe()}>"


def is_none(value: Value | None) -> bool:
    """Whether an argument is the object None, or is not given."""
    return value is None or (value.is_constant() and value.as_constant() is None)


class TailCallable(Value):
    """Base class of callables that may end a call in a tail call, if it is the `last` action of
    the current instruction.
    """

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.call_or_tail_call(tx, args, kwargs, last=False)

    def tail_call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.call_or_tail_call(tx, args, kwargs, last=True)

    def call_or_tail_call(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value], last: bool
    ) -> Value:
        raise NotImplementedError(type(self))
