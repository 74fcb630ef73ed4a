"""Architectures of transformers: eager's values, gradients and states, and one graph for a call.

The graphs run as they were captured, so that equality is exact. Tables below list what is more than
one graph, or not equal to the last bit, and why.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

import dynamo
from benchmarks.architectures import (
    FORWARD,
    OURS,
    TRAINING,
    Capture,
    Counting,
    capture,
    compile_ours,
    difference,
    tensors,
)
from tests.models.architectures import ARCHITECTURES, make

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def warnings_are_not_heard():
    """A model that warns once through a logger breaks the graph, that once, if somebody listens."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    yield
    logging.set_verbosity(level)


# name -> (graphs of a call at most, why)
VALUES_DECIDE = {
    "vilt": (4, "a loop over the rows that a mask picks"),
}
OFF_THE_GRAPH_IN_TRAINING = {
    **VALUES_DECIDE,
    "reformer": (3, "an autograd.Function is given lists, which its backward may change"),
}
# They ask torch.compiler.is_compiling(), and compute the same in another order then.
ROUNDED = {"falcon_mamba": 1e-5, "mamba": 1e-5}


def check(name: str, found: Capture, known: dict[str, tuple[int, str]]) -> None:
    assert not found.error, found.error
    assert found.difference <= ROUNDED.get(name, 0.0), found
    graphs, _ = known.get(name, (1, ""))
    assert 1 <= found.graphs <= graphs, found


# Each runs in one of the two modes, those that a table names in both; EVERY_ARCHITECTURE=1 runs all
# in both, and the default backend's gradients of all, in about an hour.
EVERY = bool(os.environ.get("EVERY_ARCHITECTURE"))
TRAINED = [name for name, architecture in ARCHITECTURES.items() if architecture.trains]
BRANCHING = {  # on data, in one graph
    *("autoformer", "data2vec_audio", "fsmt", "hubert", "ibert", "led", "longformer", "m2m_100"),
    *("reformer", "sew", "unispeech", "unispeech_sat", "videomae_pretraining", "wav2vec2", "wavlm"),
}
FORWARDS = {*TRAINED[::2], *VALUES_DECIDE, *BRANCHING, *(ARCHITECTURES.keys() - TRAINED)}
TRAININGS = {*TRAINED[1::2], *OFF_THE_GRAPH_IN_TRAINING, *BRANCHING}


@pytest.mark.parametrize("name", [n for n in ARCHITECTURES if EVERY or n in FORWARDS])
def test_forward(name: str) -> None:
    check(name, capture(OURS, name, FORWARD), VALUES_DECIDE)


@pytest.mark.parametrize("name", [n for n in TRAINED if EVERY or n in TRAININGS])
def test_training(name: str) -> None:
    """Outputs, loss and gradients, with the labels given."""
    check(name, capture(OURS, name, TRAINING), OFF_THE_GRAPH_IN_TRAINING)


def test_one_graph_for_nearly_all() -> None:
    assert len(ARCHITECTURES) >= 60 and FORWARDS | TRAININGS == ARCHITECTURES.keys()
    assert len(VALUES_DECIDE) / len(ARCHITECTURES) < 0.05


# -- calls with more than tokens ------------------------------------------------------------------
GENERATING = ["bloom", "gemma2", "gpt2", "llama", "mistral", "mixtral", "qwen3"]


def decode(model: torch.nn.Module, inputs: dict, cache: object) -> list[torch.Tensor]:
    """The logits of a prompt and of three further tokens, and what the cache holds then."""
    ids, found = inputs["input_ids"], []
    with torch.no_grad():
        for _ in range(4):
            out = model(input_ids=ids, past_key_values=cache, use_cache=True)
            assert out.past_key_values is cache
            found.append(out.logits)
            ids = out.logits[:, -1:].argmax(-1)
    return [*found, *(t for layer in cache.layers for t in (layer.keys, layer.values))]


@pytest.mark.parametrize("kind", ["dynamic", "static", "long"])
@pytest.mark.parametrize("name", GENERATING)
def test_decoding_with_a_cache(name: str, kind: str) -> None:
    """The cache is an object of the program's that every call changes."""
    from transformers import DynamicCache, StaticCache

    def cache(model: torch.nn.Module) -> object:
        if kind == "dynamic":
            return DynamicCache(config=model.config)
        return StaticCache(config=model.config, max_cache_len=24 if kind == "static" else 4096)

    model, inputs, _ = make(name)
    expected = decode(model, inputs, cache(model))
    backend = Counting()
    compiled, breaks = compile_ours(model, backend)
    actual = decode(compiled, inputs, cache(model))
    assert backend.runs == 4 and not breaks()
    assert difference(actual, expected) < 1e-5  # the masks are others when compiling


@pytest.mark.parametrize(
    "name", ["bert", "llama", "t5", "vit", "distilbert", "gpt2", "whisper", "swin"]
)
def test_more_outputs(name: str) -> None:
    """Hidden states and attentions; a tuple in place of the output object."""
    wanted = {"output_hidden_states": True, "output_attentions": True}
    for options in (wanted, {**wanted, "return_dict": False}):
        (model, inputs, _), (twin, _, _) = make(name), make(name)
        for each in (model, twin):
            each.set_attn_implementation("eager")
        backend = Counting()
        compiled, breaks = compile_ours(model, backend)
        with torch.no_grad():
            expected, actual = twin(**inputs, **options), compiled(**inputs, **options)
        assert type(actual) is type(expected)
        assert difference(tensors(actual), tensors(expected)) == 0.0
        assert backend.runs == 1 and not breaks()


@pytest.mark.parametrize("name", ["bert", "llama", "t5", "vit", "resnet", "clip", "mamba", "levit"])
@pytest.mark.parametrize("mode", [FORWARD, TRAINING])
def test_functional_graphs(name: str, mode: str) -> None:
    """The same through the functional aten graph."""
    from benchmarks.architectures import call, subject

    (model, inputs), (twin, twin_inputs) = subject(name, mode), subject(name, mode)
    dynamo.reset()
    actual = call(dynamo.compile(model, backend="aot_eager"), inputs, mode)
    expected = call(twin, twin_inputs, mode)
    assert difference(actual, expected) < 1e-4


# Those with images in both layouts, pools, dropout of images and of what the loss does not use,
# attention by relative positions, recurrence.
KINDS = ["swin", "dpt", "canine", "levit", "t5"]
# Normalisation over a few numbers makes a hundredth of float32's rounding.
DOUBLE = {"levit", "mobilenet_v2", "mobilevitv2"}


@pytest.mark.parametrize("name", TRAINED if EVERY else KINDS)
def test_gradients_of_the_default_backend(name: str) -> None:
    """Outputs, loss and every gradient, beside the largest element of each."""
    from benchmarks.architectures import call, subject

    pair = [subject(name, TRAINING) for _ in range(2)]
    (model, inputs), (twin, twin_inputs) = (_double(*s) for s in pair) if name in DOUBLE else pair
    dynamo.reset()
    actual = call(dynamo.compile(model), inputs, TRAINING)
    expected = call(twin, twin_inputs, TRAINING)
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected):
        # Biases that a softmax or a normalisation takes out have gradients of rounding alone.
        allowed = 1e-3 * float(theirs.detach().abs().max()) if theirs.numel() else 0.0
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=max(allowed, 1e-6))


def _double(model: torch.nn.Module, inputs: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    floats = {k: v for k, v in inputs.items() if torch.is_tensor(v) and v.is_floating_point()}
    return model.double(), {**inputs, **{k: v.double() for k, v in floats.items()}}
