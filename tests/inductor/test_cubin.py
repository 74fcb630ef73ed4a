"""Triton kernels compiled in worker processes, and kept on disk with their figures."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from inductor import devices
from inductor.codegen.triton_ops import operation
from inductor.options import Options
from inductor.runtime import cache, cubin
from inductor.runtime.cubin import Cubin, KernelError, compile_kernels
from inductor.runtime.plan import TritonSpec
from tests.inductor.test_device_lowering import planned

SOURCE = """
import triton
import triton.language as tl
from inductor.runtime.triton_math import math


@triton.jit
def {name}(x, out, n0, XBLOCK: tl.constexpr):
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(out + i, {value}, mask=i < n0)
"""


def kernel(name="k0", value="tl.load(x + i, mask=i < n0) * 2"):
    signature = {"x": "*fp32", "out": "*fp32", "n0": "i64", "XBLOCK": "constexpr"}
    source = SOURCE.format(name=name, value=value)
    return TritonSpec(name, source, signature, {"XBLOCK": 256})


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))
    return cache.store()


def test_several_kernels_for_one_target(store):
    kernels = [kernel(f"k{n}", f"tl.load(x + i, mask=i < n0) * {n}") for n in range(3)]
    made = compile_kernels([*kernels, kernels[0]], "sm_90")
    assert [one.symbol for one in made] == ["fused_kernel"] * 4 and made[0] is made[3]
    assert all(one.image[:4] == b"\x7fELF" and one.warps == 4 and one.aligned for one in made)
    assert all(one.spills == 0 and one.registers > 0 and one.shared == 0 for one in made)
    assert len(list((store.root / "kernels").glob("*/*.cubin"))) == 3
    assert not list((store.root / "tmp").iterdir())


def test_kernels_of_equal_layers_are_compiled_once(store):
    """They differ in the names of kernels and buffers; not those that read two of them by turns."""
    value = "tl.load(x + i, mask=i < n0) - tl.load(y + i, mask=i < n0)"
    kinds = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n0": "i64", "XBLOCK": "constexpr"}
    text = SOURCE.replace("(x,", "(x, y,")

    def layer(name, first, second, text=text, **more):
        names = {"x": first, "y": second}
        source = re.sub(
            r"\b[xy]\b", lambda word: names[word[0]], text.format(name=name, value=value)
        )
        signature = {names.get(key, key): kind for key, kind in kinds.items()}
        return TritonSpec(name, source, signature, {"XBLOCK": 256}, label="sub + 1", **more)

    other = layer("k2", "arg0", "buf1", text.replace("(x, y,", "(y, x,"))
    other.signature = {"buf1": "*fp32", "arg0": "*fp32", **dict([*other.signature.items()][2:])}
    kernels = [
        layer("k0", "arg0", "buf1"), layer("k1", "buf1", "arg0"), other,
        layer("k3", "buf3", "arg1"), layer("k4", "buf3", "arg1", divisible=["n0"]),
    ]  # fmt: skip
    made = compile_kernels(kernels, "sm_90")
    assert made[0] is made[1] is made[3] and {one.symbol for one in made} == {"fused_sub_1"}
    assert len({id(one) for one in made}) == 3
    assert len(list((store.root / "kernels").glob("*/*.cubin"))) == 3


def test_a_second_process_starts_none(store, monkeypatch):
    made = compile_kernels([kernel()], "sm_80")
    monkeypatch.setattr(cubin, "_start", None)
    assert compile_kernels([kernel()], "sm_80") == made


def test_targets_and_alignments_have_code_of_their_own(store):
    codes = {
        compile_kernels([kernel()], target, aligned=aligned)[0].image
        for target in ("sm_80", "sm_90")
        for aligned in (True, False)
    }
    assert len(codes) == 4


def disassembled(value, folder, **fields):
    """The instructions of a kernel that stores an expression of float32."""
    (made,) = compile_kernels([replace(kernel(value=value), **fields)], "sm_90")
    return instructions(made, folder)


def instructions(made, folder):
    import triton

    (folder / "k0").write_bytes(made.image)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    return subprocess.run([tool, folder / "k0"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("contract", [False, True])
def test_products_and_sums_are_rounded_once_on_demand_alone(store, tmp_path, contract):
    load = "tl.load(x + i, mask=i < n0)"
    shown = disassembled(f"{load} * 3 + {load}", tmp_path, contract=contract)
    assert ("FFMA" in shown) == contract and ("FMUL" in shown) == (not contract)


def test_subnormal_numbers_are_not_taken_for_0(store, tmp_path):
    """As in eager: functions of libdevice would, unless told."""
    shown = disassembled("tl.erf(tl.load(x + i, mask=i < n0))", tmp_path)
    assert "FFMA" in shown and "FFMA.FTZ" not in shown


@pytest.mark.parametrize("op", ["exp", "sigmoid"])
def test_exponentials_of_large_numbers_are_exact(store, tmp_path, op):
    """As in eager: x * log2(e) in one rounding is wrong by some 1e-6 of the result from 20 on."""
    text = operation(op, ["tl.load(x + i, mask=i < n0)"], torch.float32)
    shown = disassembled(text, tmp_path)
    assert "MUFU.EX2" in shown and "1.925963033500011079e-08" in shown  # the rest of log2(e)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("job", ["elements", "softmax", "layer norm", "columns", "product"])
def test_memory_is_read_and_written_in_16_bytes(store, tmp_path, monkeypatch, job, dtype):
    """By each instruction of these kernels, where rows are whole multiples of that."""
    jobs = {
        "elements": (lambda x, y: (torch.relu(x * 2 + y),), (4096, 1024), (4096, 1024)),
        "softmax": (lambda x, y: (torch.softmax(x + y, -1),), (4096, 1024), (4096, 1024)),
        "layer norm": (lambda x, w: (F.layer_norm(x, (768,), w, w),), (4096, 768), (768,)),
        "columns": (lambda x, w: (x.sum(0) * w,), (4096, 768), (768,)),
        "product": (lambda x, w: (torch.relu(x @ w),), (512, 512), (512, 512)),
    }
    fn, *sizes = jobs[job]
    monkeypatch.setattr(devices, "device_model", lambda *_: devices.DEVICES["a100"])
    spec = planned(fn, *((size, dtype, "cuda") for size in sizes)).spec
    first = spec.triton[0]  # others add parts up, of which there are few
    (made,) = compile_kernels([first], "sm_90")
    loads = re.findall(r"\bLDG(?:STS)?\.E[A-Z0-9.]*", instructions(made, tmp_path))
    stores = re.findall(r"\bSTG\.E[A-Z0-9.]*", instructions(made, tmp_path))
    assert loads and all(text.endswith(".128") for text in loads), loads
    assert job == "columns" or all(text.endswith(".128") for text in stores), stores


def test_what_is_found_needs_no_triton(store):
    compile_kernels([kernel()], "sm_80")
    program = (
        "import sys; from tests.inductor.test_cubin import *; sys.modules.pop('triton')\n"
        "sys.modules['triton'] = None\n"
        "print(compile_kernels([kernel()], 'sm_80')[0].symbol)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "fused_kernel\n", done.stderr


@pytest.mark.parametrize("content", [b"", b"{}\nELF", b"[1]\n", b"no json"])
def test_an_entry_that_is_none_is_made_again(store, content):
    (made,) = compile_kernels([kernel()], "sm_80")
    (entry,) = (store.root / "kernels").glob("*/*.cubin")
    store.write("kernels", entry.stem, ".cubin", content)
    assert compile_kernels([kernel()], "sm_80") == [made]


def test_a_kernel_that_does_not_compile(store):
    with pytest.raises(KernelError, match="(?s)k0 does not compile for sm_80.*no_such") as caught:
        compile_kernels([kernel(value="no_such(x)"), kernel("k1")], "sm_80")
    assert caught.value.kernel.name == "k0"
    assert not list((store.root / "tmp").iterdir())


def test_a_worker_that_dies_fails_its_kernel_alone(store, monkeypatch):
    cubin._ours()  # of the worker that keys are made of
    monkeypatch.setattr(cubin, "MOST_WORKERS", 1)
    monkeypatch.setattr(cubin, "WORKER", worker_that_dies(store.root))
    with pytest.raises(KernelError, match="the compiler ended with 3"):
        compile_kernels([kernel(value="exit()"), kernel("k1")], "sm_80")
    monkeypatch.setattr(cubin, "_Workers", None)
    (made,) = compile_kernels([kernel("k1")], "sm_80")  # as kept
    assert isinstance(made, Cubin)


def worker_that_dies(folder):
    """A worker that ends the process where a kernel says exit()."""
    path = folder / "worker.py"
    text = Path(cubin.__file__).with_name("triton_worker.py").read_text()
    text = text.replace("    answers, sys.stdout", "    global compiled\n    answers, sys.stdout")
    text = text.replace(
        "def main() -> None:",
        "def main() -> None:\n    import os\n    global compiled\n    inner = compiled\n"
        '    compiled = lambda job: os._exit(3) if "exit()" in job["kernel"]["source"] '
        "else inner(job)",
    ).replace("    global compiled\n    answers", "    answers")
    path.write_text(
        text.replace(
            "HERE = Path(__file__).resolve().parent",
            f"HERE = Path({str(Path(cubin.__file__).parent)!r})",
        )
    )
    return path


@pytest.mark.parametrize("target", ["", "90", "sm_", "sm_9x", "gfx942", 90])
def test_targets_that_are_none(target):
    with pytest.raises((ValueError, TypeError)):
        compile_kernels([], target)
    if target:
        with pytest.raises((ValueError, TypeError)):
            Options.of({"target": target})


def test_no_triton(store, monkeypatch):
    def missing(name):
        raise cubin.importlib.metadata.PackageNotFoundError(name)

    cubin.triton_version.cache_clear()
    monkeypatch.setattr(cubin.importlib.metadata, "version", missing)
    try:
        with pytest.raises(cubin.NoTriton, match="pip install triton"):
            compile_kernels([kernel()], "sm_80")
    finally:
        cubin.triton_version.cache_clear()
