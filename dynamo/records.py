"""Events of a compilation, as plain data: filled by capture, read by explain, logs and doctor."""

from __future__ import annotations

import linecache
import traceback
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class BreakRecord:
    """A graph break."""

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

    @property
    def excerpt(self) -> str:
        """The source line, and below it carets under what breaks; empty without a source."""
        return marked_line(self.user_stack[-1]) if self.user_stack else ""

    def __str__(self) -> str:
        """All of it: reason and code, place, source line with carets, hint, call chain."""
        lines = [f"{self.reason} [{self.code}]", f"  at {self.location}"]
        lines += [f"    {line}" for line in self.excerpt.splitlines()]
        lines.append(f"  hint: {self.hint}")
        if len(self.user_stack) > 1:
            stack = "".join(traceback.StackSummary.from_list(self.user_stack).format())
            lines.append("  call chain:")
            lines += [f"  {line}" for line in stack.splitlines()]
        return "\n".join(lines)


def marked_line(frame: traceback.FrameSummary) -> str:
    """The frame's source line without its indentation; a second line marks the columns.

    An expression that goes on in the next lines is marked to the end of its first.
    """
    line = linecache.getline(frame.filename, frame.lineno or 0).rstrip()
    text = line.lstrip()
    if not text or frame.colno is None:
        return text
    indent = len(line) - len(text)
    raw = line.encode()  # columns count bytes of UTF-8
    start = len(raw[: frame.colno].decode(errors="replace"))
    end = len(line)
    if frame.end_lineno == frame.lineno and frame.end_colno is not None:
        end = len(raw[: frame.end_colno].decode(errors="replace"))
    return f"{text}\n{' ' * (start - indent)}{'^' * max(end - start, 1)}"


@dataclass
class GraphRecord:
    """A captured graph, as handed to the backend."""

    graph_module: Any  # fxgraph.GraphModule
    op_count: int
    report: dict[str, Any] = field(default_factory=dict)  # the backend's compile_report


class Change:
    """An effect of a program besides computing tensors. `changed`: the object that changes."""

    def __init__(self, text: str, changed: Any = None) -> None:
        self.text = text
        self.changed = changed
        self.before = self._contents()

    def _contents(self) -> list[tuple[Any, Any]] | None:
        """The items of a dict, or of an object's instance dict; None for other objects."""
        if type(self.changed) is dict:
            return list(self.changed.items())
        if isinstance(self.changed, torch.Tensor):
            tensor = self.changed
            grad = tensor.grad if tensor.is_leaf else None
            place = tensor.data_ptr(), tensor.shape, tensor.requires_grad
            return [("grad", grad), ("place", place), *vars(tensor).items()]
        held = getattr(self.changed, "__dict__", None)
        if type(held) is not dict or isinstance(self.changed, (dict, list, set)):
            return None
        return list(held.items())

    def is_none(self) -> bool:
        """Whether, now that the program has run, all is as it was: `self.n += 1` stores what is
        there.
        """
        after = self._contents()
        if self.before is None or after is None or len(after) != len(self.before):
            return False
        return all(
            k is key and (v is value or (key == "place" and v == value))
            for (k, v), (key, value) in zip(after, self.before)
        )


@dataclass
class FrameRecord:
    """A compilation of a frame (a function, or a continuation of one)."""

    compile_id: str  # "3/1": third code object, its first recompilation
    name: str
    filename: str
    lineno: int
    graphs: list[GraphRecord] = field(default_factory=list)
    breaks: list[BreakRecord] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)  # printable, one a line
    symbols: list[str] = field(default_factory=list)  # which sizes and numbers vary, and why
    times: dict[str, float] = field(
        default_factory=dict
    )  # phase -> seconds: capture, backend, codegen, guards, total
    recompile_reason: str | None = (
        None  # the guard of the newest older entry that failed, with the values
    )
    branches: list[str] = field(default_factory=list)  # on data: where, and what they became
    changes: list[Change] = field(default_factory=list)  # with export: beside those of tensors
