"""The fastest of several kernels on a GPU: measured once on a kind of device, and remembered.

    tuner = Tuner(device, kind)                     mode="max-autotune"
    tuner.fastest([kernel, kernel, ...], buffers)   -> 2

Kernels run on tensors of zeros: an index that they load is in bounds. `device.time(call)`
measures, in seconds; all else is the same for a device and for a stand-in.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fxgraph.sizes import hint
from inductor.ir import AtenCall, Buffer, Window
from inductor.runtime import cache, cubin
from inductor.runtime.plan import storage_bytes

log = logging.getLogger("inductor.kernel")

FORMAT = "1"  # of entries
AHEAD = 0.97  # of the first candidate's time: the limit for another to be chosen

Buffers = Mapping[str, Buffer]


class Tuner:
    """kind: of the device, under which choices are remembered. device: a driver.Nvidia."""

    def __init__(self, device: Any, kind: str) -> None:
        self.device = device
        self.kind = kind

    def fastest(self, kernels: Sequence[Any], buffers: Buffers) -> int:
        """The place of the fastest of TritonKernels that compute the same; 0 if none can be
        measured."""
        return self._chosen(_about(kernels), lambda: self._times(kernels, buffers))

    def beats(
        self, own: Sequence[Any], call: AtenCall | None, after: Sequence[Any], buffers: Buffers
    ) -> bool:
        """Whether the fastest of `own` takes less time than an operator and the kernel `after`."""
        if call is None:
            return True

        def times() -> list[float]:
            tensors = self._tensors([*own, *after], buffers, call)
            calls = self._calls(own, tensors)
            library = [self._operator(call, tensors), *self._calls(after, tensors)]

            def whole() -> None:
                for one in library:
                    one()

            return [self.device.time(whole), min(map(self.device.time, calls))]

        given = "".join(f"{w.size} {w.stride}" for w in _windows(call))
        key = f"{_about(own)} {call.target} {given} {_about(after)}"
        return self._chosen(key, times) == 1

    def _chosen(self, key: str, times: Callable[[], list[float]]) -> int:
        entry = cache.digest("device", FORMAT, torch.__version__, self.kind, key)
        found = _recall(entry)
        if found is not None:
            return found
        try:
            with _disable_current_modes(), torch.no_grad():
                measured = times()
        except (RuntimeError, cubin.KernelError) as error:  # no memory for it, or no such kernel
            log.debug("not measured on %s: %s", self.kind, error)
            return 0
        best = min(range(len(measured)), key=measured.__getitem__)
        chosen = best if measured[best] < AHEAD * measured[0] else 0
        shown = ", ".join(f"{1e6 * seconds:.1f} us" for seconds in measured)
        log.debug("measured on %s: %s; chosen: %d", self.kind, shown, chosen)
        _keep(entry, chosen)
        return chosen

    def _times(self, kernels: Sequence[Any], buffers: Buffers) -> list[float]:
        calls = self._calls(kernels, self._tensors(kernels, buffers))
        return [self.device.time(call) for call in calls]

    def _tensors(
        self, kernels: Sequence[Any], buffers: Buffers, call: AtenCall | None = None
    ) -> dict[str, torch.Tensor]:
        """The memory of each buffer."""
        names = dict.fromkeys(name for kernel in kernels for name in kernel.args)
        if call is not None:
            names |= dict.fromkeys(window.buffer.name for window in _windows(call))
        found = {}
        for name in names:
            buffer = buffers[name]
            dtype = str(buffer.dtype).removeprefix("torch.")
            nbytes = hint(storage_bytes(dtype, buffer.size, buffer.stride))
            flat = torch.zeros(max(nbytes, 16), dtype=torch.uint8, device=buffer.device)
            found[name] = flat[:nbytes].view(buffer.dtype)
        return found

    def _calls(
        self, kernels: Sequence[Any], tensors: Mapping[str, torch.Tensor]
    ) -> list[Callable[[], object]]:
        calls: list[Callable[[], object]] = []
        self.device.compiled([kernel.spec() for kernel in kernels])  # all of them at once
        for kernel in kernels:
            code = self.device.load([kernel.spec()])[kernel.name].code
            sizes = [hint(size) for size in kernel.sizes]
            given = (*(tensors[name].data_ptr() for name in kernel.args), *sizes)
            programs = hint(kernel.programs)
            calls.append(lambda c=code, p=programs, g=given: c.launch(p, g))  # type: ignore[misc]
        return calls

    @staticmethod
    def _operator(call: AtenCall, tensors: Mapping[str, torch.Tensor]) -> Callable[[], object]:
        def tensor(arg: Any) -> Any:
            if not isinstance(arg, Window):
                return arg
            size, stride = (tuple(map(hint, part)) for part in (arg.size, arg.stride))
            return tensors[arg.buffer.name].as_strided(size, stride, hint(arg.offset))

        args = [tensor(arg) for arg in call.args]
        return lambda: call.target(*args, **call.kwargs)


def _windows(call: AtenCall) -> list[Window]:
    return [arg for arg in call.args if isinstance(arg, Window)]


def _about(kernels: Sequence[Any]) -> str:
    parts = [
        (k.source, k.signature, k.constants, k.warps, k.stages, hint(k.programs)) for k in kernels
    ]
    return repr(parts)


def _recall(entry: str) -> int | None:
    data = cache.store().read("choices", entry, ".json")
    try:
        return None if data is None else int(json.loads(data))
    except (ValueError, TypeError):
        return None


def _keep(entry: str, chosen: int) -> None:
    try:
        cache.store().write("choices", entry, ".json", json.dumps(chosen).encode())
    except OSError as error:
        log.warning("a measured choice could not be stored: %s", error)
