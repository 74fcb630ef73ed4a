"""Reads of the functions of checkpoints, compared when a backward would compute them again.

    before    out = graph(x)
    now       out = watch(graph(x), self, ...)     # with roots and tensors of what they read
    backward  the guards on what they read hold, and the tensors are the same; else it raises

Eager's backward runs the function again, on what it finds then (an attribute that was set since, a
list that grew, a parameter whose `.data` is another); the compiled one repeats the first run. From
then on the frame leaves its checkpoints to torch.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.utils.checkpoint import CheckpointError

from dynamo import _hook
from dynamo.guards.kinds import Guard, GuardSet, GuardTree
from dynamo.guards.sources import (
    ClosureCellSource,
    ClosureSource,
    GlobalsSource,
    LocalSource,
    Source,
)
from fxgraph import Node, effects
from fxgraph.args import leaves
from fxgraph.higher_order import is_checkpoint

if TYPE_CHECKING:
    from dynamo.guards.history import SeenFrame
    from dynamo.interp.output import OutputGraph

_States = tuple[list[int], list[int], list[bytes]]  # memory, versions, samples of the bytes
_NUMBERS = (int, float)
_GONE = object()
_SAMPLE = 64  # bytes at the start, in the middle and at the end of a tensor
_CORNER = 4  # elements of each dimension, at its start and at its end, of a tensor with gaps
_NORMALISATIONS = (torch.nn.functional.batch_norm, torch.nn.functional.instance_norm)
_UNCHANGED = "what its checkpoints read was unchanged in backwards"


@dataclass
class ReadsOfCheckpoints:
    """The places that the rewritten frame loads behind its graph, for `watch`: arguments, cells of
    the closure, then numbers and tensors.
    """

    sources: list[Source]
    watch: Callable[..., Any]


def reads_of_checkpoints(output: OutputGraph, ends: Sequence[Node]) -> ReadsOfCheckpoints | None:
    """The reads to compare in backwards from these results of the graph, if any reads matter."""
    nodes = [node for node in output.graph.nodes if is_checkpoint(node)]
    if not output.checkpoint_reads or output.context.export:
        return None
    guards = GuardSet()
    same: dict[Source, None] = {}
    others: dict[Source, None] = {}
    for reads in output.checkpoint_reads:
        for source, found in output.guards.among(reads).items():
            for guard in found:
                guards.add(source, guard.kind, guard.payload)
            if source.base is not None and any(map(_tells_no_value, found)):
                same[source] = None
            elif source.base is not None and any(guard.kind == "static_tensor" for guard in found):
                others[source] = None
    given = {one for node in nodes for one in node.all_input_nodes}
    written = {one for node in nodes for one in _written_alone(node)}
    given -= written
    passed = {one for node in nodes for one in leaves(node.args[4:]) if isinstance(one, Node)}
    arguments = {item.source for item in output.inputs if item.node in passed}
    others.update({item.source: None for item in output.inputs if item.node in given})
    for item in output.inputs:
        if item.node in written:
            others.pop(item.source, None)
    roots = [guard.source.root for guard in guards if guard.source is not None]
    local = {root.index: root for root in roots if isinstance(root, LocalSource)}
    closure = {
        root.index: root.variable
        for root in roots
        if isinstance(root, (ClosureSource, ClosureCellSource))
    }
    first = max(local, default=-1) + 1
    for number, source in enumerate(same):
        guards.add(LocalSource(f"{source} before", first + number), "aliased", source)
    cells = [ClosureCellSource(name, index) for index, name in closure.items()]
    sources = [*(local[index] for index in sorted(local)), *cells, *same, *others]
    seen = output.symbols.seen
    output.guards.add(GlobalsSource(), "predicate", _Unchanged(seen))
    watch = _Watch(
        output.frame_globals,
        guards.build(),
        sorted(local),
        list(closure),
        _behind(output, nodes, ends),
        [(place, node in passed) for place, node in enumerate(ends) if node in given],
        [source in arguments for source in sources],
        seen,
    )
    return ReadsOfCheckpoints(sources, _hook.disabled(watch))


def _tells_no_value(guard: Guard) -> bool:
    """Whether other values pass, which the graph takes as an input."""
    return guard.kind == "tensor" or (guard.kind == "type" and guard.payload in _NUMBERS)


def _behind(output: OutputGraph, nodes: Sequence[Node], ends: Sequence[Node]) -> list[int]:
    """The places of the results that depend on checkpoints, which may be in bodies."""
    behind = set(nodes)
    for node in output.graph.nodes:
        if any(one in behind for one in node.all_input_nodes):
            behind.add(node)
    return [place for place, node in enumerate(ends) if not nodes or node in behind]


def _written_alone(checkpoint: Node) -> Iterator[Node]:
    """The tensors that its body writes, and whose values nothing reads: counters, and the running
    statistics of a normalisation, which computes of the batch alone. Each call of the function
    writes them, also between a call and its backward.
    """
    given = [one for one in leaves(checkpoint.args[4:]) if isinstance(one, Node)]
    tensors = [one for one in given if isinstance(one.meta["example_value"], torch.Tensor)]
    nodes = checkpoint.args[1].meta["example_value"].graph.nodes
    inside = [node for node in nodes if node.op == "placeholder"]
    outside = [*tensors, *checkpoint.args[2]]
    for node, outer in zip(inside, outside) if len(inside) == len(outside) else ():
        if node.users and all(_only_writes(user, node) for user in node.users):
            yield outer


def _only_writes(user: Node, node: Node) -> bool:
    if not effects.of(user).writes:
        return False
    if user.target not in _NORMALISATIONS:
        return not user.users and user.args[0] is node and node not in user.args[1:]
    named = user.kwargs.get("running_mean"), user.kwargs.get("running_var")
    return node in (*user.args[1:3], *named)


class _Unchanged:
    """Whether a frame may compute its checkpoints in a graph."""

    __name__ = _UNCHANGED

    def __init__(self, seen: SeenFrame) -> None:
        self.seen = seen

    def __call__(self, _: Any) -> bool:
        return not self.seen.checkpoints_moved


@dataclass
class _Watch:
    """Ties the check to the nodes of a call's results. behind, given: the places of results that
    depend on checkpoints, and that are given to them; are_arguments: of what is loaded.
    """

    namespace: dict[str, Any]
    tree: GuardTree
    locals: list[int]
    closure: list[int]
    behind: list[int]
    given: list[tuple[int, bool]]
    are_arguments: list[bool]
    seen: SeenFrame

    def __call__(self, results: tuple[Any, ...], *held: Any) -> tuple[Any, ...]:
        tensors = (results[place] for place in self.behind)
        found = {t.grad_fn for t in tensors if isinstance(t, torch.Tensor)}
        nodes = [node for node in found if node is not None]
        if nodes:
            # Without their history, which leads to the node.
            given = [(results[place].detach(), passed) for place, passed in self.given]
            read = [*zip(held, self.are_arguments, strict=True), *given]
            check: Any = _hook.disabled(_Check(self, held, read))
            for node in nodes:
                node.register_prehook(check)
        return results


class _Check:
    """Compares, in a backward, what the checkpoints of a call read."""

    def __init__(
        self, watch: _Watch, held: tuple[Any, ...], read: Sequence[tuple[Any, bool]]
    ) -> None:
        self.watch = watch
        roots, cells = len(watch.locals), len(watch.closure)
        self.roots = [_reference(root) for root in held[:roots]]
        self.cells, self.values = held[roots : roots + cells], held[roots + cells :]
        self.read = [pair for pair in read if isinstance(pair[0], torch.Tensor)]
        self.before = _states(self.read)

    def __call__(self, gradients: Any) -> None:
        watch = self.watch
        roots = [root() for root in self.roots]
        frame: Any = [None] * (max(watch.locals, default=-1) + 1)
        for index, root in zip(watch.locals, roots):
            frame[index] = root
        closure = [CellType()] * (max(watch.closure, default=-1) + 1)
        for index, cell in zip(watch.closure, self.cells):
            closure[index] = cell
        given = (*frame, *self.values), watch.namespace, None, tuple(closure)
        now = _states(self.read)
        if now != self.before:
            self._refuse_changed(now)
        if not any(root is _GONE for root in roots) and not watch.tree.check(*given):
            self._refuse("; ".join(watch.tree.explain_failure(*given)))

    def _refuse_changed(self, now: _States) -> NoReturn:
        for (tensor, is_argument), *states in zip(self.read, *self.before, *now):
            memory, version, _, memory_now, version_now, _ = states
            if is_argument and memory == memory_now and version != version_now:
                raise _overwritten(tensor, version)
        self._refuse("a tensor was written, or was given other data")

    def _refuse(self, what: str) -> NoReturn:
        self.watch.seen.checkpoints_moved = True
        raise CheckpointError(
            "what a checkpointed function reads was changed after its call and before this "
            f"backward, which computes it again: {what}. The compiled function leaves its "
            "checkpoints to torch from its next call on, whose backward computes with what it finds"
        )


def _reference(root: Any) -> Callable[[], Any]:
    """Gives an argument, or _GONE. A weak reference to the program's objects, which may hold the
    results: the garbage collector does not see the way back. A function may be held by the
    checkpoint alone.
    """
    if not isinstance(root, (torch.Tensor, FunctionType, MethodType, functools.partial)):
        try:
            reference = weakref.ref(root)
        except TypeError:
            return lambda: root
        return lambda: _GONE if (found := reference()) is None else found
    return lambda: root


def _states(read: Sequence[tuple[torch.Tensor, bool]]) -> _States:
    """The memory and the versions of the tensors, and some bytes: `.data` moves no version."""
    try:
        places, versions = [one.data_ptr() for one, _ in read], [one._version for one, _ in read]
    except RuntimeError:  # one of them has none, or does not tell
        places = [_told(torch.Tensor.data_ptr, one) for one, _ in read]
        versions = [_told(operator.attrgetter("_version"), one) for one, _ in read]
    return places, versions, [_sample(one, place) for (one, _), place in zip(read, places)]


def _sample(tensor: torch.Tensor, place: int) -> bytes:
    """Bytes of a tensor in the memory of the processor; elsewhere, none."""
    if place <= 0 or not tensor.is_cpu or not tensor.numel():
        return b""
    reach = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    if reach > tensor.numel():  # bytes in the gaps are not its own
        ends = (slice(_CORNER), slice(-_CORNER, None))
        with torch._C.DisableTorchFunctionSubclass():
            inner = tensor.detach()
            corners = [inner[(end,) * inner.dim()].contiguous() for end in ends]
        return b"".join([ctypes.string_at(one.data_ptr(), one.nbytes) for one in corners])
    size = reach * tensor.element_size()
    if size <= 3 * _SAMPLE:
        return ctypes.string_at(place, size)
    starts = (0, size // 2, size - _SAMPLE)
    return b"".join([ctypes.string_at(place + start, _SAMPLE) for start in starts])


def _told(read: Callable[[torch.Tensor], int], tensor: torch.Tensor) -> int:
    try:
        return read(tensor)
    except RuntimeError:
        return -1


def _overwritten(tensor: torch.Tensor, version: int) -> RuntimeError:
    """The error of autograd, which saves the arguments of checkpoints."""
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; "
        f"expected version {version} instead. Hint: enable anomaly detection to find the operation "
        "that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True, "
        "check_nan=False)."
    )
