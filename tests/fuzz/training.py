"""Random training programs: python -m tests.fuzz.training [--programs N] [--seed S] [--backend B].

A program has a module, an optimizer, a function `f` of views, writes, hooks, functions of autograd,
backwards and effects (training_parts.py), and steps: calls with inputs and modes that change, work
on what they return, other parameters, hooks and gradients between them. Compiled are the function,
a whole step of training, the module or its loss. Eager and compiled, in worlds of their own, must
agree after every step in everything that can be seen (tests/dynamo/differential.py), numbers within
what fused kernels round. For what differs the smallest program that still does is printed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import itertools
import linecache
import math
import random
import re
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

import dynamo
from tests.dynamo.differential import World, assert_same
from tests.fuzz import training_parts as parts
from tests.fuzz.reduction import reduced

BACKENDS = ("eager", "aot_eager", "inductor")
# Refused by eager alone where the compiled graph saves nothing.
AGAIN = "backward through the graph a second time"
# Where comparing ends: what the README says of second derivatives, and what is left of gradients
# when a backward is refused midway.
ENDS = (
    "a second derivative of",
    "differentiated twice",
    AGAIN,
    "modified by an inplace operation",
    "derivative for aten::",  # not implemented
)
# Of hooks: which gradients autograd has accumulated by then is nobody's promise.
REFUSED = "['refused']"
MIDWAY = "('accumulated', "
# Refused by eager; what a functional graph has computed is no view.
VIEWS = "Can't detach views in-place"
# Where the classes and modes of a program answer for torch: a graph has no frames of them.
HANDLERS = ("__torch_function__", "__torch_dispatch__")
# Texts that name nodes of autograd, of which a compiled graph has one, and sizes that torch counts.
NODES = re.compile(
    r"Output \d+ of \w+ is a view|\b\w+Backward\w*\b|framegraph::\S+|0x[0-9a-f]+|object at \S+"
    r"|\bj\d+\b"
)
# Steps that run compiled code; what the others leave is seen behind these.
RUNS = re.compile(r"\b(run|backward|grad|opt|total|loss|out|result)\b")
MODIFIED = re.compile(r"(.*modified by an inplace operation).*", re.DOTALL)
_numbers = itertools.count()


def choices(text: str) -> list[str]:
    """Texts, separated by semicolons with a space; one without joins statements."""
    return [one.strip() for line in text.strip().splitlines() for one in line.split("; ")]


@dataclass(frozen=True)
class Program:
    """Statements of the set up, of f and of the steps; what is compiled."""

    kind: str
    setups: list[str]
    body: list[str]
    result: str
    steps: list[str]
    dynamic: bool | None = None

    def definitions(self) -> str:
        body = [*self.body, f"return {self.result}"]
        inner = "\n".join(body).replace("\n", "\n    ")
        made = ["net = Net()", "ema = copy.deepcopy(net)", "a = T(3, 4, grad=True)"]
        if self.kind == "module":
            inner = f"net = self\n    {inner}"
            text = f"def forward(self, x, n=1):\n    {inner}".replace("\n", "\n    ")
            lines = [f"class Net(Base):\n    {text}", *made, *self.setups, "f = net"]
        else:
            simple = "def forward(self, x): return self.norm(self.inner(x @ self.w + self.b))"
            lines = [f"class Net(Base):\n    {simple}", *made, *self.setups]
            lines.append(f"def f(x, n=1):\n    {inner}")
        return "\n".join([parts.PREAMBLE, *lines, ""])

    def __str__(self) -> str:
        head = self.definitions().removeprefix(parts.PREAMBLE)
        return f"# dynamic={self.dynamic}\n{head}---\n" + "\n".join(self.steps)


class Programs(Iterator[Program]):
    """Programs, drawn one after the other; each follows from the seed and its number."""

    def __init__(self, seed: int, first: int = 0) -> None:
        self.seed = seed
        self.next = first
        self.training = 0.03
        names = "EXPRESSIONS VIEWS WRITES HOOKS TRAINING STATE WRAPS SETUPS OPTIMIZERS CHANGES"
        self.texts = {n: choices(getattr(parts, n)) for n in [*names.split(), "ARGUMENTS", "CALLS"]}

    def __next__(self) -> Program:
        self.random = random.Random(f"{self.seed}:{self.next}")
        self.next += 1
        return self._program()

    def _program(self) -> Program:
        kind = self.random.choice(["function", "function", "step", "module"])
        setups = [self._one("SETUPS") for _ in range(self.random.choice([0, 0, 1, 1, 2, 3]))]
        setups.append(f"opt = {self._one('OPTIMIZERS')}")
        self.training = {"function": 0.03, "step": 0.3, "module": 0.02}[kind]
        body = [self.random.choice(parts.STARTS)]
        body += [self._statement() for _ in range(self.random.randrange(2, 9))]
        if kind == "step":
            body += ["out = y", "total(out).backward()"] if self._chance(0.5) else []
        result = self.random.choice(parts.RETURNS)
        steps = []
        for _ in range(self.random.randrange(2, 6)):
            steps += [self._change() for _ in range(self.random.choice([0, 0, 1, 1, 2]))]
            steps += self._call(kind)
        dynamic = self.random.choice([None, None, None, None, True, False])
        return Program(kind, setups, body, result, steps, dynamic)

    def _one(self, name: str) -> str:
        return self.random.choice(self.texts[name])

    def _chance(self, likely: float) -> bool:
        return self.random.random() < likely

    def _filled(self, text: str) -> str:
        one, other = self.random.sample(["y", "z", "x", "y"], 2)
        words = {
            "A": one,
            "B": other,
            "V": self.random.choice(["v", "v", one]),
            "K": self.random.choice(["2", "0.5", "n", "-1"]),
            "L": f"l{self.random.randrange(9)}",
        }
        return re.sub(r"\b[ABVKL]\b", lambda m: words[m[0]], text)

    def _plain_statement(self) -> str:
        kind = self.random.random()
        if kind < self.training:
            return self._filled(self._one("TRAINING"))
        if kind < 0.45:
            return f"{self.random.choice('yyzv')} = {self._filled(self._one('EXPRESSIONS'))}"
        if kind < 0.6:
            return f"v = {self._filled(self._one('VIEWS'))}"
        names = {0.75: "WRITES", 0.85: "HOOKS", 1.0: "STATE"}
        return self._filled(self._one(next(name for top, name in names.items() if kind < top)))

    def _statement(self) -> str:
        part = self._plain_statement()
        kind = self.random.random()
        if kind < 0.15:
            inner = part.replace("\n", "\n    ")
            part = f"{self._filled(self._one('WRAPS'))}\n    {inner}"
        elif kind < 0.18:
            inner = part.replace("\n", "\n    ")
            part = f"try:\n    {inner}\nexcept RuntimeError:\n    log.append('refused')"
        return part

    def _change(self) -> str:
        if self._chance(0.1):
            names = self._filled(self._one("STATE"))
            return re.sub(r"\b[xyzv]\b", "a", names)
        return self._one("CHANGES")

    def _argument(self) -> str:
        argument = self._one("ARGUMENTS")
        return f"{argument}, 0" if self._chance(0.15) else argument

    def _call(self, kind: str) -> list[str]:
        call = f"run({self._argument()})"
        if kind == "step" and self._chance(0.7):
            return [f"result = {call}"]
        return [self._one("CALLS").replace("R", call) for _ in range(self.random.choice([1, 1, 2]))]


@dataclass(frozen=True)
class Expected:
    """What eager shows of a program, after each step."""

    definitions: str
    filename: str
    statements: list[ast.stmt]
    still: set[str]
    pictures: list[dict[str, Any]]


def _expected(definitions: str, steps: str) -> Expected | None:
    """None for a program whose set up is refused."""
    statements = ast.parse(steps).body
    filename = f"<training {next(_numbers)}>"
    lines = definitions.splitlines(keepends=True)
    linecache.cache[filename] = (len(definitions), None, lines, filename)
    with _quiet():
        try:
            eager = World(definitions, filename, None)
        except RuntimeError:
            return None
        still = _stateless(eager.namespace)
        eager.hidden |= still
        pictures = [_seen(eager, statement) for statement in statements]
    return Expected(definitions, filename, statements, still, pictures)


def _worlds(
    expected: Expected, backend: str, dynamic: bool | None
) -> Iterator[tuple[str, Any, Any]]:
    """What can be seen after each step, eager and compiled."""
    dynamo.reset()
    with dynamo.config.patch(recompile_limit=64), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        world = World(expected.definitions, expected.filename, backend, dynamic)
        world.hidden |= expected.still
        for statement, wanted in zip(expected.statements, expected.pictures):
            yield ast.unparse(statement), wanted, _seen(world, statement)
    if faults := told_faults(caught):
        raise AssertionError(faults[0])


def told_faults(caught: list[warnings.WarningMessage]) -> list[str]:
    """The faults of capture among what was warned of."""
    return [text for one in caught if re.search(r"\bfault", text := str(one.message))]


def _stateless(namespace: dict[str, Any]) -> set[str]:
    """Names of functions and of classes that programs leave as they are: not compared each time."""
    kinds = (types.FunctionType, type)
    return {name for name, value in namespace.items() if isinstance(value, kinds)} - {"Negated"}


def _seen(world: World, statement: ast.stmt) -> dict[str, Any]:
    try:
        return world.step(statement, names=RUNS.search(ast.unparse(statement)) is not None)
    except RuntimeError as error:  # of looking: autograd refuses it, after some writes
        return {"result": f"{type(error).__name__}: {error}"}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def mismatch(program: Program, *backends: str) -> str | None:
    """Where eager and compiled differ, with the first backend that does."""
    steps = "\n".join(program.steps)
    return difference(program.definitions(), steps, *backends, dynamic=program.dynamic)


def disagreements(programs: Iterator[Program], count: int, *backends: str) -> str:
    """The programs, of so many, that differ from eager, each with where; empty: none does."""
    told = [
        (program, mismatch(program, *backends)) for program in itertools.islice(programs, count)
    ]
    return "\n".join(f"{program}\n{text}" for program, text in told if text)


def difference(
    definitions: str, steps: str, *backends: str, dynamic: bool | None = None
) -> str | None:
    """Where eager and compiled differ, numbers within what fused kernels round."""
    expected = _expected(definitions, steps)
    if expected is None:
        return None
    told = (_difference(expected, backend, dynamic) for backend in backends)
    return next((f"{backend}: {text}" for backend, text in zip(backends, told) if text), None)


def _difference(expected: Expected, backend: str, dynamic: bool | None) -> str | None:
    try:
        for step, wanted, got in _worlds(expected, backend, dynamic):
            if wanted == got:
                continue
            wanted, got = plain(wanted), plain(got)
            _leave_lines(wanted, got, expected.definitions.splitlines())
            if wanted != got and not close(wanted, got):
                refused = str(got["result"]), str(wanted["result"])
                if any(end in refused[0] for end in ENDS) or AGAIN in refused[1]:
                    return None
                if backend != "eager" and VIEWS in refused[1]:
                    return None
                if any(all(text in one for one in refused) for text in (REFUSED, MIDWAY)):
                    return None
                _told(wanted, got, step)
    except AssertionError as error:
        return "\n".join(line[:600] for line in str(error).splitlines())
    return None


def _leave_lines(wanted: Any, got: Any, lines: list[str]) -> None:
    """Leave the line of an exception of a graph's, where the compiled frame shows its first one: it
    does not run again beside classes and modes that answer for torch.
    """
    results = wanted["result"], got["result"]
    if all(isinstance(one, tuple) and len(one) == 7 for one in results):
        for one, other in zip(*(result[2] for result in results)):
            if one[0] == other[0] and re.match(r"\s*def ", lines[other[1] - 1]):
                place = results[0][2].index(one)
                results[0][2][place] = other


def _told(wanted: Any, got: Any, step: str) -> None:
    for key in wanted:
        if not close(wanted[key], got[key]):
            _descend(wanted[key], got[key], f"{step}: {key}")


def _descend(left: Any, right: Any, path: str) -> None:
    """Raise AssertionError with the first innermost place of two pictures that is not close."""
    if _is_row(left) and _is_row(right) and len(left) == len(right) and not _numbers_of(left):
        for index, (one, other) in enumerate(zip(left, right)):
            if not close(one, other):
                named = isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str)
                _descend(one, other, f"{path}[{one[0] if named else index}]")
    assert_same({"": left}, {"": right}, path)


def _is_row(picture: Any) -> bool:
    return isinstance(picture, list | tuple)


def plain(picture: Any) -> Any:
    """The picture without what depends on addresses, on how autograd's nodes are named and how many
    handles it made.
    """
    if isinstance(picture, str):
        return NODES.sub("", MODIFIED.sub(r"\1", picture)) if len(picture) > 8 else picture
    if isinstance(picture, dict):
        return {key: plain(value) for key, value in picture.items()}
    if isinstance(picture, tuple) and len(picture) == 2 and isinstance(picture[0], str):
        name, held = picture
        if name == "id":  # of a handle
            return (name,)
        if name.startswith("_") and "_hooks" in name and _is_row(held):  # by the id of their handle
            return (name, [plain(value) for _, value in held[1] or ()])
    if _is_row(picture):
        return type(picture)(map(plain, _outside_of_handlers(picture)))
    return picture


def _outside_of_handlers(row: Any) -> Any:
    """The frames of a traceback outside of handlers of the program's; any other row as it is."""
    named = (isinstance(one, tuple) and len(one) == 2 and one[0] in HANDLERS for one in row)
    inside = next((place for place, found in enumerate(named) if found), None)
    return row if inside is None or not isinstance(row[inside][1], int) else row[:inside]


def _numbers_of(picture: Any) -> list[float] | None:
    if not picture or not all(isinstance(one, str) for one in picture):
        return None
    try:
        return [float(one) for one in picture]
    except ValueError:
        return None


def close(left: Any, right: Any) -> bool:
    if left == right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(close(left[key], right[key]) for key in left)
    if not (_is_row(left) and _is_row(right) and len(left) == len(right)):
        return isinstance(left, float) and isinstance(right, float) and _near([left], [right])
    first, second = _numbers_of(left), _numbers_of(right)
    if first is not None and second is not None:
        return _near(first, second)
    return all(map(close, left, right))


def _near(left: list[float], right: list[float]) -> bool:
    size = max([1.0, *(abs(one) for one in left if math.isfinite(one))])
    return all(
        one == other or (one != one and other != other) or abs(one - other) <= 2e-4 * size
        for one, other in zip(left, right)
    )


def run_programs(made: type[Programs], name: str, described: str | None) -> int:
    """Compare the programs that the command line asks for; 1 if one differs."""
    parser = argparse.ArgumentParser(prog=name, description=described)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    parser.add_argument("--backend", default="eager,aot_eager", help="one of them, or several")
    options = parser.parse_args()
    backends = options.backend.split(",")
    without_waiting()
    print(f"--seed {options.seed} --programs {options.programs} --backend {options.backend}")
    wrong = 0

    def fails(program: Program) -> bool:
        return _told_or_raised(program, *backends) is not None

    programs = itertools.islice(made(options.seed, options.first), options.programs)
    for number, program in enumerate(programs, options.first):
        if told := _told_or_raised(program, *backends):
            wrong += 1
            small = reduced(program, ("steps", "body", "setups"), fails)
            text = _told_or_raised(small, *backends) or f"once: {told}"
            print(f"== {number}\n{small}\n  {text}", flush=True)
    print(f"{options.programs} programs, {wrong} differ")
    return bool(wrong)


def without_waiting() -> None:
    """For small programs: nothing imported is looked through again and again for garbage, and no
    threads wait for one another.
    """
    gc.collect()
    gc.freeze()
    torch.set_num_threads(1)


def _told_or_raised(program: Program, *backends: str) -> str | None:
    try:
        return mismatch(program, *backends)
    except SyntaxError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(run_programs(Programs, "python -m tests.fuzz.training", __doc__))
