"""The runner: saved programs without Python (framegraph.h), and the plan that it runs, as data."""

from __future__ import annotations

import shlex
from pathlib import Path

FOLDER = Path(__file__).resolve().parent  # of framegraph.h and the sources


def sources() -> list[Path]:
    """The C++ files of the runner, in one order."""
    return sorted(FOLDER.glob("*.cpp"))


def flags() -> str:
    """What is to follow `g++ -O2 main.cpp` on a line of a shell."""
    return shlex.join(["-std=c++17", f"-I{FOLDER}", *map(str, sources()), "-pthread", "-ldl"])
