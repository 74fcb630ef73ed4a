"""Eager, torch.compile's modes and framegraph's on a GPU, side by side, as ratios.

    python -m benchmarks.gpu                                 # every subject
    python -m benchmarks.gpu densenet121 --training          # one, forward and backward
    python -m benchmarks.gpu chain --seconds 5

    python -m benchmarks.gpu vit_base --dtype bfloat16 --batch 32 --within 200
    python -m benchmarks.gpu llama_1b --systems eager framegraph --once --parallel 4
    python -m benchmarks.gpu bert_base --dtype bfloat16 --profile kernels

Each compiler runs in a process of its own with empty caches, and a second time with those of the
first ("warm", unless --once). A call's time is that of the device (CUDA events around calls in a
row), the host's that of a call that finds the device idle; both are the least of several rounds.
"MiB" is the most that torch's allocator held in a call. Rows are printed as they are made, and what
a process that failed had to say, on standard error; --within ends the whole.

With --parallel, so many processes prepare and compile at once, and one at a time measures, under a
lock: the times of first calls are then those of a machine with other work. --lock names the file
of the lock, for several commands that run beside each other.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import fcntl
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

# In the order that they are measured: what is compared first, what takes longest last.
SYSTEMS = (
    "eager",
    "framegraph reduce-overhead",
    "torch.compile reduce-overhead",
    "framegraph default",
    "torch.compile default",
    "framegraph max-autotune",
    "torch.compile max-autotune",
)
DEFAULT = (
    "densenet121", "chain", "bert_base", "vit_base", "resnet50", "gpt2_small", "llama_1b",
    "sdxl_unet",
)  # fmt: skip
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


def made(subject: str, given: argparse.Namespace) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A subject on the device."""
    import torch

    from benchmarks.gpu_subjects import EVERY

    torch.manual_seed(0)
    with torch.device(given.device):
        fn, inputs = EVERY[subject]()
    dtype = getattr(torch, given.dtype)
    for module in modules_of(fn):
        module.to(given.device, dtype).train(given.training)

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if given.batch:
            times = -(-given.batch // value.shape[0])
            value = value.repeat(times, *[1] * (value.dim() - 1))[: given.batch]
        return value.to(given.device, dtype if value.is_floating_point() else value.dtype)

    return fn, {name: moved(value) for name, value in inputs.items()}


def modules_of(fn: Callable[..., Any]) -> list[Any]:
    """A module, or those in a function's closure."""
    import torch

    cells = getattr(fn, "__closure__", None) or ()
    return [
        one for one in (fn, *(c.cell_contents for c in cells)) if isinstance(one, torch.nn.Module)
    ]


def parameters_of(fn: Callable[..., Any]) -> Iterator[Any]:
    for module in modules_of(fn):
        yield from module.parameters()


def child(system: str, subject: str, given: argparse.Namespace) -> dict[str, float]:
    """Measure one subject under one system in this process."""
    import torch

    training = given.training
    fn, inputs = made(subject, given)
    run = compiled(system, fn)
    parameters = list(parameters_of(fn)) if training else []

    def call() -> None:
        if not training:
            run(**inputs)
            return
        for parameter in parameters:  # as an optimizer leaves them: no gradient lives on
            parameter.grad = None
        result = run(**inputs)
        result = result if isinstance(result, torch.Tensor) else next(iter(result.values()))
        result.float().square().mean().backward()

    with torch.set_grad_enabled(training), contextlib.ExitStack() as stack:
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        cold = time.perf_counter() - started
        if given.lock:
            fcntl.flock(stack.enter_context(open(given.lock, "w")), fcntl.LOCK_EX)
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
            began = time.perf_counter()
            call()
            host = min(host, time.perf_counter() - began)
            torch.cuda.synchronize()
            start.record()
            for _ in range(CALLS):
                call()
            end.record()
            torch.cuda.synchronize()
            device = min(device, start.elapsed_time(end) / 1e3 / CALLS)
        if given.profile:
            kind = "training" if training else "inference"
            name = f"{subject}-{kind}-{given.dtype}-{system.replace(' ', '-')}.txt"
            Path(given.profile, name).write_text(profiled(call))
    return {"cold": cold, "call": device, "host": host, "memory": memory / 2**20}


def profiled(call: Callable[[], None], calls: int = 3) -> str:
    """A line for each kernel: microseconds of a call, launches in it, microseconds of a launch."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for event in found.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times.setdefault(event.name, []).append(event.device_time)
    whole = sum(map(sum, times.values())) / calls
    count = sum(map(len, times.values())) / calls
    lines = [f"{whole:9.1f} us {count:7.1f}"]
    for name, each in sorted(times.items(), key=lambda item: -sum(item[1])):
        spent, launches = sum(each) / calls, len(each) / calls
        lines.append(f"{spent:9.1f} us {launches:7.1f} x {spent / launches:8.2f}  {name[:150]}")
    return "\n".join(lines) + "\n"


def measured(
    system: str, subject: str, given: argparse.Namespace, left: Callable[[], float]
) -> dict[str, float] | str:
    """Of a process of its own, twice: the second finds the caches of the first."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        caches = {
            "DYNAMO_CACHE_DIR": folder,
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "TRITON_CACHE_DIR": f"{folder}/triton",
        }
        command = [sys.executable, "-m", "benchmarks.gpu", "--child", system, subject]
        command += ["--dtype", given.dtype, "--batch", str(given.batch), "--lock", given.lock]
        command += ["--profile", given.profile] if given.profile else []
        for turn in range(1 if system == "eager" or given.once else 2):
            if turn and left() < 30:
                break  # the second tells of a warm start alone
            done = subprocess.run(
                command + ["--training"] * given.training,
                capture_output=True,
                text=True,
                env={**os.environ, **caches},
                timeout=max(1.0, min(given.seconds, left())),
            )
            if done.returncode:
                print(
                    f"--- {subject}, {system}\n{done.stderr[-4000:]}", file=sys.stderr, flush=True
                )
                return (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
            results.append(json.loads(done.stdout.splitlines()[-1]))
    warm = results[1]["cold"] if len(results) > 1 else float("nan")
    return {**results[0], "warm": warm}


HEADS = ("model", "system", "ms", "over eager", "host us", "cold s", "warm s", "MiB")


def row(
    subject: str, system: str, found: dict[str, float] | str, eager: dict[str, float] | str | None
) -> list[Any]:
    if isinstance(found, str):
        return [subject, system, found[:80]]
    over = f"{eager['call'] / found['call']:.2f}" if isinstance(eager, dict) else ""
    return [
        subject,
        system,
        f"{found['call'] * 1e3:.3f}",
        over,
        f"{found['host'] * 1e6:.0f}",
        f"{found['cold']:.1f}",
        "" if math.isnan(found["warm"]) else f"{found['warm']:.1f}",
        f"{found['memory']:.0f}",
    ]


def rows(given: argparse.Namespace, left: Callable[[], float]) -> Iterator[list[Any]]:
    """Those of each subject, in order, when they and those before are measured."""

    def run(system: str, subject: str) -> dict[str, float] | str:
        if left() < 5:
            return "no time was left"
        try:
            return measured(system, subject, given, left)
        except subprocess.TimeoutExpired:
            return "did not end in time"

    systems = [one for one in SYSTEMS if any(map(one.startswith, given.systems))]
    with concurrent.futures.ThreadPoolExecutor(given.parallel) as pool:
        jobs = {
            subject: {system: pool.submit(run, system, subject) for system in systems}
            for subject in given.subjects
        }
        for subject, own in jobs.items():
            eager = own["eager"].result() if "eager" in own else None
            for system, job in own.items():
                yield row(subject, system, job.result(), eager)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("subjects", nargs="*", default=DEFAULT, metavar="MODEL")
    parser.add_argument("--training", action="store_true", help="forward and backward")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--batch", type=int, default=0, help="in place of the subject's own")
    parser.add_argument(
        "--systems", nargs="+", default=[""], metavar="SYSTEM", help="or beginnings"
    )
    parser.add_argument("--once", action="store_true", help="no second process")
    parser.add_argument("--seconds", type=float, default=120, help="the most for one process")
    parser.add_argument("--within", type=float, default=float("inf"), help="seconds for the whole")
    parser.add_argument("--parallel", type=int, default=1, help="processes that compile at once")
    parser.add_argument("--lock", default="", metavar="FILE", help="of commands beside each other")
    parser.add_argument("--profile", default="", metavar="FOLDER", help="for times of kernels")
    parser.add_argument("--child", metavar="SYSTEM", help=argparse.SUPPRESS)
    parser.set_defaults(device="cuda")
    given = parser.parse_args(arguments)
    if given.child:
        print(json.dumps(child(given.child, given.subjects[0], given)))
        return
    import torch

    if not torch.cuda.is_available():
        sys.exit("no CUDA device: benchmarks.roofline predicts")
    end = time.monotonic() + given.within
    kind = "training" if given.training else "inference"
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {given.dtype}, {kind}")
    print(f"| {' | '.join(HEADS)} |\n|{' --- |' * len(HEADS)}", flush=True)
    if given.profile:
        Path(given.profile).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        given.lock = given.lock or f"{folder}/lock"
        for one in rows(given, lambda: end - time.monotonic()):
            cells = [*map(str, one), *[""] * (len(HEADS) - len(one))]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
