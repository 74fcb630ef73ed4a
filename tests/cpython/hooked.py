"""CPython's own test modules with the hook tracing every test method, beside a run without.

Each method is compiled with dynamo.config.rewrite_all_frames, so that frames without tensors are
rewritten too: their values, effects and exceptions come from rewritten code. Every run is a process
of its own, forked from a server that has torch imported.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import itertools
import multiprocessing
import os
import time
import traceback
import unittest
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import dynamo
from dynamo.api import convert
from dynamo.interp import root

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.cpython.hooked"])
TIMEOUT = 300.0  # of one test, on a machine that has other things to do, too


@dataclass
class Outcome:
    """What a module's tests did. `ids`: id -> failed, error, skipped, ...; others passed."""

    ran: list[str] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    broken: str = ""  # the process crashed or hung: where


@dataclass
class Difference:
    """One test that ended in another way under the hook."""

    test: str
    plain: str
    hooked: str
    text: str


def compare(module: str, only: str = "") -> tuple[Outcome, Outcome, list[Difference]]:
    """(without the hook, with it, the differences)."""
    plain, hooked = in_process(module, False, only), in_process(module, True, only)
    rows = []
    for test in dict.fromkeys([*plain.ids, *hooked.ids]):
        before, after = plain.ids.get(test, "passed"), hooked.ids.get(test, "passed")
        if before != after:
            rows.append(Difference(test, before, after, hooked.texts.get(test, "")))
    return plain, hooked, rows


def full_name(module: str) -> str:
    """The module's name in this Python's test package; "" if it is not there."""
    names = [f"test.{module}", f"unittest.test.{module.removeprefix('test_unittest.')}"]
    for name in names:
        try:
            if importlib.util.find_spec(name) is not None:
                return name
        except ModuleNotFoundError:  # its package is not there
            continue
    return ""


def in_process(module: str, hooked: bool, only: str = "", timeout: float = TIMEOUT) -> Outcome:
    """Run test.<module> in a process of its own, which may crash or hang (one test for `timeout`
    seconds).
    """
    ours, theirs = _SERVER.Pipe()
    process = _SERVER.Process(target=_child, args=(theirs, module, hooked, only))
    process.start()
    theirs.close()
    outcome, last = None, "at the start"
    try:
        while outcome is None and ours.poll(timeout):
            message = ours.recv()
            outcome, last = (message, last) if isinstance(message, Outcome) else (None, message)
        broken = f"hangs in {last}"
    except EOFError:
        broken = f"crashes in {last}"
    if outcome is None:
        process.kill()
    process.join()
    return outcome or Outcome(broken=broken)


def _child(pipe: Any, module: str, hooked: bool, only: str) -> None:
    os.environ["PYTHON_COLORS"] = "0"
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        os.dup2(nowhere.fileno(), 2)
        try:
            outcome = run(module, hooked, only, pipe.send)
        except BaseException:
            outcome = Outcome(broken=traceback.format_exc())
        pipe.send(outcome)
        pipe.close()
        os._exit(0)  # what tests left behind (threads, atexit functions) is none of ours


def run(module: str, hooked: bool, only: str, started: Any) -> Outcome:
    """Run the tests of test.<module> whose id contains `only`, in this process."""
    outcome, result = Outcome(), unittest.TestResult()
    begin = time.perf_counter()
    torch.set_num_threads(1)
    with _all_frames(outcome.faults) if hooked else contextlib.nullcontext():
        loaded = importlib.import_module(full_name(module))
        gc.collect()  # tests collect garbage often; what torch holds is none of theirs
        gc.freeze()
        cases = [
            case
            for case in _cases(unittest.defaultTestLoader.loadTestsFromModule(loaded))
            if only in case.id()
        ]
        for kind, group in itertools.groupby(cases, type):
            kind.setUpClass()
            for case in group:
                started(case.id())
                outcome.ran.append(case.id())
                if hooked:
                    _compile(case)
                case.run(result)
            kind.tearDownClass()
            kind.doClassCleanups()
    outcome.seconds = time.perf_counter() - begin
    for kind, rows in (("failed", result.failures), ("error", result.errors)):
        for test, text in rows:
            outcome.ids[test.id()] = kind
            outcome.texts[test.id()] = text
    outcome.ids.update({test.id(): "skipped" for test, _ in result.skipped})
    outcome.ids.update({test.id(): "expected failure" for test, _ in result.expectedFailures})
    outcome.ids.update({test.id(): "unexpected success" for test in result.unexpectedSuccesses})
    return outcome


@contextlib.contextmanager
def _all_frames(faults: list[str]) -> Iterator[None]:
    """Rewrite every frame; faults of capture go to the list instead of being warnings."""

    def report(where: Any, what: Any, error: Any = None) -> None:
        error = where if error is None else error
        faults.append("".join(traceback.format_exception(error)))

    convert._report_fault = report  # type: ignore[assignment]
    root._report_fault = report  # type: ignore[assignment]
    # Numbers that vary have tests of their own; as symbols, a thousand of them take minutes here.
    settings = {"automatic_dynamic_shapes": False, "loop_limit": 20_000}
    with dynamo.config.patch(rewrite_all_frames=True, **settings):
        yield


def _cases(suite: Any) -> Iterator[Any]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _cases(item)
        else:
            yield item


def _compile(case: Any) -> None:
    name = getattr(case, "_testMethodName", "")
    if type(case).__name__ == "_FailedTest" or not name:
        return
    if isinstance(case, unittest.IsolatedAsyncioTestCase):  # a coroutine: what drives it
        name = "_callTestMethod"
    setattr(case, name, dynamo.compile(getattr(case, name), backend="eager"))
