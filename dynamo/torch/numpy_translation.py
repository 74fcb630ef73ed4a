"""numpy functions that torch computes within rounding: a call of torch._numpy is one node.

numpy itself determines the result: it runs once, while capturing, on dummy arrays with the
layouts of the operands. Its dtype, shape, strides, and whether it is an array or a scalar, new or a
view, are those of the captured result; where torch._numpy's result cannot be given them, the graph
breaks. The values agree within rounding, or to the last bit for those in EXACT.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamo.config import config
from dynamo.torch.numpy_values import (
    HALF,
    TO_NUMPY,
    TO_TORCH,
    ArrayValue,
    compute,
    refuse,
    require_quiet_errors,
)
from dynamo.values.base import Value
from dynamo.values.containers.containers import ListValue, SequenceValue, TupleValue
from dynamo.values.containers.ranges import SliceValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.literals import from_constant
from dynamo.values.scalars.symbol import SymbolValue
from dynamo.values.tensors.tensor import TensorValue
from fxgraph import effects
from fxgraph.symbolic_values import hint_of

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# Results within rounding. Left out are results that are not determined (signs of eigenvectors and
# singular vectors, the order of equal items), or whose shapes depend on values. Where a matrix has
# no inverse the graph fails, and the frame runs again with numpy.
ROUNDED = [
    "sum", "mean", "std", "var", "average", "prod", "cumsum", "cumprod", "median", "quantile",
    "percentile", "trace", "matmul", "dot", "vdot", "inner", "outer", "tensordot", "einsum",
    "kron", "cross", "linspace", "logspace", "geomspace", "arange", "vander", "sinc", "angle",
    "round", "around", "isclose", "ptp", "gradient", "convolve", "correlate", "i0", "hamming",
    "hanning", "blackman", "bartlett", "kaiser", "amax", "amin", "max", "min", "linalg.norm",
    "linalg.det", "linalg.multi_dot", "fft.fft", "fft.ifft", "fft.rfft", "fft.irfft", "fft.fftn",
    "fft.ifftn", "fft.rfftn", "fft.irfftn", "fft.fft2", "fft.ifft2", "fft.rfft2", "fft.irfft2",
    "fft.hfft", "fft.ihfft", "fft.fftfreq", "fft.rfftfreq", "linalg.inv", "linalg.solve",
    "linalg.cholesky", "linalg.pinv", "linalg.matrix_power", "linalg.eigvalsh",
    "linalg.cond", "linalg.matrix_rank",
]  # fmt: skip
EXACT = [
    "tile", "repeat", "roll", "take", "triu", "tril", "tri", "eye", "identity", "diff", "sort",
    "full", "full_like", "diag", "diagflat", "meshgrid", "column_stack", "dstack", "append",
    "split", "array_split", "hsplit", "vsplit", "dsplit", "moveaxis", "rollaxis", "atleast_1d",
    "atleast_2d", "atleast_3d", "nan_to_num", "isneginf", "isposinf", "iscomplex", "isreal",
    "real", "imag", "diagonal", "take_along_axis", "indices", "fft.fftshift", "fft.ifftshift",
    "zeros", "ones", "zeros_like", "ones_like", "where", "concatenate", "stack", "vstack",
    "hstack", "clip", "any", "all", "argmax", "argmin", "squeeze", "expand_dims", "tril_indices",
    "triu_indices", "diag_indices", "ix_",
]  # fmt: skip
# Functions of dtypes and numbers of dimensions alone, with constants of Python or numpy as results.
METADATA = [
    "ndim", "isscalar", "issubdtype", "result_type", "can_cast", "promote_types", "iscomplexobj",
    "isrealobj", "finfo", "iinfo", "min_scalar_type", "broadcast_shapes",
]  # fmt: skip
# Functions of METADATA whose answer depends on the value of a number.
_OF_VALUES = frozenset(["can_cast", "min_scalar_type", "broadcast_shapes"])
# dtype.kind of arrays for which torch's values are numpy's: the angle of -0.0 is not.
_KINDS = {"angle": "c"}
# The largest dummy operand; sizes above it are made smaller.
_LARGEST = 1 << 14
# The largest array of constants that stands in a graph as a literal, and those that need none.
_LITERAL = 1 << 10
_OF_ZEROS_AND_ONES = frozenset(["eye", "identity", "tri"])
_FILLS = _OF_ZEROS_AND_ONES | frozenset(["zeros", "ones", "full"])


def translate(path: str, *args: Any, **kwargs: Any) -> Any:
    """torch._numpy's function of this name on tensors: the target of the graph's node."""
    from torch import _numpy

    function = operator.attrgetter(path)(_numpy)
    if path in _OF_SAMPLES:
        function = _of_all(function, path)
    given = _mapped(args, torch.Tensor, _numpy.ndarray)
    named = _mapped(kwargs, torch.Tensor, _numpy.ndarray)
    try:
        found = function(*given, **named)
    except _numpy.linalg.LinAlgError as error:
        raise np.linalg.LinAlgError(*error.args) from error
    return _mapped(found, _numpy.ndarray, operator.attrgetter("tensor"))


effects.PURE_FUNCTIONS.add(translate)

# Without an axis, torch._numpy's results have a dimension too many. Several quantiles are computed
# in their own type, float64.
_OF_SAMPLES = {"median": 1, "quantile": 2, "percentile": 2}  # -> operands before the axis


def _of_all(function: Callable[..., Any], path: str) -> Callable[..., Any]:
    """`function`, which gives a quantile of all elements along the one axis of them in a row."""

    def call(a: Any, *args: Any, axis: Any = None, **kwargs: Any) -> Any:
        several: Any = args[0] if args else kwargs.get("q", 0.5)
        if path != "median" and np.ndim(several):
            a = a.astype("float64")
        if len(args) >= _OF_SAMPLES[path]:
            return function(a, *args, **kwargs)
        if axis is None and not kwargs.get("keepdims"):
            a, axis = a.ravel(), 0
        return function(a, *args, axis=axis, **kwargs)

    return call


def _mapped(nest: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    if isinstance(nest, kind):
        return change(nest)
    if isinstance(nest, (list, tuple)):
        return type(nest)(_mapped(item, kind, change) for item in nest)
    if isinstance(nest, dict):
        return {key: _mapped(item, kind, change) for key, item in nest.items()}
    return nest


def handler(path: str, real: Any) -> Callable[..., Value]:
    """A handler for calls of numpy's function `real`, known to torch._numpy as `path`."""
    rounded = path in ROUNDED

    @functools.wraps(real, updated=())
    def call(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        name = f"numpy.{path}"
        if config.numpy_exact and rounded:
            raise refuse(name)
        if "overwrite_input" in kwargs:  # the input is left in another order
            raise refuse(f"{name}(overwrite_input=...)")
        return _Call(tx, name, path, real, args, kwargs).result()

    return call


def metadata_handler(name: str, real: Any) -> Callable[..., Value]:
    """A handler for calls that numpy itself answers for dummies."""

    @functools.wraps(real, updated=())
    def call(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        call_of_dummies = _Call(tx, f"numpy.{name}", name, real, args, kwargs, False)
        if call_of_dummies.symbolic and name in _OF_VALUES:
            raise refuse(f"numpy.{name} of a number that varies")
        return tx.wrap(call_of_dummies.sample)

    return call


def grid_handler(tx: Interpreter, grid: Value, key: Value) -> Value:
    """np.mgrid[...] and np.ogrid[...] of constants, and np.mgrid[:m, :n] of numbers that vary."""
    known, real = grid.identity()
    if not known or type(real) not in (type(np.mgrid), type(np.ogrid)):
        raise refuse("a grid of numpy")
    name = "mgrid" if real is np.mgrid else "ogrid"
    parts = key.wrapped() if isinstance(key, SequenceValue) else [key]
    stops = [part.parts[1] for part in parts if isinstance(part, SliceValue) and _from_zero(part)]
    varies = any(stop.is_symbolic() for stop in stops)
    if varies and name == "mgrid" and key is not parts[0] and len(stops) == len(parts):
        return handler("indices", np.indices)(tx, TupleValue(stops))
    call = _Call(tx, f"numpy.{name}", name, real.__getitem__, [key], {}, False)
    made = call.literal(call.sample)
    if made is None:
        raise refuse(f"numpy.{name} of this size")
    return made


def _from_zero(part: SliceValue) -> bool:
    start, stop, step = part.parts
    plain = all(end.is_constant() for end in (start, step))
    return (
        plain
        and start.as_constant() in (None, 0)
        and step.as_constant() in (None, 1)
        and issubclass(stop.python_type(), int)
    )


def picked(tx: Interpreter, array: ArrayValue, key: Value, found: Value) -> Value:
    """The items at index lists beside slices and numbers, in numpy's own layout."""
    name = "index arrays among other indices"
    call = _Call(tx, name, "getitem", operator.getitem, [array, key], {}, False)
    return call.fitted(found, call.sample)


def laid_out(
    tx: Interpreter, name: str, ufunc: Any, operands: Sequence[Value], found: Value
) -> Value:
    """The result of an elementwise operation of arrays of any layout, in numpy's own."""
    call = _Call(tx, name, name, ufunc, operands, {}, False)
    return call.fitted(found, call.sample)


class _Call:
    """A call with its dummy operands, and the result that numpy gave for them."""

    def __init__(
        self,
        tx: Interpreter,
        name: str,
        path: str,
        real: Any,
        args: Sequence[Value],
        kwargs: dict[str, Value],
        computes: bool = True,
    ) -> None:
        if torch.get_default_device().type != "cpu":
            raise refuse(f"{name} while the default device is another")
        self.tx = tx
        self.name = name
        self.path = path
        self.symbolic = False
        self.arrays: list[tuple[ArrayValue, Any]] = []
        self.small = _SmallSizes()
        for value in (*args, *kwargs.values()):
            self._measure(value)
        dummies = [self._dummy(value) for value in args]
        named = {key: self._dummy(value) for key, value in kwargs.items()}
        if {"out", "order", "like", "casting", "where"} & named.keys():
            raise refuse(f"{name} with these arguments")
        try:
            with np.errstate(all="ignore"):
                self.sample = real(*dummies, **named)
        except Exception as error:
            raise refuse(f"{name} of these arguments") from error
        if not computes:
            return
        require_quiet_errors(tx, name)
        kinds = _KINDS.get(path, "biufc")
        known = TO_TORCH if path in ROUNDED else (*TO_TORCH, HALF)
        if any(a.dtype.kind not in kinds or a.dtype not in known for a, _ in self.arrays):
            raise refuse(f"{name} of these arguments")
        self.dummies, self.named = dummies, named
        self.args = [self._operand(value) for value in args]
        self.kwargs = {key: self._operand(value) for key, value in kwargs.items()}

    def _compare(self) -> None:
        """torch._numpy is to give numpy's result for the dummies."""
        args = map(_as_given, self.dummies)
        try:
            found = translate(self.path, *args, **_as_given(self.named))
            alike = _alike(found, self.sample)
        except Exception as error:
            raise refuse(f"{self.name} of these arguments") from error
        if not alike:
            raise refuse(f"{self.name} with a result of another value")

    # -- operands ------------------------------------------------------------------------------
    def _measure(self, value: Value) -> None:
        if isinstance(value, ArrayValue):
            shape = tuple(hint_of(size) for size in value.shape)
            if None in shape:
                raise refuse(f"{self.name} of an array whose size is data")
            self.small.add(shape)
        elif isinstance(value, SequenceValue):
            for item in value.wrapped():
                self._measure(item)

    def _dummy(self, value: Value) -> Any:
        """The operand for numpy's own run."""
        if isinstance(value, ArrayValue):
            made = self._dummy_array(value)
            self.arrays.append((value, made))
            return made
        if isinstance(value, SequenceValue):
            kind = value.python_type()
            if kind not in (list, tuple, torch.Size):
                raise refuse(f"{self.name} of a {kind.__name__}")
            return (list if kind is list else tuple)(self._dummy(item) for item in value.wrapped())
        if isinstance(value, SymbolValue):
            self.symbolic = True
            return hint_of(value.symbolic)
        if isinstance(value, SliceValue) and all(part.is_constant() for part in value.parts):
            return value.as_constant()
        return _constant_of(value, self.name)

    def _dummy_array(self, array: ArrayValue) -> Any:
        fake = array.tensor.fake
        shape = self.small.of(tuple(hint_of(size) for size in fake.shape))
        if array.scalar:
            return array.dtype.type(1)
        strides = [hint_of(stride) for stride in fake.stride()]
        if not self.small.changes:
            extent = sum((size - 1) * stride for size, stride in zip(shape, strides)) + 1
            memory = _values(max(extent, 1), array.dtype)
            bytes_ = [stride * array.dtype.itemsize for stride in strides]
            made = np.lib.stride_tricks.as_strided(memory, shape, bytes_)
            if 0 in strides and 0 not in shape:
                raise refuse(f"{self.name} of an expanded array")
        else:
            order = _order(strides)
            if not fake.permute(order).is_contiguous():
                raise refuse(f"{self.name} of a large array with gaps")
            turned = _values(int(np.prod(shape)), array.dtype).reshape([shape[d] for d in order])
            made = turned.transpose([order.index(d) for d in range(len(shape))])
        if len(shape) >= 2 and shape[-1] == shape[-2] and array.dtype.kind in "fc":
            made[..., range(shape[-1]), range(shape[-1])] += shape[-1]  # has an inverse, and a root
        return made

    def _operand(self, value: Value) -> Value:
        """The operand for the graph."""
        if isinstance(value, ArrayValue):
            return value.tensor
        if isinstance(value, SequenceValue):
            items = [self._operand(item) for item in value.wrapped()]
            return ListValue(items) if value.python_type() is list else TupleValue(items)
        if isinstance(value, SymbolValue):
            return value
        constant = _constant_of(value, self.name)
        if constant in TO_TORCH and isinstance(constant, (type, np.dtype)):
            return ConstantValue(np.dtype(constant).name)
        if isinstance(constant, np.generic):
            if constant.dtype not in TO_TORCH:
                raise refuse(f"{self.name} of {constant.dtype}")
            kind = ConstantValue(TO_TORCH[constant.dtype])
            item = ConstantValue(constant.item())
            size = ConstantValue(())
            return compute(self.tx, "call_function", torch.full, [size, item], {"dtype": kind})
        if isinstance(constant, type):
            return ConstantValue(np.dtype(constant).name)
        return value

    # -- the result ----------------------------------------------------------------------------
    def result(self) -> Value:
        sample = self.sample
        if any(sample is dummy for dummy in self.dummies[1:]):  # `out`, by its place
            raise refuse(f"{self.name}, which writes its result to an argument,")
        if not self.arrays and not self.symbolic and not _holds_array(sample):
            return self.tx.wrap(sample)
        _holds_only_arrays(sample, self.name)
        if not self.arrays and not self.symbolic and self.path not in _FILLS:
            literal = self.literal(sample)
            if literal is not None:
                return literal
        self._compare()
        path = ConstantValue(self.path)
        found = compute(self.tx, "call_function", translate, [path, *self.args], self.kwargs)
        return self.fitted(found, sample)

    def literal(self, sample: Any) -> Value | None:
        """An array, or a tuple of arrays, that depends on constants alone, if it is small."""
        if type(sample) is tuple:
            parts = {id(item): item for item in sample}
            made = {key: self.literal(item) for key, item in parts.items()}
            items = [value for item in sample if (value := made[id(item)]) is not None]
            pairs = itertools.combinations(parts.values(), 2)
            if len(items) < len(sample) or any(np.may_share_memory(*pair) for pair in pairs):
                return None
            return TupleValue(items)
        if not isinstance(sample, np.ndarray) or sample.size > _LITERAL:
            return None
        kind = ConstantValue(TO_TORCH[sample.dtype])
        data = from_constant(sample.tolist())
        named: dict[str, Value] = {"dtype": kind, "device": ConstantValue("cpu")}
        return self.fitted(compute(self.tx, "call_function", torch.tensor, [data], named), sample)

    def fitted(self, found: Value, sample: Any) -> Value:
        if isinstance(sample, (list, tuple)):
            if not isinstance(found, SequenceValue):
                raise refuse(f"{self.name} with a result of another form")
            parts = found.wrapped()
            if len(parts) != len(sample) or type(sample) not in (list, tuple):
                raise refuse(f"{self.name} with a result of another form")
            kind = ListValue if type(sample) is list else TupleValue
            return kind([self.fitted(part, one) for part, one in zip(parts, sample)])
        for array, dummy in self.arrays:
            if sample is dummy:
                return array
        if not isinstance(found, TensorValue):
            raise refuse(f"{self.name} with a result of another type")
        found = self._of_dtype(found, sample.dtype)
        fake = found.fake
        same_shape = fake.ndim == sample.ndim and (
            self.small.changes or tuple(map(hint_of, fake.shape)) == sample.shape
        )
        if not same_shape:
            raise refuse(f"{self.name} with a result of another shape")
        view = [a for a, dummy in self.arrays if np.may_share_memory(sample, dummy)]
        if isinstance(sample, np.ndarray) and not sample.flags.writeable:
            raise refuse(f"{self.name}, whose result cannot be written,")
        if view and any(a.is_reversed for a in view):
            raise refuse(f"{self.name}, which gives a view of a reversed one here,")
        shared = [a for a, _ in self.arrays if same_memory(a.tensor, found)]
        if view and isinstance(sample, np.ndarray):
            same = _same_strides(fake, sample)
            if self.small.changes:
                same = _order(fake.stride()) == _order(sample.strides)
            if not shared or not same:
                raise refuse(f"{self.name}, which gives a view here,")
        else:
            found = self._fresh(found, sample, bool(shared))
        made = ArrayValue(found)
        made.scalar = isinstance(sample, np.generic)
        return made

    def _of_dtype(self, found: TensorValue, dtype: Any) -> TensorValue:
        """The result in numpy's dtype, which may be narrower than torch._numpy's."""
        ours = TO_NUMPY.get(found.fake.dtype)
        if ours == dtype:
            return found
        if self.path in _OF_ZEROS_AND_ONES:
            return self._method(found, "to", ConstantValue(TO_TORCH[dtype]))
        if ours is None or ours.kind != dtype.kind or ours.itemsize < dtype.itemsize:
            raise refuse(f"{self.name} with a result of another type")
        return self._method(found, "to", ConstantValue(TO_TORCH[dtype]))

    def _fresh(self, found: TensorValue, sample: Any, shared: bool) -> TensorValue:
        """The result in memory of its own, in numpy's layout."""
        order = _order(sample.strides)
        inverse = [order.index(d) for d in range(sample.ndim)]
        turned = found.fake.permute(order)
        if not shared and turned.is_contiguous():
            return found
        plain = order == sorted(order)
        if not plain:
            found = self._method(found, "permute", ConstantValue(tuple(order)))
        found = self._method(found, "clone", memory_format=ConstantValue(torch.contiguous_format))
        return found if plain else self._method(found, "permute", ConstantValue(tuple(inverse)))

    def _method(self, tensor: TensorValue, name: str, *args: Value, **kwargs: Value) -> TensorValue:
        made = compute(self.tx, "call_method", name, [tensor, *args], kwargs)
        assert isinstance(made, TensorValue)
        return made


def _constant_of(value: Value, name: str) -> Any:
    known, real = value.identity()
    if not known:
        number = value.is_constant() or value.is_symbolic()
        real = value.as_constant() if number else None
        if not number:
            raise refuse(f"{name} of {value.describe()}")
    plain = (bool, int, float, complex, str, type(None), np.generic, np.dtype, type, slice)
    if not isinstance(real, plain) and real is not Ellipsis:
        raise refuse(f"{name} of {value.describe()}")
    return real


class _SmallSizes:
    """Sizes of dummies: the operands' own, or smaller ones in the same order for large ones."""

    def __init__(self) -> None:
        self.sizes: set[int] = set()
        self.changes = False

    def add(self, shape: tuple[int, ...]) -> None:
        self.sizes.update(shape)
        self.changes |= int(np.prod(shape, dtype=object)) > _LARGEST

    def of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if not self.changes:
            return shape
        larger = sorted(size for size in self.sizes if size > 2)
        small = {size: min(size, 3 + place) for place, size in enumerate(larger)}
        return tuple(small.get(size, size) for size in shape)


@functools.cache
def _random(count: int) -> Any:
    return np.random.default_rng(0).uniform(0.5, 1.0, count)


def _values(count: int, dtype: Any) -> Any:
    if dtype.kind in "fc":
        return _random(count).astype(dtype)
    return np.ones(count, dtype)


def _as_given(dummy: Any) -> Any:
    """A dummy operand as the graph's node has the operand."""
    if isinstance(dummy, (np.ndarray, np.generic)):
        return torch.from_numpy(np.array(dummy))
    if isinstance(dummy, (type, np.dtype)):
        return np.dtype(dummy).name
    if isinstance(dummy, (list, tuple)):
        return type(dummy)(map(_as_given, dummy))
    if isinstance(dummy, dict):
        return {key: _as_given(value) for key, value in dummy.items()}
    return dummy


def _alike(found: Any, sample: Any) -> bool:
    """Whether values agree within rounding; types and layouts are for others to compare."""
    if isinstance(sample, (list, tuple)):
        return len(found) == len(sample) and all(map(_alike, found, sample))
    if not isinstance(sample, (np.ndarray, np.generic)):
        return True
    values = np.asarray(found)
    if values.shape != sample.shape:
        return False
    if sample.dtype.kind not in "fc":
        return bool(np.array_equal(values, sample))
    within = 1e-3 if sample.dtype.itemsize <= 4 or sample.dtype == np.complex64 else 1e-6
    return bool(np.allclose(values, sample, within, within, equal_nan=True))


def _holds_array(sample: Any) -> bool:
    if isinstance(sample, (list, tuple)):
        return any(map(_holds_array, sample))
    return isinstance(sample, np.ndarray)


def _holds_only_arrays(sample: Any, name: str) -> None:
    if isinstance(sample, (list, tuple)):
        for item in sample:
            _holds_only_arrays(item, name)
    elif not isinstance(sample, (np.ndarray, np.generic)) or sample.dtype not in TO_TORCH:
        raise refuse(f"{name} with a result of {getattr(sample, 'dtype', type(sample).__name__)}")


def same_memory(one: Value, other: Value) -> bool:
    """Whether two tensors of the graph have one storage."""
    assert isinstance(one, TensorValue) and isinstance(other, TensorValue)
    storages = [value.fake.untyped_storage()._cdata for value in (one, other)]
    return storages[0] == storages[1]


def _order(strides: Sequence[int]) -> list[int]:
    return sorted(range(len(strides)), key=lambda d: -hint_of(strides[d]))


def _same_strides(fake: torch.Tensor, sample: Any) -> bool:
    pairs = zip(fake.stride(), sample.strides, sample.shape)
    return all(ours * sample.itemsize == theirs for ours, theirs, size in pairs if size > 1)
