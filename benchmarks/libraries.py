"""Model libraries in graphs: inference and whole training steps, beside eager.

    python -m benchmarks.libraries                        # every library that can be imported
    python -m benchmarks.libraries timm diffusers/UNet    # of these, subjects by their beginnings
    python -m benchmarks.libraries --backend inductor --peer --autocast --dynamic

Subjects are in benchmarks/library_subjects.py. Each library, call and compiler runs in a process of
its own; a subject that ends the process counts as an error. A training step is forward, the mean
square of the outputs as loss, backward and SGD; compared are outputs, gradients, parameters and
buffers. Each subject is called twice, and --dynamic calls it a third time with another batch size.
Differences are relative to the largest value of each tensor. Graphs are those of the first call.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy
import torch

from benchmarks.architectures import OURS, PEER, tensors
from benchmarks.library_subjects import LIBRARIES, Subject

INFERENCE, TRAINING = "inference", "training"
# Of a relative difference: kernels add in another order, and round less often to bfloat16.
TOLERANCE, NARROW_TOLERANCE = 1e-3, 5e-2


@dataclass
class Found:
    """One subject's call under one compiler."""

    graphs: int = 0
    again: int = 0  # made by later calls
    breaks: list[str] = field(default_factory=list)
    difference: float = 0.0  # NaN where types, shapes or finite elements differ
    seconds: float = 0.0  # of the first call
    error: str = ""
    eager_error: str = ""  # the subject does not run here at all


Compiled = tuple[Callable[..., Any], Callable[[], int], Callable[[], list[str]]]


def compile_ours(function: Any, backend: str) -> Compiled:
    """The compiled function, how many graphs it has, and where it breaks."""
    import dynamo
    from dynamo.api.compile import compile_fresh

    dynamo.reset()
    compiled, context = compile_fresh(function, backend=backend)

    def breaks() -> list[str]:
        return [f"{b.code}: {b.reason}" for record in context.records for b in record.breaks]

    return compiled, lambda: sum(len(record.graphs) for record in context.records), breaks


def compile_peer(function: Any, backend: str) -> Compiled:
    """Its graphs do not depend on the backend."""
    from torch._dynamo.testing import CompileCounter
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    counter = CompileCounter()

    def breaks() -> list[str]:
        return [str(reason).strip().splitlines()[0] for reason in counters["graph_break"]]

    return torch.compile(function, backend=counter), lambda: counter.frame_count, breaks


COMPILERS = {OURS: compile_ours, PEER: compile_peer}


def step_of(model: Any, mode: str, autocast: bool) -> tuple[Callable[..., Any], Callable[[], Any]]:
    """What is compiled, and the tensors it changes."""

    def forward(*args: Any) -> Any:
        if autocast:
            with torch.autocast("cpu", torch.bfloat16):
                return model(*args)
        return model(*args)

    if mode == INFERENCE:
        return (forward if autocast else model), list
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 1e-3, 0.9)

    def step(*args: Any) -> Any:
        optimizer.zero_grad(set_to_none=False)
        output = forward(*args)
        loss = sum(t.float().square().mean() for t in tensors(output) if t.requires_grad)
        loss.backward()
        optimizer.step()
        return output, loss

    def state() -> list[Any]:
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        return [*gradients, *model.parameters(), *model.buffers()]

    return step, state


def difference(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """The largest relative one. What is zero but for rounding is held beside its neighbours."""
    if len(actual) != len(expected):
        return float("nan")
    largest = [float(_wide(e).abs().max()) if e.numel() else 0.0 for e in expected]
    finite = [value for value in largest if value < float("inf")]
    floor, worst = 1e-3 * max(finite, default=0.0) + 1e-12, 0.0
    for a, e, size in zip(actual, expected, largest):
        if (a.dtype, a.shape, a.requires_grad) != (e.dtype, e.shape, e.requires_grad):
            return float("nan")
        if torch.equal(a, e):
            continue
        a, e = _wide(a), _wide(e)
        if not torch.equal(a.isfinite(), e.isfinite()):
            return float("nan")
        gap = (a - e).abs().nan_to_num(0.0, 0.0)
        worst = max(worst, float(gap.max()) / max(size, floor))
    return worst


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.detach().to(torch.complex128 if value.is_complex() else torch.float64)


def measure(system: str, subject: Subject, mode: str, options: argparse.Namespace) -> Found:
    found = Found()
    prepared = []
    try:
        for _ in (0, 1):
            seed(0)
            model = subject.make()
            if isinstance(model, torch.nn.Module):
                model = model.train(mode == TRAINING).to(getattr(torch, options.dtype))
            prepared.append((model, *step_of(model, mode, options.autocast)))
    except Exception as error:
        return Found(eager_error=_text(error))
    (_, eager, eager_state), (_, function, state) = prepared
    compiled, graphs, breaks = COMPILERS[system](function, options.backend)
    batches = [2, 2, 3] if options.dynamic else [2, 2]
    for turn, batch in enumerate(batches):
        torch.manual_seed(turn)
        arguments = subject.arguments(batch)
        arguments = tuple(_cast(a, getattr(torch, options.dtype)) for a in arguments)
        try:
            expected = call(eager, eager_state, arguments, mode)
        except Exception as error:
            return Found(eager_error=_text(error))
        start = time.perf_counter()
        try:
            actual = call(compiled, state, arguments, mode)
        except Exception as error:
            found.error = _text(error)
            break
        if turn == 0:
            found.seconds = time.perf_counter() - start
            found.graphs = graphs()
        gap = difference(actual, expected)
        found.difference = gap if gap != gap else max(found.difference, gap)
        if gap != gap:
            break
    found.again, found.breaks = graphs() - found.graphs, list(dict.fromkeys(breaks()))
    return found


def call(function: Any, state: Any, arguments: tuple[Any, ...], mode: str) -> list[torch.Tensor]:
    seed(7)
    if mode == TRAINING:
        output = tensors(function(*arguments))
        return [t.detach().clone() for t in (*output, *state())]
    with torch.no_grad():
        return tensors(function(*arguments))


def seed(number: int) -> None:
    """Of all that libraries draw from."""
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(dtype)
    return [_cast(item, dtype) for item in value] if isinstance(value, list) else value


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:200]


# -- processes ------------------------------------------------------------------------------------
def selected(argument: str) -> tuple[str, dict[str, Subject]]:
    """The library, and its subjects that the argument `library[/beginning]` names."""
    library, _, beginning = argument.partition("/")
    found = _supported(library)
    return library, {name: row for name, row in found.items() if name.startswith(beginning)}


def _supported(library: str) -> dict[str, Subject]:
    _torchvision_operators()
    return LIBRARIES[library]()


def _torchvision_operators() -> None:
    """Non-maximum suppression in Python, where torchvision is but not its extension."""
    import importlib.util

    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        declared.impl("nms", _suppressed, "CPU")
        _kept.append(declared)


_kept: list[Any] = []  # registrations end with their library object


def _suppressed(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    from torchvision.ops import box_iou

    order = scores.argsort(descending=True)
    overlaps = (box_iou(boxes[order], boxes[order]) > threshold).tolist()
    kept: list[int] = []
    for place in range(len(order)):
        if not any(overlaps[place][other] for other in kept):
            kept.append(place)
    return order[kept]


def child(options: argparse.Namespace) -> None:
    """Print a line for each subject."""
    system, mode = options.child
    warnings.simplefilter("ignore")
    _, subjects = selected(options.libraries[0])
    for name, subject in subjects.items():
        if name not in options.skip and (mode == INFERENCE or subject.trains):
            print(json.dumps({"subject": name}), flush=True)
            found = measure(system, subject, mode, options)
            print(json.dumps({"subject": name, **asdict(found)}), flush=True)


def run(system: str, mode: str, argument: str, options: argparse.Namespace) -> dict[str, Found]:
    """All subjects of one library under one compiler."""
    found: dict[str, Found] = {}
    flags = ["--backend", options.backend, "--dtype", options.dtype]
    flags += ["--autocast"] * options.autocast + ["--dynamic"] * options.dynamic
    while True:
        command = [sys.executable, "-m", "benchmarks.libraries", argument, *flags]
        command += ["--child", system, mode, "--skip", *found]
        started, last = None, ""
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout or ():
                if not line.startswith('{"subject"'):
                    last = line.strip() or last
                    continue
                record = json.loads(line)
                started = record.pop("subject")
                if record:
                    found[started] = Found(**record)
                    if options.verbose:
                        print(system, mode, line.strip(), file=sys.stderr, flush=True)
        if process.returncode == 0:
            return found
        if started is None or started in found:
            raise ImportError(last)
        found[started] = Found(error=f"the process ended with {process.returncode}")


# -- the table ------------------------------------------------------------------------------------
def print_table(options: argparse.Namespace) -> None:
    from tabulate import tabulate

    rows, single, reasons = [], [], collections.Counter[str]()
    narrow = options.autocast or options.dtype in ("bfloat16", "float16")
    tolerance = NARROW_TOLERANCE if narrow else TOLERANCE
    for argument in options.libraries or LIBRARIES:
        for mode in options.modes:
            try:
                ours = run(OURS, mode, argument, options)
            except ImportError as error:
                rows.append([argument, mode, f"absent ({error})"[:60]])
                break
            for name in [name for name, found in ours.items() if found.eager_error]:
                why = f"does not run here: {ours.pop(name).eager_error}"
                single.append([f"{argument.partition('/')[0]}/{name}", mode, *[""] * 4, why])
            peer = run(PEER, mode, argument, options) if options.peer else {}
            rows.append([argument, mode, *_totals(ours, peer, tolerance)])
            for name, found in ours.items():
                reasons.update(dict.fromkeys(found.breaks, 1))
                if found.graphs != 1 or found.error or not found.difference < tolerance:
                    single.append(
                        _row(f"{argument.partition('/')[0]}/{name}", mode, found, peer.get(name))
                    )
    head = [
        "library",
        "call",
        "subjects",
        "one graph",
        "differ",
        "errors",
        "seconds",
        "torch.compile: one graph",
    ]
    print(tabulate(rows, headers=head, tablefmt="github"))
    print("\nNot one graph, or not equal:\n")
    head = ["subject", "call", "graphs", "later", "torch.compile", "difference", "why"]
    print(tabulate(single, headers=head, tablefmt="github"))
    print("\nReasons of breaks, and subjects that have them:\n")
    print(tabulate(reasons.most_common(20), headers=["reason", "subjects"], tablefmt="github"))


def _totals(ours: dict[str, Found], peer: dict[str, Found], tolerance: float) -> list[Any]:
    found = ours.values()
    errors = sum(bool(f.error) for f in found)
    differ = sum(not f.error and not f.difference < tolerance for f in found)
    whole = [sum(f.graphs == 1 and not f.error for f in side) for side in (found, peer.values())]
    seconds = f"{sum(f.seconds for f in found):.1f}"
    return [len(ours), whole[0], differ, errors, seconds, whole[1] if peer else ""]


def _row(name: str, mode: str, found: Found, peer: Found | None) -> list[Any]:
    said = found.error or "; ".join(found.breaks[:3]) + (" ..." if len(found.breaks) > 3 else "")
    beside = "" if peer is None else "error" if peer.error else peer.graphs
    return [name, mode, found.graphs, found.again, beside, f"{found.difference:.1g}", said]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY[/SUBJECT]")
    parser.add_argument("--backend", default="eager", help="eager (graphs as captured) or another")
    parser.add_argument(
        "--modes", nargs="+", choices=[INFERENCE, TRAINING], default=[INFERENCE, TRAINING]
    )
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--autocast", action="store_true", help="bfloat16, around the model's call")
    parser.add_argument(
        "--dynamic", action="store_true", help="a third call, of another batch size"
    )
    parser.add_argument("--peer", action="store_true", help="count torch.compile's graphs too")
    parser.add_argument("--verbose", action="store_true", help="a line for each on stderr")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--skip", nargs="*", default=[], help=argparse.SUPPRESS)
    options = parser.parse_args()
    child(options) if options.child else print_table(options)


if __name__ == "__main__":
    main()
