"""Recipes: how values are made, in bytecode and in continuations.

A recipe is (make, operands): the value is make(*operands). `make` is a function that the rewritten
frame calls, or a Make: a display, an attribute, an object that exists. An operand is a value, or a
Part: an operand that is no value of the program. Recipes are read by bytecode generation
(framestate/materialise.py), rematerialisation behind a break (framestate/virtual_objects.py) and
reachability (`operand_values`).

A write into an object that is made already is a recipe, too, whose result is dropped: of a call, or
of a Store. `Value.fill` gives the writes of a value. The rewritten frame has the operands of all
writes of all values on its stack before it executes the first, so that `a.x, b.x = b.x, a.x` reads
what was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynamo.framestate.materialise import Codegen
    from dynamo.guards.sources import Source

Recipe = tuple[Callable[..., Any], Sequence[Any]]


class Part:
    """An operand that is no value of the program, such as a function over a frame's cells."""

    def push(self, codegen: Codegen) -> None:
        raise NotImplementedError(type(self))

    def operands(self) -> Sequence[Any]:
        """The values of which the object is made."""
        return ()


class Made(Part):
    """An operand with a recipe of its own, such as the tuple of a call's arguments."""

    def __init__(self, make: Callable[..., Any], *operands: Any) -> None:
        self.make = make
        self._operands = operands

    def push(self, codegen: Codegen) -> None:
        codegen.make(self.make, self._operands)

    def operands(self) -> Sequence[Any]:
        return self._operands


def arguments(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Made, Made]:
    """A tuple of the positional and a dict of the keyword arguments."""
    named = [part for name, value in kwargs.items() for part in (exact(name), value)]
    return Made(TUPLE, *args), Made(DICT, *named)


def operand_values(operands: Sequence[Any], kind: type) -> Iterator[Any]:
    """The values of class `kind` among operands, and among the operands of their Parts."""
    for operand in operands:
        if isinstance(operand, kind):
            yield operand
        elif isinstance(operand, Part):
            yield from operand_values(operand.operands(), kind)


class Make:
    """A way to make a value of its operands that is no call of a function with them."""

    def __call__(self, *operands: Any) -> Any:
        raise TypeError(f"{type(self).__name__} only makes values in bytecode")

    def emit(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        raise NotImplementedError(type(self))


class Attribute(Make):
    """The attribute of this name of the operand."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, owner: Any) -> Any:
        return getattr(owner, self.name)

    def emit(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        (owner,) = operands
        codegen.operand(owner)
        codegen.load_attr(self.name)


class Display(Make):
    """An instruction that takes its operands from the stack, `size` of them for each item."""

    def __init__(self, build: str, size: int = 1) -> None:
        self.build = build
        self.size = size

    def emit(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        for operand in operands:
            codegen.operand(operand)
        getattr(codegen, self.build)(len(operands) // self.size)


TUPLE, LIST, SLICE = Display("build_tuple"), Display("build_list"), Display("build_slice")
DICT = Display("build_map", size=2)


class Existing(Make):
    """An object that exists while capturing. By name: among the globals of the rewritten frame;
    else a constant of its code.
    """

    def __init__(self, obj: Any, name: str | None = None) -> None:
        self.obj = obj
        self.name = name

    def emit(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        assert not operands, "it exists"
        if self.name is None:
            codegen.load_const(self.obj)
        else:
            codegen.load_object(self.obj, self.name)


def exact(obj: Any) -> Made:
    """An operand that is a constant of the code."""
    return Made(Existing(obj))


class Constant(Part):
    """An operand that is an object of ours: a literal of the code, or an installed object."""

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def push(self, codegen: Codegen) -> None:
        codegen.constant(self.obj)


class Loaded(Make):
    """The load of a source, for a value that is always from there."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def emit(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        assert not operands, "it is loaded"
        codegen.load_source(self.source)


class CellOfFrame(Make):
    """A cell of the compiled frame itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def emit(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        codegen.load_closure(self.name)


class GlobalsOf(Make):
    """A dict of globals."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace

    def emit(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        codegen.load_globals(self.namespace)


class GraphOutput(Make):
    """An output of the graph."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def emit(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        codegen.graph_output(self.value)


class Named(Make):
    """A call whose last operands are arguments with these names."""

    def __init__(self, function: Callable[..., Any], names: Iterable[str]) -> None:
        self.function = function
        self.names = tuple(names)

    def emit(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        codegen.load_callable(lambda: codegen.load_const(self.function))
        for operand in operands:
            codegen.operand(operand)
        codegen.call_kw(len(operands), self.names)


class Store(Make):
    """An instruction that writes its operands somewhere, emitted in two steps."""

    def __init__(self, instruction: str, *arguments: str) -> None:
        self.instruction = instruction
        self.arguments = arguments

    def push(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        for operand in operands:
            codegen.operand(operand)

    def execute(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        getattr(codegen, self.instruction)(*self.arguments)


STORE_ITEM, DELETE_ITEM = Store("store_subscr"), Store("delete_subscr")


class MethodCall(Store):
    """A call of the first operand's method with the other operands, for its effect."""

    def __init__(self, name: str) -> None:
        super().__init__("call")
        self.name = name

    def push(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        owner, *arguments = operands

        def load() -> None:
            codegen.operand(owner)
            codegen.load_attr(self.name)

        codegen.load_callable(load)
        super().push(codegen, arguments)

    def execute(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        codegen.call(len(operands) - 1)
        codegen.pop_top()


def stores(store: Store, delete: Store, value: Any, place: Sequence[Any]) -> list[Recipe]:
    """The writes that store `value` at a place; None: they delete what is there. The place may be
    empty in some calls: it is stored to first, so that the delete succeeds.
    """
    if value is not None:
        return [(store, [value, *place])]
    return [(store, [exact(None), *place]), (delete, place)]


def attribute_stores(owner: Any, name: str, value: Any) -> list[Recipe]:
    """owner.name = value, or (None) del owner.name."""
    return stores(Store("store_attr", name), Store("delete_attr", name), value, [owner])


class WithAttributes(Make):
    """make(...) of the first operands, in whose attributes of these names the others are stored."""

    def __init__(self, make: Callable[..., Any], names: Iterable[str]) -> None:
        self.make = make
        self.names = tuple(names)

    def emit(self, codegen: Codegen, operands: Sequence[Any]) -> None:
        split = len(operands) - len(self.names)
        codegen.make(self.make, operands[:split])
        for name, operand in zip(self.names, operands[split:]):
            codegen.copy(1)
            codegen.operand(operand)
            codegen.swap(2)
            codegen.store_attr(name)
