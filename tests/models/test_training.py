"""Steps of models, forward and backward compiled: outputs, gradients, buffers as eager's.

Small models of each kind: a kind of layer more than once, not the number of layers that papers use.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import dynamo
from tutorials.models import CNN, clothes
from tutorials.models.densenet import DenseNet
from tutorials.models.mobilenet import MobileNetV2
from tutorials.models.resnet import BasicBlock, ResNet

pytestmark = pytest.mark.slow


def small_mobilenet() -> MobileNetV2:
    return MobileNetV2(10, settings=((1, 8, 1, 1), (6, 12, 2, 2)))


def image(size: int = 32) -> dict[str, Any]:
    return {"x": torch.randn(4, 3, size, size)}


def mlp() -> tuple[torch.nn.Module, dict[str, Any]]:
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 4)
    )
    return model, {"input": torch.randn(5, 8)}


def lstm() -> tuple[torch.nn.Module, dict[str, Any]]:
    model = torch.nn.LSTM(6, 8, num_layers=2, batch_first=True)
    return model, {"input": torch.randn(3, 5, 6)}


def tokens() -> dict[str, Any]:
    return {"input_ids": torch.randint(200, (2, 8))}


def bert() -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = BertConfig(vocab_size=200, intermediate_size=64, max_position_embeddings=24, **sizes)
    return BertModel(config), tokens()


def gpt2() -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(vocab_size=200, n_embd=32, n_layer=1, n_head=4, n_positions=24)
    return GPT2Model(config), {**tokens(), "use_cache": False}


def llama() -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import LlamaConfig, LlamaModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 24}
    return LlamaModel(LlamaConfig(vocab_size=200, **sizes)), {**tokens(), "use_cache": False}


def vit() -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import ViTConfig, ViTModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = ViTConfig(intermediate_size=64, image_size=16, patch_size=8, **sizes)
    return ViTModel(config), {"pixel_values": torch.randn(2, 3, 16, 16)}


def t5() -> tuple[torch.nn.Module, dict[str, Any]]:
    """Encoder and decoder."""
    from transformers import T5Config, T5Model

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
    given = tokens()
    inputs = {**given, "decoder_input_ids": given["input_ids"].flip(1), "use_cache": False}
    return T5Model(T5Config(vocab_size=200, **sizes)), inputs


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, dict[str, Any]]]] = {
    "mlp": mlp,
    "cnn": lambda: (CNN((4, 6), (16, 12)), {"x": clothes(6)[0]}),
    "resnet": lambda: (ResNet(BasicBlock, (1, 2, 1, 1), classes=10, width=8), image()),
    "mobilenet_v2": lambda: (small_mobilenet(), image(16)),
    "densenet": lambda: (DenseNet(growth=4, blocks=(2, 2), stem=8, classes=10), image()),
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "vit": vit,
    "t5": t5,
    "lstm": lstm,
}
# In float64 a difference beyond rounding is a mistake. The norms of these language models work in
# float32 inside.
TOLERANCE = {"llama": 1e-4, "t5": 1e-4}
STEPS = 5


def make(name, dtype):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()

    def converted(value):
        floats = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if floats else value

    inputs = {key: converted(value) for key, value in inputs.items()}
    return model.to(dtype).train(), inputs


def result_of(output):
    if hasattr(output, "last_hidden_state"):
        return output.last_hidden_state
    return output[0] if isinstance(output, tuple) else output


def train(model, call, inputs, steps=STEPS):
    """Loss, output, gradients and buffers of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(1)
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        output = result_of(call(**inputs))
        loss = output.square().mean()
        loss.backward()
        found = {"loss": loss.detach(), "output": output.detach()}
        found |= {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        found |= {n: b.clone() for n, b in model.named_buffers()}
        optimizer.step()
        seen.append(found)
    return seen


def assert_close(one, other, tolerance, key):
    """Equal within the tolerance, in relation to the largest of the values."""
    assert one.dtype is other.dtype
    one, other = one.double(), other.double()
    largest = one.abs().max().clamp_min(1e-3)
    assert (one - other).abs().max() <= tolerance * largest, key


def compare(name, dtype, tolerance):
    """Train twice and compare; what was captured of the model."""
    model, inputs = make(name, dtype)
    other = copy.deepcopy(model)
    dynamo.reset()
    expected, found = train(model, model, inputs), train(other, dynamo.compile(other), inputs)
    for number, (step, step_2) in enumerate(zip(expected, found)):
        assert step.keys() == step_2.keys()
        for key, value in step.items():
            assert_close(value, step_2[key], tolerance, f"step {number}: {key}")
    return dynamo.explain(other)(**inputs)


@pytest.mark.parametrize("name", MODELS)
def test_steps(name):
    report = compare(name, torch.float64, TOLERANCE.get(name, 1e-7))
    assert report.graph_count == 1
    assert not [note for note in report.notes if "op by op" in note]


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm"])
def test_float32(name):
    compare(name, torch.float32, 2e-3)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_bfloat16(name):
    """Numbers of eight bits: compiled, they are as near to what is right as in eager."""
    model, inputs = make(name, torch.bfloat16)
    exact, other = copy.deepcopy(model).double(), copy.deepcopy(model)
    wide = {key: value.double() for key, value in inputs.items()}
    dynamo.reset()
    (right,) = train(exact, exact, wide, steps=1)
    (expected,) = train(model, model, inputs, steps=1)
    (found,) = train(other, dynamo.compile(other), inputs, steps=1)

    def distance(step):
        return sum(float((step[key] - right[key]).square().sum()) for key in right) ** 0.5

    assert found.keys() == right.keys()
    assert all(value.dtype is expected[key].dtype for key, value in found.items())
    assert distance(found) <= 1.5 * distance(expected)


def test_epoch():
    """The losses of an epoch, step for step: the whole step compiled, and the model alone."""

    def step(model, optimizer, images, classes):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), classes)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def epoch(run, model, call):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        images, classes = clothes(768)
        batches = zip(images.double().split(32), classes.split(32))
        return torch.stack([run(call, optimizer, *batch) for batch in batches])

    torch.manual_seed(0)
    model = CNN((4, 6), (16, 12)).double()
    twins = [copy.deepcopy(model) for _ in range(2)]
    dynamo.reset()
    expected = epoch(step, model, model)
    whole = epoch(dynamo.compile(step), twins[0], twins[0])
    alone = epoch(step, twins[1], dynamo.compile(twins[1]))
    assert expected[-4:].mean() < expected[0]
    torch.testing.assert_close(whole, expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(alone, expected, rtol=1e-6, atol=1e-8)
