"""Products of matrices as they are: rows or columns side by side, every size, and what follows."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
import subprocess

import pytest
import torch
import torch.nn.functional as F

import dynamo
from dynamo.api.compile import compile_fresh
from inductor import matrices, measure, pipeline
from inductor.matrices import matrix_mm
from inductor.measure import Budget, Choice
from inductor.runtime import toolchain
from tests.inductor.compiling import run_twice

CLOSE = {"rtol": 1e-4, "atol": 1e-3}


def matrix(rows: int, columns: int, turned: bool = False) -> torch.Tensor:
    size = (columns, rows) if turned else (rows, columns)
    made = torch.randn(*size, generator=torch.Generator().manual_seed(rows + 7 * columns))
    return made.t() if turned else made


compiled = functools.partial(run_twice, close=CLOSE)


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


SIZES = [(1, 1, 1), (2, 7, 17), (13, 513, 130), (48, 64, 64), (49, 100, 200), (101, 1100, 300),
         (300, 40, 33), (7, 16, 700)]  # fmt: skip


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_sizes(turned, threads):
    def fn(a, b, c, d, v, w, x, y):
        return matrix_mm(a, v), matrix_mm(b, w), matrix_mm(c, x), matrix_mm(d, y)

    for sizes in (SIZES[:4], SIZES[4:]):
        left = [matrix(rows, inner, turned[0]) for rows, inner, _ in sizes]
        right = [matrix(inner, columns, turned[1]) for _, inner, columns in sizes]
        c = compiled(fn, *left, *right)
        assert {step.kind for step in c.spec.steps} == {"kernel"}


def test_sums_of_products_keep_few_of_them():
    """As gradients of a weight that is used several times."""

    def fn(a, b, c, d, e, f, g):
        total = matrix_mm(a.t(), a)
        for x in (b, c, d, e, f, g):
            total = total + matrix_mm(x.t(), x)
        return (total,)

    c = compiled(fn, *(matrix(8 + k, 192) for k in range(7)))
    assert c.compiled.peak_bytes <= 5 * 192 * 192 * 4


@pytest.mark.parametrize("rows", [1, 50, 200])
def test_what_follows(rows, threads):
    """What reads element by element joins the kernel; a sum of rows has one of its own."""
    x, w, bias, more = matrix(rows, 70), matrix(70, 300, True), matrix(1, 300)[0], matrix(rows, 300)

    def activated(x, w, b, more):
        return (F.gelu(matrix_mm(x, w) + b) + more,)

    def normed(x, w, b, more):
        return (F.layer_norm(matrix_mm(x, w) + more, [300], b),)

    def kept(x, w, b, more):
        y = matrix_mm(x, w)
        return y, y.relu() * more, y.sum(0)

    def turned(x, w, b, more):
        return (matrix_mm(x, w).t().contiguous() + 1,)

    compiled(activated, x, w, bias, more, steps=1)
    for fn in (normed, kept, turned):
        compiled(fn, x, w, bias, more)


def test_special_values():
    x, w = matrix(20, 30), matrix(30, 40)
    x[3, 5], x[7, 7], w[5, 9], w[0, 0] = math.inf, math.nan, -math.inf, math.nan
    compiled(lambda x, w: (matrix_mm(x, w), matrix_mm(w.t(), x.t()).relu()), x, w)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(0, 5, 6), (4, 0, 6), (4, 5, 0), (0, 0, 0)])
def test_nothing_to_multiply(rows, inner, columns):
    compiled(lambda x, w: (matrix_mm(x, w) + 1,), matrix(rows, inner), matrix(inner, columns))


def test_matrices_that_are_neither_way_and_parts_of_others():
    whole = matrix(60, 200)
    compiled(lambda x, w: (matrix_mm(x[::2, ::3], w),), whole, matrix(67, 20))
    compiled(lambda x, w: (matrix_mm(x[5:30, 100:], w[3:103, 4:50]),), whole, matrix(110, 80))
    compiled(lambda x, w: (matrix_mm(x[:, 20:53].t(), w),), whole, matrix(60, 44))
    compiled(lambda x: (matrix_mm(x, x.t()), matrix_mm(x.t(), x)), whole)
    compiled(lambda x, w: (matrix_mm(x.exp().t(), w * 2),), whole, matrix(60, 44))
    compiled(lambda x, w: (matrix_mm(x.expand(60, 200), w),), whole[:1], matrix(200, 44))


def test_rows_that_vary():
    def fn(x, w):
        return torch.relu(torch.ops.framegraph.matrix_mm(x, w) + 1)

    run = dynamo.compile(fn, dynamic=True)
    w = matrix(70, 130)
    for rows in (3, 50, 1, 0, 200):
        torch.testing.assert_close(run(matrix(rows, 70), w), fn(matrix(rows, 70), w), **CLOSE)


def test_a_sum_of_a_varying_number_of_products_may_be_one_of_none():
    def fn(x, keep):
        y = x[keep]
        return torch.relu(matrix_mm(y.t(), y) + 1), matrix_mm(y.t(), y)

    x = matrix(20, 70)
    with dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run = dynamo.compile(fn, fullgraph=True)
        for rows in (20, 0, 3, 0):
            keep = torch.arange(20) < rows
            torch.testing.assert_close(run(x, keep), fn(x, keep), **CLOSE)


def test_the_operator_itself():
    x, w = matrix(5, 6, True), matrix(6, 7)
    torch.library.opcheck(matrix_mm, (x, w), test_utils=("test_schema", "test_faketensor"))
    assert torch.equal(matrix_mm(x, w), x @ w)


@pytest.mark.parametrize("flags", ["-mavx2 -mfma", ""])
def test_other_instruction_sets(flags, tmp_path):
    if flags and os.uname().machine != "x86_64":
        pytest.skip("x86 only")
    compiler, library = toolchain.find_compiler(), tmp_path / "unit.so"
    sources = [toolchain.INCLUDE / name for name in ("matrices.cpp", "product.cpp")]
    (tmp_path / "unit.cpp").write_text(matrices._SOURCE)
    command = [*compiler.command, *toolchain.FLAGS, *flags.split(), "-I", toolchain.INCLUDE]
    command += [tmp_path / "unit.cpp", *sources, "-o", library]
    subprocess.run([str(part) for part in command], check=True)
    run = ctypes.CDLL(str(library)).sample
    for rows, inner, columns in SIZES:
        for one in (False, True):
            for other in (False, True):
                x, w = matrix(rows, inner, one), matrix(inner, columns, other)
                out = torch.empty(rows, columns)
                numbers = [rows, columns, inner, *x.stride(), *w.stride(), rows, 64]
                given = (x, w, out, torch.tensor(numbers))
                pointers = (ctypes.c_void_p * 4)(*(t.data_ptr() for t in given))
                run(pointers, ctypes.c_int64(0), ctypes.c_int64(-(-columns // 64)))
                torch.testing.assert_close(out, x @ w, **CLOSE)


def choosing(monkeypatch, name):
    """Have the candidate chosen wherever there is a choice."""

    def chosen(key, candidates, budget, *, ahead):
        found = name if name in candidates else next(iter(candidates))
        return Choice(found, {**dict.fromkeys(candidates, 2.0), found: 1.0})

    monkeypatch.setattr("inductor.products.fastest", chosen)


@pytest.mark.parametrize("name", ["direct", "plain", "aten"])
def test_a_step_of_training_by_each_candidate(name, monkeypatch, threads):
    choosing(monkeypatch, name)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 192, bias=False),
        torch.nn.LayerNorm(192), torch.nn.Linear(192, 128),
    )  # fmt: skip
    x = matrix(64, 128).requires_grad_()
    watched = [x, *net.parameters()]
    expected = torch.autograd.grad(net(x).square().sum(), watched)
    step = dynamo.compile(net)
    for _ in range(2):
        got = torch.autograd.grad(step(x).square().sum(), watched)
        torch.testing.assert_close(got, expected, **CLOSE)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1.5)
    expected = torch.autograd.grad(net(x).square().sum(), watched)
    got = torch.autograd.grad(step(x).square().sum(), watched)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-2)


def used_twice(x, z, w):
    return torch.tanh(x @ w).sum() + (z @ w).exp().sum()


def residual(x, z, w):
    return (x + F.gelu(x @ w)).square().sum() + z.sum()


@pytest.mark.parametrize("fn", [used_twice, residual])
def test_gradients_are_added_in_a_products_epilogue(fn, monkeypatch):
    """dw = x^T g + z^T h, and dx = g w^T + dy."""
    choosing(monkeypatch, "direct")
    given = [matrix(128, 128).requires_grad_() for _ in range(3)]
    compiled, context = compile_fresh(fn, dynamic=False)
    expected, got = (torch.autograd.grad(f(*given), given) for f in (fn, compiled))
    torch.testing.assert_close(got, expected, **CLOSE)
    computed = [row[1] for r in context.records for g in r.graphs for row in g.report["computed"]]
    assert any(re.match("product 128x128x128 .*add", text) for text in computed), computed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_weights_where_the_batch_varies(dtype, monkeypatch):
    """Their sums are of as many products as there are rows; one choice serves all numbers."""
    keys = []

    def direct(key, candidates, budget, *, ahead):
        keys.append(key)
        return Choice("direct" if "direct" in candidates else "aten", {})

    monkeypatch.setattr("inductor.products.fastest", direct)
    torch.manual_seed(0)
    net = torch.nn.Linear(96, 192).to(dtype)
    step = dynamo.compile(net, dynamic=True)
    close = CLOSE if dtype is torch.float32 else {"rtol": 0.05, "atol": 0.1}
    for rows in (64, 1, 0, 33, 700):
        x = matrix(rows, 96).to(dtype)
        expected = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
        got = torch.autograd.grad(step(x).square().sum(), list(net.parameters()))
        torch.testing.assert_close(got, expected, **close)
    if dtype is torch.float32:  # the other is widened on some processors
        (of_weight,) = [key for key in keys if "192x64 by columns" in key]
        assert ", varies" in of_weight


def test_what_is_chosen_is_noted_and_what_is_not_measured_follows(monkeypatch):
    measured = []

    def once(key, candidates, budget, *, ahead):
        if measured:
            return None
        measured.append(key)
        return Choice("direct", {name: 2.0 for name in candidates} | {"direct": 1.0})

    monkeypatch.setattr("inductor.products.fastest", once)

    def fn(x, w, v):
        return (x @ w) @ v

    args = matrix(64, 256), matrix(256, 256), matrix(256, 192)
    notes = [n for n in dynamo.explain(fn)(*args).notes if "direct" in n]
    assert len(notes) == 2 and len(measured) == 1


def test_samples():
    for turned in (False, True):
        x, w = matrix(60, 100, turned), matrix(100, 90, turned)
        call = matrices.sample(x, w, Budget(1.0))
        torch.testing.assert_close(call(), x @ w, **CLOSE)
    assert measure.fastest("test of matrices", {"one": lambda: call}, Budget(0.1), ahead=0.9)


def test_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(pipeline, "_warned", set())  # once in a process: a test before may have
    with pytest.warns(UserWarning, match="compiler"):
        run = dynamo.compile(lambda x, w: torch.relu(x @ w))
        x, w = matrix(64, 256), matrix(256, 256)
        torch.testing.assert_close(run(x, w), torch.relu(x @ w), **CLOSE)
