"""The harness of tests/dynamo/test_mutations*.py: one change between two calls, eager and compiled.

A program is a text of two parts, separated by a line of dashes: definitions, among them a function
`f`, and changes, one to a line (or block). Each change makes a pair of its own, in a fresh
namespace: `f` is called twice, the change is made, `f` is called twice again, the change is undone
where the line says how (`# undo: statement`), and `f` is called once more. What the calls give,
raise and log must be the same in a world where `f` is compiled; its first call is captured whole,
and the second compiles nothing. The change changes what eager gives, unless its line ends in
`# same`: a pair that cannot fail shows nothing.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import re
import sys
import textwrap
import types
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest

import dynamo
from tests.dynamo.differential import Picture, assert_same

_numbers = itertools.count()
_MODULE = "mutated_program"
_PRELUDE = """
import abc, collections, contextlib, contextvars, copy, copyreg, dataclasses, enum, functools, itertools, math
import operator, os, sys, types, typing, warnings, weakref
import torch
from torch import nn
log = []
def T(*shape):
    n = math.prod(shape)
    return (torch.arange(n, dtype=torch.float64) * 0.37 - 1.1).reshape(shape).to(torch.float32)
def see(value):
    # What it is, as text that is made while capturing: to return it would read it anew.
    if isinstance(value, torch.Tensor):
        return value + 1
    if isinstance(value, (list, tuple)):
        return [see(item) for item in value]
    return type(value).__name__, repr(value)
def outcome(read, *args):
    try:
        return read(*args)
    except Exception as error:
        return type(error).__name__
"""


@dataclass(frozen=True)
class Pair:
    """One change to one program."""

    name: str
    definitions: str
    change: str
    undo: str
    same: bool  # eager gives the same before and after
    breaks: str  # codes of the breaks in the first call

    @property
    def id(self) -> str:
        return f"{self.name}: {self.change.splitlines()[0]}" if self.change else self.name


def pairs_of(programs: dict[str, str], breaks: Mapping[str, str] = MappingProxyType({})) -> Any:
    """The mark of a test of all pairs of a table of programs; `breaks`: codes by program."""
    pairs = [p for name, text in programs.items() for p in _pairs(name, text, breaks.get(name, ""))]
    return pytest.mark.parametrize("pair", pairs, ids=lambda pair: pair.id)


def _pairs(name: str, text: str, breaks: str) -> Iterator[Pair]:
    definitions, _, changes = textwrap.dedent(text).partition("\n---\n")
    lines = changes.splitlines()
    statements = ast.parse(changes).body
    starts = sorted({statement.lineno for statement in statements})
    ends = [max(s.end_lineno or 0 for s in statements if s.lineno == start) for start in starts]
    for start, end in zip(starts, ends):
        source = "\n".join(lines[start - 1 : end])
        code, _, note = source.rpartition("  # ") if "  # " in source else (source, "", "")
        undo = note.removeprefix("undo: ") if note.startswith("undo: ") else ""
        yield Pair(name, definitions, code, undo, note == "same", breaks)


class _World:
    """A namespace with the program's definitions, and the function under test."""

    def __init__(self, definitions: str, filename: str, backend: str | None) -> None:
        module = sys.modules[_MODULE] = types.ModuleType(_MODULE)
        self.filename = filename
        self.namespace = vars(module)
        exec(compile(_PRELUDE, "<prelude>", "exec", dont_inherit=True), self.namespace)
        exec(compile(definitions, filename, "exec", dont_inherit=True), self.namespace)
        f = self.namespace["f"]
        self.run = f if backend is None else dynamo.compile(f, backend=backend)

    def call(self) -> Any:
        """A picture of what f gives or raises, and of what it logs."""
        self.namespace["log"].clear()
        x = self.namespace["T"](3)
        try:
            result = self.run(x)
        except Exception as error:
            result = (type(error), error.args)
        return _without_addresses(Picture(self.filename).of((result, self.namespace["log"])))

    def change(self, statement: str) -> None:
        exec(compile(statement, "<change>", "exec", dont_inherit=True), self.namespace)

    @property
    def compiled(self) -> list[Any]:
        return self.run.context.records


def _without_addresses(picture: Any) -> Any:
    if isinstance(picture, (list, tuple)):
        return type(picture)(map(_without_addresses, picture))
    return re.sub(" at 0x[0-9a-f]+", "", picture) if isinstance(picture, str) else picture


def _play(pair: Pair, filename: str, backend: str | None) -> tuple[list[Any], Any]:
    world = _World(pair.definitions, filename, backend)
    seen, first = [world.call()], None
    first = None if backend is None else list(world.compiled)
    seen.append(world.call())
    again = None if backend is None else len(world.compiled)
    try:
        world.change(pair.change)
        seen += [world.call(), world.call()]
    finally:
        world.change(pair.undo)
    seen.append(world.call())
    return seen, (first, again)


_CALLS = ("the first call", "the second call", "after the change", "again", "after undoing")


def check_pair(pair: Pair) -> None:
    """Eager and compiled agree at every call; the first breaks as its table says."""
    filename = f"<mutated {next(_numbers)}>"
    lines = pair.definitions.splitlines(keepends=True)
    linecache.cache[filename] = (len(pair.definitions), None, lines, filename)
    expected, _ = _play(pair, filename, None)
    if not pair.same:
        assert expected[1] != expected[2], f"{pair.change!r} changes nothing"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen, (first, again) = _play(pair, filename, "eager")
    for where, wanted, found in zip(_CALLS, expected, seen):
        assert_same({"it": wanted}, {"it": found}, where)
    faults = [str(w.message) for w in caught if "fault" in str(w.message)]
    assert not faults, faults[0]
    codes = sorted({broken.code for record in first for broken in record.breaks})
    assert " ".join(codes) == pair.breaks, f"breaks: {codes}"
    assert any(record.graphs for record in first), "nothing was captured"
    assert pair.breaks or again == len(first), "an unchanged call compiled again"
