"""Control flow of capture itself: what is raised through the interpreters of a frame.

(Exceptions of the captured program travel as dynamo.values.exceptions.RaisedException.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import traceback

    from dynamo.capture.interpreter import Interpreter


class RestartAnalysis(Exception):
    """Capture the frame again from its start, and break before instruction number `step` (counted
    over all interpreters).
    """

    def __init__(
        self,
        step: int,
        reason: Any,
        user_stack: list[traceback.FrameSummary],
        forbidden: bool = False,
        loop: Any = None,
        assumed: Sequence[tuple[Any, str, Any]] = (),
    ) -> None:
        super().__init__(step, reason)
        self.step = step
        self.reason = reason
        self.user_stack = user_stack
        self.forbidden = forbidden  # inside of dynamo.error_on_graph_break(True)
        self.loop = loop  # which begins there and runs natively as a whole
        self.assumed = assumed  # see dynamo.errors.Unsupported


class SpellOut(Exception):
    """Capture the frame again from its start, with instruction number `step` run as a polyfill
    (values/polyfill_calls.py).
    """

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


class StartAgain(Exception):
    """Capture the frame again from its start: the program's objects have changed for good
    (values/lazy_modules.py).
    """


class TrialOver(BaseException):
    """What a trial was for is known, or will not be (capture/data_dependent_loops.py)."""


class Arrived(BaseException):
    """The instruction before which capture is to break is next in `interpreter`."""

    def __init__(self, interpreter: Interpreter) -> None:
        super().__init__()
        self.interpreter = interpreter


class SkipFrame(Exception):
    """Nothing to gain in this frame: it runs as it is."""
