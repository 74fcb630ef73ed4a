"""The fastest of several ways to compute a step: measured once on a machine, and remembered there.

A choice belongs to a key, which says everything that the times depend on besides the machine, torch
and the number of threads. Choices are entries of the cache on disk, one for each key; two processes
that measure the same publish one after the other, and a damaged entry is measured again.

A call during which the system took the processor from a thread of this process, or let one that
woke up wait for a processor, says nothing: on a busy machine it takes five times as long. Where no
other calls were seen, only a candidate that is
far ahead is chosen in place of the first; the next processes measure again and count the least
times of all, until one sees undisturbed calls or ATTEMPTS have been made in the last hour.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import _disable_current_modes

from inductor.runtime import cache

log = logging.getLogger(__name__)
log_kernel = logging.getLogger("inductor.kernel")

FORMAT = "6"  # of entries, and of the code that measured them
ROUNDS = 5  # calls of each candidate, the least time of which counts
# As many more as fit into that many seconds: a short call takes long while another process has the
# processor.
LONGER, MOST_ROUNDS = 0.01, 100
LONGEST = 0.03  # seconds, while a candidate was not seen undisturbed
LATE = 0.05  # of a call's time: its threads may wait so long for processors, as they do if idle
DISTURBED_AHEAD = 0.5  # of the first candidate's time, where calls were disturbed
ATTEMPTS = 3  # processes that measure, where calls were disturbed in all of them
STANDS = 3600  # seconds, what they found: the machine may be quiet then

# A candidate: prepares its arguments (not timed), and returns the timed call.
Candidate = Callable[[], Callable[[], object]]


@dataclass(frozen=True)
class Choice:
    """times: microseconds of a call of each candidate that was measured. disturbed: how many
    processes measured, where some of the times are only those of calls that were interrupted.
    """

    name: str
    times: Mapping[str, float]
    disturbed: int = 0

    def __str__(self) -> str:
        times = sorted(self.times.items(), key=lambda item: item[1])
        return ", ".join(f"{name} {micros:.0f} µs" for name, micros in times)


class Budget:
    """Seconds that may still be spent on measuring."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    @contextlib.contextmanager
    def spend(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.left -= time.perf_counter() - started

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the clock of the budget inside of the block."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.left += time.perf_counter() - started


_remembered: dict[str, Choice] = {}  # by digest, of this process


def fastest(
    key: str, candidates: Mapping[str, Candidate], budget: Budget, *, ahead: float
) -> Choice | None:
    """The candidate that takes least time; None if that is not known and nothing may be spent.

    ahead: the share of the first candidate's time that another may take to be chosen.
    """
    entry = cache.digest(FORMAT, torch.__version__, cache.machine(), _threads(), key)
    choice = _remembered.get(entry)
    if choice is not None:
        return choice
    choice = _recall(entry, candidates)
    if choice is None or 0 < choice.disturbed < ATTEMPTS:
        if budget.left <= 0:
            return choice
        with budget.spend(), _outside_of_the_program():
            choice = _measured(candidates, budget, ahead, choice)
            _keep(entry, choice)
        log_kernel.debug("measured %s: %s; chosen: %s", key, choice, choice.name)
    _remembered[entry] = choice
    return choice


@contextlib.contextmanager
def _outside_of_the_program() -> Iterator[None]:
    """Hide measurements from modes of the compiling program, which would see them or change
    them.
    """
    with _disable_current_modes(), torch.no_grad(), torch.autocast("cpu", enabled=False):
        yield


def _threads() -> str:
    return str(torch.get_num_threads())


def _measured(
    candidates: Mapping[str, Candidate], budget: Budget, ahead: float, before: Choice | None
) -> Choice:
    """Calls in turn, so that noise hits all alike, until each was called often enough or the budget
    is spent. before: what other processes measured, where their calls were disturbed.
    """
    least = dict.fromkeys(candidates, float("inf"))
    undisturbed = dict(least)
    calls = {}
    for name, prepare in candidates.items():
        try:
            calls[name] = prepare()
            calls[name]()  # the library makes its code
        except RuntimeError as error:  # of a library that has no code for this processor
            calls.pop(name, None)
            log.debug("%s cannot be measured: %s", name, error)
    start = time.perf_counter()
    end = start + budget.left
    with _Waits() as waits:
        for number in range(MOST_ROUNDS):
            for name, call in calls.items():
                before_it = _interruptions(), waits.seconds()
                started = time.perf_counter()
                call()
                spent = time.perf_counter() - started
                least[name] = min(least[name], spent)
                late = waits.seconds() - before_it[1]
                if _interruptions() == before_it[0] and late <= LATE * spent:
                    undisturbed[name] = min(undisturbed[name], spent)
            now = time.perf_counter()
            seen = all(undisturbed[name] < float("inf") for name in calls)
            enough = number >= ROUNDS - 1 and now > start + (LONGER if seen else LONGEST)
            if number and (now > end or enough):
                break
    attempts = 0
    if seen:
        least = undisturbed
    else:
        attempts, ahead = 1, min(ahead, DISTURBED_AHEAD)
        if before is not None:
            attempts += before.disturbed
            least = {name: min(spent, before.times[name] / 1e6) for name, spent in least.items()}
    first = next(iter(candidates))
    best = min(least, key=least.__getitem__)
    chosen = best if least[best] < ahead * least[first] else first
    times = {name: seconds * 1e6 for name, seconds in least.items()}
    return Choice(chosen, times, attempts)


def _interruptions() -> int:
    """How often the system took the processor from a thread of this process, as far as it tells."""
    if sys.platform == "win32":
        return 0
    import resource  # not on every system

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


class _Waits:
    """How long the threads that this process has on entry wait for processors: when they are taken
    from one, and when they wake up. Nothing where the system does not tell.
    """

    def __init__(self) -> None:
        self._files: list[int] = []

    def __enter__(self) -> _Waits:
        with contextlib.suppress(OSError):
            for thread in os.listdir("/proc/self/task"):
                with contextlib.suppress(FileNotFoundError):  # a thread that has ended
                    path = f"/proc/self/task/{thread}/schedstat"
                    self._files.append(os.open(path, os.O_RDONLY))
        return self

    def __exit__(self, *failure: object) -> None:
        for file in self._files:
            os.close(file)

    def seconds(self) -> float:
        """The sum of all threads so far, of each as of the last time it began to run."""
        total = 0
        for file in self._files:
            with contextlib.suppress(OSError, IndexError):  # as above
                total += int(os.pread(file, 100, 0).split()[1])
        return total / 1e9


def _recall(entry: str, candidates: Mapping[str, Candidate]) -> Choice | None:
    data = cache.store().read("choices", entry, ".json")
    if data is None:
        return None
    try:
        found = json.loads(data)
        times = {str(n): float(t) for n, t in found["times"].items()}
        attempts = int(found["disturbed"])
        if attempts >= ATTEMPTS and not 0 <= time.time() - found["at"] < STANDS:
            attempts = ATTEMPTS - 1
        choice = Choice(found["name"], times, attempts)
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError):
        return None
    return (
        choice if choice.name in candidates and choice.times.keys() == candidates.keys() else None
    )


def _keep(entry: str, choice: Choice) -> None:
    found = {"name": choice.name, "times": dict(choice.times), "disturbed": choice.disturbed}
    data = json.dumps({**found, "at": time.time()}).encode()
    try:
        cache.store().write("choices", entry, ".json", data)
    except OSError as error:
        log.warning("a measured choice could not be stored: %s", error)


def forget() -> None:
    """Clear this process's memory of choices; the cache on disk stays."""
    _remembered.clear()
