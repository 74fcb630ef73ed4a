"""Programs that are saved, and the inputs of calls that a fresh process repeats."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Pair = collections.namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Answer:
    value: torch.Tensor
    size: int


class Net(nn.Module):
    """Convolution, batch norm and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class Nested(nn.Module):
    """Nests as arguments and as results, of the module's own classes."""

    def forward(self, pair: Any, *, options: Any) -> Any:
        total = pair[0] + options["bias"]
        return {"pair": Pair(total, pair[1] * 2), "answer": Answer(total.sum(), 3), "rest": [None]}


class Counting(nn.Module):
    """Buffers and inputs that are written, and results that alias."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("table", torch.arange(6.0).reshape(2, 3))

    def forward(self, x: torch.Tensor) -> Any:
        self.count += 1
        x.mul_(2)
        y = x + self.table
        return y, y.t(), x[0], self.count, x, self.table.view(-1)


class Tied(nn.Module):
    """One weight under two names, and two that are windows of one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.embedding.weight
        whole = torch.randn(8)
        self.register_buffer("low", whole[:4])
        self.register_buffer("high", whole[4:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.low.add_(1)
        return self.out(self.embedding(x) + self.low) + self.high.sum()


class Noisy(nn.Module):
    """Random numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(3) * torch.randn_like(x)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.lstm(x)


TABLE = torch.arange(12.0).reshape(4, 3)


def with_globals(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return (x @ TABLE.t()) * scale


def sizes(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Sizes among results."""
    return torch.cat([x, y]), x.shape[0] + y.shape[0], x.shape[0] * 2.5, x.reshape(-1).shape


# name -> (what is exported, arguments, keyword arguments); made under one seed
Made = tuple[Any, tuple[Any, ...], dict[str, Any]]


def _sizes() -> Made:
    import dynamo

    x, y = torch.randn(4, 3), torch.randn(5, 3)
    dynamo.mark_dynamic(x, 0, min=2, max=64)
    dynamo.mark_dynamic(y, 0, min=2, max=64)
    return sizes, (x, y), {}


CASES: dict[str, Callable[[], Made]] = {
    "net": lambda: (Net().eval(), (torch.randn(2, 3, 8, 8),), {}),
    "net in training": lambda: (Net(), (torch.randn(2, 3, 8, 8),), {}),
    "nested": lambda: (
        Nested(),
        (Pair(torch.randn(3), torch.randn(3)),),
        {"options": {"bias": torch.ones(3)}},
    ),
    "counting": lambda: (Counting(), (torch.randn(2, 3),), {}),
    "tied": lambda: (Tied().requires_grad_(False), (torch.tensor([1, 5]),), {}),
    "noisy": lambda: (Noisy(), (torch.randn(3, 3),), {}),
    "recurrent": lambda: (Recurrent(), (torch.randn(2, 5, 4),), {}),
    "globals": lambda: (with_globals, (torch.randn(2, 3),), {"scale": 0.5}),
    "sizes": _sizes,
}


def make(name: str) -> Made:
    torch.manual_seed(0)
    return CASES[name]()
