"""Reads of strides, in which sizes of 0 and 1 are visible.

    y = x.t() * 2
    y.stride()        # guard: no size is 0 or 1 where torch's rules for many were taken

Strides of dimensions of size 1, and of tensors without elements, reach no memory. The rules of fake
tensors differ there from those of real ones. Where no guard can exclude such a size, the operations
before the read run once on zeros, while capturing, and the read breaks the graph if the strides are
others. Operations that refuse zeros, are the program's, or have very large operands are taken at
the word of fake tensors.
"""

from __future__ import annotations

import math
import types
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from fxgraph import Node
from fxgraph.args import map_aggregate
from fxgraph.symbolic_values import expr_of, hint_of

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph

_READS = frozenset(["stride", "dim_order", "is_contiguous"])
_LARGEST = 1 << 24  # elements of a tensor that is made to learn strides


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
    if _has_few(fake, visible) and not _is_exact(tx.output, args[0]):
        raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}() with sizes of 0 or 1"))


def _has_few(fake: torch.Tensor, limit: int) -> bool:
    """Whether a size is below the limit in this call, also where the sizes of calls vary."""
    return any((known := hint_of(size)) is not None and known < limit for size in fake.shape)


def _is_exact(output: OutputGraph, node: Node) -> bool:
    """Whether real tensors have the strides of the node's fake one."""
    try:
        with (
            torch.no_grad(),
            torch._C.DisableTorchFunctionSubclass(),
            torch.random.fork_rng(devices=()),
        ):
            real = _replayed(output.real_strides, node)
    except NotImplementedError:  # a size that data decides
        return False
    return real == _strides_of(node.meta["example_value"])


def _replayed(real: dict[Node, Any], last: Node) -> Any:
    """The strides of the node's result in real tensors, by its operations on zeros; those of fake
    tensors where that fails. Operations on tensors in the order of their dimensions need no replay.
    real: the strides of nodes so far.
    """
    made: dict[Node, Any] = {}
    for node in _ancestors(last, real):
        fake = node.meta["example_value"]
        inputs = node.all_input_nodes
        if node.op in ("placeholder", "get_attr") or not inputs or _keeps_order(node, real):
            real[node] = _strides_of(fake)
            continue
        try:
            made[node] = _called(node, real, made)
            real[node] = _strides_of(made[node])
        except (RuntimeError, TypeError, ValueError, IndexError):  # not of zeros, or too large
            real[node] = _strides_of(fake)
    return real[last]


def _called(node: Node, real: dict[Node, Any], made: dict[Node, Any]) -> Any:
    """The result of a node's operation on zeros."""
    if not (node.op == "call_method" or _is_torchs(node.target)):
        raise NotImplementedError
    for one in node.all_input_nodes:
        if one not in made:
            made[one] = _stand_in(one.meta["example_value"], real[one])
    args, kwargs = map_aggregate(
        (node.args, node.kwargs), lambda arg: made[arg] if isinstance(arg, Node) else arg
    )
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return node.target(*args, **kwargs)


def _keeps_order(node: Node, real: dict[Node, Any]) -> bool:
    inputs = node.all_input_nodes
    return all(map(_is_plain, (node, *inputs))) and all(
        real[one] == _strides_of(one.meta["example_value"]) for one in inputs
    )


def _ancestors(last: Node, real: dict[Node, Any]) -> list[Node]:
    """The node and all that it is made of, in order, up to those whose strides are known."""
    found = {last} - real.keys()
    waiting = [*found]
    while waiting:
        new = {*waiting.pop().all_input_nodes} - found - real.keys()
        found |= new
        waiting += new
    return [node for node in last.graph.nodes if node in found]


def _strides_of(value: Any) -> Any:
    """The strides of a tensor in this call, or of those in a sequence."""
    if isinstance(value, torch.Tensor):
        return [*map(_number, value.stride())]
    return [*map(_strides_of, value)] if isinstance(value, tuple | list) else None


def _stand_in(fake: Any, strides: Any) -> Any:
    """Zeros of the sizes of this call and these strides; of a number, that of this call."""
    if isinstance(fake, tuple | list):
        return [*map(_stand_in, fake, strides)]
    if not isinstance(fake, torch.Tensor):
        return _number(fake)
    sizes = [*map(_number, fake.shape)]
    if math.prod(sizes) > _LARGEST:
        raise NotImplementedError
    return torch.empty_strided(sizes, strides, dtype=fake.dtype, device="cpu").zero_()


def _number(value: Any) -> Any:
    known = hint_of(value)
    if known is None and value is not None:  # known to the graph alone
        raise NotImplementedError
    return known


def _is_torchs(function: Any) -> bool:
    """Whether the function is one of C's or torch's, which runs nothing of the program's."""
    if isinstance(function, types.BuiltinFunctionType):
        return True
    return type(function) is types.FunctionType and function.__module__.startswith("torch.")


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
