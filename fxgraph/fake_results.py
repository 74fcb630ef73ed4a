"""A cache of operators' results on fake tensors, by operator and arguments' metadata.

Running an operator over fake tensors costs 0.1 ms and, where the rule is written in Python, up to 1
ms; with symbolic sizes ten times that. Models repeat a few shapes: an answer's metadata is kept,
and the next equal call only makes the tensor objects (8 us each). Symbolic sizes are compared as
expressions; a rule's assumptions about them are guarded since the first call. Results of plain
sizes are kept for the whole process.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._prims_common import (
    compute_elementwise_output_strides,
    is_contiguous_or_false,
    suggest_memory_format,
)
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)
from torch.utils._python_dispatch import _disable_current_modes

from fxgraph.general_case import taking_general_case
from fxgraph.shape_rules import Meta
from fxgraph.symbolic_values import depends_on_data

_PLAIN = frozenset(
    [int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout]
    + [torch.memory_format]
)
_META = torch.device("meta")
_FLASH_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_CONVOLUTION = torch.ops.aten.convolution.default
RESIZES = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
)  # fmt: skip
_CHANNEL_SHUFFLE = torch.ops.aten.channel_shuffle.default
_SELECTIONS = (torch.ops.aten.nonzero.default, torch.ops.aten.masked_select.default)
_UNIQUES = (
    torch.ops.aten._unique2.default,
    torch.ops.aten.unique_dim.default,
    torch.ops.aten.unique_consecutive.default,
)
# Operators by element to whose results rules give other layouts than kernels do.
_BY_ELEMENT = frozenset(["copysign", "floor_divide", "binary_cross_entropy"])
# Operators by element whose kernels on the CPU give contiguous results, whatever they are given.
_CONTIGUOUS = frozenset(
    [
        torch.ops.aten.log_sigmoid_forward.default,
        torch.ops.aten.pow.Scalar,
        torch.ops.aten.poisson.default,
        torch.ops.aten.rrelu_with_noise.default,
        torch.ops.aten.rrelu_with_noise_functional.default,
        torch.ops.aten.isin.Tensor_Tensor,
        torch.ops.aten.isin.Tensor_Scalar,
    ]
)
_PUTS = frozenset(
    [
        torch.ops.aten.index_put.default,
        torch.ops.aten.index_put_.default,
        torch.ops.aten._unsafe_index_put.default,
    ]
)
_PADS = frozenset(
    getattr(torch.ops.aten, f"{kind}_pad{dims}d").default
    for kind in ("reflection", "replication")
    for dims in (2, 3)
)
_SHIFTS = (torch.ops.aten.__lshift__.Tensor, torch.ops.aten.__rshift__.Tensor)
_MOST_RESULTS = 20_000  # of a process


class FakeResults:
    """Results of operators: for one FakeTensorMode, or (PLAIN_RESULTS) all without symbols."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[type | None, list[Meta | None]]] = {}

    def make(self, mode: Any, key: Any, base: torch.Tensor | None) -> Any:
        """New fake tensors as under this key (in the memory of `base` if given); NotImplemented
        where nothing is known.
        """
        known = self._known.get(key) if key is not None else None
        if known is None:
            return NotImplemented
        # A view is an inference tensor where its base is, a new tensor where the mode is on.
        if base is not None and torch.is_inference_mode_enabled() != base.is_inference():
            return NotImplemented
        kind, metas = known
        made = [None if meta is None else make_fake(mode, *meta, base=base) for meta in metas]
        return made[0] if kind is None else kind(made)

    def add(self, key: Any, result: Any) -> None:
        """Keep the result of a run, unless metadata does not describe all of it."""
        kind = list if type(result) is list else tuple if isinstance(result, tuple) else None
        items = [result] if kind is None else result
        metas: list[Meta | None] = []
        for item in items:
            if item is None:
                metas.append(None)
            elif isinstance(item, FakeTensor) and plain_tensor(item) and not item.requires_grad:
                metas.append(metadata(item))
            else:
                return
        self._keep(key, kind, metas)

    def add_metas(self, key: Any, metas: Sequence[Meta | None]) -> None:
        """As `add`, of metadata: one tensor, or a tuple of several."""
        self._keep(key, None if len(metas) == 1 else tuple, list(metas))

    def _keep(self, key: Any, kind: type | None, metas: list[Meta | None]) -> None:
        if len(self._known) >= _MOST_RESULTS:
            self._known.clear()
        self._known[key] = kind, metas


PLAIN_RESULTS = FakeResults()


def make_fake(
    mode: Any,
    dtype: torch.dtype,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    device: torch.device,
    base: torch.Tensor | None = None,
) -> FakeTensor:
    """A fake tensor with this metadata, in the memory of `base` if given."""
    if base is not None and dtype == base.dtype and mode.shape_env is not None:
        # Not set_, which asks whether sizes are 0 or 1.
        with torch.no_grad(), in_kernel_invocation_manager(mode):
            elem = torch.as_strided(base, size, stride, offset)
    elif base is not None:
        elem = torch.empty(0, dtype=dtype, device="meta")
        elem.set_(base.untyped_storage(), offset, size, stride)
    elif isinstance(offset, torch.SymInt) or offset:
        extent = offset + 1 + sum(_steps(n) * s for n, s in zip(size, stride))
        empty = any(isinstance(n, int) and n == 0 for n in size)
        flat = torch.empty(offset if empty else extent, dtype=dtype, device="meta")
        elem = torch.empty(0, dtype=dtype, device="meta")
        elem.set_(flat.untyped_storage(), offset, size, stride)
    else:
        with taking_general_case(mode.shape_env):
            elem = torch.empty_strided(size, stride, dtype=dtype, device=_META)
    return FakeTensor(mode, elem, device)


def _steps(size: Any) -> Any:
    """From the first element of a dimension to the last: 0 where a size from data is 0."""
    return torch.sym_max(size - 1, 0) if isinstance(size, torch.SymInt) else size - 1


def metadata(tensor: torch.Tensor) -> Meta:
    """Metadata of a tensor with plain sizes."""
    size = tuple(tensor.shape)
    offset: Any = tensor.storage_offset()
    return tensor.dtype, size, tensor.stride(), offset, tensor.device


def plain_tensor(tensor: torch.Tensor) -> bool:
    """Whether metadata says all of a tensor."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
        and getattr(tensor, "constant", None) is None
    )


def ruled_as(op: Any, args: tuple[Any, ...]) -> Any:
    """The operator whose rule tells the result of `op`: rules of shifts refuse a bool beside an
    integer, which kernels promote.
    """
    if op not in _SHIFTS:
        return op
    types = {arg.dtype for arg in args}
    promoted = len(types) == 2 and torch.bool in types
    integral = not any(dtype.is_floating_point or dtype.is_complex for dtype in types)
    return torch.ops.aten.bitwise_and.Tensor if promoted and integral else op


def check_arguments(op: Any, args: tuple[Any, ...]) -> None:
    """Raise what an operator raises, where a rule of torch 2.11 does not."""
    if op is torch.ops.aten.select.int:
        _check_position(*args)
    elif op in _PUTS:
        _check_values(*args[:3])
    elif op is torch.ops.aten.avg_pool3d.default and len(args) > 6 and args[6] == 0:
        raise RuntimeError("divisor must be not zero")


def _check_position(x: torch.Tensor, dim: int, index: Any) -> None:
    """Refuse a position outside of the tensor; one that depends on data is checked in the graph."""
    if not -x.dim() <= dim < x.dim():
        return
    length: Any = x.shape[dim]
    if depends_on_data(index):
        return
    if not (index >= -length if index < 0 else index < length):
        where = f"for tensor of size {list(x.shape)} at dimension {dim % x.dim()}"
        raise IndexError(f"select(): index {index} out of range {where}")


def _check_values(x: torch.Tensor, indices: Sequence[Any], values: torch.Tensor) -> None:
    """Refuse values that do not broadcast to the elements at `indices`, which torch's rules take. A
    mask has a number of elements that only its operator finds.
    """
    places = [d for d, index in enumerate(indices) if index is not None]
    given = [indices[d] for d in places]
    masks = any(index.dtype in (torch.bool, torch.uint8) for index in given)
    if not places or masks or len(indices) > x.dim():
        return
    common = list(torch.broadcast_shapes(*(index.shape for index in given)))
    rest = [x.shape[d] for d in range(x.dim()) if d not in places]
    together = places == list(range(places[0], places[-1] + 1))
    before = places[0] if together else 0
    size = [*rest[:before], *common, *rest[before:]]
    for n, wanted in zip(reversed(values.shape), reversed(size)):
        if not (type(n) is int and n == 1) and n != wanted and n != 1:
            raise RuntimeError(
                f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast "
                f"to indexing result of shape {size}"
            )


def selected(op: Any, args: tuple[Any, ...], mode: Any) -> Any:
    """The result of an operator that selects elements, of sizes that torch cannot bound (they
    are quotients or minima of others); None: torch's rule can.
    """
    if op not in _SELECTIONS:
        return None
    shapes = [arg.shape for arg in args]
    count = math.prod(torch.broadcast_shapes(*shapes) if len(shapes) > 1 else shapes[0])
    if not isinstance(count, torch.SymInt) or not mode.shape_env.allow_dynamic_output_shape_ops:
        return None
    expr = count.node.expr
    if not expr.atoms(sympy.Function):
        return None
    picks_places, x = len(args) == 1, args[0]
    size = x.nonzero_memo if picks_places else None
    if size is None:
        size = mode.shape_env.create_unbacked_symint()
        _, most = mode.shape_env.bounds(expr)
        most = sys.maxsize - 1 if most is None else most
        mode.shape_env.constrain_symbol_range(size.node.expr, 0, most)
    with mode:
        if not picks_places:
            return x.new_empty((size,))
        x.nonzero_memo = size
        return torch.empty_strided((size, x.dim()), (1, size), dtype=torch.int64, device=x.device)


def resized(op: Any, args: tuple[Any, ...], mode: Any) -> Any:
    """The result of a resize to a size that depends on data, of which torch's rule asks more than
    the shape needs; None: torch's rule tells.
    """
    if getattr(op, "_opname", None) not in RESIZES or len(args) < 2:
        return None
    if not any(map(depends_on_data, args[1])):
        return None
    with mode:
        return fake_resize(op, *args)


def fake_resize(op: torch._ops.OpOverload, x: torch.Tensor, size: Any, *rest: Any) -> torch.Tensor:
    """The result of a resizing operator or its gradient, in the fake mode that is entered."""
    size = rest[0] if op._opname.endswith("_backward") else [*x.shape[:2], *size]
    layout = suggest_memory_format(x)
    return torch.empty(size, dtype=x.dtype, device=x.device, memory_format=layout)


def corrected(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, mode: Any
) -> Any:
    """The result of an operator, where a version of torch has a wrong rule for it."""
    if op in _UNIQUES and any(t.dtype != torch.int64 for t in result[1:]):
        # torch 2.11 gives positions and counts the type of the values.
        return result[0], *(torch.empty_like(t, dtype=torch.int64) for t in result[1:])
    if getattr(op, "_opname", None) in _BY_ELEMENT or op is torch.ops.aten.div.Tensor_mode:
        return _by_element(args, result, mode)
    if _is_empty(result) and (op is _CONVOLUTION or torch.Tag.pointwise in op.tags):
        return _by_kernel(op, args, kwargs, result, mode)
    if op in _PADS and result.device.type == "cpu":
        # torch 2.11 asks the padded tensor, which has no channels-last layout, for its format.
        return result.contiguous(memory_format=suggest_memory_format(args[0]))
    if op in _CONTIGUOUS:
        return _contiguous_on_cpu(result)
    if op is _CHANNEL_SHUFFLE and result.device.type == "cpu":
        return result.contiguous(memory_format=suggest_memory_format(args[0]))
    if op is not _FLASH_ATTENTION or not isinstance(result, tuple):
        return result
    # The query's layout, of which torch's rule keeps no strides of dimensions of one element.
    dtype, size, made, offset, device = metadata(result[0])
    alone = [type(n) is int and n == 1 for n in size]
    steps = tuple(q if one else r for one, q, r in zip(alone, args[0].stride(), made))
    values = make_fake(mode, dtype, size, steps, offset, device)
    # Kernels on the CPU add up in this type: that of a softmax's logarithm.
    accumulated = torch.float64 if args[0].dtype == torch.float64 else torch.float32
    if result[1].dtype == accumulated:
        return values, *result[1:]
    # torch 2.11 says float32, whatever the query is.
    _, size, stride, offset, device = metadata(result[1])
    return values, make_fake(mode, accumulated, size, stride, offset, device)


def key_of(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mode: FakeTensorMode | None = None
) -> Any:
    """A key of everything on which the result's metadata can depend; None if that is unknown, or
    (mode given) if a tensor is of another mode.
    """
    parts: list[Any] = [op, torch.get_default_dtype(), torch._C._get_default_device()]
    if _add_to_key(parts, args, mode) and (
        not kwargs or _add_to_key(parts, tuple(kwargs.items()), mode)
    ):
        return tuple(parts)
    return None


def _add_to_key(parts: list[Any], items: Any, mode: FakeTensorMode | None) -> bool:
    """Append everything on which the result's metadata can depend; False if that is unknown."""
    for item in items:
        kind = type(item)
        if kind in _PLAIN:
            # The type too: 1, 1.0 and True are equal and promote differently.
            parts.append(kind)
            parts.append(item)
        elif isinstance(item, FakeTensor):
            if not plain_tensor(item) or (mode is not None and item.fake_mode is not mode):
                return False
            _add_metadata(parts, item)
        elif isinstance(item, (tuple, list)):
            parts.append(len(item))
            if not _add_to_key(parts, item, mode):
                return False
        elif isinstance(item, torch.SymInt | torch.SymFloat):
            parts.append(item.node.expr)
        else:
            return False
    return True


def _add_metadata(parts: list[Any], tensor: FakeTensor) -> None:
    """Append the metadata; torch.SymInts neither hash nor compare without a guard."""
    size, stride, offset = tensor.shape, tensor.stride(), tensor.storage_offset()
    if tensor._has_symbolic_sizes_strides:
        numbers = (*size, *stride, offset)
        plain = tuple(n.node.expr if isinstance(n, torch.SymInt) else n for n in numbers)
        parts += (tensor.dtype, len(size), plain, tensor.fake_device)
    else:
        parts += (tensor.dtype, size, stride, offset, tensor.fake_device)


def _is_empty(result: Any) -> bool:
    """Whether this is a tensor on the CPU without elements, of plain sizes."""
    if not isinstance(result, torch.Tensor) or result.dim() < 2 or result.device.type != "cpu":
        return False
    return all(type(n) is int for n in result.shape) and 0 in result.shape


def _by_kernel(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor, mode: Any
) -> torch.Tensor:
    """The result with the layout that the kernel gives it, where it has nothing to compute: torch's
    rules and kernels differ in which tensors without elements they take for contiguous.
    """
    if op._schema.is_mutable:  # an argument's own layout
        return result
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    numbers = [arg for arg in (*args, *kwargs.values()) if not isinstance(arg, torch.Tensor)]
    numbers += [number for x in tensors for number in (*x.shape, *x.stride())]
    if any(isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool) for number in numbers):
        return result

    def real(arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        return torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype, device="cpu")

    try:
        with _disable_current_modes(), torch.no_grad():
            stride = op(*map(real, args), **kwargs).stride()
    except RuntimeError:  # a type without a kernel
        return result
    dtype, size, _, offset, device = metadata(result)
    return make_fake(mode, dtype, size, stride, offset, device)


def _contiguous_on_cpu(result: Any) -> Any:
    if isinstance(result, tuple):
        return _contiguous_on_cpu(result[0]), *result[1:]
    return result.contiguous() if result.device.type == "cpu" else result


def _by_element(args: tuple[Any, ...], result: torch.Tensor, mode: Any) -> torch.Tensor:
    """The result with the layout that an operation by element on these tensors gives it."""
    stride = strides_by_element(args, result)
    if result.stride() == stride:
        return result
    dtype, size, _, offset, device = metadata(result)
    return make_fake(mode, dtype, size, stride, offset, device)


def strides_by_element(args: tuple[Any, ...], result: torch.Tensor) -> tuple[int, ...]:
    """The strides that an operation by element on these tensors gives its result."""
    operands = [arg for arg in args if isinstance(arg, torch.Tensor)]
    reduced = any(operand.dim() > result.dim() for operand in operands)
    if result.dim() < 2 or reduced or all(map(is_contiguous_or_false, operands)):
        return result.stride()
    return compute_elementwise_output_strides(*(x.expand(result.shape) for x in operands))
