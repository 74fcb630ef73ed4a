"""The runner: saved programs without Python (framegraph.h), and the plan that it runs, as data."""

from __future__ import annotations

import shlex
from pathlib import Path

FOLDER = Path(__file__).resolve().parent  # of framegraph.h and the sources


def sources() -> list[Path]:
    """The C++ files of the runner, in one order."""
    return sorted(FOLDER.glob("*.cpp"))


def flags(libtorch: bool = False) -> str:
    """The flags after `g++ -O2 main.cpp` on a shell's line. libtorch: with the operators of the
    installed torch.
    """
    more = libtorch_flags() if libtorch else []
    parts = ["-std=c++17", f"-I{FOLDER}", *map(str, sources()), *more, "-pthread", "-ldl"]
    return shlex.join(parts)


def libtorch_flags() -> list[str]:
    """The source that calls libtorch's operators, and what it is compiled and linked with."""
    import torch
    from torch.utils import cpp_extension

    headers = [f"-isystem{path}" for path in cpp_extension.include_paths()]
    folders = [
        flag
        for path in cpp_extension.library_paths()
        for flag in (f"-L{path}", f"-Wl,-rpath,{path}")
    ]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    source = str(FOLDER / "libtorch" / "operators.cpp")
    return [abi, f"-I{FOLDER / 'libtorch'}", *headers, source, *folders, *LIBRARIES]


LIBRARIES = ["-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10"]  # operators register there
