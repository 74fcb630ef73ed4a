"""Random programs of torch's and Python's corners: python -m tests.fuzz.corners [--programs N]
[--seed S] [--backend B].

Tensor subclasses made inside and outside, function and dispatch modes, numpy's functions and
scalars, random generators of Python, numpy and torch, copies, gradients and hooks inside the frame,
identities (pointers, ids, hashes, texts), weak references, thread-locals, warnings, legacy
constructors, parameters of computed values, lazy modules, foreach operations, exceptions
(corner_parts.py), among the statements of training programs (training_parts.py). What they read
changes between the calls. Eager and compiled must agree after every step in everything that can be
seen, numbers within what fused kernels round. For what differs the smallest program is printed.
No program replaces `.data` of an argument of a subclass: graphs save a plain tensor in its place,
whose data stay. None registers hooks beside arguments that wrap tensors: where a result of a graph
has no gradient, torch calls its hooks with None. None asks how often a gradient was written: that
is how autograd's engine adds its parts, in place or not. Classes and modes that log calls leave out
reads of attributes, of which capture makes more.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from tests.fuzz import corner_parts, training, training_parts
from tests.fuzz.training import choices, run_programs


def separated(text: str) -> list[str]:
    """Statements of several lines, each with its indented lines and clauses, or of one line, which
    semicolons with a space separate.
    """
    parts: list[str] = []
    for line in text.strip().splitlines():
        if line.startswith((" ", "except", "finally", "else", "elif")):
            parts[-1] += f"\n{line}"
        elif line.endswith(":") or re.match(r"(with|for|try|class|def|match|while) ?", line):
            parts.append(line)
        else:
            parts += [one.strip() for one in line.split("; ")]
    return parts


@dataclass(frozen=True)
class Program(training.Program):
    preamble = corner_parts.PREAMBLE
    changed = ("arr", "p0", "ema")  # globals that f assigns

    def definitions(self) -> str:
        head = f"global {', '.join(self.changed)}"
        inner = "\n".join([head, *self.body, f"return {self.result}"]).replace("\n", "\n    ")
        made = ["net = Net()", "ema = copy.deepcopy(net)", "a = T(3, 4, grad=True)", *self.setups]
        simple = "def forward(self, x): return self.norm(self.inner(x @ self.w + self.b))"
        last = [f"def f(x, n=1):\n    {inner}"]
        if self.kind != "function":
            inner = f"net = self.net\n    {inner}".replace("\n", "\n    ")
            last = [f"class Whole(nn.Module):\n    def forward(self, x, n=1):\n        {inner}"]
            last += ["whole = Whole()", "whole.net = net", "f = whole"]
            last[-1] += ".forward" if self.kind == "method" else ""
        lines = [f"class Net(Base):\n    {simple}", *made, *last, ""]
        return "\n".join([training_parts.PREAMBLE, self.preamble, *lines])

    def __str__(self) -> str:
        head = self.definitions().partition(self.preamble)[2]
        return f"# dynamic={self.dynamic}\n{head}---\n" + "\n".join(self.steps)


class Programs(training.Programs):
    """Programs, drawn one after the other; each follows from the seed and its number."""

    program = Program
    # Parts of statements, and of arguments that do not come beside them.
    clashes = (
        *((memory, held) for memory in (".data = ", ".set_(") for held in ("as_subclass", "Two(")),
        ("register_hook", "Two("),
    )
    tensors = {name: choices(text) for name, text in corner_parts.TENSORS.items()}
    statements = {name: choices(text) for name, text in corner_parts.STATEMENTS.items()}

    def __init__(self, seed: int, first: int = 0) -> None:
        super().__init__(seed, first)
        self.texts["ARGUMENTS"] = choices(corner_parts.ARGUMENTS)
        self.texts["NUMBERS"] = choices(corner_parts.NUMBERS)
        self.texts["WRAPS"] = choices(corner_parts.WRAPS)
        self.texts["CHANGES"] = choices(corner_parts.CHANGES)

    def _program(self) -> Program:
        kinds = [*self.tensors, *self.statements]
        self.kinds = self.random.sample(kinds, self.random.choice([1, 2, 2, 3]))
        kind = self.random.choice(["function", "function", "function", "module", "method"])
        body = [self.random.choice(training_parts.STARTS)]
        body += [self._statement() for _ in range(self.random.randrange(2, 8))]
        text = "\n".join(body)
        self.refused = [argument for part, argument in self.clashes if part in text]
        steps = []
        for _ in range(self.random.randrange(2, 5)):
            steps += [self._change() for _ in range(self.random.choice([0, 1, 1, 2]))]
            steps += self._call(kind)
        dynamic = self.random.choice([None, None, None, None, True, False])
        return self.program(
            kind, [], body, self.random.choice(training_parts.RETURNS), steps, dynamic
        )

    def _plain_statement(self) -> str:
        kind = self.random.random()
        name = self.random.choice(self.kinds)
        if kind < 0.15:
            return super()._plain_statement()
        tensors = name in self.tensors and (name not in self.statements or kind < 0.55)
        if not tensors:
            return self._filled(self.random.choice(self.statements[name]))
        return (
            f"{self.random.choice('yyzv')} = {self._filled(self.random.choice(self.tensors[name]))}"
        )

    def _argument(self) -> str:
        argument = self._one("ARGUMENTS")
        while any(part in argument for part in self.refused):
            argument = self._one("ARGUMENTS")
        return f"{argument}, {self._one('NUMBERS')}" if self._chance(0.3) else argument


if __name__ == "__main__":
    sys.exit(run_programs(Programs, "python -m tests.fuzz.corners", __doc__))
