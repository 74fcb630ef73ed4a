"""Eager, torch.compile and framegraph side by side, as ratios.

    python -m benchmarks.inference                 # every subject
    python -m benchmarks.inference resnet18 bert   # some
    python -m benchmarks.inference --ours-only add_one

Each figure of a compiler comes from processes of its own with empty caches: the first measures the
cold compile (first call) and then calls compiled and eager in turn; a second process on the same
caches measures the warm compile. Call times are medians; the ratio "speed" is eager's median over
the compiled one's of the same process. Peak memory is the growth of the resident set's high-water
mark over calls, eager's measured before compiling.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from tabulate import tabulate

PEER = "torch.compile"
OURS = "framegraph"


def child(system: str, subject: str, budget_s: float) -> dict[str, float]:
    """Measure one subject under one compiler in this process."""
    import torch

    from benchmarks.subjects import SUBJECTS

    torch.manual_seed(0)
    fn, inputs = SUBJECTS[subject]()
    result: dict[str, float] = {}
    with torch.no_grad():
        expected = fn(**inputs)
        result["eager_peak"] = peak_growth(lambda: fn(**inputs))
        start = time.perf_counter()
        compiled = compiler(system)(fn)
        actual = compiled(**inputs)
        result["compile"] = time.perf_counter() - start
        check(actual, expected)
        for _ in range(3):
            compiled(**inputs)
        result["peak"] = peak_growth(lambda: compiled(**inputs), arena_bytes(system))
        eager_time, own_time = interleaved(
            lambda: fn(**inputs), lambda: compiled(**inputs), budget_s
        )
        result["eager_call"], result["call"] = eager_time, own_time
    return result


def compiler(system: str) -> Callable[..., Any]:
    if system == PEER:
        import torch

        return torch.compile
    import dynamo

    return dynamo.compile


def check(actual: Any, expected: Any) -> None:
    import torch
    from torch.utils import _pytree as pytree

    for a, e in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
        if not isinstance(e, torch.Tensor):
            continue
        if e.dtype in (torch.bfloat16, torch.float16):  # deep models round in many places
            assert (a - e).float().norm() <= 0.05 * e.float().norm()
        else:
            torch.testing.assert_close(a, e, rtol=1e-3, atol=1e-4)


def interleaved(
    first: Callable[[], Any], second: Callable[[], Any], budget_s: float
) -> tuple[float, float]:
    """Median seconds of a call of each, measured in turns so that noise hits both alike."""
    start = time.perf_counter()
    for _ in range(2):
        first()
        second()
    once = (time.perf_counter() - start) / 4
    inner = max(1, min(5000, int(0.005 / once)))
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end or len(times[0]) < 5:
        for fn, samples in zip((first, second), times):
            start = time.perf_counter()
            for _ in range(inner):
                fn()
            samples.append((time.perf_counter() - start) / inner)
    return statistics.median(times[0]), statistics.median(times[1])


def peak_growth(fn: Callable[[], Any], released: Callable[[], int] = lambda: 0) -> float:
    """MiB by which three calls raise the resident set's high-water mark (Linux with glibc; else 0).

    Freed memory is given back to the system first; `released()` is what the compiler keeps between
    calls all the same, in bytes, which counts as used by the calls.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
        before = status_kib("VmRSS") - released() / 1024
    except (OSError, AttributeError):
        return 0.0
    for _ in range(3):
        fn()
    return max(0.0, (status_kib("VmHWM") - before) / 1024)


def arena_bytes(system: str) -> Callable[[], int]:
    """What our runtime keeps for its next call; torch.compile keeps nothing of its own."""
    if system == PEER:
        return lambda: 0
    from inductor.runtime import _plan

    return _plan.idle_arena_bytes


def status_kib(key: str) -> int:
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(key + ":"))


def run_child(
    system: str, subject: str, cache: str, budget_s: float, module: str
) -> dict[str, float]:
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "torch"),
        "DYNAMO_CACHE_DIR": os.path.join(cache, "dynamo"),
    }
    command = [sys.executable, "-m", module, "--child", system, subject]
    done = subprocess.run(
        [*command, "--seconds", str(budget_s)],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(f"{system} on {subject} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def measure(
    system: str, subject: str, budget_s: float, module: str = "benchmarks.inference"
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cache:
        result = run_child(system, subject, cache, budget_s, module)
        if result:
            warm = run_child(system, subject, cache, 0.2, module)
            result["warm"] = warm.get("compile", float("nan"))
    return result


def row(subject: str, peer: dict[str, float], ours: dict[str, float]) -> list[str]:
    def seconds(result: dict[str, float], key: str) -> str:
        return f"{result[key]:.2f}" if key in result else "-"

    def ratio(top: float | None, bottom: float | None) -> str:
        return f"{top / bottom:.2f}" if top and bottom else "-"

    def speed(result: dict[str, float]) -> str:
        return ratio(result.get("eager_call"), result.get("call"))

    def micro(result: dict[str, float], key: str) -> str:
        return f"{result[key] * 1e6:.1f}" if key in result else "-"

    def mebibytes(result: dict[str, float], key: str) -> str:
        return f"{result[key]:.1f}" if key in result else "-"

    return [
        subject,
        seconds(peer, "compile"),
        seconds(ours, "compile"),
        ratio(ours.get("compile"), peer.get("compile")),
        seconds(peer, "warm"),
        seconds(ours, "warm"),
        ratio(ours.get("warm"), peer.get("warm")),
        micro(ours, "eager_call"),
        micro(peer, "call"),
        micro(ours, "call"),
        speed(peer),
        speed(ours),
        mebibytes(ours, "eager_peak"),
        mebibytes(peer, "peak"),
        mebibytes(ours, "peak"),
    ]


HEADERS = [
    "subject",
    "cold s: torch.compile",
    "ours",
    "ratio",
    "warm s: torch.compile",
    "ours",
    "ratio",
    "call us: eager",
    "torch.compile",
    "ours",
    "speed over eager: torch.compile",
    "ours",
    "peak MiB: eager",
    "torch.compile",
    "ours",
]


def main(
    child: Callable[[str, str, float], dict[str, float]] = child,
    module: str = "benchmarks.inference",
    subjects: Sequence[str] | None = None,
) -> None:
    """The command line of this module, and of those that measure something else the same way."""
    from benchmarks.subjects import SUBJECTS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subjects", nargs="*", default=subjects or list(SUBJECTS))
    parser.add_argument("--ours-only", action="store_true", help="leave torch.compile out")
    parser.add_argument("--seconds", type=float, default=3.0, help="call-time budget of one figure")
    parser.add_argument("--child", choices=[PEER, OURS], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = set(arguments.subjects) - set(SUBJECTS)
    if unknown:
        parser.error(f"no subject {', '.join(unknown)}; the subjects are: {', '.join(SUBJECTS)}")
    if arguments.child:
        (subject,) = arguments.subjects
        print(json.dumps(child(arguments.child, subject, arguments.seconds)))
        return
    rows = []
    for subject in arguments.subjects:
        print(f"measuring {subject} ...", file=sys.stderr, flush=True)
        peer = {} if arguments.ours_only else measure(PEER, subject, arguments.seconds, module)
        ours = measure(OURS, subject, arguments.seconds, module)
        rows.append(row(subject, peer, ours))
        print(tabulate([rows[-1]], headers=HEADERS), file=sys.stderr, flush=True)
    print(tabulate(rows, headers=HEADERS, tablefmt="github"))


if __name__ == "__main__":
    main()
