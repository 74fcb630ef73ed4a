"""How fast a call of each architecture of transformers is, ours over eager's.

    python -m benchmarks.architecture_speed [--training] [name ...]

The models are small: calls show what hooks, guards, launches and small kernels take, and a graph
that runs op by op stands out. Processor time of one thread, the least of calls in turn with
eager's; a process per mode, which goes on behind a model that fails.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
import warnings
from typing import Any

import torch
from tabulate import tabulate

import dynamo
from benchmarks.architectures import FORWARD, TRAINING, call, difference, subject

_SECONDS, _LEAST_CALLS, _MOST_CALLS = 0.8, 3, 40


def step(model: Any, inputs: dict[str, Any], mode: str) -> None:
    """A call without copies of its results; in training with its backward."""
    if mode == FORWARD:
        with torch.no_grad():
            model(**inputs)
        return
    model.zero_grad()
    model(**inputs).loss.backward()


def measure(name: str, mode: str) -> tuple[float, float, float]:
    """Eager's and our least milliseconds, and the largest difference of two calls' results."""
    dynamo.reset()
    (eager, inputs), (model, _) = subject(name, mode), subject(name, mode)
    compiled = dynamo.compile(model)
    gap = 0.0
    for _ in range(2):
        gap = max(gap, difference(call(compiled, inputs, mode), call(eager, inputs, mode)))
        eager.zero_grad(), model.zero_grad()
    least = [math.inf, math.inf]
    started = time.process_time()
    for turn in range(_MOST_CALLS):
        if turn >= _LEAST_CALLS and time.process_time() - started > _SECONDS:
            break
        for index, called in enumerate((eager, compiled)):
            before = time.process_time()
            step(called, inputs, mode)
            least[index] = min(least[index], time.process_time() - before)
    return least[0] * 1e3, least[1] * 1e3, gap


def main() -> None:
    from tests.models.architectures import ARCHITECTURES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--rows", type=int, default=15, help="how many of the slowest are shown")
    given = parser.parse_args()
    mode = TRAINING if given.training else FORWARD
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows, failed = [], []
    for name in given.names or ARCHITECTURES:
        if mode == TRAINING and not ARCHITECTURES[name].trains:
            continue
        try:
            eager, ours, gap = measure(name, mode)
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}".splitlines()[0])
        else:
            rows.append((eager / ours, name, eager, ours, gap))
        gc.collect()
    rows.sort()
    mean = math.exp(sum(math.log(row[0]) for row in rows) / max(1, len(rows)))
    slower = sum(row[0] < 1 for row in rows)
    print(
        f"{mode}: {len(rows)} architectures, geometric mean {mean:.2f} of eager's speed, "
        f"{slower} slower"
    )
    table = [
        [name, f"{ratio:.2f}", f"{e:.2f}", f"{o:.2f}", f"{d:.0e}"] for ratio, name, e, o, d in rows
    ]
    head = ["the slowest", "eager/ours", "eager ms", "ours", "difference"]
    print(tabulate(table[: given.rows], headers=head, tablefmt="github", disable_numparse=True))
    print("\n".join(failed))


if __name__ == "__main__":
    main()
