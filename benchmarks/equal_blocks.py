"""Calls of equal modules that are compiled one by one: the first, the second and the last of them.

    python -m benchmarks.equal_blocks [--count 12] [--peer]

Processor time of one thread, the least of many, in turns. --peer: by torch.compile.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import dynamo

ROUNDS, CALLS = 20, 50


def linear(size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(size, size), nn.ReLU())


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2))
        self.q, self.k, self.v, self.out = (nn.Linear(size, size) for _ in range(4))
        self.perceptron = nn.Sequential(
            nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        heads = [f(y).unflatten(-1, (8, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)]
        mixed = nn.functional.scaled_dot_product_attention(*heads)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.perceptron(self.norms[1](x))


CASES: dict[str, tuple[Callable[[int], nn.Module], int, tuple[int, ...]]] = {
    "linear 256, 1 row": (linear, 256, (1, 256)),
    "linear 256, 16 rows": (linear, 256, (16, 256)),
    "block 256, 16 rows": (Block, 256, (1, 16, 256)),
    "block 512, 16 rows": (Block, 512, (1, 16, 512)),
}


def seconds(call: Callable[[torch.Tensor], Any], x: torch.Tensor, times: int) -> float:
    begun = time.process_time()
    for _ in range(times):
        call(x)
    return (time.process_time() - begun) / times


@torch.no_grad()
def measure(name: str, count: int, compiler: Callable[[nn.Module], Any]) -> str:
    make, size, shape = CASES[name]
    x, calls = torch.randn(shape), []
    begun = time.process_time()
    for _ in range(count):
        calls.append(compiler(make(size).eval()))
        calls[-1](x)
    compiled = time.process_time() - begun
    best = {number: float("inf") for number in sorted({0, 1, count - 1})}
    for _ in range(ROUNDS):
        for number in best:
            calls[number](x)
            best[number] = min(best[number], seconds(calls[number], x, CALLS))
    cells = [f"{1e6 * value:.1f}" for value in best.values()]
    return f"| {name} | {' | '.join(cells)} | {compiled:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--peer", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    compiler: Any = torch.compile if args.peer else dynamo.compile
    print("| modules | us: first | second | last | first calls, s |")
    for name in CASES:
        print(measure(name, args.count, compiler), flush=True)


if __name__ == "__main__":
    main()
