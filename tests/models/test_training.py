"""Steps of real models, forward and backward compiled: losses, gradients, buffers as eager's."""

from __future__ import annotations

import copy

import pytest
import torch

import dynamo
from tests.models.zoo import ZOO

MODELS = [*ZOO, "mlp", "lstm"]
# In float64 a difference beyond rounding is a mistake; batch norm over few elements makes more of
# it with every step, so the deep convolutional models take one. The norms of these language models
# work in float32 inside.
SINGLE_STEP = {"mobilenet_v2", "densenet121"}
TOLERANCE = {"llama": 1e-4, "t5_encoder": 1e-4}
pytestmark = pytest.mark.slow


def make(name):
    torch.manual_seed(0)
    if name == "mlp":
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 4)
        )
        return model, {"input": torch.randn(5, 8)}
    if name == "lstm":
        return torch.nn.LSTM(6, 8, num_layers=2, batch_first=True), {"input": torch.randn(3, 5, 6)}
    return ZOO[name]()


def double(inputs):
    return {
        key: value.double()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for key, value in inputs.items()
    }


def result_of(output):
    if hasattr(output, "last_hidden_state"):
        return output.last_hidden_state
    return output[0] if isinstance(output, tuple) else output


def train(model, call, inputs, steps):
    """Loss, gradients and buffers of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(1)
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = result_of(call(**inputs)).square().mean()
        loss.backward()
        gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        seen.append((loss.detach(), gradients, {n: b.clone() for n, b in model.named_buffers()}))
    return seen


def assert_close(one, other, tolerance, key=""):
    """Equal within the tolerance, in relation to the largest of the values."""
    largest = one.abs().max().clamp_min(1e-3)
    assert (one - other).abs().max() <= tolerance * largest, key


@pytest.mark.parametrize("name", MODELS)
def test_steps(name):
    model, inputs = make(name)
    model, inputs = model.double().train(), double(inputs)
    tolerance = TOLERANCE.get(name, 1e-7)
    other = copy.deepcopy(model)
    dynamo.reset()
    compiled = dynamo.compile(other)
    steps = 1 if name in SINGLE_STEP else 5
    expected, found = train(model, model, inputs, steps), train(other, compiled, inputs, steps)
    for (loss, gradients, buffers), (loss_2, gradients_2, buffers_2) in zip(expected, found):
        assert_close(loss, loss_2, tolerance)
        assert gradients.keys() == gradients_2.keys()
        for key, gradient in gradients.items():
            assert_close(gradient, gradients_2[key], tolerance, key)
        for key, buffer in buffers.items():
            assert_close(buffer, buffers_2[key], tolerance, key)
    report = dynamo.explain(other)(**inputs)
    assert report.graph_count == 1
    assert not [note for note in report.notes if "op by op" in note]
