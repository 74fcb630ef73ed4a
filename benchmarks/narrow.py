"""Layers of a language model's size with weights of float32, half precision and int8, at few rows.

    python -m benchmarks.narrow [--rows 1 8] [--peer]

Prints ms of a call: eager, ours, and torch.compile's with --peer. Three pairs of layers, 2048 to
5504 and back, so that no weight stays in a cache.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
import warnings
from collections.abc import Callable

import torch
from tabulate import tabulate
from torch import nn

import dynamo

SMALL, LARGE, PAIRS = 2048, 5504, 3
CALLS = 15


class Int8(nn.Module):
    def __init__(self, inner: int, columns: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 127, (columns, inner)).to(torch.int8))
        self.register_buffer("scales", torch.rand(columns) / 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int8pack_mm(x, self.weight, self.scales.to(x.dtype))


def layers(kind: Callable[[int, int], nn.Module]) -> nn.Module:
    pairs = [[kind(SMALL, LARGE), nn.SiLU(), kind(LARGE, SMALL)] for _ in range(PAIRS)]
    return nn.Sequential(*(layer for pair in pairs for layer in pair)).eval()


def milliseconds(fn: Callable[..., object], x: torch.Tensor) -> float:
    least = float("inf")
    for _ in range(CALLS + 2):
        started = time.perf_counter()
        fn(x)
        least = min(least, time.perf_counter() - started)
    return least * 1e3


def peer(module: nn.Module, x: torch.Tensor) -> float:
    """torch.compile's time; NaN where it fails."""
    torch._dynamo.reset()
    try:
        return milliseconds(torch.compile(module), x)
    except Exception as error:
        print(f"torch.compile: {type(error).__name__}: {str(error).splitlines()[0]}")
        return math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--peer", action="store_true", help="torch.compile, too")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    plain, int8 = layers(nn.Linear), layers(Int8)
    subjects = {
        "float32": (plain, torch.float32),
        "bfloat16": (copy.deepcopy(plain).bfloat16(), torch.bfloat16),
        "float16": (copy.deepcopy(plain).half(), torch.float16),
        "int8, float32": (int8, torch.float32),
        "int8, bfloat16": (int8, torch.bfloat16),
    }
    table = []
    for rows in arguments.rows:
        for name, (module, dtype) in subjects.items():
            x = torch.randn(rows, SMALL).to(dtype)
            with torch.no_grad():
                times = [milliseconds(module, x), milliseconds(dynamo.compile(module), x)]
                if arguments.peer:
                    times.append(peer(module, x))
            table.append([rows, name, *times, times[0] / times[1]])
    peers = ["torch.compile"] if arguments.peer else []
    headers = ["rows", "weights", "eager ms", "ours", *peers, "eager/ours"]
    print(tabulate(table, headers=headers, tablefmt="github", floatfmt=".2f"))


if __name__ == "__main__":
    main()
