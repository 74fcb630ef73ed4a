"""What the benchmarks run: models of a realistic size with random weights, and small functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tutorials import models

Subject = tuple[Callable[..., Any], dict[str, Any]]


def narrow(fn: Callable[..., Any], inputs: dict[str, Any], dtype: str) -> None:
    """Convert a subject and its inputs."""
    wanted = getattr(torch, dtype)
    if isinstance(fn, torch.nn.Module):
        fn.to(wanted)
    for name, x in inputs.items():
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            inputs[name] = x.detach().to(wanted)


def _images(model: torch.nn.Module) -> Subject:
    return model.eval(), {"x": torch.randn(4, 3, 128, 128)}


def _text(model: torch.nn.Module, length: int = 128, **more: Any) -> Subject:
    return model.eval(), {"input_ids": torch.randint(1000, (2, length)), **more}


class _Recurrent(torch.nn.Module):
    """A recurrent layer without the states it ends with."""

    def __init__(self, layer: torch.nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def add_one() -> Subject:
    return (lambda x: x + 1), {"x": torch.randn(4)}


def chain() -> Subject:
    norm = torch.nn.LayerNorm(1024)

    def layernorm_gelu_softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.nn.functional.gelu(norm(x)) * 2 + x, -1)

    return layernorm_gelu_softmax, {"x": torch.randn(1024, 1024)}


def mlp() -> Subject:
    layers = [torch.nn.Linear(256, 256), torch.nn.GELU()] * 4
    return torch.nn.Sequential(*layers).eval(), {"input": torch.randn(64, 256)}


def lstm() -> Subject:
    layer = torch.nn.LSTM(128, 256, num_layers=2, batch_first=True)
    return _Recurrent(layer).eval(), {"x": torch.randn(16, 32, 128)}


def gru() -> Subject:
    layer = torch.nn.GRU(128, 256, num_layers=2, batch_first=True)
    return _Recurrent(layer).eval(), {"x": torch.randn(16, 32, 128)}


def densenet121() -> Subject:
    return _images(models.densenet121())


def resnet18() -> Subject:
    return _images(models.resnet18())


def resnet50_one() -> Subject:
    return models.resnet50().eval(), {"x": torch.randn(1, 3, 224, 224)}


def mobilenet_v2() -> Subject:
    return _images(models.mobilenet_v2())


def bert() -> Subject:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536
    )
    return _text(BertModel(config))


def gpt2() -> Subject:
    from transformers import GPT2Config, GPT2Model

    return _text(GPT2Model(GPT2Config(n_embd=384, n_layer=6, n_head=6)), use_cache=False)


def llama() -> Subject:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=8000,
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=6,
    )
    return _text(LlamaModel(config), use_cache=False)


def vit() -> Subject:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536
    )
    return ViTModel(config).eval(), {"pixel_values": torch.randn(1, 3, 224, 224)}


def swin() -> Subject:
    from transformers import SwinConfig, SwinModel

    config = SwinConfig(embed_dim=64, depths=[2, 2, 2], num_heads=[2, 4, 8])
    return SwinModel(config).eval(), {"pixel_values": torch.randn(1, 3, 224, 224)}


def convnext() -> Subject:
    from transformers import ConvNextConfig, ConvNextModel

    config = ConvNextConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 4, 2])
    return ConvNextModel(config).eval(), {"pixel_values": torch.randn(2, 3, 128, 128)}


def bert_one() -> Subject:
    """One short text."""
    from transformers import BertModel

    model, _ = bert()
    assert isinstance(model, BertModel)
    return model, {"input_ids": torch.randint(1000, (1, 16))}


def t5_encoder() -> Subject:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(d_model=384, d_kv=64, d_ff=1536, num_layers=6, num_heads=6)
    return _text(T5EncoderModel(config))


SUBJECTS: dict[str, Callable[[], Subject]] = {
    f.__name__: f
    for f in (
        add_one,
        chain,
        mlp,
        lstm,
        gru,
        densenet121,
        resnet18,
        resnet50_one,
        mobilenet_v2,
        convnext,
        swin,
        bert,
        bert_one,
        gpt2,
        llama,
        vit,
        t5_encoder,
    )
}
