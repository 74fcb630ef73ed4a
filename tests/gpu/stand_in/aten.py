"""aten's operators on CUDA tensors, computed on this processor.

Each operator that has a kernel for CUDA is registered again: its tensors are given to the CPU's
kernel as tensors over the same memory, its results are copied into memory of torch's allocator for
the device, with the sizes, strides and dtypes that the CPU's kernel gives, but where `layouts.py`
knows CUDA's to differ. Views, allocations and reads of one number stay torch's own.

Random numbers: the CPU's, from a generator seeded by the seed and offset of the CUDA generator,
whose offset then moves on by 4; so they are the same whenever the same operators draw in the same
order.

While the current stream is captured, an operator runs on copies of its arguments, which gives the
results' metadata, and becomes a node of the graph: each replay computes into the same results.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

import dynamo
from inductor.runtime import _plan
from tests.gpu.stand_in.building import RUNTIME
from tests.gpu.stand_in.only_cuda import ONLY_CUDA, OnHost, cudnn_rnn_flatten_weight

aten = torch.ops.aten
CPU = torch.device("cpu")

# Without a kernel on the device, or with none but copies of memory.
NATIVE = frozenset(
    f"aten::{name}"
    for name in """
    _local_scalar_dense _nested_view_from_buffer _reshape_alias as_strided empty.memory_format
    empty_strided is_set_to resize_ set_ set_.source_Storage set_.source_Storage_storage_offset
    set_.source_Tensor unfold view view_as_complex view_as_real record_stream _fused_sdp_choice
    _use_cudnn_ctc_loss _use_cudnn_ctc_loss.Tensor _use_miopen_ctc_loss
    _use_miopen_ctc_loss.Tensor _cudnn_rnn_flatten_weight
    """.split()
)
# Composites that reach kernels of CUDA without another operator.
BESIDES = (
    "copy_", "linalg_lstsq", "convolution_backward", "_convert_indices_from_coo_to_csr",
)  # fmt: skip
# Operators that take tensors of the CPU with dimensions beside those of the device.
MIXED = (
    "copy_",
    "index",
    "_index",
    "_ctc_loss",
    "_pack_padded",
    "repeat_interleave",
    "_foreach_copy",
)

nodes: list[Callable[[], None]] = []  # of captured graphs
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_long)


class Runtime:
    """The preloaded library, as far as Python asks."""

    def __init__(self) -> None:
        path = next(p for p in os.environ["LD_PRELOAD"].split(":") if p.endswith(RUNTIME))
        self.library = ctypes.CDLL(path)
        self.library.stand_in_captures.restype = ctypes.c_bool
        self.library.stand_in_captures.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long]
        self.library.stand_in_reaches.restype = ctypes.c_bool
        self.library.stand_in_reaches.argtypes = [ctypes.c_int, ctypes.c_void_p]
        self.errors: list[BaseException] = []
        self._callback = _CALLBACK(self._run)  # kept alive
        self.library.stand_in_on_node(self._callback)

    @dynamo.disable
    def _run(self, number: int) -> None:
        try:
            with torch.no_grad():
                nodes[number]()
        except BaseException as error:  # tested for at the end
            self.errors.append(error)

    def reaches(self, device: int, address: int) -> bool:
        """Whether a kernel on the device may read there: its own memory, pinned memory, or none."""
        return bool(address == 0 or self.library.stand_in_reaches(device, address))

    def captures(self, device: int, node: Callable[[], None] | None = None) -> bool:
        """Whether the current stream is captured; the node becomes one of its graph."""
        number = -1
        if node is not None:
            number = len(nodes)
            nodes.append(node)
        stream = torch._C._cuda_getCurrentRawStream(device)
        return self.library.stand_in_captures(stream, device, number)


@functools.cache
def runtime() -> Runtime:
    return Runtime()


def host(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the memory of one of the device, which has to outlive this."""
    if tensor.device.type != "cuda":
        return tensor
    if tensor.is_conj():
        return host(torch._conj(tensor)).conj()
    if tensor.is_neg():
        return torch._neg_view(host(torch._neg_view(tensor)))
    if tensor._is_zerotensor():
        return torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype, device=CPU)
    size, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
    if tensor.numel() == 0:
        return torch.empty_strided(size, stride, dtype=tensor.dtype, device=CPU)
    start, nbytes = tensor.data_ptr() - offset * tensor.itemsize, _plan.memory_of(tensor)[1]
    storage = torch._C._construct_storage_from_data_pointer(start, CPU, nbytes)
    made = torch.empty(0, dtype=tensor.dtype, device=CPU)
    return made.set_(storage, offset, size, stride)


def on_device(result: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The same tensor in the device's memory."""
    if result.is_conj() or result.is_neg():
        result = result.resolve_conj().resolve_neg()
    if result.layout is not torch.strided:
        return result.to(device)
    stride = result.stride()
    if any(n > 1 and s == 0 for n, s in zip(result.size(), stride, strict=True)):
        stride = result.contiguous().stride()
    made = torch.empty_strided(result.size(), stride, dtype=result.dtype, device=device)
    host(made).copy_(result)
    return made


def mapped(value: Any, of: Callable[[Any], Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return [mapped(item, of) for item in value]
    return of(value)


def tensors_in(*values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, OnHost):
            value = value.tensor
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors_in(*value)
    return found


class Operator:
    """An operator of CUDA tensors."""

    def __init__(self, op: Any, compute: Callable[..., Any] | None = None) -> None:
        self.op = op
        self.compute = compute or op
        self.name = op._schema.name.removeprefix("aten::")
        self.arguments = op._schema.arguments
        self.returns = op._schema.returns
        self.random = torch.Tag.nondeterministic_seeded in op.tags or self.name == "_cudnn_rnn"
        self.written = [
            (place, a.name, a.is_out)
            for place, a in enumerate(self.arguments)
            if a.alias_info is not None and a.alias_info.is_write
        ]

    @dynamo.disable  # as C++ is, a kernel is not captured
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return self.run(args, kwargs)

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        device = self.device(args, kwargs)
        if runtime().captures(device.index):
            return self.captured(args, kwargs, device)
        return self.at_once(args, kwargs, device)

    def captured(self, args: Sequence[Any], kwargs: dict[str, Any], device: torch.device) -> Any:
        """A real kernel does not run now, either: copies tell what the results look like."""
        copies = {id(t): (t, aten.clone(host(t))) for t in tensors_in(args, list(kwargs.values()))}
        copies = {
            key: (t, on_device(c, device) if t.is_cuda else c) for key, (t, c) in copies.items()
        }
        by = {key: copy for key, (_, copy) in copies.items()}
        made = self.at_once(*_replaced(args, kwargs, by), device, seed=0)
        for tensor, copy in copies.values():
            if tensor.size() != copy.size():
                _take_shape(tensor, copy)
        back = {id(copy): tensor for tensor, copy in copies.values()}
        made = _replaced([made], {}, back)[0][0]
        # No reference to the device's tensors: a graph has memory, not tensors.
        outs = [host(t) for t in tensors_in(made)]
        given = mapped(list(args), _hosted), {key: mapped(v, _hosted) for key, v in kwargs.items()}

        def node() -> None:
            fresh, _ = self.computed(*given)
            for out, result in zip(outs, tensors_in(fresh), strict=True):
                if out.data_ptr() != result.data_ptr():
                    out.copy_(result)

        runtime().captures(device.index, node)
        return tuple(made) if len(self.returns) > 1 else made

    def at_once(
        self,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        device: torch.device,
        seed: int | None = None,
    ) -> Any:
        try:
            results, hosted = self.computed(args, kwargs, seed)
        except RuntimeError as error:
            if "resiz" not in str(error) or not self.written:
                raise
            return self.resized(args, kwargs, device)
        for made, value in hosted.values():
            if made.size() != value.size():  # of no elements before
                _take_shape(value, made)
                host(value).copy_(made)
        return self.returned(results, hosted, device)

    def device(self, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.device:
        """Of the tensors, which have to be on one."""
        found: torch.device | None = None
        for tensor in tensors_in(args, list(kwargs.values())):
            if tensor.device.type == "cuda":
                found = found or tensor.device
            wrong = found is not None and tensor.device != found and tensor.dim() > 0
            if wrong and not self.name.startswith(MIXED):
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two "
                    f"devices, {found} and {tensor.device}! (of {self.op})"
                )
        if found is not None:
            return found
        given = kwargs.get("device")
        given = torch.device("cuda") if given is None else torch.device(given)
        return (
            given if given.index is not None else torch.device("cuda", torch.cuda.current_device())
        )

    def computed(
        self, args: Sequence[Any], kwargs: dict[str, Any], seed: int | None = None
    ) -> tuple[Any, dict[int, tuple[torch.Tensor, torch.Tensor]]]:
        """The results on the CPU; and the CPU tensors that were given with those of the device that
        they stand for, by identity."""
        hosted: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        generators: list[torch.Generator] = []

        def of(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                made = host(value)
                hosted[id(made)] = made, value
                return made
            if isinstance(value, torch.device):
                return CPU if value.type == "cuda" else value
            if isinstance(value, torch.Generator) and value.device.type == "cuda":
                generators.append(value)
                return None
            return value

        given = [mapped(value, of) for value in args]
        named = {key: mapped(value, of) for key, value in kwargs.items()}
        if not self.random:
            return self.on_cpu(given, named), hosted
        if seed is None:
            own = generators[0] if generators else torch.cuda.default_generators[_current()]
            seed = next_seed(own)
        before = torch.default_generator.get_state()
        torch.default_generator.manual_seed(seed)
        try:
            return self.on_cpu(given, named), hosted
        finally:
            torch.default_generator.set_state(before)

    def on_cpu(self, args: Any, kwargs: dict[str, Any]) -> Any:
        compute = self.compute
        if compute is self.op and any(
            isinstance(value, (int, float, complex)) and str(argument.type) == "Tensor"
            for value, argument in zip(args, self.arguments, strict=False)
        ):  # a number that torch had wrapped
            compute = self.op.overloadpacket
        try:
            return compute(*args, **kwargs)
        except (RuntimeError, NotImplementedError) as error:
            narrow = ("not implemented for 'Half'", "not implemented for 'BFloat16'")
            if not any(text in str(error) for text in narrow):
                raise
            return self.widened(args, kwargs)

    def widened(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """By float32, where the CPU has no kernel for half precision."""
        halves = (torch.half, torch.bfloat16)
        narrow: list[tuple[torch.Tensor, torch.Tensor]] = []

        def widen(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.dtype in halves:
                narrow.append((value, value.float()))
                return narrow[-1][1]
            return torch.float32 if value in halves else value

        results = self.compute(
            *mapped(args, widen), **{key: mapped(value, widen) for key, value in kwargs.items()}
        )
        dtype = narrow[0][0].dtype if narrow else torch.half
        for place, name, _ in self.written:
            value = args[place] if place < len(args) else kwargs.get(name)
            for tensor, wide in narrow:
                if any(tensor is one for one in tensors_in(value)):
                    tensor.copy_(wide)

        def narrowed(value: Any) -> Any:
            for tensor, wide in narrow:
                if value is wide:
                    return tensor
            is_wide = isinstance(value, torch.Tensor) and value.dtype == torch.float32
            return value.to(dtype) if is_wide else value

        return (
            tuple(narrowed(r) for r in results) if isinstance(results, tuple) else narrowed(results)
        )

    def returned(self, results: Any, hosted: dict[int, Any], device: torch.device) -> Any:
        def of(value: Any) -> Any:
            if isinstance(value, OnHost):
                captured = runtime().captures(device.index)
                return on_device(value.tensor, device) if captured else value.tensor
            if not isinstance(value, torch.Tensor):
                return value
            known = hosted.get(id(value))
            return on_device(value, device) if known is None else known[1]

        if not self.returns:
            return None
        if len(self.returns) > 1:
            return tuple(mapped(list(results), of))
        return mapped(results, of)

    def resized(self, args: Sequence[Any], kwargs: dict[str, Any], device: torch.device) -> Any:
        """With `out` of other sizes, which take those of the result."""
        args, kwargs = list(args), dict(kwargs)
        outs: list[tuple[torch.Tensor, torch.Tensor]] = []

        def fresh(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                outs.append((value, torch.empty(0, dtype=value.dtype, device=CPU)))
                return outs[-1][1]
            return value

        for place, name, _ in self.written:
            if place < len(args):
                args[place] = mapped(args[place], fresh)
            elif name in kwargs:
                kwargs[name] = mapped(kwargs[name], fresh)
        results, hosted = self.computed(args, kwargs)
        for out, made in outs:
            _take_shape(out, made)
            host(out).copy_(made)
            hosted[id(made)] = made, out
        return self.returned(results, hosted, device)


def _take_shape(tensor: torch.Tensor, like: torch.Tensor) -> None:
    tensor.resize_(like.size())
    if tensor.stride() != like.stride():
        tensor.as_strided_(like.size(), like.stride())


def _replaced(args: Any, kwargs: dict[str, Any], by: dict[int, torch.Tensor]) -> tuple[Any, dict]:
    def of(value: Any) -> Any:
        return by.get(id(value), value) if isinstance(value, torch.Tensor) else value

    return mapped(list(args), of), {key: mapped(value, of) for key, value in kwargs.items()}


def _hosted(value: Any) -> Any:
    return host(value) if isinstance(value, torch.Tensor) else value


def _current() -> int:
    return torch.cuda.current_device()


def next_seed(generator: torch.Generator) -> int:
    """A seed of the CUDA generator's seed and offset, which moves on."""
    offset = generator.get_offset()
    generator.set_offset(offset + 4)
    return (generator.initial_seed() * 6364136223846793005 + offset) % (1 << 63)


_libraries: list[Any] = []


def install() -> None:
    """Register the operators. For the whole process."""
    torch.cuda.init()
    library = torch.library.Library("aten", "IMPL")
    _libraries.append(library)
    names = set(torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"))
    names = {name for name in names if name.startswith("aten::")} - NATIVE
    for name in sorted(names | {f"aten::{name}" for name in BESIDES}):
        packet, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(aten, packet), overload or "default")
        compute = ONLY_CUDA.get(name.removeprefix("aten::"))
        library.impl(op, Operator(op, compute), "CUDA", allow_override=True)
    flatten = aten._cudnn_rnn_flatten_weight.default
    library.impl(flatten, cudnn_rnn_flatten_weight, "CUDA", allow_override=True)
