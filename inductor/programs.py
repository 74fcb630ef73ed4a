"""Plans of saved programs: kept under the name of a graph, and recalled without reading it.

A program is loaded more often than it is saved. Its graph is read, checked and taken through the
stages once on a machine; from then on a load goes straight to the plan.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from fxgraph.aot import FreedGraphsCallable, FunctionalGraph, TrainingGraph
from inductor import pipeline, plan_cache, reports
from inductor.compiled import plan_of
from inductor.derive import is_ordinary
from inductor.floats import WithFloats
from inductor.options import Options
from inductor.pipeline import Compilation
from inductor.runtime.device_graph import DeviceGraphs

log = logging.getLogger(__name__)


def compile_named(
    traced: FunctionalGraph | TrainingGraph,
    example_inputs: Sequence[Any],
    name: Sequence[str],
    about: Callable[[], Any],
) -> Callable[..., Any]:
    """compile_traced, after which recall_named may find the plan of a graph without a backward.

    name: strings that tell the graph from any other. about: called afterwards, for JSON data to be
    kept with the plan.
    """
    if isinstance(traced, TrainingGraph):
        return pipeline.compile_traced(traced, example_inputs)
    run, c = pipeline.compile_functional(traced, example_inputs, None)
    plan = plan_of(c)
    # Modules without room for copies of their weights need the graph (see pipeline.link_plan).
    needed = c.derived is not None and c.unpacked is not None
    device_graphs = isinstance(plan, DeviceGraphs)
    if c.cached and c.spec is not None and not (plan is None or device_graphs or needed):
        compiled, spent = c.compiled, traced.spent.items()
        beside = {
            "floats": compiled.positions if isinstance(compiled, WithFloats) else [],
            "notes": c.notes,
            "spent": [[number, text, list(below)] for number, (text, below) in spent],
            "about": about(),
        }
        plan_cache.keep_program(_key(name, c), c.spec, beside)
    return run


def recall_named(
    name: Sequence[str], example_inputs: Sequence[Any]
) -> tuple[Callable[..., Any], Any] | None:
    """The result of compile_named for a graph of this name, and the data kept with it; None where
    no plan was kept, or its kernels are unavailable. example_inputs: the static ones, else None.

    Of written inputs the caller checks that they share memory as they did.
    """
    inputs = list(example_inputs)
    c = Compilation(None, inputs, [x is not None for x in inputs], Options())
    found = plan_cache.recall_program(_key(name, c))
    if found is None:
        return None
    c.spec, kept = found
    try:
        c.notes.extend(kept["notes"])
        for stage, run in (("compile", pipeline.compile_kernels), ("link", pipeline.link_plan)):
            started = time.perf_counter()
            run(c)
            c.seconds[stage] = time.perf_counter() - started
        spent = {number: (text, tuple(below)) for number, text, below in kept["spent"]}
        about, floats = kept["about"], kept["floats"]
    except Exception as error:  # the way from the graph tells of it
        log.debug("a kept plan is of no use: %r", error)
        return None
    if floats:
        c.compiled = WithFloats(c.compiled, floats)
    c.compiled.binds_static = True
    c.compiled.compile_report = reports.report(c)
    return FreedGraphsCallable(c.compiled, spent, inputs), about


def _key(name: Sequence[str], c: Compilation) -> str:
    ordinary = [is_ordinary(x) for x, static in zip(c.inputs, c.static, strict=True) if static]
    return plan_cache.program_key(name, ordinary, c.options)


__all__ = ["compile_named", "recall_named"]
