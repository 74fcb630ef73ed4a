"""Common parts of the functional backends: the form of their results, and the decision when a graph
must run op by op instead.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from fxgraph import GraphModule
from fxgraph.aot import (
    UndifferentiableHere,
    Unfunctionalizable,
    asks_for_gradients,
    needs_autograd,
)
from fxgraph.aot._autograd import Parts
from fxgraph.aot.number_outputs import WithNumbers, numbers_as_tensors, returns_numbers
from fxgraph.aot.split import split
from fxgraph.aot.wrapped_training import compile_wrapped_training
from fxgraph.aot.wrappers import WithWrappers, has_wrappers, plain_graph
from fxgraph.bound_inputs import note_bound_inputs
from fxgraph.torch_fx import from_torch_fx


class EveryInput:
    """A compiled graph that takes all of its graph's inputs. `without_static`, which capture calls,
    holds parameters and buffers, and takes the others.
    """

    def __init__(self, compiled: Callable[..., Any], static: Sequence[bool]) -> None:
        note_bound_inputs()
        self.without_static = compiled
        self.varying = [i for i, fixed in enumerate(static) if not fixed]
        self.compile_report = getattr(compiled, "compile_report", None)

    def __call__(self, *inputs: Any) -> Any:
        return self.without_static(*[inputs[i] for i in self.varying])


def backend_function(compile_graph: Callable[..., Callable[..., Any]]) -> Callable[..., Any]:
    """The user's entry point of a function (gm, example_inputs, ...) whose results may hold
    parameters: graphs may be torch.fx's, and results take all inputs. They write to inputs behind
    all that may fail.
    """

    @functools.wraps(compile_graph)
    def backend(gm: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        if not isinstance(gm, GraphModule):
            gm = from_torch_fx(gm)
        compiled = compile_graph(gm, example_inputs, **options)
        static = [bool(n.meta.get("static")) for n in gm.graph.find_nodes(op="placeholder")]
        if any(static) and getattr(compiled, "binds_static", False):
            return EveryInput(compiled, static)
        return compiled

    backend.writes_last = True  # type: ignore[attr-defined]
    return backend


class OpByOp:
    """Runs the captured graph as eager would, under autograd; `compile_report` says why."""

    def __init__(self, gm: GraphModule, reason: str, *, autograd: bool) -> None:
        self._forward = gm.forward
        self.compile_report: dict[str, Any] = {
            "autograd": reason if autograd else None,
            "notes": [f"the graph runs op by op: {reason}"],
            "no_plan": reason,
        }

    def __call__(self, *inputs: Any) -> Any:
        return self._forward(*inputs)


def under_autograd(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    compile_training: Callable[[GraphModule, Sequence[Any]], Callable[..., Any]],
) -> Callable[..., Any] | None:
    """The callable for a graph that autograd must watch: compiled with its backward, or op by op
    where that is not possible; None for other graphs.
    """
    reason = asks_for_gradients(gm)
    if reason:
        return OpByOp(gm, reason, autograd=True)
    reason = needs_autograd(gm, example_inputs)
    if reason is None:
        return None
    try:
        return compile_training(gm, example_inputs)
    except (Unfunctionalizable, UndifferentiableHere) as error:
        return OpByOp(gm, f"{reason}, and {error}", autograd=True)


def _without_wrappers(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    compile_whole: Callable[[GraphModule, Sequence[Any]], Callable[..., Any]],
) -> Callable[..., Any]:
    """The callable for a graph with inputs of tensor subclasses that wrap tensors."""
    reason = asks_for_gradients(gm)
    if reason is not None:
        return OpByOp(gm, reason, autograd=True)
    reason = needs_autograd(gm, example_inputs)
    compile_plain = functools.partial(whole_or_split, compile_whole=compile_whole)
    try:
        if reason is not None:
            return compile_wrapped_training(gm, example_inputs, compile_plain)
        plain = plain_graph(gm, example_inputs)
    except (Unfunctionalizable, UndifferentiableHere) as error:
        why = str(error) if reason is None else f"{reason}, and {error}"
        return OpByOp(gm, why, autograd=reason is not None)
    compiled = whole_or_split(plain.graph_module, plain.example_inputs, compile_whole)
    static = [bool(n.meta.get("static")) for n in gm.graph.nodes if n.op == "placeholder"]
    return WithWrappers(compiled, plain, static)


def whole_or_split(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    compile_whole: Callable[[GraphModule, Sequence[Any]], Callable[..., Any]],
) -> Callable[..., Any]:
    """The compiled graph; where it must run op by op for some of its nodes, what stands between
    those is compiled.
    """
    if has_wrappers(gm):
        return _without_wrappers(gm, example_inputs, compile_whole)
    positions = returns_numbers(gm)
    tensors = numbers_as_tensors(gm, positions) if positions else None
    if tensors is not None:
        compiled = compile_whole(tensors, example_inputs)
        if not isinstance(compiled, OpByOp):
            return WithNumbers(compiled, positions)
    whole = compile_whole(gm, example_inputs)
    if not isinstance(whole, OpByOp):
        return whole

    def compile_body(body: GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return whole_or_split(body, examples, compile_whole)

    parts = split(gm, example_inputs, compile_whole, compile_body)
    if parts is None:
        return whole
    parts.compile_report = _report_of(whole, parts)
    return parts


def _report_of(whole: OpByOp, parts: Parts) -> dict[str, Any]:
    (why,) = whole.compile_report["notes"]
    why = why.removeprefix("the graph runs op by op: ")
    compiled = [part.compiled for part in parts.parts if part.compiled is not None]
    count = f"{len(compiled)} part{'' if len(compiled) == 1 else 's'}"
    bodies = [body for flow in parts.flows.values() for body in flow.bodies]
    if bodies:
        count += f", {len(bodies)} {'body' if len(bodies) == 1 else 'bodies'} of control flow"
    compiled += [one for body in bodies for one, _ in body.compiled.values()]
    reports = [getattr(one, "compile_report", None) or {} for one in compiled]
    fallbacks: Counter[str] = Counter()
    for report in reports:
        fallbacks.update(report.get("fallback_ops") or {})
    return {
        "autograd": None,
        "fallback_ops": dict(fallbacks),
        "kernels": sum(report.get("kernels") or 0 for report in reports),
        "computed": [row for report in reports for row in report.get("computed") or ()],
        "stages": {},
        "no_plan": why,
        "notes": [
            f"the graph is compiled in {count}, around what runs as it is: {why}",
            *[
                f"part {number}: {note}"
                for number, report in enumerate(reports)
                for note in report.get("notes") or ()
            ],
        ],
    }
