"""Kernels of one operator or a short chain against eager, as ratios.

    python -m benchmarks.kernels                       # all, in cache and out of it, one thread
    python -m benchmarks.kernels gelu softmax --threads 1 2
    python -m benchmarks.kernels --peer                # torch.compile too

With one thread the figure is the thread's processor time, which other load on the machine does not
disturb; with more it is wall time. Each figure is the least of several runs; "ours" and "peer" are
eager's time over theirs, so that more is better.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from tabulate import tabulate

SIZES = {"cache": (256, 768), "memory": (4096, 4096)}  # rows, columns of float32
RUNS, RUN_S = 15, 0.01


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b)


# name: function of a matrix and two rows
KERNELS: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda x, w, b: x + 1,
    "relu": lambda x, w, b: x.relu(),
    "exp": lambda x, w, b: x.exp(),
    "log": lambda x, w, b: x.log(),
    "tanh": lambda x, w, b: x.tanh(),
    "erf": lambda x, w, b: x.erf(),
    "sigmoid": lambda x, w, b: x.sigmoid(),
    "silu": lambda x, w, b: F.silu(x),
    "gelu": lambda x, w, b: F.gelu(x),
    "gelu_tanh": lambda x, w, b: F.gelu(x, approximate="tanh"),
    "transpose": lambda x, w, b: x.t().contiguous(),
    "sum": lambda x, w, b: x.sum(),
    "sum_rows": lambda x, w, b: x.sum(1),
    "sum_columns": lambda x, w, b: x.sum(0),
    "mean_columns": lambda x, w, b: x.mean(0),
    "max_rows": lambda x, w, b: x.amax(1),
    "max_columns": lambda x, w, b: x.amax(0),
    "argmax": lambda x, w, b: x.argmax(),
    "argmax_rows": lambda x, w, b: x.argmax(1),
    "argmin_columns": lambda x, w, b: x.argmin(0),
    "var_rows": lambda x, w, b: x.var(1),
    "softmax": lambda x, w, b: torch.softmax(x, -1),
    "log_softmax": lambda x, w, b: torch.log_softmax(x, -1),
    "softmax_columns": lambda x, w, b: torch.softmax(x, 0),
    "layer_norm": layer_norm,
    "affine_relu_sum": lambda x, w, b: (x * w + b).relu().sum(1),
    "norm_gelu_softmax": lambda x, w, b: torch.softmax(F.gelu(layer_norm(x, w, b)), -1),
}


def ours(fn: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    import inductor
    from fxgraph import symbolic_trace

    return inductor.compile_graph(symbolic_trace(lambda x, w, b: (fn(x, w, b),)), list(inputs))


def least(clock: Callable[[], float], fn: Callable[..., Any], inputs: Sequence[Any]) -> float:
    """Seconds of one call."""
    fn(*inputs)
    start = clock()
    fn(*inputs)
    repeat = max(1, int(RUN_S / max(clock() - start, 1e-6)))
    best = float("inf")
    for _ in range(RUNS):
        start = clock()
        for _ in range(repeat):
            fn(*inputs)
        best = min(best, (clock() - start) / repeat)
    return best


def measure(name: str, size: tuple[int, int], threads: int, peer: bool) -> list[Any]:
    rows, columns = size
    inputs = [torch.randn(rows, columns), torch.randn(columns), torch.randn(columns)]
    fn = KERNELS[name]
    torch.set_num_threads(threads)
    clock = time.thread_time if threads == 1 else time.perf_counter
    eager = least(clock, fn, inputs)
    row: list[Any] = [eager * 1e6, eager / least(clock, ours(fn, inputs), inputs)]
    if peer:
        torch._dynamo.reset()
        row.append(eager / least(clock, torch.compile(fn), inputs))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=list(KERNELS), metavar="kernel")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--peer", action="store_true", help="time torch.compile as well")
    args = parser.parse_args()
    table = []
    with torch.no_grad():
        for name in args.names:
            for size in args.sizes:
                for threads in args.threads:
                    row = measure(name, SIZES[size], threads, args.peer)
                    table.append([name, size, threads, *row])
    head = ["kernel", "size", "threads", "eager us", "ours", "peer"]
    print(
        tabulate(table, headers=head[: 5 + args.peer], floatfmt=(None, "", "", ".1f", ".2f", ".2f"))
    )


if __name__ == "__main__":
    main()
