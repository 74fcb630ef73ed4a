"""A small convolutional network for images of 28 x 28 grey values in ten classes."""

from __future__ import annotations

import torch
from torch import nn


class CNN(nn.Module):
    """Two convolutions, each normalised and pooled, and three linear layers.

    channels: of the two convolutions. hidden: of the linear layers between.
    """

    def __init__(
        self, channels: tuple[int, int] = (25, 50), hidden: tuple[int, int] = (1024, 128)
    ) -> None:
        super().__init__()
        first, second = channels
        self.layer1 = self._convolution(1, first)
        self.layer2 = nn.Sequential(nn.MaxPool2d(kernel_size=2, stride=2))
        self.layer3 = self._convolution(first, second)
        self.layer4 = nn.Sequential(nn.MaxPool2d(kernel_size=2, stride=2))
        self.fc = nn.Sequential(
            nn.Linear(second * 5 * 5, hidden[0]),
            nn.ReLU(inplace=True),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(inplace=True),
            nn.Linear(hidden[1], 10),
        )

    @staticmethod
    def _convolution(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, kernel_size=3),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 1, 28, 28) -> (N, 10), before the softmax."""
        x = self.layer2(self.layer1(x))
        x = self.layer4(self.layer3(x))
        return self.fc(x.view(x.size(0), -1))


def clothes(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Generated images in the shapes of FashionMNIST: (count, 1, 28, 28) in [0, 1], and classes.

    Each class is a smooth pattern of its own; an image is its pattern, shifted, with noise.
    """
    patterns = torch.rand(10, 1, 7, 7, generator=torch.Generator().manual_seed(0))
    patterns = nn.functional.interpolate(patterns, size=(28, 28), mode="bilinear")
    generator = torch.Generator().manual_seed(seed + 1)
    classes = torch.randint(10, (count,), generator=generator)
    shifts = torch.randint(-2, 3, (count, 2), generator=generator).tolist()
    images = [patterns[c].roll(tuple(s), (1, 2)) for c, s in zip(classes.tolist(), shifts)]
    noise = torch.rand(count, 1, 28, 28, generator=generator)
    return 0.6 * torch.stack(images) + 0.4 * noise, classes
