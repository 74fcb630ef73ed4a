"""Triton kernels without a GPU: interpreted against eager, compiled to cubin, and as text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from fxgraph import symbolic_trace
from inductor import devices
from inductor.codegen import triton_attention as codegen_attention
from inductor.codegen.triton import NoTriton, emit
from inductor.codegen.triton_products import Tiles
from inductor.index import Var
from inductor.ops import ops
from inductor.pipeline import new_compilation, run_stages
from inductor.plan_steps import build_plan
from inductor.runtime.cubin import compile_kernels
from tests.inductor import (
    interpreting,
    triton_attention,
    triton_attention_training,
    triton_cases,
    triton_products,
    triton_rows,
)
from tests.inductor.compiling import moved, traced_on
from tests.inductor.test_device_lowering import planned
from tests.inductor.test_pipeline import fake_tensor_mode
from tests.inductor.triton_cases import CASES, Builder, emit_case
from tests.inductor.triton_programs import PROGRAMS, SYMBOLIC

GOLDENS = Path(__file__).parents[1] / "goldens" / "triton"
ON_FILE = (
    "broadcast_add",
    "strided",
    "padded",
    "gathered",
    "scattered",
    "softmax_4x1000_float32",
    "layer_norm_2x9000_float16",
    "extremes_with_nan_4100",
)
# One of each shape and type for each target; the interpreter covers the rest.
COMPILED = (
    *ON_FILE,
    "unary_on_special_values",
    "binary_on_special_values",
    "integers_int8",
    "any_all_9",
)


@pytest.fixture(scope="module")
def interpreted():
    return run_interpreted("triton_cases")


@pytest.fixture(scope="module")
def interpreted_programs():
    return run_interpreted("triton_programs")


def run_interpreted(module):
    """Errors by case, from one process that runs all of a module's in Triton's interpreter."""
    return {line["case"]: line["error"] for line in interpreting.interpreted(module)}


@pytest.fixture(scope="module")
def interpreted_products():
    return run_interpreted("triton_products")


@pytest.mark.parametrize(
    "name",
    [
        *triton_products.CASES,
        *(f"{n}_varying" for n in triton_products.VARYING),
        "sum_in_parts",
        *(f"{n}_{way}" for way, names in triton_products.WAYS.items() for n in names),
    ],
)
def test_product_interpreted(interpreted_products, name):
    assert interpreted_products[name] is None, interpreted_products[name]


@pytest.fixture(scope="module")
def interpreted_attention():
    return run_interpreted("triton_attention")


@pytest.mark.parametrize("name", triton_attention.CASES)
def test_attention_interpreted(interpreted_attention, name):
    assert interpreted_attention[name] is None, interpreted_attention[name]


@pytest.fixture(scope="module")
def interpreted_attention_of_training():
    return run_interpreted("triton_attention_training")


@pytest.mark.parametrize("name", triton_attention_training.CASES)
def test_attention_of_training_interpreted(interpreted_attention_of_training, name):
    error = interpreted_attention_of_training[name]
    assert error is None, error


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_attention_of_training_compiles_to_machine_code(target, monkeypatch):
    monkeypatch.setattr(devices, "is_gpu", lambda device: True)
    q, k, v = (
        torch.zeros(2, 4, 1100, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
    )
    fn = triton_attention_training.CASES["capped"][0]
    traced, _, plan = triton_attention_training.plans(fn, [q, k, v])
    kernels = []
    for spec in (plan(part) for part in (traced.forward, traced.backward)):
        launches = [step for step in spec.steps if step.kind == "launch"]
        of = {step.kernel for step in launches if "attention of" in step.label}
        kernels += [kernel for kernel in spec.triton if kernel.name in of]
    assert len(kernels) == 4  # no mask in memory
    for made, kernel in zip(compile_kernels(kernels, target), kernels, strict=True):
        assert made.spills == 0 and made.shared <= 99 << 10, (made.spills, kernel.constants)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_attention_compiles_to_machine_code(target, monkeypatch):
    monkeypatch.setattr(devices, "is_gpu", lambda device: True)
    precision = "tf32" if target == "sm_90" else "ieee"
    monkeypatch.setattr(codegen_attention, "precision", lambda dtype: precision)
    kernels = []
    for size in (64, 128):
        for dtype in (torch.bfloat16, torch.float32):
            q = torch.zeros(2, 4, 1100, size, dtype=dtype)
            fn = triton_attention.CASES["causal_window"][0]
            kernels += triton_attention.planned(fn, [q, q + 1, q + 2])[0].triton
    assert len(kernels) == 4  # no mask in memory
    for made, kernel in zip(compile_kernels(kernels, target), kernels, strict=True):
        assert made.spills == 0 and made.shared <= 99 << 10, (made.spills, kernel.constants)


@pytest.fixture(scope="module")
def interpreted_rows():
    return run_interpreted("triton_rows")


@pytest.mark.parametrize("name", triton_rows.CASES)
def test_rows_interpreted(interpreted_rows, name):
    assert interpreted_rows[name] is None, interpreted_rows[name]


@pytest.mark.parametrize("name", CASES)
def test_interpreted(interpreted, name):
    assert interpreted[name] is None, interpreted[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_interpreted(interpreted_programs, name):
    assert interpreted_programs[name] is None, interpreted_programs[name]


@pytest.mark.parametrize("name", SYMBOLIC)
def test_program_with_symbols_interpreted(interpreted_programs, name):
    assert interpreted_programs[f"{name}_symbolic"] is None, interpreted_programs[
        f"{name}_symbolic"
    ]


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_compiled_to_machine_code(target):
    """All kernels at once, as a graph's are; none spills."""
    kernels = [kernel.spec() for name in COMPILED for kernel in emit_case(name)[1]]
    for kernel, made in zip(kernels, compile_kernels(kernels, target), strict=True):
        assert made.image[:4] == b"\x7fELF" and made.symbol.startswith("fused_")
        # Triton before 3.9 reduces large arguments of sine and cosine in an array of 28 bytes.
        reduces = "tl.sin(" in kernel.source or "tl.cos(" in kernel.source
        assert 0 < made.registers <= 255, kernel.source
        assert made.spills == 0 or (reduces and made.spills <= 32), kernel.source


@pytest.mark.parametrize("name", ["of_int8", "of_float8"])
def test_narrow_products_compile_to_machine_code(name, monkeypatch):
    monkeypatch.setattr(devices, "is_gpu", lambda device: True)
    fn, inputs, _ = triton_products.CASES[name]
    c = triton_products.compiled(fn, list(inputs))
    _, spec = build_plan(c.program, c.items, triton_products.Template(c.program))
    (made,) = compile_kernels(spec.triton, "sm_90")
    assert made.spills == 0 and made.symbol.startswith("fused_product")


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("way", ["shares", "described", "specialized"])
def test_narrow_products_compile_by_other_ways(way, target, monkeypatch):
    """Triton multiplies no fewer than 32 columns of 8 bits."""
    monkeypatch.setattr(devices, "is_gpu", lambda device: True)
    kernels = []
    tiles = Tiles(64, 64, 64, 4, 3) if way == "specialized" else None
    for name in ("of_int8", "of_float8", "of_float8_by_rows"):
        fn, inputs, _ = triton_products.CASES[name]
        if name == "of_int8":
            inputs = [
                triton_products.int8(32, 48),
                triton_products.int8(16, 48).t(),
                inputs[2][:32],
            ]
        elif target == "sm_80":  # which has no float8
            continue
        c = triton_products.compiled(fn, list(inputs))
        triton = triton_products.OtherWay(c.program, way, tiles)
        kernels += build_plan(c.program, c.items, triton)[1].triton
        assert any("dot(" in kernel.source for kernel in kernels)
    if way == "shares" or target != "sm_80":  # which has no descriptors
        assert not any(made.spills for made in compile_kernels(kernels, target))


def test_constants_and_strides_on_a_device():
    """Of cases that tests/gpu runs: what is moved has the strides that kernels were made for."""
    x = torch.randn(2, 3)[:, :2]
    assert moved(x, "meta").stride() == (3, 1) and torch.equal(moved(x, "cpu"), x)
    for fn, *_ in (*PROGRAMS.values(), *triton_products.CASES.values()):
        gm = traced_on("meta", fn)
        held = [getattr(gm, node.target) for node in gm.graph.nodes if node.op == "get_attr"]
        assert all(value.device.type == "meta" for value in held)


@pytest.mark.parametrize(
    ("way", "target"),
    [
        ("shares", "sm_80"),
        ("described", "sm_90"),
        ("specialized", "sm_90"),
        pytest.param("specialized", "sm_100", marks=pytest.mark.slow),
    ],
)
def test_other_ways_of_products_compile_to_machine_code(way, target, monkeypatch):
    monkeypatch.setattr(devices, "is_gpu", lambda device: True)
    x, w, b = (torch.zeros(size).bfloat16() for size in ((1000, 512), (768, 512), (768,)))
    c = triton_products.compiled(lambda x, w, b: F.gelu(F.linear(x, w, b)), [x, w, b])
    tiles = Tiles(128, 64, 64, 4, 3, way)
    triton = triton_products.OtherWay(c.program, way, tiles)
    _, spec = build_plan(c.program, c.items, triton)
    made = compile_kernels(spec.triton, target)
    # Copies have warps of their own.
    assert [one.warps > 4 for one in made] == [way == "specialized"] * len(made)
    assert not any(one.spills for one in made)
    if way == "shares":
        assert [step.names() for step in spec.steps] and len(made) == 2
        return
    (step,) = spec.steps
    assert step.scratch and made[0].hidden == 1
    if way == "specialized":
        (careful,) = compile_kernels(spec.triton, target, aligned=False)
        assert careful.hidden == 1 and careful.warps == 4


@pytest.mark.parametrize("name", ON_FILE)
def test_text(name, request):
    _, kernels, _, _ = emit_case(name)
    text = "\n\n".join(kernel.source for kernel in kernels)
    file = GOLDENS / f"{name}.py.expected"
    if request.config.getoption("--accept", default=False):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert file.read_text() == text, f"{file.name} differs; `make accept` takes the new text"


def symbolic_softmax():
    from inductor.codegen.triton import TritonModule
    from inductor.plan_steps import build_plan
    from tests.inductor.symbolic import Symbolic

    c = Symbolic(lambda x: (torch.softmax(x * 2, -1),), [torch.randn(5, 37)]).compile("schedule")
    triton = TritonModule(c.program, everywhere=True)
    build_plan(c.program, c.items, triton)
    return triton.kernels


def test_text_with_symbols(golden):
    golden("triton/symbolic_softmax.py.expected", symbolic_softmax()["k0"].source)


def test_kernel_with_symbols_compiles_to_machine_code():
    (made,) = compile_kernels([symbolic_softmax()["k0"].spec()], "sm_90")
    assert made.image[:4] == b"\x7fELF"


def test_a_bundle_is_one_launch():
    from inductor.codegen.triton import TritonModule
    from inductor.plan_steps import build_plan
    from tests.inductor.triton_programs import PROGRAMS as programs

    fn, examples, _ = programs["cat_of_parts"]
    c = run_stages(new_compilation(symbolic_trace(fn), examples), until="schedule")
    triton = TritonModule(c.program, everywhere=True)
    _, spec = build_plan(c.program, c.items, triton)
    (step,) = spec.steps
    assert step.kernel == "k0" and step.args == ["arg0", "buf0", "arg1", "arg2"]
    (made,) = compile_kernels(spec.triton, "sm_80")
    assert made.image[:4] == b"\x7fELF"


def test_local_buffers_are_not_stored():
    b = Builder()
    triton_cases.softmax(b, b.input(torch.randn(4, 8)))
    (kernel,) = b.kernels()
    inner = {name for name in kernel.writes() if name != b.outputs[0].name}
    made = emit(kernel, b.ctx.program.buffers, "k", local=inner)
    assert made.args == ["arg0", b.outputs[0].name] == [*made.args[:1], *made.writes]


def test_large_tensors_are_indexed_by_int64():
    b = Builder()
    x = torch.empty(1, device="meta").expand(1 << 16, 1 << 16)
    b.output(b.map(lambda v: ops.neg(v), b.input(x)))
    (kernel,) = b.kernels()
    made = emit(kernel, b.ctx.program.buffers, "k")
    assert "tl.program_id(0).to(tl.int64)" in made.source and made.programs == 1 << 22


@pytest.mark.parametrize("way", ["shares", "specialized"])
def test_large_products_are_indexed_by_int64(way):
    size, most = (1 << 17) + 40, Tiles(128, 64, 64, 4, 3)
    with fake_tensor_mode():
        x = torch.empty(size, 512, dtype=torch.bfloat16, device="cuda")
        w = torch.empty(512, 20000, dtype=torch.bfloat16, device="cuda")
    with torch.no_grad():
        c = new_compilation(symbolic_trace(lambda x, w: x @ w), [x, w])
        run_stages(c, until="schedule")
        triton = triton_products.OtherWay(c.program, way, most)
        triton.sizes = (132,)
        _, spec = build_plan(c.program, c.items, triton)
    made = compile_kernels(spec.triton, "sm_90")
    assert all("int64" in kernel.source for kernel in spec.triton)
    assert not any(one.spills for one in made)


def test_large_rows_and_tables_are_indexed_by_int64():
    def fn(x, i):
        return x.sum(1), F.embedding(i, x) * 2

    c = planned(fn, ((1 << 17, 1 << 15), torch.float32, "cuda"), ((5,), torch.int64, "cuda"))
    made = compile_kernels(c.spec.triton, "sm_90")
    assert all("int64" in kernel.source for kernel in c.spec.triton)
    assert len(made) == 3 and not any(one.spills for one in made)


@pytest.mark.slow
def test_the_table_of_what_kernels_need():
    from argparse import Namespace

    from benchmarks import device_kernels

    given = Namespace(dtype="float32", training=False, part="0/400")
    for name in ("chain", "operators"):
        line, faults = device_kernels.row(name, "sm_80", given)
        found = dict(zip(device_kernels.HEADS, line, strict=True))
        assert found["subject"] == name and found["kernels"] > 0 and 0 < found["most"] <= 255
        assert found["spilling"] == found["bytes"] == 0 and not faults


def test_what_has_no_triton_form():
    b = Builder()
    b.output(b.map(ops.digamma, b.input(torch.randn(3))))
    (kernel,) = b.kernels()
    with pytest.raises(NoTriton, match="digamma"):
        emit(kernel, b.ctx.program.buffers, "k")


def test_a_plan_launches_by_a_function():
    """As Triton's interpreter does; eager stands in for the device."""
    from inductor.runtime.link import link
    from inductor.runtime.plan import OutputSpec, PlanSpec
    from tests.inductor.plan_kernels import buffer, tensor_input

    _, (kernel,), _, _ = emit_case("several_blocks")
    spec = PlanSpec(
        inputs=[tensor_input("arg0", 3000)],
        buffers=[buffer("buf0", 3000, kind="output")],
        steps=[kernel.step()],
        outputs=[OutputSpec("buffer", "buf0")],
        triton=[kernel.spec()],
    )

    def launch(x, out, programs):
        assert programs == kernel.programs > 1
        torch.add(x, 1, out=out)

    x = torch.randn(3000)
    assert torch.equal(link(spec, callables={kernel.name: launch})(x)[0], x + 1)


def test_a_quotient_of_rows_and_columns_is_one_of_rows():
    """So that a tile's addresses are neighbours, and are read at once."""
    from inductor.index import Index

    x, r = Var("x", 1568), Var("r", 64)
    place = Index({x: 64, r: 1}, 3 * 64)
    assert place // 896 == (Index({x: 1}, 3)) // 14
    assert place % 896 == (Index({x: 1}, 3) % 14) * 64 + Index({r: 1})
    assert (place // 896) * 896 + place % 896 == place
    for i, j in ((0, 63), (10, 0), (10, 63), (11, 0), (1567, 5)):
        at = {x: Index({}, i), r: Index({}, j)}
        number = 64 * i + j + 192
        assert ((place // 896).substitute(at.get), (place % 896).substitute(at.get)) == (
            Index({}, number // 896), Index({}, number % 896)
        )  # fmt: skip
    apart = Index({x: 64, r: 2})  # r's end reaches into the next row
    assert (apart // 896).substitute({x: Index({}, 13), r: Index({}, 40)}.get) == Index({}, 1)


def test_neighbouring_variables_merge():
    from inductor.codegen.triton_loops import merge
    from inductor.index import Index

    i, j, k = Var("i", 2), Var("j", 3), Var("k", 4)
    whole = Index({i: 12, j: 4, k: 1})
    assert merge([i, j, k], [whole]) == [[i, j, k]]
    assert merge([i, j, k], [whole, Index({i: 3, j: 1})]) == [[i, j], [k]]
    assert merge([i, j, k], [whole, Index({k: 1})]) == [[i, j], [k]]
    assert merge([i, j], [(Index({i: 3, j: 1}) * 2 + 1) // 4]) == [[i], [j]]
