"""The callable form of a compiled graph: its plan, work around the plan, or the graph on aten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxgraph import effects, faults
from fxgraph.aot import run_functional
from fxgraph.aot.runtime import give_layout, numbers_of, same_sharing
from inductor.floats import WithFloats
from inductor.runtime.driver import Loaded

if TYPE_CHECKING:
    from inductor.pipeline import Compilation


def needs_frame(c: Compilation) -> bool:
    """Whether a call has to check or do something that the plan does not: how written inputs share
    memory, and changes of their sizes. The step of a training graph sees to the memory itself.
    """
    assert c.functional is not None
    written = c.functional.input_mutations
    if any(m.metadata for m in written):
        return True
    if not c.inference:
        return False
    return bool(c.functional.same_inputs) or any(
        j != m.index and not (c.static[j] and c.static[m.index])
        for m in written
        for j in range(len(c.inputs))
    )


def can_run_again(c: Compilation) -> bool:
    """Whether Triton launches kernels, and a call that one ended may be made again on aten: a
    call that has written nothing, drawn nothing and let nothing go. A backward lets go.
    """
    assert c.functional is not None
    by_triton = any(not isinstance(kernel, Loaded) for kernel in c.loaded.values())
    if c.gm is None or not by_triton or c.functional.input_mutations:
        return False
    nodes = c.functional.graph_module.graph.nodes
    return not any(effects.of(node).impure() for node in nodes if node.op != "output")


def plan_of(c: Compilation) -> Any:
    """The plan that a call is, besides checks of how inputs share memory; None if it is more, or
    none was made. It may be one for tensors in the place of floats.
    """
    compiled: Any = c.compiled.compiled if isinstance(c.compiled, WithFloats) else c.compiled
    if isinstance(compiled, Framed):
        resizes = any(m.metadata for m in compiled.functional.input_mutations)
        return None if resizes else compiled.plan
    return None if isinstance(compiled, (OnAten, Launched)) else compiled


class _WithStatics:
    """A callable that takes the varying inputs and holds the static ones."""

    def __init__(self, c: Compilation) -> None:
        assert c.functional is not None
        self.functional = c.functional
        self.static = c.static
        self.held = [x for x, static in zip(c.inputs, c.static, strict=True) if static]

    def all_inputs(self, varying: Sequence[Any]) -> list[Any]:
        given, held = iter(varying), iter(self.held)
        return [next(held) if static else next(given) for static in self.static]


class OnAten(_WithStatics):
    """The functional graph, operator by operator."""

    def __call__(self, *varying: Any) -> Any:
        return run_functional(self.functional, self.all_inputs(varying))


class Launched(_WithStatics):
    """The plan of a graph with Triton kernels; the graph on aten, once a launch has failed.

    Triton compiles at a launch, too, for arguments that are new to it: buffers that are aligned
    otherwise, sizes that are divisible otherwise.
    """

    compile_report: dict[str, Any]

    def __init__(self, c: Compilation) -> None:
        super().__init__(c)
        self.plan: Any = c.compiled

    def __call__(self, *varying: Any) -> Any:
        if self.plan is None:
            return run_functional(self.functional, self.all_inputs(varying))
        try:
            return self.plan(*varying)
        except Exception as error:
            if getattr(error, "graph_stage", None) != "launch":
                raise
            faults.insist(error)
            fault = error
        results = run_functional(self.functional, self.all_inputs(varying))
        note = faults.tell(fault, "launch", "the graph runs on aten, operator by operator")
        self.compile_report["notes"].append(note)
        self.plan = None
        return results


class Framed(_WithStatics):
    """The plan, with the handling of the inputs' memory around it."""

    def __init__(self, c: Compilation) -> None:
        super().__init__(c)
        self.plan = c.compiled

    def __call__(self, *varying: Any) -> Any:
        inputs = self.all_inputs(varying)
        if self.functional.input_mutations and not same_sharing(self.functional, inputs):
            return run_functional(self.functional, inputs)
        results = self.plan(*varying)
        for m in self.functional.input_mutations:
            if m.metadata:
                give_layout(inputs[m.index], m, *numbers_of(m, self.functional, inputs, ()))
        return results
