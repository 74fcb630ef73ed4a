"""Settings of capture. `dynamo.config.NAME = value`; an unknown name or a wrong type raises.

`with dynamo.config.patch(recompile_limit=1): ...` sets some for a while.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from fxgraph import faults


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() not in ("", "0", "false", "no", "off")


# name -> (default, effect)
_OPTIONS: dict[str, tuple[Any, str]] = {
    "recompile_limit": (
        8,
        "how many versions of one code object are compiled before it runs eagerly",
    ),
    "fail_on_recompile_limit_hit": (
        False,
        "a function that reaches recompile_limit is an error, without fullgraph=True too",
    ),
    "error_on_recompile": (
        False,
        "a function that was compiled and would be compiled again is an error",
    ),
    "suppress_errors": (
        False,
        "a backend that fails gives a warning and eager execution, not an error",
    ),
    "inline_depth_limit": (100, "how deep calls are inlined before the graph breaks"),
    "loop_limit": (
        2_000_000,
        "how many instructions one frame may execute symbolically; about 100,000 if its graph is "
        "large, or if a second is over and the graph may break",
    ),
    "no_graph_limit": (64, "after how many captures in a row without a graph a function is left"),
    "no_graph_seconds": (
        0.5,
        "how many seconds of the processor captures of library frames that give no graph may take "
        "beyond those that give one, before library frames that get no tensor are left alone",
    ),
    "data_dependent_loop_limit": (
        16,
        "a loop that reads tensors in each turn, and breaks the graph, runs as it is if a turn has "
        "no more operations; a product of inference counts as 8",
    ),
    "automatic_dynamic_shapes": (True, "sizes that vary become symbols at the second compilation"),
    "assume_static_by_default": (
        True,
        "sizes and numbers are constants at first; False: symbols at once, as with dynamic=True",
    ),
    "specialize_int": (False, "ints of Python never become symbols"),
    "specialize_float": (False, "floats of Python never become symbols"),
    "dynamic_sources": (
        "",
        "comma-separated names or patterns of inputs whose sizes or numbers are symbols at once",
    ),
    "unbacked_sources": (
        "",
        "the same, of inputs of whose sizes or numbers nothing may be assumed (mark_unbacked)",
    ),
    "symbol_limit": (
        200,
        "how many symbols one frame may have; sizes and numbers beyond it are constants",
    ),
    "capture_scalar_outputs": (
        False,
        "item(), int(), x[t] and the like are captured, numbers that only the call knows, even "
        "where they break the graph later; where fullgraph=True, always",
    ),
    "capture_dynamic_output_shape_ops": (
        False,
        "nonzero, unique and the like, whose results' sizes only the call knows, are captured even "
        "where a loop over the results breaks the graph; where fullgraph=True, always",
    ),
    "capture_branches": (
        "all",
        "branches and while loops on tensors, and loops over range(n) where a tensor holds n, "
        "whose sides and turns only compute tensors are "
        "conditionals and loops in the graph: 'all', those of functions with fullgraph=True "
        "('fullgraph'), or 'none', which break the graph",
    ),
    "numpy_exact": (
        False,
        "functions of numpy that torch computes within rounding, not to the last bit, break",
    ),
    "strict": (
        _is_set("DYNAMO_STRICT"),
        "a fault of ours while a graph is compiled is an error, not a warning and a slower way",
    ),
    "disable": (_is_set("DYNAMO_DISABLE"), "compile nothing"),
    "rewrite_all_frames": (
        False,
        "for tests: frames without tensor operations, and the standard library's, are rewritten",
    ),
    "verify_graphs": (False, "run fxgraph.verify on every captured graph"),
}

# Names that programs written for torch.compile use -> ours of the same meaning.
_ALIASES = {"cache_size_limit": "recompile_limit"}

# Settings of torch.compile about which capture has no choice: a program may set and read them, and
# nothing changes. (Most of them switch on a feature that is always on here.)
_OF_TORCH_COMPILE: dict[str, Any] = {
    "accumulated_cache_size_limit": 256,
    "accumulated_recompile_limit": 256,
    "allow_ignore_mark_dynamic": False,
    "allow_rnn": True,
    "allow_unspec_int_on_nn_module": True,
    "assume_dunder_attributes_remain_unchanged": True,
    "automatic_dynamic_local_pgo": True,
    "automatic_dynamic_remote_pgo": None,
    "caching_precompile": False,
    "capture_autograd_function": True,
    "capture_func_transforms": True,
    "capture_sparse_compute": False,
    "compiled_autograd": False,
    "compiled_autograd_kwargs_override": {},
    "cprofile": False,
    "cudagraph_backend_keep_input_mutation": False,
    "cudagraph_backend_support_input_mutation": False,
    "dead_code_elimination": True,
    "do_not_emit_runtime_asserts": False,
    "dynamic_shapes": True,
    "enable_compiler_collectives": False,
    "enable_cpp_symbolic_shape_guards": True,
    "enable_faithful_generator_behavior": True,
    "enable_trace_contextlib": True,
    "enable_trace_unittest": True,
    "error_on_nested_fx_trace": True,
    "fake_tensor_cache_enabled": True,
    "force_nn_module_property_static_shapes": True,
    "force_parameter_static_shapes": True,
    "graph_break_on_nn_param_ctor": True,
    "graph_deduplication_lint": False,
    "guard_nn_modules": True,
    "guard_nn_modules_using_dict_tags": True,
    "inline_inbuilt_nn_modules": True,
    "install_free_tensors": True,
    "issue_3_13_0_warning": True,
    "log_compilation_metrics": True,
    "log_file_name": None,
    "nested_graph_breaks": True,
    "only_allow_pt2_compliant_ops": False,
    "optimize_ddp": True,
    "prefer_deferred_runtime_asserts_over_guards": False,
    "raise_on_ctx_manager_usage": True,
    "record_compile_time_instruction_count": False,
    "record_runtime_overhead": True,
    "report_guard_failures": True,
    "run_gc_after_compile": False,
    "skip_fsdp_guards": True,
    "skip_nnmodule_hook_guards": True,
    "skip_torchrec": True,
    "strict_precompile": False,
    "trace_numpy": True,
    "track_nodes_for_deduplication": False,
    "use_graph_deduplication": False,
    "use_lazy_graph_module": True,
    "use_recursive_dict_tags_for_guards": True,
    "verbose": False,
    "wrap_top_frame": False,
}

# Values of the options that have a few.
_CHOICES: dict[str, tuple[str, ...]] = {"capture_branches": ("all", "fullgraph", "none")}


class Config:
    """Attribute access to the options above."""

    def __init__(self) -> None:
        self.__dict__.update({name: default for name, (default, _) in _OPTIONS.items()})
        self.__dict__["_of_torch_compile"] = dict(_OF_TORCH_COMPILE)

    def __setattr__(self, name: str, value: Any) -> None:
        name = _ALIASES.get(name, name)
        if name in _OF_TORCH_COMPILE:
            self._of_torch_compile[name] = value
            return
        if name not in _OPTIONS:
            raise AttributeError(
                f"dynamo.config has no option {name!r}; the options are: {', '.join(_OPTIONS)}"
            )
        expected = type(_OPTIONS[name][0])
        if expected is float and type(value) is int:
            value = float(value)
        if type(value) is not expected:
            raise TypeError(
                f"dynamo.config.{name} takes {expected.__name__}, not {type(value).__name__}: "
                f"{_OPTIONS[name][1]}"
            )
        if value not in _CHOICES.get(name, (value,)):
            raise ValueError(f"dynamo.config.{name} is one of {_CHOICES[name]}, not {value!r}")
        if expected is int and value < 0:
            raise ValueError(f"dynamo.config.{name} is at least 0, not {value!r}")
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"dynamo.config.{name} cannot be deleted, but set or patched")

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are not options.
        if name in _ALIASES:
            return getattr(self, _ALIASES[name])
        if name in _OF_TORCH_COMPILE:
            return self._of_torch_compile[name]
        raise AttributeError(
            f"dynamo.config has no option {name!r}; the options are: {', '.join(_OPTIONS)}"
        )

    def __dir__(self) -> list[str]:
        return [*_OPTIONS, "describe", "patch"]

    def describe(self) -> str:
        """A table of the options: name, value, meaning."""
        return "\n".join(
            f"{name} = {getattr(self, name)!r}  # {text}" for name, (_, text) in _OPTIONS.items()
        )

    def patch(
        self, changes: str | dict[str, Any] | None = None, value: Any = None, /, **more: Any
    ) -> contextlib.AbstractContextManager[None]:
        """Set options for the duration of a with block, or of the calls of a decorated function;
        all of them, or none if one is wrong.

            config.patch(recompile_limit=1)   config.patch("recompile_limit", 1)
            config.patch({"recompile_limit": 1, "strict": True})
        """
        if isinstance(changes, str):
            changes = {changes: value}
        if changes is not None and not isinstance(changes, dict):
            raise TypeError(f"dynamo.config.patch takes names with values, not {changes!r}")
        return self._patched({**(changes or {}), **more})

    @contextlib.contextmanager
    def _patched(self, values: dict[str, Any]) -> Iterator[None]:
        old = {name: getattr(self, name) for name in values}
        try:
            for name, value in values.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in old.items():
                setattr(self, name, value)


config = Config()
faults.strict = lambda: config.strict
