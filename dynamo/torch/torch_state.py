"""Questions about torch's global state, answered while capturing and guarded.

The flags that the guard of global state covers (grad mode, autocast, default dtype, ...; see
guards.KINDS) need no guards of their own; the flags of torch.backends and the like do.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from dynamo.guards.sources import ModuleSource
from dynamo.values.base import Value
from dynamo.values.objects.exceptions import call_real
from dynamo.values.scalars.constant import constant_argument
from fxgraph.aot.functional import read_deterministic, set_deterministic

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# Functions of torch._C that read a flag; those missing in this torch are left out.
_FLAGS = """
    _get_cudnn_enabled _get_cudnn_benchmark _get_cudnn_deterministic _get_cudnn_allow_tf32
    _get_cudnn_depthwise_kernel _get_mkldnn_enabled _get_mkldnn_deterministic
    _get_onednn_allow_tf32 _get_nnpack_enabled _get_float32_matmul_precision
    _get_cublas_allow_tf32 _get_cublas_allow_fp16_reduced_precision_reduction
    _get_cublas_allow_bf16_reduced_precision_reduction _get_cublas_allow_fp16_accumulation
    _get_cudnn_sdp_enabled _get_flash_sdp_enabled _get_mem_efficient_sdp_enabled
    _get_math_sdp_enabled _get_overrideable_sdp_enabled _get_math_sdp_allow_fp16_bf16_reduction
    _get_sdp_priority_order _get_cudnn_benchmark_limit
    _cuda_get_cudnn_benchmark_limit
    _get_blas_preferred_backend
    _get_linalg_preferred_backend _get_fp32_precision_getter _get_qengine
    _get_cpu_allow_fp16_reduced_precision_reduction _get_deterministic_fill_uninitialized_memory
    get_num_threads get_num_interop_threads _is_any_autocast_enabled
"""
# Settings that captured code may change, by the functions of torch._C that set and read them.
_SETTERS = """
    _set_sdp_use_flash:_get_flash_sdp_enabled _set_sdp_use_math:_get_math_sdp_enabled
    _set_sdp_use_mem_efficient:_get_mem_efficient_sdp_enabled
    _set_sdp_use_cudnn:_get_cudnn_sdp_enabled
    _set_sdp_use_overrideable:_get_overrideable_sdp_enabled
    _set_sdp_priority_order:_get_sdp_priority_order
    _set_cudnn_enabled:_get_cudnn_enabled _set_cudnn_benchmark:_get_cudnn_benchmark
    _set_cudnn_deterministic:_get_cudnn_deterministic
    _set_cudnn_depthwise_kernel:_get_cudnn_depthwise_kernel
    _cuda_set_cudnn_benchmark_limit:_cuda_get_cudnn_benchmark_limit
    _set_mkldnn_enabled:_get_mkldnn_enabled _set_mkldnn_deterministic:_get_mkldnn_deterministic
    _set_nnpack_enabled:_get_nnpack_enabled
"""
# Settings of which several are one: captured code may set them to their present values.
_RESTORERS = """
    _set_cudnn_allow_tf32:_get_cudnn_allow_tf32 _set_onednn_allow_tf32:_get_onednn_allow_tf32
    _set_cublas_allow_tf32:_get_cublas_allow_tf32
    _set_fp32_precision_setter:_get_fp32_precision_getter
    _set_float32_matmul_precision:_get_float32_matmul_precision
    set_num_threads:get_num_threads
"""
_OF_TORCH = "is_anomaly_enabled is_anomaly_check_nan_enabled is_warn_always_enabled"


_KINDS_OF_ERRORS = ("divide", "over", "under", "invalid")


def set_floating_point_errors(wanted: tuple[str, ...]) -> None:
    """Set numpy's reaction to each kind of floating-point error."""
    np.seterr(**dict(zip(_KINDS_OF_ERRORS, wanted)))  # type: ignore[arg-type]


def read_floating_point_errors() -> tuple[str, ...]:
    found: Any = np.geterr()
    return tuple(found[kind] for kind in _KINDS_OF_ERRORS)


Pairs = list[tuple[Callable[..., Any], Callable[..., Any]]]


_attention_settled = False


def settle_attention() -> None:
    """Have torch decide on the order of attention's kernels on a GPU, which it does once, in the
    first call: within a capture, the setting would be put back for good, and cuDNN's never taken.
    """
    global _attention_settled
    if _attention_settled or not torch.cuda.is_initialized():
        return
    with _disable_current_modes(), FakeTensorMode(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.empty(1, 1, 128, 64, dtype=torch.float16, device="cuda")
        with contextlib.suppress(RuntimeError):  # the program allows no kernel here: not yet
            torch.nn.functional.scaled_dot_product_attention(x, x, x)
            _attention_settled = True


@cache
def settings() -> Pairs:
    """(setter, reader) of the settings that captured code may change."""
    return [
        *_pairs(_SETTERS),
        (set_deterministic, read_deterministic),
        (set_floating_point_errors, read_floating_point_errors),
    ]


@cache
def restorers() -> Pairs:
    """(setter, reader) of the settings that captured code may only set to their current value."""
    return _pairs(_RESTORERS)


def _pairs(rows: str) -> Pairs:
    pairs = [row.split(":") for row in rows.split()]
    return [
        (getattr(torch._C, setter), getattr(torch._C, reader))
        for setter, reader in pairs
        if hasattr(torch._C, setter) and hasattr(torch._C, reader)
    ]


@cache
def flag_readers() -> dict[int, Any]:
    """id -> function, for the functions whose answer is guarded."""
    found = [getattr(torch._C, name, None) for name in _FLAGS.split()]
    found += [getattr(torch, name, None) for name in (*_OF_TORCH.split(), "get_num_threads")]
    return {id(function): function for function in found if function is not None}


def read_flag(function: Callable[..., Any]) -> Callable[..., Value]:
    """Call the reader now, and guard the result."""

    def fold(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        real = [constant_argument(tx, a) for a in args]
        real_kwargs = {k: constant_argument(tx, v) for k, v in kwargs.items()}
        answer = call_real(tx, function, *real, **real_kwargs)
        before = tx.output.settings_before.get(function, answer)

        def torch_state_unchanged(module: Any) -> bool:
            return function(*real, **real_kwargs) == before

        torch_state_unchanged.__name__ = f"torch_state_unchanged: {function.__name__}() is {before}"
        tx.guard(ModuleSource("torch"), "predicate", torch_state_unchanged)
        return tx.wrap(answer)

    return fold
