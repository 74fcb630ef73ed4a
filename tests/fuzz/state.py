"""Random programs with state that changes between calls: python -m tests.fuzz.state [--programs N]
[--seed S] [--backend B].

A program's `f` reads, uses and writes a few states, each of a holder (a global, an attribute, an
item, a cell, a default, ...: state_holders.py) and a family of values (state_values.py). Between
the calls states take other values, are changed in place, appear and disappear; torch's modes,
builtins and classes change (state_changes.py), though not isinstance for torch itself. Eager and
compiled, in worlds of their own, must agree after every call in everything that can be seen
(tests/dynamo/differential.py). At the end one change and its opposite are made again and again: a
function that is compiled again each time is told, too. For what differs the smallest program that
still does is printed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import itertools
import linecache
import random
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn

import dynamo
from tests.dynamo.differential import World, assert_same
from tests.fuzz.reduction import reduced
from tests.fuzz.state_changes import ANYWHERE, ARGUMENTS, CALLS, CHANGES, MODES, SETTINGS
from tests.fuzz.state_holders import HOLDERS, PREAMBLE
from tests.fuzz.state_values import READS, USES, VALUES
from tests.fuzz.training import close, plain, told_faults, without_waiting

THRASH = "compiled again"
_TOO_DEEP = "maximum recursion depth exceeded"  # where that ends is not compared
TURNS = 6  # of a change and its opposite
_numbers = itertools.count()


@dataclass(frozen=True)
class State:
    """A name of the program: how it is made, read, set and deleted, and its family of values."""

    number: int
    family: str
    setup: str
    read: str
    puts: list[str]
    drops: list[str]


@dataclass(frozen=True)
class Program:
    """Definitions, the statements of f, the steps, and the two changes that take turns."""

    setups: list[str]
    body: list[str]
    steps: list[str]
    turns: list[str] = field(default_factory=list)
    dynamic: bool | None = None
    world: ClassVar[type[World]] = World
    ends: ClassVar[str] = "(?!)"  # results with which comparing ends: errors of capture

    def definitions(self) -> str:
        body = "\n".join(self.body).replace("\n", "\n    ")
        head = "def f(x, *args):\n    out = []\n"
        return "\n".join([PREAMBLE, *self.setups, f"{head}    {body}\n    return x, out", ""])

    def __str__(self) -> str:
        head, tail = self.definitions().removeprefix(PREAMBLE), "\n".join(self.steps)
        turns = "\n".join(f"# in turns: {turn}" for turn in self.turns)
        return f"# dynamic={self.dynamic}\n{head}---\n{tail}\n{turns}"


class Programs(Iterator[Program]):
    """Programs, drawn one after the other; each follows from the seed and its number."""

    def __init__(self, seed: int, first: int = 0) -> None:
        self.seed = seed
        self.next = first

    def __next__(self) -> Program:
        self.random = random.Random(f"{self.seed}:{self.next}")
        self.next += 1
        return self._program()

    def _program(self) -> Program:
        states = [self._state(number) for number in range(self.random.choice([1, 1, 2, 2, 3]))]
        body = [line for _ in range(self.random.randrange(1, 5)) for line in self._part(states)]
        steps = [f"run({self._argument(states)})"]
        for _ in range(self.random.randrange(3, 9)):
            steps += self._changes(states)
            steps.append(self._call(states))
        turns = self._turns(self.random.choice(states)) if self._chance(0.6) else []
        setups = [state.setup for state in states]
        if any("type(" in part for part in body):  # a class of each call's own
            turns = []
        dynamic = self.random.choice([None, None, None, None, True, False])
        return Program(setups, body, steps, turns, dynamic)

    def _turns(self, state: State) -> list[str]:
        """Two changes, but of those that make functions, classes and keys that are equal to none
        before: what is new is compiled.
        """
        puts = [put for put in state.puts if not re.search(r"lambda|\btype\(|def |__code__", put)]
        values = [self._value(state.family) for _ in range(2)]
        if not puts or any(re.search(r"lambda|Lies\(|Str\(", value) for value in values):
            return []
        put = self.random.choice(puts)
        return [re.sub(r"\bW\b", lambda _, value=value: value, put) for value in values]

    def _state(self, number: int) -> State:
        family = self.random.choice([*VALUES, "tensor", "net", "object"])
        holder = self.random.choice(list(HOLDERS))
        value = self._value(family)
        setup, read, puts, drops = HOLDERS[holder]

        def named(text: str) -> str:
            return re.sub(r"\b([a-zA-Z])N\b", rf"\g<1>{number}", text)

        setup = re.sub(r"\bV\b", lambda _: value, named(setup))
        return State(number, family, setup, named(read), [*map(named, puts)], [*map(named, drops)])

    def _value(self, family: str) -> str:
        if self._chance(0.08):
            family = self.random.choice(list(VALUES))
        return self.random.choice(VALUES[family])

    def _chance(self, likely: float) -> bool:
        return self.random.random() < likely

    def _filled(self, text: str, state: State) -> str:
        return re.sub(r"\bS\b", lambda _: state.read, text)

    def _part(self, states: list[State]) -> list[str]:
        """A statement; one that a holder's expression does not fit is drawn again."""
        while True:
            part = self._any_part(states)
            with contextlib.suppress(SyntaxError):
                compile(part, "<part>", "exec")
                return [part]

    def _any_part(self, states: list[State]) -> str:
        state = self.random.choice(states)
        kind = self.random.random()
        if kind < 0.5:
            part = self._filled(self.random.choice(USES[state.family]), state)
        elif kind < 0.8:
            families = ["", state.family] if READS[state.family] else [""]
            read = self._filled(self.random.choice(READS[self.random.choice(families)]), state)
            part = f"out.append({read})"
        elif kind < 0.9:
            part = self._write(state)
        else:
            other = self.random.choice(states)
            sign = self.random.choice(["is", "==", "is not"])
            part = f"if {state.read} {sign} {other.read}:\n    x = x + 10"
        wrap = self.random.random()
        inner = part.replace("\n", "\n    ")
        if wrap < 0.08:
            part = f"try:\n    {inner}\nexcept Exception as error:\n    out.append(str(error))"
        elif wrap < 0.16:
            number = self.random.randrange(100)
            part = f"def inner{number}(x):\n    {inner}\n    return x\nx = inner{number}(x)"
        elif wrap < 0.2:
            part = f"with torch.no_grad():\n    {inner}"
        elif wrap < 0.24:
            part = f"dynamo.graph_break()\n{part}"
        elif wrap < 0.28:
            part = f"for turn in range(2):\n    {inner}"
        elif wrap < 0.31:
            part = f"if x.sum() > 0:\n    {inner}"
        return part

    def _write(self, state: State) -> str:
        put = self.random.choice(state.puts)
        choices = [self._value(state.family)]
        if "lambda" not in put:  # which would call itself
            choices.append(state.read)
        if state.family in ("number", "tensor"):
            choices += [f"{state.read} + 1", f"{state.read} * 2", "x.detach()", "x"]
        put = re.sub(r"\bW\b", lambda _: self.random.choice(choices), put)
        names = sorted({*re.findall(r"\b([a-z]\d)(?= =|, [a-z]\d =)", put)})
        lines = [f"global {', '.join(names)}"] if names else []
        number = self.random.randrange(100)
        if "\n" not in put and not names:
            return put
        inner = "\n".join([*lines, put]).replace("\n", "\n    ")
        return f"def write{number}():\n    {inner}\nwrite{number}()"

    def _changes(self, states: list[State]) -> list[str]:
        return [self._change(states) for _ in range(self.random.choice([0, 1, 1, 1, 2]))]

    def _change(self, states: list[State]) -> str:
        state = self.random.choice(states)
        kind = self.random.random()
        if kind < 0.1:
            return self.random.choice(ANYWHERE)
        if kind < 0.15 and state.drops:
            return self.random.choice(state.drops)
        if kind < 0.6 and CHANGES[state.family]:
            return self._filled(self.random.choice(CHANGES[state.family]), state)
        put = self.random.choice(state.puts)
        value = self._value(state.family)
        if self._chance(0.1):
            value = self.random.choice([s.read for s in states])
        elif self._chance(0.08):
            value = f"{self.random.choice(['copy.copy', 'copy.deepcopy'])}({state.read})"
        return re.sub(r"\bW\b", lambda _: value, put)

    def _argument(self, states: list[State]) -> str:
        if self._chance(0.1):
            return self.random.choice(states).read
        return self.random.choice(ARGUMENTS if self._chance(0.5) else ARGUMENTS[:1])

    def _call(self, states: list[State]) -> str:
        call = self.random.choice(CALLS).replace("ARGS", self._argument(states))
        if self._chance(0.15):
            call = f"with {self.random.choice(MODES)}:\n    result = {call}"
        elif self._chance(0.06):
            setting = self.random.choice(SETTINGS)
            call = f"with contextlib.ExitStack() as later:\n    {setting}\n    result = {call}"
            call = call.replace(f"{setting}", setting.replace("\n", "\n    "))
        return call


def _is_call(step: str) -> bool:
    return re.search(r"\b(run|grads|threaded)\b", step) is not None


def _outcome(world: World, step: str) -> Any:
    """What can be seen after a step; after a change, its exception."""
    (statement,) = tree = ast.parse(step).body if "\n" not in step else [_compound(step)]
    if _is_call(step):
        return world.step(statement)
    try:
        exec(compile(ast.Module(list(tree), []), "<step>", "exec"), world.namespace)
    except Exception as error:
        return {"change": f"{type(error).__name__}: {error}".partition(" at 0x")[0]}
    return {"change": None}


def _compound(step: str) -> ast.stmt:
    body = ast.parse(step).body
    if len(body) == 1:
        return body[0]
    statement = ast.parse("if True: pass").body[0]
    assert isinstance(statement, ast.If)
    statement.body = body
    return statement


@contextlib.contextmanager
def _classes_restored() -> Iterator[None]:
    """What a program changes in classes that it did not make does not reach others."""
    classes = [torch.Tensor, *(one for one in vars(nn).values() if isinstance(one, type))]
    before = [(one, dict(vars(one))) for one in classes]
    try:
        yield
    finally:
        for one, attributes in before:
            for name in [*vars(one)]:
                if name not in attributes:
                    delattr(one, name)
            for name, value in attributes.items():
                if name != "__dict__" and vars(one).get(name) is not value:
                    setattr(one, name, value)


def mismatch(program: Program, *backends: str) -> str | None:
    """Where eager and compiled differ, or how often the program was compiled again, with the first
    backend of which something is told.
    """
    with _classes_restored():
        definitions, filename = _written(program)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                eager = program.world(definitions, filename, None)
        except SyntaxError:
            raise
        except Exception:
            return None  # the values do not fit the holder
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = [_outcome(eager, step) for step in program.steps]
    for backend in backends:
        with _classes_restored():
            if told := _compared(program, expected, backend, definitions, filename):
                return f"{backend}: {told}"
    return None


def _written(program: Program) -> tuple[str, str]:
    """The definitions, and the name of their file."""
    definitions = program.definitions()
    filename = f"<state {next(_numbers)}>"
    lines = definitions.splitlines(keepends=True)
    linecache.cache[filename] = (len(definitions), None, lines, filename)
    return definitions, filename


def _compared(
    program: Program, expected: list[Any], backend: str, definitions: str, filename: str
) -> str | None:
    dynamo.reset()
    with (
        dynamo.config.patch(recompile_limit=64, numpy_exact=True),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        world = program.world(definitions, filename, backend, program.dynamic)
        for step, wanted in zip(program.steps, expected):
            got = _outcome(world, step)
            told = _difference(wanted, got, step, exact=backend != "inductor")
            if told and re.search(program.ends, str(got.get("result"))):
                break
            if told:
                return told
        if faults := told_faults(caught):
            return faults[0]
        warnings.simplefilter("ignore")
        return _thrash(world, program)


def _difference(wanted: Any, got: Any, step: str, *, exact: bool) -> str | None:
    """Where the pictures differ; numbers within what fused kernels round, where not exact."""
    if wanted == got or _TOO_DEEP in str(wanted) and _TOO_DEEP in str(got):
        return None
    wanted, got = plain(wanted), plain(got)
    if not exact and close(wanted, got):
        return None
    try:
        assert_same(wanted, got, step)
    except AssertionError as error:
        return "\n".join(line[:500] for line in str(error).splitlines())
    return None


def _thrash(world: World, program: Program) -> str | None:
    """How often f is compiled when the same two changes are made again and again."""
    addresses = program.dynamic is False and "data_ptr" in program.definitions()
    if not program.turns or addresses:  # each another number, none of which may be a symbol
        return None
    changes = [compile(turn, "<step>", "exec") for turn in program.turns]
    call = compile("run(T(3))", "<step>", "exec")
    counts = []
    for turn in range(TURNS):
        for change in changes:
            try:
                exec(change, world.namespace)
                exec(call, world.namespace)
            except Exception:
                return None
        counts.append(len(world.run.context.records))
    new = [after - before for before, after in itertools.pairwise(counts)]
    return f"{THRASH}: {new}" if new[-1] and new[-2] and new[-3] else None


def _reduced(program: Program, backends: list[str], found: str) -> Program:
    """The smallest part of a program that still fails in the same manner."""
    thrash = THRASH in found

    def fails(one: Program) -> bool:
        try:
            told = mismatch(one, *backends)
        except Exception:
            return False
        return told is not None and (THRASH in told) == thrash

    parts = ("steps", "body", "setups") if thrash else ("turns", "steps", "body", "setups")
    return reduced(program, parts, fails)


def main(
    made: type[Programs] = Programs, name: str = "state", described: str | None = __doc__
) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m tests.fuzz.{name}", description=described)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    parser.add_argument("--backend", default="eager,aot_eager", help="one of them, or several")
    options = parser.parse_args()
    backends = options.backend.split(",")
    without_waiting()
    print(f"--seed {options.seed} --programs {options.programs} --backend {options.backend}")
    wrong = 0
    programs = itertools.islice(made(options.seed, options.first), options.programs)
    for number, program in enumerate(programs, options.first):
        try:
            found = mismatch(program, *backends)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found:
            wrong += 1
            small = _reduced(program, backends, found)
            told = mismatch(small, *backends) or found
            print(f"== {number}\n{small}\n  {told}", flush=True)
    print(f"{options.programs} programs, {wrong} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
