"""Graphs that differentiate themselves: some of their results cannot be differentiated any more.

A training step goes back through its own loss. Autograd's record is freed by then, so that the
graph needs no backward for it; a loss that is returned still belongs to autograd, which refuses to
go back through it a second time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from fxgraph.aot._autograd import without_grad
from fxgraph.aot.functional import FunctionalGraph, OutputSpec, Unfunctionalizable
from fxgraph.aot.functionalize import Finish, Inputs, functional_graph
from fxgraph.aot.trace import Tracer
from fxgraph.args import map_aggregate
from fxgraph.graph_module import GraphModule


def undifferentiated(
    tracer: Tracer, gm: GraphModule, inputs: Inputs, finished: Finish
) -> FunctionalGraph | None:
    """The traced graph as one without a backward, or None if one is needed: then `finished` tells
    which values need none, as tensors without history, and has their outputs in `spent`.
    """
    views = [spec for spec in finished.specs if spec.kind == "alias_of_input"]
    if not all(spec.detached for spec in views):
        return None
    watched = [i for i, fake in enumerate(finished.value_fakes) if fake.requires_grad]
    calls = (node.target for node in gm.graph.nodes)
    if watched and torch.autograd.grad not in calls:
        return None
    values = [finished.value_fakes[i] for i in watched]
    refusals = _refusals(inputs, values)
    if watched and not any(refusals):
        return None
    by_value = {
        i: (refusal, _inputs_below(value, inputs))
        for i, refusal, value in zip(watched, refusals, values, strict=True)
        if refusal is not None
    }
    spent = {
        number: by_value[spec.index]
        for number, spec in enumerate(finished.specs)
        if spec.kind in ("fresh", "alias_of_intermediate")
        and spec.index in by_value
        and not spec.detached
    }
    if any(_is_view_of(spec, n, finished.specs, spent) for n, spec in enumerate(finished.specs)):
        raise Unfunctionalizable("a view of what the graph differentiated is returned")
    if len(by_value) < len(watched):
        finished.spent = spent
        for i in by_value:
            finished.value_fakes[i] = finished.value_fakes[i].detach()
        return None
    functional = functional_graph(tracer, gm, inputs, finished)
    functional.spent = spent
    return functional


def _is_view_of(
    spec: OutputSpec, number: int, specs: Sequence[OutputSpec], spent: Mapping[int, Any]
) -> bool:
    """Whether an output with a history is a view of one of the outputs in `spent`."""
    if spec.kind == "fresh" or spec.detached:
        return False
    while spec.kind == "alias_of_output":
        number = spec.index
        spec = specs[number]
    return number in spent


def _refusals(inputs: Inputs, values: Sequence[torch.Tensor]) -> list[Any]:
    """For each value, autograd's error when asked to go back through it, or None."""
    tensors = [fake for fake in inputs.fakes if isinstance(fake, torch.Tensor)]
    wanted = [fake for fake in tensors if fake.requires_grad]
    if not wanted:  # autograd's error is of that, whatever the value
        return [None] * len(values)
    found: list[Any] = []
    for value in values:
        refusal = None
        try:
            with (
                getattr(value, "fake_mode", None) or nullcontext()
            ):  # unbind's backward makes zeros
                tangent = torch.zeros_like(value)
                torch.autograd.grad(value, wanted, tangent, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            refusal = str(error) if "a second time" in str(error) else None
        found.append(refusal)
    return found


def _inputs_below(value: torch.Tensor, inputs: Inputs) -> tuple[int, ...]:
    """Numbers of the inputs that autograd would reach from `value`."""
    number = {id(fake): i for i, fake in enumerate(inputs.fakes)}
    todo = [value.grad_fn]
    seen = set(todo)
    found = set()
    while todo:
        function: Any = todo.pop()
        variable = getattr(function, "variable", None)
        if id(variable) in number:
            found.add(number[id(variable)])
        for following, _ in function.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return tuple(sorted(found))


class FreedGraphsCallable:
    """Runs a compiled graph without grad mode, and returns the results that it differentiated as
    tensors that autograd refuses.

    statics: by number of input; a parameter or buffer that `compiled` holds, and is not passed.
    grad_mode: run it in that of the caller; it has a backward for the rest.
    """

    def __init__(
        self,
        compiled: Callable[..., Any],
        spent: Mapping[int, tuple[str, tuple[int, ...]]],
        statics: Sequence[torch.Tensor | None] = (),
        *,
        grad_mode: bool = False,
    ) -> None:
        self.compiled = compiled
        self.spent = spent
        self.statics = statics
        self.grad_mode = grad_mode
        self.binds_static = getattr(compiled, "binds_static", False)
        self.compile_report = getattr(compiled, "compile_report", None)

    def __call__(self, *inputs: Any) -> Any:
        if self.grad_mode:
            results = self.compiled(*inputs)
        else:
            results = without_grad(self.compiled, *inputs)
        if torch.is_grad_enabled() and not self.grad_mode:
            results = map_aggregate(results, _viewed_with_grad)
        if not self.spent:
            return results
        given = iter(inputs)
        every = [next(given) if x is None else x for x in self.statics] if self.statics else inputs
        numbers = itertools.count()

        def hand_out(leaf: Any) -> Any:
            refusal, below = self.spent.get(next(numbers), (None, ()))
            if refusal is None:
                return leaf
            with torch.enable_grad():
                return _FreedGraph.apply(leaf, refusal, *[every[i] for i in below])

        return map_aggregate(results, hand_out)


_autograd: Any = torch._C._autograd


def _viewed_with_grad(leaf: Any) -> Any:
    """Make a view one that the caller, whose grad mode is on, may write to; the view's base has no
    part in its history.
    """
    kinds = _autograd.CreationMeta
    view = isinstance(leaf, torch.Tensor) and leaf._is_view()
    if not view or _autograd._get_creation_meta(leaf) != kinds.NO_GRAD_MODE:
        return leaf
    if leaf._base is not None and leaf._base.requires_grad:
        return leaf.detach()
    _autograd._set_creation_meta(leaf, kinds.DEFAULT)
    return leaf


class _FreedGraph(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, refusal: str, *inputs: torch.Tensor) -> Any:
        ctx.refusal = refusal
        ctx.inputs = 2 + len(inputs)
        ctx.set_materialize_grads(False)
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if gradients == (None,):  # a node of several outputs is gone back through for another one
            return (None,) * ctx.inputs
        raise RuntimeError(ctx.refusal)
