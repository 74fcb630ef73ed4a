"""Reads of strides, in which sizes of 0 and 1 are visible.

    y = x.t() * 2
    y.stride()        # guard: no size is 0 or 1 where torch's rules for many were taken

Strides of dimensions of size 1, and of tensors without elements, reach no memory. The rules of fake
tensors differ there from those of real ones; where no guard can exclude such a size, the read
breaks the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from fxgraph import Node
from fxgraph.symbolic_values import expr_of, hint_of

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_READS = frozenset(["stride", "dim_order", "is_contiguous"])
# Views whose strides fake tensors compute as real ones do.
_EXACT = frozenset(
    ["getitem", "getattr", "t", "transpose", "swapaxes", "swapdims", "permute", "movedim"]
    + ["moveaxis", "narrow", "select", "unsqueeze", "squeeze", "expand", "expand_as", "detach"]
    + ["chunk", "split", "unbind", "diagonal", "as_strided", "empty_strided", "alias"]
)


def settle_strides(
    tx: Interpreter, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Before a read of strides (`name`), guard that sizes are those for which they were computed.
    Raises DataDependent where data decides.
    """
    if name not in _READS or not args or not isinstance(args[0], Node):
        return
    fake = args[0].meta["example_value"]
    if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
        return
    if tx.output.symbols.active and args[0].op != "placeholder":
        tx.output.symbols.env.settle_few()
    visible = 2  # sizes below are seen in the answer
    if name == "is_contiguous":
        visible = 1 if kwargs or args[1:] else 0  # another order of no elements
    if _has_few(fake, visible) and not _is_exact(args[0], {}):
        raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}() with sizes of 0 or 1"))


def _has_few(fake: torch.Tensor, limit: int) -> bool:
    """Whether a size is below the limit in this call, also where the sizes of calls vary."""
    return any((known := hint_of(size)) is not None and known < limit for size in fake.shape)


def _is_exact(node: Node, known: dict[Node, bool]) -> bool:
    """Whether the strides of a node's tensors are those of real tensors."""
    if node not in known:
        known[node] = _is_exact_call(node, known)
    return known[node]


def _is_exact_call(node: Node, known: dict[Node, bool]) -> bool:
    if node.op in ("placeholder", "get_attr"):
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name not in _EXACT:
        involved = [node, *node.all_input_nodes]
        if any(map(_may_have_few, involved)) and not all(map(_is_plain, involved)):
            return False
    return all(_is_exact(one, known) for one in node.all_input_nodes)


def _may_have_few(node: Node) -> bool:
    """Whether a node has a size of 0 or 1, as far as is known."""
    fake = node.meta.get("example_value")
    return not isinstance(fake, torch.Tensor) or _has_few(fake)


def _is_plain(node: Node) -> bool:
    """Whether a node has elements, in the order of its dimensions and without gaps."""
    fake = node.meta.get("example_value")
    if not isinstance(fake, torch.Tensor):
        return not isinstance(fake, tuple | list)
    if fake.layout is not torch.strided or any(hint_of(n) == 0 for n in fake.shape):
        return False
    expected: Any = 1
    for size, stride in zip(reversed(fake.shape), reversed(fake.stride())):
        if expr_of(stride) != expr_of(expected):
            return False
        expected = expected * size
    return True
