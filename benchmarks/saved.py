"""Saved programs beside torch.export and AOTInductor's package: what they take to make and to load.

    python -m benchmarks.saved                 # every subject
    python -m benchmarks.saved bert vit        # some

"make" is exporting, compiling and writing, on empty caches. "first result" is loading and one call
in a fresh process that has imported torch and the loader, and nothing of the model: of the saved
program as loaded by dynamo.load with a cache that holds its plan and kernels, and with an empty
one; "runner" loads the same file, saved with standalone=True, in the C++ runner and calls it once.
Loading checks the hashes of all weights; AOTInductor's does not. With a cache, the best of three
loads in turns. Seconds are of the processor, those of compilers that were started included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

import dynamo
from benchmarks.processor import seconds
from inductor import runner
from tests.dynamo.runner import Library
from tests.models import zoo

SUBJECTS = ("resnet18", "mobilenet_v2", "bert", "gpt2", "vit")

_FIRST = """
import sys, torch
from benchmarks.processor import seconds
{imports}
inputs = torch.load(sys.argv[2])
started = seconds()
with torch.no_grad():
    {load}(sys.argv[1])(**inputs)
print(seconds() - started)
"""
OURS = _FIRST.format(imports="import dynamo", load="dynamo.load")
THEIRS = _FIRST.format(
    imports="from torch._inductor import aoti_load_package", load="aoti_load_package"
)


def first_result(program: str, file: Path, inputs: Path, caches: Path) -> float:
    env = {**os.environ, "DYNAMO_CACHE_DIR": str(caches)}
    command = [sys.executable, "-c", program, str(file), str(inputs)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(done.stdout.split()[-1])


def timed(make: Callable[[], Any]) -> float:
    started = seconds()
    make()
    return seconds() - started


def with_runner(library: Library, file: Path, inputs: dict[str, torch.Tensor]) -> float:
    def once() -> None:
        with library.load(file) as program:
            program(*(inputs[name] for name in program.inputs))

    return timed(once)


class Plain(torch.nn.Module):
    """The model with plain results: packages cannot be loaded where classes of results are not."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: torch.Tensor) -> Any:
        result = self.model(**inputs)
        return result.to_tuple() if hasattr(result, "to_tuple") else result


def package(model: torch.nn.Module, inputs: dict[str, torch.Tensor], file: Path) -> None:
    import torch._inductor

    exported = torch.export.export(Plain(model), (), inputs)
    torch._inductor.aoti_compile_and_package(exported, package_path=str(file))


def measure(name: str, library: Library, folder: Path) -> list[Any]:
    model, inputs = zoo.make(name)
    torch.save(inputs, folder / "inputs.pt")
    ours, alone, theirs = (folder / f"{name}{end}" for end in (".fg", ".alone.fg", ".pt2"))
    empty = folder / f"{name}-empty"
    caches = Path(os.environ["DYNAMO_CACHE_DIR"])
    with torch.no_grad():
        made = timed(lambda: dynamo.export(model)(**inputs).save(ours))
        dynamo.reset()
        made_alone = timed(
            lambda: dynamo.export(model)(**inputs).save(alone, standalone=True, weights=False)
        )
        made_theirs = timed(lambda: package(model, inputs, theirs))
    cold = first_result(OURS, ours, folder / "inputs.pt", empty)
    first_result(OURS, ours, folder / "inputs.pt", caches)
    turns = [
        [
            first_result(*way, folder / "inputs.pt", caches)
            for way in ((OURS, ours), (THEIRS, theirs))
        ]
        for _ in range(3)
    ]
    warm, other = map(min, zip(*turns))
    sizes = [file.stat().st_size / 2**20 for file in (ours, alone, theirs)]
    once = 1e3 * with_runner(library, alone, inputs)
    return [name, made, made_alone, made_theirs, *sizes, cold, warm, once, other]


HEADERS = ["subject", "make s", "standalone", "AOTI", "file MiB", "standalone", "AOTI",
           "first result s: empty cache", "cache s", "runner ms", "AOTI s"]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subjects", nargs="*", help=f"of {', '.join(SUBJECTS)}")
    names = parser.parse_args().subjects or SUBJECTS
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        os.environ["DYNAMO_CACHE_DIR"] = str(folder / "cache")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "torch")
        target = folder / "runner.so"
        sources = [f"-I{runner.FOLDER}", *map(str, runner.sources())]
        command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", *sources, "-o", str(target)]
        subprocess.run(command, check=True)
        library = Library(target)
        rows = [measure(name, library, folder) for name in names]
    print(tabulate(rows, headers=HEADERS, floatfmt=".2f"))


if __name__ == "__main__":
    main()
