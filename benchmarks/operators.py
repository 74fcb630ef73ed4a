"""How fast single operators and small groups that models use are, eager's time over ours.

    python -m benchmarks.operators [name ...]                # rows slower than eager, all dtypes
    python -m benchmarks.operators pooling --below 9         # every row of a group
    python -m benchmarks.operators layers --peer       # torch.compile with freezing, in our place

Each case runs at three sizes in float32 and bfloat16, forward and as a step of training. Processor
time of one thread, the least of calls in turn with eager's; the compiler's cache is the usual one.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tabulate import tabulate

import dynamo
from benchmarks.operator_cases import GROUPS

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_SECONDS, _LEAST_CALLS, _BATCH_S = 0.15, 9, 40e-6


def inputs_of(values: list[torch.Tensor], dtype: torch.dtype, training: bool) -> list[torch.Tensor]:
    cast = [value.to(dtype) if value.is_floating_point() else value for value in values]
    return [v.requires_grad_(training and v.is_floating_point()) for v in cast]


def caller(
    function: Callable[..., Any], values: list[torch.Tensor], training: bool
) -> Callable[[], Any]:
    """A call; in training with the backward of its first floating-point result."""
    if not training:

        def forward() -> Any:
            with torch.no_grad():
                return function(*values)

        return forward
    floats = [value for value in values if value.requires_grad]

    def first(result: Any) -> torch.Tensor:
        leaves = result if isinstance(result, (list, tuple)) else [result]
        return next(leaf for leaf in leaves if leaf.requires_grad)

    grad = torch.randn_like(first(function(*values)))

    def step() -> Any:
        return torch.autograd.grad(first(function(*values)), floats, grad, allow_unused=True)

    return step


def least_of_both(eager: Callable[[], Any], ours: Callable[[], Any]) -> tuple[float, float]:
    """The least seconds of a call of each, in turn; several calls a turn where one is short."""
    calls = (eager, ours)
    repeats = []
    for called in calls:
        called(), called()
        began = time.process_time()
        called()
        repeats.append(max(1, min(200, int(_BATCH_S / max(1e-7, time.process_time() - began)))))
    least = [math.inf, math.inf]
    started, turn = time.process_time(), 0
    while turn < _LEAST_CALLS or time.process_time() - started < _SECONDS:
        for index, called in enumerate(calls):
            before = time.process_time()
            for _ in range(repeats[index]):
                called()
            least[index] = min(least[index], (time.process_time() - before) / repeats[index])
        turn += 1
    return least[0], least[1]


def rows(
    names: list[str], dtypes: list[str], sizes: list[int]
) -> Iterator[tuple[float, str, float, float]]:
    for group, cases in GROUPS.items():
        for name, (function, make, trains) in cases.items():
            if names and group not in names and name not in names:
                continue
            for dtype in dtypes:
                for training in (False, True)[: 1 + trains]:
                    for size in sizes:
                        label = f"{name} {size} {dtype} {'training' if training else 'forward'}"
                        try:
                            yield measure(label, function, make, size, DTYPES[dtype], training)
                        except Exception as error:
                            print(
                                f"{label}: {type(error).__name__}: {str(error)[:120]}", flush=True
                            )
            gc.collect()


def by_peer(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch._inductor.config as config

    torch.compiler.reset()
    config.freezing = True
    compiled: Callable[..., Any] = torch.compile(function)
    return compiled


COMPILE: list[Callable[..., Callable[..., Any]]] = [dynamo.compile]


def measure(
    label: str, function: Any, make: Any, size: int, dtype: torch.dtype, training: bool
) -> tuple[float, str, float, float]:
    torch.manual_seed(0)
    dynamo.reset()
    values = inputs_of(make(size), dtype, training)
    eager = caller(function, values, training)
    ours = caller(COMPILE[-1](function), values, training)
    eager_s, ours_s = least_of_both(eager, ours)
    return eager_s / ours_s, label, eager_s * 1e6, ours_s * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument("--size", type=int, choices=range(3), action="append")
    parser.add_argument("--below", type=float, default=1.0, help="the ratio of rows to show")
    parser.add_argument("--peer", action="store_true", help="measure torch.compile")
    given = parser.parse_args()
    if given.peer:
        COMPILE.append(by_peer)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = sorted(rows(given.names, given.dtype or list(DTYPES), given.size or list(range(3))))
    mean = math.exp(sum(math.log(row[0]) for row in found) / max(1, len(found)))
    slower = [row for row in found if row[0] < given.below]
    print(f"{len(found)} rows, geometric mean {mean:.2f}, below {given.below}: {len(slower)}")
    table = [[label, f"{r:.2f}", f"{e:.1f}", f"{o:.1f}"] for r, label, e, o in slower]
    head = ["case", "eager/ours", "eager us", "ours"]
    print(tabulate(table, headers=head, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
