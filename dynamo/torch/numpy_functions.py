"""Functions of numpy that are traced to torch: those that give the same dtype, and the same bits or
values within rounding.

To the bit: elementwise arithmetic that IEEE rounds exactly, comparisons, bits, reductions of
integers and those that only choose, shapes, indices, copies. Within rounding (config.numpy_exact
leaves them to numpy): square roots and transcendental functions (numpy_ufuncs.py), sums of floats,
matrix products and whatever else numpy_translation.py names. Random numbers are left to numpy.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.torch.numpy_elementwise import (
    array_view,
    call_torch,
    converted,
    elementwise,
    not_scalar,
    number_of,
    of_tensors,
    operator_of,
    row_major,
    sample_of,
    varies_within,
    written,
)
from dynamo.torch.numpy_items import getitem, is_index, setitem
from dynamo.torch.numpy_reversed import BroadcastArray, ReadOnlyArray, refuse_reversed, view_of
from dynamo.torch.numpy_scalars import NumpyNumber, reduction_of_numbers
from dynamo.torch.numpy_translation import (
    EXACT,
    METADATA,
    ROUNDED,
    grid_handler,
    handler,
    metadata_handler,
)
from dynamo.torch.numpy_values import (
    FUNCTIONS,
    HALF,
    METHODS,
    TO_TORCH,
    ArrayValue,
    alias_of,
    array_of,
    compute,
    refuse,
    require_quiet_errors,
    result,
)
from dynamo.values.base import Value, is_none
from dynamo.values.builder import special_builder
from dynamo.values.builtins.table import TABLE, BuiltinValue
from dynamo.values.containers.containers import ListValue, SequenceValue, TupleValue
from dynamo.values.functions.function import OpaqueFunctionValue
from dynamo.values.objects.exceptions import call_real
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.literals import from_constant
from dynamo.values.scalars.symbol import SymbolValue
from dynamo.values.tensors.tensor import SPECIAL_METHODS, TensorValue
from fxgraph.symbolic_values import is_symbolic

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def _with_known_arguments(name: str, handler: Callable[..., Value]) -> Callable[..., Value]:
    """Arguments that the handler does not know (out, order, dtype, ...) are left to numpy."""
    signature = inspect.signature(handler)

    @functools.wraps(handler)
    def checked(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        try:
            signature.bind(tx, *args, **kwargs)
        except TypeError as error:
            raise refuse(f"{name} with these arguments") from error
        if "array" in signature.parameters and not (args and isinstance(args[0], ArrayValue)):
            raise refuse(f"{name} of what is not an array")
        return handler(tx, *args, **kwargs)

    return checked


# -- registration ----------------------------------------------------------------------------------
def _known(*names: str, method: bool = True, function: bool = True) -> Callable[..., Any]:
    """Decorator: the handler of numpy.name(array, ...) and of array.name(...)."""

    def register(handler: Callable[..., Value]) -> Callable[..., Value]:
        for name in names:
            checked = _with_known_arguments(f"numpy.{name}", handler)
            if method and hasattr(np.ndarray, name):
                METHODS[name] = checked
            if function and hasattr(np, name):
                FUNCTIONS[getattr(np, name)] = checked
        return handler

    return register


def _constant(value: Value | None, default: Any = None) -> Any:
    return default if value is None else value.as_constant()


# -- reductions ------------------------------------------------------------------------------------
def _reduction(name: str, torch_function: Callable[..., Any], kinds: str) -> None:
    """Register a reduction. `kinds`: dtype.kind of the operands that reduce to the same bits."""

    @_known(name)
    def reduce(tx, array, axis=None, *rest, keepdims=None, **kwargs):
        array = row_major(array, f"numpy.{name}")
        if rest or kwargs or array.dtype.kind not in kinds:
            raise refuse(f"numpy.{name} of {array.dtype}")
        tensor = array.tensor
        if name in ("any", "all"):
            tensor = converted(tx, array, np.dtype(bool))
        answer = getattr(np, name)(np.ones(1, array.dtype)).dtype
        dim, keep = _constant(axis), bool(_constant(keepdims, False))
        if dim is None and (keep or not array.shape):
            raise refuse(f"numpy.{name} of all dimensions, kept")
        if dim is None:
            tensor, dim = call_torch(tx, "reshape", tensor, -1), 0
        if type(dim) is not int:
            raise refuse(f"numpy.{name} over several dimensions")
        return result(tx, call_torch(tx, torch_function, tensor, dim, keep), answer)


_reduction("sum", torch.sum, "bi")
_reduction("prod", torch.prod, "bi")
_reduction("max", torch.amax, "biuf")
_reduction("min", torch.amin, "biuf")
_reduction("any", torch.any, "biuf")
_reduction("all", torch.all, "biuf")
_reduction("argmax", torch.argmax, "iuf")
_reduction("argmin", torch.argmin, "iuf")


@_known("cumsum")
def _cumsum(tx, array, axis=None):
    array = row_major(array, "numpy.cumsum")
    if array.dtype.kind not in "bi":
        raise refuse(f"numpy.cumsum of {array.dtype}")
    tensor = array.tensor if axis is not None else call_torch(tx, "reshape", array.tensor, -1)
    return result(tx, call_torch(tx, torch.cumsum, tensor, _constant(axis, 0)), np.dtype(np.int64))


# -- shapes ----------------------------------------------------------------------------------------
def _sizes(args: Sequence[Value]) -> tuple[Any, ...]:
    """f(2, 3) and f((2, 3)); sizes that are symbols stay symbols."""
    if len(args) == 1 and isinstance(args[0], SequenceValue):
        args = args[0].wrapped()
    elif len(args) == 1 and not args[0].is_symbolic():
        given = args[0].as_constant()
        return tuple(given) if isinstance(given, (tuple, list, range)) else (given,)
    return tuple(map(_integer, args))


def _integer(value: Value) -> Any:
    """The integer, a symbol's torch.SymInt, that a value is."""
    if isinstance(value, NumpyNumber):
        value = value.number
    if isinstance(value, SymbolValue) and isinstance(value.symbolic, torch.SymInt):
        return value.symbolic
    return value.as_constant()


@_known("reshape")
def _reshape(tx, array, *shape):
    if isinstance(array, ReadOnlyArray) and array.tensor.fake.is_contiguous():
        sizes = tuple(map(int, _sizes(shape)))
        viewed = call_torch(tx, "view", array.tensor, sizes)
        return view_of(array, viewed, np.reshape, ConstantValue(sizes))
    if isinstance(array, BroadcastArray):
        sizes = tuple(map(int, _sizes(shape)))
        copied = call_torch(tx, "view", array.copied_as(sizes), sizes)
        return array_view(call_torch(tx, "clone", copied))
    if array.scalar:
        viewed = call_torch(tx, "view", call_torch(tx, "clone", array.tensor), _sizes(shape))
        return array_view(viewed) if viewed.fake.ndim else result(tx, viewed)
    refuse_reversed(array, "reshape")
    if not array.tensor.fake.is_contiguous():
        is_tuple = len(shape) == 1 and isinstance(shape[0], SequenceValue)
        return _REORDERED(tx, array, shape[0] if is_tuple else TupleValue(shape))
    return array_view(call_torch(tx, "view", array.tensor, _sizes(shape)))


_REORDERED = handler("reshape", np.reshape)


@_known("ravel")
def _ravel(tx, array):
    if isinstance(array, ReadOnlyArray) and array.tensor.fake.is_contiguous():
        return view_of(array, call_torch(tx, "view", array.tensor, -1), np.ravel)
    if array.scalar:
        return _reshape(tx, array, ConstantValue(-1))
    refuse_reversed(array, "numpy.ravel")
    return array_view(call_torch(tx, "view", row_major(array, "numpy.ravel").tensor, -1))


@_known("flatten")
def _flatten(tx, array):
    flat = call_torch(tx, "view", row_major(array, "ndarray.flatten").tensor, -1)
    return array_view(call_torch(tx, "clone", flat))


@_known("transpose")
def _transpose(tx, array, *axes):
    if array.scalar:
        return array
    order = tuple(map(int, _sizes(axes))) if axes else tuple(range(len(array.shape)))[::-1]
    turned = call_torch(tx, "permute", array.tensor, order)
    return view_of(array, turned, np.transpose, ConstantValue(order))


@_known("swapaxes")
def _swapaxes(tx, array, first, second):
    if not array.shape:
        raise refuse("swapaxes of an array without dimensions")
    turned = call_torch(tx, "transpose", array.tensor, first, second)
    return view_of(array, turned, np.swapaxes, first, second)


@_known("expand_dims")
def _expand_dims(tx, array, axis):
    array = not_scalar(array, "numpy.expand_dims")
    return view_of(array, call_torch(tx, "unsqueeze", array.tensor, axis), np.expand_dims, axis)


@_known("squeeze")
def _squeeze(tx, array, axis=None):
    if axis is None and 1 not in array.shape:
        return array  # also a scalar
    refuse_reversed(array, "numpy.squeeze")
    dims = () if axis is None else axis.as_constant()
    given = dims if isinstance(dims, tuple) else (dims,)
    if not all(is_index(d) and -len(array.shape) <= d < len(array.shape) for d in given):
        raise refuse("numpy.squeeze of these dimensions")
    if any(array.shape[d] != 1 for d in given):
        raise refuse("numpy.squeeze of a dimension that has another size than 1")
    return array_view(call_torch(tx, "squeeze", array.tensor, *([] if axis is None else [axis])))


@_known("copy")
def _copy(tx, array):
    array = not_scalar(array, "copy")
    return array_view(call_torch(tx, "clone", array.tensor, memory_format=torch.contiguous_format))


@_known("astype")
def _astype(tx, array, dtype):
    array = row_major(array, "astype of an array that is not row-major")
    wanted = np.dtype(_dtype_of(dtype))
    kind = TO_TORCH.get(wanted)
    if wanted == HALF and array.dtype.name in _ROUNDED_ONCE:
        kind = torch.float16
    if kind is None or (array.dtype.kind == "c" and wanted.kind != "c"):
        raise refuse(f"astype({wanted})")
    require_quiet_errors(tx, "astype")
    return result_like(array, call_torch(tx, "to", array.tensor, kind, copy=True))


# Of these, torch's half numbers are numpy's; others are rounded to float32 before.
_ROUNDED_ONCE = frozenset(["bool", "int8", "uint8", "int16", "uint16", "float16", "float32"])


def result_like(array: ArrayValue, tensor: Value) -> ArrayValue:
    made = array_view(tensor)
    made.scalar = array.scalar
    return made


def _dtype_of(value: Value) -> Any:
    known, real = value.identity()
    return real if known else value.as_constant()


def _joined(name: str, torch_function: Callable[..., Any], default: int | None) -> None:
    @_known(name, method=False)
    def join(tx, arrays, axis=None):
        if not isinstance(arrays, SequenceValue):
            raise refuse(f"numpy.{name}")
        parts = [row_major(a, f"numpy.{name}") for a in arrays.wrapped()]
        dtype = np.result_type(*[p.dtype for p in parts])
        if dtype not in TO_TORCH or not all(p.shape for p in parts):
            raise refuse(f"numpy.{name} of {dtype}")

        tensors = ListValue([converted(tx, p, dtype) for p in parts])
        dims = [] if default is None else [_constant(axis, default)]
        return array_view(call_torch(tx, torch_function, tensors, *dims))


_joined("concatenate", torch.cat, 0)
_joined("stack", torch.stack, 0)
_joined("vstack", torch.vstack, None)
_joined("hstack", torch.hstack, None)


@_known("where", method=False)
def _where(tx, condition, *choices):
    if not choices:
        return _nonzero(tx, condition)
    if len(choices) != 2:
        raise refuse("numpy.where of two arguments")
    condition = row_major(condition, "numpy.where")
    if condition.dtype != np.dtype(bool):
        raise refuse("numpy.where of a condition that is not bool")
    dtype = np.result_type(*[sample_of(c, "numpy.where") for c in choices])
    if dtype not in TO_TORCH:
        raise refuse(f"numpy.where of {dtype}")
    parts = [_chosen(tx, c, dtype) for c in choices]
    return array_view(call_torch(tx, torch.where, condition.tensor, *parts))


def _chosen(tx: Interpreter, value: Value, dtype: Any) -> Value:
    if isinstance(value, ArrayValue):
        return converted(tx, row_major(value, "numpy.where"), dtype)
    varies = varies_within(value, dtype)
    number = value if varies else number_of(value, dtype, "numpy.where")
    return call_torch(tx, torch.full, (), number, dtype=TO_TORCH[dtype])


# -- sizes of data ---------------------------------------------------------------------------------
@_known("nonzero")
def _nonzero(tx, array):
    return TupleValue(_places(tx, array))


@_known("flatnonzero", method=False)
def _flatnonzero(tx, array):
    return _places(tx, _ravel(tx, array))[0]


def _places(tx: Interpreter, array: ArrayValue) -> list[ArrayValue]:
    """Where an array is not zero, for each dimension: columns of the places as rows."""
    array = row_major(array, "numpy.nonzero")
    if not array.shape:
        raise refuse("numpy.nonzero of a scalar")
    rows = call_torch(tx, torch.nonzero, array.tensor)
    rows = call_torch(tx, torch.clone, rows, memory_format=torch.contiguous_format)
    columns = (call_torch(tx, torch.select, rows, 1, d) for d in range(len(array.shape)))
    return [result(tx, column, np.dtype(np.int64)) for column in columns]


@_known("unique", method=False)
def _unique(tx, array, *, return_inverse=None, return_counts=None):
    """Of numbers that are equal where their bits are."""
    array = row_major(array, "numpy.unique")
    asked = [bool(_constant(flag, False)) for flag in (return_inverse, return_counts)]
    if array.dtype.kind not in "iu" or not array.shape or (asked[0] and len(array.shape) > 1):
        raise refuse(f"numpy.unique of {array.dtype}")
    found = call_torch(tx, torch.unique, array.tensor, True, *asked)
    if not any(asked):
        return result(tx, found, array.dtype)
    return TupleValue([result(tx, part) for part in found.each(tx)])


@_known("fix", method=False)
def _fix(tx, array):
    if array.dtype.kind != "f":
        raise refuse(f"numpy.fix of {array.dtype}")
    return elementwise(tx, np.trunc, [array])


@_known("fill", function=False)
def _fill(tx, array, value):
    array = not_scalar(array, "fill")
    refuse_reversed(array, "fill")
    if array.dtype == HALF:
        raise refuse("fill of an array of float16")
    number = sample_of(value, "fill")
    if isinstance(number, np.ndarray) or np.result_type(array.dtype, number) != array.dtype:
        raise refuse("fill with a number of another kind")
    call_torch(tx, "fill_", array.tensor, call_real(tx, array.dtype.type, number).item())
    return ConstantValue(None)


@_known("sort", function=False)
def _sort_in_place(tx, array, axis=None):
    array = not_scalar(array, "sort")
    options = {} if axis is None else {"axis": axis}
    written(tx, FUNCTIONS[np.sort](tx, array, **options), array, "sort()")
    return ConstantValue(None)


@_known("clip")
def _clip(tx, array, a_min=None, a_max=None, *, min=None, max=None):
    for bound, ufunc in ((a_min or min, np.maximum), (a_max or max, np.minimum)):
        if bound is not None and not is_none(bound):
            array = elementwise(tx, ufunc, [array, bound])
    return array


# -- new arrays ------------------------------------------------------------------------------------
def _new(name: str) -> None:
    @_known(name, method=False)
    def make(tx, *args, dtype=None):
        if len(args) != 1:
            raise refuse(f"numpy.{name} of {len(args)} arguments by position")
        wanted = np.dtype(float if dtype is None else _dtype_of(dtype))
        if wanted not in TO_TORCH:
            raise refuse(f"numpy.{name} of {wanted}")
        function = getattr(torch, name)
        return array_view(
            call_torch(tx, function, _sizes(args), dtype=TO_TORCH[wanted], device="cpu")
        )


_new("zeros")
_new("ones")
_new("empty")


def _new_like(name: str) -> None:
    @_known(name, method=False)
    def make(tx, array, dtype=None):
        array = row_major(array, f"numpy.{name}")
        wanted = np.dtype(array.dtype if dtype is None else _dtype_of(dtype))
        if wanted not in TO_TORCH:
            raise refuse(f"numpy.{name} of {wanted}")
        return array_view(
            call_torch(tx, getattr(torch, name), array.tensor, dtype=TO_TORCH[wanted])
        )


_new_like("empty_like")
_new_like("zeros_like")
_new_like("ones_like")


@_known("arange", method=False)
def _arange(tx, *args, dtype=None):
    limits = [_integer(a) for a in args]
    if dtype is not None or not all(is_index(limit) or is_symbolic(limit) for limit in limits):
        raise refuse("numpy.arange of floats, or of a dtype")
    limits = [limit if is_symbolic(limit) else int(limit) for limit in limits]
    return array_view(call_torch(tx, torch.arange, *limits, dtype=torch.int64, device="cpu"))


@_known("array", "asarray", method=False)
def _array(tx, data, dtype=None):
    """A copy for both, where the data is not an array or a tensor; else asarray shares memory."""
    if isinstance(data, (ArrayValue, TensorValue)):
        raise refuse("numpy.array of an array")
    if isinstance(data, SequenceValue) and dtype is None:
        rows = data.wrapped()
        if rows and all(isinstance(row, ArrayValue) for row in rows):
            return _stacked(tx, rows)
    real = np.array(data.as_constant(), None if dtype is None else _dtype_of(dtype))
    if real.dtype not in TO_TORCH:
        raise refuse(f"numpy.array of {real.dtype}")

    nest = from_constant(real.tolist())
    made = call_torch(tx, torch.tensor, nest, dtype=TO_TORCH[real.dtype], device="cpu")
    return array_view(made)


def _stacked(tx: Interpreter, rows: Sequence[Any]) -> Value:
    """A new array of arrays or scalars of one shape and dtype."""
    first = rows[0]
    if any(row.dtype != first.dtype or row.shape != first.shape for row in rows):
        raise refuse("numpy.array of arrays of several dtypes or shapes")
    return array_view(call_torch(tx, torch.stack, ListValue([row.tensor for row in rows])))


def _array_of(tx: Interpreter, tensor: TensorValue) -> ArrayValue:
    if tx.output.has_overrides:
        raise refuse("Tensor.__array__(), of which classes and modes are asked")
    return array_of(tx, tensor)


def _asarray(tx: Interpreter, data: Value, dtype: Value | None = None) -> Value:
    if isinstance(data, TensorValue):
        data = _array_of(tx, data)
    if isinstance(data, ArrayValue) and dtype is None:
        return array_view(call_torch(tx, "clone", data.tensor)) if data.scalar else data
    if isinstance(data, ArrayValue) and dtype is not None:
        same = np.dtype(_dtype_of(dtype)) == data.dtype
        return _asarray(tx, data) if same else _array_of_dtype(tx, data, dtype)
    return _array(tx, data, dtype)


def _array_of_dtype(tx: Interpreter, array: ArrayValue, dtype: Value) -> Value:
    made = _astype(tx, array, dtype)
    made.scalar = False
    return made


def _copied_array(
    tx: Interpreter, data: Value, dtype: Value | None = None, copy: Value | None = None
) -> Value:
    if _constant(copy, True) is not True:
        raise refuse("numpy.array that does not copy")
    if isinstance(data, TensorValue):
        data = _array_of(tx, data)
    if isinstance(data, ArrayValue) and dtype is None and data.tensor.fake.is_contiguous():
        return _copy(tx, data)
    if isinstance(data, ArrayValue) and dtype is not None:
        return _array_of_dtype(tx, data, dtype)
    return _array(tx, data, dtype)


@_known("shape", method=False)
def _shape(tx, array):
    return tx.wrap(array.shape)


@_known("size", method=False)
def _size(tx, array, axis=None):
    if axis is not None:
        return tx.wrap(array.shape[axis.as_constant()])
    return tx.wrap(array.tensor.fake.numel())


@_known("argsort")
def _argsort(tx, array, axis=None, *, kind=None, stable=None):
    """The order of equal items is only told for a stable sort."""
    array = row_major(array, "numpy.argsort")
    if _constant(kind) not in ("stable", "mergesort") and _constant(stable) is not True:
        raise refuse("numpy.argsort that is not stable")
    if array.dtype.kind == "c" or not array.shape:
        raise refuse(f"numpy.argsort of {array.dtype}")
    found = call_torch(tx, torch.argsort, array.tensor, dim=_constant(axis, -1), stable=True)
    return array_view(found)


@_known("conj", "conjugate", function=False)
def _conjugate(tx, array):
    return elementwise(tx, np.conjugate, [array]) if array.dtype.kind == "c" else array


@_known("ascontiguousarray", method=False)
def _contiguous(tx, array):
    if not array.shape:
        raise refuse("numpy.ascontiguousarray of an array without dimensions")
    if array.is_reversed or not array.tensor.fake.is_contiguous():
        return _copy(tx, array)
    return array


def _first_known(
    known: Callable[..., Value] | None, other: Callable[..., Value]
) -> Callable[..., Value]:
    """A handler that tries the exact handler first, and the translation where that one refuses."""
    if known is None:
        return other

    @functools.wraps(known)
    def call(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        try:
            return known(tx, *args, **kwargs)
        except Unsupported as error:
            if not isinstance(error.reason, (breaks.NumpyConversion, breaks.NotConstant)):
                raise
            return other(tx, *args, **kwargs)

    return call


def _expose_translations() -> None:
    for path in (*ROUNDED, *EXACT):
        real = operator.attrgetter(path)(np)
        translation = handler(path, real)
        FUNCTIONS[real] = _first_known(FUNCTIONS.get(real), translation)
        if "." not in path and hasattr(np.ndarray, path) and path not in _OTHER_METHODS:
            METHODS[path] = _first_known(METHODS.get(path), translation)
    for real, op in ((np.sum, "+"), (np.prod, "*")):
        FUNCTIONS[real] = _first_known(reduction_of_numbers(op), FUNCTIONS[real])
    for name in METADATA:
        real = getattr(np, name)
        FUNCTIONS[real] = metadata_handler(name, real)


# Methods that do something else than the function of their name.
_OTHER_METHODS = frozenset(["sort", "real", "imag"])


def _takes_out(function: Any) -> bool:
    """Whether a function, or a method of this name, writes its result into `out`."""
    named = getattr(np, function, None) if isinstance(function, str) else function
    if isinstance(named, np.ufunc) or not callable(named):
        return False  # ufuncs have a way of their own
    try:
        return "out" in inspect.signature(named).parameters
    except (TypeError, ValueError):
        return False


def _with_out(call: Callable[..., Value]) -> Callable[..., Value]:
    @functools.wraps(call)
    def into(tx: Interpreter, *args: Value, out: Value | None = None, **kwargs: Value) -> Value:
        value = call(tx, *args, **kwargs)
        return value if out is None or is_none(out) else written(tx, value, out, "out=")

    return into


def _special_methods() -> None:
    """array.__add__(other) and its kin."""
    names = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod"}
    names |= {"**": "pow", "@": "matmul", "&": "and", "|": "or", "^": "xor"}
    for symbol, name in names.items():
        METHODS[f"__{name}__"] = functools.partial(_called_operator, symbol, False)
        METHODS[f"__r{name}__"] = functools.partial(_called_operator, symbol, True)
    for symbol, name in {
        "==": "eq",
        "!=": "ne",
        "<": "lt",
        "<=": "le",
        ">": "gt",
        ">=": "ge",
    }.items():
        METHODS[f"__{name}__"] = functools.partial(_called_operator, symbol, False)


def _called_operator(
    symbol: str, reflected: bool, tx: Interpreter, array: ArrayValue, other: Value
) -> Value:
    return operator_of(tx, symbol, [other, array] if reflected else [array, other])


def _expose() -> None:
    """Register the functions and methods of this module in the table of builtins."""
    _special_methods()
    METHODS["__getitem__"], METHODS["__setitem__"] = getitem, setitem
    METHODS["__abs__"] = lambda tx, array: elementwise(tx, np.absolute, [array])
    for name, made in (("asarray", _asarray), ("array", _copied_array)):
        FUNCTIONS[getattr(np, name)] = _with_known_arguments(f"numpy.{name}", made)
    _expose_translations()
    for table in (FUNCTIONS, METHODS):
        table.update({key: _with_out(call) for key, call in table.items() if _takes_out(key)})
    FUNCTIONS[np.identity] = FUNCTIONS[np.eye]
    FUNCTIONS[type(np.mgrid).__getitem__] = grid_handler
    TABLE.update(FUNCTIONS)
    for ufunc in [f for f in vars(np).values() if type(f) is np.ufunc and f not in FUNCTIONS]:
        TABLE[ufunc] = _ufunc_handler(ufunc)  # of constants, any is known
    for kind in {dtype.type for dtype in TO_TORCH}:
        TABLE[kind] = _scalar_constructor(kind)
    TABLE[np.dtype] = lambda tx, *args: tx.wrap(call_real(tx, np.dtype, *map(_dtype_of, args)))
    SPECIAL_METHODS["numpy"] = _tensor_numpy


def _ufunc_handler(ufunc: Any) -> Callable[..., Value]:
    def call(tx: Interpreter, *operands: Value, out: Value | None = None, **kwargs: Value) -> Value:
        if len(operands) == ufunc.nin + 1 and ufunc.nout == 1 and out is None:
            *operands, out = operands  # type: ignore[assignment]
        if kwargs:
            raise refuse(f"numpy.{ufunc.__name__} with keywords")
        if any(isinstance(v, TensorValue) for v in operands):
            return of_tensors(tx, ufunc, operands, out)
        value = elementwise(tx, ufunc, operands)
        return value if out is None or is_none(out) else written(tx, value, out, "out=")

    return call


def _scalar_constructor(kind: type) -> Callable[..., Value]:
    """np.float32(2.5); of a number that varies, a scalar that the graph makes."""

    def make(tx: Interpreter, *args: Value) -> Value:
        if len(args) == 1 and isinstance(args[0], ArrayValue) and args[0].scalar:
            return _astype(tx, args[0], ConstantValue(kind))
        varies = len(args) == 1 and isinstance(args[0], SymbolValue)
        if varies and kind in (np.float32, np.float64):
            form = {"dtype": TO_TORCH[np.dtype(kind)], "device": "cpu"}
            return result(tx, call_torch(tx, torch.full, (), args[0], **form))
        if not all(a.is_constant() for a in args):
            raise refuse(f"numpy.{kind.__name__}() of what is not a number")
        return tx.wrap(call_real(tx, kind, *[a.as_constant() for a in args]))

    return make


def _tensor_numpy(tx: Interpreter, tensor: TensorValue, *args: Value, **kwargs: Value) -> Value:
    forced = kwargs.pop("force", ConstantValue(False))
    if args or kwargs or not forced.python_type_is(bool):
        raise refuse("Tensor.numpy() with arguments")
    if forced.truth(tx) and tensor.fake.requires_grad:
        detached = compute(tx, "call_method", "detach", [tensor], {})
        assert isinstance(detached, TensorValue)
        return array_of(tx, detached)
    return array_of(tx, tensor)


def from_numpy(tx: Interpreter, array: Value) -> Value:
    """torch.from_numpy."""
    if not isinstance(array, ArrayValue) or array.scalar:
        raise refuse("torch.from_numpy of what is not an array")
    return alias_of(tx, array)


TABLE[torch.from_numpy] = from_numpy
_expose()


def _is_numpy_function(obj: Any) -> bool:
    if type(obj) in (np.ufunc, type(np.sum)):
        return True
    kinds = (types.FunctionType, types.BuiltinFunctionType, type)
    return type(obj) in kinds and obj in FUNCTIONS


@special_builder(_is_numpy_function)
def build_numpy_function(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """A function of numpy: with a handler here, or left to numpy by name."""
    tx.guard(source, "id", obj)
    value: Value
    if obj in TABLE:
        value = BuiltinValue(obj, source)
    else:
        value = OpaqueFunctionValue(obj, breaks.NumpyConversion(f"numpy.{obj.__name__}"), source)
    return tx.output.remember(obj, source, value)
