"""How many graphs each architecture of transformers becomes, ours beside torch.compile's.

`python -m benchmarks.capture --architectures [name ...]` prints the table. Each compiler runs in
processes of its own, with the graphs run as they were captured, so that equality is exact.
torch.compile counts twice: as it is, and with the flags that let its graphs hold numbers and sizes
that depend on data.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

OURS, PEER, PEER_FLAGS = "framegraph", "torch.compile", "torch.compile with flags"
FORWARD, TRAINING = "forward", "training"


@dataclass
class Capture:
    """One call of one model under one compiler."""

    graphs: int = 0  # that the first call ran; layers may share one
    ops: int = 0  # that it ran inside of them
    compiled: int = 0  # how many were made for the first call
    again: int = 0  # and for a second one: models that keep state take another path
    breaks: list[str] = field(default_factory=list)  # of both
    difference: float = 0.0  # largest over outputs and gradients; NaN where types or shapes differ
    error: str = ""

    @property
    def equal(self) -> bool:
        return not self.error and self.difference == 0.0


class Counting:
    """A backend that runs graphs as they are and counts them."""

    def __init__(self) -> None:
        self.compiled = self.runs = self.ops = 0

    def __call__(self, gm: Any, example_inputs: Any) -> Callable[..., Any]:
        self.compiled += 1
        ops = sum(node.op.startswith("call_") for node in gm.graph.nodes)

        def run(*args: Any) -> Any:
            self.runs += 1
            self.ops += ops
            return gm.forward(*args)

        return run


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
        for turn in range(2):
            expected = call(twin, twin_inputs, mode)
            actual = call(compiled, inputs, mode)
            result.difference = max(result.difference, difference(actual, expected))
            if turn == 0:
                result.graphs, result.ops = backend.runs, backend.ops
                result.compiled = backend.compiled
    except Exception as error:
        result.error = f"{type(error).__name__}: {error}".splitlines()[0]
    result.again, result.breaks = backend.compiled - result.compiled, breaks()
    return result


def compile_ours(model: Any, backend: Any) -> tuple[Any, Callable[[], list[str]]]:
    import dynamo
    from dynamo.api.compile import compile_fresh

    dynamo.reset()
    name = f"counting_{id(backend)}"  # by a name: called once for graphs that are the same
    dynamo.register_backend(backend, name=name)
    compiled, context = compile_fresh(model, backend=name)

    def breaks() -> list[str]:
        found = [b for record in context.records for b in record.breaks]
        places = [f"{b.code} at {short(b.user_stack[-1])}" for b in found if b.user_stack]
        return list(dict.fromkeys(places))

    return compiled, breaks


def compile_peer(model: Any, backend: Any) -> tuple[Any, Callable[[], list[str]]]:
    import torch._dynamo
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()

    def breaks() -> list[str]:
        return [reason.strip().splitlines()[0] for reason in counters["graph_break"]]

    return torch.compile(model, backend=backend), breaks


def compile_peer_with_flags(model: Any, backend: Any) -> tuple[Any, Callable[[], list[str]]]:
    import torch._dynamo

    torch._dynamo.config.capture_scalar_outputs = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    return compile_peer(model, backend)


COMPILERS = {OURS: compile_ours, PEER: compile_peer, PEER_FLAGS: compile_peer_with_flags}


def short(frame: Any) -> str:
    """file.py:line of a frame of the user's stack."""
    return f"{os.path.basename(frame.filename)}:{frame.lineno}"


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


# -- the table ------------------------------------------------------------------------------------
def print_table(names: Sequence[str]) -> None:
    """A row for each architecture whose graphs are not one everywhere, and the totals."""
    from tabulate import tabulate

    from tests.models.architectures import ARCHITECTURES

    names = names or list(ARCHITECTURES)
    trained = [name for name in names if ARCHITECTURES[name].trains]
    rows, totals = [], []
    for mode, wanted in ((FORWARD, list(names)), (TRAINING, trained)):
        found = {system: run(system, mode, wanted) for system in COMPILERS}
        for name in wanted:
            captures = [of_system[name] for of_system in found.values()]
            if any(c.graphs != 1 for c in captures) or not captures[0].equal:
                rows.append(_row(name, mode, captures))
        totals.append(_totals(mode, found))
    peers = [PEER, PEER_FLAGS]
    head = ["", "architectures", "ours: one graph", "equal to eager"]
    head += [f"{peer}: one graph" for peer in peers] + [f"ours more than {p}" for p in peers]
    print(tabulate(totals, headers=head, tablefmt="github"))
    print("\nAll others are one graph for each:\n")
    head = ["architecture", "call", "ours: graphs", *peers, "largest difference"]
    print(tabulate(rows, headers=[*head, "where ours breaks"], tablefmt="github"))


def _row(name: str, mode: str, captures: Sequence[Capture]) -> list[Any]:
    ours = captures[0]
    said = ours.error or "; ".join(ours.breaks[:4]) + (" ..." if len(ours.breaks) > 4 else "")
    return [name, mode, *map(_graphs, captures), f"{ours.difference:.1g}", said]


def _graphs(found: Capture) -> str:
    """As many as the first call ran, the operations inside, and what a second call compiled."""
    if found.error:
        return "error"
    again = f", +{found.again} in a second call" if found.again else ""
    return f"{found.graphs} ({found.ops} ops{again})"


def _totals(mode: str, found: dict[str, dict[str, Capture]]) -> list[Any]:
    def single(captures: dict[str, Capture]) -> str:
        count = sum(c.graphs == 1 and not c.error for c in captures.values())
        return f"{count} ({count / len(captures):.1%})"

    ours, *peers = found.values()
    equal = sum(c.equal for c in ours.values())
    more = [
        sum(c.graphs > peer[n].graphs and not peer[n].error for n, c in ours.items())
        for peer in peers
    ]
    return [mode, len(ours), single(ours), equal, *map(single, peers), *more]
