"""The libraries of the stand-in, built once, and the environment of a process that runs on it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).parent
RUNTIME_SOURCES, DRIVER_SOURCES = [HERE / "cudart.cpp", HERE / "cudnn.cpp"], [HERE / "driver.cpp"]
INCLUDED = HERE.parents[1] / "inductor/stub_libcuda.cpp"
RUNTIME, DRIVER = "libcudart-stand-in.so", "libcuda.so.1"


def missing() -> str | None:
    """Why there can be no stand-in here."""
    if torch.version.cuda is None:
        return "this torch is built without CUDA"
    if not torch.version.cuda.startswith("13."):
        return f"the stand-in is for CUDA 13, this torch for {torch.version.cuda}"
    if shutil.which("g++") is None or shutil.which("nm") is None:
        return "no C++ compiler"
    if len(_headers()) < 2:
        return "no headers of CUDA, which torch's packages and Triton bring"
    return None


def environment(folder: Path | None = None) -> dict[str, str]:
    """What a process is started with, so that its torch finds the stand-in. folder: for caches."""
    built = libraries()
    more = {
        "LD_PRELOAD": str(built / RUNTIME),
        "LD_LIBRARY_PATH": os.pathsep.join([str(built), os.environ.get("LD_LIBRARY_PATH", "")]),
        "TRITON_INTERPRET": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # operators are registered again, on purpose
        "PYTORCH_NVML_BASED_CUDA_CHECK": "0",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "DYNAMO_STRICT": "1",  # a fault of ours is no reason to run on aten, which would be right
    }
    return {**os.environ, **more, **({"DYNAMO_CACHE_DIR": str(folder)} if folder else {})}


def libraries() -> Path:
    """The folder of both libraries."""
    text = "".join(
        path.read_text() for path in (*RUNTIME_SOURCES, *DRIVER_SOURCES, INCLUDED, Path(__file__))
    )
    key = hashlib.sha256(f"{torch.__version__}{text}".encode()).hexdigest()[:16]
    place = HERE.parents[2] / "build/stand-in" / key
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as work:
            made = Path(work) / "made"
            made.mkdir()
            torch_libraries = sorted(Path(torch.__file__).parent.glob("lib/lib*.so"))
            _build(RUNTIME_SOURCES, made / RUNTIME, torch_libraries, r"(?:__)?cuda[A-Z]\w*")
            nvrtc = [path for path in torch_libraries if "nvrtc" in path.name]
            _build(DRIVER_SOURCES, made / DRIVER, nvrtc, r"cu[A-Z]\w*")
            if not place.exists():  # else another process was first
                made.rename(place)
    return place


def _build(sources: list[Path], library: Path, users: list[Path], names: str) -> None:
    """The library, with a function for each symbol that its users import and the sources lack: it
    says its name, and fails."""
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden"]
    flags += [f"-I{folder}" for folder in _headers()]
    subprocess.run(["g++", *flags, *sources, "-o", library], check=True)
    lacking = sorted(_symbols("--undefined-only", names, *users) - _symbols("", names, library))
    stubs = library.with_suffix(".lacking.cpp")
    stubs.write_text("#include <cstdio>\n" + "".join(map(_stub, lacking)))
    subprocess.run(["g++", *flags, *sources, stubs, "-o", library], check=True)


def _stub(name: str) -> str:
    return (
        f'extern "C" __attribute__((visibility("default"))) int {name}() '
        f'{{ std::fprintf(stderr, "stand-in: there is no {name}\\n"); return 801; }}\n'
    )


def _symbols(kind: str, names: str, *libraries: Path) -> set[str]:
    command = ["nm", "-D", *filter(None, [kind]), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(re.findall(rf" ({names})(?:@\S*)?$", done.stdout, re.MULTILINE))


def _headers() -> list[Path]:
    """Of the runtime, as torch has it, and of the compiler's, which Triton brings."""
    packages = Path(torch.__file__).parents[1]
    found = [packages / "nvidia/cu13/include"]
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin is not None:
        found.append(Path(triton.origin).parent / "backends/nvidia/include")
    return [folder for folder in found if (folder / "cuda_runtime_api.h").exists()]
