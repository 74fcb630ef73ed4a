"""What happened during compilation, as plain data. Capture fills it; explain, logs and doctor read
it.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import Any


@dataclass
class BreakRecord:
    """One graph break."""

    code: str  # stable, see breaks.py
    reason: str
    hint: str
    user_stack: list[traceback.FrameSummary]  # outermost first; the last is where the break stands
    graph_break: bool = True  # False: the frame could not be captured at all and runs as it is

    @property
    def location(self) -> str:
        frame = self.user_stack[-1] if self.user_stack else None
        return f"{frame.filename}:{frame.lineno} in {frame.name}" if frame else "unknown"

    @property
    def line(self) -> str:
        return (self.user_stack[-1].line or "").strip() if self.user_stack else ""


@dataclass
class GraphRecord:
    """One captured graph, as handed to the backend."""

    graph_module: Any  # fxgraph.GraphModule
    op_count: int
    report: dict[str, Any] = field(default_factory=dict)  # the backend's compile_report


@dataclass
class FrameRecord:
    """One compilation of one frame (a function, or a continuation of one)."""

    compile_id: str  # "3/1": third code object, its first recompilation
    name: str
    filename: str
    lineno: int
    graphs: list[GraphRecord] = field(default_factory=list)
    breaks: list[BreakRecord] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)  # printable, one a line
    times: dict[str, float] = field(
        default_factory=dict
    )  # phase -> seconds: capture, backend, codegen, guards, total
    recompile_reason: str | None = (
        None  # the guard of the newest older entry that failed, with the values
    )
