"""Steady time beside every setting of torch.compile, as ratios to eager.

    python -m benchmarks.peers                       # inference, every subject but add_one
    python -m benchmarks.peers --training            # a step of training (benchmarks/training.py)
    python -m benchmarks.peers resnet18 bert --seconds 2 --threads 1
    python -m benchmarks.peers --settings default freezing
    python -m benchmarks.peers bert vit --dtype bfloat16

Each figure comes from a process of its own, on empty caches, that calls eager and the compiled
function in turn: the median of eager's time over the compiled time of the same turn, and the half
width of the middle half of these ratios. All processes of a subject live at once and measure in
turns, one at a time, so that a machine whose speed varies (virtual machines' neighbours) slows all
alike. "best": for each of torch.compile's settings, the median over turns of its time of a call
over ours in the same turn; the least of them. Eager's time varies between processes with what the
allocator of the C library gives back to the system, so that ratios to it do not divide.
"roofline" is the share of the machine's peak, as a product of two 1024x1024 matrices reaches it
just before, that the model's products and convolutions reach in our call. Weights of training are
not frozen: the setting "freezing" is left out there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tabulate import tabulate

from benchmarks import training
from benchmarks.inference import OURS, check

# Name -> settings of torch.compile: its arguments, and torch._inductor.config.
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": ({}, {}),
    "freezing": ({}, {"freezing": True}),
    "max-autotune": ({"mode": "max-autotune-no-cudagraphs"}, {"freezing": True}),
}
PEAK_SIZE = 1024
TURNS = 8


def compiled_by(system: str, fn: Callable[..., Any], trains: bool) -> Callable[..., Any]:
    if system == OURS:
        import dynamo

        return dynamo.compile(fn)
    import torch
    import torch._inductor.config as config

    arguments, settings = SETTINGS[system]
    for name, value in settings.items():
        setattr(config, name, value and not (trains and name == "freezing"))
    config.fallback_random = trains  # the numbers that eager draws for dropout
    return torch.compile(fn, **arguments)


def child(system: str, subject: str, dtype: str, trains: bool) -> None:
    """Measure one subject under one compiler in this process, one turn for each line of input.

    Prints a line of JSON once the function is compiled, and one for each turn.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from benchmarks.subjects import SUBJECTS, narrow

    torch.manual_seed(0)
    fn, inputs = SUBJECTS[subject]()
    exact = None
    if trains and dtype != "float32":
        exact = training.step(fn, inputs, training.watch(fn, inputs))
    narrow(fn, inputs, dtype)
    watched = training.watch(fn, inputs) if trains else []

    def run(function: Callable[..., Any]) -> Any:
        return training.step(function, inputs, watched) if trains else function(**inputs)

    with torch.set_grad_enabled(trains):
        with FlopCounterMode(display=False) as flops:
            expected = run(fn)
        compiled = compiled_by(system, fn, trains)
        start = time.perf_counter()
        if trains:
            training.check(run(compiled), expected, exact)
        else:
            check(run(compiled), expected)
        cold = time.perf_counter() - start
        for _ in range(3):
            run(compiled)
        print(json.dumps({"cold": cold, "flops": flops.get_total_flops()}), flush=True)
        for seconds in map(float, sys.stdin):
            peak = peak_flops()
            pairs = in_turns(lambda: run(fn), lambda: run(compiled), seconds)
            print(json.dumps({"peak": peak, "pairs": pairs}), flush=True)


def in_turns(
    first: Callable[[], Any], second: Callable[[], Any], seconds: float
) -> list[tuple[float, float]]:
    """Seconds of a call of each, turn by turn."""
    once = min(timed(first, 1), timed(second, 1))
    inner = max(1, min(2000, int(0.004 / once)))
    end = time.perf_counter() + seconds
    pairs: list[tuple[float, float]] = []
    while time.perf_counter() < end or len(pairs) < 2:
        pairs.append((timed(first, inner), timed(second, inner)))
    return pairs


def timed(fn: Callable[[], Any], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        fn()
    return (time.perf_counter() - start) / times


def peak_flops() -> float:
    """Floating-point operations a second of a large product."""
    import torch

    a = torch.rand(PEAK_SIZE, PEAK_SIZE)
    out = torch.empty_like(a)
    best = min(timed(lambda: torch.mm(a, a, out=out), 1) for _ in range(12))
    return 2 * PEAK_SIZE**3 / best


class Child:
    """A process that has compiled `subject` by `system` and measures when asked."""

    def __init__(self, system: str, subject: str, options: argparse.Namespace) -> None:
        self.cache = tempfile.TemporaryDirectory()
        self.errors = Path(self.cache.name, "errors")
        self.pairs: list[tuple[float, float]] = []
        self.calls: list[float] = []  # the median seconds of a call in each turn
        self.peaks: list[float] = []
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(self.cache.name, "torch"),
            "DYNAMO_CACHE_DIR": os.path.join(self.cache.name, "dynamo"),
        }
        if options.threads:
            environment["OMP_NUM_THREADS"] = str(options.threads)
        command = [sys.executable, "-m", "benchmarks.peers", "--child", system, subject]
        trains = ["--training"] if options.training else []
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*command, "--dtype", options.dtype, *trains],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.compiled = self._answer()
        if self.compiled is None:
            reason = self.errors.read_text()[-2000:]
            print(f"{system} on {subject} failed:\n{reason}", file=sys.stderr)

    def _answer(self) -> dict[str, Any] | None:
        """The next line of JSON that the process prints; None once it has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        return None

    def turn(self, seconds: float) -> None:
        if self.compiled is None:
            return
        assert self.process.stdin is not None
        print(seconds, file=self.process.stdin, flush=True)
        if (answer := self._answer()) is None:
            self.compiled = None
            return
        self.pairs += answer["pairs"]
        self.calls.append(statistics.median(own for _, own in answer["pairs"]))
        self.peaks.append(answer["peak"])

    def result(self) -> dict[str, Any]:
        """The figures of all turns; nothing where the process failed."""
        self.process.communicate()
        self.cache.cleanup()
        if self.compiled is None:
            return {}
        low, middle, high = statistics.quantiles((e / own for e, own in self.pairs), n=4)
        call = statistics.median(own for _, own in self.pairs)
        return {
            "eager": statistics.median(eager for eager, _ in self.pairs),
            "calls": self.calls,
            "cold": self.compiled["cold"],
            "ratio": middle,
            "spread": (high - low) / 2,
            "roofline": self.compiled["flops"] / call / max(self.peaks),
        }


def measure(
    systems: list[str], subject: str, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """The figures of each system: compiled one after the other, measured in turns."""
    children = {system: Child(system, subject, options) for system in systems}
    for _ in range(TURNS):
        for one in children.values():
            one.turn(options.seconds / TURNS)
    return {system: one.result() for system, one in children.items()}


def row(subject: str, found: dict[str, dict[str, Any]]) -> list[str]:
    def ratio(one: dict[str, Any]) -> str:
        return f"{one['ratio']:.2f} ± {one['spread']:.2f}" if one else "-"

    ours = found[OURS]
    best = best_ratio(found)
    return [
        subject,
        f"{ours['eager'] * 1e3:.2f}" if ours else "-",
        *(ratio(one) for one in found.values()),
        f"{best:.2f}" if best else "-",
        f"{ours['roofline']:.0%}" if ours.get("roofline") else "-",
        f"{ours['cold']:.1f}" if ours else "-",
        *(f"{one['cold']:.1f}" if one else "-" for s, one in found.items() if s != OURS),
    ]


def best_ratio(found: dict[str, dict[str, Any]]) -> float | None:
    """The time of a call of torch.compile's best setting over ours, turn by turn."""
    ours = found[OURS].get("calls", [])
    ratios = [
        statistics.median(theirs / own for theirs, own in zip(one["calls"], ours))
        for system, one in found.items()
        if system != OURS and one and ours
    ]
    return min(ratios, default=None)


def main() -> None:
    from benchmarks.subjects import SUBJECTS

    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    every = [name for name in SUBJECTS if name != "add_one"]
    parser.add_argument("subjects", nargs="*")
    parser.add_argument("--training", action="store_true", help="a step, not a call of inference")
    parser.add_argument("--settings", nargs="*", choices=list(SETTINGS))
    parser.add_argument("--seconds", type=float, default=3.0, help="call-time budget of one figure")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--threads", type=int, help="of every process")
    parser.add_argument("--child", choices=[*SETTINGS, OURS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.subjects = options.subjects or (training.SUBJECTS if options.training else every)
    if options.settings is None:
        options.settings = [one for one in SETTINGS if not (options.training and one == "freezing")]
    if unknown := set(options.subjects) - set(SUBJECTS):
        parser.error(f"no subject {', '.join(unknown)}; the subjects are: {', '.join(SUBJECTS)}")
    if options.child:
        (subject,) = options.subjects
        child(options.child, subject, options.dtype, options.training)
        return
    systems = [OURS, *options.settings]
    headers = ["subject", "eager ms", *systems, "best", "roofline", "cold s: ours"]
    headers += options.settings
    rows, bests = [], []
    for subject in options.subjects:
        print(f"measuring {subject} ...", file=sys.stderr, flush=True)
        found = measure(systems, subject, options)
        rows.append(row(subject, found))
        if (best := best_ratio(found)) is not None:
            bests.append(best)
        print(tabulate([rows[-1]], headers=headers), file=sys.stderr, flush=True)
    print(tabulate(rows, headers=headers, tablefmt="github"))
    if bests:
        mean = math.exp(statistics.fmean(map(math.log, bests)))
        print(f"\nours over the best of torch.compile, geometric mean of {len(bests)}: {mean:.2f}")


if __name__ == "__main__":
    main()
