"""Builds the five extension modules.

dynamo._hook             the PEP 523 frame hook and code cache; plain C, no torch
dynamo._guards           the guard tree; C++ against torch
fxgraph.aot._autograd    the autograd node of compiled training graphs; C++ against torch
fxgraph.aot._recurrent   kernels of recurrent layers; C++ against torch
inductor.runtime._plan   the plan executor; C++ against torch

FRAMEGRAPH_EXT=hook,guards,autograd,recurrent,plan builds only those named.
"""

import os
from pathlib import Path

import torch
from setuptools import Extension, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

CXX_FLAGS = ["-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wno-unknown-pragmas"]
C_FLAGS = [
    "-O2",
    "-g0",
    "-std=c11",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
]


def sources(folder: str, *suffixes: str) -> list[str]:
    """Source files of one extension, in a stable order, relative to this file."""
    here = Path(__file__).parent
    return sorted(str(p.relative_to(here)) for s in suffixes for p in (here / folder).glob(f"*{s}"))


def torch_stamp() -> str:
    """A file rewritten when torch's version changes: what depends on it is then built again."""
    stamp = Path("build/torch-version")
    version = torch.__version__.split("+")[0]  # builds for other devices share one ABI
    if not stamp.exists() or stamp.read_text() != version:
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(version)
    return str(stamp)


def torch_extension(name: str, folder: str, *flags: str) -> Extension:
    """An extension against torch, that says which torch (fxgraph/extensions.py asks)."""
    return CppExtension(
        name,
        sources(folder, ".cpp"),
        depends=[*sources(folder, ".h"), "fxgraph/csrc/torch_version.h", torch_stamp()],
        extra_compile_args={"cxx": [*CXX_FLAGS, *flags]},
    )


def hook() -> Extension:
    return Extension(
        "dynamo._hook",
        sources("dynamo/csrc", ".c"),
        depends=sources("dynamo/csrc", ".h"),
        extra_compile_args={"cxx": C_FLAGS},
    )


def guards() -> Extension:
    return torch_extension("dynamo._guards", "dynamo/csrc")


def autograd() -> Extension:
    return torch_extension("fxgraph.aot._autograd", "fxgraph/aot/csrc")


def recurrent() -> Extension:
    """Its vector types are passed between inlined functions alone, whose ABI -Wpsabi is about."""
    flags = ("-O3", "-ffp-contract=fast", "-fopenmp", "-Wno-psabi")
    return torch_extension("fxgraph.aot._recurrent", "fxgraph/aot/csrc/recurrent", *flags)


def plan() -> Extension:
    return torch_extension("inductor.runtime._plan", "inductor/runtime/csrc", "-fopenmp")


EXTENSIONS = {
    "hook": hook,
    "guards": guards,
    "autograd": autograd,
    "recurrent": recurrent,
    "plan": plan,
}


def wanted() -> list[Extension]:
    names = os.environ.get("FRAMEGRAPH_EXT")
    return [EXTENSIONS[name]() for name in (names.split(",") if names else EXTENSIONS)]


# Without ninja, since torch's ninja path compiles C sources as C++. Extensions are built side by
# side.
setup(
    ext_modules=wanted(),
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
    options={"build_ext": {"parallel": os.cpu_count()}},
)
