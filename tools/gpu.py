"""The versions of a machine for `make gpu`, in one line; or the first thing that is missing.

python tools/gpu.py KIT
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
import sysconfig
from pathlib import Path


def missing(kit: Path) -> str | None:
    """The first thing without which the build or the tests would fail, and its remedy."""
    for package in ("torch", "triton"):
        if importlib.util.find_spec(package) is None:
            return f"no {package} for {sys.executable}: GPU_PYTHON names an interpreter that has it"
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is built without CUDA: GPU_PYTHON names another"
    if not torch.cuda.is_available():
        return "no GPU here that torch can use: see nvidia-smi and CUDA_VISIBLE_DEVICES"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "no Python.h, which the extensions and Triton need: install python3-dev"
    if not (shutil.which("g++") or shutil.which("c++")):
        return "no C++ compiler: install g++"
    if not any(kit.glob("*.whl")):
        return f"no wheels in {kit}: `make gpu-kit` where there is a network, and copy the folder"
    return None


def main() -> None:
    if what := missing(Path(sys.argv[1])):
        sys.exit(f"make gpu: {what}")
    import torch
    import triton

    name = torch.cuda.get_device_name()
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    print(f"{versions}, Triton {triton.__version__}, {torch.cuda.device_count()} x {name}")


if __name__ == "__main__":
    main()
