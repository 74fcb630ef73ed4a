"""Functions of ours that generated code calls, compiled when the package is built: object files for
levels of x86-64's instruction set, which spare a machine's first compile the seconds they take.

    codegen/ready/product.x86-64-v4.0123456789abcdef.o

The name holds a hash of the object's source and flags: one of others is not found, and the function
is compiled on its first use. setup.py runs this file by itself, so that nothing of torch
or of ours is imported here.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Results must equal eager's: no fast-math, no contraction of a*b+c into one rounding, integers
# that wrap. -O3 takes up to twice as long to compile, for kernels that are no faster: all that they
# need of it is that short loops (lanes, pooling windows) are unrolled whole.
FLAGS = (
    "-std=c++17", "-O2", "-fpeel-loops", "-fPIC", "-shared", "-w", "-ffp-contract=off",
    "-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-fno-exceptions", "-fno-rtti",
    "-fvisibility=default",
)  # fmt: skip
INCLUDE = Path(__file__).resolve().parents[1] / "codegen"  # vec.h
FOLDER = "ready"  # in that of the sources
# Levels of the instruction set -> flags. The last has instructions that multiply pairs of bfloat16.
LEVELS = {
    "x86-64-v3": ("-march=x86-64-v3",),
    "x86-64-v4": ("-march=x86-64-v4",),
    "x86-64-v4-bf16": ("-march=x86-64-v4", "-mavx512bf16"),
}
_EACH = ("x86-64-v3", "x86-64-v4")
FILES: dict[str, tuple[str, ...]] = {
    "product.cpp": _EACH,
    "product_half.cpp": _EACH,
    "product_pairs.cpp": ("x86-64-v4-bf16",),
    "product_pairs_int8.cpp": ("x86-64-v4-bf16",),
    "matrices.cpp": _EACH,
    "winograd.cpp": _EACH,
    "training.cpp": _EACH,
    "depthwise.cpp": _EACH,
    "attention.cpp": _EACH,
    "attention_pairs.cpp": ("x86-64-v4-bf16",),
    "matrices_pairs.cpp": ("x86-64-v4-bf16",),
    "windows.cpp": ("x86-64-v4-bf16",),
}


@functools.cache
def _digest() -> str:
    """Of all sources and flags."""
    found = hashlib.sha256(repr(FLAGS).encode())
    for path in sorted(INCLUDE.iterdir()):
        if path.suffix in (".h", ".cpp"):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _path(file: str, level: str) -> Path:
    return INCLUDE / FOLDER / f"{Path(file).stem}.{level}.{_digest()}.o"


def find(file: str, levels: Sequence[str]) -> bytes | None:
    """The object of a file for one of the levels, if there is one."""
    for level in levels:
        if level in FILES.get(file, ()):
            try:
                return _path(file, level).read_bytes()
            except OSError:
                continue
    return None


def build(folder: Path, command: Sequence[str]) -> None:
    """Compile all into `folder`, where the sources of the package are to be, by a compiler. Sources
    that fail to compile are left to the machine that uses them.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return
    folder = folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    made_for = [(file, level) for file, levels in FILES.items() for level in levels]
    wanted = {folder / _path(file, level).name: (file, level) for file, level in made_for}
    for old in set(folder.iterdir()) - set(wanted):
        old.unlink()
    flags = [flag for flag in FLAGS if flag != "-shared"]

    def make(path: Path) -> None:
        if path.exists():
            return
        file, level = wanted[path]
        draft = path.with_suffix(f".{os.getpid()}")
        given = [*LEVELS[level], "-c", str(INCLUDE / file), "-o", str(draft)]
        try:
            subprocess.run([*command, *flags, *given], check=True, capture_output=True)
            os.replace(draft, path)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{file} is not compiled for {level}: {error}")
            draft.unlink(missing_ok=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(make, wanted))
