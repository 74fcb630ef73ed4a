"""explain(): the captured graphs, the breaks with their reasons, the guards, and the time of each
phase.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tabulate import tabulate

from dynamo.api.compile import compile_fresh
from dynamo.directives import check_callable
from dynamo.records import BreakRecord, FrameRecord


@dataclass
class Explanation:
    """The report on one call. str() renders the whole report."""

    name: str
    frames: list[FrameRecord] = field(repr=False)

    @property
    def graphs(self) -> list[Any]:
        """Captured GraphModules, in order of compilation."""
        return [graph.graph_module for frame in self.frames for graph in frame.graphs]

    @property
    def graph_count(self) -> int:
        """How many graphs were captured."""
        return len(self.graphs)

    @property
    def break_reasons(self) -> list[BreakRecord]:
        """Each break once: .reason, .user_stack, .code, .hint, .location, .line."""
        seen: dict[tuple[str, str, str], BreakRecord] = {}
        for frame in self.frames:
            for record in frame.breaks:
                seen.setdefault((record.code, record.location, record.reason), record)
        return list(seen.values())

    @property
    def graph_break_count(self) -> int:
        """Graphs beyond the first, as torch.compile counts; at least one if anything broke."""
        return max(self.graph_count - 1, 1 if self.break_reasons else 0, 0)

    @property
    def op_count(self) -> int:
        """Calls of operators in all graphs."""
        return sum(graph.op_count for frame in self.frames for graph in frame.graphs)

    @property
    def ops_per_graph(self) -> list[list[Any]]:
        """The call targets of each graph."""
        return [
            [n.target for n in gm.graph.nodes if n.op.startswith("call_")] for gm in self.graphs
        ]

    @property
    def out_guards(self) -> list[str]:
        """The guards of all compiled frames, as text with the place that asked for each."""
        return [guard for frame in self.frames for guard in frame.guards]

    @property
    def compile_times(self) -> dict[str, float]:
        """Phase -> seconds, summed over frames. "total" is wall time of compilation."""
        times: Counter[str] = Counter()
        for frame in self.frames:
            times.update(frame.times)
        return dict(times)

    @property
    def recompiles(self) -> list[str]:
        """For each recompilation, the guard that failed."""
        return [
            f"{frame.name}: {frame.recompile_reason}"
            for frame in self.frames
            if frame.recompile_reason
        ]

    @property
    def symbols(self) -> list[str]:
        """The sizes and numbers that are no constants of the compiled code, and why."""
        return list(dict.fromkeys(text for frame in self.frames for text in frame.symbols))

    @property
    def branches(self) -> list[str]:
        """The branches on values of tensors: the place of each, and how it was captured."""
        return list(dict.fromkeys(text for frame in self.frames for text in frame.branches))

    @property
    def fallback_ops(self) -> dict[str, int]:
        """Aten ops that ran as they are inside the compiled plans: name -> count."""
        ops: Counter[str] = Counter()
        for report in self._reports():
            ops.update(report.get("fallback_ops") or {})
        return dict(ops)

    @property
    def notes(self) -> list[str]:
        """Remarks of the backend, e.g. that a graph runs op by op under autograd."""
        return [note for report in self._reports() for note in report.get("notes") or ()]

    def _reports(self) -> list[dict[str, Any]]:
        return [graph.report for frame in self.frames for graph in frame.graphs]

    def __str__(self) -> str:
        parts = [
            f"Explain {self.name}",
            tabulate(
                [
                    ("graphs", self.graph_count),
                    ("graph breaks", self.graph_break_count),
                    ("places that break", len({r.location for r in self.break_reasons})),
                    ("ops", self.op_count),
                    ("ops per graph", ", ".join(str(len(ops)) for ops in self.ops_per_graph)),
                    ("guards", len(self.out_guards)),
                    ("kernels", sum(r.get("kernels") or 0 for r in self._reports())),
                    ("recompiles", len(self.recompiles)),
                ],
                tablefmt="plain",
            ),
        ]
        parts += self._break_sections()
        if self.symbols:
            parts.append("Symbols:\n" + "\n".join(f"  {text}" for text in self.symbols))
        if self.branches:
            parts.append("Branches on data:\n" + "\n".join(f"  {text}" for text in self.branches))
        if self.recompiles:
            parts.append("Recompiles:\n" + "\n".join(f"  {reason}" for reason in self.recompiles))
        if self.fallback_ops:
            ops = [f"  {count} x {name}" for name, count in sorted(self.fallback_ops.items())]
            parts.append("Run as aten ops inside the plan:\n" + "\n".join(ops))
        if self.notes:
            parts.append("Notes:\n" + "\n".join(f"  {note}" for note in dict.fromkeys(self.notes)))
        if self.compile_times:
            rows = [(phase, f"{seconds:.3f}") for phase, seconds in self.compile_times.items()]
            parts.append(tabulate(rows, headers=["phase", "seconds"], tablefmt="simple"))
        return "\n\n".join(parts)

    def _break_sections(self) -> list[str]:
        sections = []
        for i, record in enumerate(self.break_reasons, 1):
            what = "Break" if record.graph_break else "Not captured"
            sections.append(f"{what} {i}: {record}")
        return sections


def explain(fn: Callable[..., Any], **compile_options: Any) -> Callable[..., Explanation]:
    """explain(fn)(*args, **kwargs): run `fn` once under a fresh compilation and report on it.

    `fn` may be plain or compiled already (then its backend and options are used); what it has
    compiled stays as it is. Keyword arguments are those of dynamo.compile, but for disable and
    isolate_recompiles, and errors: raised at once for arguments without a meaning, by the call for
    the program's own.
    """
    check_callable("explain", fn)
    compile_fresh(fn, **compile_options)  # for its checks: each report has one of its own

    @functools.wraps(fn, updated=())
    def inner(*args: Any, **kwargs: Any) -> Explanation:
        compiled, context = compile_fresh(fn, **compile_options)
        compiled(*args, **kwargs)
        name = getattr(fn, "__qualname__", None) or type(fn).__name__
        return Explanation(name, context.records)

    return inner
