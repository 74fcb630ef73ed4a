"""The host compiler: C++ text in, loaded kernel library out.

The compiler is $CXX if set, else the first of g++, clang++ and c++ on PATH, else the one inside the
`ziglang` package. Libraries are kept in the cache (cache.py) under a key of everything that shapes
them: source, headers, compiler, flags and processor. With no compiler NoCompiler is raised, and the
pipeline runs the graph on aten instead.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from inductor.runtime import _plan, cache, ready
from inductor.runtime.ready import FLAGS, INCLUDE

log = logging.getLogger(__name__)

# The first that a compiler accepts tunes for this processor.
TUNING = (("-march=native",), ("-mcpu=native",), ())
CANDIDATES = ("g++", "clang++", "c++")
HEADER = "vec.h"  # the first that generated code includes
# Kernels call functions of the C library alone: g++ searches that of C++ for 15 ms. A function that
# is missing is an error here, not where the library is loaded.
LINKED = ("-nodefaultlibs", "-lgcc", "-lm", "-lc", "-Wl,-z,defs")
# In place of -O2, for generated code: its vectors and what is inlined are written out, so that the
# passes that are left out here find nothing, and take a third of the time.
LEVEL = (
    "-O1", "-fstrict-aliasing", "-ftree-slp-vectorize", "-fexpensive-optimizations", "-fpeephole2",
    "-fcaller-saves", "-freorder-blocks-algorithm=stc", "-falign-loops",
)  # fmt: skip
# Functions that generated code calls, compiled once for a machine: a call, and the files that
# define the function.
DEFINED_IN = {
    "product<float>(": ("product.cpp",),
    "product<bf16>(": ("product_half.cpp",),
    "product<bf16_pair>(": ("product_pairs.cpp",),
    "product<f16>(": ("product_half.cpp",),
    "product<int8_t>(": ("product_int8.cpp",),
    "product<int8_pair>(": ("product_pairs_int8.cpp",),
    "attention<float>(": ("attention.cpp", "product.cpp"),
    "attention<bf16>(": ("attention_pairs.cpp", "product_pairs.cpp"),
    "multiply<float>(": ("matrices.cpp", "product.cpp"),
    "multiply<bf16>(": ("matrices_pairs.cpp",),
    "convolve(": ("windows.cpp",),
    "depthwise(": ("depthwise.cpp",),
    "winograd(": ("winograd.cpp", "product.cpp"),
    "train(": ("training.cpp",),
}


class NoCompiler(RuntimeError):
    """There is no C++ compiler. The text says how to get one."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"{detail}. Install g++ or clang (apt install g++, dnf install gcc-c++, "
            "conda install cxx-compiler), or a compiler from a wheel (pip install ziglang), "
            "or set CXX."
        )


class CompileError(RuntimeError):
    """The compiler refused generated code: a bug of ours, or a broken compiler."""

    def __init__(self, command: Sequence[str], output: str) -> None:
        super().__init__(f"{shlex.join(command)} failed:\n{output.strip()[-4000:]}")
        self.command = list(command)
        self.output = output


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: how to start it, and its identity (its file, not its version). plain: it is
    asked for nothing that only saves time.
    """

    command: tuple[str, ...]
    identity: str
    tuning: tuple[str, ...] = ()
    plain: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        return FLAGS + self.tuning

    @property
    def kernel_flags(self) -> tuple[str, ...]:
        """The flags for generated code."""
        if not self.quick:
            return self.flags
        return tuple(f for flag in self.flags for f in (LEVEL if flag == "-O2" else (flag,)))

    @property
    def quick(self) -> bool:
        """Whether it is GNU's, without flags of a user's: it takes precompiled headers, and
        LINKED.
        """
        name = os.path.basename(os.path.realpath(self.command[0]))
        known = len(self.command) == 1 and re.search(r"(?<!clan)g\+\+", name) is not None
        return known and sys.platform == "linux" and self not in _refused and not self.plain


_refused: set[Compiler] = set()  # those that are quick only if plain


def find_compiler() -> Compiler:
    """The compiler to use, looked up again when CXX or PATH changes; else NoCompiler."""
    return _find(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=8)
def _find(cxx: str, path: str) -> Compiler:
    for command in [shlex.split(cxx)] if cxx else [[name] for name in CANDIDATES]:
        program = shutil.which(command[0], path=path)
        if program is not None:
            compiler = Compiler((program, *command[1:]), _file_identity(program))
            return _tuned(compiler)
    if cxx:
        raise NoCompiler(f"CXX={cxx} names no program")
    zig = importlib.util.find_spec("ziglang")
    if zig is not None and zig.origin:
        zig_command = (sys.executable, "-m", "ziglang", "c++")
        return _tuned(Compiler(zig_command, _file_identity(zig.origin)))
    raise NoCompiler("framegraph found no C++ compiler (g++, clang++, c++) on PATH")


def _file_identity(program: str) -> str:
    """A compiler by its file, so that a second process need not run it to know it."""
    real = os.path.realpath(program)
    info = os.stat(real)
    return f"{real} {info.st_size} {info.st_mtime_ns}"


def _tuned(compiler: Compiler) -> Compiler:
    """The compiler with the tuning flags that it accepts; the answer is kept in the cache."""
    key = cache.digest("tuning", repr(compiler.command), compiler.identity, cache.machine())
    known = cache.store().read("plans", key, ".tuning")
    if known is not None:
        return Compiler(compiler.command, compiler.identity, tuple(json.loads(known)))
    tuning = next((flags for flags in TUNING if _accepts(compiler, flags)), None)
    if tuning is None:
        raise NoCompiler(f"{shlex.join(compiler.command)} does not compile an empty file")
    with contextlib.suppress(OSError):
        cache.store().write("plans", key, ".tuning", json.dumps(tuning).encode())
    return Compiler(compiler.command, compiler.identity, tuning)


def _accepts(compiler: Compiler, flags: Sequence[str]) -> bool:
    command = [*compiler.command, *flags, "-x", "c++", "-fsyntax-only", os.devnull]
    try:
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


# --- compiling ------------------------------------------------------------------------------------


def library_key(sources: Sequence[str], compiler: Compiler) -> str:
    ours = [path.read_text() for path in sorted(INCLUDE.iterdir()) if path.suffix in (".h", ".cpp")]
    return cache.digest(
        *sources, *ours, repr(compiler.command), compiler.identity, repr(compiler.flags),
        repr(LEVEL), cache.machine(),
    )  # fmt: skip


def compile_library(source: str | Sequence[str], compiler: Compiler | None = None) -> Path:
    """Path of the shared library of one or more translation units, from the cache or made now.
    compiler: in place of this machine's, with its flags.

    Several units are compiled in parallel and linked into one library. Raises NoCompiler or
    CompileError. Interrupted (Ctrl-C), it kills the compilers that it started and leaves nothing
    behind.
    """
    sources = [source] if isinstance(source, str) else list(source)
    compiler = compiler or find_compiler()
    try:
        return _compile_into(cache.store(), sources, compiler)
    except OSError as error:
        return _compile_into(cache.fall_back("the cache failed", error), sources, compiler)


# Told of the translation units of each library; asked for it where there is no compiler (see
# shipped.py).
watchers: list[Callable[[list[str]], None]] = []
instead_of_compiler: Callable[[Sequence[str]], _plan.Library | None] = lambda sources: None  # noqa: E731


def load_library(source: str | Sequence[str]) -> _plan.Library:
    """The compiled library, loaded. One that does not load is made again, outside of the cache."""
    units = [source] if isinstance(source, str) else list(source)
    for watch in watchers:
        watch(units)
    try:
        path = compile_library(source)
    except NoCompiler:
        found = instead_of_compiler(units)
        if found is None:
            raise
        return found
    try:
        return _plan.Library(str(path))
    except OSError as error:
        cache.store().remove(path)
        sources = [source] if isinstance(source, str) else list(source)
        elsewhere = cache.fall_back("a library in the cache does not load", error)
        return _plan.Library(str(_compile_into(elsewhere, sources, find_compiler())))


class Started:
    """A library whose compilers are at work while other things are done: to be finished, which puts
    it into the cache, or stopped.
    """

    def __init__(self, sources: list[str], compiler: Compiler, store: cache.Store) -> None:
        self._sources, self._compiler, self._store = sources, compiler, store
        self._key = library_key(sources, compiler)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(store.workspace())
            self._build = _Build(sources, compiler, folder, store)
            stack.callback(self._build.stop)
            self._end = stack.pop_all()

    def finish(self) -> None:
        """Raises CompileError."""
        with self._end:
            library = self._build.finish()
            if library_key(self._sources, self._compiler) == self._key:
                self._store.write("kernels", self._key, ".so", library.read_bytes())

    def stop(self) -> None:
        """End the compilers, if they are at work."""
        self._end.close()


def start_library(source: str | Sequence[str]) -> Started | None:
    """Start to compile a library that load_library is about to be asked for; None where nothing is
    to be compiled, or load_library will report the problem.
    """
    sources = [source] if isinstance(source, str) else list(source)
    try:
        compiler, store = find_compiler(), cache.store()
        if store.find("kernels", library_key(sources, compiler), ".so") is not None:
            return None
        return Started(sources, compiler, store)
    except (NoCompiler, OSError):
        return None


def _compile_into(store: cache.Store, sources: list[str], compiler: Compiler) -> Path:
    key = library_key(sources, compiler)
    if (path := store.find("kernels", key, ".so")) is not None:
        return path
    with store.lock(key):
        if (path := store.find("kernels", key, ".so")) is not None:
            return path  # another process made it while we waited
        with store.workspace() as folder:
            started = time.perf_counter()
            library = _Build(sources, compiler, folder, store).finish()
            log.debug("compiled %d units in %.2f s", len(sources), time.perf_counter() - started)
            if library_key(sources, compiler) == key:
                return store.write("kernels", key, ".so", library.read_bytes())
    return _compile_into(store, sources, compiler)  # our sources were edited meanwhile


_objects: dict[str, bytes] = {}  # by key: those that this process has made


class _Build:
    """Compiles units in `folder` to a library there: begins at once. store: of objects of our own
    functions.
    """

    def __init__(
        self, sources: list[str], compiler: Compiler, folder: Path, store: cache.Store
    ) -> None:
        self._sources, self._compiler, self._folder = sources, compiler, folder
        self._store = store
        self._header = _Header(compiler, store) if _reads_header(sources, compiler) else None
        if self._header is not None:
            self._header.link(folder)
        libraries = LINKED if compiler.quick else ()
        units = [folder / f"unit{number}.cpp" for number in range(len(sources))]
        for unit, text in zip(units, sources, strict=True):
            unit.write_text(text)
        known: list[Path] = []
        self._new: dict[Path, Path] = {}  # of our own functions: file -> object
        self._keys: dict[Path, str] = {}  # of their sources as they were before
        for file in _definitions(sources):
            key = self._keys[file] = _object_key(file, compiler)
            data = _ready(file, compiler) or _objects.get(key) or store.read("kernels", key, ".o")
            if data is None:
                self._new[file] = folder / f"{file.stem}.o"
                continue
            known.append(folder / f"{file.stem}.o")
            known[-1].write_bytes(data)
        self.library = folder / "kernels.so"
        self._link: list[str] = []
        include = ["-I", str(INCLUDE)]
        base = [*compiler.command, *compiler.kernel_flags, *include]
        if len(units) == 1 and not self._new:
            inputs = [*map(str, [*units, *known]), "-o", str(self.library)]
            self._commands = _Commands([[*base, *inputs, *libraries]])
            return
        objects = {**self._new, **{unit: unit.with_suffix(".o") for unit in units}}
        inputs = [*map(str, [*objects.values(), *known]), "-o", str(self.library)]
        self._link = [*base, *inputs, *libraries]
        ours = [*compiler.command, *compiler.flags, *include]
        commands = [
            [*(ours if f in self._new else base), "-c", str(f), "-o", str(o)]
            for f, o in objects.items()
        ]
        self._commands = _Commands([[a for a in c if a != "-shared"] for c in commands])

    def finish(self) -> Path:
        """The library. Raises CompileError."""
        try:
            self._run()
        except CompileError:
            if not self._compiler.quick:
                raise
            (self._folder / f"{HEADER}.gch").unlink(missing_ok=True)
            plain = replace(self._compiler, plain=True)
            library = _Build(self._sources, plain, self._folder, self._store).finish()
            _refused.add(self._compiler)
            return library
        for file, made in self._new.items():
            key = self._keys[file]
            if _object_key(file, self._compiler) != key:
                continue  # somebody edits our sources: nobody knows what the object is of
            data = _objects[key] = made.read_bytes()
            self._store.write("kernels", key, ".o", data)
        return self.library

    def _run(self) -> None:
        try:
            with self._header.made() if self._header else contextlib.nullcontext():
                self._commands.finish()
                if self._link:
                    _Commands([self._link]).finish()
        finally:
            self._commands.stop()

    def stop(self) -> None:
        self._commands.stop()


def _reads_header(sources: Sequence[str], compiler: Compiler) -> bool:
    return compiler.quick and any(text.startswith(f'#include "{HEADER}"') for text in sources)


_headers: dict[str, Path | None] = {}  # by key; None: there is none to be had


class _Header:
    """HEADER precompiled, of a build's compiler: to read it as text is most of the time that a
    small kernel takes. g++ takes it from the folder of the unit.
    """

    def __init__(self, compiler: Compiler, store: cache.Store) -> None:
        self._compiler, self._store = compiler, store
        self._key = library_key([f"{HEADER}.gch"], compiler)

    def link(self, folder: Path) -> None:
        """Put it into a build's folder, if there is one."""
        if self._key not in _headers:
            if (found := self._store.find("headers", self._key, ".gch")) is None:
                return
            _headers[self._key] = found
        if (known := _headers[self._key]) is not None:
            target = folder / f"{HEADER}.gch"
            try:
                os.link(known, target)
            except FileNotFoundError:  # removed meanwhile
                del _headers[self._key]
            except OSError:  # on another file system
                shutil.copyfile(known, target)

    @contextlib.contextmanager
    def made(self) -> Iterator[None]:
        """Make it for later builds, unless it is known, beside what runs in the context."""
        if self._key in _headers:
            yield
            return
        with self._store.workspace() as folder:
            file = folder / "header"
            flags = [*self._compiler.command, *self._compiler.kernel_flags]
            command = [*flags, "-x", "c++-header", str(INCLUDE / HEADER), "-o", str(file)]
            making = _Commands([command])
            try:
                yield
                _headers[self._key] = self._keep(making, file)
            finally:
                making.stop()

    def _keep(self, making: _Commands, file: Path) -> Path | None:
        with contextlib.suppress(CompileError, OSError):
            making.finish()
            if library_key([f"{HEADER}.gch"], self._compiler) == self._key:
                return self._store.write("headers", self._key, ".gch", file.read_bytes())
        return None


def _ready(file: Path, compiler: Compiler) -> bytes | None:
    """The object of a file as the package brings it, if the compiler's code may call it."""
    if len(compiler.command) > 1:  # flags of a user's, or a compiler that links otherwise
        return None
    levels = _LEVELS.get(torch.backends.cpu.get_cpu_capability(), [])
    if torch.cpu._is_avx512_bf16_supported():
        levels = [*levels, "x86-64-v4-bf16"]
    for flag in compiler.tuning:
        levels = [flag.removeprefix("-march=")] if flag != "-march=native" else levels
    return ready.find(file.name, levels)


# Torch's names of processors -> levels of the instruction set that they have.
_LEVELS = {"AVX2": ["x86-64-v3"], "AVX512": ["x86-64-v4"]}


def _object_key(file: Path, compiler: Compiler) -> str:
    return library_key([f"the object of {file.name}"], compiler)


def _definitions(sources: Sequence[str]) -> list[Path]:
    """The files that define functions of ours that the units call."""
    called = [call for call in DEFINED_IN if any(call in text for text in sources)]
    return [INCLUDE / name for name in sorted({n for call in called for n in DEFINED_IN[call]})]


class _Commands:
    """Commands that run, as many at once as there are processors.

    Each runs in a session of its own, so that Ctrl-C reaches us alone and we end it with all that
    it started.
    """

    def __init__(self, commands: list[list[str]]) -> None:
        self._waiting = list(reversed(commands))
        self._running: list[tuple[list[str], subprocess.Popen]] = []
        try:
            self._fill()
        except BaseException:
            self.stop()
            raise

    def _fill(self) -> None:
        processors = os.cpu_count() or 1
        if hasattr(os, "sched_getaffinity"):
            processors = len(os.sched_getaffinity(0))
        while self._waiting and len(self._running) < processors:
            command = self._waiting.pop()
            self._running.append((command, _start(command)))

    def finish(self) -> None:
        """Wait for all; CompileError if one fails."""
        try:
            while self._running:
                command, process = self._running[0]
                output, _ = process.communicate()
                if process.returncode != 0:
                    raise CompileError(command, output)
                self._running.pop(0)
                self._fill()
        finally:
            self.stop()

    def stop(self) -> None:
        for _, process in self._running:
            _kill(process)
        self._running.clear()


def _start(command: list[str]) -> subprocess.Popen:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise NoCompiler(f"{command[0]} cannot be started ({error})") from error


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(OSError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    process.wait()
