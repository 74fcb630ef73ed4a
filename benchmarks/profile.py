"""Where a compiled call spends its time: kernel by kernel, library call by library call.

    python -m benchmarks.profile bert                  # a subject of benchmarks.subjects
    python -m benchmarks.profile resnet18 --rows 40 --calls 20
    python -m benchmarks.profile bert --trace bert.json   # a picture, for chrome://tracing
    python -m benchmarks.profile gpt2 --training       # a step: forward, mean of squares, backward
    python -m benchmarks.profile gpt2 --training --by eager    # what torch's own step calls
    python -m benchmarks.profile bert --dtype bfloat16
    python -m benchmarks.profile gpt2 --beside-eager --threads 1    # on a busy machine

Times are the least of all calls, of each step, by torch's own profiler, which slows each row down
by about a microsecond. GFLOP/s counts the products that the profiler knows, of generated kernels
those of matrices and of attention (half of a causal one); GB/s of a generated kernel counts each
operand once, read or written, and sizes that vary as 1.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from tabulate import tabulate

import dynamo
from benchmarks.subjects import SUBJECTS, narrow
from benchmarks.training import step as training_step
from benchmarks.training import watch
from inductor import pipeline
from inductor.runtime.plan import PlanSpec

PREFIX = "framegraph::"
PLAN = PREFIX + "plan"
BAR = 24  # characters of a whole share
PRODUCT = re.compile(r"product (?:(\d+) x )?(\d+)x(\d+)x(\d+)")  # labels of generated kernels
ATTENTION = re.compile(r"attention of (\d+) heads, (\d+)x(\d+)x(\d+)")
COMPILERS: dict[str, Callable[[Any], Any]] = {
    "framegraph": dynamo.compile,
    "torch.compile": lambda fn: torch.compile(fn, options={"fallback_random": True}),
    "eager": lambda fn: fn,
}


@contextmanager
def plans() -> Iterator[list[PlanSpec]]:
    """The plans that are linked in the block."""
    found: list[PlanSpec] = []

    def noted(spec: PlanSpec, *args: Any, **kwargs: Any) -> Any:
        found.append(spec)
        return link(spec, *args, **kwargs)

    link = pipeline.link
    with mock.patch.object(pipeline, "link", noted):
        yield found


def kernel_bytes(specs: list[PlanSpec]) -> dict[str, int]:
    """Of each label, the bytes of the operands of all kernels that have it."""
    found: dict[str, int] = defaultdict(int)
    for spec in specs:
        tensors = {t.name: t for t in (*spec.inputs, *spec.buffers) if hasattr(t, "stride")}
        for step in spec.steps:
            if step.kind == "kernel":
                operands = {name for name, _ in step.args} & tensors.keys()
                found[PREFIX + step.label] += sum(_bytes(tensors[name]) for name in operands)
    return dict(found)


def _bytes(tensor: Any) -> int:
    dtype = tensor.dtype if isinstance(tensor.dtype, torch.dtype) else getattr(torch, tensor.dtype)
    numel = math.prod(n for n in tensor.size if isinstance(n, int))
    return numel * dtype.itemsize


def label_flops(label: str) -> float:
    """Floating-point operations of a generated kernel's products, 0 where its label tells none."""
    if (product := PRODUCT.match(label)) is not None:
        return 2.0 * math.prod(int(n) for n in product.groups(default="1"))
    if (attention := ATTENTION.match(label)) is not None:
        both = 4.0 * math.prod(int(n) for n in attention.groups())
        return both / 2 if label.endswith("causal") else both
    return 0.0


def call_of(subject: str, by: str, training: bool, dtype: str = "float32") -> Callable[[], Any]:
    """A call of the subject, compiled or not."""
    torch.manual_seed(0)
    fn, inputs = SUBJECTS[subject]()
    narrow(fn, inputs, dtype)
    if not training:
        compiled = COMPILERS[by](fn)
        return torch.no_grad()(lambda: compiled(**inputs))
    watched = watch(fn, inputs)
    compiled = COMPILERS[by](fn)
    return lambda: training_step(compiled, inputs, watched)


def profile(
    subject: str,
    calls: int,
    trace: str | None = None,
    by: str = "framegraph",
    training: bool = False,
    dtype: str = "float32",
) -> list[list[Any]]:
    """Rows (share, picture, time of a call in us, calls, GFLOP/s, GB/s, name), largest first."""
    with plans() as specs:
        call = call_of(subject, by, training, dtype)
        for _ in range(3):
            call()
        with torch.profiler.profile(record_shapes=True, with_flops=True) as profiler:
            for _ in range(calls):
                call()
    if trace is not None:
        profiler.export_chrome_trace(trace)
    moved = kernel_bytes(specs)
    times: dict[str, list[float]] = defaultdict(list)
    for event in sorted(profiler.events(), key=lambda e: e.time_range.start):
        times[event.name].append(event.self_cpu_time_total)
    least = {name: _least(found, calls) for name, found in times.items()}
    events = [e for e in profiler.key_averages() if least.get(e.key, 0) > 0]
    whole = sum(least[e.key] for e in events)
    rows = []
    for event in sorted(events, key=lambda e: -least[e.key]):
        spent = least[event.key]
        share = spent / whole
        name = "(plan, between its steps)" if event.key == PLAN else event.key.removeprefix(PREFIX)
        count = event.count / calls
        flops = event.flops / calls if event.flops else count * label_flops(name)
        speed = flops / spent / 1e3 if flops else None
        bytes_moved = moved.get(event.key)
        rate = bytes_moved / spent / 1e3 if bytes_moved else None
        rows.append([share, "#" * round(share * BAR), spent, count, speed, rate, name])
    return rows


def _least(times: list[float], calls: int) -> float:
    """Of the calls' times one after another: the sum over a call of the least that each took."""
    if len(times) % calls:
        return sum(times) / calls
    each = len(times) // calls
    return sum(min(times[i::each]) for i in range(each))


def beside_eager(subject: str, calls: int, training: bool, dtype: str) -> tuple[float, float]:
    """Milliseconds of processor time that a call takes at least: eager's and ours, in turn. What
    else the machine does counts little; threads that wait for one another do count.
    """
    found = {by: call_of(subject, by, training, dtype) for by in ("eager", "framegraph")}
    least = dict.fromkeys(found, math.inf)
    for _ in range(3 + calls):  # the first ones compile
        for by, call in found.items():
            started = time.process_time()
            call()
            least[by] = min(least[by], time.process_time() - started)
    return least["eager"] * 1e3, least["framegraph"] * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("subject", choices=sorted(SUBJECTS))
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--rows", type=int, default=25)
    parser.add_argument("--training", action="store_true", help="a step of training")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--by", choices=list(COMPILERS), default="framegraph")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--trace", metavar="FILE", help="write the profiler's trace to this file")
    parser.add_argument("--beside-eager", action="store_true", help="processor time of calls alone")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.beside_eager:
        given = options.subject, options.calls, options.training, options.dtype
        eager, ours = beside_eager(*given)
        print(f"eager {eager:.2f} ms, ours {ours:.2f} ms: {eager / ours:.2f}")
        return
    rows = profile(
        options.subject, options.calls, options.trace, options.by, options.training, options.dtype
    )
    headers = ["share", "", "us a call", "times", "GFLOP/s", "GB/s", "kernel or library call"]
    formats = (".1%", "", ".1f", "g", ".1f", ".1f", "")
    print(tabulate(rows[: options.rows], headers, floatfmt=formats))
    print(f"{sum(row[2] for row in rows):.1f} us a call in all")


if __name__ == "__main__":
    main()
