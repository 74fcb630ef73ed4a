"""Models of libraries, small, in Triton's interpreter, inference and training, against eager:
`python -m tests.inductor.interpreting triton_zoo [NAME...]`. Of one layer: a second has the same
kernels. Residual networks and perceptrons are in triton_models.py.
"""

from __future__ import annotations

import torch
from torch import nn

from tests.inductor.triton_models import cases_of

MODELS = {}
TYPES = (torch.float32, torch.float16, torch.bfloat16)


def model(build):
    MODELS[build.__name__] = (build, TYPES)
    return build


def images(size=32, name="x", count=2):
    return {name: torch.randn(count, 3, size, size)}


def text(**more):
    return {"input_ids": torch.randint(64, (2, 9)), **more}


@model
def vit():
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=40,
        image_size=16, patch_size=8,
    )  # fmt: skip
    return ViTModel(config, add_pooling_layer=False), images(16, "pixel_values")


@model
def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=64, hidden_size=24, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=40, max_position_embeddings=16,
    )  # fmt: skip
    return BertModel(config, add_pooling_layer=False), text()


@model
def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=24, n_layer=1, n_head=2)
    return GPT2LMHeadModel(config), text(use_cache=False)


@model
def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=24, intermediate_size=40, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=16,
    )  # fmt: skip
    return LlamaForCausalLM(config), text(use_cache=False)


@model
def t5():
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=64, d_model=24, d_kv=12, d_ff=40, num_layers=1, num_heads=2, dropout_rate=0.0
    )  # fmt: skip
    return T5EncoderModel(config), text()


@model
def lstm():
    return Recurrent(), {"x": torch.randn(2, 5, 6)}


@model
def unet():
    return UNet(), images(16)


@model
def convnext():
    from transformers import ConvNextConfig, ConvNextModel

    return ConvNextModel(ConvNextConfig(hidden_sizes=[8, 12], depths=[1, 1], num_stages=2)), images(
        32, "pixel_values"
    )


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.layer(x)[0])


class UNet(nn.Module):
    """With a step down and up, group norms, and a connection across."""

    def __init__(self):
        super().__init__()
        self.into, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, 2, 1)
        self.middle = nn.Sequential(nn.GroupNorm(3, 12), nn.SiLU(), nn.Conv2d(12, 12, 3, padding=1))
        self.up, self.out = nn.ConvTranspose2d(12, 8, 2, 2), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x):
        x = nn.functional.silu(self.into(x))
        y = self.down(x)
        return self.out(torch.cat([x, self.up(y + self.middle(y))], 1))


def cases(*names):
    return cases_of({name: MODELS[name] for name in names or MODELS})
