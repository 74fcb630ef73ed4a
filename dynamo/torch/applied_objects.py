"""Objects among the arguments of `autograd.Function.apply`: configurations, modules, functions,
containers.

No graph holds them: the node calls with the program's own objects, which guards keep, and with
functions and containers made like those that the frame makes, of its own objects and of values in
the graph.

    def forward(self, x):
        return Checkpoint.apply(lambda y: self.layer(y) * self.scale, x)

A backward may read them: the call runs natively where the variable of a function is another at the
end of the frame, or something else than the call can still change it, or holds a container.
"""

from __future__ import annotations

import operator
import types
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.bytecode.normalize import normalize
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, DictItemSource, LocalSource
from dynamo.torch.tensor_hooks import native
from dynamo.values.base import Value
from dynamo.values.containers.containers import ListValue, TupleValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.containers.sets import SetValue
from dynamo.values.effects.lifetimes import held_by_frames
from dynamo.values.functions.cell import CellValue
from dynamo.values.functions.function import MethodValue, NestedFunctionValue
from dynamo.values.functions.functional import PartialValue, make_partial
from dynamo.values.scalars.constant import ConstantValue, is_literal
from dynamo.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_CONTAINERS = (ListValue, DictValue, SetValue)
# Makes the object, given the values of the further arguments of the node.
Maker = Callable[[Sequence[Any]], Any]


class AppliedTo:
    """`cls.apply` with objects at their places among the arguments. The last `count` arguments are
    what the objects are made of.
    """

    __name__ = "apply"

    def __init__(self, cls: type, objects: dict[int, Maker], count: int) -> None:
        self.__self__, self.__func__ = cls, cls.apply.__func__  # type: ignore[attr-defined]
        self.objects = objects
        self.count = count

    def __call__(self, *args: Any) -> Any:
        split = len(args) - self.count
        every, parts = list(args[:split]), args[split:]
        for place, make in self.objects.items():
            every.insert(place, make(parts))
        return self.__self__.apply(*every)  # type: ignore[attr-defined]


class Objects:
    """The objects among the arguments, by their places."""

    def __init__(self, tx: Interpreter, args: Sequence[Value]) -> None:
        self.tx = tx
        self.makers: dict[int, Maker] = {}
        self.parts: list[Value] = []  # further arguments of the node
        self.containers: list[Value] = []
        self._watched: list[tuple[Value, Sequence[Any]]] = []  # and what they hold by now
        self._functions: list[tuple[Value, Sequence[Any]]] = []  # that the frame made; partials
        self._within: list[Value] = []
        self._keeps = False
        for place, arg in enumerate(args):
            try:
                arg.as_proxy()
            except Unsupported as error:
                self._refused = error
                self.makers[place] = self._maker(arg)
        self._check()

    def _check(self) -> None:
        if self.makers and self.tx.output.side_effects.changes_objects():
            raise _refuse("an argument may hold an object that the frame has changed")

    def holds_containers(self, args: Sequence[Value]) -> bool:
        """Whether a graph would hand over copies of containers."""
        return any(map(_holds_container, self.others(args)))

    def keep_containers(self, args: Sequence[Value]) -> None:
        """Hand over containers that a backward may read."""
        self._keeps = True
        self._refused = _refuse("backward may read or change a container that it is given")
        for place, arg in enumerate(args):
            if place not in self.makers and _holds_container(arg):
                self.makers[place] = self._maker(arg)
        self._check()

    def applied(self, cls: type) -> Callable[..., Any]:
        if not self.makers:
            return cls.apply  # type: ignore[attr-defined]
        return AppliedTo(cls, dict(sorted(self.makers.items())), len(self.parts))

    def others(self, args: Sequence[Value]) -> list[Value]:
        """The arguments that a graph holds."""
        return [arg for place, arg in enumerate(args) if place not in self.makers]

    def _maker(self, value: Value) -> Maker:
        if any(value is one for one in self._within):
            raise self._refused  # a function that names itself
        self._within.append(value)
        try:
            return self._maker_of(value)
        finally:
            self._within.pop()

    def _maker_of(self, value: Value) -> Maker:
        if isinstance(value, MethodValue):
            return self._made(types.MethodType, [value.function, value.receiver])
        if isinstance(value, _CONTAINERS) and self._keeps and not _is_setting(value):
            if value.source is not None:
                raise self._refused
        elif _is_held(self.tx, value):
            return _held(self.tx, value)
        if isinstance(value, PartialValue) and self._is_plain(value):
            return self._partial(value)
        if isinstance(value, NestedFunctionValue) and self._is_bare(value):
            return self._function(value)
        if isinstance(value, TupleValue) and value.cls is tuple:
            return self._made(lambda *items: items, value.wrapped())
        if type(value) is ListValue and value.cls is list and _is_of_frame(value):
            self._keep(value)
            return self._made(lambda *items: list(items), value.items(self.tx))
        if type(value) is DictValue and value.cls is dict and _is_of_frame(value):
            self._keep(value)
            keys = [key.as_constant() for key in value.keys(self.tx)]
            return self._made(lambda *items: dict(zip(keys, items)), value.values(self.tx))
        if not _is_immutable(value):
            raise self._refused
        self.parts.append(value)
        return operator.itemgetter(len(self.parts) - 1)

    def _keep(self, container: Value) -> None:
        self.containers.append(container)
        self._watched.append((container, _contents(self.tx, container)))

    def _made(self, make: Callable[..., Any], values: Sequence[Value]) -> Maker:
        makers = [self._maker(value) for value in values]
        return lambda parts: make(*[maker(parts) for maker in makers])

    def _partial(self, value: PartialValue) -> Maker:
        self._functions.append((value, []))
        names, count = list(value.kwargs), len(value.args)

        def make(function: Any, *values: Any) -> Any:
            return make_partial(function, values[:count], dict(zip(names, values[count:])))

        return self._made(make, [value.inner, *value.args, *value.kwargs.values()])

    def _is_bare(self, value: Value) -> bool:
        return not self.tx.output.side_effects.stored_attrs(value)

    def _is_plain(self, value: PartialValue) -> bool:
        """Whether the partial has nothing that the program can change."""
        if value.receiver is not None or not self._is_bare(value):
            return False
        return value.outside is None or not (value.kwargs or vars(value.outside))

    def _function(self, value: NestedFunctionValue) -> Maker:
        """The maker of a function of the frame's, in cells of its own. The cells of the frame stay
        as they are: they are watched, and no function writes them.
        """
        code, namespace, cells = value.code, value.globals, list(value.closure(self.tx))
        if _writes_cells(code) or not all(map(_is_of_frame, cells)):
            raise self._refused
        contents = [cell.load(self.tx) for cell in cells]
        if None in contents:
            raise self._refused
        self._watched += [(cell, [held]) for cell, held in zip(cells, contents)]
        named = value.keyword_defaults
        self._functions += [
            (one, _contents(self.tx, one)) for one in (value, named) if one is not None
        ]
        keys = [] if named is None else named.unpack(self.tx)
        keywords = [named.getitem(self.tx, key) for key in keys if named is not None]
        names, count = [key.as_constant() for key in keys], len(cells)
        defaults = [] if value.defaults is None else value.defaults.unpack(self.tx)

        def make(*values: Any) -> types.FunctionType:
            given = iter(values)
            closure = tuple([types.CellType(next(given)) for _ in range(count)])
            stated = {name: next(given) for name in names}
            function = types.FunctionType(code, namespace, None, tuple(given) or None, closure)
            function.__kwdefaults__ = stated or None
            return function

        return self._made(make, [*contents, *keywords, *defaults])

    def watch(self) -> None:
        """Have the call run natively if what a backward may read is another by then."""
        if not (self._watched or self._functions):
            return
        noted = self.tx.output.checkpointed.get(len(self.tx.output.bodies))
        if noted is None:
            raise _refuse("a body calls it on functions or containers")
        began = self.tx.breakable_chain()[-1].began
        reason = breaks.OpError("autograd.Function", "what an argument reads may be changed")
        refusal = Unsupported(reason) if self.tx.output.bodies else native(self.tx, began, reason)
        noted.append(_Watched(self._watched, self._functions, refusal))


class _Watched:
    """The variables of functions given to an autograd.Function, and containers that the frame has
    made (see checkpoint.refuse_changed).
    """

    def __init__(
        self,
        values: list[tuple[Value, Sequence[Any]]],
        functions: list[tuple[Value, Sequence[Any]]],
        refusal: Exception,
    ) -> None:
        self.values = values
        self.functions = functions
        self.refusal = refusal

    def check(self, tx: Interpreter) -> None:
        held = held_by_frames(tx.output)
        ended = tx.output.root_frame.done
        if any(id(one) in held and (ended or _changes_later(one)) for one, _ in self.functions):
            raise self.refusal
        cells = {id(value) for value, _ in self.values if isinstance(value, CellValue)}
        if (ended and not cells.isdisjoint(held)) or any(
            _may_write(tx, one, cells) for one in held.values()
        ):
            raise self.refusal
        for value, contents in (*self.values, *self.functions):
            now = _contents(tx, value)
            if len(now) != len(contents) or not all(map(operator.is_, now, contents)):
                raise self.refusal
        if any(id(one) in held for one, _ in self.values if not isinstance(one, CellValue)):
            raise self.refusal


def _changes_later(function: Value) -> bool:
    """Whether a function that a variable of the frame still holds is one that programs change."""
    return isinstance(function, PartialValue) and bool(function.kwargs)


def _may_write(tx: Interpreter, value: Any, cells: Collection[int]) -> bool:
    """Whether a function writes one of the cells."""
    if not isinstance(value, NestedFunctionValue):
        return False
    shared = any(id(cell) in cells for cell in value.closure(tx))
    return shared and _writes_cells(value.code)


def _contents(tx: Interpreter, value: Value) -> Sequence[Any]:
    if isinstance(value, CellValue):
        return [value.contents]
    if isinstance(value, DictValue):
        return [*value.keys(tx), *value.values(tx)]
    if isinstance(value, ListValue):
        return list(value.items(tx))
    if isinstance(value, NestedFunctionValue):
        told = tx.output.side_effects.stored_attrs(value).values()
        return [value.code, value.defaults, value.keyword_defaults, *told]
    return []


def _refuse(text: str) -> Unsupported:
    return Unsupported(breaks.OpError("autograd.Function", text))


def _is_of_frame(value: Value) -> bool:
    return value.mutation is not None and value.mutation.new and value.holder is None


def _holds_container(value: Value) -> bool:
    if isinstance(value, TupleValue):
        return any(map(_holds_container, value.wrapped()))
    return isinstance(value, _CONTAINERS)


def _is_setting(value: Value) -> bool:
    """Whether a container is an object's, of literals: it may be kept, and is seldom another."""
    source = value.source
    named = isinstance(source, AttrSource) or (
        isinstance(source, DictItemSource) and not isinstance(source.base, LocalSource)
    )
    if not named or value.outside is None:
        return False
    real: Any = value.outside
    return all(map(is_literal, real.values() if isinstance(real, dict) else real))


def _writes_cells(code: types.CodeType) -> bool:
    """Whether a function, or one in it, writes variables of a function around it."""
    writes = ("STORE_DEREF", "DELETE_DEREF")
    if any(i.op in writes and i.argval in code.co_freevars for i in normalize(code)):
        return True
    return any(_writes_cells(one) for one in code.co_consts if isinstance(one, types.CodeType))


def _is_immutable(value: Value) -> bool:
    """Whether a graph holds the value, and the program cannot change it. A gradient that reaches a
    tensor in a closure is none that autograd knows of the node.
    """
    if isinstance(value, TensorValue):
        fake = value.fake
        return not fake.requires_grad or (fake.is_leaf and value.source is not None)
    return value.is_symbolic() or isinstance(value, ConstantValue)


def _is_held(tx: Interpreter, value: Value) -> bool:
    """Whether a node can call with the object that the program has there: the same one each time.
    The methods, partials and nested functions of a call are others in the next.
    """
    if value.source is None or value.outside is None or isinstance(value.outside, torch.Tensor):
        return False
    return not tx.output.symbols.has_changed_object(value.outside, value.source)


def _held(tx: Interpreter, value: Value) -> Maker:
    """Guards keep the object, and not the graph, but of programs without guards."""
    assert value.source is not None, "an object that is held"
    tx.guard(value.source, "id", value.outside)
    guarded = not (tx.output.context.export or tx.output.context.hooks)
    if guarded and type(value.outside).__weakrefoffset__:
        reference = weakref.ref(value.outside)
        return lambda parts: reference()
    kept = value.outside
    return lambda parts: kept
