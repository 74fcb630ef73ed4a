"""Kernels on a device: the CUDA driver of this process, and the launches of a plan.

A device is one object with a `target` and with `load`, from a plan's Triton kernels to the objects
that their LaunchSteps are linked with. `Nvidia` compiles to machine code and launches from C++;
`ByTriton` leaves both to Triton, for devices that this driver is not of.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from inductor.runtime import _plan, cubin
from inductor.runtime.plan import TritonSpec

_plan.DeviceError.passed_on = True  # another way through the compiler mends no device
ROUNDS, CALLS = 5, 5  # of a measurement
LIBRARY = "libcuda.so.1" if os.name == "posix" else "nvcuda.dll"


@dataclass(frozen=True)
class Loaded:
    """A kernel that a plan launches. careful: makes a form of it that takes any addresses, for a
    call with one that is no multiple of 16 bytes."""

    code: _plan.DeviceKernel
    careful: Callable[[], _plan.DeviceKernel] | None = None
    device: Nvidia | None = None


class Nvidia:
    """A GPU by its number. driver: that of the machine, or a stand-in."""

    captures_aten = (
        True  # aten's operators on the device run there alone, so that graphs can hold them
    )

    def __init__(self, number: int, driver: _plan.Driver, target: str = "") -> None:
        self.number = number
        self.driver = driver
        major, minor = driver.capability(number)
        self.target = cubin.check_target(target or f"sm_{major}{minor}")

    def load(self, kernels: Sequence[TritonSpec]) -> dict[str, Loaded]:
        """Compile the kernels, or find them in the cache, and load their code.

        Raises NoTriton, KernelError, DeviceError and torch.OutOfMemoryError.
        """
        made = self.compiled(kernels)
        codes = {id(one): self._code(one) for one in {id(one): one for one in made}.values()}
        return {
            kernel.name: Loaded(codes[id(one)], functools.partial(self._careful, kernel), self)
            for kernel, one in zip(kernels, made, strict=True)
        }

    def _careful(self, kernel: TritonSpec) -> _plan.DeviceKernel:
        (made,) = self.compiled([kernel], aligned=False)
        return self._code(made)

    def compiled(self, kernels: Sequence[TritonSpec], aligned: bool = True) -> list[cubin.Cubin]:
        return cubin.compile_kernels(kernels, self.target, aligned=aligned)

    def stream(self) -> int:
        """The handle of torch's current stream."""
        return torch._C._cuda_getCurrentRawStream(self.number)

    def capturing(self) -> bool:
        """Whether the current stream is being captured."""
        return torch.cuda.is_current_stream_capturing()

    def graph(self) -> TorchGraph:
        return TorchGraph(self.number)

    def memory(self) -> int:
        """Bytes that the device has."""
        return torch.cuda.get_device_properties(self.number).total_memory

    def time(self, call: Callable[[], object]) -> float:
        """Seconds of a call's work on the device: the least of several."""
        best = float("inf")
        with torch.cuda.device(self.number):
            call()
            for _ in range(ROUNDS):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                for _ in range(CALLS):
                    call()
                end.record()
                end.synchronize()
                best = min(best, start.elapsed_time(end) / 1e3 / CALLS)
        return best

    def _code(self, made: cubin.Cubin) -> _plan.DeviceKernel:
        return self.driver.load(
            made.image,
            made.symbol,
            device=self.number,
            threads=32 * made.warps,
            shared=made.shared,
            hidden=made.hidden,
            aligned=made.aligned,
        )


class TorchGraph:
    """A device graph: work launched in its `with` block is captured, and `replay` launches it.
    nbytes: of memory that it holds.

    Tensors made in the block are in memory of its own, and random numbers are drawn from where
    torch's generator is at a replay. Wherever capturing fails, the stream of the caller is current
    again behind the block, and the allocator's pool is closed: torch.cuda.graph leaves both as they
    are when capture_end raises. Workspaces of cuBLAS are let go behind the block: a graph captured
    later on the same stream would share the memory, and run on another stream beside this one.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.graph: Any = torch.cuda.CUDAGraph()
        self.pool: Any = None
        self.scope: Any = None  # of the capturing stream
        self.nbytes = 0

    def __enter__(self) -> TorchGraph:
        torch.cuda.synchronize(self.number)
        torch.cuda.empty_cache()  # the graph's memory comes besides the allocator's free blocks
        self.nbytes = -torch.cuda.memory_reserved(self.number)
        self.pool = torch.cuda.graph_pool_handle()
        self.scope = torch.cuda.stream(_capturing_stream(self.number))
        self.scope.__enter__()
        try:
            self.graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
        except BaseException:
            self._give_up()
            raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.graph.capture_end()
        except Exception:
            self._give_up()
            if error is None:  # else the error of the block tells more
                raise
        else:
            torch._C._cuda_clearCublasWorkspaces()
            self.scope.__exit__(None, None, None)
            self.nbytes += torch.cuda.memory_reserved(self.number)

    def _give_up(self) -> None:
        try:
            torch._C._cuda_clearCublasWorkspaces()
            with contextlib.suppress(RuntimeError):  # it was not opened
                torch._C._cuda_endAllocateToPool(self.number, self.pool)
        finally:
            self.scope.__exit__(None, None, None)

    def replay(self) -> None:
        torch._C._CUDAGraph.replay(self.graph)  # link.watch_replays counts the program's

    def reset(self) -> None:
        self.graph.reset()


@functools.cache
def _capturing_stream(number: int) -> Any:
    return torch.cuda.Stream(torch.device("cuda", number))


class ByTriton:
    """A device that Triton compiles for and launches on by itself."""

    target = ""

    def load(self, kernels: Sequence[TritonSpec]) -> Mapping[str, Callable[..., Any]]:
        from inductor.runtime.triton_launch import launchers  # needs Triton

        return launchers(kernels)


@functools.cache
def cuda_driver() -> _plan.Driver:
    """The driver of this machine, with torch's current streams. Raises DeviceError."""
    return _plan.Driver(LIBRARY, torch._C._cuda_getCurrentRawStream)


def device_of(device: torch.device, target: str = "") -> Nvidia | ByTriton:
    """The launcher of kernels on a device. Raises DeviceError. target: in place of its own."""
    if device.type != "cuda" or torch.version.cuda is None:  # Triton's interpreter, or ROCm
        return ByTriton()
    return Nvidia(device.index or 0, cuda_driver(), target)


def tuned_device(device: torch.device) -> Nvidia | None:
    """The device, if kernels can be measured there."""
    try:
        found = device_of(device)
    except _plan.DeviceError:
        return None
    return found if isinstance(found, Nvidia) else None


def load_kernels(kernels: Sequence[TritonSpec], target: str = "") -> dict[str, Any]:
    """The compiled kernels to link a plan's LaunchSteps with, by name, each on its kernel's device.

    Raises the errors of Nvidia.load.
    """
    found: dict[str, Any] = {}
    for device in dict.fromkeys(kernel.device for kernel in kernels):
        own = [kernel for kernel in kernels if kernel.device == device]
        found |= device_of(torch.device(device), target).load(own)
    return found
