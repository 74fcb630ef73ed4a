"""The key of x[key]: as tensors see it, and without numbers that only the call knows.

before                        after
    x[:, n, mask]                 x.select(1, n)[:, mask]
    x[None, n]                    x[None, :].select(1, n)

where n is a symbol, or a tensor that holds an integer: indexing would want the number itself.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import numpy as np
import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values import late_bound
from dynamo.values.base import Value, is_none
from dynamo.values.containers.containers import ListValue, TupleValue
from dynamo.values.containers.ranges import SliceValue
from dynamo.values.late_bound import bound_late
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbol import SymbolValue
from dynamo.values.tensors.captured_scalars import with_numbers
from dynamo.values.tensors.loop_counter import LoopCounter
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from fxgraph.size_forms import row_major

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def index_of(key: Value, alone: bool = True) -> Value:
    """An index as tensors see it: numpy's integers are ints, its arrays tensors, also in a tuple.

    alone: an array of rows would be taken for a tuple of them.
    """
    if isinstance(key, TupleValue) and key.python_type() is tuple:
        return TupleValue([index_of(part, alone=False) for part in key.wrapped()])
    if key.is_constant() and isinstance(key.as_constant(), np.integer):
        return ConstantValue(int(key.as_constant()))
    if key.is_symbolic() and issubclass(key.python_type(), np.integer):
        return key.number  # type: ignore[attr-defined]
    if key.python_type_is(np.ndarray):
        tensor = key.tensor  # type: ignore[attr-defined]
        plain = tensor.fake.dtype in (torch.bool, torch.int64) and tensor.fake.ndim > 0
        return tensor if plain and (not alone or tensor.fake.ndim == 1) else key
    return key


@bound_late
def select(
    tx: Interpreter, tensor: TensorValue, key: Value, reads: bool = False
) -> tuple[TensorValue, Value | None]:
    """The tensor with its unknown integers of `key` applied, and the rest of the key; None:
    nothing is. reads: the selection may be a copy.
    """
    if reads:
        chosen = _of_examples(tx, tensor, key) or _in_side(tx, tensor, key)
        if chosen is not None:
            return chosen, None
    with tx.output.symbols.data.selecting():
        return _select(tx, tensor, index_of(key), reads)


def _select(
    tx: Interpreter, tensor: TensorValue, key: Value, reads: bool = False
) -> tuple[TensorValue, Value | None]:
    is_tuple = isinstance(key, TupleValue) and key.python_type() is tuple
    parts = key.wrapped() if is_tuple else [key]  # type: ignore[attr-defined]
    if any(isinstance(part, TensorValue) and _is_read_wrapper(part.fake) for part in parts):
        raise Unsupported(breaks.UncapturedCall("an index that wraps a number"))
    read = with_numbers(tx, parts, selects=True)
    listed = [_listed(tx, part) for part in read or parts]
    if read is not None or any(part is not old for part, old in zip(listed, parts)):
        parts, key = listed, TupleValue(listed) if is_tuple else listed[0]
    unknown = [part for part in parts if _is_unknown(part)]
    flags = [place for place, part in enumerate(parts) if _is_flag(part)]
    mapped = len(tx.output.conditionals.open) != len(tx.output.bodies)  # torch refuses there
    if len(flags) == 1 and not unknown and not mapped:
        return _chosen(tx, tensor, parts, flags[0]) or (tensor, key)
    dims = _dimensions(parts, tensor.fake.ndim) if unknown else None
    if dims is None:
        return tensor, key
    if reads:
        whole = _with_new_dimensions(tx, tensor, parts, unknown)
        if whole is not None:
            return _select(tx, *whole)
    selected: Value = tensor
    for part, dim in reversed(list(zip(parts, dims))):
        if part in unknown:
            operands = [selected, ConstantValue(dim), part]
            selected = call_in_graph(tx, "call_method", "select", operands, {})
    assert isinstance(selected, TensorValue)
    rest = [part for part in parts if part not in unknown]
    return selected, TupleValue(rest) if rest else None


def _with_new_dimensions(
    tx: Interpreter, tensor: TensorValue, parts: list[Value], unknown: list[Value]
) -> tuple[TensorValue, Value] | None:
    """The tensor with new dimensions that stand left of an unknown integer, and the key of this:
    their strides tell of the dimension that the integer takes. None: there are none.
    """
    first = next((place for place, part in enumerate(parts) if is_none(part)), len(parts))
    plain = all(isinstance(p, SliceValue) or p in unknown or _is_basic(p) for p in parts)
    if not plain or not any(part in unknown for part in parts[first:]):
        return None
    full = SliceValue(ConstantValue(None), ConstantValue(None), ConstantValue(None))
    key = TupleValue([full if part in unknown else part for part in parts])
    kept = [part for part in parts if not (part.is_constant() and type(part.as_constant()) is int)]
    widened = call_in_graph(tx, "call_function", operator.getitem, [tensor, key], {})
    assert isinstance(widened, TensorValue)
    rest = [p if p in unknown or _is_rest(p) else full for p in kept]
    return widened, TupleValue(rest)


def _is_rest(part: Value) -> bool:
    return part.is_constant() and part.as_constant() is Ellipsis


def _chosen(
    tx: Interpreter, tensor: TensorValue, parts: list[Value], place: int
) -> tuple[TensorValue, Value] | None:
    """A key with a mask of no dimensions, whose value torch would read; None: it is an error.

    x[..., flag]    x.unsqueeze(-1)[..., flag.unsqueeze(0)]
    """
    dims = _dimensions(parts, tensor.fake.ndim)
    if dims is None:
        return None
    mask = call_in_graph(tx, "call_method", "unsqueeze", [parts[place], ConstantValue(0)], {})
    at = ConstantValue(dims[place])
    row = call_in_graph(tx, "call_method", "unsqueeze", [tensor, at], {})
    assert isinstance(row, TensorValue)
    return row, TupleValue([*parts[:place], mask, *parts[place + 1 :]])


def _listed(tx: Interpreter, part: Value) -> Value:
    """A list of places, of which some depend on data, as a tensor."""
    if not isinstance(part, ListValue) or part.python_type() is not list:
        return part
    places = part.wrapped()
    integral = all(place.python_type() is int for place in places)
    if not integral or not any(isinstance(n, SymbolValue) and n.depends_on_data() for n in places):
        return part
    cpu: dict[str, Value] = {"device": ConstantValue(torch.device("cpu"))}
    return tx.wrap(torch.tensor).call(tx, [part], cpu)


def _of_examples(tx: Interpreter, tensor: TensorValue, key: Value) -> TensorValue | None:
    """x[1:, i], where each example of a vmap has an index of its own; None: it is another key.

    x[1:, i]    x[1:, i.unsqueeze(0)].squeeze(1)
    """
    is_tuple = isinstance(key, TupleValue) and key.python_type() is tuple
    parts = key.wrapped() if is_tuple else [key]  # type: ignore[attr-defined]
    places = [place for place, part in enumerate(parts) if _is_example(tx, part)]
    others = [part for place, part in enumerate(parts) if place not in places]
    plain = all(isinstance(part, SliceValue) or _is_basic(part) for part in others)
    dims = _dimensions(parts, tensor.fake.ndim) if len(places) == 1 and plain else None
    if dims is None:
        return None
    (place,) = places
    before = [part for part in parts[:place] if part.is_constant()]
    taken = sum(type(part.as_constant()) is int for part in before)
    added = sum(part.as_constant() is None for part in before)
    return _gathered(tx, tensor, parts, place, dims[place] - taken + added)


def _gathered(
    tx: Interpreter, tensor: TensorValue, parts: list[Value], place: int, dim: int
) -> TensorValue:
    """A copy of the selection by the tensor at this place of a key, `dim` of the result."""
    row = call_in_graph(tx, "call_method", "unsqueeze", [parts[place], ConstantValue(0)], {})
    rows = TupleValue([*parts[:place], row, *parts[place + 1 :]])
    found = call_in_graph(tx, "call_function", operator.getitem, [tensor, rows], {})
    found = call_in_graph(tx, "call_method", "squeeze", [found, ConstantValue(dim)], {})
    assert isinstance(found, TensorValue)
    return found


def _in_side(tx: Interpreter, tensor: TensorValue, key: Value) -> TensorValue | None:
    """x[i] in a side of a branch, where no number is read; None: it is another key, or another
    layout than that of a copy.
    """
    conditionals = tx.output.conditionals
    if not conditionals.open or len(conditionals.open) != len(tx.output.bodies):
        return None
    if isinstance(key, LoopCounter) and key.kind is int and key.is_current():
        key = key.tensor
    if not isinstance(key, TensorValue) or not _is_integer(key.fake) or tensor.fake.ndim == 0:
        return None
    if tx.output.known_tensors.real_of(key.fake) is not None or not row_major(tensor.fake):
        return None
    found = _gathered(tx, tensor, [key], 0, 0)
    conditionals.note_copy(found, tensor.fake, conditionals.places[-1], False)
    return found


def _is_basic(part: Value) -> bool:
    """A part of a key that makes no index of tensors."""
    constant = part.as_constant() if part.is_constant() else part
    return constant is None or constant is Ellipsis or type(constant) is int


def _is_example(tx: Interpreter, part: Value) -> bool:
    """An integer of each example, in the body of the innermost vmap."""
    if not tx.output.bodies or not isinstance(part, TensorValue):
        return False
    own = part.node.graph is tx.output.bodies[-1].graph and hasattr(part.fake, "is_example")
    return own and _is_integer(part.fake)


def _is_integer(fake: torch.Tensor) -> bool:
    integral = (torch.int64, torch.int32, torch.int16, torch.int8)
    return fake.ndim == 0 and fake.dtype in integral


def _is_read_wrapper(fake: torch.Tensor) -> bool:
    """Whether the number of an index is asked of the class: the selection is none of its own."""
    return fake.ndim == 0 and late_bound.is_wrapper(fake)


def _is_flag(part: Value) -> bool:
    return isinstance(part, TensorValue) and part.fake.ndim == 0 and part.fake.dtype is torch.bool


def _is_unknown(part: Value) -> bool:
    return part.is_symbolic() and part.python_type() is int


def _dimensions(parts: list[Value], ndim: int) -> list[int] | None:
    """The dimension of the tensor at which each part of a key stands; None: not known here."""
    taken = [_taken(part) for part in parts]
    total = 0
    for count in taken:
        if count is None:
            return None
        total += max(count, 0)
    if total > ndim or taken.count(_REST) > 1:
        return None  # an error, which the operation tells
    dims, dim = [], 0
    for count in taken:
        dims.append(dim)
        dim += ndim - total if count == _REST else count  # type: ignore[operator]
    return dims


_REST = -1  # the dimensions of an Ellipsis


def _taken(part: Value) -> int | None:
    """How many dimensions a part of a key takes."""
    if isinstance(part, SliceValue) or _is_unknown(part):
        return 1
    if isinstance(part, TensorValue):
        dtype = part.fake.dtype
        return part.fake.ndim if str(dtype) in ("torch.bool", "torch.uint8") else 1
    if not part.is_constant():
        return None
    constant = part.as_constant()
    if constant is Ellipsis:
        return _REST
    if constant is None or isinstance(constant, bool):
        return 0
    return 1 if isinstance(constant, int) else None
