"""How many graphs each architecture of transformers becomes, ours beside torch.compile's.

`python -m benchmarks.capture --architectures [name ...]` prints the table. Each compiler runs in
processes of its own, with the graphs run as they were captured, so that equality is exact.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

OURS, PEER = "framegraph", "torch.compile"
FORWARD, TRAINING = "forward", "training"


@dataclass
class Capture:
    """One call of one model under one compiler."""

    graphs: int = 0
    breaks: list[str] = field(default_factory=list)
    difference: float = 0.0  # largest over outputs and gradients; NaN where types or shapes differ
    error: str = ""

    @property
    def equal(self) -> bool:
        return not self.error and self.difference == 0.0


class Counting:
    """A backend that runs graphs as they are and counts them."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: Any, example_inputs: Any) -> Callable[..., Any]:
        self.graphs += 1
        return gm.forward


def tensors(output: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def call(model: Any, inputs: dict[str, Any], mode: str) -> list[torch.Tensor]:
    """The outputs of a call, and in training the gradients after loss.backward()."""
    torch.manual_seed(0)
    if mode == FORWARD:
        with torch.no_grad():
            return tensors(model(**inputs))
    output = model(**inputs)
    output.loss.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [*tensors(output), *gradients]


def difference(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    if len(actual) != len(expected):
        return float("nan")
    largest = 0.0
    for a, e in zip(actual, expected):
        if (a.dtype, a.shape, a.requires_grad) != (e.dtype, e.shape, e.requires_grad):
            return float("nan")
        if not torch.equal(a, e):
            gap = (a.detach().double() - e.detach().double()).abs()
            gap = gap[~(a.isnan() & e.isnan()) & (a != e)]
            largest = max(largest, float(gap.max()) if gap.numel() else 0.0)
    return largest


def subject(name: str, mode: str) -> tuple[Any, dict[str, Any]]:
    from tests.models.architectures import make

    model, inputs, labels = make(name)
    return (model, inputs) if mode == FORWARD else (model.train(), {**inputs, **labels})


def capture(system: str, name: str, mode: str) -> Capture:
    """Capture one call and compare it, and a second one, with eager's."""
    result, backend = Capture(), Counting()
    model, inputs = subject(name, mode)
    twin, twin_inputs = subject(name, mode)
    compiled, breaks = COMPILERS[system](model, backend)
    try:
        for _ in range(2):
            expected = call(twin, twin_inputs, mode)
            actual = call(compiled, inputs, mode)
            result.difference = max(result.difference, difference(actual, expected))
    except Exception as error:
        result.error = f"{type(error).__name__}: {error}".splitlines()[0]
    result.graphs, result.breaks = backend.graphs, breaks()
    return result


def compile_ours(model: Any, backend: Any) -> tuple[Any, Callable[[], list[str]]]:
    import dynamo
    from dynamo.api import compile_fresh

    dynamo.reset()
    compiled, context = compile_fresh(model, backend=backend)

    def breaks() -> list[str]:
        found = [b for record in context.records for b in record.breaks]
        return list(dict.fromkeys(f"{b.code} at {short(b.location)}" for b in found))

    return compiled, breaks


def compile_peer(model: Any, backend: Any) -> tuple[Any, Callable[[], list[str]]]:
    import torch._dynamo
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()

    def breaks() -> list[str]:
        return [reason.strip().splitlines()[0] for reason in counters["graph_break"]]

    return torch.compile(model, backend=backend), breaks


COMPILERS = {OURS: compile_ours, PEER: compile_peer}


def short(location: str) -> str:
    """The path inside of the package."""
    return location.split("site-packages/")[-1].removeprefix("transformers/models/")


# -- processes ------------------------------------------------------------------------------------
def child(system: str, mode: str, names: Sequence[str]) -> None:
    """Print a line for each capture."""
    for name in names:
        print(json.dumps({"name": name, **asdict(capture(system, name, mode))}), flush=True)


def run(system: str, mode: str, names: Sequence[str]) -> dict[str, Capture]:
    """All captures of one compiler; a process that dies counts as an error of its architecture."""
    found: dict[str, Capture] = {}
    while missing := [name for name in names if name not in found]:
        command = [sys.executable, "-m", "benchmarks.capture", "--child", system, mode, *missing]
        done = subprocess.run(command, capture_output=True, text=True)
        found.update(_read(done.stdout))
        first = next((name for name in missing if name not in found), None)
        if first is not None:
            found[first] = Capture(error=f"the process ended: {done.stderr[-300:]}")
    return found


def _read(lines: str) -> Iterator[tuple[str, Capture]]:
    for line in lines.splitlines():
        if line.startswith('{"name"'):
            record = json.loads(line)
            yield record.pop("name"), Capture(**record)
