"""MobileNetV2 (Sandler et al., "Inverted Residuals and Linear Bottlenecks", 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def conv_norm_relu(
    in_channels: int, out_channels: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(
            in_channels,
            out_channels,
            kernel,
            stride=stride,
            padding=(kernel - 1) // 2,
            groups=groups,
            bias=False,
        ),
        nn.BatchNorm2d(out_channels),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Expand, depthwise 3x3, project; a shortcut where shapes allow."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = in_channels * expand
        self.shortcut = stride == 1 and in_channels == out_channels
        layers: list[nn.Module] = []
        if expand != 1:
            layers.append(conv_norm_relu(in_channels, hidden, 1))
        layers += [
            conv_norm_relu(hidden, hidden, 3, stride=stride, groups=hidden),
            nn.Conv2d(hidden, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        if self.shortcut:
            return x + self.conv(x)
        return self.conv(x)


class MobileNetV2(nn.Module):
    """Images (N, 3, H, W) -> class scores (N, classes)."""

    # expansion, output channels, repeats, first stride
    SETTINGS: tuple[tuple[int, int, int, int], ...] = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(
        self,
        classes: int = 1000,
        settings: tuple[tuple[int, int, int, int], ...] = SETTINGS,
        first_channel: int = 32,
        last_channel: int = 1280,
    ) -> None:
        super().__init__()
        self.last_channel = last_channel
        channels = first_channel
        layers: list[nn.Module] = [conv_norm_relu(3, channels, 3, stride=2)]
        for expand, out_channels, repeats, stride in settings:
            for i in range(repeats):
                layers.append(
                    InvertedResidual(channels, out_channels, stride if i == 0 else 1, expand)
                )
                channels = out_channels
        layers.append(conv_norm_relu(channels, last_channel, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last_channel, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        return self.classifier(torch.flatten(x, 1))


def mobilenet_v2(classes: int = 1000) -> MobileNetV2:
    return MobileNetV2(classes)
