"""The runner without Python, built here and called from Python: torch tensors in and out."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from inductor import runner
from inductor.runtime import cache, toolchain
from inductor.runtime.shipped import runs_here

needs = pytest.mark.skipif(
    shutil.which("g++") is None or not runs_here("x86-64-v3"),
    reason="needs g++ and a processor of x86-64-v3, for which programs are saved by default",
)


LIBRARY = ("-shared", "-fPIC", "-Wall", "-Wextra", "-Wshadow")
# Settings of CMake: all sources of a target in one unit, which takes half the time.
ONE_UNIT = ("-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0")


def build(target: Path, *more: str) -> Path:
    """The runner with further flags and sources; one unit, compiled in half the time. Kept in the
    cache: workers, the slow tests and other Python versions take it from there.
    """
    texts = [*runner.FOLDER.rglob("*.cpp"), *runner.FOLDER.rglob("*.h")]
    texts += [path for path in map(Path, more) if path.suffix == ".cpp"]
    compiler = toolchain.find_compiler().identity
    content = [path.read_text() for path in sorted(texts)]
    flags = [flag.replace(str(target.parent), "") for flag in more]
    suffix = target.suffix or ".bin"
    key = cache.digest("runner", torch.__version__, compiler, *flags, *content)
    store = cache.store()
    with store.lock(key):
        known = store.read("kernels", key, suffix)
        if known is None:
            known = _built(target, more)
            store.write("kernels", key, suffix, known)
    target.write_bytes(known)
    target.chmod(0o700)
    return target


def _built(target: Path, more: Sequence[str]) -> bytes:
    whole = target.parent / "whole.cpp"
    whole.write_text("".join(f'#include "{file}"\n' for file in runner.sources()))
    command = ["g++", "-std=c++17", "-O1", f"-I{runner.FOLDER}", str(whole), *more]
    command += ["-o", str(target), "-pthread", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not done.stderr, done.stderr[-3000:]  # no warnings
    return target.read_bytes()


class Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("threads", ctypes.c_int),
        ("operators", ctypes.c_void_p),
    ]


CODES = {
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.float16: (2, 16),
    torch.bfloat16: (4, 16),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.uint8: (1, 8),
    torch.bool: (6, 8),
    torch.complex64: (5, 64),
}


def dl_tensor(value: torch.Tensor | int) -> Tensor:
    """A DLTensor over the memory of a tensor; a number as one of no dimensions."""
    tensor = torch.tensor(value) if isinstance(value, int) else value
    numbers = ctypes.c_int64 * max(1, tensor.dim())
    shape, strides = numbers(*tensor.shape), numbers(*tensor.stride())
    code, bits = CODES[tensor.dtype]
    made = Tensor(tensor.data_ptr(), 1, 0, tensor.dim(), Type(code, bits, 1), shape, strides, 0)
    made.held = tensor, shape, strides
    return made


class Library:
    def __init__(self, path: Path) -> None:
        self.path = str(path)
        c, pointer = ctypes.CDLL(self.path), ctypes.c_void_p
        c.fg_load.argtypes, c.fg_load.restype = [ctypes.c_char_p, pointer], pointer
        c.fg_run.argtypes = [pointer, pointer, ctypes.c_int, pointer, ctypes.c_int]
        c.fg_error.restype = ctypes.c_char_p
        c.fg_free.argtypes = c.fg_input_count.argtypes = c.fg_result_count.argtypes = [pointer]
        for name in ("fg_input_name", "fg_result_name"):
            getattr(c, name).argtypes = [pointer, ctypes.c_int]
            getattr(c, name).restype = ctypes.c_char_p
        self.c, self.operators = c, None
        if hasattr(c, "fg_libtorch"):
            c.fg_libtorch.restype = pointer
            self.operators = c.fg_libtorch()

    @contextlib.contextmanager
    def load(self, path: Path | str, threads: int = 1) -> Iterator[Program]:
        options = Options(ctypes.sizeof(Options), threads, self.operators)
        handle = self.c.fg_load(str(path).encode(), ctypes.byref(options))
        if not handle:
            raise RuntimeError(self.c.fg_error().decode())
        try:
            yield Program(self.c, handle)
        finally:
            self.c.fg_free(handle)


_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Program:
    def __init__(self, c: ctypes.CDLL, handle: int) -> None:
        self.c, self.handle = c, handle
        count, results = c.fg_input_count(handle), c.fg_result_count(handle)
        self.inputs = [c.fg_input_name(handle, i).decode() for i in range(count)]
        self.results = [c.fg_result_name(handle, i).decode() for i in range(results)]

    def __call__(self, *values: torch.Tensor | int) -> list[torch.Tensor]:
        return self.run([dl_tensor(value) for value in values])

    def run(self, tensors: Sequence[Tensor | None], results: int | None = None):
        """The results; RuntimeError with the text of fg_error."""
        addresses = [None if one is None else ctypes.addressof(one) for one in tensors]
        inputs = (ctypes.c_void_p * max(1, len(tensors)))(*addresses)
        count = len(self.results) if results is None else results
        made = (ctypes.c_void_p * max(1, count))()
        if self.c.fg_run(self.handle, inputs, len(tensors), made, count) != 0:
            assert not any(made)
            raise RuntimeError(self.c.fg_error().decode())
        return [torch.from_dlpack(_capsule(made[i], b"dltensor", None)) for i in range(count)]
