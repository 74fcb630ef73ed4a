"""A JIT compiler for PyTorch programs: `@dynamo.compile`, `dynamo.explain`, and what belongs to
them.
"""

import gc as _gc

# Collections, which walk all objects of torch, would be half of this import's time.
_collecting = _gc.isenabled()
_gc.disable()
try:
    from fxgraph.extensions import require as _require

    _require("dynamo._guards")  # before anything below loads it

    from dynamo import errors
    from dynamo.api.compile import compile, disable, reset, run
    from dynamo.api.compiler import (
        cudagraph_mark_step_begin,
        is_dynamo_compiling,
        is_exporting,
        load_cache_artifacts,
        nested_compile_region,
        save_cache_artifacts,
        set_enable_guard_collectives,
    )
    from dynamo.api.explain import explain
    from dynamo.api.stance import set_stance
    from dynamo.backend_lookup import (
        get_default_backend,
        list_backends,
        list_mode_options,
        list_options,
        lookup_backend,
        register_backend,
        set_default_backend,
    )
    from dynamo.break_regions import error_on_graph_break
    from dynamo.config import config
    from dynamo.directives import (
        allow_in_graph,
        assume_constant_result,
        disallow_in_graph,
        graph_break,
        is_compiling,
        nonstrict_trace,
        skip_frame,
        substitute_in_graph,
    )
    from dynamo.guards.filters import (
        keep_portable_guards_unsafe,
        keep_tensor_guards_unsafe,
        skip_all_guards_unsafe,
        skip_guard_on_all_nn_modules_unsafe,
        skip_guard_on_globals_unsafe,
        skip_guard_on_inbuilt_nn_modules_unsafe,
    )
    from dynamo.guards.marks import (
        mark_dynamic,
        mark_static,
        mark_static_address,
        mark_unbacked,
        maybe_mark_dynamic,
    )
    from dynamo.logs import enable_from_environment as _enable_logs
    from dynamo.numpy_wrapping import wrap_numpy
    from dynamo.saved.export import export
    from dynamo.saved.loading import load
    from dynamo.static_graph import Graph
    from dynamo.version import __version__ as __version__
finally:
    if _collecting:
        _gc.enable()

__all__ = [
    "Graph",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "config",
    "cudagraph_mark_step_begin",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "errors",
    "explain",
    "export",
    "get_default_backend",
    "graph_break",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "list_mode_options",
    "list_options",
    "load",
    "load_cache_artifacts",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "nonstrict_trace",
    "register_backend",
    "reset",
    "run",
    "save_cache_artifacts",
    "set_default_backend",
    "set_enable_guard_collectives",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_frame",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
    "wrap_numpy",
]

_enable_logs()
