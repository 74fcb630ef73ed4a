"""Loading, launching and cross-compiling generated Triton kernels."""

from __future__ import annotations

import functools
import hashlib
import linecache
from collections.abc import Mapping
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from inductor.codegen.triton import TYPES, TritonKernel
from inductor.sizes import hint

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


def _options(kernel: TritonKernel) -> dict[str, Any]:
    # Eager does not contract a * b + c into one rounding.
    return {"num_warps": kernel.num_warps, "enable_fp_fusion": False}


class Launcher:
    """A kernel as a callable over tensors, in the order of `kernel.args`; with sizes that calls
    bring, then `kernel.sizes`, then, unless it is known, the number of programs."""

    def __init__(self, kernel: TritonKernel) -> None:
        self.kernel = kernel
        self.function = load(kernel.source, kernel.name)
        self._options = {**kernel.constants, **_options(kernel)}

    def __call__(self, *args: Any) -> None:
        programs = self.kernel.programs
        if not isinstance(programs, int):
            *args, programs = args  # type: ignore[assignment]
        if programs:
            try:
                self.function[(programs,)](*args, **self._options)
            except Exception as error:
                error.graph_stage = STAGE  # type: ignore[attr-defined]
                raise

    def compile(self) -> None:
        """Compile and load the kernel for the current device as the first launch would, for aligned
        buffers and the sizes of now: what Triton raises, it raises before a plan runs.
        """
        types = [kind for kind in self.kernel.signature.values() if kind.startswith("*")]
        sizes = [hint(size) for size in self.kernel.sizes]
        args = [*(_DTYPES[kind.removeprefix("*")] for kind in types), *sizes]
        compiled = self.function.warmup(*args, grid=(1,), **self._options)
        if compiled is not None:  # as it is by Triton's interpreter
            compiled.run  # noqa: B018  loads


def launchers(kernels: Mapping[str, TritonKernel]) -> dict[str, Launcher]:
    """What to link the steps of a TritonModule with; the kernels are compiled."""
    found = {name: Launcher(kernel) for name, kernel in kernels.items()}
    for launcher in found.values():
        launcher.compile()
    return found


def compile_for(kernel: TritonKernel, capability: int) -> dict[str, Any]:
    """Compile for an NVIDIA target (80: A100, 90: H100), whether or not there is one here.

    Returns what Triton made, by stage: "ttir", "ttgir", "llir", "ptx", "cubin".
    """
    source = ASTSource(
        fn=load(kernel.source, kernel.name),
        signature=kernel.signature,
        constexprs=dict(kernel.constants),
    )
    target = GPUTarget("cuda", capability, 32)
    compiled = triton.compile(source, target=target, options=_options(kernel))
    return dict(compiled.asm)
