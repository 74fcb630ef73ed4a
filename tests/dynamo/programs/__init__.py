"""Programs as data: a folder for each subject, a file for each family of programs, one harness.

A family is a module with PROGRAMS, name -> text of a program (tests/dynamo/differential.py), after
what else is known about the program:

    "name": "..."                       something is captured
    "name": (2, "...")                  in all calls there are two graphs; SOME: at least one
    "name": (None, "...")               any number, which may depend on the Python version
    "name": ([1, 2], "...")             one in the frame, two in the continuation compiled first
    "name": (2, "PRINT DATA", "...")    two graphs, and breaks of exactly these codes; "": no break

FAMILY holds for all programs of the module. A module with a TABLE has programs of one line
(tests/dynamo/library_support.py), which see the names of the module.

`pytest tests/dynamo/programs/test_language.py -k generators` runs a family.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dynamo
from tests.dynamo.differential import BACKENDS, SOME, check
from tests.dynamo.library_support import check_line, programs

ONE = ("eager",)  # backend, for programs whose graphs any backend runs alike


@dataclass(frozen=True)
class Family:
    """What holds for all programs of a module.

    prelude: definitions before those of each program. steps: of programs that have none of their
    own. one: programs of a family of several backends that one backend runs. captured: something
    is captured where no number of graphs is told. unbroken: a number of graphs means that nothing
    breaks. collector: whether the garbage collector is on. config: of dynamo.config. dynamic: each
    program runs once with each of these.
    """

    prelude: str = ""
    steps: str = ""
    backends: tuple[str, ...] = BACKENDS
    one: frozenset[str] = frozenset()
    captured: bool = True
    unbroken: bool = False
    collector: bool = True
    config: dict[str, Any] = field(default_factory=dict)
    dynamic: tuple[bool | None, ...] = (None,)

    def check(self, name: str, program: str | tuple[Any, ...]) -> None:
        if isinstance(program, str):
            program = (SOME if self.captured else None, program)
        graphs, breaks, text = program if len(program) == 3 else (program[0], None, program[1])
        if graphs in (None, SOME):
            breaks = None
        elif self.unbroken and graphs:
            breaks = ""
        with dynamo.config.patch(**self.config), self._collector():
            for dynamic in self.dynamic:
                check(
                    text,
                    graphs=graphs,
                    breaks=breaks,
                    backends=ONE if name in self.one else self.backends,
                    prelude=self.prelude,
                    steps=self.steps,
                    dynamic=dynamic,
                )

    @contextlib.contextmanager
    def _collector(self) -> Iterator[None]:
        if self.collector:
            yield
            return
        gc.collect()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


def families(subject: str) -> dict[str, ModuleType]:
    """The modules of a folder, by name."""
    names = sorted(path.stem for path in (Path(__file__).parent / subject).glob("*.py"))
    return {name: importlib.import_module(f"{__name__}.{subject}.{name}") for name in names}


def _checks(subject: str) -> Iterator[Any]:
    for name, module in families(subject).items():
        for body in programs(vars(module).get("TABLE", "")):
            text, graphs = body.values
            yield pytest.param(check_line, (text, graphs, vars(module)), id=f"{name}-{body.id}")
        family = vars(module).get("FAMILY", Family())
        for title, program in vars(module).get("PROGRAMS", {}).items():
            yield pytest.param(family.check, (title, program), id=f"{name}-{title}")


def all_programs(subject: str) -> Callable[..., None]:
    """The test of all programs of a subject."""

    @pytest.mark.parametrize(("checked", "program"), list(_checks(subject)))
    def test_program(checked: Callable[..., None], program: tuple[Any, ...]) -> None:
        checked(*program)

    return test_program
