"""The fused steps of optimizers, taken apart, beside ATen's kernels: with scales, skipped, in half
precision.
"""

from __future__ import annotations

import pytest
import torch

import dynamo

COMMON = {"weight_decay": 0.1, "maximize": True}
MOMENTS = {"lr": 0.1, "beta1": 0.8, "beta2": 0.9, "eps": 1e-6, "amsgrad": True}
# name -> (lists of state, whether it has steps, settings)
STEPS = {
    "_fused_sgd_": (
        1,
        False,
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "nesterov": True, "is_first_step": False},
    ),
    "_fused_adagrad_": (1, True, {"lr": 0.1, "lr_decay": 0.1, "eps": 1e-6}),
    "_fused_adam_": (3, True, MOMENTS),
    "_fused_adamw_": (3, True, MOMENTS),
}


@pytest.fixture(autouse=True)
def one_thread():
    """ATen's kernel of SGD reads momentum in half precision as floats, twice as far as it goes,
    into what other threads write, and past its end.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def before_zeros(tensor):
    """Followed by memory whose content is known."""
    memory = torch.zeros(tensor.numel() + 64, dtype=tensor.dtype)
    return memory[: tensor.numel()].copy_(tensor)


def tensors(name, dtype):
    generator = torch.Generator().manual_seed(0)
    states, has_steps, _ = STEPS[name]
    lists = [
        [before_zeros(torch.rand(size, generator=generator).to(dtype) + 0.5) for size in (40, 3)]
        for _ in range(2 + states)
    ]
    return [*lists, [torch.tensor(3.0), torch.tensor(4.0)]] if has_steps else lists


@pytest.mark.parametrize("overflow", [None, 0.0, 1.0])
@pytest.mark.parametrize("tensor_rate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", STEPS)
def test_fused_step(name, dtype, tensor_rate, overflow):
    function, (_, _, settings) = getattr(torch, name), STEPS[name]
    settings = {**settings, **COMMON}
    if tensor_rate:
        settings["lr"] = torch.tensor(0.1)
    if overflow is not None:
        settings |= {"grad_scale": torch.tensor(8.0), "found_inf": torch.tensor(overflow)}
    expected, found, before = (tensors(name, dtype) for _ in range(3))
    function(*expected, **settings)
    compiled = dynamo.compile(
        lambda *lists: function(*lists, **settings), backend="aot_eager", fullgraph=True
    )
    compiled(*found)
    (report,) = [graph.report for graph in dynamo.explain(compiled)(*before).frames[0].graphs]
    # ATen's kernel of SGD has results of its own there (see one_thread), which stay.
    own = name == "_fused_sgd_" and dtype is torch.bfloat16
    assert bool(report.get("notes")) is own, report
    tolerance = 0 if own else 2e-2 if dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    if overflow:
        torch.testing.assert_close(found, tensors(name, dtype), rtol=0, atol=0)
