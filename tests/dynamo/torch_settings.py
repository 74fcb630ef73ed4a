"""torch's global settings: every setter, and what a change of it means for compiled code.

`CLASSES` says why a change between two calls of a compiled function is seen, or need not be;
tests/dynamo/test_torch_settings.py holds the table complete and makes the changes.
"""

from __future__ import annotations

import importlib
import pkgutil
import types
from collections.abc import Iterator

import torch

GUARDED = "a field of the guard of global state: another value is another graph"
ATEN = "read by aten when an operator runs; no kernel of ours depends on it"
CHOICE = "chooses between kernels for CUDA that give the same result"
READ = "guarded where captured code reads it; no operator's result depends on it"
ENGINE = "read by the autograd engine when a backward runs"
MODULE = "a global of a Python module: guarded where captured code reads it"
NOT_HERE = "for devices, layouts or dtypes whose tensors are not captured"
PROCESS = "about the process (signals, names, memory), not about results"
TRACING = "set by torch's own tracers, inside of which no frame is compiled"
OBJECT = "a method on one object, not a setting"
DRAWS = "the state of random numbers is read and advanced by each draw"

# The name of a setter, without those of its modules, -> why.
CLASSES: dict[str, str] = {
    **dict.fromkeys(
        "set_default_dtype _set_default_dtype set_default_device set_default_tensor_type "
        "_set_default_tensor_type use_deterministic_algorithms set_deterministic_debug_mode "
        "_set_deterministic_algorithms _set_deterministic_fill_uninitialized_memory "
        "deterministic.fill_uninitialized_memory set_float32_matmul_precision "
        "_set_float32_matmul_precision "
        "set_grad_enabled _set_grad_enabled enable_grad _set_fwd_grad_enabled "
        "set_autocast_enabled set_autocast_dtype set_autocast_cache_enabled "
        "set_autocast_cpu_enabled set_autocast_cpu_dtype set_autocast_gpu_dtype "
        "_set_torch_function_state _enable_torch_function _set_dispatch_mode "
        "_set_meta_in_tls_dispatch_include "
        "_set_sdp_use_cudnn _set_sdp_use_flash _set_sdp_use_math _set_sdp_use_mem_efficient "
        "_set_sdp_use_overrideable _set_math_sdp_allow_fp16_bf16_reduction enable_cudnn_sdp "
        "enable_flash_sdp enable_math_sdp enable_mem_efficient_sdp "
        "_set_cudnn_enabled cudnn.enabled _set_mkldnn_enabled mkldnn.enabled".split(),
        GUARDED,
    ),
    **dict.fromkeys(
        "_set_blas_preferred_backend _set_linalg_preferred_backend _set_rocm_fa_preferred_backend "
        "_set_cpu_allow_fp16_reduced_precision_reduction "
        "_set_cublas_allow_bf16_reduced_precision_reduction _set_cublas_allow_fp16_accumulation "
        "_set_cublas_allow_fp16_reduced_precision_reduction _set_cublas_allow_tf32 "
        "_set_cudnn_allow_tf32 cudnn.allow_tf32 _set_cudnn_benchmark cudnn.benchmark "
        "_set_cudnn_deterministic cudnn.deterministic _set_cudnn_depthwise_kernel "
        "cudnn.depthwise_kernel _set_fp32_precision_setter cudnn.fp32_precision "
        "mkldnn.fp32_precision _set_mkldnn_deterministic mkldnn.deterministic "
        "_set_onednn_allow_tf32 mkldnn.allow_tf32 _set_nnpack_enabled nnpack.set_flags "
        "_set_miopen_immediate miopen.immediate _set_sm_carveout_experimental set_flush_denormal "
        "python_native.enable_dispatch_keys python_native.enable_operations".split(),
        ATEN,
    ),
    **dict.fromkeys(
        "cudnn.benchmark_limit _set_sdp_priority_order _set_sdp_use_fa3".split(), CHOICE
    ),
    **dict.fromkeys(
        "set_num_threads set_num_interop_threads _set_warnAlways set_warn_always".split(), READ
    ),
    **dict.fromkeys(
        "set_detect_anomaly set_anomaly_enabled _set_multithreading_enabled "
        "set_multithreading_enabled _set_warn_on_accumulate_grad_stream_mismatch "
        "set_warn_on_accumulate_grad_stream_mismatch _set_override_stale_capture_stream "
        "set_override_stale_capture_stream _set_grad_layout_enforcement_enabled "
        "_set_autograd_fallback_mode _set_view_replay_enabled "
        "disable_saved_tensors_hooks".split(),
        ENGINE,
    ),
    **dict.fromkeys(
        "set_fastpath_enabled set_overwrite_module_params_on_conversion "
        "set_swap_module_params_on_conversion _set_is_profiler_enabled "
        "set_printoptions".split(),
        MODULE,
    ),
    **dict.fromkeys(
        "_set_qengine quantized.engine xnnpack.enabled _set_check_sparse_tensor_invariants "
        "set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype "
        "set_autocast_xla_enabled _set_dtensor_allow_implicit_replication".split(),
        NOT_HERE,
    ),
    **dict.fromkeys(
        "_set_print_stack_traces_on_fatal_signal _set_thread_name _set_worker_pids "
        "_set_worker_signal_handlers _set_default_mobile_cpu_allocator "
        "_set_throw_on_mutable_data_ptr _set_warn_deprecated_on_mutable_data_ptr "
        "_set_cached_tensors_enabled _set_generator_metaclass "
        "_set_should_use_format_with_string_table _enable_mobile_interface_call_export "
        "_enable_profiler _enable_profiler_legacy _enable_record_function "
        "_set_backcompat_broadcast_warn _set_backcompat_keepdim_warn "
        "_cuda_set_sync_debug_mode _set_storage_access_error_msg "
        "_set_storage_data_ptr_access_error_msg "
        "_set_empty_test_observer set_vital".split(),
        PROCESS,
    ),
    **dict.fromkeys(
        "_set_tracing_state _set_value_trace _set_graph_exec_group _set_graph_executor_optimize "
        "_set_only_lift_cpu_tensors _set_skip_next_torch_function _set_vmap_fallback_enabled "
        "_set_vmap_fallback_warning_enabled _set_dynamic_layer_keys_included "
        "set_inplace_requires_grad_allowed set_single_level_autograd_function_allowed "
        "enable_reentrant_dispatch _enable_functionalization".split(),
        TRACING,
    ),
    **dict.fromkeys("_set_conj _set_neg _set_tensor_metadata _set_creation_meta".split(), OBJECT),
    **dict.fromkeys(["set_rng_state"], DRAWS),
}
_PREFIXES = (
    "set_",
    "_set_",
    "use_deterministic",
    "enable_",
    "_enable_",
    "disable_",
    "_cuda_set_sync",
)
_READ_ONLY = ("supported_engines", "all_dsls", "available_dsls")
_HOLDERS = (
    "torch torch._C torch._C._autograd torch._C._functorch torch.autograd "
    "torch.autograd.grad_mode torch.autograd.anomaly_mode torch.autograd.graph "
    "torch.autograd.profiler torch.nn.attention torch.utils.deterministic torch.random "
    "torch.__future__ torch.overrides torch.amp.autocast_mode"
).split()


def setters() -> Iterator[str]:
    """The names of torch's own setters; properties of torch.backends as `module.property`."""
    holders = [importlib.import_module(path) for path in _HOLDERS]
    for module in holders:
        yield from (name for name in dir(module) if name.startswith(_PREFIXES))
        yield from _properties(module)
    for info in pkgutil.iter_modules(torch.backends.__path__):
        module = importlib.import_module(f"torch.backends.{info.name}")
        yield from _properties(module)
        for name, value in vars(module).items():
            if name.startswith(_PREFIXES) and isinstance(value, types.FunctionType):
                yield f"{info.name}.{name}" if f"{info.name}.{name}" in CLASSES else name


def _properties(module: types.ModuleType) -> Iterator[str]:
    """The settings that are attributes of a module with a class of its own."""
    if type(module) is types.ModuleType:
        return
    for name, held in vars(type(module)).items():
        is_set = hasattr(type(held), "__set__") and not name.startswith("_")
        if is_set and name not in _READ_ONLY:
            yield f"{module.__name__.rpartition('.')[2]}.{name}"
