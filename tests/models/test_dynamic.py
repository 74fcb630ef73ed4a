"""Models over twenty batch sizes or sequence lengths: two compiles, values as in eager."""

from __future__ import annotations

import pytest
import torch

import dynamo
from tests.dynamo.dynamic_support import Counting
from tests.models.zoo import ZOO

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
