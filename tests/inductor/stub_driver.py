"""A device without a device: the stand-in for libcuda.so, and kernels that run on this processor.

`Stub` loads stub_libcuda.cpp as a driver. `SimulatedDevice` launches through it what a graph's
Triton kernels are launched with on a GPU; in place of their machine code, C++ kernels of the same
loops run. So plans, launches and device graphs are those of a GPU, with values to compare.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from inductor.codegen.cpp import CppModule
from inductor.codegen.triton import TritonModule
from inductor.runtime import _plan, cache, cubin, toolchain
from inductor.runtime.driver import Nvidia
from inductor.schedule.fusion import Bundle

SOURCE = Path(__file__).with_name("stub_libcuda.cpp")
CALLBACK = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_uint, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint
)
OUT_OF_MEMORY, ILLEGAL_ADDRESS, LOST = 2, 700, 999
_numbers = itertools.count()


def build(folder: Path, *flags: str) -> Path:
    """The library, compiled."""
    command = toolchain.find_compiler().command
    library = folder / f"libcuda{''.join(flags)}.so"
    subprocess.run(
        [*command, "-std=c++17", "-O1", "-shared", "-fPIC", *flags, str(SOURCE), "-o", library],
        check=True,
    )
    return library


class Stub:
    """One driver of its own. `stream` is what torch would call the current one: while a thread
    captures, one of its own, as of torch.cuda.graph.
    """

    def __init__(self, library: Path, opened: bool = True) -> None:
        own = library.with_name(f"{next(_numbers)}-{library.name}")  # a library is loaded once
        shutil.copy(library, own)
        self.path = str(own)
        self.library = ctypes.CDLL(self.path)
        self.library.stub_log.restype = ctypes.c_char_p
        self._current, self._capturing = 7, threading.local()
        self.errors: list[BaseException] = []  # of what ran in place of kernels
        if opened:
            self.open()

    def open(self) -> None:
        self.driver = _plan.Driver(self.path, lambda device: self.stream)

    @property
    def stream(self) -> int:
        return getattr(self._capturing, "stream", self._current)

    @stream.setter
    def stream(self, number: int) -> None:
        self._current = number

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        self._capturing.stream = threading.get_ident()
        try:
            yield
        finally:
            del self._capturing.stream

    def log(self) -> list[str]:
        """What was asked for since the last call."""
        lines = self.library.stub_log().decode().splitlines()
        self.library.stub_forget()
        return lines

    def fail(self, function: str, code: int, after: int = 0) -> None:
        """Have the call of a driver's function fail, after so many that do not."""
        self.library.stub_fail(function.encode(), code, after)

    def armed(self, function: str) -> bool:
        """Whether a call of the function is still to fail."""
        return bool(self.library.stub_armed(function.encode()))

    def live(self, kind: str) -> int:
        return self.library.stub_live(kind.encode())

    def on_launch(self, function) -> None:
        """function(name, programs, arguments) runs in place of kernels."""

        def call(name, programs, arguments, count):
            try:
                function(name.decode(), programs, arguments[:count])
            except BaseException as error:
                self.errors.append(error)

        self._callback = CALLBACK(call)  # kept alive
        self.library.stub_on_launch(self._callback)


class StubGraph:
    """A device graph of the stub, with the interface of driver.TorchGraph."""

    nbytes = 64

    def __init__(self, stub: Stub) -> None:
        self.stub = stub
        self.executable = None
        self._scope = contextlib.ExitStack()

    def __enter__(self) -> StubGraph:
        with contextlib.ExitStack() as scope:
            scope.enter_context(self.stub.capturing())
            self._check(self.stub.library.cuStreamBeginCapture_v2(self._stream(), 0))
            self._scope = scope.pop_all()
        return self

    def __exit__(self, *error) -> None:
        graph = ctypes.c_void_p()
        with self._scope:
            code = self.stub.library.cuStreamEndCapture(self._stream(), ctypes.byref(graph))
        if error[0] is None:
            self._check(code)
            made = ctypes.c_void_p()
            instantiate = self.stub.library.cuGraphInstantiateWithFlags
            self._check(instantiate(ctypes.byref(made), graph, 0))
            self.executable = made

    def replay(self) -> None:
        self._check(self.stub.library.cuGraphLaunch(self.executable, self._stream()))

    def reset(self) -> None:
        if self.executable is not None:
            self.stub.library.cuGraphExecDestroy(self.executable)
            self.executable = None

    __del__ = reset

    def _stream(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.stub.stream)

    @staticmethod
    def _check(code: int) -> None:
        if code:
            raise RuntimeError(f"the driver returned {code}")


def image(parameters: int) -> bytes:
    """What the stub takes for the code of a kernel with so many parameters."""
    body = b"\x04\x17\x0c\x00" * parameters
    return b"\x7fELF" + bytes(36) + struct.pack("<Q", 64) + bytes(10) + struct.pack(
        "<HH", len(body), 1
    ) + bytes(2) + body  # fmt: skip


class Simulated(TritonModule):
    """The Triton kernels of CPU buffers; `cpp` has the same kernels for this processor."""

    def __init__(self, program, **chosen) -> None:
        super().__init__(program, everywhere=True, **chosen)
        self.cpp: CppModule | None = None
        self.host: dict[str, dict] = {}
        latest.append(self)

    def add(self, item, name, live, label=""):
        if self.cpp is None:
            self.cpp = CppModule(self.program, live, set())
        steps = []
        for number, part in enumerate(item.kernels if isinstance(item, Bundle) else [item]):
            own = f"{name}_{number}" if number else name
            steps += super().add(part, own, live, label)
            self.host[own] = self.cpp.add(part, own)
        return steps


latest: list[Simulated] = []


def _symbol(kernel) -> str:
    """Kernels of one text are one."""
    return f"{kernel.name}_{cache.digest(kernel.source)[:16]}"


class SimulatedDevice(Nvidia):
    """Runs the kernels of the Simulated module that they are of."""

    captures_aten = False  # aten steps run on this processor, so no graph can hold them

    def __init__(self, stub: Stub) -> None:
        super().__init__(0, stub.driver)
        self.stub = stub
        self.hosts: dict[str, tuple] = {}
        stub.on_launch(self._run)

    def load(self, kernels):
        module = next(
            made
            for made in reversed(latest)  # a forward's are loaded when its backward's are made
            if {(k.name, k.source) for k in kernels}
            <= {(k.name, k.source) for k in made.kernels.values()}
        )
        library = toolchain.load_library(module.cpp.source())
        for kernel in kernels:
            name = kernel.name
            self.hosts[_symbol(kernel)] = library, module.kernels[name].args, module.host[name]
        return super().load(kernels)

    def compiled(self, kernels, aligned=True):
        return [
            cubin.Cubin(
                image(sum(kind != "constexpr" for kind in kernel.signature.values()) + 2),
                _symbol(kernel),
                kernel.warps,
                shared=0,
                registers=32,
                spills=0,
                hidden=2,
                aligned=aligned,
            )
            for kernel in kernels
        ]

    def _run(self, name, programs, arguments) -> None:
        library, args, host = self.hosts[name]
        where = dict(zip(args, arguments, strict=False))
        pointers = tuple(where[buffer] + offset for buffer, offset in host["args"])
        library.call(host["symbol"], pointers, 0, host["total"])

    def graph(self) -> StubGraph:
        return StubGraph(self.stub)

    def stream(self) -> int:
        return self.stub.stream

    def capturing(self) -> bool:
        return False

    def memory(self) -> int:
        return 1 << 30
