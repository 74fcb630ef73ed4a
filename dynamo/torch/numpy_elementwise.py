"""Elementwise functions and operators of numpy's arrays, in the dtype that numpy computes in."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamo.config import config
from dynamo.torch.numpy_reversed import refuse_reversed
from dynamo.torch.numpy_scalars import NumpyNumber
from dynamo.torch.numpy_translation import (
    laid_out,
    same_memory,
)
from dynamo.torch.numpy_ufuncs import (
    KINDS,
    RESULT,
    ROUNDED_KINDS,
    ROUNDED_UFUNCS,
    SYMBOLS,
    UFUNCS,
)
from dynamo.torch.numpy_values import (
    FUNCTIONS,
    OPERATORS,
    TO_TORCH,
    ArrayValue,
    array_of,
    compute,
    divides_as_torch,
    refuse,
    require_quiet_errors,
    result,
)
from dynamo.values.base import Value
from dynamo.values.builtins.table import TABLE
from dynamo.values.containers.containers import TupleValue
from dynamo.values.objects.exceptions import call_real
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbol import SymbolValue
from dynamo.values.tensors.tensor import TensorValue
from fxgraph.symbolic_values import is_symbolic

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def call_torch(tx: Interpreter, target: Any, *args: Any, **kwargs: Any) -> Value:
    """Call torch's function on tensors, sizes and constants."""
    wrapped = [_argument(tx, arg) for arg in args]
    named = {key: _argument(tx, value) for key, value in kwargs.items()}
    kind = "call_method" if isinstance(target, str) else "call_function"
    return compute(tx, kind, target, wrapped, named)


def _argument(tx: Interpreter, arg: Any) -> Value:
    if isinstance(arg, Value):
        return arg
    if isinstance(arg, tuple) and any(map(is_symbolic, arg)):
        return TupleValue([_argument(tx, item) for item in arg])
    return tx.wrap(arg) if is_symbolic(arg) else ConstantValue(arg)


def array_view(tensor: Value) -> ArrayValue:
    """A view stays an array, also without dimensions."""
    assert isinstance(tensor, TensorValue)
    return ArrayValue(tensor)


def row_major(array: Value, what: str) -> ArrayValue:
    """An array in row-major order."""
    if not isinstance(array, ArrayValue) or not array.tensor.fake.is_contiguous():
        raise refuse(what)
    return array


def not_scalar(array: ArrayValue, what: str) -> ArrayValue:
    """An array, also one without dimensions: a scalar's methods give scalars, and no views."""
    if array.scalar:
        raise refuse(f"{what} of a scalar")
    return array


def sample_of(value: Value, what: str) -> Any:
    """A sample operand from which numpy infers dtypes: Python's numbers are weakly typed."""
    if isinstance(value, ArrayValue):
        return np.ones(1, value.dtype)
    if value.is_constant() and isinstance(value.as_constant(), NUMBERS):
        return value.as_constant()
    if isinstance(value, SymbolValue) and value.python_type() in (int, float):
        return value.python_type()(1)
    raise refuse(what)


NUMBERS = (bool, int, float, complex, np.generic)


def elementwise(tx: Interpreter, ufunc: Any, operands: Sequence[Value]) -> Value:
    """ufunc(*operands), in the dtype that numpy computes in."""
    name = f"numpy.{ufunc.__name__}"
    if all(v.is_constant() for v in operands):
        answer = call_real(tx, ufunc, *[v.as_constant() for v in operands])
        if isinstance(answer, np.ndarray):
            raise refuse(f"{name} of a sequence")  # a new array at each call
        return tx.wrap(answer)
    require_quiet_errors(tx, name)
    operands = [_scalar_of(tx, v, alone=len(operands) == 1) for v in operands]
    if not any(isinstance(v, ArrayValue) for v in operands):
        raise refuse(name)
    row = UFUNCS.get(ufunc)
    kinds = KINDS.get(ufunc, "biuf")
    if not config.numpy_exact:
        row = row or ROUNDED_UFUNCS.get(ufunc)
        kinds = ROUNDED_KINDS.get(ufunc, kinds if ufunc in UFUNCS else "f")
    if row is None or len(operands) != ufunc.nin:
        raise refuse(name)
    function, computes_in = row
    samples = [sample_of(v, name) for v in operands]
    try:
        with np.errstate(all="ignore"):
            answer = ufunc(*samples).dtype
        loop = np.result_type(*samples)
        if computes_in == RESULT and not (loop.kind == "c" and answer.kind == "f"):
            loop = answer
    except Exception as error:
        raise refuse(name) from error
    if loop.kind in "iu" and divides_as_torch(ufunc, *operands):
        kinds += loop.kind
    if not {answer, loop} <= TO_TORCH.keys() or loop.kind not in kinds:
        raise refuse(f"{name} of {loop}")
    tensors = [_operand(tx, v, loop, name) for v in operands]
    if function is torch.pow and isinstance(tensors[0], ConstantValue):
        # Of a number to the power of a tensor, torch's result is row-major whatever the tensor is.
        tensors[0] = call_torch(tx, torch.full, (), tensors[0], dtype=TO_TORCH[loop])
    found = call_torch(tx, function, *tensors)
    if any(same_memory(found, v.tensor) for v in operands if isinstance(v, ArrayValue)):
        found = call_torch(tx, "clone", found)  # conj_physical of a real tensor
    if all(v.tensor.fake.is_contiguous() for v in operands if isinstance(v, ArrayValue)):
        return result(tx, found, answer)
    return laid_out(tx, name, ufunc, operands, found)


def _scalar_of(tx: Interpreter, value: Value, alone: bool) -> Value:
    """A number that varies as an array's scalar: numpy's own, or Python's where that is alone;
    beside an array, Python's numbers have weak types. Others as they are.
    """
    number, kind = value, None
    if isinstance(value, NumpyNumber):
        number, kind = value.number, TO_TORCH[np.dtype(value.kind)]
    elif isinstance(value, SymbolValue) and alone:
        kind = {int: torch.int64, float: torch.float64}.get(value.python_type())
    if kind is None:
        return value
    return result(tx, call_torch(tx, torch.full, (), number, dtype=kind, device="cpu"))


def _operand(tx: Interpreter, value: Value, loop: Any, name: str) -> Value:
    if isinstance(value, ArrayValue):
        return converted(tx, value, loop)
    if isinstance(value, SymbolValue):
        if not varies_within(value, loop):
            raise refuse(f"{name} of a number that varies")
        return call_torch(tx, torch.full, (), value, dtype=TO_TORCH[loop], device="cpu")
    real = number_of(value, loop, name)
    if name in _OF_TENSORS_ONLY:
        return call_torch(tx, torch.full, (), real, dtype=TO_TORCH[loop])
    return ConstantValue(real)


def number_of(value: Value, dtype: Any, name: str) -> Any:
    """A constant of Python as a number of this dtype."""
    try:
        return dtype.type(value.as_constant()).item()
    except OverflowError as error:
        raise refuse(f"{name} of a number that {dtype} does not have") from error


def varies_within(value: Value, dtype: Any) -> bool:
    """A number that varies from call to call, all of whose values the dtype has."""
    if not isinstance(value, SymbolValue):
        return False
    wide = (np.dtype(np.float64), np.dtype(np.float32))
    known = {int: (np.dtype(np.int64), *wide), float: wide}
    return dtype in known.get(value.python_type(), ())


# torch takes no numbers here.
_OF_TENSORS_ONLY = frozenset(
    f"numpy.{name}"
    for name in (
        *("maximum", "minimum", "logical_and", "logical_or", "logical_xor", "arctan2", "hypot"),
        *("logaddexp", "logaddexp2", "fmax", "fmin", "gcd", "lcm", "copysign", "heaviside"),
        *("nextafter",),
    )
)


def converted(tx: Interpreter, array: ArrayValue, dtype: Any) -> Value:
    if array.dtype == dtype:
        return array.tensor
    return call_torch(tx, "to", array.tensor, TO_TORCH[dtype])


_WRAPPING = (
    "__array_wrap__ must accept context and return_scalar arguments (positionally) in the future. "
    "(Deprecated NumPy 2.0)"
)
_TAKES_ARRAY_ONLY = len(inspect.signature(torch.Tensor.__array_wrap__).parameters) == 2


def of_tensors(
    tx: Interpreter, ufunc: Any, operands: Sequence[Value], out: Value | None = None
) -> Value:
    """np.log(tensor): Tensor.__array_wrap__ makes the result a tensor (of truth values, one of
    uint8), whose signature numpy 2 warns of.
    """
    name = f"numpy.{ufunc.__name__}"
    if out is not None or tx.output.modes.asked:
        raise refuse(f"{name} of a tensor, with out= or under a mode")
    arrays = [array_of(tx, v) if type(v) is TensorValue else v for v in operands]
    value = elementwise(tx, ufunc, arrays)
    assert isinstance(value, ArrayValue)
    if _TAKES_ARRAY_ONLY and int(np.__version__.partition(".")[0]) >= 2:
        warning = ConstantValue(_WRAPPING), ConstantValue(DeprecationWarning)
        TABLE[warnings.warn](tx, *warning)
    if value.dtype.kind == "b":
        return call_torch(tx, "to", value.tensor, torch.uint8)
    return value.tensor


# Operators of a tensor that leave an array on their right to numpy.
_OF_TENSORS = frozenset(["+", "-", "*", "/", "//", "%", "**"])


def operator_of(tx: Interpreter, symbol: str, operands: list[Value]) -> Value:
    """An operator of arrays; `+=` and the like write into the array."""
    if symbol.endswith("=") and symbol not in SYMBOLS:
        return _in_place(tx, symbol, *operands)
    if symbol == "@":
        return FUNCTIONS[np.matmul](tx, *operands)
    if symbol == "**" and _is_square(*operands):
        return elementwise(tx, np.multiply, [operands[0], operands[0]])
    if isinstance(operands[0], TensorValue):
        array = operands[1]
        if symbol not in _OF_TENSORS or not isinstance(array, ArrayValue) or not array.shape:
            raise refuse(f"the operator {symbol} of a tensor and an array")
        return of_tensors(tx, SYMBOLS[symbol], operands)
    if symbol not in SYMBOLS:
        raise refuse(f"the operator {symbol} of arrays")
    return elementwise(tx, SYMBOLS[symbol], operands)


def _is_square(base: Value, exponent: Value) -> bool:
    """Of bool, numpy's square is a small integer; a 2 of numpy has a dtype of its own."""
    if not isinstance(base, ArrayValue) or not exponent.is_constant():
        return False
    number = exponent.as_constant()
    kinds = {int: "iufc", float: "fc"}.get(type(number), "")
    return base.dtype.kind in kinds and number == 2


def _in_place(tx: Interpreter, symbol: str, array: Value, other: Value) -> Value:
    if not isinstance(array, ArrayValue) or array.scalar:
        return operator_of(tx, symbol[:-1], [array, other])
    return written(tx, operator_of(tx, symbol[:-1], [array, other]), array, symbol)


def written(tx: Interpreter, value: Value, array: Value, symbol: str) -> Value:
    """The array with a result in its memory."""
    if not isinstance(value, ArrayValue) or not isinstance(array, ArrayValue) or array.scalar:
        raise refuse(f"{symbol} of what is not an array")
    refuse_reversed(array, symbol)
    if value.shape != array.shape or value.dtype != array.dtype:
        raise refuse(f"{symbol} with a result of another form")
    call_torch(tx, "copy_", array.tensor, without_overlap(tx, value, array))
    return array


def without_overlap(tx: Interpreter, source: ArrayValue, target: ArrayValue) -> Value:
    """The tensor to copy into an array: a clone of the source where both may overlap."""
    if source.tensor is not target.tensor and same_memory(source.tensor, target.tensor):
        return call_torch(tx, "clone", source.tensor)
    return source.tensor


OPERATORS.append(operator_of)
