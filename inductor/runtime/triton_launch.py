"""Launching of generated Triton kernels by Triton itself: by its interpreter, and on devices that
the driver (driver.py) is not of.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
from collections.abc import Callable, Sequence
from typing import Any

import torch

from inductor.codegen.triton_ops import TYPES
from inductor.runtime.plan import TritonSpec

STAGE = "launch"  # that errors of a launch are marked with
_DTYPES = {name: dtype for dtype, name in TYPES.items()}


@functools.lru_cache(maxsize=4096)
def load(source: str, name: str) -> Any:
    """The @triton.jit function in a kernel's text; equal texts are loaded once."""
    file = f"<framegraph triton {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    # Triton compiles from source lines, which it looks up by file name.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "framegraph_kernels", "__file__": file}
    exec(compile(source, file, "exec"), namespace)
    return namespace[name]


class Launcher:
    """A kernel as a callable over tensors and sizes, in the order of its parameters, and the number
    of programs."""

    def __init__(self, kernel: TritonSpec) -> None:
        self.kernel = kernel
        self.function = load(kernel.source, kernel.name)
        options = {"num_warps": kernel.warps, "num_stages": kernel.stages}
        # Eager does not contract a * b + c into one rounding, nor take a subnormal number for 0.
        options["enable_fp_fusion"] = kernel.contract
        if torch.version.hip is None:  # where Triton has no such option, and keeps them
            options["enable_reflect_ftz"] = False
        self._options = {**kernel.constants, **options}

    def __call__(self, *args: Any) -> None:
        *args, programs = args  # type: ignore[assignment]
        if programs:
            try:
                self.function[(programs,)](*args, **self._options)
            except Exception as error:
                error.graph_stage = STAGE  # type: ignore[attr-defined]
                raise

    def compile(self) -> None:
        """Compile and load the kernel for the current device as the first launch would, for aligned
        buffers and sizes like any: Triton's errors come before a plan runs.
        """
        kinds = [kind for kind in self.kernel.signature.values() if kind != "constexpr"]
        args = [_DTYPES[k.removeprefix("*")] if k.startswith("*") else 1 << 20 for k in kinds]
        compiled = self.function.warmup(*args, grid=(1,), **self._options)
        if compiled is not None:  # as it is by Triton's interpreter
            compiled.run  # noqa: B018  loads


def launchers(kernels: Sequence[TritonSpec]) -> dict[str, Callable[..., Any]]:
    """The launchers to link LaunchSteps with; the kernels are compiled."""
    found = {kernel.name: Launcher(kernel) for kernel in kernels}
    for launcher in found.values():
        launcher.compile()
    return dict(found)
