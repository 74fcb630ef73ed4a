"""Random programs of Python's objects: python -m tests.fuzz.objects [--programs N] [--seed S]
[--backend B].

Descriptors, metaclasses, context managers that swallow or change exceptions, exceptions that cross
frames and hooks, generators and iterators with state across calls, caches, containers of the
program's classes and their orders, context variables, enums, finalizers, prints, scripted and
traced functions, quantised and sparse tensors, torch's settings (object_parts.py): their side
effects are logged, and must come in eager's order. As those of corners in all else.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from tests.fuzz import corner_parts, corners, object_parts, training_parts
from tests.fuzz.corners import separated
from tests.fuzz.training import choices, run_programs


@dataclass(frozen=True)
class Program(corners.Program):
    preamble = corner_parts.PREAMBLE + object_parts.PREAMBLE
    changed = ("watched", "pair", "level", "kept_error", "gone", "quantised")


class Programs(corners.Programs):
    """Programs, drawn one after the other; each follows from the seed and its number."""

    program = Program
    tensors = {name: choices(text) for name, text in object_parts.TENSORS.items()}
    statements = {name: separated(text) for name, text in object_parts.STATEMENTS.items()}

    def __init__(self, seed: int, first: int = 0) -> None:
        super().__init__(seed, first)
        self.texts["ARGUMENTS"] = choices(training_parts.ARGUMENTS)
        self.texts["WRAPS"] = choices(object_parts.WRAPS)
        self.texts["CHANGES"] = choices(object_parts.CHANGES)


if __name__ == "__main__":
    sys.exit(run_programs(Programs, "python -m tests.fuzz.objects", __doc__))
