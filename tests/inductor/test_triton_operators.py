"""torch's table of operators and small models in Triton's interpreter, against eager
(triton_operators.py, triton_models.py, triton_zoo.py)."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.inductor import triton_zoo
from tests.inductor.interpreting import interpreted
from tests.inductor.triton_models import MODELS

pytestmark = pytest.mark.slow
PARTS = 8
# What the interpreter does otherwise than a device.
INTERPRETER = {
    "bfloat16": "it cuts off where a device rounds to bfloat16",
    "max.reduction_no_dim": "a comparison of two scalars is a float to it, which `&` refuses",
    "min.reduction_no_dim": "as max",
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    """Inference and training, in float32 and half precision."""
    lines = interpreted("triton_models", name)
    wrong = [f"{x['case']}: {x['error']}" for x in lines if x["error"]]
    assert not wrong, "\n".join(wrong)
    assert len(lines) == 2 * len(MODELS[name][1]) and all(line["kernels"] for line in lines)


@pytest.mark.parametrize("name", triton_zoo.MODELS)
def test_models_of_libraries(name):
    lines = interpreted("triton_zoo", name)
    wrong = [f"{x['case']}: {x['error']}" for x in lines if x["error"]]
    assert not wrong, "\n".join(wrong)
    assert len(lines) == 2 * len(triton_zoo.MODELS[name][1])
    assert all(line["kernels"] for line in lines)


@pytest.mark.parametrize("part", range(PARTS))
def test_operators(part):
    lines = interpreted("triton_operators", str(part), str(PARTS))
    wrong = [f"{x['case']}: {x['error']}" for x in lines if x["error"]]
    assert {line.partition(":")[0] for line in wrong} <= INTERPRETER.keys(), "\n".join(wrong)
    assert sum(line.get("compared", False) for line in lines) > 60
    assert sum(line.get("kernels", 0) for line in lines) > 100
