"""Tensors that an operator may write in place: those that nobody reads afterwards.

    new = index_copy(cache, 2, position, row)       cache[:, :, position] = row
    ... reads of new ...                            ... reads of cache ...
    copy_(cache, new)

An input is written before the end of the graph only if nothing that follows may fail: a graph that
fails has written nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from fxgraph.fallible_operations import may_fail
from fxgraph.node import Node
from fxgraph.symbolic_values import expr_of
from inductor.index import Index, Var
from inductor.ir import AtenCall, Buffer, Program, Tensor
from inductor.lowering.registry import aten
from inductor.ops import Tape, recording

OVERWRITING = frozenset(
    [aten.slice_scatter.default, aten.select_scatter.default, aten.index_put.default]
    + [aten.index_copy.default, aten.index_add.default, aten.index_fill.int_Scalar]
    + [aten.index_fill.int_Tensor, aten.scatter.src, aten.scatter.value, aten.scatter_add.default]
)


def writes_of_inputs(nodes: Sequence[Node]) -> dict[Node, Node]:
    """The operators that may overwrite an input's memory, and the write that is done thereby."""
    found: dict[Node, Node] = {}
    for node in nodes:
        if node.target is not aten.copy_.default or node.args[0].op != "placeholder":
            continue
        chain: list[Node] = []
        source = node.args[1]
        while isinstance(source, Node) and source.target in OVERWRITING:
            chain.append(source)
            source = source.args[0]
        if source is node.args[0]:
            found.update(dict.fromkeys(chain, node))
    if not found:
        return found
    later: set[Any] | None = set()  # the checks of places that follow; None: something else fails
    for node in reversed(nodes):
        checks = _checks(node)
        if node in found and (later is None or not later <= checks):
            del found[node]
        if later is not None and checks:
            later |= checks
        elif may_fail(node) and not checks:
            later = None
    return found


def _checks(node: Node) -> set[Any]:
    """The checks that an operator makes of places in a tensor before it writes there: one that an
    earlier operator has made does not fail."""
    target, args = node.target, node.args
    if target is aten.index_put.default:
        size = args[0].meta["val"].shape
        indices = [(d, i) for d, i in enumerate(args[1]) if i is not None]
        if any(i.meta["val"].dtype in (torch.bool, torch.uint8) for _, i in indices):
            return set()  # nor may the values fit the places of a mask
        return {(i, expr_of(size[d]), "put") for d, i in indices}
    if target in (aten.index_copy.default, aten.index_add.default) and args[0].meta["val"].dim():
        return {(args[2], expr_of(args[0].meta["val"].shape[args[1]]), "copy")}
    return set()


def may_overwrite(
    program: Program, env: dict[Any, Any], node: Node, base: Tensor, write: Node | None
) -> bool:
    """Whether memory of `base`, the operator's first argument, is read by no later node but as the
    result. Lazy values are looked at by `lazy_readers`. write: of an input, done by the operator.
    """
    window = base.window
    if window is None or not window.is_whole():
        return False
    buffer = window.buffer
    if buffer.kind != "temp" and (buffer.kind != "input" or write is None):
        return False
    if any(isinstance(step, AtenCall) and _may_share(step, buffer) for step in program.steps):
        return False
    return not any(t.window is not None and t.window.buffer is buffer for t in _alive(env, node))


def _may_share(step: AtenCall, buffer: Buffer) -> bool:
    """Whether a result of the operator may be memory of the buffer."""
    if buffer.name not in step.reads:
        return False
    schema = getattr(step.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


def lazy_readers(env: dict[Any, Any], node: Node, base: Tensor) -> list[Tensor]:
    """The lazy values, needed after a node, that read the memory of `base`."""
    assert base.window is not None
    name = base.window.buffer.name
    return [t for t in _alive(env, node) if t.window is None and name in _buffers_read(t)]


def _alive(env: dict[Any, Any], node: Node) -> Iterator[Tensor]:
    """The values so far that a node after this one takes, but for writes at the end."""
    for other, value in env.items():
        if all(user in env or user is node or _is_write(user, other) for user in other.users):
            continue
        for t in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(t, Tensor):
                yield t


def _is_write(user: Node, other: Node) -> bool:
    return user.target is aten.copy_.default and user.args[0] is other


def _buffers_read(t: Tensor) -> set[str]:
    tape = Tape()
    if t.numel == 0:
        return set()
    with recording(tape):
        t.load(tuple(Index.of(Var(f"i{d}", n)) for d, n in enumerate(t.size)))
    return {access.buffer for access in tape.loads()}


__all__ = ["OVERWRITING", "lazy_readers", "may_overwrite", "writes_of_inputs"]
