"""Tensors of classes that wrap other tensors (__tensor_flatten__, __torch_dispatch__).

In the graph, as in the program, they are tensors of their class, whose fake is an
instance of the class around fake tensors. Backends take their operators apart
(fxgraph/aot/wrappers.py).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.nested._internal import nested_tensor as _jagged
from torch.utils._python_dispatch import (
    is_traceable_wrapper_subclass,
    is_traceable_wrapper_subclass_type,
)

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.marks import is_marked
from dynamo.guards.sources import AttrSource, Source
from dynamo.torch.overrides import override_of, overrides_by_default
from dynamo.torch.tensor_subclass import SubclassTensorValue
from dynamo.values.base import Value
from dynamo.values.builtins.table import handles
from dynamo.values.containers.containers import SequenceValue, SizeValue
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.descriptors import MISSING, class_lookup
from dynamo.values.recipes import GraphOutput, Recipe, exact
from dynamo.values.scalars.constant import ConstantValue, is_constant_type
from dynamo.values.tensors.tensor import TensorValue, call_in_graph, constant_sizes
from fxgraph.symbolic_values import is_ragged
from fxgraph.wrapper_parts import flatten, own_context, unflatten, without_sizes

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from fxgraph import Node


class WrapperTensorValue(SubclassTensorValue):
    """A tensor of class `cls`: `fake` is an instance of the class, and `node` gives one."""

    is_wrapper = True

    def __init__(self, node: Node, fake: torch.Tensor, source: Source | None = None) -> None:
        super().__init__(node, fake, type(fake), source)
        self.plain = self

    def _own(self, tx: Interpreter, name: str) -> Any:
        """Methods of torch's own class of jagged tensors are called in the graph."""
        return MISSING if self.fake.layout is torch.jagged else super()._own(tx, name)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "shape" and self.fake.layout is torch.jagged:
            return self._sizes(tx)
        inner, _ = flatten(self.fake)
        if tx.output.side_effects.load_attr(self, name) is None:
            if name in inner:
                return call_in_graph(tx, "call_function", getattr, [self, tx.wrap(name)], {})
            if self.source is None and class_lookup(self.cls, name) is MISSING:
                held = self._instance_attr(tx, name)
                if held is not None:
                    return held
        return super().getattr(tx, name)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        if name != "size" or kwargs or self.fake.layout is not torch.jagged:
            return super().call_method(tx, name, args, kwargs)
        return self._sizes(tx).getitem(tx, args[0]) if args else self._sizes(tx)

    def _sizes(self, tx: Interpreter) -> Value:
        sizes = enumerate(self.fake.shape)
        return SizeValue(
            [RaggedSizeValue(self, d) if is_ragged(n) else tx.wrap(n) for d, n in sizes]
        )

    def _instance_attr(self, tx: Interpreter, name: str) -> Value | None:
        if self.source is not None:
            return super()._instance_attr(tx, name)
        held = self.fake.__dict__.get(name, MISSING)
        if held is MISSING:
            return None
        if not is_constant_type(type(held)):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        return tx.wrap(held)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        if name == "grad" and self.real is not None:
            super().setattr(tx, name, value)
            return
        raise Unsupported(breaks.AttributeMutation(self.describe(), name))

    def recipe(self) -> Recipe:
        return GraphOutput(self), []


class RaggedSizeValue(Value):
    """The size of a jagged tensor in its ragged dimension: compared, and handed on; computing with
    it breaks the graph.
    """

    def __init__(self, tensor: WrapperTensorValue, dim: int) -> None:
        super().__init__()
        self.tensor = tensor
        self.dim = dim

    def python_type(self) -> type:
        return torch.SymInt

    def describe(self) -> str:
        return f"the ragged size of {self.tensor.describe()}"

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if not isinstance(other, RaggedSizeValue) or op not in ("==", "!="):
            self._refuse()
        same = self._size() == other._size()
        return ConstantValue(same is (op == "=="))

    def _size(self) -> Any:
        return self.tensor.fake.shape[self.dim]

    def _refuse(self) -> NoReturn:
        raise Unsupported(breaks.UncapturedCall(self.describe()))

    def as_proxy(self) -> Any:
        self._refuse()

    def getattr(self, tx: Interpreter, name: str) -> Value:
        self._refuse()

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        self._refuse()

    def unary(self, tx: Interpreter, op: str) -> Value:
        self._refuse()

    def truth(self, tx: Interpreter) -> bool:
        self._refuse()

    def hash_key(self, tx: Interpreter) -> Hashable:
        self._refuse()

    def recipe(self) -> Recipe:
        return torch.Tensor.size, [self.tensor, exact(self.dim)]


class SameContext:
    """Whether a tensor is flattened as an example was: into tensors of the same names, with the
    same context.
    """

    def __init__(self, example: torch.Tensor) -> None:
        names, context = flatten(example)
        self._names = list(names)
        self._compare = getattr(type(example), "__metadata_guard__", None)
        compared = self._compared(context)
        try:
            self._context = copy.deepcopy(compared)
        except Exception:  # an object that cannot be copied; a change inside is not seen
            self._context = compared
        self.__name__ = f"has the context {context!r}"

    def _compared(self, context: Any) -> Any:
        """A class that compares contexts gets those of its own __tensor_flatten__."""
        return without_sizes(context) if self._compare is None else own_context(context)

    def __call__(self, value: Any) -> bool:
        names, context = flatten(value)
        if list(names) != self._names:
            return False
        context = self._compared(context)
        if self._compare is not None:
            return bool(self._compare(self._context, context))
        return bool(context == self._context)


@bound_late
def is_wrapper(obj: torch.Tensor) -> bool:
    """Whether capture knows a tensor as a wrapper of others."""
    return is_traceable_wrapper_subclass(obj) and is_wrapper_class(type(obj))


@bound_late
def is_wrapper_class(cls: type) -> bool:
    if not is_traceable_wrapper_subclass_type(cls):
        return False
    return cls in VALUES or not cls.__module__.startswith(_NOT_KNOWN)


_NOT_KNOWN = ("torch.distributed", "torch._subclasses")
# Classes of torch's distributed packages that capture knows -> the Value of their tensors.
VALUES: dict[type, type[WrapperTensorValue]] = {}


def _check_plain(tx: Interpreter, args: Sequence[Value], name: str) -> None:
    """Refuse to wrap tensors of users' classes: in the graph they are plain ones."""
    if tx.output.modes.asked:  # which see what the class reads of its parts
        raise Unsupported(breaks.UncapturedCall(name))
    lists = [arg.items(tx) for arg in args if isinstance(arg, SequenceValue)]
    for value in itertools.chain(args, *lists):
        if isinstance(value, SubclassTensorValue) and not value.is_wrapper:
            raise Unsupported(breaks.UncapturedCall(name))


@bound_late
def make_wrapper(
    tx: Interpreter, cls: type, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """A wrapper that the program makes: the class is called in the graph."""
    _check_plain(tx, [*args, *kwargs.values()], cls.__name__)
    return call_in_graph(tx, "call_function", cls, args, kwargs)


def _make_nested(function: Callable[..., Any], by_layout: bool) -> None:
    """Jagged tensors are made in the graph; torch's other nested tensors, which a layout that is
    not given asks for, are not.
    """

    @handles(function)
    def make(tx, *args, **kwargs):
        layout = kwargs.get("layout")
        given = None if layout is None or not layout.is_constant() else layout.as_constant()
        if by_layout and given is not torch.jagged:
            raise Unsupported(breaks.UncapturedCall(f"torch.nested.{function.__name__}"))
        _check_plain(tx, [*args, *kwargs.values()], f"torch.nested.{function.__name__}")
        _jagged._nt_view_dummy()  # torch keeps the first that is made: not one of fake tensors
        return call_in_graph(tx, "call_function", function, args, kwargs)


_make_nested(torch.nested.nested_tensor, by_layout=True)
_make_nested(torch.nested.as_nested_tensor, by_layout=True)
_make_nested(torch.nested.nested_tensor_from_jagged, by_layout=False)
_make_nested(_jagged.jagged_from_list, by_layout=False)
_make_nested(_jagged.nested_view_from_values_offsets, by_layout=False)
_make_nested(_jagged.nested_view_from_values_offsets_lengths, by_layout=False)
_make_nested(_jagged.buffer_from_jagged, by_layout=False)


@bound_late
def build_wrapper_tensor(tx: Interpreter, obj: torch.Tensor, source: Source | None) -> Value:
    """A wrapper from outside: an input of the graph."""
    if not _is_whole(obj):
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    if source is None:
        source = tx.output.install("tensor", obj)
    cls = type(obj)
    _check_parts(obj)
    fake = None if source.made_by_frame else symbolic_fake(tx, obj, source)
    guard_wrapper(tx, obj, source, fake)
    try:
        node = tx.output.add_input(obj, source, static=False, fake=fake)
    except (AssertionError, RuntimeError):  # torch's: unflattened, or as a view, it is of another
        # shape (t_() and set_() of a wrapper)
        raise Unsupported(breaks.UnknownObject(cls.__name__)) from None
    value = VALUES.get(cls, WrapperTensorValue)(node, node.meta["example_value"], source)
    if type(value.fake) is not type(obj):  # unflattened as an instance of a base
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    value.real = obj
    tx.output.adopt(value.fake, value)
    tx.output.tensors_override |= override_of(cls) is not MISSING and not overrides_by_default(cls)
    return tx.output.remember(obj, source, value)


def _is_whole(obj: torch.Tensor) -> bool:
    """Whether the tensors inside are there: __new__ gives one in which __init__ puts them later."""
    try:
        names, _ = flatten(obj)
    except AttributeError:
        return False
    return all(hasattr(obj, name) for name in names)


def _check_parts(obj: torch.Tensor) -> None:
    """Refuse wrappers whose inner tensors are neither plain tensors in memory nor such wrappers."""
    for name in flatten(obj)[0]:
        inner: Any = getattr(obj, name)
        kind = type(inner)
        if is_traceable_wrapper_subclass_type(kind):
            _check_parts(inner)
        elif kind not in (torch.Tensor, torch.nn.Parameter) or inner.layout is not torch.strided:
            raise Unsupported(breaks.UnknownObject(kind.__name__))
        elif inner.is_quantized:
            raise Unsupported(breaks.UnknownObject("quantized tensor"))


def symbolic_fake(tx: Interpreter, obj: torch.Tensor, source: Source) -> torch.Tensor | None:
    """The fake of a wrapper of which a size varies; None: all are constants."""
    symbols, mode = tx.output.symbols, tx.output.fake_mode
    names, context = flatten(obj)
    inner: dict[str, torch.Tensor] = {}
    varies = False
    for name in names:
        part, place = getattr(obj, name), AttrSource(source, name)
        made: torch.Tensor | None
        is_plain = not is_traceable_wrapper_subclass(part)
        if is_plain:  # sizes of the parts of a jagged tensor are equal by chance
            made = symbols.fake_input(part, place, obj.layout is not torch.jagged)
            if made is not None and obj.layout is torch.jagged and not _has_fixed_strides(made):
                made = None
        else:
            made = symbolic_fake(tx, part, place)
        varies |= made is not None
        inner[name] = mode.from_tensor(part, static_shapes=True) if made is None else made
    sizes, strides = list(obj.shape), list(obj.stride())
    if obj.layout is not torch.jagged:
        layout = symbols.layout(obj, source)
        if layout is not None and not varies and is_marked(obj):
            return None  # marks say nothing of the tensors inside
        varies |= layout is not None
        sizes, strides = layout or (sizes, strides)
    if not varies:
        return None
    with torch.inference_mode(obj.is_inference()), mode, torch.enable_grad():
        fake = unflatten(type(obj), inner, context, tuple(sizes), tuple(strides))
        fake.requires_grad_(obj.requires_grad)
        return fake if obj.is_leaf else fake.clone()


def _has_fixed_strides(fake: torch.Tensor) -> bool:
    """Whether strides are constants: torch multiplies ragged sizes by no symbol."""
    return not any(isinstance(stride, torch.SymInt) for stride in fake.stride())


def guard_wrapper(
    tx: Interpreter, obj: torch.Tensor, source: Source, fake: torch.Tensor | None
) -> None:
    """Guard the class, the metadata of the wrapper, the context, and the same of its inner
    tensors.
    """
    tx.guard(source, "type", type(obj))
    if obj.layout is not torch.jagged:
        tx.guard(source, "tensor", obj if fake is None else constant_sizes(obj, fake))
    tx.guard(source, "predicate", SameContext(obj))
    names, _ = flatten(obj)
    for name in names:
        inner: Any = getattr(obj, name)
        place = AttrSource(source, name)
        tx.output.parts.append((place, inner))
        kind, part = type(inner), getattr(fake, name, None)
        if is_traceable_wrapper_subclass_type(kind):
            guard_wrapper(tx, inner, place, part)
        else:
            tx.guard(place, "tensor", inner if part is None else constant_sizes(inner, part))


@bound_late
def wrapper_result(node: Node, fake: torch.Tensor) -> TensorValue:
    """The Value of a wrapper that an operator gave."""
    return VALUES.get(type(fake), WrapperTensorValue)(node, fake)
