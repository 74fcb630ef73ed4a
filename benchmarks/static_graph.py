"""Whole training steps: eager, dynamo.compile and dynamo.Graph side by side, as ratios.

    python -m benchmarks.static_graph              # every subject
    python -m benchmarks.static_graph gpt lstm     # some

A step is forward, loss, backward, clipping where the subject clips, optimizer and scheduler. The
three run in turns in one process, each with a copy of the model; times are of the processor, the
least of all turns. "compile" is the time of the first two steps: an optimizer without and with
state. tests/models/test_static_graph.py trains the same subjects and compares them with eager.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tabulate import tabulate
from torch import nn
from torch.optim import lr_scheduler

import dynamo
from tutorials.models.mobilenet import MobileNetV2

CLASSES = 10


class Convolutions(nn.Module):
    """Images (N, 3, 32, 32) -> scores, with batch norms."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 16), (16, 32), (32, 32)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Encoder(nn.Module):
    """Sequences (N, L, 64) -> scores, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(2))
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class Recurrent(nn.Module):
    """Sequences (N, L, 32) -> scores."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Block(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2))
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.wide = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(*parts.unbind(), is_causal=True)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        return x + self.wide(self.norms[1](x))


class Gpt(nn.Module):
    """Tokens (N, L) -> scores of the next tokens (N, vocabulary, L)."""

    def __init__(self, vocabulary: int = 128, length: int = 32, size: int = 64) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, size), nn.Embedding(length, size)
        self.register_buffer("numbers", torch.arange(length))
        self.blocks = nn.ModuleList(Block(size, 4) for _ in range(2))
        self.head = nn.Linear(size, vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x) + self.places(self.numbers)
        for block in self.blocks:
            x = block(x)
        return self.head(x).transpose(1, 2)


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, CLASSES)
    )


def mobilenet() -> nn.Module:
    settings = ((1, 8, 1, 1), (4, 12, 2, 2), (4, 16, 1, 2))
    return MobileNetV2(CLASSES, settings, first_channel=16, last_channel=64)


def two_groups(model: nn.Module, **second: Any) -> list[dict[str, Any]]:
    """Matrices, and what has one dimension with other settings."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    return [
        {"params": matrices},
        {"params": [p for p in model.parameters() if p.dim() < 2]} | second,
    ]


def clipped(model: nn.Module) -> list[dict[str, Any]]:
    return [{"params": model.parameters(), "clip_grad_max_norm": 1.0}]


@dataclass
class Subject:
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    schedule: Callable[[torch.optim.Optimizer], Any]

    def world(self, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Any, Any]:
        torch.manual_seed(0)
        model = self.make().to(dtype)
        optimizer = self.optimizer(model)
        return model, optimizer, self.schedule(optimizer)

    def batches(self, count: int, dtype: torch.dtype = torch.float32) -> Iterator[Any]:
        """Inputs whose class shows in their mean; of tokens, each follows from the one before."""
        generator = torch.Generator().manual_seed(1)
        for _ in range(count):
            if self.make is Gpt:
                first = torch.randint(128, (self.shape[0], 1), generator=generator)
                tokens = (first + torch.arange(self.shape[1] + 1) * 3) % 128
                yield tokens[:, :-1], tokens[:, 1:]
                continue
            y = torch.randint(CLASSES, self.shape[:1], generator=generator)
            x = torch.randn(self.shape, generator=generator, dtype=torch.float64)
            yield (x + y.view(-1, *[1] * (x.dim() - 1)) / 5).to(dtype), y


optim = torch.optim
SUBJECTS = {
    "mlp": Subject(
        mlp,
        (64, 64),
        lambda m: optim.SGD(two_groups(m, weight_decay=0.0), 0.05, 0.9, weight_decay=1e-3),
        lambda o: lr_scheduler.StepLR(o, 20, 0.5),
    ),
    "convnet": Subject(
        Convolutions,
        (32, 3, 32, 32),
        lambda m: optim.RMSprop(m.parameters(), 1e-3, momentum=0.5),
        lambda o: lr_scheduler.ExponentialLR(o, 0.98),
    ),
    "transformer": Subject(
        Encoder,
        (16, 32, 64),
        lambda m: optim.AdamW(clipped(m), 1e-3),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 60),
    ),
    "lstm": Subject(
        Recurrent,
        (16, 20, 32),
        lambda m: optim.Adagrad(clipped(m), 1e-2),
        lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=10),
    ),
    "mobilenet": Subject(
        mobilenet,
        (32, 3, 32, 32),
        lambda m: optim.Adam(two_groups(m, lr=5e-4), 1e-3, amsgrad=True),
        lambda o: lr_scheduler.MultiStepLR(o, [15, 30], 0.3),
    ),
    "gpt": Subject(
        Gpt,
        (16, 32),
        lambda m: optim.AdamW(two_groups(m, weight_decay=0.0), 3e-3, betas=(0.9, 0.95)),
        lambda o: lr_scheduler.OneCycleLR(o, 3e-3, total_steps=10_000),
    ),
}


class Train(dynamo.Graph):
    def __init__(self, model: nn.Module, optimizer: Any, lr_sch: Any, **options: Any) -> None:
        super().__init__(**options)
        self.model = model
        self.add_optimizer(optimizer, lr_sch)

    def build(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def eager_step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What a call of Train does, but for the scheduler."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    for group in optimizer.param_groups:
        if "clip_grad_max_norm" in group:
            nn.utils.clip_grad_norm_(group["params"], group["clip_grad_max_norm"])
    optimizer.step()
    return loss.detach()


def stepper(step: Callable[..., Any], model: Any, optimizer: Any, lr_sch: Any) -> Any:
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = step(model, optimizer, x, y)
        lr_sch.step()
        return loss

    return run


WAYS: dict[str, Callable[..., Any]] = {
    "eager": lambda *world: stepper(eager_step, *world),
    "dynamo.compile": lambda *world: stepper(dynamo.compile(eager_step), *world),
    "dynamo.Graph": Train,
}


def measure(subject: Subject, seconds: float) -> dict[str, dict[str, float]]:
    """By way: seconds of the first two steps, and of a step."""
    steps = {way: make(*subject.world()) for way, make in WAYS.items()}
    batch = next(subject.batches(1))
    found: dict[str, dict[str, float]] = {}
    for way, step in steps.items():
        start = time.perf_counter()
        step(*batch)
        step(*batch)
        found[way] = {"compile": time.perf_counter() - start}
        for _ in range(3):
            step(*batch)
    taken: dict[str, list[float]] = {way: [] for way in steps}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken["eager"]) < 5:
        for way, step in steps.items():
            start = time.process_time()
            step(*batch)
            taken[way].append(time.process_time() - start)
    for way, samples in taken.items():
        found[way]["step"] = min(samples)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subjects", nargs="*", default=[], help=", ".join(SUBJECTS))
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring a subject")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.subjects or SUBJECTS:
        dynamo.reset()
        found = measure(SUBJECTS[name], arguments.seconds)
        eager, compiled, graph = (found[way] for way in WAYS)
        rows.append(
            [
                name,
                f"{eager['step'] * 1e3:.2f}",
                f"{compiled['step'] * 1e3:.2f}",
                f"{graph['step'] * 1e3:.2f}",
                f"{eager['step'] / compiled['step']:.2f}",
                f"{eager['step'] / graph['step']:.2f}",
                f"{compiled['step'] / graph['step']:.2f}",
                f"{compiled['compile']:.1f}",
                f"{graph['compile']:.1f}",
            ]
        )
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; x: times as fast")
    headers = ["step", "eager ms", "compile ms", "Graph ms", "compile x", "Graph x"]
    headers += ["Graph x compile", "compile: first two s", "Graph: first two s"]
    print(tabulate(rows, headers, tablefmt="github"))


if __name__ == "__main__":
    main()
