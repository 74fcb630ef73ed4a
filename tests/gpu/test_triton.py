"""The Triton cases of tests/inductor/triton_cases.py on a device."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from tests.inductor import (
    triton_attention,
    triton_attention_training,
    triton_products,
    triton_rows,
)
from tests.inductor.triton_cases import CASES, emit_case, run_case
from tests.inductor.triton_programs import PROGRAMS, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(autouse=True)
def exact_convolutions(monkeypatch):
    """As those of the CPU that results are compared with."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.parametrize("name", CASES)
def test_against_eager(name):
    run_case(name, "cuda")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_against_eager(name):
    run(name, "cuda")


@pytest.mark.parametrize(
    ("way", "name"),
    [(way, name) for way, names in triton_products.WAYS.items() for name in names],
)
def test_product_by_another_way(way, name):
    if way != "shares" and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("a device without descriptors")
    triton_products.run(name, "cuda", way)


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0),
    reason="a device without descriptors",
)
@pytest.mark.parametrize("way", ["described", "specialized"])
def test_operands_at_any_address(way):
    """Descriptors are of multiples of 16 bytes."""
    fn, examples, _ = triton_products.CASES["of_rows_and_columns"]
    inputs = [x.cuda() for x in examples]
    with torch.no_grad():
        _, plan = triton_products.planned(triton_products.compiled(fn, inputs), way=way)
        moved = [torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape) for x in inputs]
        for given in (inputs, moved, inputs):
            triton_products.close(plan(*given)[0], fn(*examples), torch.bfloat16)


@pytest.mark.parametrize("name", triton_products.CASES)
def test_product_against_eager(name):
    triton_products.run(name, "cuda")


@pytest.mark.parametrize("name", triton_attention.CASES)
def test_attention_against_eager(name):
    triton_attention.run(name, "cuda")


@pytest.mark.parametrize("name", triton_attention_training.CASES)
def test_attention_of_training_against_eager(name):
    triton_attention_training.run(name, "cuda")


@pytest.mark.parametrize("name", triton_rows.CASES)
def test_rows_against_eager(name):
    triton_rows.run(name, "cuda")


def test_inside_a_plan():
    from inductor.runtime.driver import load_kernels
    from inductor.runtime.link import link
    from inductor.runtime.plan import BufferSpec, OutputSpec, PlanSpec, TensorSpec

    _, (kernel,), _, _ = emit_case("several_blocks")
    kernel.device = "cuda:0"
    spec = PlanSpec(
        inputs=[TensorSpec("arg0", "float32", (3000,), (1,), device="cuda:0")],
        buffers=[BufferSpec("buf0", "float32", (3000,), (1,), device="cuda:0", kind="output")],
        steps=[kernel.step()],
        outputs=[OutputSpec("buffer", "buf0")],
        triton=[kernel.spec()],
    )
    plan = link(spec, callables=load_kernels(spec.triton))
    x = torch.randn(3001, device="cuda")
    assert torch.equal(plan(x[:3000])[0], x[:3000] + 1)
    assert torch.equal(plan(x[1:])[0], x[1:] + 1)  # an address that is not aligned
