"""Reports on compiled graphs: what kernels compute, what is left to aten, notes of the stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxgraph.notices import amount_of_memory
from inductor.compiled import OnAten
from inductor.floats import WithFloats
from inductor.runtime.device_graph import DeviceGraphs
from inductor.runtime.link import Derived
from inductor.runtime.plan import AtenStep, PlanSpec

if TYPE_CHECKING:
    from inductor.pipeline import Compilation


def count_of(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def kernels_of(spec: PlanSpec) -> int:
    return sum(step.kind in ("kernel", "launch") for step in spec.steps)


def together(forward: dict[str, Any], backwards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The report on a graph and those of its backwards that are compiled."""
    reports = [forward, *backwards]
    fallbacks: Counter[str] = Counter()
    stages: Counter[str] = Counter()
    for one in reports:
        fallbacks.update(one.get("fallback_ops", {}))
        stages.update(one.get("stages", {}))
    return {
        "fallback_ops": dict(fallbacks),
        "kernels": sum(one.get("kernels", 0) for one in reports),
        "computed": [row for one in reports for row in one.get("computed", ())],
        "autograd": None,
        "stages": dict(stages),
        "notes": [
            *(f"forward: {note}" for note in forward["notes"]),
            *(f"backward: {note}" for one in backwards for note in one["notes"]),
        ],
    }


def fallbacks(spec: PlanSpec) -> dict[str, int]:
    """How often each aten operator is called by the plan."""
    return dict(
        Counter(
            f"{s.op.removeprefix('aten::').replace('::', '.')}.{_overload(s)}"
            for s in spec.steps
            if s.kind == "aten"
        )
    )


def computed(spec: PlanSpec) -> list[tuple[str, str, int]]:
    """Of each kernel of the plan, in order: its name, its label, its number of operations."""
    return [
        (getattr(s, "symbol", "") or s.kernel, s.label, s.operations)
        for s in spec.steps
        if s.kind in ("kernel", "launch")
    ]


def _overload(step: AtenStep) -> str:
    """As the graph has it: with memory of the plan, an operator runs in its out= form."""
    return "default" if step.overload in ("", "out") else step.overload


def report(c: Compilation) -> dict[str, Any]:
    kernels = kernels_of(c.spec) if c.spec and (c.library or c.loaded) else 0
    notes = list(c.notes)
    compiled: Any = c.compiled.compiled if isinstance(c.compiled, WithFloats) else c.compiled
    no_plan = notes[-1] if isinstance(compiled, OnAten) and notes else None
    plan = getattr(compiled, "plan", compiled)
    peak = getattr(plan, "peak_bytes", None)
    for one in (compiled, plan):
        if isinstance(one, DeviceGraphs):
            one.notes = notes
    if peak and (c.library or c.loaded):
        notes.append(
            f"memory: at most {amount_of_memory(peak)} at once, besides inputs and what operators "
            f"allocate inside; {amount_of_memory(plan.arena_bytes)} of it shared by temporaries"
        )
    if (derived := getattr(plan, "derived", None)) is not None:
        _tell_of(derived, notes)
    return {
        "fallback_ops": fallbacks(c.spec) if c.spec else {},
        "kernels": kernels,
        "computed": computed(c.spec) if c.spec and kernels else [],
        "autograd": None,
        "no_plan": no_plan,
        "peak_bytes": peak,
        "stages": dict(c.seconds),
        "notes": notes,
    }


def _tell_of(derived: Derived, notes: list[str]) -> None:
    """Keep a note on the derived statics, as they are by now."""

    def note() -> str:
        if not derived.made:
            return f"derived: {count_of(len(derived.values), 'tensor')} of parameters, when called"
        return (
            f"derived: {count_of(len(derived.values), 'tensor')} of parameters, "
            f"{amount_of_memory(derived.bytes)}, made {count_of(derived.made, 'time')}"
        )

    def tell() -> None:
        notes[place] = note()

    place = len(notes)
    notes.append(note())
    derived.told = tell
