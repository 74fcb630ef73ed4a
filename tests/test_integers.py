"""Arithmetic of sizes in C++ gives what Python's gives: in guards and plans (in the runner of saved
programs: tests/dynamo/test_saved_runner.py).
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import dynamo
from dynamo.guards.kinds import GuardSet
from dynamo.guards.shape_payload import OPS
from dynamo.guards.sources import LocalSource
from inductor.runtime import _plan
from tests.integer_cases import LEAST, MOST, OPERATORS, cases

_IN_GUARDS = {
    **{"//": "floordiv", "%": "mod", "&": "bitand", "|": "bitor", "^": "bitxor"},
    **{"<<": "lshift", ">>": "rshift"},
    **{"==": "eq", "!=": "ne", "<=": "le", ">=": "ge", "<": "lt", ">": "gt"},
}


@pytest.mark.parametrize("name", OPERATORS)
def test_guards(name):
    """`a OP b == c` holds for what Python gives, and for nothing where that has no 64 bits."""
    reads = [(LocalSource(local, slot), 0, 0, local, ()) for slot, local in enumerate("abc")]
    code = [("read", 0), ("read", 1), (_IN_GUARDS.get(name, name), 0), ("read", 2), ("eq", 0)]
    rows = [(OPS[op], operand) for op, operand in code]
    payload = SimpleNamespace(reads=reads, conditions=[(rows, "a OP b == c")])
    guard_set = GuardSet()
    guard_set.add(None, "shapes", payload)
    tree = guard_set.build()
    for a, b, value in cases(name):
        assert tree.check((a, b, value or 0), {}, {}, None) == (value is not None), (a, b, value)
        if value is not None:
            other = value - 1 if value > LEAST else MOST
            assert not tree.check((a, b, other), {}, {}, None), (a, b, value)


def plan_of(name):
    """A plan of two ints that returns `a OP b`."""
    return _plan.Plan(
        {
            "registers": [(0, "int", 0, 0), (0, "int", 1, 0), (0, name, 0, 1)],
            "outputs": [("number", (2, 0))],
            "number_inputs": [0, 1],
            **dict.fromkeys(["values", "statics", "steps", "mutated", "sizes"], []),
            **{"derivation": None, "library": None, "release_gil": False},
            **{"first_write": 0, "arena_bytes": 0, "arena_device": torch.device("cpu")},
        }
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_plans(name):
    """A divisor of 0 gives 0: such a size stands where nothing is computed."""
    plan = plan_of(name)
    for a, b, value in cases(name):
        if value is None and name in ("//", "%") and b == 0:
            value = 0
        if value is not None:
            assert plan(a, b) == (value,), (a, b)
            continue
        with pytest.raises(RuntimeError, match="does not fit into 64 bits") as raised:
            plan(a, b)
        assert f"{a} {name} {b}" in str(raised.value)


def test_no_wrong_number_of_a_product_that_is_too_large():
    def f(x, n):
        return x + n * n % 1000003

    compiled = dynamo.compile(f, dynamic=True)
    x = torch.arange(4)
    for n in (5, 7, 2**31):
        assert torch.equal(compiled(x, n), f(x, n))
    with pytest.raises(RuntimeError, match="does not fit into 64 bits"):
        compiled(x, 2**33)
    assert torch.equal(compiled(x, 9), f(x, 9))


def test_a_constant_that_is_too_large_stays_pythons():
    def f(x, n):
        return x * float(n * n >> 70)

    compiled = dynamo.compile(f, dynamic=True)
    x = torch.arange(4)
    for n in (5, 7, 2**40 + 1):
        assert torch.equal(compiled(x, n), f(x, n))
