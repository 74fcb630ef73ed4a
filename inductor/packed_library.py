"""oneDNN's operators that pack weights once, and compute with the packed ones: are they there?"""

from __future__ import annotations

import functools

import torch

# An operator, and the kind of tensor that decides which of its kernels runs.
Kernels = tuple[tuple[str, str], ...]


def is_available(kernels: Kernels) -> bool:
    """Whether the library is there, in use, and has these kernels."""
    library = torch.backends.mkldnn
    return library.is_available() and bool(library.enabled) and _has(kernels)


@functools.cache
def _has(kernels: Kernels) -> bool:
    try:
        return all(map(torch._C._dispatch_has_kernel_for_dispatch_key, *zip(*kernels)))
    except RuntimeError:  # no such operator
        return False
