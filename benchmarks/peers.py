"""Steady time beside every setting of torch.compile, as ratios to eager.

    python -m benchmarks.peers                       # inference, every subject but add_one
    python -m benchmarks.peers --training            # a step of training (benchmarks/training.py)
    python -m benchmarks.peers resnet18 bert --seconds 2 --threads 1
    python -m benchmarks.peers --settings default freezing
    python -m benchmarks.peers bert vit --dtype bfloat16

Each figure comes from a process of its own, on empty caches, that calls eager and the compiled
function in turn: the median of eager's time over the compiled time of the same turn, and the half
width of the middle half of these ratios. "best" is the least median time of a call of
torch.compile's settings over ours: eager's time varies between processes with what the allocator
of the C library gives back to the system, so that ratios to it do not divide.
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


def child(system: str, subject: str, seconds: float, dtype: str, trains: bool) -> dict[str, float]:
    """Measure one subject under one compiler in this process."""
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
        peak = peak_flops()
        pairs = in_turns(lambda: run(fn), lambda: run(compiled), seconds)
    ratios = [eager / own for eager, own in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    call = statistics.median(own for _, own in pairs)
    return {
        "eager": statistics.median(eager for eager, _ in pairs),
        "call": call,
        "cold": cold,
        "ratio": middle,
        "spread": (high - low) / 2,
        "roofline": flops.get_total_flops() / call / peak,
    }


def in_turns(
    first: Callable[[], Any], second: Callable[[], Any], seconds: float
) -> list[tuple[float, float]]:
    """Seconds of a call of each, turn by turn."""
    once = min(timed(first, 1), timed(second, 1))
    inner = max(1, min(2000, int(0.004 / once)))
    end = time.perf_counter() + seconds
    pairs: list[tuple[float, float]] = []
    while time.perf_counter() < end or len(pairs) < 7:
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


def measure(system: str, subject: str, options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "torch"),
            "DYNAMO_CACHE_DIR": os.path.join(cache, "dynamo"),
        }
        if options.threads:
            environment["OMP_NUM_THREADS"] = str(options.threads)
        command = [sys.executable, "-m", "benchmarks.peers", "--child", system, subject]
        trains = ["--training"] if options.training else []
        done = subprocess.run(
            [*command, "--seconds", str(options.seconds), "--dtype", options.dtype, *trains],
            env=environment,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        print(f"{system} on {subject} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def row(subject: str, found: dict[str, dict[str, float]]) -> list[str]:
    def ratio(one: dict[str, float]) -> str:
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


def best_ratio(found: dict[str, dict[str, float]]) -> float | None:
    """The least time of a call of torch.compile's settings over ours."""
    peers = [one["call"] for system, one in found.items() if system != OURS and one]
    return min(peers) / found[OURS]["call"] if peers and found[OURS] else None


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
        arguments = options.child, subject, options.seconds, options.dtype, options.training
        print(json.dumps(child(*arguments)))
        return
    systems = [OURS, *options.settings]
    headers = ["subject", "eager ms", *systems, "best", "roofline", "cold s: ours"]
    headers += options.settings
    rows, bests = [], []
    for subject in options.subjects:
        print(f"measuring {subject} ...", file=sys.stderr, flush=True)
        found = {system: measure(system, subject, options) for system in systems}
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
