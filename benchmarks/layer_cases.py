"""Layers whose weights are their own, so that compilers may pack them: see operator_cases.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Case = tuple[Callable[..., Any], Callable[[int], list[torch.Tensor]], bool]


def layer(make: Callable[[int], nn.Module], *shapes: tuple[int, ...], channels: int = 1) -> Case:
    """A module of as many channels as its input has in dimension `channels`."""
    made: dict[Any, nn.Module] = {}

    def call(x: torch.Tensor) -> Any:
        return made[x.shape[channels], x.dtype](x)

    def inputs(size: int) -> list[torch.Tensor]:
        count = shapes[size][channels]
        for dtype in (torch.float32, torch.bfloat16):
            made[count, dtype] = make(count).eval().to(dtype)
        return [torch.randn(shapes[size])]

    return call, inputs, False


IMAGES = (2, 16, 32, 32), (1, 64, 14, 14), (4, 32, 112, 112)
SIGNALS = (1, 8, 64), (4, 32, 128), (8, 64, 2048)
VOLUMES = (1, 4, 4, 8, 8), (1, 8, 8, 16, 16), (2, 16, 16, 32, 32)
STEPS = (1, 16, 64), (8, 32, 128), (32, 40, 256)  # sequences, steps, width

LAYERS: dict[str, Case] = {
    "layer_conv2d": layer(lambda c: nn.Conv2d(c, c, 3, padding=1), *IMAGES),
    "layer_conv2d_strided": layer(lambda c: nn.Conv2d(c, 2 * c, 3, 2, 1), *IMAGES),
    "layer_conv2d_one": layer(lambda c: nn.Conv2d(c, 2 * c, 1), *IMAGES),
    "layer_conv2d_one_strided": layer(lambda c: nn.Conv2d(c, 2 * c, 1, 2), *IMAGES),
    "layer_conv2d_five": layer(lambda c: nn.Conv2d(c, c, 5, padding=2), *IMAGES),
    "layer_conv2d_seven_strided": layer(lambda c: nn.Conv2d(c, 64, 7, 2, 3), *IMAGES),
    "layer_conv2d_patches": layer(lambda c: nn.Conv2d(c, 4 * c, 4, 4), *IMAGES),
    "layer_conv2d_depthwise": layer(lambda c: nn.Conv2d(c, c, 3, 1, 1, groups=c), *IMAGES),
    "layer_conv2d_depthwise_7": layer(lambda c: nn.Conv2d(c, c, 7, 1, 3, groups=c), *IMAGES),
    "layer_conv2d_depthwise_s2": layer(lambda c: nn.Conv2d(c, c, 3, 2, 1, groups=c), *IMAGES),
    "layer_conv2d_grouped": layer(lambda c: nn.Conv2d(c, c, 3, 1, 1, groups=4), *IMAGES),
    "layer_conv2d_dilated": layer(lambda c: nn.Conv2d(c, c, 3, 1, 2, 2), *IMAGES),
    "layer_conv1d": layer(lambda c: nn.Conv1d(c, 2 * c, 3, padding=1), *SIGNALS),
    "layer_conv1d_depthwise": layer(lambda c: nn.Conv1d(c, c, 7, padding=3, groups=c), *SIGNALS),
    "layer_conv1d_one": layer(lambda c: nn.Conv1d(c, c, 1), *SIGNALS),
    "layer_conv3d": layer(lambda c: nn.Conv3d(c, c, 3, padding=1), *VOLUMES),
    "layer_conv3d_one": layer(lambda c: nn.Conv3d(c, c, 1), *VOLUMES),
    "layer_conv3d_patches": layer(lambda c: nn.Conv3d(c, 4 * c, 2, 2), *VOLUMES),
    "layer_transposed1d": layer(lambda c: nn.ConvTranspose1d(c, c, 4, 2, 1), *SIGNALS),
    "layer_transposed2d": layer(lambda c: nn.ConvTranspose2d(c, c, 2, 2), *IMAGES),
    "layer_transposed2d_4": layer(lambda c: nn.ConvTranspose2d(c, c, 4, 2, 1), *IMAGES),
    "layer_lstm": layer(lambda c: nn.LSTM(c, c, batch_first=True), *STEPS, channels=2),
    "layer_gru": layer(lambda c: nn.GRU(c, c, batch_first=True), *STEPS, channels=2),
    "layer_linear": layer(lambda c: nn.Linear(c, 4 * c), *STEPS, channels=2),
}
