"""The errors that users see, and the one that capture raises to itself."""

from __future__ import annotations

import traceback
from typing import Any


class DynamoError(RuntimeError):
    """Base class of all errors of this package."""


class Unsupported(DynamoError):
    """Capture cannot continue symbolically here. With fullgraph=True users see it; else it is a
    graph break.
    """

    def __init__(self, reason: Any) -> None:
        super().__init__(str(reason))
        self.reason = reason
        # Where the captured code stood, outermost frame first; filled in by the interpreter.
        self.user_stack: list[traceback.FrameSummary] | None = None
        # The step before which the graph can break, filled in likewise.
        self.step: int | None = None
        # Guards (source, kind, payload) of the break: where they fail, there may be none.
        self.assumed: list[tuple[Any, str, Any]] = []
        # Inside of dynamo.error_on_graph_break(True), filled in likewise.
        self.forbidden = False


class BackendCompilerFailed(DynamoError):
    """A backend raised, or returned something that cannot be called."""


class RecompileLimitExceeded(DynamoError):
    """fullgraph=True and a function was compiled more often than config.recompile_limit."""


class ConstraintViolation(DynamoError):
    """A size that was marked by mark_dynamic had to become a constant, or leave its range."""


class InvalidBackend(DynamoError, ValueError):
    """No backend of this name."""


class InvalidOption(DynamoError, ValueError):
    """No such mode or option."""


class GraphError(DynamoError):
    """A dynamo.Graph that is defined or called in a way that has no meaning."""


class ProgramError(DynamoError):
    """A program that cannot be saved, a file that is no saved program, or a call of a loaded one
    with other inputs than it was saved for.
    """


class InternalError(DynamoError):
    """A fault of ours. The message asks for a report."""
