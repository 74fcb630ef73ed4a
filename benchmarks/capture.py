"""How long a function takes to become a graph, ours beside torch.compile with an eager backend.

    python -m benchmarks.capture                            # every subject
    python -m benchmarks.capture mlp80                      # some
    python -m benchmarks.capture --architectures [names]    # graphs and breaks of transformers

"cold" is the first call of the first function in a process, "warm" that of a second function of the
same kind in it; both without the graph's own run (eager's time is taken off). Times are processor
time of the process, medians of several processes that take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from tabulate import tabulate

from benchmarks import architectures
from benchmarks.architectures import OURS, PEER

PHASES = ("cold", "warm")


def mlp80() -> tuple[Any, dict[str, Any]]:
    """80 residual blocks of a linear layer, a norm and an activation."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(width)
            self.linear = torch.nn.Linear(width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.nn.functional.gelu(self.linear(self.norm(x)))

    model = torch.nn.Sequential(*[Block(64) for _ in range(80)])
    return model, {"input": torch.randn(8, 64)}


def _subject(name: str) -> Callable[[], tuple[Any, dict[str, Any]]]:
    from benchmarks import subjects

    return {"bert6": subjects.bert, "densenet121": subjects.densenet121, "mlp80": mlp80}[name]


SUBJECTS = ("bert6", "densenet121", "mlp80")


def measure(system: str, name: str) -> dict[str, float]:
    """Seconds of processor time from call to graph, in this process."""
    import torch

    torch.set_num_threads(1)
    subject = _subject(name)
    models = {phase: subject() for phase in PHASES}
    compiler: Any = torch.compile
    if system == OURS:
        import dynamo

        compiler = dynamo.compile
    times = {}
    with torch.no_grad():
        for phase, (model, inputs) in models.items():
            model(**inputs)
            own = seconds(lambda model=model, inputs=inputs: model(**inputs))
            compiled = compiler(model, backend=lambda gm, example_inputs: gm.forward)
            call = seconds(lambda compiled=compiled, inputs=inputs: compiled(**inputs))
            times[phase] = call - own
    return times


def seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def run(system: str, name: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.capture", "--measure", system, name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{system} on {name} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def print_times(names: list[str], repeat: int) -> None:
    rows = []
    for name in names:
        samples: dict[str, list[dict[str, float]]] = {PEER: [], OURS: []}
        for _ in range(repeat):
            for system, found in samples.items():
                found.append(run(system, name))
        for phase in PHASES:
            peer, ours = (
                statistics.median(sample[phase] for sample in samples[system])
                for system in (PEER, OURS)
            )
            rows.append([name, phase, f"{peer:.3f}", f"{ours:.3f}", f"{ours / peer:.2f}"])
    head = ["call to graph", "", "torch.compile s", "ours s", "ratio"]
    print(tabulate(rows, headers=head, tablefmt="github"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="subjects, or architectures")
    parser.add_argument("--architectures", action="store_true", help="count graphs and breaks")
    parser.add_argument("--repeat", type=int, default=3, help="processes per figure")
    parser.add_argument("--measure", choices=(OURS, PEER), help=argparse.SUPPRESS)
    parser.add_argument("--child", nargs=2, metavar=("system", "mode"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        architectures.child(*args.child, args.names)
    elif args.measure:
        print(json.dumps(measure(args.measure, args.names[0])))
    elif args.architectures:
        architectures.print_table(args.names)
    else:
        print_times(args.names or list(SUBJECTS), args.repeat)


if __name__ == "__main__":
    main()
