"""Real models with random weights and small configurations, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tutorials import models


def _image(size: int = 64, batch: int = 2) -> dict[str, Any]:
    return {"x": torch.randn(batch, 3, size, size)}


def _tokens() -> dict[str, Any]:
    return {"input_ids": torch.randint(200, (2, 16))}


def densenet121() -> tuple[torch.nn.Module, dict[str, Any]]:
    return models.densenet121(), _image()


def resnet18() -> tuple[torch.nn.Module, dict[str, Any]]:
    return models.resnet18(), _image()


def mobilenet_v2() -> tuple[torch.nn.Module, dict[str, Any]]:
    return models.mobilenet_v2(), _image()


def bert() -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=200,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    return BertModel(config), _tokens()


def gpt2() -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(vocab_size=200, n_embd=64, n_layer=2, n_head=4, n_positions=64)
    return GPT2Model(config), {**_tokens(), "use_cache": False}


def llama() -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=200,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return LlamaModel(config), {**_tokens(), "use_cache": False}


def vit() -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        image_size=32,
        patch_size=8,
    )
    return ViTModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


def t5_encoder() -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(vocab_size=200, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
    return T5EncoderModel(config), _tokens()


ZOO: dict[str, Callable[[], tuple[torch.nn.Module, dict[str, Any]]]] = {
    f.__name__: f for f in (densenet121, resnet18, mobilenet_v2, bert, gpt2, llama, vit, t5_encoder)
}


def make(name: str, seed: int = 0) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The model in eval mode and keyword inputs, the same for the same seed."""
    torch.manual_seed(seed)
    model, inputs = ZOO[name]()
    return model.eval(), inputs
