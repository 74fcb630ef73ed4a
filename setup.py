"""Builds the five extension modules, and object files that generated code is linked with.

dynamo._hook             the PEP 523 frame hook and code cache; plain C, no torch
dynamo._guards           the guard tree; C++ against torch
fxgraph.aot._autograd    compiled training graphs, and graphs in parts; C++ against torch
fxgraph.aot._recurrent   kernels of recurrences: layers, running products; C++ against torch
inductor.runtime._plan   the plan executor; C++ against torch

FRAMEGRAPH_EXT=hook,guards,autograd,recurrent,plan builds only those named; FRAMEGRAPH_EXT=none
builds none: what `setup.py build_ext --inplace` has built, side by side, is not built again by
pip, which builds one after the other.
"""

import os
import runpy
import shlex
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
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(version)
    return str(stamp)


def one_unit(name: str, parts: list[str]) -> str:
    """A translation unit that includes the parts: torch's headers, most of a compile, are read
    once for an extension. Written anew only if it changes.
    """
    unit = Path("build/units") / f"{name}.cpp"
    text = "".join(f'#include "../../{part}"\n' for part in parts)
    if not unit.exists() or unit.read_text() != text:
        unit.parent.mkdir(parents=True, exist_ok=True)
        unit.write_text(text)
    return str(unit)


def torch_extension(name: str, folder: str, *flags: str, apart: bool = False) -> Extension:
    """An extension against torch, that says which torch, and which sources (fxgraph/extensions.py
    asks).

    apart: its files are compiled one by one.
    """
    parts = sources(folder, ".cpp")
    extensions = runpy.run_path(str(Path(__file__).parent / "fxgraph/extensions.py"))
    built_from = extensions["hash_of_sources"](Path(__file__).parent, folder)
    shared = [*sources("fxgraph/csrc", ".h"), "inductor/runner/integers.h"]
    # C files as well: another extension of the folder's, they are in the hash.
    headers = [*sources(folder, ".c", ".h"), *shared, torch_stamp()]
    return CppExtension(
        name,
        parts if apart else [one_unit(name, parts)],
        depends=headers if apart else [*headers, *parts],
        extra_compile_args={"cxx": [*CXX_FLAGS, *flags]},
        define_macros=[("FRAMEGRAPH_SOURCES", f'"{built_from}"')],
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
    folder = "fxgraph/aot/csrc/recurrent"  # its files are for processors of different kinds
    return torch_extension("fxgraph.aot._recurrent", folder, *flags, apart=True)


def plan() -> Extension:
    return torch_extension("inductor.runtime._plan", "inductor/runtime/csrc", "-fopenmp")


EXTENSIONS = {
    "hook": hook,
    "guards": guards,
    "autograd": autograd,
    "recurrent": recurrent,
    "plan": plan,
}


def wanted_names() -> list[str]:
    names = os.environ.get("FRAMEGRAPH_EXT")
    if names == "none":
        return []
    return names.split(",") if names else list(EXTENSIONS)


def wanted() -> list[Extension]:
    return [EXTENSIONS[name]() for name in wanted_names()]


class Build(BuildExtension):
    """The extensions, and the object files of functions that generated code calls
    (inductor/runtime/ready.py).
    """

    def run(self) -> None:
        super().run()
        if "plan" not in wanted_names():
            return
        root = Path() if self.inplace else Path(self.build_lib)
        command = shlex.split(os.environ.get("CXX", "")) or ["g++"]
        runpy.run_path("inductor/runtime/ready.py")["build"](root / "inductor/codegen", command)


# Without ninja, since torch's ninja path compiles C sources as C++. Extensions are built side by
# side.
setup(
    ext_modules=wanted(),
    cmdclass={"build_ext": Build.with_options(use_ninja=False)},
    options={"build_ext": {"parallel": os.cpu_count()}},
)
