"""Effects of calls of torch on their arguments, and the making of their results: for calls that
become nodes of the graph (values/tensors/tensor.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.scalars.constant import is_constant_type
from fxgraph import Node
from fxgraph.args import leaves
from fxgraph.torch_fx import asked_tensor

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def check_usable(tensor: torch.Tensor) -> None:
    """Break where autograd refuses the tensor, a view whose memory has been written."""
    try:
        tensor.is_leaf  # noqa: B018
    except RuntimeError as error:
        raise Unsupported(breaks.OpError("autograd", error)) from error


def refuse_odd_memory(tensor: torch.Tensor) -> None:
    """Break at a tensor from outside that is sparse by rows or blocks, nested or quantised."""
    with torch._C.DisableTorchFunctionSubclass():
        odd = tensor.layout not in (torch.strided, torch.sparse_coo)
        if odd or tensor.is_nested or tensor.is_quantized or tensor._is_zerotensor():
            raise Unsupported(breaks.UnknownObject(type(tensor).__name__))


def sparse_form(tensor: torch.Tensor) -> tuple[int, int, bool]:
    """The properties of a sparse tensor on which results depend, besides those of all tensors."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.sparse_dim(), tensor.dense_dim(), tensor.is_coalesced()


def refuse_odd_inference(tensor: torch.Tensor) -> None:
    """Break at a tensor of inference mode in a place of one that is none."""
    if not tensor.is_inference():
        return
    if tensor.requires_grad and not torch.is_inference_mode_enabled():
        raise Unsupported(breaks.UnknownObject("inference tensor that requires a gradient"))
    base = tensor._base
    if base is not None and not base.is_inference():  # by `x.data = y`
        raise Unsupported(breaks.UnknownObject("inference tensor that is a view of another kind"))


def target_name(target: Any) -> str:
    """The name of a method, function or operator overload (`add_` of add_.Tensor)."""
    if isinstance(target, str):
        return target
    return getattr(target, "__name__", str(target)).split(".")[0]


def writes(target: Any, kwargs: dict[str, Value]) -> bool:
    """Whether a call may change its arguments, by torch's naming or the operator's schema."""
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.is_mutable
    if isinstance(target, torch._ops.OpOverloadPacket):
        return any(getattr(target, name)._schema.is_mutable for name in target.overloads())
    name = target_name(target)
    return "out" in kwargs or (name.endswith("_") and not name.endswith("__"))


@contextlib.contextmanager
def keeps_form(tx: Interpreter, name: str, args: Any, always: bool) -> Iterator[None]:
    """Break where a call gives a tensor from outside (`always`: any) other sizes or strides: only
    tensors made by the frame may be resized or transposed in place in the graph.
    """
    nodes = [leaf for leaf in leaves(args) if isinstance(leaf, Node) and _is_tensor(leaf)]
    nodes = [node for node in nodes if node.op == "placeholder" or always]
    before = [_form(node) for node in nodes]
    try:
        yield
    finally:
        tx.output.side_effects.tensor_written()  # of the fake tensors
    if before != [_form(node) for node in nodes]:
        raise Unsupported(breaks.TensorMetadata(name))


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta["example_value"], torch.Tensor)


def _form(node: Node) -> tuple[Any, ...]:
    fake = node.meta["example_value"]
    return fake.shape, fake.stride(), fake.storage_offset()


def changes_something(target: Any) -> bool:
    """False only for functions known to be pure: then a result that is an argument itself needs no
    node.
    """
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name not in _PURE_IDENTITIES


_PURE_IDENTITIES = frozenset(
    ["contiguous", "to", "type", "float", "double", "half", "bfloat16", "expand_as"]
)


def check_layouts(name: str, args: Any, result: Any) -> None:
    """Backends take tensors for memory with strides, sparse in coordinates, or jagged. How many
    elements of a sparse one are stored depends on data, but where it is made of them.
    """
    made = args[0].target if args and isinstance(args[0], Node) else None
    if name in _STORED and made is not torch.sparse_coo_tensor and _is_sparse(args[0]):
        raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}() of a sparse result"))
    if isinstance(result, (tuple, list)):
        for item in result:
            check_layouts(name, (), item)
    elif isinstance(result, torch.Tensor) and result.layout not in _LAYOUTS:
        raise Unsupported(breaks.UncapturedCall(f"{name}, whose result is {result.layout}"))


def _is_sparse(node: Node) -> bool:
    return _is_tensor(node) and node.meta["example_value"].layout is torch.sparse_coo


_STORED = frozenset(["_nnz", "_indices", "_values", "indices", "values"])
# Attributes that would show the fake tensor itself.
OF_FAKES = frozenset(["__dir__", "__reduce_ex__", "__sizeof__", "is_set_to"])
_LAYOUTS = (torch.strided, torch.sparse_coo, torch.jagged)


def holds_tensor(result: Any) -> bool:
    if isinstance(result, torch.Tensor):
        return True
    if isinstance(result, (tuple, list)):
        return any(holds_tensor(item) for item in result)
    if type(result) is dict and all(type(key) is str for key in result):
        return any(map(holds_tensor, result.values()))
    return False


def is_plain(result: Any) -> bool:
    """A Python value that says the same of a fake tensor and of the real one."""
    if isinstance(result, (tuple, list)):
        return all(map(is_plain, result))
    return is_constant_type(type(result)) or isinstance(result, _SYMBOLIC)


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def arguments_as_numbers(
    tx: Interpreter, op: str, args: Sequence[Value], kwargs: dict[str, Value]
) -> tuple[list[Value], dict[str, Value]] | None:
    """The arguments, with numbers that are in tensors read: the one that the operation asked for,
    else all; None: there are none, or a break.
    """
    owner = list(args[:1]) if op == "call_method" else []
    given = [*args[len(owner) :], *kwargs.values()]
    asked = asked_tensor(tx.output.fake_mode)
    numbers = asked is not None and late_bound.with_numbers(tx, given, asked=asked)
    numbers = numbers or late_bound.with_numbers(tx, given)
    if numbers is None:
        return None
    positional = len(args) - len(owner)
    return [*owner, *numbers[:positional]], dict(zip(kwargs, numbers[positional:]))
