"""Programs whose sizes and numbers depend on data, beside eager and torch.compile.

    python -m benchmarks.data                          # all of them, inference and training
    python -m benchmarks.data mixture --systems eager framegraph

Each program is called with several inputs of different data, twice, so that all is compiled, then
15 times more with all of them. Times are of the processor, of one thread, for one call: the least
of these turns. Each system has a process of its own. graphs: those of the first call, and all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from tabulate import tabulate
from torch import Tensor, nn

from benchmarks.dynamic import EAGER, OURS, PEER, compiler

TURNS = 15


class Expert(nn.Module):
    """A gated MLP."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Mixture(nn.Module):
    """Eight experts, of which each token (n, 128) has the two that score highest."""

    def __init__(self, width: int = 128, experts: int = 8, best: int = 2) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, 2 * width) for _ in range(experts))
        self.best = best

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(self.best, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, slots = torch.where(chosen == number)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, slots, None])
        return out

    def inputs(self) -> Iterator[tuple[Tensor, ...]]:
        for _ in range(6):
            yield (torch.randn(256, 128),)


class Detection(nn.Module):
    """Boxes and scores of 400 anchors (400, 64); those that score, without what others overlap."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.boxes = nn.Linear(width, 4)
        self.scores = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = F.relu(self.hidden(x))
        corner, size = self.boxes(hidden).sigmoid().chunk(2, -1)
        boxes = torch.cat([corner, corner + size * 0.3], -1)
        scores = self.scores(hidden).sigmoid()[:, 0]
        chosen = scores > 0.5
        boxes, scores = boxes[chosen], scores[chosen]
        order = scores.detach().argsort(descending=True)
        boxes, scores = boxes[order], scores[order]
        kept = ~(overlap(boxes.detach()) > 0.5).triu(1).any(0)
        return boxes[kept], scores[kept]

    def inputs(self) -> Iterator[tuple[Tensor, ...]]:
        for _ in range(6):
            yield (torch.randn(400, 64),)


def overlap(boxes: Tensor) -> Tensor:
    """Intersection over union of boxes (n, 4), each with each: (n, n)."""
    low = torch.max(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.min(boxes[:, None, 2:], boxes[None, :, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    return both / (area[:, None] + area[None] - both)


class Packed(nn.Module):
    """Attention within each of several sequences that stand in one (n,), and their means."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.head = nn.Linear(width, 8)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x = self.embedding(tokens)
        means = []
        for part in x.split(lengths.tolist()):
            scores = self.query(part) @ self.key(part).T / 8
            means.append((scores.softmax(-1) @ self.value(part)).mean(0))
        return self.head(torch.stack(means))

    def inputs(self) -> Iterator[tuple[Tensor, ...]]:
        for lengths in ((30, 50, 20, 28), (64, 16, 40, 8), (32, 32, 32, 32), (100, 9, 9, 10)):
            yield torch.randint(1000, (sum(lengths),)), torch.tensor(lengths)


class Beams(nn.Module):
    """One step of a beam search over 1000 words with 8 beams, of which those that end are left."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.cell = nn.GRUCell(width, width)
        self.embedding = nn.Embedding(1000, width)
        self.words = nn.Linear(width, 1000)

    def forward(self, state: Tensor, words: Tensor, scores: Tensor) -> tuple[Tensor, ...]:
        state = self.cell(self.embedding(words), state)
        found = scores[:, None] + self.words(state).log_softmax(-1)
        best, places = found.flatten().topk(len(scores))
        beams, words = places // 1000, places % 1000
        going = words % 5 != 0
        return state[beams][going], words[going], best[going]

    def inputs(self) -> Iterator[tuple[Tensor, ...]]:
        for _ in range(6):
            yield torch.randn(8, 64), torch.randint(1000, (8,)), torch.randn(8)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "mixture": Mixture, "detection": Detection, "packed": Packed, "beams": Beams,
}  # fmt: skip


def child(system: str, name: str, training: bool) -> dict[str, Any]:
    """Measure one system in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = PROGRAMS[name]()
    inputs = list(model.inputs())
    compiled, compiles = compiler(system)(model)

    def call(given: tuple[Tensor, ...]) -> Any:
        if not training:
            with torch.no_grad():
                return compiled(*given)
        result = compiled(*given)
        results = result if isinstance(result, tuple) else (result,)
        sum(r.sum() for r in results if r.requires_grad).backward()
        return result

    start, graphs = time.process_time(), []
    for _ in range(2):
        for given in inputs:
            call(given)
            graphs.append(compiles())
    first = time.process_time() - start
    best = float("inf")
    for _ in range(TURNS):
        start = time.process_time()
        for given in inputs:
            call(given)
        best = min(best, (time.process_time() - start) / len(inputs))
    for given in inputs:
        torch.testing.assert_close(call(given), model(*given), rtol=1e-3, atol=1e-4)
    return {"us": best * 1e6, "first": first, "graphs": f"{graphs[0]}, {graphs[-1]}"}


def measure(system: str, name: str, training: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.data", "--child", system, name]
    found = subprocess.run(
        [*command, *(["--training"] if training else [])], capture_output=True, text=True
    )
    if found.returncode:
        return {"us": float("nan"), "first": float("nan"), "graphs": found.stderr[-200:]}
    return json.loads(found.stdout.splitlines()[-1])


def table(names: Sequence[str], systems: Sequence[str]) -> str:
    rows = []
    for name in names:
        for training in (False, True):
            found = {system: measure(system, name, training) for system in systems}
            row = [name, "training" if training else "inference"]
            row += [f"{found[system]['us']:.0f}" for system in systems]
            row += [found[system]["graphs"] for system in systems if system != EAGER]
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    headers = ["program", "", *(f"{system}, us" for system in systems)]
    headers += [f"graphs, {system}" for system in systems if system != EAGER]
    return tabulate(rows, headers=headers, tablefmt="pipe")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data", description=__doc__)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--systems", nargs="+", default=[EAGER, PEER, OURS])
    parser.add_argument("--child", metavar="SYSTEM", help=argparse.SUPPRESS)
    parser.add_argument("--training", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child, options.programs[0], options.training)))
        return
    print(table(options.programs, options.systems))


if __name__ == "__main__":
    main()
