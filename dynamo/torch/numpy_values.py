"""numpy arrays and scalars in captured code: arrays are tensors of the graph that share memory.

An array from outside is a graph input (torch.from_numpy of it); one that leaves the frame is
`tensor.numpy()`. What is traced, and where numpy and torch agree to the last bit, stands in
numpy_functions.py; everything else breaks the graph and runs in numpy.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from dynamo import breaks, numpy_wrapping
from dynamo.errors import Unsupported
from dynamo.guards.sources import ModuleSource, Source
from dynamo.torch.overrides import unseen
from dynamo.torch.tensor_subclass import SubclassTensorValue
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.builtins.table import handles
from dynamo.values.containers.containers import TupleValue
from dynamo.values.recipes import Attribute, Recipe
from dynamo.values.scalars import operators
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.tensor import READ_METHODS, TensorValue, call_in_graph

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# The dtypes that both compute with. Arrays of half ones are converted, indexed, compared with
# themselves (their largest items) and copied; their arithmetic is left to numpy.
_NAMES = ["bool", "uint8", "int8", "int16", "int32", "int64"]
_NAMES += ["float32", "float64", "complex64", "complex128"]
TO_TORCH: dict[Any, torch.dtype] = {np.dtype(name): getattr(torch, name) for name in _NAMES}
HALF: Any = np.dtype(np.float16)
TO_NUMPY = {ours: theirs for theirs, ours in TO_TORCH.items()} | {torch.float16: HALF}
# name -> (tx, array, *args, **kwargs); filled by numpy_functions.py, the list of the known ones.
METHODS: dict[str, Callable[..., Value]] = {}
# function of numpy -> (tx, *args, **kwargs); filled as METHODS is.
FUNCTIONS: dict[Any, Callable[..., Value]] = {}
# The implementation of operators: (tx, symbol, operands) -> Value.
OPERATORS: list[Callable[..., Value]] = []
_WITH_TENSORS = ("+", "-", "*", "/", "+=", "-=", "*=", "/=")  # rounded alike for numbers


def refuse(what: str) -> Unsupported:
    """The break at an operation that is left to numpy."""
    return Unsupported(breaks.NumpyConversion(what))


def floating_point_errors_pass(module: Any) -> bool:
    """Whether numpy raises nothing and calls nothing for floating-point errors, as graphs do."""
    wanted = set(np.geterr().values())
    if wanted == {"ignore"}:
        return True
    if not wanted <= {"ignore", "warn"}:
        return False
    for action, text, category, place, _ in warnings.filters:
        if issubclass(RuntimeWarning, category):
            if action == "error":
                return False
            if text is None and place is None:
                break
    return True


def require_quiet_errors(tx: Interpreter, name: str) -> None:
    """numpy's error state, and filters that turn its warnings into errors, are guarded."""
    if not floating_point_errors_pass(np):
        raise refuse(f"{name} while numpy raises floating-point errors")
    tx.guard(ModuleSource("numpy"), "predicate", floating_point_errors_pass)


class ArrayValue(Value):
    """An array; `scalar`: a numpy scalar (numpy's form of a 0-dimensional result)."""

    is_reversed = False  # a view with negative strides (numpy_reversed.py)

    def __init__(self, tensor: TensorValue, source: Source | None = None) -> None:
        super().__init__(source)
        self.tensor = tensor
        self.real: Any = None
        self.scalar = False

    @property
    def dtype(self) -> Any:
        return TO_NUMPY[self.tensor.fake.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.fake.shape)

    def python_type(self) -> type:
        return self.dtype.type if self.scalar else np.ndarray

    def describe(self) -> str:
        where = f" {self.source.name}" if self.source is not None else ""
        return f"array{where} of shape {self.shape}"

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name in _METADATA:
            return tx.wrap(_METADATA[name](self))
        if name == "T":
            return METHODS["transpose"](tx, self)
        if name in ("real", "imag"):
            return _part(tx, self, name)
        if name in METHODS or name in _READS_VALUES:
            return ArrayMethodValue(self, name)
        raise refuse(f"ndarray.{name}")

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        if name in _READS_VALUES:
            key = self._place(args) if name == "item" and args and not kwargs else None
            if key is not None:
                return self.getitem(tx, key).call_method(tx, "item", [], {})
            if args or kwargs or (self.shape and name not in ("item", "tolist")):
                raise Unsupported(breaks.DataDependentValue(f"ndarray.{name}()"))
            return self.tensor.call_method(tx, name, [], {})
        if name not in METHODS:
            raise refuse(f"ndarray.{name}()")
        return METHODS[name](tx, self, *args, **kwargs)

    def _place(self, args: Sequence[Value]) -> Value | None:
        """The key of array.item(*args): of an index for each dimension, or of one that counts all
        items; None: numpy has to tell.
        """
        if len(args) == 1 and isinstance(args[0], TupleValue):
            args = list(args[0].wrapped())
        if self.scalar or not all(type(arg) is ConstantValue for arg in args):
            return None
        places = [arg.as_constant() for arg in args]
        if not all(type(place) is int for place in places):
            return None
        if len(places) == 1 and len(self.shape) > 1:
            if not all(type(size) is int for size in self.shape):
                return None
            count = math.prod(self.shape)
            if not -count <= places[0] < count:
                return None
            places = [int(i) for i in np.unravel_index(places[0] % count, self.shape)]
        if len(places) != len(self.shape) or not places:
            return None
        return ConstantValue(tuple(places) if len(places) > 1 else places[0])

    def _known(self, tx: Interpreter, name: str) -> Value | None:
        """The method that reads the array, where its values are known."""
        if tx.output.known_tensors.real_of(self.tensor.fake) is None:
            return None
        return READ_METHODS[name](tx, self.tensor)

    def truth(self, tx: Interpreter) -> bool:
        known = self._known(tx, "__bool__") if self.tensor.fake.numel() == 1 else None
        if known is None:
            raise Unsupported(breaks.DataDependentJump(self.describe()))
        return known.as_constant()

    def as_condition(self) -> Value:
        return self.tensor if self.tensor.fake.numel() == 1 else self

    def truth_value(self, tx: Interpreter, negated: bool = False) -> Value:
        condition = self.as_condition()
        return (
            super().truth_value(tx, negated)
            if condition is self
            else condition.truth_value(tx, negated)
        )

    def length(self, tx: Interpreter) -> int:
        if not self.shape:
            raise refuse("len() of an array without dimensions")
        return int(self.shape[0])

    def length_value(self, tx: Interpreter) -> Value:
        return tx.wrap(self.shape[0]) if self.shape else super().length_value(tx)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        return METHODS["__getitem__"](tx, self, key)

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        METHODS["__setitem__"](tx, self, key, value)

    def unpack(self, tx: Interpreter) -> list[Value]:
        return [self.getitem(tx, ConstantValue(i)) for i in range(self.length(tx))]

    def iterate(self, tx: Interpreter) -> Value:
        return TupleValue(self.unpack(tx)).iterate(tx)

    def hash_key(self, tx: Interpreter) -> Hashable:
        raise Unsupported(breaks.DataDependentValue(f"hash() of {self.describe()}"))

    def contains(self, tx: Interpreter, item: Value) -> Value:
        raise Unsupported(breaks.DataDependentValue("item in array"))

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        number = self._as_number_for(tx, other) if op in _WITH_TENSORS else None
        if number is not None:
            left, right = (other, number) if reflected else (number, other)
            return operators.binary_op(tx, op, left, right)
        return OPERATORS[0](tx, op, [other, self] if reflected else [self, other])

    def _as_number_for(self, tx: Interpreter, other: Value) -> Value | None:
        """The tensor without dimensions that a tensor takes as it takes this scalar: a number."""
        if not self.scalar or not isinstance(other, TensorValue) or self.dtype.kind not in "iuf":
            return None
        wanted = torch.result_type(other.fake, self.dtype.type(1).item())
        if torch.result_type(other.fake, self.tensor.fake) == wanted:
            return self.tensor
        if not wanted.is_floating_point:
            return None
        return compute(tx, "call_method", "to", [self.tensor, ConstantValue(wanted)], {})

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        number = self._as_number_for(tx, other)
        if number is not None:
            return operators.compare_op(tx, op, number, other)
        return OPERATORS[0](tx, op, [self, other])

    def unary(self, tx: Interpreter, op: str) -> Value | None:
        return OPERATORS[0](tx, f"{op}x", [self])

    def recipe(self) -> Recipe:
        return to_scalar if self.scalar else to_array, [self.tensor]


def _part(tx: Interpreter, array: ArrayValue, name: str) -> Value:
    """array.real and array.imag: views of complex arrays; real ones are their own real part."""
    if array.dtype.kind != "c":
        if name == "real":
            return array
        raise refuse("ndarray.imag of real numbers")
    target = torch.real if name == "real" else torch.imag
    part = compute(tx, "call_function", target, [array.tensor], {})
    assert isinstance(part, TensorValue)
    made = ArrayValue(part)
    made.scalar = array.scalar
    return made


class LimitsValue(ConstantValue):
    """numpy.finfo(dtype), numpy.iinfo(dtype)."""

    def getattr(self, tx: Interpreter, name: str) -> Value:
        found = getattr(self.value, name, None)
        if not isinstance(found, (int, float, str, np.generic, np.dtype)):
            raise refuse(f"{type(self.value).__name__}.{name}")
        return tx.wrap(found)


class DtypeValue(ConstantValue):
    """A numpy dtype; equal to the scalar type and the name of the same."""

    def as_proxy(self) -> Any:
        raise Unsupported(breaks.NotGraphArgument(self.describe()))

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        known, real = other.identity()
        if not known or op not in ("==", "!="):
            raise refuse("a comparison of dtypes")
        return ConstantValue((self.value == real) is (op == "=="))


class ArrayMethodValue(Value):
    """array.method, not yet called."""

    def __init__(self, array: ArrayValue, name: str) -> None:
        super().__init__()
        self.array = array
        self.name = name

    def describe(self) -> str:
        return f"ndarray.{self.name}"

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.array.call_method(tx, self.name, args, kwargs)

    def recipe(self) -> Recipe:
        return Attribute(self.name), [self.array]


_METADATA: dict[str, Callable[[ArrayValue], Any]] = {
    "shape": lambda a: a.shape,
    "ndim": lambda a: len(a.shape),
    "size": lambda a: a.tensor.fake.numel(),
    "dtype": lambda a: a.dtype,
    "itemsize": lambda a: a.dtype.itemsize,
    "nbytes": lambda a: a.tensor.fake.numel() * a.dtype.itemsize,
    "strides": lambda a: _strides(a),
}


def _strides(array: ArrayValue) -> tuple[int, ...]:
    """The strides in bytes; those of dimensions of size 1 or less are numpy's own."""
    if min(array.shape, default=2) < 2:
        raise refuse("the strides of an array with a dimension of size 1")
    return tuple(s * array.dtype.itemsize for s in array.tensor.fake.stride())


_READS_VALUES = frozenset(["item", "tolist", "__float__", "__int__", "__bool__", "__index__"])


def to_array(tensor: torch.Tensor) -> Any:
    """The array with the memory of a tensor of the graph."""
    return tensor.numpy()


def to_scalar(tensor: torch.Tensor) -> Any:
    return tensor.numpy()[()]


def view_of_array(array: Any) -> Any:
    """The tensor with the memory of an array; None where there is none, for guards to fail."""
    return torch.from_numpy(array) if array.flags.writeable and _fits_torch(array) else None


def view_of_read_only(array: Any) -> Any:
    """The same for an array that refuses writes, of which torch would warn."""
    if array.flags.writeable or not _fits_torch(array):
        return None
    return torch.from_numpy(np.asarray(_Writable(array)))


class _Writable:
    """The memory of an array that refuses writes."""

    def __init__(self, array: Any) -> None:
        self.array = array
        shown = array.__array_interface__
        self.__array_interface__ = {**shown, "data": (shown["data"][0], False)}


def _fits_torch(array: Any) -> bool:
    if array.dtype not in TO_TORCH and array.dtype != HALF:
        return False  # an item may have no bytes: np.dtype("S0")
    whole = all(stride % array.itemsize == 0 for stride in array.strides)
    return min(array.strides, default=0) >= 0 and whole


def array_of(tx: Interpreter, tensor: TensorValue) -> ArrayValue:
    """numpy's view of a tensor: the same memory."""
    fake = tensor.fake
    if fake.requires_grad or fake.device.type != "cpu" or fake.is_conj() or fake.is_neg():
        raise refuse("Tensor.numpy() of a tensor with a gradient, on a device, or conjugated")
    if fake.dtype not in TO_NUMPY:
        raise refuse(f"Tensor.numpy() of {fake.dtype}")
    if is_traceable_wrapper_subclass(fake):  # has no memory of its own: eager raises
        raise refuse("Tensor.numpy() of a wrapper")
    return ArrayValue(tensor.plain if isinstance(tensor, SubclassTensorValue) else tensor)


def compute(
    tx: Interpreter, op: str, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """A node of the graph for numpy's own work, of which torch asks no class and no mode."""
    if not tx.output.has_overrides:
        return call_in_graph(tx, op, target, args, kwargs)
    with unseen(tx):
        return call_in_graph(tx, op, target, args, kwargs)


def result(tx: Interpreter, tensor: Value, dtype: Any = None) -> ArrayValue:
    """The array, or scalar, that a function of numpy returns."""
    assert isinstance(tensor, TensorValue)
    found = TO_NUMPY.get(tensor.fake.dtype)
    if found is None or dtype not in (None, found):
        raise refuse(f"a result of {tensor.fake.dtype}")
    array = ArrayValue(tensor)
    array.scalar = tensor.fake.ndim == 0
    return array


def alias_of(tx: Interpreter, array: ArrayValue) -> Value:
    """torch.from_numpy(array): another tensor with its memory."""
    if array.is_reversed:
        raise refuse("a tensor of a reversed view")
    return compute(tx, "call_method", "detach", [array.tensor], {})


@handles(numpy_wrapping.array_of)
def _wrapped_array(tx, tensor):
    """For wrap_numpy: an array with the tensor's history."""
    fake = tensor.fake
    if type(tensor) is not TensorValue or fake.dtype not in TO_NUMPY or fake.is_conj():
        raise refuse("an array of such a tensor")
    return ArrayValue(tensor)


@handles(numpy_wrapping.tensor_of)
def _unwrapped_tensor(tx, array):
    if not isinstance(array, ArrayValue) or array.is_reversed:
        raise refuse("a tensor of such an array")
    if array.tensor.node.op.startswith("call_"):
        return array.tensor
    return compute(tx, "call_method", "view_as", [array.tensor, array.tensor], {})


@builder(np.finfo, np.iinfo)
def build_limits(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """The limits of a dtype."""
    tx.guard(source, "id", obj)
    return LimitsValue(obj, source)


def divides_as_torch(ufunc: Any, array: Value, divisor: Value | None = None) -> bool:
    """Whether integers are divided by neither 0 nor -1, or raised to a power of 0 or more."""
    if divisor is None or not divisor.is_constant() or type(divisor.as_constant()) is not int:
        return False
    if not isinstance(array, ArrayValue) or array.dtype.kind not in "iu":
        return False
    number = divisor.as_constant()
    if ufunc is np.power:
        return number >= 0
    return ufunc in (np.floor_divide, np.remainder, np.fmod) and number not in (0, -1)
