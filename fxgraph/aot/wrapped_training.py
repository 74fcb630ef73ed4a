"""Graphs with tensor subclasses that wrap tensors, under autograd: a forward and a backward of
plain tensors.

forward      (a, b | of x) -> (p, q | of y, saved)
backward     (saved, dp, dq | of the gradient of y) -> (da, db | of the gradient of x)

Gradients are those of the wrappers: autograd differentiates the program's operators, and classes
take the operators of the backward apart as they do the forward's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from fxgraph.aot.cuts import has_hook
from fxgraph.aot.functional import UndifferentiableHere, Unfunctionalizable
from fxgraph.aot.functionalize import tracing
from fxgraph.aot.wrappers import Numbers, Trace, Wrapper, number_of, plain_leaves, wrapper_of
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node
from fxgraph.symbolic_values import hint_of
from fxgraph.wrapper_parts import own_context

# Of gradients of other classes than the results, for which a backward is compiled.
_FORMS = 4

Compile = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]


def compile_wrapped_training(
    gm: GraphModule, example_inputs: Sequence[Any], compile_plain: Compile
) -> Callable[..., Any]:
    """Raises Unfunctionalizable and UndifferentiableHere."""
    joint = _Joint(gm, example_inputs)
    with torch.no_grad():
        forward = compile_plain(joint.forward, joint.trace.examples)
    flat = _flat(forward, joint.trace.examples, joint.forward)
    return _WrappedTraining(joint, flat, _Backwards(joint, compile_plain))


def _flat(
    compiled: Callable[..., Any], examples: Sequence[Any], gm: GraphModule
) -> Callable[..., Any]:
    """Take all inputs, whether or not the compiled function binds the static ones."""
    if not getattr(compiled, "binds_static", False):
        return compiled
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    kept = [i for i, node in enumerate(placeholders) if not node.meta.get("static")]
    return lambda *inputs: compiled(*[inputs[i] for i in kept])


def _real(fake: Any) -> Any:
    """An example of an input of the backward: backends look at its metadata."""
    if not isinstance(fake, torch.Tensor):
        return fake
    size, stride = map(hint_of, fake.shape), map(hint_of, fake.stride())
    return torch.empty_strided(tuple(size), tuple(stride), dtype=fake.dtype, device=fake.device)


@dataclass
class _Backward:
    """The graph of a backward from some of the results. inputs: the nodes of the trace behind its
    inputs: numbers, saved values, tangents. tangents, grads: wrappers of those and of the
    gradients; strides: of the tangents' plain tensors.
    """

    graph: GraphModule
    inputs: list[Node]
    tangents: list[Wrapper | None]
    strides: list[tuple[Any, ...]]
    grads: list[Wrapper | None]
    has_grad: list[bool]


class _Unsaved(Exception):
    """A backward takes values that the first one does not, and that no call has saved."""


class _Joint:
    """forward: of plain tensors; its last results are saved. backward: from all results.
    outputs: wrappers of the results. wanted: the places of the inputs that have gradients.
    """

    def __init__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> None:
        trace = self.trace = Trace(gm, example_inputs, grad=torch.is_grad_enabled())
        self.symbols = trace.symbols
        _refuse_writes(trace)
        if any(map(has_hook, gm.graph.nodes)):
            raise UndifferentiableHere("a result has a hook")
        self.differentiable = [
            isinstance(result, torch.Tensor) and result.requires_grad for result in trace.results
        ]
        self.outputs = [wrapper_of(result) for result in trace.results]
        self.wanted = [
            i
            for i, fake in enumerate(trace.fakes)
            if isinstance(fake, torch.Tensor) and fake.requires_grad
        ]
        self._roots = [r for r, d in zip(trace.results, self.differentiable, strict=True) if d]
        if not self._roots:
            raise UndifferentiableHere("no result requires grad")
        if any(root.is_leaf for root in self._roots):
            raise UndifferentiableHere("a result is a leaf of autograd")
        self._ahead = dict.fromkeys(trace.record.graph.nodes)
        self._saved: list[Node] | None = None
        made = [trace.record.node_of(leaf) for r in trace.results for leaf in plain_leaves(r)]
        self.backward = self.backward_from(tuple(range(len(self._roots))))
        self.forward = self._forward(made)

    def backward_from(
        self, places: tuple[int, ...], arriving: Sequence[torch.Tensor] = ()
    ) -> _Backward:
        """The backward of the results of these places among those that have gradients. arriving:
        the gradients, where their classes are others than those of the results.
        """
        record, roots = self.trace.record, [self._roots[place] for place in places]
        before = set(record.graph.nodes)
        tangents: list[Any] = []
        given: list[Node] = []
        with tracing(grad=False), self.trace.mode, torch.no_grad():
            for number, root in enumerate(roots):
                tangent = torch.empty_like(root)
                coerce = getattr(tangent, "__coerce_tangent_metadata__", None)
                tangent = tangent if coerce is None else coerce()
                if arriving:
                    tangent = self.trace.mode.from_tensor(arriving[number], static_shapes=True)
                tangents.append(tangent)
                for leaf in plain_leaves(tangent):
                    given.append(record.add_tangent(f"tangent_{len(given)}", leaf))
        inputs = [self.trace.fakes[i] for i in self.wanted]
        with tracing(grad=False), self.trace.mode, record:
            try:
                grads = torch.autograd.grad(
                    roots, inputs, tangents, allow_unused=True, retain_graph=True
                )
            except Unfunctionalizable:
                raise
            except Exception as error:  # of the class
                raise UndifferentiableHere(
                    f"{type(error).__name__} in the backward of a tensor subclass: {error}"
                ) from error
        results = [record.node_of(leaf) for g in grads if g is not None for leaf in plain_leaves(g)]
        behind = [n for n in record.graph.nodes if n not in before and n not in given]
        graph, taken = self._graph(behind, given, results)
        return _Backward(
            graph,
            taken,
            [wrapper_of(tangent) for tangent in tangents],
            [node.meta["val"].stride() for node in given],
            [wrapper_of(grad) for grad in grads],
            [grad is not None for grad in grads],
        )

    def _graph(
        self, behind: list[Node], given: list[Node], results: list[Any]
    ) -> tuple[GraphModule, list[Node]]:
        """The graph of the nodes of a backward, and the nodes behind its inputs."""
        used = dict.fromkeys(n for node in behind for n in node.all_input_nodes)
        used.update(dict.fromkeys(n for n in results if isinstance(n, Node)))
        ahead = [node for node in used if node in self._ahead]
        saved = [n for n in ahead if n.op != "get_attr" and not _is_number(n)]
        self._saved = saved if self._saved is None else self._saved
        if not set(saved) <= set(self._saved):
            raise _Unsaved("values that the first backward does not take")
        taken = [*self.trace.record.symbols.values(), *self._saved, *given]
        graph = Graph()
        copies: dict[Node, Node] = {}
        for node in taken:
            copies[node] = graph.placeholder(node.name)
            copies[node].meta.update(
                val=node.meta["val"], example_value=node.meta["val"], source=node.name, version=0
            )
        constants = [node for node in ahead if node.op == "get_attr"]
        sizes = [n for n in self._ahead if n.op != "placeholder" and _is_number(n)]
        for node in [*constants, *sizes, *behind]:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[n] if isinstance(n, Node) else n for n in results))
        return self.trace.module(graph), taken

    def _forward(self, made: list[Any]) -> GraphModule:
        graph = Graph()
        copies: dict[Node, Node] = {}
        for node in self._ahead:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        ends = [copies[n] if isinstance(n, Node) else n for n in [*made, *self.computed]]
        graph.output(tuple(ends))
        return self.trace.module(graph)

    @property
    def saved(self) -> list[Node]:
        """The nodes of the forward whose values all backwards take."""
        assert self._saved is not None
        return self._saved

    @property
    def computed(self) -> list[Node]:
        """The saved nodes that the forward gives."""
        return [node for node, place in zip(self.saved, self.read, strict=True) if place is None]

    @functools.cached_property
    def read(self) -> list[tuple[int, int] | None]:
        """For each saved node the number of the input, and of the plain tensor in it; None where
        the forward gives it: what it computes, and offsets of jagged tensors, for which eager saves
        no input.
        """
        placeholders = [node for node in self._ahead if node.op == "placeholder"]
        places = [
            None if leaf is not fake and _has_no_gradient(leaf) else (i, number)
            for i, fake in enumerate(self.trace.fakes)
            for number, leaf in enumerate(plain_leaves(fake))
        ]
        known = dict(zip(placeholders, places, strict=True))
        return [known.get(node) for node in self.saved]


class _Backwards:
    """Compiled backwards, one for each set of results whose gradients arrive: the gradient of an
    input that depends on others alone is None, not of zeros.
    """

    def __init__(self, joint: _Joint, compile_plain: Compile) -> None:
        self._joint, self._compile_plain = joint, compile_plain
        every = tuple(range(sum(joint.differentiable)))
        self._compiled = {every: [self._compile(joint.backward)]}

    def _compile(self, backward: _Backward) -> tuple[_Backward, Callable[..., Any]]:
        with torch.no_grad():
            examples = [_real(node.meta["val"]) for node in backward.inputs]
            return backward, self._compile_plain(backward.graph, examples)

    def of(
        self, places: tuple[int, ...], tangents: Sequence[Any]
    ) -> tuple[_Backward, Callable[..., Any], list[Any]]:
        """The backward of the results of these places among those that have gradients, with the
        gradients in its form.
        """
        known = self._compiled.setdefault(places, [])
        if not known:
            known.append(self._compile(self._joint.backward_from(places)))
        for backward, compiled in known:
            given = [_as(*pair) for pair in zip(tangents, backward.tangents, strict=True)]
            if not any(one is None for one in given):
                return backward, compiled, given
        if self._joint.symbols or len(known) == _FORMS:
            raise _unlike(tangents, known[0][0].tangents)
        try:
            known.append(self._compile(self._joint.backward_from(places, tangents)))
        except _Unsaved:
            raise _unlike(tangents, known[0][0].tangents) from None
        return *known[-1], list(tangents)


def _is_number(node: Node) -> bool:
    """Whether the node is a symbol, or computed of symbols: no operator without a result."""
    val = node.meta.get("val")
    return val is not None and not isinstance(val, (torch.Tensor, tuple, list))


def _refuse_writes(trace: Trace) -> None:
    if trace.writes:
        raise UndifferentiableHere("an input is written")
    inputs = [leaf for fake in trace.fakes for leaf in plain_leaves(fake)]
    inputs = [leaf for leaf in inputs if isinstance(leaf, torch.Tensor)]
    memories = {leaf.untyped_storage()._cdata for leaf in inputs}
    shared = {id(leaf) for leaf in inputs if _has_no_gradient(leaf)}
    for result in trace.results:
        for leaf in plain_leaves(result):
            if leaf is not result and id(leaf) in shared:
                continue  # of the wrapper and the input, no part with a gradient
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata in memories:
                raise UndifferentiableHere("a result shares memory with an input")


def _has_no_gradient(tensor: torch.Tensor) -> bool:
    """Of integers, or of no elements: jagged tensors keep numbers in the sizes of such."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    return any(isinstance(size, int) and size == 0 for size in tensor.shape)


class _WrappedTraining:
    def __init__(self, joint: _Joint, forward: Callable[..., Any], backwards: _Backwards) -> None:
        self.compile_report = getattr(forward, "compile_report", None)
        self._function = _function_of(joint, forward, backwards)

    def __call__(self, *inputs: Any) -> Any:
        with torch.enable_grad():  # the graph may switch it on behind its start
            return self._function.apply(*inputs)


def _function_of(joint: _Joint, forward: Callable[..., Any], backwards: _Backwards) -> Any:
    wrappers, outputs = joint.trace.wrappers, joint.outputs
    inputs_count, kept = len(wrappers), _Kept(joint.read, wrappers)

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.set_materialize_grads(False)
            flat = [leaf for pair in zip(inputs, wrappers) for leaf in _apart(*pair)]
            ctx.numbers = {symbol: inputs[place] for symbol, place in joint.symbols.items()}
            made = list(forward(*flat))
            count = len(made) - len(joint.computed)
            ctx.save_for_backward(*[inputs[i] for i in kept.inputs], *made[count:])
            ctx.layouts = kept.layouts(inputs)
            plain = iter(made[:count])
            results = tuple(_together(one, plain, ctx.numbers) for one in outputs)
            ctx.mark_non_differentiable(
                *[
                    result
                    for result, is_followed in zip(results, joint.differentiable, strict=True)
                    if isinstance(result, torch.Tensor) and not is_followed
                ]
            )
            return results

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *tangents: Any) -> Any:
            followed = [t for t, d in zip(tangents, joint.differentiable, strict=True) if d]
            places = tuple(i for i, tangent in enumerate(followed) if tangent is not None)
            if not places:
                return (None,) * inputs_count
            part, backward, given = backwards.of(places, [followed[place] for place in places])
            flat = [
                leaf
                for tangent, wrapper in zip(given, part.tangents, strict=True)
                for leaf in _apart(tangent, wrapper)
            ]
            flat = [_laid_out(*pair, ctx.numbers) for pair in zip(flat, part.strides)]
            saved = kept.values(ctx.saved_tensors, ctx.layouts)
            plain = iter(backward(*ctx.numbers.values(), *saved, *flat))
            grads: list[Any] = [None] * inputs_count
            for place, wrapper, has_grad in zip(
                joint.wanted, part.grads, part.has_grad, strict=True
            ):
                if has_grad:
                    grads[place] = _together(wrapper, plain, ctx.numbers)
            return tuple(grads)

    return Compiled


class _Kept:
    """Tensors saved for the backwards: as in eager, the inputs themselves, whose plain tensors are
    looked up there (`x.inner = y`), and what the forward computes.

    read: as _Joint's. inputs: the numbers of those.
    """

    def __init__(
        self, read: Sequence[tuple[int, int] | None], wrappers: Sequence[Wrapper | None]
    ) -> None:
        self._read, self._wrappers = read, wrappers
        self.inputs = sorted({place[0] for place in read if place is not None})

    def _parts(self, inputs: dict[int, Any]) -> list[Any]:
        parts = {i: _apart(one, self._wrappers[i]) for i, one in inputs.items()}
        return [parts[place[0]][place[1]] for place in self._read if place is not None]

    def layouts(self, inputs: Sequence[Any]) -> list[Any]:
        """Of the plain tensors, when they are saved."""
        return [_layout(part) for part in self._parts({i: inputs[i] for i in self.inputs})]

    def values(self, saved: Sequence[Any], layouts: list[Any]) -> list[Any]:
        """The tensors that the backwards take, of those that were saved."""
        inputs = dict(zip(self.inputs, saved))
        for i, one in inputs.items():
            if not _is_as(one, self._wrappers[i]):
                raise RuntimeError("a tensor subclass wraps others now than in the forward")
        parts = self._parts(inputs)
        if [_layout(part) for part in parts] != layouts:
            raise RuntimeError("a tensor subclass wraps tensors of another layout now")
        own, computed = iter(parts), iter(saved[len(self.inputs) :])
        return [next(computed if place is None else own) for place in self._read]


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _apart(value: Any, wrapper: Wrapper | None) -> list[Any]:
    return [value] if wrapper is None else [held for _, held in wrapper.flatten(value)]


def _together(wrapper: Wrapper | None, plain: Any, numbers: Numbers) -> Any:
    return next(plain) if wrapper is None else wrapper.unflatten(plain, numbers)


def _as(tangent: Any, wrapper: Wrapper | None) -> Any:
    """A gradient in the form that the backward was compiled for; None where it has another."""
    if _is_as(tangent, wrapper):
        return tangent
    coerce = getattr(tangent, "__coerce_same_metadata_as_tangent__", None)
    if coerce is not None and wrapper is not None:
        other = None if type(tangent) is wrapper.cls else wrapper.cls
        tangent = coerce(own_context(wrapper.context), other)
    return tangent if _is_as(tangent, wrapper) else None


def _unlike(tangents: Sequence[Any], wrappers: Sequence[Wrapper | None]) -> RuntimeError:
    pairs = zip(tangents, wrappers, strict=True)
    tangent, wrapper = next(pair for pair in pairs if _as(*pair) is None)
    wanted = "torch.Tensor" if wrapper is None else wrapper.cls.__name__
    return RuntimeError(
        f"a compiled backward was given a gradient of type {type(tangent).__name__} where the "
        f"result of the forward has type {wanted}: give backward() a gradient of that type"
    )


def _is_as(tangent: Any, wrapper: Wrapper | None) -> bool:
    own = wrapper_of(tangent)
    return own is None if wrapper is None else wrapper.is_like(own)


def _laid_out(tangent: torch.Tensor, strides: tuple[Any, ...], numbers: Numbers) -> torch.Tensor:
    """With the strides that the backward was compiled for."""
    stride = tuple(number_of(step, numbers) for step in strides)
    if tangent.stride() == stride:
        return tangent
    made = torch.empty_strided(tangent.shape, stride, dtype=tangent.dtype, device=tangent.device)
    return made.copy_(tangent)
