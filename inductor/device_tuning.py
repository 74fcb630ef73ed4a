"""The fastest of several kernels on a GPU: measured once on a kind of device, and remembered.

    tuner = Tuner(device, kind)                     mode="max-autotune"
    tuner.fastest([form, form, ...], buffers)       -> 2

A form is the kernels that are launched one after another. They run on tensors of zeros: an index
that they load is in bounds. `device.time(call)` measures, in seconds; all else is the same for a
device and for a stand-in.
"""

from __future__ import annotations

import contextlib
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

FORMAT = "2"  # of entries
AHEAD = 0.97  # of the first candidate's time: the limit for another to be chosen

Buffers = Mapping[str, Buffer]
Form = Sequence[Any]  # of TritonKernels
NEVER = float("inf")


class Tuner:
    """kind: of the device, under which choices are remembered. device: a driver.Nvidia."""

    def __init__(self, device: Any, kind: str) -> None:
        self.device = device
        self.kind = kind

    def fastest(self, forms: Sequence[Form], buffers: Buffers) -> int:
        """The place of the fastest of forms that compute the same; 0 if none can be measured."""
        return self._chosen(_about(forms), lambda: self._times(forms, buffers))

    def beats(
        self, own: Sequence[Form], call: AtenCall | None, after: Form, buffers: Buffers
    ) -> bool:
        """Whether the fastest of `own` takes less time than an operator and the kernel `after`."""
        if call is None:
            return True

        def times() -> list[float]:
            tensors = self._tensors([*own, after], buffers, call)
            self._compile([*own, after])
            operator = self._operator(call, tensors)
            following = self._call(after, tensors)

            def whole() -> None:
                operator()
                following()

            return [self.device.time(whole), min(self._measured(own, tensors))]

        given = "".join(f"{w.size} {w.stride}" for w in _windows(call))
        key = f"{_about(own)} {call.target} {given} {_about([after])}"
        return self._chosen(key, times) == 1

    def _chosen(self, key: str, times: Callable[[], list[float]]) -> int:
        entry = cache.digest("device", FORMAT, torch.__version__, self.kind, key)
        found = _recall(entry)
        if found is not None:
            return found
        try:
            with _disable_current_modes(), torch.no_grad():
                measured = times()
        except RuntimeError as error:  # no memory for it, or no such operator
            log.debug("not measured on %s: %s", self.kind, error)
            return 0
        best = min(range(len(measured)), key=measured.__getitem__)
        chosen = best if measured[best] < AHEAD * measured[0] else 0
        if measured[best] == NEVER:
            return 0
        shown = ", ".join(f"{1e6 * seconds:.1f} us" for seconds in measured)
        log.debug("measured on %s: %s; chosen: %d", self.kind, shown, chosen)
        _keep(entry, chosen)
        return chosen

    def _times(self, forms: Sequence[Form], buffers: Buffers) -> list[float]:
        self._compile(forms)
        return self._measured(forms, self._tensors(forms, buffers))

    def _tensors(
        self, forms: Sequence[Form], buffers: Buffers, call: AtenCall | None = None
    ) -> dict[str, torch.Tensor]:
        """The memory of each buffer, but for what forms have of their own."""
        names = dict.fromkeys(name for form in forms for kernel in form for name in kernel.args)
        if call is not None:
            names |= dict.fromkeys(window.buffer.name for window in _windows(call))
        return {name: _memory(buffers[name]) for name in names if name in buffers}

    def _measured(self, forms: Sequence[Form], tensors: Mapping[str, torch.Tensor]) -> list[float]:
        """Seconds of each form; NEVER of one that does not compile, or that the device refuses."""
        found: list[float] = []
        for form in forms:
            try:
                found.append(self.device.time(self._call(form, tensors)))
            except RuntimeError as error:  # a KernelError, a DeviceError, no memory
                log.debug("not measured on %s: %s", self.kind, error)
                found.append(NEVER)
        return found

    def _compile(self, forms: Sequence[Form]) -> None:
        """Compile the kernels all at once."""
        with contextlib.suppress(cubin.KernelError):  # found again where the kernel is loaded
            self.device.compiled([kernel.spec() for form in forms for kernel in form])

    def _call(self, form: Form, tensors: Mapping[str, torch.Tensor]) -> Callable[[], object]:
        spaces = {k.space.name: _memory(k.space) for k in form if k.space is not None}
        launches = []
        for kernel in form:
            step = kernel.step()
            code = self.device.load([kernel.spec()])[kernel.name].code
            sizes = [hint(size) for size in step.sizes]
            found = {**tensors, **spaces}
            args = (*(found[name].data_ptr() for name in step.args), *sizes)
            if step.scratch:
                args = (*args, found[step.scratch].data_ptr())
            launches.append((code, hint(step.programs), args))

        def call() -> None:
            for code, programs, given in launches:
                code.launch(programs, given)

        call.memory = spaces  # type: ignore[attr-defined]  # alive as long as the addresses
        return call

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


def _memory(buffer: Buffer) -> torch.Tensor:
    dtype = str(buffer.dtype).removeprefix("torch.")
    nbytes = hint(storage_bytes(dtype, buffer.size, buffer.stride))
    flat = torch.zeros(max(nbytes, 16), dtype=torch.uint8, device=buffer.device)
    return flat[:nbytes].view(buffer.dtype)


def _about(forms: Sequence[Form]) -> str:
    parts = [
        (k.source, k.signature, k.constants, k.warps, k.stages, hint(k.programs))
        for form in forms
        for k in form
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
