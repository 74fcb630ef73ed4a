"""hasattr, getattr with a default and dir of every kind of value, beside eager: of one that the
frame makes, and of one from outside.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.dynamo.capturing import compiled
from tests.dynamo.reflection_kinds import KINDS, namespace

NAMES = {
    *dir(type),
    *dir(object),
    *(
        "__get__",
        "__set__",
        "__delete__",
        "__call__",
        "__iter__",
        "__next__",
        "__len__",
        "__self__",
    ),
    *("__func__", "__code__", "__wrapped__", "__getattr__", "__enter__", "__index__"),
    *(
        "__await__",
        "__isabstractmethod__",
        "__torch_function__",
        "__array__",
        "__slots__",
        "nothing",
    ),
}
# Guards hold weak references; the flags of a class tell whether its version is in use.
UNCOMPARED = {"__weakref__", "__flags__"}
LITERALS = (bool, int, float, complex, str, bytes, types.NoneType)
# Kinds without a frame that could be captured: what makes them, or they themselves, break it.
UNCAPTURED = {"proxy", "weak method", "numpy"}
if sys.version_info >= (3, 13):
    UNCAPTURED.add("cached_property")  # the frame that makes one runs as it is
MISSING = object()


def names_of(kind: str, value: Any) -> list[str]:
    own = dir(value) if isinstance(value, type) else object.__dir__(value)
    if kind in UNCAPTURED:
        return ["__name__", "__bases__", "__class__", "__call__", "nothing"]
    return sorted({*NAMES, *(name for name in own if name.startswith("__"))})


def make(space: dict[str, Any], head: str, asked: list[str]) -> Callable[..., Any]:
    lines = "".join(f"  {question},\n" for question in asked)
    exec(compile(f"{head}\n return t + 1, [\n{lines} ]", "<reflection>", "exec"), space)
    return space["f"]


def picture(found: Any) -> Any:
    """What can be compared of what getattr gave: its type, and a literal itself."""
    if found is MISSING:
        return "missing"
    return type(found).__qualname__, found if type(found) in LITERALS else None


@pytest.fixture(scope="module")
def space() -> dict[str, Any]:
    made = namespace()
    made["missing"] = MISSING
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_hasattr(space, kind):
    check(space, kind, "hasattr(x, {!r})", lambda name, found: found)


@pytest.mark.parametrize("kind", KINDS)
def test_getattr(space, kind):
    def compared(name: str, found: Any) -> Any:
        return None if name in UNCOMPARED else picture(found)

    check(space, kind, "getattr(x, {!r}, missing)", compared)


def check(space: dict[str, Any], kind: str, question: str, compared: Callable[..., Any]) -> None:
    """Ask a value that the frame makes, and one that it gets."""
    expression = KINDS[kind]
    names = names_of(kind, eval(expression, space))
    asked = [question.format(name) for name in names]
    made = make(space, f"def f(t):\n x = {expression}", [*asked, "sorted(dir(x))"])
    given = make(space, "def f(t, x):", [*asked, "sorted(dir(x))"])
    for function, args in ((made, ()), (given, (eval(expression, space),))):
        (_, (*expected, listed)) = function(torch.ones(2), *args)
        captured, record = compiled(function)
        (_, (*found, found_names)) = captured(torch.ones(2), *args)
        for name, left, right in zip(names, expected, found):
            assert compared(name, left) == compared(name, right), (name, left, right)
        assert listed == found_names
        reasons = [b.reason for r in record.context.records for b in r.breaks]
        assert not [reason for reason in reasons if "fault" in reason]
        assert kind in UNCAPTURED or sum(record.op_counts) >= 1, "nothing was captured"
