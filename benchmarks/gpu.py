"""Eager, torch.compile's modes and framegraph's on a GPU, side by side, as ratios.

    python -m benchmarks.gpu                                 # every subject
    python -m benchmarks.gpu densenet121 --training          # one, forward and backward
    python -m benchmarks.gpu chain --seconds 5

Each compiler runs in a process of its own with empty caches. A call's time is that of the device
(CUDA events around calls in a row), the host's that of a call that waits for nothing; both are the
least of several rounds. "memory" is the most that torch's allocator held in a call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from tabulate import tabulate

SYSTEMS = (
    "eager",
    "torch.compile default",
    "torch.compile reduce-overhead",
    "torch.compile max-autotune",
    "framegraph default",
    "framegraph reduce-overhead",
)
DEFAULT = ("densenet121", "resnet50_one", "vit", "bert", "gpt2", "llama", "chain")
ROUNDS, CALLS = 5, 20


def compiled(system: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    name, _, mode = system.partition(" ")
    if name == "eager":
        return fn
    if name == "framegraph":
        import dynamo

        return dynamo.compile(fn, mode=mode)
    import torch

    return torch.compile(fn, mode=mode)


def child(system: str, subject: str, training: bool) -> dict[str, float]:
    """Measure one subject under one system in this process."""
    import torch

    from benchmarks.subjects import SUBJECTS

    torch.manual_seed(0)
    fn, inputs = SUBJECTS[subject]()
    if isinstance(fn, torch.nn.Module):
        fn.cuda().train(training)
    else:  # its modules are in its closure
        for cell in fn.__closure__ or ():
            if isinstance(cell.cell_contents, torch.nn.Module):
                cell.cell_contents.cuda()
    inputs = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
    run = compiled(system, fn)

    def call() -> None:
        if not training:
            run(**inputs)
            return
        result = run(**inputs)
        result = result if isinstance(result, torch.Tensor) else next(iter(result.values()))
        result.float().square().mean().backward()

    with torch.set_grad_enabled(training):
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        cold = time.perf_counter() - started
        for _ in range(5):
            call()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        memory = torch.cuda.max_memory_allocated()
        device, host = float("inf"), float("inf")
        for _ in range(ROUNDS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            host = min(host, (time.perf_counter() - began) / CALLS)
            end.record()
            torch.cuda.synchronize()
            device = min(device, start.elapsed_time(end) / 1e3 / CALLS)
    return {"cold": cold, "call": device, "host": host, "memory": memory / 2**20}


def measured(system: str, subject: str, given: argparse.Namespace) -> dict[str, float] | str:
    """Of a process of its own, twice: the second finds the caches of the first."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        caches = {
            "DYNAMO_CACHE_DIR": folder,
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "TRITON_CACHE_DIR": f"{folder}/triton",
        }
        command = [sys.executable, "-m", "benchmarks.gpu", "--child", system, subject]
        for _ in range(1 if system == "eager" else 2):
            done = subprocess.run(
                command + ["--training"] * given.training,
                capture_output=True,
                text=True,
                env={**os.environ, **caches},
                timeout=given.seconds,
            )
            if done.returncode:
                return done.stderr.strip().splitlines()[-1][:80]
            results.append(json.loads(done.stdout.splitlines()[-1]))
    return {**results[0], "warm": results[-1]["cold"]}


def rows(subject: str, given: argparse.Namespace) -> list[list[Any]]:
    table: list[list[Any]] = []
    eager = None
    for system in SYSTEMS:
        try:
            found = measured(system, subject, given)
        except subprocess.TimeoutExpired:
            found = f"more than {given.seconds} s"
        if isinstance(found, str):
            table.append([subject, system, found])
            continue
        eager = eager or found
        table.append(
            [
                subject,
                system,
                f"{found['call'] * 1e3:.3f}",
                f"{eager['call'] / found['call']:.2f}",
                f"{found['host'] * 1e6:.0f}",
                f"{found['cold']:.1f}",
                f"{found['warm']:.1f}",
                f"{found['memory']:.0f}",
            ]
        )
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("subjects", nargs="*", default=DEFAULT, metavar="MODEL")
    parser.add_argument("--training", action="store_true", help="forward and backward")
    parser.add_argument("--seconds", type=float, default=120, help="the most for one process")
    parser.add_argument("--child", metavar="SYSTEM", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        print(json.dumps(child(given.child, given.subjects[0], given.training)))
        return
    import torch

    if not torch.cuda.is_available():
        sys.exit("no CUDA device: benchmarks.roofline predicts")
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    heads = ["model", "system", "ms", "over eager", "host us", "cold s", "warm s", "MiB"]
    table = [row for subject in given.subjects for row in rows(subject, given)]
    print(tabulate(table, heads))


if __name__ == "__main__":
    main()
