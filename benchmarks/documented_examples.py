"""Examples of docstrings: those of each docstring as one function, run eagerly and compiled.

    python -m benchmarks.documented_examples torch numpy.linalg statistics 'torch.nn.*'
    python -m benchmarks.documented_examples torch --only torch.cat --verbose --backend inductor
    python -m benchmarks.documented_examples torch.linalg --peer      # graphs of torch.compile, too

A statement that raises stands in a `try` block, one that asks for a missing name or module is
dropped. Compared with the eager call are two compiled ones: results, variables, exceptions, what is
printed and warned of, random numbers and torch's modes. An example that two eager calls run
differently is left out. Each module is a process, started again behind an example that ends it.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import io
import json
import math
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dynamo
from benchmarks.docstrings import documented, example, listed
from benchmarks.peer_graphs import OURS, PEER, Counter
from tests.dynamo.differential import Picture, _modes_restored, read_modes

_FAULTS = ("a fault in capture", "a fault while compiling")


class TooLong(BaseException):
    """An example's limit of processor time is over."""


# -- calls -----------------------------------------------------------------------------------------
class Shown(Picture):
    """A Picture whose objects without attributes are told by their text."""

    def _tensor(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        about = (str(tensor.layout), str(tensor.device), tensor.grad_fn is None)
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            return (*about, _text(tensor))
        about = (*about, tensor.is_conj(), tensor.is_neg())
        if tensor.numel() > 4096 and not tensor.is_meta:
            flat = tensor.detach().reshape(-1)
            about = (*about, tensor.shape, tensor.stride(), tensor.requires_grad)
            tensor = flat[:: len(flat) // 2048].clone()
            self.alive.append(tensor)
        try:
            return (*about, *super()._tensor(tensor))
        except RuntimeError:  # without memory of its own
            return (*about, _text(tensor))

    def _new(self, obj: Any) -> Any:
        if isinstance(obj, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            return _text(obj)
        picture = super()._new(obj)
        if type(picture) is tuple and len(picture) == 2 and picture[1] is None:
            return (*picture, _text(obj))
        return picture


def _text(obj: Any) -> str:
    try:
        return re.sub(r"0x[0-9a-f]+", "0x", repr(obj))
    except Exception as error:
        return f"no text: {error}"


def observe(function: Any, filename: str) -> tuple[dict[str, Any], list[str], str]:
    """What a call shows; warnings of faults, and the traceback of what it raises."""
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    printed, tail = io.StringIO(), ""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(printed))
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        modes = stack.enter_context(_modes_restored())
        stack.enter_context(np.errstate())
        try:
            result = function()
        except Exception as error:
            result, tail = error, traceback.format_exc()
        modes += [*read_modes(), torch.get_default_dtype(), torch.is_grad_enabled()]
        seen = {
            "result": Shown(filename).of(result),
            "printed": printed.getvalue(),
            "modes": modes,
            "random": [repr(float(torch.rand(()))), repr(random.random()), repr(np.random.rand())],
        }
    texts = [f"{w.category.__name__}: {w.message}" for w in caught]
    faults = [text for text in texts if any(word in text for word in _FAULTS)]
    seen["warned"] = sorted({text for text in texts if text not in faults})
    return seen, faults, tail


def difference(left: Any, right: Any, tolerance: float, path: str = "") -> str | None:
    """The first place where two pictures differ by more than rounding; None: none."""
    if left == right:
        return None
    if isinstance(left, dict):
        left, right = list(left.items()), list(right.items())
    parts = isinstance(left, (list, tuple)) and isinstance(right, (list, tuple))
    if parts and len(left) == len(right):
        found = (
            difference(a, b, tolerance, f"{path}.{i}") for i, (a, b) in enumerate(zip(left, right))
        )
        return next((one for one in found if one), None)
    if tolerance and isinstance(left, str) and isinstance(right, str):
        with contextlib.suppress(ValueError):
            a, b = complex(left), complex(right)
            near = abs(a - b) <= tolerance * (1 + abs(a)) or (a != a and b != b) or a == b
            return None if near else f"{path}: {left} -> {right}"
        numbers = re.compile(r"-?\d+\.\d*(?:e[-+]?\d+)?")
        if numbers.sub("0", left) == numbers.sub("0", right):
            pairs = zip(numbers.findall(left), numbers.findall(right))
            if all(math.isclose(float(a), float(b), rel_tol=1e-2, abs_tol=1e-2) for a, b in pairs):
                return None
    return f"{path}: {str(left)[:600]} -> {str(right)[:600]}"


def examine(
    name: str, doc: str, module: types.ModuleType, settings: dict[str, Any]
) -> dict[str, Any]:
    """An example's outcome, graphs and breaks."""
    filename = f"<example of {name}>"
    function, text, some = example(doc, module, filename)
    if not some:
        return {"outcome": "empty"}
    wanted, other = (observe(function, filename)[0] for _ in range(2))
    if wanted != other:
        return {"outcome": "left out", "text": difference(wanted, other, 0.0)}
    counter = Counter()
    backend: Any = counter if settings["backend"] == "eager" else settings["backend"]
    if settings["system"] == PEER:
        torch.compiler.reset()
        compiled = torch.compile(function, backend=backend)
    else:
        dynamo.reset()
        compiled = dynamo.compile(function, backend=backend)
    row: dict[str, Any] = {"outcome": "same", "faults": [], "text": ""}
    for call in ("first", "second"):
        seen, faults, tail = observe(compiled, filename)
        row["faults"] += faults
        found = difference(wanted, seen, settings["tolerance"])
        if found and row["outcome"] == "same":
            row |= {"outcome": "differs", "text": f"{call} call{found}\n{tail}"}
        if call == "first":
            row |= {"graphs": counter.graphs, "operations": counter.operations}
    if settings["system"] == OURS:
        entries = [e for record in compiled.context.records for e in record.breaks]
        row["breaks"] = [f"{e.code} {e.reason}" for e in entries if e.graph_break]
    return row | {"source": text}


# -- processes -------------------------------------------------------------------------------------
def child(settings: dict[str, Any]) -> None:
    """Examine the module's examples, a row in the file for each; or list those of all modules."""
    rows = open(settings["rows"], "a", encoding="utf-8")  # noqa: SIM115

    def write(**row: Any) -> None:
        print(json.dumps(row), file=rows, flush=True)

    def too_long(*_: Any) -> None:
        raise TooLong

    if "list" in settings:
        write(found=listed(settings["list"]))
        return
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    signal.signal(signal.SIGPROF, too_long)
    module = importlib.import_module(settings["module"])
    docs = documented(module)
    for name in settings["names"]:
        write(started=name)
        begin = time.process_time()
        faulthandler.dump_traceback_later(6 * settings["seconds"], exit=True)
        signal.setitimer(signal.ITIMER_PROF, settings["seconds"])
        try:
            row = examine(name, docs[name], module, settings)
        except TooLong:
            row = {"outcome": "too long", "text": traceback.format_exc()[-1500:]}
        except BaseException:
            row = {"outcome": "fails outside", "text": traceback.format_exc()[-3000:]}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()
        write(name=name, seconds=time.process_time() - begin, **row)


def processed(settings: dict[str, Any], limit: float) -> Iterator[dict[str, Any]]:
    """The rows of a process."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rows").touch()
        settings = {**settings, "rows": str(Path(folder, "rows"))}
        command = [sys.executable, "-m", "benchmarks.documented_examples", "--child"]
        paths = [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "DYNAMO_STRICT": "1", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*command, json.dumps(settings)],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.STDOUT if not settings.get("loud") else None,
                timeout=limit,
                check=False,
            )
        for line in Path(folder, "rows").read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def compared(module: str, names: list[str], settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a module's examples, of as many processes as it takes."""
    left = list(names)
    while left:
        started, done = left[0], set()
        settings = {**settings, "module": module, "names": left}
        for row in processed(settings, 60 + settings["seconds"] * 2 * len(left)):
            started = row.get("started", started)
            if "name" in row:
                done.add(row["name"])
                yield row
        if started not in done:
            yield {"name": started, "outcome": "ended the process", "text": "", "seconds": 0.0}
        left = left[left.index(started) + 1 :]


def main(words: list[str]) -> int:
    """Read the command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="+", help="'package.*': with all of its modules")
    parser.add_argument("--only", default="", help="names that begin with this")
    parser.add_argument("--sample", type=float, default=1.0, help="the part of the examples")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the processor, for each")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--tolerance", type=float, default=0.0)
    parser.add_argument("--peer", action="store_true", help="graphs of torch.compile beside ours")
    parser.add_argument("--system", default=OURS, choices=[OURS, PEER], help="whose differences")
    parser.add_argument("--verbose", action="store_true", help="sources, and what is left out")
    arguments = parser.parse_args(words)
    settings = {name: getattr(arguments, name) for name in ("seconds", "backend", "tolerance")}
    found = next(iter(processed({"list": arguments.modules}, 600)))["found"]
    draw = random.Random(0)
    counts: dict[str, int] = {}
    graphs = [0, 0]
    seconds = 0.0
    for module, names in found.items():
        names = [name for name in names if name.startswith(arguments.only)]
        names = [name for name in names if draw.random() < arguments.sample]
        theirs = {}
        if arguments.peer:
            rows = compared(module, names, {**settings, "system": PEER})
            theirs = {row["name"]: row for row in rows}
        for row in compared(module, names, {**settings, "system": arguments.system}):
            counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
            seconds += row["seconds"]
            report(row, theirs.get(row["name"], {}), arguments.verbose)
            other = theirs.get(row["name"], {})
            if "graphs" in row and "graphs" in other:
                graphs = [graphs[0] + row["graphs"], graphs[1] + other["graphs"]]
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())), end="; ")
    print(f"{seconds:.0f} s of the processor", end="")
    print(f"; {graphs[0]} graphs, {graphs[1]} of torch.compile" if arguments.peer else "")
    return int(bool(set(counts) - {"same", "left out", "empty"}))


def report(row: dict[str, Any], other: dict[str, Any], verbose: bool) -> None:
    """Print a row that differs, has a fault, or more graphs here than with torch.compile."""
    quiet = ("same", "empty") if verbose else ("same", "empty", "left out")
    texts = [] if row["outcome"] in quiet else [f"{row['outcome']}: {row['text']}"]
    texts += [f"fault: {text.strip()}" for text in row.get("faults", ())[:1]]
    right = row["outcome"] == other.get("outcome") == "same"
    more = right and row["graphs"] > other["graphs"] and row["operations"] <= other["operations"]
    if more:
        texts.append(f"{row['graphs']} graphs, {other['graphs']}: {row.get('breaks')}")
    if texts:
        print(f"-- {row['name']}: " + "\n   ".join(texts), flush=True)
        if verbose:
            print("       " + row.get("source", "").replace("\n", "\n       "))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:]))
