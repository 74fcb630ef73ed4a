"""Torch-level graph -> functional forward and backward graphs, in one pass over fake tensors.

The graph runs once under autograd and the recording mode, which stands below it: autograd builds
its own graph over the fake tensors, and running that backward records the backward's operators.

before                           after
    y = torch.sin(x)                 sin = aten.sin.default(x)
    return (y * 2,)                  mul = aten.mul.Tensor(sin, 2)            | forward
                                     mul_1 = aten.mul.Tensor(tangent, 2)      | backward
                                     cos = aten.cos.default(x)
                                     mul_2 = aten.mul.Tensor(mul_1, cos)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from fxgraph import effects
from fxgraph.aot import decompositions as rules
from fxgraph.aot.functional import (
    FunctionalGraph,
    TrainingGraph,
    UndifferentiableHere,
    Unfunctionalizable,
    flat_graph,
)
from fxgraph.aot.functionalize import (
    Finish,
    Inputs,
    TracingInterpreter,
    attribute_names,
    module_of,
    tracing,
)
from fxgraph.aot.history import History
from fxgraph.aot.partition import partition
from fxgraph.aot.spent import undifferentiated
from fxgraph.aot.trace import Tracer
from fxgraph.graph_module import GraphModule
from fxgraph.torch_fx import fake_tensor_mode


def functionalize_training(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    decompositions: dict[Any, Callable[..., Any]] | None = None,
    *,
    keep: Iterable[Any] = (),
) -> TrainingGraph | FunctionalGraph:
    """Trace `gm` with its backward; arguments as for `functionalize`.

    A FunctionalGraph, to be run by SpentCallable, is given where nothing that leaves the graph can
    be differentiated: as of a whole training step, which differentiates its loss itself.

    Raises Unfunctionalizable, also where gradients flow through a written input, and
    UndifferentiableHere where the program's own backward raises (a saved tensor was overwritten).
    """
    start = time.perf_counter()
    fake_mode = gm.meta.get("fake_mode") or fake_tensor_mode()
    table = rules.training_table(keep) if decompositions is None else decompositions
    tracer = Tracer(fake_mode, table)
    tracer.attribute_names = attribute_names(gm)
    with tracing(grad=torch.is_grad_enabled()):
        inputs = Inputs(tracer, gm, example_inputs, fake_mode)
        for fake, real in zip(inputs.fakes, inputs.real):
            fake.requires_grad_(real.requires_grad)
        try:
            with tracer.mode:
                result = TracingInterpreter(gm, tracer).run(*inputs.fakes)
        except RuntimeError as error:  # autograd refuses (a leaf is written)
            raise UndifferentiableHere(f"autograd raises: {error}") from error
        inputs.check_writes()
        with torch._C._AutoDispatchBelowAutograd():
            finished = Finish(tracer, inputs, result, bases_only=True)
        for mutation in finished.mutations:
            # A leaf may be written where grad mode is off: that has no gradient.
            if inputs.fakes[mutation.index].grad_fn is not None:
                raise Unfunctionalizable(f"input {mutation.index} is written and requires grad")
            if mutation.metadata:
                raise Unfunctionalizable(f"the sizes of input {mutation.index} change in place")
        _mark_detached(finished)
        plain = undifferentiated(tracer, gm, inputs, finished)
        if plain is not None:
            plain.stages["functionalize"] = time.perf_counter() - start
            return plain
        joint = _Joint(tracer, inputs, finished)
    parts = partition(tracer.graph, finished.values, joint.tangent_nodes, joint.gradient_nodes)
    frame = FunctionalGraph(
        graph_module=module_of(tracer, parts.forward, gm),
        outputs=finished.specs,
        input_mutations=finished.mutations,
        structure=finished.structure,
        source=gm,
        same_inputs=inputs.same,
        stages={"functionalize": time.perf_counter() - start},
    )
    backward = module_of(tracer, parts.backward, gm)
    return TrainingGraph(
        frame=frame,
        forward=flat_graph(frame.graph_module, frame),
        backward=flat_graph(backward),
        saved=parts.saved,
        tangents=joint.tangents,
        gradients=joint.gradients,
        sources=joint.sources,
        frees=joint.frees,
        draws=any(effects.of(node).random for node in parts.forward.nodes),
    )


def _mark_detached(finished: Finish) -> None:
    for spec, leaf in zip(finished.specs, finished.tensors):
        if isinstance(leaf, torch.Tensor):
            spec.detached = not leaf.requires_grad
            if leaf._is_view():
                spec.creation = _creation(leaf)


def _creation(view: torch.Tensor) -> int:
    meta: Any = torch._C._autograd._get_creation_meta(view)
    return int(meta)


class _Joint:
    """Records the backward into the tracer's graph."""

    def __init__(self, tracer: Tracer, inputs: Inputs, finished: Finish) -> None:
        fakes = finished.value_fakes
        self.tangents = [i for i, fake in enumerate(fakes) if fake.requires_grad]
        wanted = [i for i, fake in enumerate(inputs.fakes) if fake.requires_grad]
        if not self.tangents or not wanted:
            raise Unfunctionalizable("no value of the graph has a gradient")
        given = []
        for i in self.tangents:
            given.append(tracer.add_input(f"tangent_{i}", -1 - i, fakes[i].detach()))
        self.tangent_nodes = [tracer.view_of(fake).node for fake in given]
        tracer.stack_trace = None
        history = History([fakes[i] for i in self.tangents])
        self.frees = history.frees
        with tracer.mode, torch._C._DisableAutocast():  # backward runs outside of autocast
            try:
                found = torch.autograd.grad(
                    [fakes[i] for i in self.tangents],
                    [inputs.fakes[i] for i in wanted],
                    given,
                    allow_unused=True,
                )
            except RuntimeError as error:
                raise UndifferentiableHere(f"its backward raises: {error}") from error
            pairs = [(i, g) for i, g in zip(wanted, found) if g is not None]
            self.gradients = [i for i, _ in pairs]
            self.sources = [history.sources(inputs.fakes[i]) for i, _ in pairs]
            self.gradient_nodes = [tracer.value(tracer.view_of(g)) for _, g in pairs]
