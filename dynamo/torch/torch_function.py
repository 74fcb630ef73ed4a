"""Functions of torch: put into the graph whole, folded to a constant, or changes of torch's state.

Recognised here by identity: every overridable function (torch.overrides), the C functions
behind torch.*, and operators of torch.ops. Other Python functions of torch are inlined like user
code.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.overrides
from torch.utils._device import _device_constructors

from dynamo import breaks, directives
from dynamo.break_regions import error_on_graph_break, region_for
from dynamo.errors import Unsupported
from dynamo.guards.classes import MISSING
from dynamo.guards.sources import GlobalsSource, Source
from dynamo.numpy_wrapping import numpy_wrapper
from dynamo.plans import SkipFrame
from dynamo.polyfills import torch_functions as torch_polyfills
from dynamo.torch import ragged, torch_state
from dynamo.torch import substitutes as torch_substitutes
from dynamo.torch.autocast import InsideAutocast, autocast_nesting
from dynamo.torch.changed_state import (
    functions_of_operator,
    has_unknown_kernels,
    refuse_changed_state,
)
from dynamo.torch.devices import default_device
from dynamo.torch.opaque_arguments import opaque_argument
from dynamo.torch.overrides import dispatch, has_override, read_state
from dynamo.values.base import Forwarded, Value, is_none
from dynamo.values.builder import builder, special_builder
from dynamo.values.builtins.table import build_descriptor, is_known_function
from dynamo.values.classes.enums import SingletonValue
from dynamo.values.functions.arity import fits
from dynamo.values.functions.function import (
    OpaqueFunctionValue,
    UserFunctionValue,
    is_opaque_function,
    opaque_reason,
)
from dynamo.values.functions.monkey_patches import (
    OWN_METHODS,
    changed_function,
    is_programs,
    replacement,
)
from dynamo.values.objects.exceptions import call_real
from dynamo.values.objects.known_objects import KnownObject
from dynamo.values.objects.reflection import read_attribute
from dynamo.values.recipes import Existing, Recipe
from dynamo.values.scalars.constant import ConstantValue, constant_argument
from dynamo.values.tensors.bounded_tensors import fold_bincount, fold_unique
from dynamo.values.tensors.deferred_places import fold_nonzero
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from fxgraph import effects, packed_weights
from fxgraph.torch_fx import allowed_by_torch

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_OPERATOR_TYPES = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_GRAPH_C_MODULES = ("_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")


@cache
def graph_functions() -> dict[int, Any]:
    """id -> function, for the functions of torch that go into the graph whole."""
    found: list[Any] = []
    for namespace, functions in torch.overrides.get_overridable_functions().items():
        if isinstance(namespace, types.ModuleType):
            found.extend(f for f in functions if not inspect.isclass(f))
    for holder in (torch._C._VariableFunctions, *_c_modules()):
        found.extend(getattr(holder, name) for name in dir(holder) if not name.startswith("__"))
    # For some of them, each `torch.name` is an object of its own.
    found.extend(getattr(torch, name, None) for name in dir(torch._C._VariableFunctions))
    functional = vars(torch.nn.functional).values()
    found.extend(f for f in functional if isinstance(f, types.BuiltinFunctionType))
    own = (f for f in found if callable(f) and not is_programs(f))
    return {id(f): f for f in own if not _stays_outside(f.__name__)}


def _stays_outside(name: str) -> bool:
    """Fake tensors do not know quantized ones: they would dequantize plain tensors."""
    return name in _NOT_IN_GRAPH or name.startswith("quantize") or "quantized" in name


def is_graph_function(obj: Any) -> bool:
    """True for functions whose call becomes one node."""
    if id(obj) in graph_functions() or id(obj) in directives.ALLOWED or allowed_by_torch(obj):
        return True
    # Looking a method of the class up makes a new object each time.
    return (
        type(obj) is types.BuiltinFunctionType and obj.__self__ is torch._C._VariableFunctionsClass  # type: ignore[attr-defined]
    )


# Their results come from objects outside of torch.
_NOT_IN_GRAPH = frozenset(
    ["from_numpy", "frombuffer", "from_file", "asarray", "from_dlpack"]
    # Functions that take one of the user's, and an object that tells how to compute.
    + ["triplet_margin_with_distance_loss", "linear_cross_entropy"]
)


def _c_modules() -> list[Any]:
    return [getattr(torch._C, n) for n in _GRAPH_C_MODULES if hasattr(torch._C, n)]


# -- functions with a known answer ---------------------------------------------------------------
Fold = Callable[["Interpreter", Sequence[Value], dict[str, Value]], Value]


def _answer(value: Any) -> Fold:
    return lambda tx, args, kwargs: ConstantValue(value)


def _run(function: Callable[..., Any]) -> Fold:
    """Call the function now, on constants; the state it reads is guarded, or changes only by
    captured code.
    """

    def fold(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        real = [constant_argument(tx, a) for a in args]
        real_kwargs = {k: constant_argument(tx, v) for k, v in kwargs.items()}
        return tx.wrap(call_real(tx, function, *real, **real_kwargs))

    return fold


def _is_tensor(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(isinstance(args[0], TensorValue))


def _has_torch_function(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(has_override(tx, args))


def _disabling(function: Callable[[], bool]) -> Fold:
    return read_state(function)


def _state_change(function: Callable[..., Any], read: Callable[..., Any] | None) -> Fold:
    """A change of torch's state: made while capturing too, and a node of the graph.

    `read(*args)` gives the state before; a change to what it is already needs no node.
    """

    def fold(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        real = [constant_argument(tx, a) for a in args]
        if kwargs:
            raise Unsupported(breaks.UncapturedCall(function.__name__))
        if read is not None and _has_no_effect(function, read, real):
            return ConstantValue(None)
        result = call_real(tx, function, *real)
        tx.output.create_node("call_function", function, tuple(real), {}, None, tx)
        return tx.wrap(result)

    return fold


def _setting_change(function: Callable[..., Any], read: Callable[[], Any]) -> Fold:
    """A change of a setting, whose value at the frame's entry is guarded."""
    change, guarded_read = _state_change(function, read), torch_state.read_flag(read)

    def fold(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        guarded_read(tx, [], {})
        tx.output.settings_before.setdefault(read, read())
        return change(tx, args, kwargs)

    return fold


def _unchanged_setting(function: Callable[..., Any], read: Callable[..., Any]) -> Fold:
    """A setting whose new value is its current value, which is guarded."""

    def fold(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        real = [constant_argument(tx, a) for a in args]
        if kwargs or not _has_no_effect(function, read, real):
            raise Unsupported(breaks.UncapturedCall(function.__name__))
        torch_state.read_flag(read)(tx, args[:-1], {})
        return ConstantValue(None)

    return fold


def _has_no_effect(function: Any, read: Callable[..., Any], args: list[Any]) -> bool:
    """Whether function(*args) would leave the setting as it is."""
    try:
        *where, wanted = args
        told = read(*where)
        same = told == wanted
    except (RuntimeError, TypeError, ValueError):  # arguments that `function` refuses, too
        raise Unsupported(breaks.UncapturedCall(function.__name__)) from None
    if same and type(told) is not type(wanted):  # np.True_ for True
        raise Unsupported(breaks.UncapturedCall(function.__name__))
    return same


def _pure_state_change(function: Callable[..., Any]) -> Fold:
    """A change that only matters while capturing (nesting counts)."""
    return _run(function)


def _enter_autocast(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """The outermost region of autocast forgets its casts: which one that is, is guarded."""
    if not tx.output.nesting_guarded:
        tx.output.nesting_guarded = True
        tx.output.guards.add(GlobalsSource(), "predicate", InsideAutocast(autocast_nesting() > 0))
    return _run(torch.autocast_increment_nesting)(tx, args, kwargs)


def _clear_autocast_cache(
    tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """Casts of tensors that change between two runs of the graph must not outlive the first."""
    tx.output.create_node("call_function", torch.clear_autocast_cache, (), {}, None, tx)
    return _run(torch.clear_autocast_cache)(tx, args, kwargs)


def _graph_break(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    message = args[0].as_constant() if args else kwargs["msg"].as_constant() if kwargs else ""
    raise Unsupported(breaks.RequestedBreak(message or "no message given"))


def _disallowed_call(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Break the graph at a call of a function that dynamo.disallow_in_graph names."""
    raise Unsupported(breaks.UncapturedCall("dynamo.disallow_in_graph"))


def _graph_break_of_torch(
    tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """Break the graph, but not for torch's own code: optimizers ask only torch's compiler for a
    break.
    """
    if str(tx.f_globals.get("__name__")).startswith("torch."):
        return ConstantValue(None)
    return _graph_break(tx, args, kwargs)


def _skip_frame(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    message = args[0].as_constant() if args else kwargs["msg"].as_constant() if kwargs else ""
    if tx.output.context.fullgraph or tx.output.continues:
        raise Unsupported(breaks.RequestedBreak(message or "no message given"))
    raise SkipFrame


def _collect(
    namespace: Any, names: str, fold: Callable[[Any], Fold]
) -> dict[int, tuple[Any, Fold]]:
    found = {}
    for name in names.split():
        function = namespace
        for part in name.split("."):
            function = getattr(function, part, None)
        if function is not None:
            found[id(function)] = (function, fold(function))
    return found


def _substituted_functions() -> dict[int, tuple[Any, Fold]]:
    """Functions that make tensors of numbers, and those that optimizers call on lists."""
    table = _collect(torch, "tensor", lambda f: torch_substitutes.fold_tensor)
    table |= _collect(torch, "linspace", lambda f: torch_substitutes.fold_linspace)
    functional = torch.nn.functional
    table |= _collect(torch, "combinations", lambda f: torch_substitutes.fold_combinations)
    table |= _collect(functional, "one_hot", lambda f: torch_substitutes.fold_one_hot)
    table |= _collect(functional, "batch_norm", lambda f: torch_substitutes.fold_batch_norm)
    table |= _collect(
        functional, "gaussian_nll_loss", lambda f: torch_substitutes.fold_gaussian_nll_loss
    )
    table |= _collect(torch, "as_tensor", lambda f: torch_substitutes.fold_as_tensor)
    in_place = [name for name in dir(torch) if name[:9] == "_foreach_" and name[-1] == "_"]
    table |= _collect(torch, " ".join(in_place), torch_substitutes.fold_foreach_in_place)
    table |= _collect(
        torch,
        "_foreach_add_ _foreach_addcdiv_ _foreach_addcmul_",
        torch_substitutes.fold_foreach_scalars,
    )
    table |= _collect(
        torch,
        "_fused_sgd_ _fused_adam_ _fused_adamw_ _fused_adagrad_",
        torch_substitutes.fold_fused,
    )
    table |= _collect(torch, "_foreach_pow", lambda f: torch_substitutes.fold_foreach_pow)
    table |= _collect(torch, "asarray", lambda f: torch_substitutes.fold_asarray)
    table |= _collect(torch, "_C._nn.pad_sequence", ragged.fold_pad_sequence)
    table |= _collect(torch, "tensor_split", ragged.fold_tensor_split)
    table |= _collect(torch, "nonzero argwhere", fold_nonzero)
    table |= _collect(torch, "bincount", fold_bincount)
    table |= _collect(torch, "unique", fold_unique)
    table |= _collect(torch, "_pack_padded_sequence", ragged.fold_pack)
    table |= _collect(torch, "_pad_packed_sequence", ragged.fold_unpack)
    table |= _collect(torch, "zeros ones empty", ragged.fold_sized)
    return table | _collect(torch, "rand randn randint", torch_substitutes.fold_drawn)


@cache
def folded_functions() -> dict[int, tuple[Any, Fold]]:
    """id -> (function, its meaning while capturing)."""
    true, false, none = (lambda f, v=v: _answer(v) for v in (True, False, None))
    table: dict[int, tuple[Any, Fold]] = {}
    table |= _collect(torch, "compiler.is_compiling compiler.is_dynamo_compiling", true)
    table |= _collect(
        torch,
        "jit.is_scripting jit.is_tracing _jit_internal.is_scripting compiler.is_exporting "
        "_C._is_tracing _C._are_functorch_transforms_active",
        false,
    )
    table |= _collect(
        torch,
        "_C._is_torch_function_enabled _C._is_torch_function_all_disabled "
        "_C._is_torch_function_mode_enabled _C._len_torch_function_stack",
        _disabling,
    )
    table |= _collect(torch, "_C._get_tracing_state _C._log_api_usage_once", none)
    table |= _collect(
        torch,
        "is_grad_enabled is_inference_mode_enabled get_default_dtype get_default_device "
        "is_autocast_enabled is_autocast_cpu_enabled is_autocast_cache_enabled get_autocast_dtype "
        "get_autocast_gpu_dtype get_autocast_cpu_dtype "
        "_refs._broadcast_shapes _C._infer_size promote_types can_cast finfo iinfo device "
        "cuda.is_available cuda.device_count cuda.is_initialized backends.mps.is_available "
        "backends.mkldnn.is_available backends.cuda.is_built typename "
        "amp.is_autocast_available amp.autocast_mode.is_autocast_available "
        "_C._is_autocast_available _C._get_privateuse1_backend_name _C._is_any_autocast_enabled "
        "_C._len_torch_dispatch_stack _C._accelerator_getAccelerator "
        "distributed.is_available distributed.is_initialized",
        _run,
    )
    table |= {key: (f, torch_state.read_flag(f)) for key, f in torch_state.flag_readers().items()}
    table |= _collect(torch, "is_tensor", lambda f: _is_tensor)
    table |= _collect(
        torch,
        "overrides.has_torch_function overrides.has_torch_function_unary "
        "overrides.has_torch_function_variadic _C._has_torch_function "
        "_C._has_torch_function_unary _C._has_torch_function_variadic",
        lambda f: _has_torch_function,
    )
    table |= _substituted_functions()
    table |= _collect(
        torch, "_C._set_grad_enabled", lambda f: _state_change(f, torch.is_grad_enabled)
    )
    table |= _collect(
        torch, "set_autocast_enabled", lambda f: _state_change(f, torch.is_autocast_enabled)
    )
    table |= _collect(
        torch, "set_autocast_dtype", lambda f: _state_change(f, torch.get_autocast_dtype)
    )
    table |= _collect(
        torch,
        "set_autocast_cache_enabled",
        lambda f: _state_change(f, torch.is_autocast_cache_enabled),
    )
    table |= _collect(
        torch, "_C._set_default_dtype", lambda f: _state_change(f, torch.get_default_dtype)
    )
    for setter, read in torch_state.settings():
        table[id(setter)] = (setter, _setting_change(setter, read))
    for setter, read in torch_state.restorers():
        table[id(setter)] = (setter, _unchanged_setting(setter, read))
    table |= _collect(torch, "autocast_increment_nesting", lambda f: _enter_autocast)
    table |= _collect(torch, "autocast_decrement_nesting", _pure_state_change)
    table |= _collect(torch, "clear_autocast_cache", lambda f: _clear_autocast_cache)
    table[id(directives.disallow_in_graph)] = (directives.disallow_in_graph, _disallowed_call)
    table[id(directives.graph_break)] = (directives.graph_break, _graph_break)
    table[id(directives.skip_frame)] = (directives.skip_frame, _skip_frame)
    table[id(directives.is_compiling)] = (directives.is_compiling, _answer(True))
    return table


# User code may name functions of these modules; they are recognised without importing those.
_ANSWERS: dict[str, dict[str, Any]] = {
    "torch._dynamo": {
        "graph_break": None,
        "is_compiling": True,
        "is_dynamo_compiling": True,
        "mark_static": None,  # flex_attention's heads; a tensor of the frame already has its sizes
    },
    "torch.onnx": {"is_in_onnx_export": False},
}


def known_answer(obj: Any) -> tuple[bool, Any]:
    """(True, constant) if `obj` is a function of such a module with a fixed meaning here."""
    module = obj.__module__ if type(obj) is types.FunctionType else None
    if not isinstance(module, str) or not module.startswith(tuple(_ANSWERS)):
        return False, None
    answers = _ANSWERS.get(".".join(module.split(".")[:2]), {})
    name = obj.__name__
    if name in answers and sys.modules.get(module) is not None:
        return True, answers[name]
    return False, None


# -- values ---------------------------------------------------------------------------------------
class TorchFunctionValue(KnownObject):
    """A function that goes into the graph as one call."""

    def __init__(self, function: Any, source: Source | None = None) -> None:
        super().__init__(function, source)
        self.function = function

    def describe(self) -> str:
        return f"function {getattr(self.function, '__name__', self.function)}"

    def as_proxy(self) -> Any:
        return self.function

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if tx.output.modes.asked:
            dispatched = dispatch(tx, "call_function", self.function, args, kwargs)
            if dispatched is not None:
                return dispatched
        kwargs = with_default_device(tx, self.function, kwargs)
        if is_programs(function := inspect.unwrap(self.function)):
            marked = id(self.function) in directives.ALLOWED or allowed_by_torch(self.function)
            refuse_changed_state(tx, self.describe(), [function], marked)
        return call_in_graph(tx, "call_function", self.function, args, kwargs)

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Forwarded | None:
        if type(self) is not TorchFunctionValue or tx.output.modes.asked:
            return None
        changed = changed_function(tx, self.function)
        if changed is None:
            return None
        return changed, args, with_default_device(tx, self.function, kwargs)

    def recipe(self) -> Recipe:
        return Existing(self.function, getattr(self.function, "__name__", "function")), []


class FoldedFunctionValue(TorchFunctionValue):
    """A function whose call means something else than a node: a constant, or a change of state."""

    def __init__(self, function: Any, fold: Fold, source: Source | None = None) -> None:
        super().__init__(function, source)
        self.fold = fold

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if not fits(self.function, len(args), kwargs):
            raise Unsupported(breaks.UncapturedCall(self.describe()))
        return self.fold(tx, args, with_default_device(tx, self.function, kwargs))


def with_default_device(
    tx: Interpreter, function: Any, kwargs: dict[str, Value]
) -> dict[str, Value]:
    """The arguments of a constructor with the device that is the default here: the graph runs in
    the regions of `with torch.device(...)` that the frame began in, whichever it enters and leaves.
    """
    inner, outer = default_device(), tx.output.default_device
    if inner == outer or function not in _device_constructors():
        return kwargs
    if tx.output.modes.disabled or torch._C._is_torch_function_all_disabled():
        raise Unsupported(breaks.UncapturedCall("a device's region inside of DisableTorchFunction"))
    if not is_none(kwargs.get("device")):
        return kwargs
    device = torch.device(torch._C._get_default_device()) if inner is None else inner
    return {**kwargs, "device": ConstantValue(device)}


class OperatorValue(TorchFunctionValue):
    """An operator of torch.ops, which may take objects of the program."""

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        waiting = tx.output.side_effects
        if waiting.calls and effects.of_function(self.function).other:
            raise Unsupported(breaks.ChangedState(self.describe()))
        if waiting.changes_objects() and has_unknown_kernels(self.function):
            raise Unsupported(breaks.ChangedState(self.describe()))
        refuse_changed_state(tx, self.describe(), functions_of_operator(self.function))
        given = {name: opaque_argument(tx, value) for name, value in kwargs.items()}
        return super().call(tx, [opaque_argument(tx, value) for value in args], given)


class TensorDescriptorValue(TorchFunctionValue):
    """An unbound method of Tensor: Tensor.add(x, y)."""

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if not args:
            raise Unsupported(breaks.UncapturedCall(self.describe()))
        receiver, *rest = args
        name = self.function.__name__
        if replacement(tx, name) is not MISSING:
            raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}, in whose place is another"))
        if isinstance(receiver, TensorValue):
            return receiver.call_inherited(tx, name, rest, kwargs)
        if not issubclass(receiver.python_type(), torch.Tensor):  # a TypeError in most cases
            raise Unsupported(breaks.UncapturedCall(self.describe()))
        return receiver.call_method(tx, name, rest, kwargs)


class StandInFunction(UserFunctionValue):
    """A Python function that is captured in the place of another callable: it is the other one in
    all but its calls.
    """

    def __init__(self, function: types.FunctionType, real: Any) -> None:
        super().__init__(function)
        self.real = real

    def python_type(self) -> type:
        return type(self.real)

    def identity(self) -> tuple[bool, Any]:
        return True, self.real

    def getattr(self, tx: Interpreter, name: str) -> Value:
        return read_attribute(tx, self, self.real, name)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return hasattr(self.real, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        raise Unsupported(breaks.AttributeMutation(self.describe(), name))

    def recipe(self) -> Recipe:
        return Existing(self.real, self.function.__name__), []


@cache
def _python_methods() -> dict[int, Any]:
    """id -> function, for the methods of Tensor that are written in Python."""
    return {
        id(f): f
        for name, f in OWN_METHODS.items()
        if isinstance(f, types.FunctionType) and f.__name__ == name and name != "__torch_function__"
    }


# -- builders -------------------------------------------------------------------------------------
def _build(tx: Interpreter, obj: Any, source: Source | None, make: Callable[[], Value]) -> Value:
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, make())


def _is_constant_for_torch(obj: Any) -> bool:
    """Marked by torch.compiler.assume_constant_result."""
    return type(obj) is types.FunctionType and "_dynamo_marked_constant" in obj.__dict__


# The users' directives for a function go before the knowledge of torch.
def _rule_of(obj: Any) -> str | None:
    key = id(obj)
    if key in directives.DISALLOWED or key in directives.DISABLED_REASONS:
        return "break"
    if key in directives.SUBSTITUTES:
        return "substitute"
    if key in directives.CONSTANT_RESULT or _is_constant_for_torch(obj):
        return "constant"
    if _function_below_disable(obj) is not None:
        return "unwrapped"
    if type(obj) is types.FunctionType and (
        "_torchdynamo_disable" in obj.__dict__
        or directives.SKIPPED_CODE.get(obj.__code__) is not None
        or directives.LEFT_TO_PYTHON.get(obj.__code__) is not None
    ):
        return "break"
    return None


# The code of every function that `torch._disable_dynamo` wraps.
_DISABLED_CODE = getattr(torch._disable_dynamo(lambda: None), "__code__", None)


def _function_below_disable(obj: Any) -> Any:
    """The function that torch hides from its own compiler (in torch.optim and torch.random), which
    is captured here.
    """
    if type(obj) is not types.FunctionType:
        return None
    if obj.__code__ is _DISABLED_CODE:
        original = obj.__dict__.get("__wrapped__")
    else:  # once it is imported
        original = obj.__dict__.get("_torchdynamo_orig_callable")
    module = getattr(original, "__module__", None) or ""
    known = module.startswith("torch.optim.") or original is torch.random.manual_seed
    return original if known and type(original) is types.FunctionType else None


@special_builder(lambda obj: _rule_of(obj) is not None)
def build_ruled(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """A function with a directive of the user's on its capture."""
    rule = _rule_of(obj)
    name = getattr(obj, "__qualname__", repr(obj))
    if rule == "substitute":
        substitute = directives.SUBSTITUTES[id(obj)][1]
        return _build(tx, obj, source, lambda: StandInFunction(substitute, obj))
    if rule == "unwrapped":
        return _build(tx, obj, source, lambda: tx.wrap(_function_below_disable(obj)))
    if rule == "constant":
        return _build(tx, obj, source, lambda: FoldedFunctionValue(obj, _run(obj), source))
    code = getattr(obj, "__code__", None)
    left = None if code is None else directives.LEFT_TO_PYTHON.get(code)
    reason: breaks.Break = breaks.DisabledCall(name + _why_disabled(obj, code))
    if left is not None:
        reason = breaks.LeftToPython(name, left)
    return _build(tx, obj, source, lambda: OpaqueFunctionValue(obj, reason, source))


def _why_disabled(obj: Any, code: Any) -> str:
    """The reason that dynamo.disable, or torch's, was given, in parentheses; "" without one."""
    if (entry := directives.DISABLED_REASONS.get(id(obj))) is not None:
        reason = entry[1]
    else:
        skipped = None if code is None else directives.SKIPPED_CODE.get(code)
        reason = skipped or getattr(obj, "_torchdynamo_disable_msg", None) or ""
    return reason and f" ({reason})"


@special_builder(lambda obj: id(obj) in folded_functions())
def build_folded(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    fold = folded_functions()[id(obj)][1]
    return _build(tx, obj, source, lambda: FoldedFunctionValue(obj, fold, source))


@special_builder(lambda obj: known_answer(obj)[0])
def build_known_answer(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    asked = obj.__name__ == "graph_break"
    fold = _graph_break_of_torch if asked else _answer(known_answer(obj)[1])
    return _build(tx, obj, source, lambda: FoldedFunctionValue(obj, fold, source))


@special_builder(torch_substitutes.is_annotation)
def build_annotation(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    ours: Any = torch_polyfills.annotate_nodes
    return _build(tx, obj, source, lambda: StandInFunction(ours, obj))


@special_builder(lambda obj: torch_substitutes.shape_question(obj) is not None)
def build_shape_question(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    ours = torch_substitutes.shape_question(obj)
    return _build(tx, obj, source, lambda: StandInFunction(ours, obj))


@special_builder(lambda obj: id(obj) in torch_substitutes.polyfilled())
def build_polyfilled(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    # Where an exception ends the frame, ours runs natively: torch's may be nothing for capture.
    ours = torch_substitutes.polyfilled()[id(obj)][1]
    return _build(tx, obj, source, lambda: UserFunctionValue(ours))


@special_builder(lambda obj: id(obj) in _python_methods())
def build_python_method(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    return _build(tx, obj, source, lambda: TensorDescriptorValue(obj, source))


@special_builder(is_graph_function)
def build_graph_function(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    packed = any(obj is function for function in packed_weights.FUNCTIONS)
    kind = OperatorValue if packed else TorchFunctionValue
    return _build(tx, obj, source, lambda: kind(obj, source))


@builder(*_OPERATOR_TYPES)
def build_operator(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    return _build(tx, obj, source, lambda: OperatorValue(obj, source))


@builder(types.MethodDescriptorType, types.WrapperDescriptorType)
def build_method_descriptor(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """Methods of C classes: those of Tensor are known here, others belong to the builtins table."""
    if issubclass(torch.Tensor, obj.__objclass__) and obj.__objclass__ is not object:
        return _build(tx, obj, source, lambda: TensorDescriptorValue(obj, source))

    return build_descriptor(tx, obj, source)


def _untagged(obj: Any) -> Any:
    """nn.Module.__init__ or __setstate__ as it was before torch.compile, used in this process,
    wrapped it to number the modules that it sees; None for any other object.
    """
    if type(obj) is not types.FunctionType:
        return None
    function, _, name = obj.__qualname__.partition(".<locals>.patched_")
    if function != "install_generation_tagging_init":
        return None
    cells = dict(zip(obj.__code__.co_freevars, obj.__closure__ or ()))
    return cells[name].cell_contents if name in cells else None


def _python_source(obj: Any) -> Any:
    """The Python function behind one that runs as a script only while tracing, or that
    torch.compile or torch.compiler wrapped; None for any other object.
    """
    if type(obj) is not types.FunctionType:
        return None
    if (of_arrays := numpy_wrapper(obj)) is not None:
        return of_arrays
    if obj.__dict__.get("__script_if_tracing_wrapper"):
        return obj.__dict__.get("__original_fn")
    if obj.__qualname__ == "wrap_dunder_call_ctx_manager.<locals>.inner":
        return _in_compilers_region(obj)
    compiles = "get_compiler_config" in obj.__dict__  # of torch.compile and its parts
    if compiles and "_torchdynamo_disable" not in obj.__dict__:
        original = obj.__dict__.get("_torchdynamo_orig_callable")
        return original if type(original) is types.FunctionType else None
    return None


def _in_compilers_region(obj: Any) -> Any:
    """The function that a decorator of torch.compile's own settings wraps; that about graph breaks
    means the same here.
    """
    cells = dict(zip(obj.__code__.co_freevars, obj.__closure__ or ()))
    region, function = cells["self"].cell_contents, cells["func"].cell_contents
    if type(function) is not types.FunctionType:
        return None
    error = getattr(region, "error_on_graph_break", None)
    return function if error is None else error_on_graph_break(error)(function)


# Methods of torch's own compilers, by their names: calls of modules that they made, and a mode.
_COMPILERS_METHODS = {
    "TransformGetItemToIndex.__torch_function__": torch_polyfills.index_by_tensors,
    "GraphModule.recompile.<locals>.call_wrapped": torch_polyfills.call_graph_module,
    "OptimizedModule.__call__": torch_polyfills.call_optimized_module,
    "error_on_graph_break": region_for,
}


def _compilers_method(obj: Any) -> Any:
    if type(obj) is not types.FunctionType or obj.__qualname__ not in _COMPILERS_METHODS:
        return None
    of_torch = (obj.__module__ or "").startswith("torch.")
    return _COMPILERS_METHODS[obj.__qualname__] if of_torch else None


@special_builder(lambda obj: _compilers_method(obj) is not None)
def build_compilers_method(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    return _build(tx, obj, source, lambda: StandInFunction(_compilers_method(obj), obj))


@special_builder(lambda obj: _python_source(obj) is not None)
def build_python_source(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    return _build(tx, obj, source, lambda: StandInFunction(_python_source(obj), obj))


@builder(torch.torch_version.TorchVersion)
def build_version(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    return SingletonValue(obj, source)  # a text that compares as a version


@special_builder(lambda obj: _untagged(obj) is not None)
def build_untagged(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    return _build(tx, obj, source, lambda: StandInFunction(_untagged(obj), obj))


def _is_opaque(obj: Any) -> bool:
    if type(obj) is not types.FunctionType or not is_opaque_function(obj):
        return False
    return not is_known_function(obj)


@special_builder(_is_opaque)
def build_opaque(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """A function of a package that capture does not look into."""
    return _build(tx, obj, source, lambda: OpaqueFunctionValue(obj, opaque_reason(obj), source))
