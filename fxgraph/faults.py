"""Faults of the compiler: bypassed with one warning, or raised.

A fault is an exception that is no deliberate signal of a stage (Unfunctionalizable, NoCompiler).
After a fault the graph runs more slowly, with the same results.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator

import torch

from fxgraph.node import Node
from fxgraph.printer import source_comment

# No faults of ours, and no reason to need more memory.
_PASSED_ON = (MemoryError, torch.OutOfMemoryError)


def _lenient() -> bool:
    return False


# Whether faults are raised; dynamo.config puts its option `strict` here.
strict: Callable[[], bool] = _lenient

_warned: set[tuple[str, str, str]] = set()


def blame(error: Exception, node: Node) -> None:
    """Note the node at which an error arose, unless an inner one is noted."""
    if not hasattr(error, "graph_node"):
        error.graph_node = node  # type: ignore[attr-defined]


def blamed(error: Exception) -> Node | None:
    return getattr(error, "graph_node", None)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Errors inside are of this stage."""
    try:
        yield
    except Exception as error:
        if not hasattr(error, "graph_stage"):
            error.graph_stage = name  # type: ignore[attr-defined]
        raise


def insist(error: Exception) -> None:
    """Raise a fault in strict mode; always, where memory ran out, or the error's `passed_on` says
    that the cause is no fault of ours."""
    if isinstance(error, _PASSED_ON) or getattr(error, "passed_on", False) or strict():
        raise error


def tell(error: Exception, stage: str, way: str) -> str:
    """The note on a fault and on the way around it, which the user is warned of once. `stage`: if
    none is known.
    """
    stage = getattr(error, "graph_stage", stage)
    node = blamed(error)
    operator = str(node.target) if node is not None and node.op.startswith("call_") else ""
    place = source_comment(node) if node is not None else None
    text = f"{type(error).__name__}: {error}".strip()
    note = (
        f"a fault of framegraph in the stage {stage!r}"
        + (f" at {operator}" if operator else "")
        + (f" ({place.removeprefix('# ')})" if place else "")
        + f": {text}; {way}"
    )
    if (stage, operator, text) not in _warned:
        _warned.add((stage, operator, text))
        warnings.warn(
            f"{note}. Results are the same, more slowly; please report it. "
            "dynamo.config.strict = True (DYNAMO_STRICT=1) raises instead.",
            stacklevel=3,
        )
    return note
