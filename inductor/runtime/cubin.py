"""Triton kernels as machine code for a GPU: compiled in worker processes, kept on disk.

    compile_kernels([kernel, ...], "sm_90") -> [Cubin, ...]

An entry of the cache (`kernels/ab/abcdef....cubin`) is a line of JSON, the figures of the kernel,
and its code. A process that finds all of its kernels there imports no Triton.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from inductor.runtime import cache
from inductor.runtime.plan import TritonSpec

log = logging.getLogger(__name__)

FORMAT = "2"  # of entries
WORKER = Path(__file__).with_name("triton_worker.py")
MATH = Path(__file__).with_name("triton_math.py")
MOST_WORKERS = 8


class NoTriton(RuntimeError):
    """Triton is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "kernels for a GPU need Triton: pip install triton, of the version that torch asks for"
        )


class KernelError(RuntimeError):
    """Triton, or ptxas, refused a kernel of ours."""

    def __init__(self, kernel: TritonSpec, target: str, text: str) -> None:
        super().__init__(f"{kernel.name} does not compile for {target}: {text}")
        self.kernel, self.text = kernel, text


@dataclass(frozen=True)
class Cubin:
    """A kernel's code for one target, and its figures.

    symbol: of the function in the code. shared: bytes of a program. registers: of a thread.
    spills: bytes of a thread that have no place in registers, arrays of its own included.
    hidden: parameters after those of the kernel's text, null at a launch. aligned: pointers are
    multiples of 16 bytes.
    """

    image: bytes
    symbol: str
    warps: int
    shared: int
    registers: int
    spills: int
    hidden: int
    aligned: bool

    def stored(self) -> bytes:
        about = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        image = about.pop("image")
        return json.dumps(about).encode() + b"\n" + image

    @classmethod
    def restored(cls, data: bytes) -> Cubin:
        """The inverse of `stored`; ValueError or TypeError for anything else."""
        head, _, image = data.partition(b"\n")
        return cls(image=image, **json.loads(head))


def check_target(target: str) -> str:
    """The target unchanged; ValueError if no target looks like it."""
    if re.fullmatch(r"sm_\d{2,3}", target) is None:
        raise ValueError(f'target={target!r}; a GPU is named by its capability, such as "sm_90"')
    return target


def compile_kernels(
    kernels: Sequence[TritonSpec], target: str, *, aligned: bool = True
) -> list[Cubin]:
    """The code of each kernel, from the cache or made now, as many at once as there are processors.
    Kernels that differ in names alone, as those of a model's equal layers do, have one.

    aligned: the kernels rely on addresses that are multiples of 16 bytes. Raises NoTriton, and
    KernelError for the first kernel that does not compile.
    """
    check_target(target)
    keys = [_key(renamed(kernel), target, aligned) for kernel in kernels]
    found = {key: _recall(key) for key in keys}
    missing = {key: k for key, k in zip(keys, kernels, strict=True) if found[key] is None}
    if missing:
        made = _Workers([renamed(kernel) for kernel in missing.values()], target, aligned).run()
        for key, one in zip(missing, made, strict=True):
            if isinstance(one, Cubin):
                _keep(key, one)
                found[key] = one
        for one, kernel in zip(made, missing.values(), strict=True):
            if isinstance(one, KernelError):
                raise KernelError(kernel, target, one.text)
            if one is None:
                raise RuntimeError("a kernel was not compiled")
    return [found[key] for key in keys]  # type: ignore[misc]


def renamed(kernel: TritonSpec) -> TritonSpec:
    """The kernel with its parameters named by position, and itself by its label: the name that
    profilers show."""
    label = re.sub(r"\W+", "_", kernel.label).strip("_")[:60]
    names = {name: f"arg{k}" for k, name in enumerate(kernel.signature)}
    names[kernel.name] = f"fused_{label or 'kernel'}"
    used = set(_WORD.findall(kernel.source))
    if (set(names.values()) - names.keys()) & used:  # a name of something else
        return kernel
    return dataclasses.replace(
        kernel,
        name=names[kernel.name],
        source=_WORD.sub(lambda word: names.get(word[0], word[0]), kernel.source),
        signature={names[name]: kind for name, kind in kernel.signature.items()},
        constants={names[name]: value for name, value in kernel.constants.items()},
        divisible=[names[name] for name in kernel.divisible],
        careful={names[name]: value for name, value in kernel.careful.items()},
    )


_WORD = re.compile(r"[A-Za-z_]\w*")


@functools.cache
def triton_version() -> str:
    """Raises NoTriton."""
    for name in ("triton", "pytorch-triton", "triton-windows"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    raise NoTriton


@functools.cache
def _ours() -> str:
    return WORKER.read_text() + MATH.read_text()


def _key(kernel: TritonSpec, target: str, aligned: bool) -> str:
    about = (
        kernel.name, kernel.signature, kernel.constants, kernel.warps, kernel.stages,
        kernel.divisible, kernel.careful, kernel.scratch, kernel.contract,
    )  # fmt: skip
    return cache.digest(
        FORMAT, kernel.source, repr(about), target, str(aligned), triton_version(), _ours()
    )


def _recall(key: str) -> Cubin | None:
    data = cache.store().read("kernels", key, ".cubin")
    if data is None:
        return None
    try:
        return Cubin.restored(data)
    except (ValueError, TypeError):
        return None


def _keep(key: str, made: Cubin) -> None:
    try:
        cache.store().write("kernels", key, ".cubin", made.stored())
    except OSError as error:
        log.warning("a kernel could not be stored: %s", error)


class _Workers:
    """Processes that take kernels from one queue. One that dies fails its kernel alone."""

    def __init__(self, kernels: list[TritonSpec], target: str, aligned: bool) -> None:
        self.kernels = kernels
        self.about = {"target": target, "aligned": aligned}
        self.made: list[Cubin | KernelError | None] = [None] * len(kernels)
        self.queue = deque(range(len(kernels)))
        self.running: list[subprocess.Popen] = []

    def run(self) -> list[Cubin | KernelError | None]:
        count = min(len(self.kernels), _processors(), MOST_WORKERS)
        with _workspace() as folder:
            threads = [
                threading.Thread(target=self._serve, args=(folder / str(number),))
                for number in range(count)
            ]
            try:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            finally:  # interrupted (Ctrl-C), it leaves no process behind
                self.queue.clear()
                for process in self.running:
                    _kill(process)
                for thread in threads:
                    thread.join()
        return self.made

    def _serve(self, folder: Path) -> None:
        folder.mkdir()
        process = None
        while self.queue:
            try:
                number = self.queue.popleft()
            except IndexError:
                return
            if process is None or process.poll() is not None:
                process = _start(folder)
                self.running.append(process)
            self.made[number] = self._compiled(self.kernels[number], process, folder)

    def _compiled(
        self, kernel: TritonSpec, process: subprocess.Popen, folder: Path
    ) -> Cubin | KernelError:
        file = folder / "kernel.cubin"
        job = {"kernel": dataclasses.asdict(kernel), "file": str(file), **self.about}
        assert process.stdin is not None and process.stdout is not None
        answer = ""
        with contextlib.suppress(OSError):  # the process ended
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        target, aligned = str(self.about["target"]), bool(self.about["aligned"])
        if not answer:
            last = (folder / "errors").read_text(errors="replace")[-2000:]
            return KernelError(kernel, target, f"the compiler ended with {process.wait()}. {last}")
        found = json.loads(answer)
        if "error" in found:
            return KernelError(kernel, target, found["error"])
        return Cubin(file.read_bytes(), aligned=aligned, **found)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def _workspace() -> Iterator[Path]:
    """A folder on the cache's disk, or elsewhere if there is no room."""
    try:
        work = cache.store().workspace()
        folder = work.__enter__()
    except OSError as error:
        work = cache.fall_back("the cache failed", error).workspace()
        folder = work.__enter__()
    with contextlib.ExitStack() as stack:
        stack.push(work)
        yield folder


def _start(folder: Path) -> subprocess.Popen:
    """A worker in a session of its own, so that Ctrl-C reaches us alone and we end all it started.

    Its Triton keeps nothing: our cache holds the compiled kernels.
    """
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton")}
    environment.pop("TRITON_INTERPRET", None)
    with (folder / "errors").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            start_new_session=True,
        )


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(OSError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    process.wait()
