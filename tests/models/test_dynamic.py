"""Models over twenty batch sizes or sequence lengths: two compiles, values as in eager."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dynamo
from backends.inductor import inductor
from tests.dynamo.dynamic_support import Counting
from tests.models import test_training as training
from tests.models.test_training import assert_close
from tests.models.zoo import ZOO
from tutorials.models.resnet import BasicBlock, ResNet

pytestmark = pytest.mark.slow


def tokens(batch, length):
    return {"input_ids": torch.randint(200, (batch, length))}


def with_cache_off(batch, length):
    return {**tokens(batch, length), "use_cache": False}


def image(batch, size):
    return {"x": torch.randn(batch, 3, size, size)}


def pixels(batch, size):
    return {"pixel_values": torch.randn(batch, 3, 32, 32)}


def sequence(batch, length):
    return {"input": torch.randn(batch, length, 6)}


LENGTHS = [
    (2, n) for n in (16, 9, 5, 31, 7, 12, 33, 20, 64, 3, 11, 27, 40, 8, 55, 6, 19, 50, 23, 62)
]
BATCHES = [
    (n, 32) for n in (4, 2, 7, 3, 9, 5, 12, 6, 8, 11, 16, 10, 13, 20, 14, 17, 15, 19, 18, 21)
]
BOTH = [(n % 5 + 2, m) for n, (_, m) in enumerate(LENGTHS)]
# name -> (inputs, sizes)
MODELS = {
    "bert": (tokens, LENGTHS),
    "gpt2": (with_cache_off, LENGTHS),
    "llama": (with_cache_off, BOTH),
    "resnet18": (image, BATCHES),
    "vit": (pixels, BATCHES),
    "lstm": (sequence, [(n, 5) for n, _ in BATCHES]),
}


def made(name):
    torch.manual_seed(0)
    if name == "lstm":
        return torch.nn.LSTM(6, 8, batch_first=True).eval()
    return ZOO[name]()[0].eval()


def result_of(output):
    if hasattr(output, "last_hidden_state"):
        return output.last_hidden_state
    return output[0] if isinstance(output, tuple) else output


@pytest.mark.parametrize("name", MODELS)
def test_inference(name):
    inputs, sizes = MODELS[name]
    model = made(name)
    counting = Counting()
    compiled = dynamo.compile(model, backend=counting)
    with torch.no_grad():
        for size in sizes:
            given = inputs(*size)
            want, got = result_of(model(**given)), result_of(compiled(**given))
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    context = compiled._dynamo_context
    frames = {record.compile_id.partition("/")[0] for record in context.records if record.graphs}
    assert len(counting.graphs) <= 2 * len(frames)


# --- compiled, with and without gradients ---------------------------------------------------------


class UNet(nn.Module):
    """Two levels: down by pooling, up by transposed convolutions, joined by cat."""

    def __init__(self, width=4):
        super().__init__()
        self.down = nn.ModuleList([self.block(3, width), self.block(width, 2 * width)])
        self.middle = self.block(2 * width, 4 * width)
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(2 * n * width, n * width, 2, stride=2) for n in (2, 1)]
        )
        self.joined = nn.ModuleList([self.block(2 * n * width, n * width) for n in (2, 1)])
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def block(before, after):
        conv = nn.Conv2d(before, after, 3, padding=1, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU())

    def forward(self, x):
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, block in zip(self.up, self.joined):
            x = block(torch.cat([up(x), kept.pop()], 1))
        return self.last(x)


def small_image(batch, size):
    return {"x": torch.randn(batch, 3, size, size)}


def small_pixels(batch, size):
    return {"pixel_values": torch.randn(batch, 3, 16, 16)}


SHORT = [(2, n) for n in (7, 9, 5, 12, 16, 3, 11, 8, 14, 6, 13, 4, 10, 15, 2, 21, 17, 20, 18, 19)]
AREAS = [(2, 4 * n) for n, _ in BATCHES]
# name -> (model, inputs, sizes)
SMALL = {
    "bert": (lambda: training.bert()[0], tokens, SHORT),
    "gpt2": (lambda: training.gpt2()[0], with_cache_off, SHORT),
    "llama": (
        lambda: training.llama()[0],
        with_cache_off,
        [(n % 5 + 2, m) for n, (_, m) in enumerate(SHORT)],
    ),
    "resnet": (
        lambda: ResNet(BasicBlock, (1, 1, 1, 1), classes=10, width=4),
        small_image,
        [(n, 32) for n, _ in BATCHES],
    ),
    "vit": (lambda: training.vit()[0], small_pixels, BATCHES),
    "lstm": (
        lambda: nn.LSTM(6, 8, batch_first=True),
        sequence,
        [(n % 5 + 2, m) for n, (_, m) in enumerate(SHORT)],
    ),
    "unet": (UNet, small_image, [(n, 8) for n, _ in BATCHES]),
}


def step(model, given, seed):
    """All that a training step gives: the output, gradients and buffers."""
    torch.manual_seed(seed)
    model.zero_grad()
    given = {
        key: value.clone().requires_grad_(value.is_floating_point())
        if isinstance(value, torch.Tensor)
        else value
        for key, value in given.items()
    }
    output = result_of(model(**given))
    output.square().mean().backward()
    inputs = {key: v.grad for key, v in given.items() if getattr(v, "requires_grad", False)}
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"output": output.detach(), **inputs, **gradients, **dict(model.named_buffers())}


def compiled_pair(name):
    """(model, a copy of it compiled, the backend that counts)."""
    torch.manual_seed(0)
    model = SMALL[name][0]()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    counting = Counting(inductor)
    return model, dynamo.compile(copy.deepcopy(model), backend=counting), counting


@pytest.mark.parametrize("name", SMALL)
def test_training(name):
    _, inputs, sizes = SMALL[name]
    model, compiled, counting = compiled_pair(name)
    for number, size in enumerate(sizes):
        given = inputs(*size)
        want, got = step(model, given, number), step(compiled, given, number)
        assert want.keys() == got.keys()
        for key, value in want.items():
            assert value.shape == got[key].shape and value.stride() == got[key].stride(), key
            assert_close(value, got[key], 2e-3, f"{size}: {key}")
    assert len(counting.graphs) == 2


@pytest.mark.parametrize("name, sizes", [("resnet", None), ("unet", AREAS)])
def test_compiled_inference(name, sizes):
    _, inputs, batches = SMALL[name]
    sizes = sizes or batches
    model, compiled, counting = compiled_pair(name)
    model.eval(), compiled.eval()
    with torch.no_grad():
        for size in sizes:
            given = inputs(*size)
            want, got = result_of(model(**given)), result_of(compiled(**given))
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    assert len(counting.graphs) == 2


def test_a_growing_cache():
    """Llama token by token: one compile for the prompt, two for the tokens after it."""
    from transformers import DynamicCache, LlamaConfig, LlamaModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 64}
    torch.manual_seed(0)
    model = LlamaModel(LlamaConfig(vocab_size=200, **sizes)).eval()
    counting = Counting(inductor)
    compiled = dynamo.compile(model, backend=counting)
    for _ in range(2):
        mine, theirs = DynamicCache(), DynamicCache()
        for count in [5] + [1] * 20:
            ids = torch.randint(200, (2, count))
            with torch.no_grad():
                want = model(input_ids=ids, past_key_values=theirs, use_cache=True)
                got = compiled(input_ids=ids, past_key_values=mine, use_cache=True)
            torch.testing.assert_close(got[0], want[0], rtol=1e-3, atol=1e-3)
        for one, other in zip(mine.layers, theirs.layers):
            torch.testing.assert_close(one.keys, other.keys, rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(one.values, other.values, rtol=1e-3, atol=1e-3)
    assert len(counting.graphs) == 3
