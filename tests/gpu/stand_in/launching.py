"""Kernels of plans on the stand-in: the plan runtime launches through the driver's, which calls
back.

values     code of no kernel is loaded; each launch runs the kernel's text in Triton's interpreter
python     Python launches them, as on ROCm and XPU; Triton's interpreter runs them
launches   code for sm_90 is compiled and loaded, and launches are recorded
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

import dynamo
from inductor.codegen.triton_ops import TYPES
from inductor.runtime import cubin, driver
from inductor.runtime.plan import TritonSpec
from tests.gpu.stand_in import aten
from tests.inductor.interpreting import (
    allow_loop_bounds,
    keep_types_of_comparisons,
    leave_out_checks_of_overflow,
    patch_language_once,
)
from tests.inductor.stub_driver import CALLBACK, image

MODES = ("values", "python", "launches")
_DTYPES = {name: dtype for dtype, name in TYPES.items()}
_numbers = itertools.count()


class Interpreted(driver.Nvidia):
    """A device whose kernels Triton's interpreter runs when they are launched."""

    def compiled(self, kernels: Sequence[TritonSpec], aligned: bool = True) -> list[cubin.Cubin]:
        return [self._compiled(kernel, aligned) for kernel in kernels]

    def _compiled(self, kernel: TritonSpec, aligned: bool) -> cubin.Cubin:
        symbol = f"{kernel.name}_{next(_numbers)}"
        launches.kernels[symbol] = kernel
        count = sum(kind != "constexpr" for kind in kernel.signature.values())
        return cubin.Cubin(
            image(count + 2), symbol, kernel.warps, shared=0, registers=32, spills=0, hidden=2,
            aligned=aligned,
        )  # fmt: skip


class ByPython(driver.ByTriton):
    """A device whose kernels Python launches on tensors."""

    def load(self, kernels: Sequence[TritonSpec]) -> dict[str, Any]:
        return {name: _on_host(launcher) for name, launcher in super().load(kernels).items()}


def _on_host(launcher: Any) -> Any:
    @dynamo.disable
    def launch(*args: Any) -> None:
        launches.counts[launcher.kernel.name] += 1
        with _one_at_a_time:
            launcher(*[aten.host(a) if isinstance(a, torch.Tensor) else a for a in args])

    return launch


class Launches:
    """What was launched: kernels by symbol, and how often."""

    def __init__(self) -> None:
        self.kernels: dict[str, TritonSpec] = {}
        self.counts: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self.interpreted = False
        self._callback = CALLBACK(self._run)

    def listen(self, interpreted: bool) -> None:
        self.interpreted = interpreted
        ctypes.CDLL(driver.LIBRARY).stub_on_launch(self._callback)

    @dynamo.disable
    def _run(self, name: bytes, programs: int, arguments: Any, count: int) -> None:
        try:
            self.run(name.decode(), programs, arguments[:count])
        except BaseException as error:
            self.errors.append(error)

    def run(self, name: str, programs: int, arguments: list[int]) -> None:
        self.counts[name.rpartition("_")[0] if self.interpreted else name] += 1
        if not self.interpreted:
            return
        kernel = self.kernels[name]
        device = torch.device(kernel.device).index or 0

        def node() -> None:
            _interpret(kernel, programs, arguments)

        for kind, address in zip(_kinds(kernel), arguments, strict=False):
            if kind.startswith("*") and not aten.runtime().reaches(device, address):
                raise AssertionError(f"{name} is given memory that device {device} cannot reach")
        if not aten.runtime().captures(device, node):
            node()


launches = Launches()


def _kinds(kernel: TritonSpec) -> list[str]:
    return [kind for kind in kernel.signature.values() if kind != "constexpr"]


def _interpret(kernel: TritonSpec, programs: int, arguments: list[int]) -> None:
    given = [_argument(kind, at) for kind, at in zip(_kinds(kernel), arguments, strict=False)]
    with _one_at_a_time:
        _launcher(kernel)(*given, programs)


_launchers: dict[str, Any] = {}
_one_at_a_time = threading.Lock()  # as Triton's interpreter works


def _launcher(kernel: TritonSpec) -> Any:
    from inductor.runtime.triton_launch import Launcher

    key = repr(kernel)
    if key not in _launchers:
        _launchers[key] = Launcher(kernel)
    return _launchers[key]


def _argument(kind: str, value: int) -> Any:
    """An address as a tensor of one element there; a number with its sign."""
    if not kind.startswith("*"):
        return (
            ctypes.c_int64(value).value
            if kind == "i64"
            else ctypes.c_int32(value & 0xFFFFFFFF).value
        )
    dtype = _DTYPES[kind.removeprefix("*")]
    storage = torch._C._construct_storage_from_data_pointer(value, aten.CPU, dtype.itemsize)
    return torch.empty(0, dtype=dtype, device=aten.CPU).set_(storage, 0, (1,), (1,))


def install(mode: str) -> None:
    """Have the kernels of plans run in the mode. For the whole process."""
    if mode != "launches":
        allow_loop_bounds()
        keep_types_of_comparisons()
        patch_language_once()
        leave_out_checks_of_overflow()
        device = ByPython if mode == "python" else Interpreted

        def device_of(where: torch.device, target: str = "") -> Any:
            if device is ByPython:
                return ByPython()
            return Interpreted(where.index or 0, driver.cuda_driver(), target)

        driver.device_of = device_of
    launches.listen(mode == "values")


def check() -> None:
    """Raise what failed where nobody could be told."""
    for error in [*launches.errors, *aten.runtime().errors]:
        raise error


def forget() -> None:
    launches.errors.clear()
    aten.runtime().errors.clear()
    aten.nodes[:] = [_gone] * len(aten.nodes)


def _gone() -> None:
    raise AssertionError("a graph of an earlier program is launched")
