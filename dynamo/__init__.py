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
    from dynamo.api.compile import compile, disable, reset, run, set_stance
    from dynamo.api.explain import explain
    from dynamo.backend_lookup import (
        list_backends,
        list_mode_options,
        list_options,
        lookup_backend,
        register_backend,
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
        substitute_in_graph,
    )
    from dynamo.guards.shapes import (
        mark_dynamic,
        mark_static,
        mark_static_address,
        mark_unbacked,
        maybe_mark_dynamic,
    )
    from dynamo.logs import enable_from_environment as _enable_logs
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
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "errors",
    "explain",
    "export",
    "graph_break",
    "is_compiling",
    "list_backends",
    "list_mode_options",
    "list_options",
    "load",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nonstrict_trace",
    "register_backend",
    "reset",
    "run",
    "set_stance",
    "substitute_in_graph",
]

_enable_logs()
