"""The recovery from a fault in a stage: the operators that cause the fault stay aten calls.

recall                            the plan is made anew; so is a recalled one in compile and link
lower                             the operator whose lowering raises; the next, if another does
schedule, codegen, compile, link  as few operators as a search by halves finds
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fxgraph import faults
from inductor.lowering.registry import LOWERINGS

if TYPE_CHECKING:
    from inductor.pipeline import Compilation

SEARCH_SECONDS = 60  # for one search; then the operators that are known to suffice are taken

Signals = tuple[type[Exception], ...]
RunStages = Callable[..., Any]


def recover(c: Compilation, error: Exception, signals: Signals, run: RunStages) -> bool:
    """Whether `run` of the stages compiles the graph after all. The ways taken are noted.

    Raises the fault in strict mode, and the `signals` of stages.
    """
    failed: Exception | None = error
    while failed is not None:
        faults.insist(failed)
        stage, chosen = c.stage, set()
        anew = c.cached and c.program is None and stage in ("recall", "compile", "link")
        if not anew:
            chosen = _chosen(c, failed, run)
        way = (
            "the plan is made anew"
            if anew
            else f"{', '.join(sorted(chosen))} left to aten"
            if chosen
            else "the graph runs on aten, operator by operator"
        )
        c.notes.append(faults.tell(failed, stage, way))
        if not chosen and not anew:
            return False
        failed = _attempt(c, c.left_to_aten | chosen, run)
        if isinstance(failed, signals):
            raise failed
    return True


def _chosen(c: Compilation, error: Exception, run: RunStages) -> set[str]:
    """Operators to leave to aten so that the fault may go away; none if no such operators exist."""
    if c.stage in ("functionalize", "recall"):
        return set()
    node = faults.blamed(error)
    if c.stage == "lower" and node is not None and node.target in LOWERINGS:
        return {str(node.target)} - c.left_to_aten
    return _searched(c, run)


def _searched(c: Compilation, run: RunStages) -> set[str]:
    assert c.functional is not None
    stage, left = c.stage, frozenset(c.left_to_aten)
    targets = {node.target for node in c.functional.graph_module.graph.nodes}
    found = sorted({str(target) for target in targets if target in LOWERINGS} - left)
    latest = time.monotonic() + SEARCH_SECONDS

    def suffices(names: Iterable[str]) -> bool:
        return _attempt(c, left.union(names), run, until=stage) is None

    if not found or not suffices(found):
        found = []
    while len(found) > 1 and time.monotonic() < latest:
        middle = len(found) // 2
        halves = (found[:middle], found[middle:])
        smaller = next((half for half in halves if suffices(half)), None)
        if smaller is None:
            break
        found = smaller
    c.stage, c.left_to_aten = stage, set(left)
    return set(found)


def _attempt(
    c: Compilation, left_to_aten: Iterable[str], run: RunStages, until: str | None = None
) -> Exception | None:
    """Run the stages anew; returns the exception raised, if any. No plan is written to disk."""
    c.left_to_aten = set(left_to_aten)
    c.program = c.module = c.triton = c.spec = c.library = c.compiled = c.key = None
    c.results, c.items, c.cached = [], [], False
    try:
        run(c, until=until)
    except Exception as error:
        return error
    return None
