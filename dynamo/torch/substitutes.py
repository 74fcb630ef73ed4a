"""Functions of torch that are captured as something else: Python code of ours, or an answer."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributions.utils as distribution_utils
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder
from torch._library.custom_ops import CustomOpDef
from torch.distributions import constraints
from torch.masked import _ops as _masked
from torch.nn.modules import transformer
from torch.optim import adam
from torch.utils.hooks import RemovableHandle

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.polyfills import module_hooks
from dynamo.polyfills import torch_functions as torch_polyfills
from dynamo.torch.numpy_scalars import NumpyNumber
from dynamo.torch.numpy_values import TO_TORCH, ArrayValue
from dynamo.torch.overrides import unseen
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.table import handles, polyfill, real_object
from dynamo.values.containers.containers import ListValue, SequenceValue, TupleValue
from dynamo.values.functions.function import UserFunctionValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbol import SymbolValue, number_of
from dynamo.values.tensors.memory_starts import guard_starts
from dynamo.values.tensors.tensor import (
    SPECIAL_METHODS,
    TensorValue,
    call_in_graph,
    tensor_has_symbols,
)
from fxgraph.aot import fused

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


@cache
def polyfilled() -> dict[int, tuple[Any, Any]]:
    """id -> (function, the Python function captured in its place)."""
    pairs: list[tuple[Any, Any]] = [
        (torch._check_with, torch_polyfills.check_with),
        (torch.broadcast_shapes, torch_polyfills.broadcast_shapes),
        (torch.istft, torch_polyfills.istft),
        (torch._check_is_size, torch_polyfills.check_is_size),
        (constraints._Symmetric.check, torch_polyfills.check_symmetric),
        (constraints._PositiveDefinite.check, torch_polyfills.check_positive_definite),
        (torch.jit.annotate, torch_polyfills.annotate),
        (RemovableHandle.__init__, module_hooks.init_handle),
        (RemovableHandle.remove, module_hooks.remove_handle),
        (CustomOpDef.__call__, torch_polyfills.call_custom_op),
        (getattr(adam, "_get_value", None), torch_polyfills.get_value),
        (getattr(transformer, "_detect_is_causal_mask", None), torch_polyfills.detect_causal_mask),
        (invoke_subgraph_placeholder, torch_polyfills.run_region),
        (
            getattr(_masked, "_combine_input_and_mask", None),
            torch_polyfills.combine_input_and_mask,
        ),
        (
            getattr(torch._C, "_group_tensors_by_device_and_dtype", None),
            torch_polyfills.group_tensors,
        ),
    ]
    return {id(function): (function, ours) for function, ours in pairs if function is not None}


def is_annotation(obj: Any) -> bool:
    """The context manager by which torch's own code makes notes for its compiler."""
    return (
        type(obj) is types.FunctionType
        and obj.__name__ == "annotate"
        and obj.__module__.endswith(".fx.traceback")
    )


_SHAPE_QUESTIONS = {
    **dict.fromkeys(["guard_or_false", "guard_or_true"], torch_polyfills.is_true),
    **dict.fromkeys(["guard_size_oblivious", "statically_known_true"], torch_polyfills.is_true),
    **dict.fromkeys(["has_free_symbols", "has_free_unbacked_symbols"], torch_polyfills.is_symbolic),
}


def shape_question(obj: Any) -> Any:
    """Python code in the place of a function by which code for torch's compiler asks about sizes:
    it answers as for plain ones. None for any other object.
    """
    if type(obj) is not types.FunctionType or obj.__name__ not in _SHAPE_QUESTIONS:
        return None
    asks = obj.__globals__["__name__"] == "torch.fx.experimental.symbolic_shapes"
    return _SHAPE_QUESTIONS[obj.__name__] if asks else None


# -- torch.tensor and its kin ---------------------------------------------------------------------
def _holds_tensors(data: Value) -> bool:
    if isinstance(data, TensorValue):
        return True
    return isinstance(data, SequenceValue) and any(map(_holds_tensors, data.wrapped()))


def _one_number(data: Value) -> bool:
    """A nest of numbers and 0-dimensional tensors, whose class the result does not take."""
    if isinstance(data, TensorValue):
        return data.fake.ndim == 0 and type(data) is TensorValue
    if isinstance(data, SequenceValue):
        return all(map(_one_number, data.wrapped()))
    return data.is_constant() and isinstance(data.as_constant(), (bool, int, float, complex))


def _leaves(data: Value) -> list[Value]:
    if not isinstance(data, SequenceValue):
        return [data]
    return [leaf for item in data.wrapped() for leaf in _leaves(item)]


def _is_typed_scalar(value: Value) -> bool:
    """A scalar of numpy whose type the tensor made of it has, where a number's would be another."""
    kind = value.python_type()
    return issubclass(kind, np.generic) and kind is not np.int64


def _with_tensors(data: Value) -> Value:
    """A nest with tensors in the place of numpy's scalars, whose types count as theirs do."""
    if isinstance(data, ArrayValue) and data.scalar:
        return data.tensor
    if not isinstance(data, SequenceValue):
        return data
    return TupleValue([_with_tensors(item) for item in data.wrapped()])


_MOST_NUMBERS = 64  # of data with numbers that vary, each of which is an operation


def _with_varying(
    tx: Interpreter, data: Value, options: dict[str, Value], like: TensorValue | None
) -> tuple[Value, dict[str, Value]] | None:
    """Data with tensors in the place of numbers that vary, and the options with their dtype;
    None: none varies, or torch reads them.
    """
    leaves = _leaves(data)
    varying = [leaf for leaf in leaves if isinstance(leaf, SymbolValue)]
    numbers = all(leaf.python_type() in (int, float) for leaf in varying)
    known = options.keys() <= {"dtype", "device"} and len(leaves) <= _MOST_NUMBERS
    others = [leaf for leaf in leaves if not isinstance(leaf, SymbolValue)]
    if not varying or not numbers or not known or not all(map(_one_number, others)):
        return None
    dtype, device = options.get("dtype"), options.get("device")
    wanted = like.fake.dtype if like is not None else _inferred(leaves)
    if dtype is not None and dtype.as_constant() is not None:
        wanted = dtype.as_constant()
    exact = all(wanted in _EXACT[leaf.python_type()] for leaf in varying)
    if not exact or not _converts(others, wanted):
        return None
    if device is None or device.as_constant() is None:
        place = torch.get_default_device() if like is None else like.fake.device
        device = ConstantValue(place)

    def filled(item: Value) -> Value:
        if isinstance(item, SymbolValue):  # a conversion from float64 gives inf, as torch.tensor
            wide = torch.int64 if item.python_type() is int else torch.float64
            form = {"dtype": ConstantValue(wide), "device": device}
            return call_in_graph(tx, "call_function", torch.full, [ConstantValue(()), item], form)
        if isinstance(item, SequenceValue):
            return TupleValue([filled(part) for part in item.wrapped()])
        return item

    return filled(data), {"dtype": ConstantValue(wanted), "device": device}


# Of numbers that vary: torch.tensor refuses none of their values in these.
_FLOATS = (torch.float32, torch.float64, torch.bfloat16)
_EXACT = {int: (torch.int64, *_FLOATS), float: _FLOATS}


def _inferred(leaves: list[Value]) -> torch.dtype:
    kinds = {int: torch.int64, float: torch.get_default_dtype()}
    found = [
        kinds[leaf.python_type()]
        if isinstance(leaf, SymbolValue)
        else leaf.fake.dtype
        if isinstance(leaf, TensorValue)
        else torch_polyfills.dtype_of(leaf.as_constant())
        for leaf in leaves
    ]
    return functools.reduce(torch.promote_types, found)


def tensor_from_data(
    tx: Interpreter,
    target: Callable[[list[Value], dict[str, Value]], Value],
    args: Sequence[Value],
    kwargs: dict[str, Value],
    like: TensorValue | None = None,
) -> Value:
    """A call `target(data, dtype=..., device=...)`: lists that hold tensors are stacked."""
    data = args[0] if args else kwargs.get("data")
    if like is None and isinstance(data, SequenceValue):
        data = _with_tensors(data)
    if isinstance(data, ArrayValue) or (
        isinstance(data, SequenceValue) and any(isinstance(v, ArrayValue) for v in _leaves(data))
    ):
        raise Unsupported(breaks.NumpyConversion("a tensor made of an array"))
    if like is None and isinstance(data, NumpyNumber):
        typed = ConstantValue(TO_TORCH[np.dtype(data.kind)])
        options = {name: value for name, value in kwargs.items() if name != "data"}
        return tensor_from_data(tx, target, [data.number], {"dtype": typed, **options})
    if like is None and isinstance(data, ConstantValue) and isinstance(data.value, np.generic):
        typed = ConstantValue(TO_TORCH[data.value.dtype])
        options = {name: value for name, value in kwargs.items() if name != "data"}
        return target([ConstantValue(data.value.item())], {"dtype": typed, **options})
    if like is None and data is not None and any(map(_is_typed_scalar, _leaves(data))):
        raise Unsupported(breaks.NumpyConversion("a tensor made of a scalar of numpy"))
    options = {name: value for name, value in kwargs.items() if name != "data"}
    varying = None if data is None or len(args) > 1 else _with_varying(tx, data, options, like)
    if varying is not None:
        data, kwargs = varying
        if isinstance(data, TensorValue):
            return call_in_graph(tx, "call_method", "to", [data, kwargs["dtype"]], {})
    elif not isinstance(data, SequenceValue) or not _holds_tensors(data):
        return target(list(args), kwargs)
    given = {name: value for name, value in kwargs.items() if name != "data"}
    known = set(given) <= {"dtype", "device"} and len(args) <= 1
    dtype, device = given.get("dtype"), given.get("device")
    wanted = None if dtype is None else dtype.as_constant()
    if not known or not _one_number(data) or not _converts(_leaves(data), wanted):
        raise Unsupported(breaks.DataDependentValue("a tensor made of a list of tensors"))
    if like is not None:
        dtype = dtype or ConstantValue(like.fake.dtype)
        device = device or ConstantValue(like.fake.device)
    device = device or ConstantValue(torch.get_default_device())
    return polyfill(tx, torch_polyfills.tensor_of, data, dtype or ConstantValue(None), device)


def _converts(leaves: list[Value], dtype: torch.dtype | None) -> bool:
    """Whether going through Python numbers, as torch.tensor does, equals a conversion."""
    if dtype is None:
        return True
    found = [
        leaf.fake.dtype
        if isinstance(leaf, TensorValue)
        else torch_polyfills.dtype_of(leaf.as_constant())
        for leaf in leaves
    ]
    return all(torch.can_cast(item, dtype) and item is not torch.bool for item in found)


def _of_array(
    tx: Interpreter, data: Value | None, options: dict[str, Value], copies: bool = False
) -> Value | None:
    """A tensor of an array of numpy, or of arrays in a list: the array's memory, unless `copies` or
    another dtype or device is asked for; None: it is something else.
    """
    if options.keys() - {"dtype", "device"}:
        return None
    arrays: list[Any] = data.wrapped() if isinstance(data, SequenceValue) else [data]
    if not _are_alike(arrays):
        return None
    tensor = arrays[0].tensor
    if isinstance(data, SequenceValue):
        rows = ListValue([array.tensor for array in arrays])
        tensor = call_in_graph(tx, "call_function", torch.stack, [rows], {})
    fake = tensor.fake
    dtype, device = options.get("dtype"), options.get("device")
    wanted = fake.dtype if dtype is None else dtype.as_constant() or fake.dtype
    if isinstance(data, SequenceValue) and not torch.can_cast(fake.dtype, wanted):
        return None  # numbers are checked one by one
    place = None if device is None else device.as_constant()
    place = torch.get_default_device() if place is None else torch.device(place)
    if fake.dtype.is_complex and not wanted.is_complex:
        return None
    alias = call_in_graph(tx, "call_method", "detach", [tensor], {})
    if (wanted, place) != (fake.dtype, fake.device):
        form = [ConstantValue(place), ConstantValue(wanted)]
        return call_in_graph(tx, "call_method", "to", [alias, *form], {})
    copies = copies or arrays[0].scalar
    return call_in_graph(tx, "call_method", "clone", [alias], {}) if copies else alias


def _are_alike(values: Sequence[Any]) -> bool:
    """Arrays of one dtype and shape."""
    arrays = [v for v in values if isinstance(v, ArrayValue) and not v.is_reversed]
    kinds = [(array.dtype, tuple(array.shape)) for array in arrays]
    return 0 < len(arrays) == len(values) and all(kind == kinds[0] for kind in kinds)


def _data_of(args: Sequence[Value], kwargs: dict[str, Value]) -> tuple[Value | None, Any]:
    """The data, and the options, of torch.tensor and its kin."""
    options = {name: value for name, value in kwargs.items() if name != "data"}
    return (args[0] if args else kwargs.get("data")), options


def fold_tensor(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """torch.tensor(data)."""
    made = _of_array(tx, *_data_of(args, kwargs), copies=True)
    if made is not None:
        return made
    return tensor_from_data(
        tx, lambda a, k: call_in_graph(tx, "call_function", torch.tensor, a, k), args, kwargs
    )


def fold_as_tensor(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """torch.as_tensor(data)."""
    made = _of_array(tx, *_data_of(args, kwargs))
    if made is not None:
        return made
    return tensor_from_data(
        tx, lambda a, k: call_in_graph(tx, "call_function", torch.as_tensor, a, k), args, kwargs
    )


def fold_asarray(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """torch.asarray: of tensors, numbers and arrays; other buffers are outside of torch."""
    data = args[0] if args else kwargs.get("obj")
    if isinstance(data, ArrayValue) and len(args) == 1:
        made = _of_array(tx, data, kwargs, copies=not data.shape)
        if made is not None:
            return made
    plain = isinstance(data, TensorValue | SequenceValue) or (data and data.is_constant())
    if data is None or not plain or (isinstance(data, SequenceValue) and _holds_tensors(data)):
        raise Unsupported(breaks.UncapturedCall("torch.asarray"))
    if any(map(_is_typed_scalar, _leaves(data))):
        raise Unsupported(breaks.NumpyConversion("a tensor made of a scalar of numpy"))
    return call_in_graph(tx, "call_function", torch.asarray, args, kwargs)


def fold_linspace(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """torch.linspace, whose number of steps torch reads; of numbers, and in a type of floats, for
    any number of steps.
    """
    names = ("start", "end", "steps")
    given = {**dict(zip(names, args)), **kwargs}
    known = len(args) <= len(names) and given.keys() <= {*names, *_FACTORY} and all(
        number_of(given[name]) is not None if name in given else False for name in names[:2]
    )  # fmt: skip
    dtype = given.get("dtype") or ConstantValue(None)
    wanted = (dtype.as_constant() or torch.get_default_dtype()) if dtype.is_constant() else None
    plain = wanted in (torch.float32, torch.float64)
    if known and plain and isinstance(given.get("steps"), SymbolValue):
        given["dtype"] = ConstantValue(wanted)
        return polyfill(tx, torch_polyfills.linspace, **given)
    return call_in_graph(tx, "call_function", torch.linspace, args, kwargs)


def fold_one_hot(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """F.one_hot, which reads the number of classes in C++."""
    given = {**dict(zip(("tensor", "num_classes"), args)), **kwargs}
    if isinstance(given.get("num_classes"), SymbolValue) and len(given) == 2:
        return polyfill(tx, torch_polyfills.one_hot, **given)
    return call_in_graph(tx, "call_function", torch.nn.functional.one_hot, args, kwargs)


def fold_combinations(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """torch.combinations, which reads the size in C++."""
    tensor = args[0] if args else kwargs.get("input")
    if isinstance(tensor, TensorValue) and tensor.fake.dim() == 1 and len(args) < 4:
        numbers = [*args[1:], *(value for name, value in kwargs.items() if name != "input")]
        plain = all(number.is_constant() for number in numbers)
        if plain and tensor_has_symbols(tensor.fake):
            return polyfill(tx, torch_polyfills.combinations, *args, **kwargs)
    return call_in_graph(tx, "call_function", torch.combinations, args, kwargs)


def fold_gaussian_nll_loss(
    tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """The loss in its parts: it raises for some data."""
    function: Any = torch.nn.functional.gaussian_nll_loss
    return tx.inline(UserFunctionValue(function), args, kwargs)


_FACTORY = frozenset(["dtype", "device", "requires_grad"])


# -- methods ---------------------------------------------------------------------------------------
def _new_tensor(tx: Interpreter, tensor: TensorValue, *args: Value, **kwargs: Value) -> Value:
    return tensor_from_data(
        tx,
        lambda a, k: call_in_graph(tx, "call_method", "new_tensor", [tensor, *a], k),
        args,
        kwargs,
        tensor,
    )


def _new(tx: Interpreter, tensor: TensorValue, *args: Value, **kwargs: Value) -> Value:
    ordinary = tensor.fake.layout is torch.strided  # torch refuses others
    if kwargs or not ordinary or not _sizes_or_data(args):
        raise Unsupported(breaks.UncapturedCall("Tensor.new() of other arguments"))
    return polyfill(tx, torch_polyfills.new_legacy, tensor, *args)


def _sizes_or_data(args: Sequence[Value]) -> bool:
    """Whether the legacy constructors take the arguments: sizes, or one list or tuple."""
    if len(args) == 1 and args[0].python_type_is(list, tuple, torch.Size):
        return True
    return all(issubclass(a.python_type(), int) for a in args)


def _with_scalar(name: str, scalar: str) -> Callable[..., Value]:
    """The method `name`, whose number `scalar` may be a tensor in captured code."""
    ours = getattr(torch_polyfills, name)

    def call(tx: Interpreter, tensor: TensorValue, *args: Value, **kwargs: Value) -> Value:
        number = kwargs.get(scalar)
        if isinstance(number, TensorValue) or (number is not None and number.alternatives):
            return polyfill(tx, ours, tensor, *args, **kwargs)
        return call_in_graph(tx, "call_method", name, [tensor, *args], kwargs)

    return call


def _storage_offset(tx: Interpreter, tensor: TensorValue, *args: Value, **kwargs: Value) -> Value:
    """The offset of an input of the graph, or of a view of one, holds where the input's does."""
    guard_starts(tx, tensor.fake)
    return call_in_graph(tx, "call_method", "storage_offset", [tensor, *args], kwargs)


def _is_view(tx: Interpreter, tensor: TensorValue) -> Value:
    """tensor._is_view() of a result in this graph, whose fake tensor is a view where eager's is;
    what comes from another graph may be a copy.
    """
    target, op = tensor.node.target, tensor.node.op
    made = isinstance(target, types.BuiltinFunctionType) or op == "call_method"
    if not made or type(tensor) is not TensorValue:
        raise Unsupported(breaks.TensorMetadata("Tensor._is_view()"))
    return ConstantValue(tensor.fake._is_view())


SPECIAL_METHODS.update(new_tensor=_new_tensor, new=_new)
SPECIAL_METHODS.update(storage_offset=_storage_offset, _is_view=_is_view)
SPECIAL_METHODS.update({name: _with_scalar(name, "value") for name in ("addcdiv_", "addcmul_")})
SPECIAL_METHODS.update({name: _with_scalar(name, "alpha") for name in ("add_", "sub_")})


_negated: Any = torch._foreach_neg_  # torch's stubs say that it returns nothing
_RETURNS = _negated([torch.zeros(())]) is not None


# -- foreach ---------------------------------------------------------------------------------------
def fold_foreach_in_place(function: Any) -> Callable[..., Value]:
    """torch._foreach_*_: returns the very list, where this version of torch returns something."""

    def call(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        result = call_in_graph(tx, "call_function", function, args, kwargs)
        return args[0] if isinstance(result, SequenceValue) and args else result

    return call


def fold_foreach_scalars(function: Any) -> Callable[..., Value]:
    """torch._foreach_addcdiv_ and _addcmul_, whose scalars may be a tensor; and _foreach_add_,
    whose alpha may be. Where torch's optimizers have numbers, captured code has tensors: there the
    scalars may be a list of them, or one.
    """
    ours = getattr(torch_polyfills, function.__name__.removeprefix("_"))
    plainly = fold_foreach_in_place(function)

    def call(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        given = [*args, *(kwargs[name] for name in ("value", "alpha") if name in kwargs)]
        plain = len(given) == len(args) + len(kwargs) and len(kwargs) < 2
        scaled = len(given) == 4 or (len(given) == 3 and "alpha" in kwargs)
        if not (plain and scaled and _holds_tensors(given[-1])):
            return plainly(tx, args, kwargs)
        fits = _are_scalars(given[-1], given[0], "alpha" in kwargs)
        if not (fits or _has_tensors_for_numbers(tx)):
            raise Unsupported(breaks.UncapturedCall(f"torch.{function.__name__}"))  # raises
        polyfill(tx, ours, *given)
        return given[0] if _RETURNS else ConstantValue(None)

    return call


def fold_fused(function: Any) -> Callable[..., Value]:
    """torch._fused_adam_ and its kin, whose numbers the operator reads: where they vary, or are
    tensors, its arithmetic in their place.
    """
    ours = fused.steps()[function.__name__]

    def call(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        betas = [kwargs[name] for name in ("beta1", "beta2") if name in kwargs]
        varies = any(isinstance(value, SymbolValue) for value in kwargs.values())
        varies = varies or any(isinstance(value, TensorValue) for value in betas)
        if not varies or _has_half(args[0]):  # the rule for SGD has no form for it
            return call_in_graph(tx, "call_function", function, args, kwargs)
        return call_in_graph(tx, "call_function", ours, args, kwargs)

    return call


def _has_half(value: Value) -> bool:
    leaves = [leaf for leaf in _leaves(value) if isinstance(leaf, TensorValue)]
    return any(leaf.fake.dtype in (torch.float16, torch.bfloat16) for leaf in leaves)


def _has_tensors_for_numbers(tx: Interpreter) -> bool:
    """Whether the frame's module counts as torch's optimizers do."""
    of_torch = (tx.f_globals.get("__name__") or "").startswith("torch.optim.")
    counts = tx.f_globals.get("_get_value", adam)
    return of_torch or counts is getattr(adam, "_get_value", None)


def _are_scalars(scalars: Value, tensors: Value, one: bool) -> bool:
    """Whether a tensor holds the number (`one`), or as many as there are tensors."""
    if not isinstance(scalars, TensorValue) or not isinstance(tensors, SequenceValue):
        return False
    return scalars.fake.dim() == 0 if one else scalars.fake.shape == (len(tensors.wrapped()),)


def fold_foreach_pow(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """torch._foreach_pow; with a number as base the exponents would be read."""
    number = bool(args) and (args[0].is_constant() or isinstance(args[0], SymbolValue))
    if len(args) == 2 and number and not kwargs:
        return polyfill(tx, torch_polyfills.foreach_pow, *args)
    return call_in_graph(tx, "call_function", torch._foreach_pow, args, kwargs)


def fold_drawn(function: Any) -> Callable[..., Value]:
    """torch.rand, torch.randn, torch.randint: with `generator=None`, the overload that takes a
    generator is called, and that one takes no symbolic sizes.
    """

    def fold(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        generator = kwargs.get("generator")
        if generator is not None and is_none(generator):
            kwargs = {name: value for name, value in kwargs.items() if name != "generator"}
        return call_in_graph(tx, "call_function", function, args, kwargs)

    return fold


def fold_batch_norm(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """torch.nn.functional.batch_norm, whose operator reads the momentum: where that varies, or is
    a tensor, as with `momentum=None`, arithmetic takes its place.
    """
    function = torch.nn.functional.batch_norm
    momentum = args[6] if len(args) > 6 else kwargs.get("momentum")
    if isinstance(momentum, SymbolValue) or _is_plain_number(momentum):
        return polyfill(tx, torch_polyfills.batch_norm, *args, **kwargs)
    return call_in_graph(tx, "call_function", function, args, kwargs)


def _is_plain_number(value: Value | None) -> bool:
    """Whether a tensor without dimensions and gradient holds the number."""
    if not isinstance(value, TensorValue) or type(value) is not TensorValue:
        return False
    return not value.fake.dim() and not value.fake.requires_grad


# -- classes ---------------------------------------------------------------------------------------
def _legacy_constructor(cls: Any) -> Callable[..., Value]:
    """torch.FloatTensor(2, 3), torch.LongTensor([1, 2]): sizes or data, or a tensor to view."""

    def construct(tx: Interpreter, *args: Value) -> Value:
        dtype = torch.get_default_dtype() if cls is torch.Tensor else cls.dtype
        if len(args) == 1 and _is_viewed(args[0], cls):
            with unseen(tx):
                return call_in_graph(tx, "call_function", torch.ops.aten.alias.default, args, {})
        if len(args) == 1 and not getattr(args[0], "scalar", False):
            kind, place = ConstantValue(dtype), ConstantValue("cpu")
            made = _of_array(tx, args[0], {"dtype": kind, "device": place})
            if made is not None:
                return made
        if not _sizes_or_data(args) or any(map(_holds_tensors, args)):
            raise Unsupported(breaks.UncapturedCall(f"torch.{cls.__name__} of a tensor"))
        with unseen(tx):  # torch asks no mode of a class
            return polyfill(tx, torch_polyfills.legacy_tensor, ConstantValue(dtype), *args)

    return construct


def _is_viewed(value: Value, cls: Any) -> bool:
    """Whether the result for a tensor is a view: torch.Tensor takes each, others their own kind."""
    if type(value) is not TensorValue or value.fake.device.type != "cpu":
        return False
    return value.fake.layout is torch.strided and (
        cls is torch.Tensor or value.fake.dtype is cls.dtype
    )


_LEGACY = ["Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"]
for _name in _LEGACY:
    _cls = getattr(torch, f"{_name}Tensor")
    handles(_cls)(_legacy_constructor(_cls))
handles(torch.Tensor)(_legacy_constructor(torch.Tensor))


@handles(distribution_utils._lazy_property_and_property)
def _lazy_property(tx: Interpreter, wrapped: Value) -> Value:
    """The value of a lazily computed attribute of a distribution's class."""
    return tx.wrap(distribution_utils._lazy_property_and_property(real_object(wrapped)))
