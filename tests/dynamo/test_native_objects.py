"""Members of C++ enums, thread locals, versions, hashes by address, cleared tracebacks."""

from __future__ import annotations

import threading
import unittest

import pytest
import torch
from torch.nn.attention import SDPBackend

import dynamo
from tests.dynamo.values_support import CountingBackend


class Plain:
    pass


class Case(unittest.TestCase):
    def runTest(self):
        pass


case, plain, other = Case(), Plain(), Plain()
local = threading.local()
NAMES = {SDPBackend.MATH: 1.0, SDPBackend.FLASH_ATTENTION: 2.0}


def compares_members(x, member):
    if member == SDPBackend.MATH:
        return x + NAMES[member], len(member.name), int(member.value)
    return x - NAMES.get(member, 5.0), member is SDPBackend.MATH, member in (SDPBackend.MATH,)


def compares_versions(x):
    return (x + 1 if torch.__version__ >= "2.1" else x), torch.__version__ < (1, 0)


def hashes(x):
    pairs = hash(plain) == hash(plain), hash(plain) == hash(other), hash(hashes) == hash(Plain)
    return x + 1, pairs, hash(plain), {hash(plain): x}[hash(plain)]


def expects_error(x):
    with case.assertRaises(ValueError) as caught:
        raise ValueError("seen")
    with case.assertRaisesRegex(KeyError, "1"):
        {}[1]
    case.assertRaises(IndexError, [].__getitem__, 0)
    return x + 1, len(str(caught.exception))


def expects_error_in_callee(x):
    def fails(y):
        raise TypeError(y.shape[0])

    with case.assertRaises(TypeError):
        fails(x)
    return x * 2


@pytest.mark.parametrize(
    "program", [compares_versions, hashes, expects_error, expects_error_in_callee]
)
def test_one_graph(program):
    x = torch.arange(3.0)
    captured = dynamo.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(captured(x), program(x))


def test_members_of_native_enums():
    backend = CountingBackend()
    captured = dynamo.compile(compares_members, backend=backend, fullgraph=True)
    x = torch.arange(3.0)
    for member in (*SDPBackend.__members__.values(), SDPBackend.MATH):
        torch.testing.assert_close(captured(x, member), compares_members(x, member))
    assert backend.graphs == len(SDPBackend.__members__)


def test_missing_assertion_is_raised():
    def program(x):
        with case.assertRaises(ValueError):
            x = x + 1
        return x

    with pytest.raises(AssertionError, match="ValueError not raised"):
        dynamo.compile(program, backend="eager")(torch.ones(2))


def test_the_dict_of_a_thread_local():
    """What was written to the dict is what the attribute gives."""

    def count(x):
        values = local.__dict__
        values["count"] = values.get("count", 0) + 1
        return x * values["count"], local.count, hasattr(local, "count")

    compiled = dynamo.compile(count, backend="eager", fullgraph=True)
    local.__dict__.pop("count", None)
    for turn in (1, 2, 3):
        assert compiled(torch.ones(())) == (turn, turn, True)


def test_names_in_the_dict_of_a_thread_local():
    def changes(x, other):
        values, seen = vars(local), []
        values.setdefault("first", 2)
        seen.append(("first" in values, values.pop("gone", "none"), values.get("last")))
        local.last = 5
        seen.append((values["last"], values.pop("first"), hasattr(local, "first")))
        with pytest.raises(KeyError):
            values["first"]
        del values["last"]
        other["scale"] = other.get("scale", 0) + 1
        return x * other["scale"], seen, values is local.__dict__, isinstance(values, dict)

    def run(f):
        local.__dict__.clear()
        mine = [f(torch.ones(()), local.__dict__), f(torch.ones(()), {"scale": 3})]
        thread = threading.Thread(target=lambda: mine.append(f(torch.ones(()), local.__dict__)))
        thread.start()
        thread.join()
        return mine, dict(local.__dict__)

    assert run(dynamo.compile(changes, backend="eager")) == run(changes)


def test_the_dict_of_a_thread_local_behind_a_break():
    """Written before the break and behind the break, also by what the break calls."""

    def f(x):
        values = local.__dict__
        values["a"] = x + 1
        dynamo.graph_break()
        values["b"] = values["a"] * 2
        return values, len(values), sorted(values)

    compiled = dynamo.compile(f, backend="eager")
    for _ in range(2):
        local.__dict__.clear()
        values, *told = compiled(torch.ones(()))
        assert values is local.__dict__ and told == [2, ["a", "b"]]
        assert (values["a"], values["b"]) == (2, 4)


def test_thread_locals_are_the_threads():
    def program(x):
        return x + local.scale if hasattr(local, "scale") else x

    captured = dynamo.compile(program, backend="eager", fullgraph=True)
    x, found = torch.ones(2), []

    def runs():
        found.append(captured(x))
        local.scale = 7.0
        found.append(captured(x))

    local.__dict__.clear()
    assert torch.equal(captured(x), x)
    local.scale = 3.0
    assert torch.equal(captured(x), x + 3)
    thread = threading.Thread(target=runs)
    thread.start()
    thread.join()
    assert torch.equal(found[0], x) and torch.equal(found[1], x + 7)
    assert torch.equal(captured(x), x + 3)
    local.scale = 4.0
    assert torch.equal(captured(x), x + 4)
    del local.scale
    assert torch.equal(captured(x), x)


def test_same_memory_is_asked_of_the_tensors():
    def program(x, y):
        return x.is_set_to(y), x + 1

    x = torch.arange(4.0)
    captured = dynamo.compile(program, backend="eager")
    for y in (x, x.view(4), x[:2], x.clone()):
        torch.testing.assert_close(captured(x, y), program(x, y))
