"""Facts about GPUs that are known before anything runs on them: peaks, and the times that follow
from them.

These numbers choose between kernels (`max-autotune` measures instead, see device_tuning.py) and
predict (benchmarks/roofline.py). Peaks are of data sheets, dense; the shares of them that good
kernels reach, and the times of launches, are assumptions.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class Device:
    """bandwidth: bytes a second. vector: operations a second of float32 outside of tensor cores.
    tensor: operations a second in tensor cores, by dtype; of float32 as TF32. units: streaming
    multiprocessors. shared: bytes of shared memory that one program may have. descriptors: whether
    it copies tiles of a matrix by a descriptor (TMA). products: whether Triton multiplies in its
    tensor cores; elsewhere sums of products spill, and the library is faster by far. ahead: of the
    template's products, how much faster the library's are with the same tiles (measured on an H200
    with Triton 3.6: 1.4 to 2.2 for some; the others are assumptions).
    """

    kind: str
    bandwidth: float
    vector: float
    tensor: dict[str, float]
    units: int
    shared: int
    descriptors: bool = False
    products: bool = True
    ahead: float = 1.1

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
        Device("b200", 7.7e12, 75e12, _tensor8(2250e12, 1100e12), 148, 227 * KB, True, ahead=1.6),
        Device("h200", 4.8e12, 67e12, _tensor8(989e12, 494e12), 132, 227 * KB, True, ahead=1.6),
        Device("h100", 3.35e12, 67e12, _tensor8(989e12, 494e12), 132, 227 * KB, True, ahead=1.6),
        Device("a100", 2.04e12, 19.5e12, _tensor(312e12, 156e12), 108, 163 * KB),
        Device("a10g", 0.6e12, 31.5e12, _tensor(70e12, 35e12), 80, 99 * KB),
        Device("l40s", 0.86e12, 91.6e12, _tensor8(362e12, 183e12), 142, 99 * KB),
        Device("l4", 0.3e12, 30.3e12, _tensor8(121e12, 60e12), 58, 99 * KB),
        Device("5090", 1.79e12, 105e12, _tensor8(210e12, 105e12), 170, 99 * KB, True),
        Device("4090", 1.01e12, 82.6e12, _tensor8(165e12, 83e12), 128, 99 * KB),
        Device("3090", 0.94e12, 35.6e12, _tensor(71e12, 36e12), 82, 99 * KB),
        Device("v100", 0.9e12, 15.7e12, _tensor(125e12, 15.7e12), 80, 96 * KB, products=False),
        Device("t4", 0.32e12, 8.1e12, _tensor(65e12, 8.1e12), 40, 64 * KB, products=False),
    )
}
# Where the name of the device at hand is none of these: the one that is most like it.
_BY_CAPABILITY = (
    (120, "5090"), (100, "b200"), (90, "h100"), (89, "l4"), (86, "3090"), (80, "a100"),
    (75, "t4"), (0, "v100"),
)  # fmt: skip


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
    """The model by its name, or one of its capability, with the multiprocessors and the shared
    memory that this one has: a kernel that asks for more cannot be loaded."""
    about = torch.cuda.get_device_properties(number)
    parts = about.name.lower().split()
    named = [d for kind, d in DEVICES.items() if any(_is_named(kind, part) for part in parts)]
    found = named[0] if named else _by_capability(10 * about.major + about.minor)
    units = about.multi_processor_count
    shared = getattr(about, "shared_memory_per_block_optin", found.shared)  # of newer torches
    share = units / found.units
    tensor = {dtype: peak * share for dtype, peak in found.tensor.items()}
    vector = found.vector * share
    return replace(found, units=units, shared=shared, vector=vector, tensor=tensor)


def _is_named(kind: str, part: str) -> bool:
    return part == kind or part.startswith(f"{kind}-")


def _by_capability(capability: int) -> Device:
    return DEVICES[next(kind for least, kind in _BY_CAPABILITY if capability >= least)]


def kind_of(number: int, target: str = "") -> str:
    """The key for remembered choices of a device: its name, if one is at hand."""
    if target or not torch.cuda.is_available():
        return device_model(number, target).kind
    return torch.cuda.get_device_name(number)
