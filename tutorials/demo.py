"""`make demo`: compile DenseNet-121, watch it happen, and compare with eager."""

from __future__ import annotations

import logging
import statistics
import sys
import time
from pathlib import Path

import torch
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).parent.parent))

import dynamo
from tutorials.models import densenet121

CALLS = 10


def show_progress() -> None:
    """Print each compilation phase with its seconds as it ends (the `times` channel)."""
    start = time.perf_counter()

    class Progress(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print(f"  [{time.perf_counter() - start:6.2f} s] {record.getMessage()}", flush=True)

    for name in ("dynamo.times", "inductor.times"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(Progress())


def timed(fn, *args) -> float:
    start = time.perf_counter()
    fn(*args)
    return time.perf_counter() - start


def with_a_break(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x * 2, -1)
    if y.max() > 0.5:  # the data decide whether Python prints
        print("one class stands out")
    return y.log()


def main() -> None:
    torch.manual_seed(0)
    model = densenet121().eval()
    batch = torch.randn(4, 3, 128, 128)
    print("Compiling DenseNet-121 (random weights, 4 images of 128 x 128):")
    show_progress()
    compiled = dynamo.compile(model, fullgraph=True)
    with torch.no_grad():
        first = timed(compiled, batch)
        expected, actual = model(batch), compiled(batch)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
        eager = [timed(model, batch) for _ in range(CALLS)]
        ours = [timed(compiled, batch) for _ in range(CALLS)]
    eager_ms, ours_ms = (1000 * statistics.median(times) for times in (eager, ours))
    print("\nSame values as eager (float32 rounding). Times:")
    rows = [
        ("first call (compiles)", f"{first * 1000:.0f} ms", ""),
        ("eager", f"{eager_ms:.1f} ms", ""),
        ("compiled", f"{ours_ms:.1f} ms", f"{eager_ms / ours_ms:.2f}x eager's speed"),
    ]
    print(tabulate(rows, tablefmt="plain"))
    logging.getLogger("dynamo.times").setLevel(logging.WARNING)
    logging.getLogger("inductor.times").setLevel(logging.WARNING)
    with torch.no_grad():
        print("\nThe same model, explained:\n")
        print(dynamo.explain(compiled)(batch))
        print("\nA function whose graph must break, explained:\n")
        print(dynamo.explain(with_a_break)(torch.randn(8, 8)))


if __name__ == "__main__":
    main()
