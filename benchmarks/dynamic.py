"""Sizes that vary: GPT-2 over twenty lengths, and size-generic kernels beside static ones.

    python -m benchmarks.dynamic             # all tables
    python -m benchmarks.dynamic --kernels   # the second one
    python -m benchmarks.dynamic --guards    # the third one

First table: each compiler in a process of its own with empty caches calls the model once with each
length, compiling included; then again with each, when all is compiled. Second: a function compiled
for one size and compiled for any, called in turns at that size; processor time of one thread.
Third: what it costs to check the guards of a frame, with and without symbols.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from tabulate import tabulate

EAGER, PEER, OURS = "eager", "torch.compile", "framegraph"
LENGTHS = (64, 37, 128, 91, 200, 17, 150, 73, 256, 45, 111, 180, 29, 99, 230, 53, 140, 81, 170, 121)


def child(system: str) -> dict[str, float]:
    """Measure one system in this process."""
    from benchmarks.subjects import SUBJECTS

    torch.manual_seed(0)
    model, _ = SUBJECTS["gpt2"]()
    inputs = [torch.randint(1000, (1, length)) for length in LENGTHS]
    compiled, compiles = compiler(system)(model)
    with torch.no_grad():
        start = time.perf_counter()
        for ids in inputs:
            compiled(input_ids=ids, use_cache=False)
        middle = time.perf_counter()
        for ids in inputs:
            compiled(input_ids=ids, use_cache=False)
        again = time.perf_counter() - middle
        for ids in inputs[:3]:
            expected = model(input_ids=ids, use_cache=False)[0]
            actual = compiled(input_ids=ids, use_cache=False)[0]
            torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)
    return {"first": middle - start, "again": again, "compiles": compiles()}


def compiler(system: str) -> Callable[[Any], tuple[Any, Callable[[], int]]]:
    """A function from the model to (compiled model, () -> number of graphs compiled so far)."""
    if system == EAGER:
        return lambda model: (model, lambda: 0)
    if system == PEER:

        def theirs(model: Any) -> tuple[Any, Callable[[], int]]:
            from torch._dynamo.utils import counters

            return torch.compile(model), lambda: counters["stats"]["unique_graphs"]

        return theirs

    def ours(model: Any) -> tuple[Any, Callable[[], int]]:
        import dynamo
        from backends.inductor import inductor

        graphs: list[Any] = []

        def counted(gm: Any, example_inputs: Sequence[Any]) -> Any:
            graphs.append(gm)
            return inductor(gm, example_inputs)

        counted.dynamic_shapes = True  # type: ignore[attr-defined]
        return dynamo.compile(model, backend=counted), lambda: len(graphs)

    return ours


def run_child(system: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.dynamic", "--child", system],
            env={
                **os.environ,
                "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "torch"),
                "DYNAMO_CACHE_DIR": os.path.join(cache, "dynamo"),
            },
            capture_output=True,
            text=True,
        )
    if done.returncode:
        print(f"{system} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def lengths_table() -> str:
    rows = []
    for system in (EAGER, PEER, OURS):
        result = run_child(system)
        if result:
            rows.append(
                [
                    system,
                    f"{result['first']:.2f}",
                    f"{result['again']:.2f}",
                    int(result["compiles"]),
                ]
            )
    headers = [f"GPT-2, {len(LENGTHS)} lengths", "first calls, s", "again, s", "compiles"]
    return tabulate(rows, headers=headers, tablefmt="github")


# --- size-generic kernels beside static ones ------------------------------------------------------

KERNELS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "pointwise": (lambda x, y: F.gelu(x + y) * y, ((512, 768), (512, 768))),
    "broadcast": (lambda x, b: torch.relu(x * b + 1), ((512, 768), (768,))),
    "softmax": (lambda x: torch.softmax(x, -1), ((2048, 256),)),
    "softmax of 37": (lambda x: torch.softmax(x, -1), ((4096, 37),)),
    "layer norm": (lambda x: F.layer_norm(x, (x.shape[-1],)), ((1024, 768),)),
    "columns": (lambda x: x.sum(0), ((1024, 768),)),
    "sum": (lambda x: x.square().sum(), ((1024, 768),)),
    "transpose": (lambda x: x.t().contiguous() + 1, ((768, 1024),)),
    "cat": (lambda x, y: torch.cat([x, y], 1) * 2, ((512, 300), (512, 400))),
}


def ratio(fn: Callable[..., Any], sizes: Sequence[tuple[int, ...]], seconds: float) -> float:
    """Processor time of the size-generic form over that of the static one: the median of pairs."""
    import dynamo

    inputs = [torch.randn(size) for size in sizes]

    def compiled(dynamic: bool) -> Callable[..., Any]:
        def own(*args: Any) -> Any:  # a code object of its own
            return fn(*args)

        own.__code__ = own.__code__.replace(co_name=f"dynamic_{dynamic}")
        result = dynamo.compile(own, dynamic=dynamic)
        torch.testing.assert_close(result(*inputs), fn(*inputs), rtol=1e-4, atol=1e-4)
        return result

    static, generic = compiled(False), compiled(True)
    pairs = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(pairs) < 9:
        spent = []
        for run in (static, generic):
            start = time.thread_time()
            for _ in range(20):
                run(*inputs)
            spent.append(time.thread_time() - start)
        pairs.append(spent[1] / spent[0])
    return statistics.median(pairs)


def kernels_table(seconds: float) -> str:
    torch.set_num_threads(1)
    with torch.no_grad():
        rows = [[name, f"{ratio(fn, sizes, seconds):.2f}"] for name, (fn, sizes) in KERNELS.items()]
    return tabulate(rows, headers=["kernel", "generic / static"], tablefmt="github")


# --- guards ---------------------------------------------------------------------------------------


def _attend(q: Any, k: Any, v: Any) -> Any:
    weights = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
    return (weights @ v).transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)


GUARDED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "x + 1": (lambda x: x + 1, ((5, 7),)),
    "x + y": (lambda x, y: x + y, ((5, 7), (5, 7))),
    "attention": (_attend, ((2, 4, 9, 8),) * 3),
    "halves": (lambda x: x[: x.shape[0] // 2] + x[x.shape[0] // 2 :], ((6, 7),)),
    "six tensors": (lambda *xs: sum(xs), ((5, 7),) * 6),
}


def guards_table(seconds: float) -> str:
    rows = []
    for name, (fn, sizes) in GUARDED.items():
        inputs = tuple(torch.randn(size) for size in sizes)
        static, generic = (_check(fn, inputs, dynamic, seconds) for dynamic in (False, True))
        rows.append([name, f"{static:.2f}", f"{generic:.2f}", f"{generic - static:.2f}"])
    headers = ["guards of", "static, us", "generic, us", "for symbols, us"]
    return tabulate(rows, headers=headers, tablefmt="github")


def _check(fn: Callable[..., Any], inputs: tuple[Any, ...], dynamic: bool, seconds: float) -> float:
    """Processor microseconds of one check, called from Python: the median of batches."""
    import dynamo
    from dynamo import _hook

    compiled = dynamo.compile(fn, dynamic=dynamic, backend="eager", fullgraph=True)
    compiled(*inputs)
    (entry,) = _hook.cache_entries(fn.__code__, compiled.context)
    check, variadic = entry.guard_tree.check, fn.__code__.co_flags & 4  # CO_VARARGS
    given = ((inputs,) if variadic else inputs, fn.__globals__, {}, ())
    assert check(*given)
    batches = []
    end = time.perf_counter() + seconds / 2
    while time.perf_counter() < end or len(batches) < 9:
        start = time.thread_time()
        for _ in range(1000):
            check(*given)
        batches.append((time.thread_time() - start) * 1e3)
    return statistics.median(batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--child")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--guards", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each kernel")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child)))
        return
    every = not options.kernels and not options.guards
    if every:
        print(lengths_table(), end="\n\n")
    if every or options.kernels:
        print(kernels_table(options.seconds), end="\n\n")
    if every or options.guards:
        print(guards_table(options.seconds))


if __name__ == "__main__":
    main()
