"""Effects of nodes besides their value: writes, randomness, global state.

Passes ask here before they drop, share or move a node. An unknown operator counts as impure.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._library.simple_registry import singleton

if TYPE_CHECKING:
    from fxgraph.node import Node


class Effects(NamedTuple):
    """writes: changes an argument. random: draws from a generator. other: anything else."""

    writes: bool = False
    random: bool = False
    other: bool = False

    def impure(self, random: bool = True) -> bool:
        return self.writes or self.other or (random and self.random)


PURE = Effects()
WRITES = Effects(writes=True)
OTHER = Effects(other=True)

IN_PLACE_OPERATORS = frozenset(
    {
        operator.setitem, operator.delitem, operator.iadd, operator.isub, operator.imul,
        operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow, operator.imatmul,
        operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
        operator.iconcat, builtins.setattr, builtins.delattr,
    }
)  # fmt: skip

# Factories and functions that draw random numbers whenever they are called.
RANDOM_NAMES = frozenset(
    {
        "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal",
        "bernoulli", "multinomial", "poisson", "binomial", "gumbel_softmax",
        "fractional_max_pool2d",
        "fractional_max_pool3d", "fractional_max_pool2d_with_indices",
        "fractional_max_pool3d_with_indices", "native_dropout", "_fused_dropout",
        "_sample_dirichlet", "_standard_gamma", "rrelu_with_noise",
    }
)  # fmt: skip

# Layers of these draw the elements that they drop between one another.
_RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})

# Functions that draw random numbers if their training or probability argument says so.
MAYBE_RANDOM_NAMES = frozenset(
    {
        "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
        "feature_dropout", "rrelu", "scaled_dot_product_attention", "multi_head_attention_forward",
        *_RECURRENT,
    }
)  # fmt: skip

RANDOM_IN_PLACE = frozenset(
    {
        "random_", "uniform_", "normal_", "exponential_", "geometric_", "log_normal_", "cauchy_",
        "bernoulli_", "rrelu_", "rrelu_with_noise_", "_philox_normal_", "_philox_uniform_",
        "_fill_mem_eff_dropout_mask_", "dropout_", "alpha_dropout_", "feature_dropout_",
        "feature_alpha_dropout_",
    }
)  # fmt: skip

# Functions of torch that change global state or check something at run time.
STATEFUL_NAMES = frozenset(
    {
        "_assert", "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "manual_seed",
        "seed",
        "set_rng_state", "set_default_dtype", "sym_constrain_range", "sym_constrain_range_for_size",
        "_functional_assert_async", "_functional_assert_scalar", "_print", "backward", "lock",
        "_check", "clear_autocast_cache",
    }
)  # fmt: skip

# Their operators wait for those of other processes, which are to come in the same order.
_COMMUNICATING = frozenset({"_c10d_functional", "_c10d_functional_autograd", "c10d_functional"})
_PURE_MODULES = ("torch", "_operator", "operator", "math", "builtins")


def of(node: Node) -> Effects:
    """The effects of one node."""
    if node.op == "call_function":
        return of_function(node.target, node.args, node.kwargs)
    if node.op == "call_method":
        return of_method(node.target, node.args, node.kwargs)
    if node.op == "call_module":
        return _of_module(node)
    return OTHER if node.op == "output" else PURE


def of_function(
    target: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Effects:
    """The effects of calling `target`; unknown for functions not of torch, math or operator."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return of_overload(target)
    if target in IN_PLACE_OPERATORS:
        return WRITES
    if runs_functions(target):
        return OTHER
    if target in PURE_FUNCTIONS:
        return PURE
    if isinstance(target, torch._ops.OpOverloadPacket):
        overloads = [getattr(target, name) for name in target.overloads()]
        given = kwargs or {}
        return _union([of_overload(o) for o in overloads if _takes_outputs(o, given)])
    if target is builtins.print or target is builtins.input:
        return OTHER
    if getattr(math, getattr(target, "__name__", ""), None) is target:
        return PURE
    module = getattr(target, "__module__", None)
    # and_ and or_ are named like methods that write.
    if module in ("_operator", "fxgraph.sym_node"):
        return PURE
    if module is not None and module.split(".")[0] not in _PURE_MODULES:
        return OTHER
    if module is None and not _is_torch_builtin(target):
        return OTHER
    return _of_torch_name(getattr(target, "__name__", ""), args, kwargs or {})


def runs_functions(target: Any) -> bool:
    """Whether a call of the target runs functions (bodies, Python of the user's, or autograd's
    engine), whose effects are arbitrary.
    """
    return (
        target in (torch.autograd.grad, torch.autograd.backward)
        or target in BODY_RUNNERS
        or isinstance(target, torch._ops.HigherOrderOperator)
        or getattr(target, "__func__", None) is _APPLY
    )


BODY_RUNNERS: set[Any] = set()  # of fxgraph.higher_order
PURE_FUNCTIONS: set[Any] = set()  # ours, outside of torch
_APPLY = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]


def of_method(
    name: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Effects:
    """The effects of the tensor method `name`."""
    if name in ("__setitem__", "__delitem__") or (
        name.startswith("__i")
        and hasattr(operator, name)
        and name not in ("__invert__", "__index__")
    ):
        return WRITES
    return _of_torch_name(name, args, kwargs or {})


def of_overload(overload: torch._ops.OpOverload) -> Effects:
    """The effects of an operator overload, from its schema and tags."""
    name = overload._schema.name.split("::")[-1]
    tags = overload.tags
    return Effects(
        writes=overload._schema.is_mutable,
        random=torch.Tag.nondeterministic_seeded in tags,
        other=name in STATEFUL_NAMES
        or (not overload._schema.returns and not overload._schema.is_mutable)
        or overload.namespace in _COMMUNICATING
        or _has_registered_effect(overload),
    )


def _takes_outputs(overload: torch._ops.OpOverload, kwargs: dict[str, Any]) -> bool:
    """Whether all that an overload writes by name (`out`) is given."""
    named = [arg for arg in overload._schema.arguments if arg.kwarg_only and arg.is_write]
    return all(arg.name in kwargs for arg in named)


def _has_registered_effect(overload: torch._ops.OpOverload) -> bool:
    """Whether the program registered an effect for its operator (`register_effect`)."""
    if overload.namespace in ("aten", "prims"):
        return False
    return singleton.find(overload._name).effect.effect is not None


def is_in_place(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function of torch.nn.functional is told to write its first argument."""
    # `F.relu(x, True)`: inplace given by position is the last argument of these functions.
    by_position = bool(args) and args[-1] is True and name in _POSITIONAL_INPLACE
    return by_position or kwargs.get("inplace") is True


def _of_torch_name(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Effects:
    writes = kwargs.get("out") is not None or is_in_place(name, args, kwargs)
    if name.endswith("_") and not name.endswith("__"):
        return Effects(writes=True, random=name in RANDOM_IN_PLACE)
    if name in STATEFUL_NAMES or name.startswith(("_set_", "set_", "_enter_", "_exit_")):
        return OTHER
    random = name in RANDOM_NAMES or (name in MAYBE_RANDOM_NAMES and _draws(name, args, kwargs))
    if name in _TRAINING_POSITION:
        writes = writes or kwargs.get("training") is True or True in args[5:6]
    return Effects(writes=writes, random=random)


_POSITIONAL_INPLACE = frozenset(
    {
        "relu", "relu6", "elu", "celu", "selu", "leaky_relu", "hardtanh", "_threshold", "silu",
        "mish",
        "hardswish", "hardsigmoid", "dropout", "dropout1d", "dropout2d", "dropout3d", "rrelu",
        "alpha_dropout", "feature_alpha_dropout",
    }
)  # fmt: skip
_TRAINING_POSITION = frozenset({"batch_norm", "instance_norm"})


def _draws(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a dropout-like call is known not to draw: an explicit False training, or p == 0."""
    if kwargs.get("training") is False or kwargs.get("train") is False:
        return False
    if name in _RECURRENT:
        # Packed data is followed by the sizes of its batches, before the hidden states.
        dropout, train = args[6:8] if isinstance(args[3], (list, tuple)) else args[5:7]
        return bool(train) and dropout != 0
    if name == "scaled_dot_product_attention":
        p = args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)
        return not (isinstance(p, (int, float)) and p == 0)
    return not (name != "rrelu" and len(args) > 2 and args[2] is False)


def _of_module(node: Node) -> Effects:
    root = node.graph.owning_module
    if root is None:
        return OTHER
    try:
        module = root.get_submodule(node.target)
    except AttributeError:
        return OTHER
    known = type(module).__module__.startswith("torch.nn.modules")
    hooked = module._forward_hooks or module._forward_pre_hooks
    if not known or hooked or module.training or getattr(module, "inplace", False):
        return OTHER
    return PURE


def _is_torch_builtin(target: Any) -> bool:
    name = getattr(target, "__name__", "")
    if (
        isinstance(getattr(target, "__self__", None), type)
        and "torch" in target.__self__.__module__
    ):
        return True
    return hasattr(torch, name) or hasattr(torch.Tensor, name) or hasattr(torch._C._nn, name)


def _union(parts: list[Effects]) -> Effects:
    return Effects(*(any(column) for column in zip(*parts)))
