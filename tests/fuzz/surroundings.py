"""Random programs of what surrounds a model: python -m tests.fuzz.surroundings [--programs N]
[--seed S] [--backend B].

Wrapper classes with optional and nested parts as arguments, parameters and results, quantised
weights, jagged, sparse and distributed tensors, modes pushed and popped, defaults of devices and
dtypes, rounded numpy, clocks, files and environment, prints and logging, unittest's assertions,
methods as values, local classes, dataclasses, patterns, coroutines, operators of the program's
objects (surrounding_parts.py), among all that training, corners and objects draw. Statements stand
anywhere: in callees, methods, generators, coroutines, loops, branches on data, `try`, `with`,
nested. No plain tensor gets the memory of a wrapper (torch itself crashes). As those of corners in
all else.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from tests.fuzz import (
    corner_parts,
    corners,
    object_parts,
    objects,
    surrounding_parts,
    training_parts,
)
from tests.fuzz.training import choices, run_programs

WRAPPERS = ("Two(", "packed_of", "jagged", "spread", "to_sparse")
# Texts that give a tensor the memory of another.
MEMORY = re.compile(r"\.data = (A|B|T)\b|\.data = .*\b(clone|detach)\b|\.set_\(")
CHANGED = "packed rag coo csr dtensor factor settings fixed"


def blocks(text: str) -> list[str]:
    """The texts of the first block, and the other blocks, as they stand between empty lines."""
    first, *rest = text.strip().split("\n\n")
    return choices(first) + rest


def merged(*tables: dict[str, list[str]]) -> dict[str, list[str]]:
    """The texts of all tables, by class, but for those of memory."""
    found: dict[str, list[str]] = {}
    for table in tables:
        for name, texts in table.items():
            found.setdefault(name, []).extend(t for t in texts if not MEMORY.search(t))
    return found


@dataclass(frozen=True)
class Program(objects.Program):
    preamble = objects.Program.preamble + surrounding_parts.PREAMBLE
    changed = (*corners.Program.changed, *objects.Program.changed, *CHANGED.split())


class Programs(objects.Programs):
    """Programs, drawn one after the other; each follows from the seed and its number."""

    program = Program
    clashes = (
        *corners.Programs.clashes,
        *(("register_hook", wrapper) for wrapper in WRAPPERS),
        *((".data", wrapper) for wrapper in WRAPPERS),
    )
    new = {name: choices(text) for name, text in surrounding_parts.TENSORS.items()}
    newer = {name: blocks(text) for name, text in surrounding_parts.STATEMENTS.items()}
    tensors = merged(corners.Programs.tensors, objects.Programs.tensors, new)
    statements = merged(corners.Programs.statements, objects.Programs.statements, newer)

    def __init__(self, seed: int, first: int = 0) -> None:
        super().__init__(seed, first)
        for name in ("ARGUMENTS", "CHANGES", "WRAPS"):
            parts = corner_parts, object_parts, training_parts, surrounding_parts
            texts = [getattr(one, name, "") for one in parts]
            self.texts[name] = [text for one in texts if one for text in choices(one)]
        self.texts["NEW"] = choices(surrounding_parts.CHANGES)
        self.positions = surrounding_parts.POSITIONS.strip().split("\n\n")
        self.statements["training"] = self.texts["TRAINING"]
        writes = [text for text in self.texts["WRITES"] if not MEMORY.search(text)]
        self.statements["hooks"] = self.texts["HOOKS"] + writes

    def _statement(self, depth: int = 2) -> str:
        kind = self.random.random()
        if not depth or kind < 0.5:
            return self._plain_statement()
        if kind < 0.65:
            return super()._statement()
        return self._placed(self._filled(self.random.choice(self.positions)), depth - 1)

    def _placed(self, position: str, depth: int) -> str:
        """The text of a position with statements in it."""
        lines = []
        for line in position.splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            part = line.strip()
            if part == "S":
                inner = [self._statement(depth) for _ in range(self.random.choice([1, 1, 2]))]
                part = "\n".join(inner).replace("\n", f"\n{indent}")
            elif part == "GLOBAL":
                part = f"global {', '.join(self.program.changed)}"
            lines.append(indent + part)
        return "\n".join(lines)

    def _change(self) -> str:
        return self._one("NEW") if self._chance(0.4) else super()._change()


if __name__ == "__main__":
    sys.exit(run_programs(Programs, "python -m tests.fuzz.surroundings", __doc__))
