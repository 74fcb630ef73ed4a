"""Models of the sizes that GPUs run, with random weights; `benchmarks.subjects` has those of a CPU.

They are made on the default device of torch, where they are large: llama_1b is 5 GB in float32,
sdxl_unet 1.6 GB.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.subjects import SUBJECTS, Subject


def _text(model: nn.Module, batch: int, length: int, words: int, use_cache: bool | None) -> Subject:
    inputs = {"input_ids": torch.randint(words, (batch, length))}
    return model.eval(), inputs if use_cache is None else inputs | {"use_cache": use_cache}


def resnet50() -> Subject:
    from tutorials import models

    return models.resnet50().eval(), {"x": torch.randn(16, 3, 224, 224)}


def vit_base() -> Subject:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig()).eval(), {"pixel_values": torch.randn(16, 3, 224, 224)}


def bert_base() -> Subject:
    from transformers import BertConfig, BertModel

    return _text(BertModel(BertConfig()), 8, 128, 1000, None)


def gpt2_small() -> Subject:
    from transformers import GPT2Config, GPT2Model

    return _text(GPT2Model(GPT2Config()), 4, 512, 1000, False)


def llama_1b() -> Subject:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=2048,
    )  # fmt: skip
    return _text(LlamaModel(config), 1, 1024, 1000, False)


def sdxl_unet() -> Subject:
    """The U-Net of SDXL, of its widths and sizes, with fewer transformer blocks (1 and 2 for 2 and
    10) and one residual block of a level for two."""
    latents = {"x": torch.randn(2, 4, 64, 64), "time": torch.rand(2)}
    return UNet((320, 640, 1280), (0, 1, 2), 2048).eval(), latents | {
        "text": torch.randn(2, 77, 2048)
    }


class UNet(nn.Module):
    """Of latent images, a time and a text. depths: transformer blocks of each level."""

    def __init__(self, widths: tuple[int, ...], depths: tuple[int, ...], text: int) -> None:
        super().__init__()
        first, last = widths[0], widths[-1]
        inner = 4 * first
        self.into = nn.Conv2d(4, first, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(first, inner), nn.SiLU(), nn.Linear(inner, inner))
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        before = first
        for k, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            shrink = nn.Conv2d(width, width, 3, 2, 1) if k < len(widths) - 1 else None
            self.down.append(Level(before, width, inner, depth, text, shrink))
            before = width
        self.middle = Level(last, last, inner, depths[-1], text, None)
        for k, (width, depth) in reversed([*enumerate(zip(widths, depths, strict=True))]):
            grow = nn.Conv2d(width, width, 3, padding=1) if k else None
            self.up.append(Level(before + width, width, inner, depth, text, grow))
            before = width
        self.out = nn.Sequential(
            nn.GroupNorm(32, first), nn.SiLU(), nn.Conv2d(first, 4, 3, padding=1)
        )
        half = first // 2
        rates = torch.exp(-math.log(10000) * torch.arange(half) / half)
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        angles = time[:, None] * self.rates
        at = self.time(torch.cat([angles.cos(), angles.sin()], -1))
        x, kept = self.into(x), []
        for level in self.down:
            x = level(x, at, text)
            kept.append(x)
            x = x if level.change is None else level.change(x)
        x = self.middle(x, at, text)
        for level in self.up:
            x = level(torch.cat([x, kept.pop()], 1), at, text)
            if level.change is not None:
                x = level.change(nn.functional.interpolate(x, scale_factor=2.0))
        return self.out(x)


class Level(nn.Module):
    """A residual block, and transformer blocks. change: to the next level's size."""

    def __init__(
        self, before: int, width: int, time: int, depth: int, text: int, change: nn.Module | None
    ) -> None:
        super().__init__()
        self.one = nn.Sequential(
            nn.GroupNorm(32, before), nn.SiLU(), nn.Conv2d(before, width, 3, padding=1)
        )
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, width))
        self.two = nn.Sequential(
            nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)
        )
        self.past = nn.Conv2d(before, width, 1) if before != width else nn.Identity()
        self.blocks = nn.ModuleList(Block(width, text) for _ in range(depth))
        self.change = change

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        y = self.one(x) + self.time(time)[:, :, None, None]
        x = self.past(x) + self.two(y)
        if len(self.blocks):
            rows = x.flatten(2).transpose(1, 2)
            for block in self.blocks:
                rows = block(rows, text)
            x = rows.transpose(1, 2).reshape(x.shape)
        return x


class Block(nn.Module):
    """Attention over positions, attention over the text, a gated perceptron."""

    def __init__(self, width: int, text: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.cross = Attention(width, width), Attention(width, text)
        self.gate, self.last = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        normed = self.norms[0](x)
        x = x + self.own(normed, normed)
        x = x + self.cross(self.norms[1](x), text)
        value, gate = self.gate(self.norms[2](x)).chunk(2, -1)
        return x + self.last(value * nn.functional.gelu(gate))


class Attention(nn.Module):
    """In heads of 64."""

    def __init__(self, width: int, seen: int) -> None:
        super().__init__()
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(seen, width, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(t).unflatten(-1, (-1, 64)).transpose(1, 2)
            for layer, t in ((self.q, x), (self.k, seen), (self.v, seen))
        )
        made = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(made.transpose(1, 2).flatten(2))


LARGE: dict[str, Callable[[], Subject]] = {
    f.__name__: f for f in (resnet50, vit_base, bert_base, gpt2_small, llama_1b, sdxl_unet)
}
EVERY = SUBJECTS | LARGE
