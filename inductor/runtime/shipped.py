"""Kernels that are compiled ahead, for machines without a compiler.

A library is found by the digest of its C++ text, which is the same wherever the plan is; `-march`
is that of a level of the instruction set.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from inductor.runtime import _plan, cache, toolchain

# Level of the instruction set -> torch's names of processors that have it.
TARGETS = {
    "x86-64-v2": ("DEFAULT", "AVX2", "AVX512"),
    "x86-64-v3": ("AVX2", "AVX512"),
    "x86-64-v4": ("AVX512",),
}
# Options in place of measurements, which another machine cannot repeat.
OPTIONS = {"tuning": "off"}

log = logging.getLogger(__name__)
_known: dict[str, Callable[[], bytes]] = {}


def runs_here(target: str) -> bool:
    """Whether this processor has the instructions of a target."""
    machine = os.uname().machine if hasattr(os, "uname") else ""
    capability = torch.backends.cpu.get_cpu_capability()
    return machine == "x86_64" and capability in TARGETS.get(target, ())


def digest_of(sources: Sequence[str]) -> str:
    return cache.digest(*sources)


@contextlib.contextmanager
def collected() -> Iterator[list[list[str]]]:
    """The texts of all libraries that are loaded meanwhile, as translation units."""
    found: list[list[str]] = []
    toolchain.watchers.append(found.append)
    try:
        yield found
    finally:
        toolchain.watchers.remove(found.append)


def compile_for(sources: Sequence[str], target: str) -> bytes:
    """The library for a target. Raises NoCompiler and CompileError."""
    compiler = toolchain.find_compiler()
    chosen = toolchain.Compiler(compiler.command, compiler.identity, (f"-march={target}",))
    return cache.content(toolchain.compile_library(list(sources), chosen))


def offer(libraries: Mapping[str, Callable[[], bytes]]) -> None:
    """Have these libraries, by digest, loaded where there is no compiler."""
    _known.update(libraries)
    toolchain.instead_of_compiler = _load


def _load(sources: Sequence[str]) -> _plan.Library | None:
    read = _known.get(digest_of(sources))
    if read is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.so"
        path.write_bytes(read())
        try:
            return _plan.Library(str(path))
        except OSError as error:
            log.warning("kernels of a saved program do not load: %s", error)
            return None
