"""Products of matrices of bfloat16 as they are: rows or columns side by side, every size, and what
follows."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess

import pytest
import torch
import torch.nn.functional as F

import dynamo
from inductor import matrices, products, widen, windows
from inductor.matrices import matrix_mm
from inductor.measure import Budget
from inductor.panels import in_panels
from inductor.runtime import toolchain
from tests.inductor.test_matrices import choosing, compiled, matrix, threads

__all__ = ["threads"]  # a fixture
CLOSE = {"rtol": 3e-2, "atol": 3e-2}


def half(rows: int, columns: int, turned: bool = False) -> torch.Tensor:
    return matrix(rows, columns, turned).bfloat16()


@pytest.fixture(params=["as it is", "without AMX"])
def instructions(request, monkeypatch):
    if request.param == "without AMX":
        monkeypatch.setenv("CXX", "g++ -DFG_NO_AMX")


# The last: of several blocks of the inner dimension, whose panels are too large for one.
SIZES = [(1, 1, 1), (2, 7, 17), (13, 513, 130), (49, 100, 200), (101, 1101, 300), (197, 64, 32),
         (33, 40, 700), (5, 9001, 40)]  # fmt: skip


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_sizes(instructions, turned):
    def fn(a, b, c, d, v, w, x, y):
        return matrix_mm(a, v), matrix_mm(b, w), matrix_mm(c, x), matrix_mm(d, y)

    for sizes in (SIZES[:4], SIZES[4:]):
        left = [half(rows, inner, turned[0]) for rows, inner, _ in sizes]
        right = [half(inner, columns, turned[1]) for _, inner, columns in sizes]
        c = compiled(fn, *left, *right)
        assert {step.kind for step in c.spec.steps} == {"kernel"}


@pytest.mark.parametrize("rows", [1, 200])
@pytest.mark.parametrize("inner", [70, 9001])
def test_what_follows(rows, inner, threads):
    """What reads element by element joins the kernel; a sum of rows has one of its own."""
    x, w = half(rows, inner) / 8, half(inner, 300, True)  # whose sums of rows round less
    bias, more = matrix(1, 300)[0], half(rows, 300)

    def activated(x, w, b, more):
        return (F.gelu(matrix_mm(x, w) + b) + more,)

    def narrowed(x, w, b, more):
        return ((matrix_mm(x, w) + b).bfloat16(),)

    def normed(x, w, b, more):
        return (F.layer_norm(matrix_mm(x, w) + more, [300], b),)

    def kept(x, w, b, more):
        y = matrix_mm(x, w)
        return y, y.relu() * more, y.sum(0)

    compiled(activated, x, w, bias, more, steps=1)
    for fn in (normed, kept):
        compiled(fn, x, w, bias, more)
    (got,), (expected,) = (f(x, w, bias, more) for f in (dynamo.compile(narrowed), narrowed))
    torch.testing.assert_close(got, expected, rtol=1e-2, atol=1e-3)


def test_special_values():
    x, w = half(20, 30), half(30, 40)
    x[3, 5], x[7, 7], w[5, 9], w[0, 0] = math.inf, math.nan, -math.inf, math.nan
    compiled(lambda x, w: (matrix_mm(x, w), matrix_mm(w.t(), x.t()).relu()), x, w)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(0, 5, 6), (4, 0, 6), (4, 5, 0), (0, 0, 0)])
def test_nothing_to_multiply(rows, inner, columns):
    compiled(lambda x, w: (matrix_mm(x, w) + 1,), half(rows, inner), half(inner, columns))


def test_parts_of_others():
    whole = half(61, 201)
    compiled(lambda x, w: (matrix_mm(x[::2, ::3], w),), whole, half(67, 20))
    compiled(lambda x, w: (matrix_mm(x[5:30, 100:], w[3:104, 4:50]),), whole, half(110, 80))
    compiled(lambda x, w: (matrix_mm(x[:, 20:53].t(), w),), whole, half(61, 44))
    compiled(lambda x: (matrix_mm(x, x.t()), matrix_mm(x.t(), x)), whole)
    whole[:, 120:] = math.nan  # beside the elements that are read
    compiled(lambda x, w: (matrix_mm(x[:, 7:120], w[:113]),), whole, half(200, 44))
    compiled(lambda x, w: (matrix_mm(w[:61].t(), x[:, 3:119]),), whole, half(200, 44))


@pytest.fixture
def with_pairs(monkeypatch):
    monkeypatch.setattr(widen, "_way", lambda kind, budget: None)
    for module in (matrices, products, widen):
        monkeypatch.setattr(module, "has_pairs", lambda: True)


@pytest.mark.parametrize("name", ["direct", "aten"])
def test_a_step_of_training_by_each_candidate(name, monkeypatch, with_pairs):
    choosing(monkeypatch, name)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 192, bias=False),
        torch.nn.LayerNorm(192), torch.nn.Linear(192, 128),
    ).bfloat16()  # fmt: skip
    x = half(65, 128).requires_grad_()
    watched = [x, *net.parameters()]
    expected = torch.autograd.grad(net(x).square().mean(), watched)
    for got in (torch.autograd.grad(dynamo.compile(net)(x).square().mean(), watched),) * 2:
        torch.testing.assert_close(got, expected, **CLOSE)
        assert [g.dtype for g in got] == [torch.bfloat16] * len(got)


def test_the_chosen_one_is_noted(monkeypatch, with_pairs):
    choosing(monkeypatch, "direct")
    args = half(64, 256), half(256, 256), half(256, 192)
    notes = dynamo.explain(lambda x, w, v: (x @ w) @ v)(*args).notes
    assert sum("of bfloat16 by direct" in note for note in notes) == 2


def test_samples():
    for turned in (False, True):
        x, w = half(60, 100, turned), half(100, 90, turned)
        made = matrices.sample(x, w, Budget(1.0))()
        assert made.dtype == torch.bfloat16
        torch.testing.assert_close(made, x @ w, **CLOSE)


def test_the_operator_itself():
    x, w = half(5, 6, True), half(6, 7)
    torch.library.opcheck(matrix_mm, (x, w), test_utils=("test_schema", "test_faketensor"))
    torch.testing.assert_close(matrix_mm(x, w), x.float() @ w.float())


@pytest.mark.parametrize("flags", ["-mavx2 -mfma", ""])
def test_other_instruction_sets(flags, tmp_path):
    """Products of matrices and of windows, which share their tiles."""
    if flags and os.uname().machine != "x86_64":
        pytest.skip("x86 only")
    compiler, runs = toolchain.find_compiler(), []
    for text, source in (
        (matrices._SOURCE_OF_PAIRS, "matrices_pairs.cpp"),
        (windows._SOURCE, "windows.cpp"),
    ):
        library, unit = tmp_path / f"{source}.so", tmp_path / source
        unit.write_text(text)
        command = [*compiler.command, *toolchain.FLAGS, *flags.split(), "-I", toolchain.INCLUDE]
        command += [unit, toolchain.INCLUDE / source, "-o", library]
        subprocess.run([str(part) for part in command], check=True)
        runs.append(ctypes.CDLL(str(library)).sample)

    def ran(run, units, *given):
        pointers = (ctypes.c_void_p * len(given))(*(t.data_ptr() for t in given))
        run(pointers, ctypes.c_int64(0), ctypes.c_int64(units))

    for rows, inner, columns in SIZES[1:6]:
        for one, other in ((False, True), (True, False)):
            x, w = half(rows, inner, one), half(inner, columns, other)
            out = torch.empty(rows, columns, dtype=torch.bfloat16)
            numbers = [rows, columns, inner, *x.stride(), *w.stride(), rows, 64]
            ran(runs[0], -(-columns // 64), x, w, out, torch.tensor(numbers))
            torch.testing.assert_close(out, x @ w, **CLOSE)
    for channels, window, step in ((32, 3, 1), (5, 7, 2), (64, 1, 2)):
        x, w = half(2 * 9 * 40, channels).view(2, 9, 40, channels), half(16 * channels, window**2)
        w = w.view(16, channels, window, window)
        around = window // 2
        expected = F.conv2d(x.permute(0, 3, 1, 2), w, None, step, around).permute(0, 2, 3, 1)
        _, down, across, _ = expected.shape
        made = w
        for target, args, kwargs in windows.panel_steps(w.shape):
            made = target(made, *args, **kwargs)
        out = torch.empty(expected.shape, dtype=torch.bfloat16)
        numbers = [2, 9, 40, channels, 16, down, across, window, window, step, step]
        numbers += [around, around, 1, 4, 16]
        panels = in_panels(made, pairs=True)
        ran(runs[1], -(-2 * down // 4), x, panels, out, torch.tensor(numbers))
        torch.testing.assert_close(out, expected.contiguous(), rtol=3e-2, atol=0.1)
