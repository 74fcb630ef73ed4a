"""Facts about GPUs that are known before anything runs on them: peaks, and the times that follow
from them.

These numbers choose between kernels (`max-autotune` measures instead, see device_tuning.py) and
predict (benchmarks/roofline.py). Peaks are of data sheets, dense; the shares of them that good
kernels reach, and the times of launches, are assumptions.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Device:
    """bandwidth: bytes a second. vector: operations a second of float32 outside of tensor cores.
    tensor: operations a second in tensor cores, by dtype; of float32 as TF32. units: streaming
    multiprocessors. shared: bytes of shared memory that one program may have. descriptors: whether
    it copies tiles of a matrix by a descriptor (TMA).
    """

    kind: str
    bandwidth: float
    vector: float
    tensor: dict[str, float]
    units: int
    shared: int
    descriptors: bool = False

    def seconds(self, nbytes: float, flops: float = 0.0, matrix: str = "") -> float:
        """Of one kernel that moves so many bytes and computes so much; matrix: the dtype of a
        product in tensor cores."""
        peak = self.tensor[matrix] * TENSOR if matrix else self.vector * VECTOR
        return max(EMPTY, nbytes / (self.bandwidth * BANDWIDTH), flops / peak)


# Shares of the peaks that good kernels reach, and seconds of a kernel that does nothing, behind
# another on the device.
BANDWIDTH, TENSOR, VECTOR = 0.8, 0.55, 0.5
EMPTY = 2.5e-6


def _tensor(half: float, single: float) -> dict[str, float]:
    return {"float32": single, "bfloat16": half, "float16": half, "int8": 2 * half}


def _tensor8(half: float, single: float) -> dict[str, float]:
    """Of devices that multiply float8, too."""
    return _tensor(half, single) | dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), 2 * half)


KB = 1024
DEVICES = {
    d.kind: d
    for d in (
        Device("b200", 7.7e12, 75e12, _tensor8(2250e12, 1100e12), 148, 227 * KB, True),
        Device("h200", 4.8e12, 67e12, _tensor8(989e12, 494e12), 132, 227 * KB, True),
        Device("h100", 3.35e12, 67e12, _tensor8(989e12, 494e12), 132, 227 * KB, True),
        Device("a100", 2.04e12, 19.5e12, _tensor(312e12, 156e12), 108, 163 * KB),
        Device("a10g", 0.6e12, 31.5e12, _tensor(70e12, 35e12), 80, 99 * KB),
        Device("l4", 0.3e12, 30.3e12, _tensor8(121e12, 60e12), 58, 99 * KB),
    )
}
# Where the name of the device at hand is none of these: the one that is most like it.
_BY_CAPABILITY = ((100, "b200"), (90, "h100"), (89, "l4"), (86, "l4"), (0, "a100"))


def is_gpu(device: torch.device) -> bool:
    """Whether kernels for the device are Triton's."""
    return device.type == "cuda"


def device_model(number: int = 0, target: str = "") -> Device:
    """The model of a GPU by its number, or by the target that is compiled for in its place."""
    if target:
        return _by_capability(int(target.removeprefix("sm_")))
    return _at_hand(number) if torch.cuda.is_available() else DEVICES["h100"]


@functools.cache
def _at_hand(number: int) -> Device:
    name = torch.cuda.get_device_name(number).lower()
    for kind, device in DEVICES.items():
        if kind in name.split() or any(part.startswith(f"{kind}-") for part in name.split()):
            return device
    major, minor = torch.cuda.get_device_capability(number)
    return _by_capability(10 * major + minor)


def _by_capability(capability: int) -> Device:
    return DEVICES[next(kind for least, kind in _BY_CAPABILITY if capability >= least)]


def kind_of(number: int, target: str = "") -> str:
    """The key for remembered choices of a device: its name, if one is at hand."""
    if target or not torch.cuda.is_available():
        return device_model(number, target).kind
    return torch.cuda.get_device_name(number)
