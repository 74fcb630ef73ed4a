"""Other libraries' own tests, run eagerly and with each test function captured by the frame hook.

    python -m benchmarks.library_tests PATH ... [--sample 5] [--backend inductor] [--all-frames]
    python -m benchmarks.library_tests PATH ... -- -k name --import-mode=importlib

A test that passes eagerly and fails captured is a fault of ours, or asserts about its own frames,
time or rounding. Frames of numpy's and torch's own modules are not captured: tests that stand in
the installed numpy are copied elsewhere first. The module is a plugin of pytest, too; each run is a
process, and one that a test ends or holds up is started again behind that test.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Set for the processes that run tests: {"captured", "rows", "keep", "sample", ...}.
_VARIABLE = "FRAMEGRAPH_LIBRARY_TESTS"
_SETTINGS: dict[str, Any] = json.loads(os.environ.get(_VARIABLE, "{}"))
_SLOW = 20.0  # times the processor time of the eager run, or of a twentieth of a second
_STARTS = 8
_ROOT = Path(__file__).resolve().parents[1]


class TooLong(BaseException):
    """A test's limit of processor time is over."""


# -- the plugin ------------------------------------------------------------------------------------
def pytest_configure() -> None:
    """Prepare the process: one thread, the limit's signal, the settings of capture."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGPROF, _raise_too_long)
    if _SETTINGS["captured"] and _SETTINGS["all_frames"]:
        import dynamo

        dynamo.config.rewrite_all_frames = True
        dynamo.config.automatic_dynamic_shapes = False


def _raise_too_long(*_: Any) -> None:
    raise TooLong(f"over {_SETTINGS['seconds']} s")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keep the tests named by the driver, or a random sample of each file's functions."""
    if _SETTINGS["keep"] is not None:
        keep = set(_SETTINGS["keep"])
        items[:] = [item for item in items if item.nodeid in keep]
    elif _SETTINGS["sample"]:
        draw = random.Random(_SETTINGS["seed"])
        files: dict[str, dict[str, list[Any]]] = {}
        for item in items:
            functions = files.setdefault(item.nodeid.partition("::")[0], {})
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
        chosen = set()
        for functions in files.values():
            count = min(len(functions), _SETTINGS["sample"])
            names = draw.sample(sorted(functions), count)
            chosen |= {draw.choice(functions[name]).nodeid for name in names}
        items[:] = [item for item in items if item.nodeid in chosen]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """Run a test, captured or not, within its limit."""
    if _SETTINGS["captured"] and hasattr(item, "obj"):
        import dynamo

        tried = getattr(item.obj, "hypothesis", None)  # its engine runs as it is
        holder, name = (item, "obj") if tried is None else (tried, "inner_test")
        function = getattr(holder, name)
        setattr(holder, name, dynamo.compile(function, backend=_SETTINGS["backend"]))
    _seed()
    _write(started=item.nodeid)
    faulthandler.dump_traceback_later(10 * _SETTINGS["seconds"], exit=True)
    signal.setitimer(signal.ITIMER_PROF, _SETTINGS["seconds"])
    begin = time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        item.user_properties.append(("processor", time.process_time() - begin))
        faulthandler.cancel_dump_traceback_later()


def _seed() -> None:
    """Seed what tests draw from, so that both runs of each draw equal numbers."""
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def pytest_warning_recorded(warning_message: Any, nodeid: str) -> None:
    """Write down a fault of capture, which a test may survive."""
    text = str(warning_message.message)
    if text.startswith(("a fault in capture", "a fault while compiling")):
        _write(faulty=nodeid, text=text.strip().rpartition("\n")[2])


def pytest_runtest_logreport(report: Any) -> None:
    """Write down a test's outcome."""
    if report.when == "call":
        seconds = dict(report.user_properties).get("processor", 0.0)
        text = "" if report.passed else str(report.longrepr)[-4000:]
        _write(test=report.nodeid, outcome=report.outcome, seconds=seconds, text=text)


def _write(**row: Any) -> None:
    with open(_SETTINGS["rows"], "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


# -- the driver ------------------------------------------------------------------------------------
def _run(
    arguments: argparse.Namespace, captured: bool, keep: list[str] | None
) -> tuple[bool, list[Any]]:
    """Whether one process ran out of time, and its rows."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows")
        rows.touch()
        settings = {
            **{name: getattr(arguments, name) for name in ("sample", "seed", "seconds")},
            **{name: getattr(arguments, name) for name in ("backend", "all_frames")},
            "captured": captured,
            "rows": str(rows),
            "keep": keep,
        }
        command = [sys.executable, "-m", "pytest", "-p", "benchmarks.library_tests", "-q"]
        command += ["-p", "no:cacheprovider", "-p", "no:timeout", "-c", os.devnull]
        command += ["--rootdir", os.sep, "--continue-on-collection-errors", "-W", "default"]
        command += [*arguments.options, *map(os.path.abspath, arguments.paths)]
        environment = {**os.environ, _VARIABLE: json.dumps(settings), "OMP_NUM_THREADS": "1"}
        # Behind the library's own folders: its tests may be a package `tests`, as ours are.
        roots = [os.environ.get("PYTHONPATH", ""), str(_ROOT)]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, roots))
        output = None if arguments.verbose else subprocess.DEVNULL
        limit = 60 * arguments.minutes
        over = False
        try:
            streams = {"stdout": output, "stderr": output}
            subprocess.run(command, env=environment, cwd=folder, timeout=limit, **streams)
        except subprocess.TimeoutExpired:
            over = True
        return over, [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]


def compare(arguments: argparse.Namespace) -> int:
    """Run both ways and print what differs; how many tests fail captured alone."""
    plain = {row["test"]: row for row in _run(arguments, False, None)[1] if "test" in row}
    quick = {t: row for t, row in plain.items() if row["seconds"] <= arguments.eager_seconds}
    left = [test for test, row in quick.items() if row["outcome"] == "passed"]
    passed, done, faults = len(left), {}, []
    for _ in range(_STARTS):
        over, rows = _run(arguments, True, left)
        faults += [row for row in rows if "faulty" in row]
        done |= {row["test"]: row for row in rows if "test" in row}
        last = [row["started"] for row in rows if "started" in row][-1:]
        if last and last[0] not in done and not over:
            done[last[0]] = {"outcome": "ended the process", "seconds": 0.0, "text": ""}
        left = [test for test in left if test not in done]
        if over or not left or not last:
            break
    bad = {test: row for test, row in done.items() if row["outcome"] != "passed"}
    spent = [
        (row["seconds"], max(plain[test]["seconds"], 0.05), test) for test, row in done.items()
    ]
    slow = sorted(((s / p, test) for s, p, test in spent if s > _SLOW * p), reverse=True)
    print(f"{passed} pass eagerly; captured {len(done)}: {len(bad)} fail, {len(faults)} faults,")
    print(f"{len(slow)} are slow, {sum(s for s, _, _ in spent):.0f} s of the processor")
    for test, row in bad.items():
        print(f"  {row['outcome']}: {test}\n{row['text'] if arguments.verbose else ''}".rstrip())
    for row in faults:
        print(f"  fault: {row['faulty']}: {row['text']}")
    for ratio, test in slow[:10]:
        print(f"  {ratio:.0f} times as long: {test}")
    return len(bad)


def main(words: list[str]) -> int:
    """Read the command line; the exit status."""
    own, options = words, []
    if "--" in words:
        own, options = words[: words.index("--")], words[words.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--sample", type=int, default=0, help="functions of each file; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the processor, for a test")
    parser.add_argument("--eager-seconds", type=float, default=2.0, help="of the tests captured")
    parser.add_argument("--minutes", type=float, default=60.0, help="of a clock, for a process")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--all-frames", action="store_true", help="those without tensors, too")
    parser.add_argument("--verbose", action="store_true", help="pytest's output and the failures")
    arguments = parser.parse_args(own)
    arguments.options = options
    return min(compare(arguments), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
