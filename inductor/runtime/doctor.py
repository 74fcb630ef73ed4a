"""Tools of this machine that the default backend uses, as rows (tool, found, works) for `python -m
dynamo doctor`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch

from inductor.runtime import cache, toolchain

Row = tuple[str, str, str]


def environment() -> list[Row]:
    """torch, the host compiler, Triton, devices and the cache folder."""
    return [
        ("torch", torch.__version__, ""),
        ("threads", str(torch.get_num_threads()), ""),
        ("C++ compiler", *_try(_compiler, missing=toolchain.NoCompiler)),
        ("Triton", *_triton()),
        ("device", *_device()),
        ("cache folder", *_try(_cache)),
    ]


def trials() -> list[Row]:
    """Compile and run a kernel."""
    return [("C++ kernel", *_try(_kernel, missing=toolchain.NoCompiler))]


def _try(probe: Callable[[], str], missing: type[Exception] | tuple[()] = ()) -> tuple[str, str]:
    """The probe's result and "yes"; a missing optional part is "-" (we run without it), an error
    "no".
    """
    try:
        return probe(), "yes"
    except missing as error:
        return f"{error} Until then graphs run on aten.", "-"
    except Exception as error:
        return f"{type(error).__name__}: {error}", "no"


def _compiler() -> str:
    compiler = toolchain.find_compiler()
    return " ".join([*compiler.command, *compiler.tuning])


def _triton() -> tuple[str, str]:
    if importlib.util.find_spec("triton") is None:
        return "not installed (pip install framegraph[triton]); needed for devices only", "-"
    import triton

    return triton.__version__, "yes"


def _device() -> tuple[str, str]:
    if not torch.cuda.is_available():
        return "none: CPU only", "-"
    names = {torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())}
    return f"{torch.cuda.device_count()} x {', '.join(sorted(names))}", "yes"


def _cache() -> str:
    return str(cache.store().root)


def _kernel() -> str:
    from fxgraph import symbolic_trace
    from inductor import compile_graph

    x = torch.linspace(-2, 2, 100)
    toolchain.find_compiler()
    compiled = compile_graph(symbolic_trace(lambda x: (torch.tanh(x) * 2 + 1,)), [x])
    (out,) = compiled(x)
    torch.testing.assert_close(out, torch.tanh(x) * 2 + 1)
    if not compiled.compile_report["kernels"]:
        raise RuntimeError("no kernel was compiled")
    return "compiled and ran tanh(x) * 2 + 1"
