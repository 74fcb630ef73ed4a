"""Products of one matrix as one on the CPU: how much faster than one after another.

    python -m benchmarks.joint [--threads 2] [--rows 1 8 128] [--dtype float32]

Queries, keys and values with their attention, and gated layers, of one sequence and of the widths
of models: each compiled twice in one process, with the weights put together and with them apart
(inductor/joint_products.py chooses by rows), called in turn. The least time of calls: of the
processor with one thread; with several, of the clock, for machines that are not busy.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
import torch.nn as nn
import torch.nn.functional as F
from tabulate import tabulate

import dynamo
from benchmarks.operators import DTYPES
from inductor import joint_products


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, keys: int, bias: bool) -> None:
        super().__init__()
        self.size = width // heads
        self.q, self.k, self.v = (
            nn.Linear(width, count * self.size, bias) for count in (heads, keys, keys)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        grouped = q.shape[1] != k.shape[1]
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped)
        return y.transpose(1, 2).flatten(2)


class Gated(nn.Module):
    def __init__(self, width: int, inner: int, activation: Callable[..., Any]) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, inner, False) for _ in range(2))
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self.activation(self.gate(x)) * self.up(x)
        return value


LAYERS: dict[str, Callable[[], tuple[int, nn.Module]]] = {
    "q, k, v of 256": lambda: (256, Attention(256, 4, 4, True)),
    "q, k, v of vit-s (384)": lambda: (384, Attention(384, 6, 6, True)),
    "q, k, v of bert, gpt2 (768)": lambda: (768, Attention(768, 12, 12, True)),
    "q, k, v of llama (2048, grouped)": lambda: (2048, Attention(2048, 32, 8, False)),
    "gate, up of t5 (512, gelu)": lambda: (512, Gated(512, 1024, F.gelu)),
    "gate, up of llama (768, silu)": lambda: (768, Gated(768, 2048, F.silu)),
}


def compiled(module: nn.Module, x: torch.Tensor, joint: bool) -> Callable[[], Any]:
    """A call of the module, with such products as one or one after another."""
    called = dynamo.compile(lambda x: module(x))
    with (
        patch.object(joint_products, "_most_rows", lambda tuning: math.inf),
        patch.object(joint_products, "_pays_on_cpu", lambda group, measured: joint),
    ):
        called(x)
    return lambda: called(x)


def least(calls: list[Callable[[], Any]], seconds: float) -> list[float]:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    found = [math.inf] * len(calls)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for index, call in enumerate(calls):
            started = clock()
            for _ in range(3):
                call()
            found[index] = min(found[index], (clock() - started) / 3)
    return found


def ratios(rows: list[int], dtypes: list[str], seconds: float) -> Iterator[list[str]]:
    for dtype in dtypes:
        for name, make in LAYERS.items():
            width, module = make()
            module = module.eval().to(DTYPES[dtype])
            found = [name, dtype]
            for count in rows:
                dynamo.reset()
                x = torch.randn(1, count, width).to(DTYPES[dtype])
                apart, joint = least([compiled(module, x, it) for it in (False, True)], seconds)
                found.append(f"{apart / joint:.2f} ({apart * 1e6:.0f})")
            yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32, 128, 512])
    parser.add_argument("--dtype", choices=DTYPES, nargs="*", default=list(DTYPES))
    parser.add_argument("--seconds", type=float, default=1.0, help="for each ratio")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with torch.no_grad():
        table = list(ratios(given.rows, given.dtype, given.seconds))
    head = ["apart/joint (us apart)", "dtype", *(f"{n} rows" for n in given.rows)]
    print(tabulate(table, headers=head, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
