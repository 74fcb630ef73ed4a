"""Numbers at the ends of what floats and 64 bits hold, from outside and from data."""

from __future__ import annotations

import math

import pytest
import torch

import dynamo

BIG = 2**53
PAIRS = [(3, 1.5), (7, 7.0), (BIG + 1, float(BIG)), (BIG, float(BIG)), (-BIG - 1, -float(BIG))]
MIXED = {
    "equal": lambda n, m: (n == m, m != n, n in [m], n in (m,), {n: 1}.get(m)),
    "order": lambda n, m: (n < m, m > n, m >= n, n <= m),
    "extremes": lambda n, m: (min(n, m), max(n, m), min(m, n), max(m, n)),
    "sorted": lambda n, m: (sorted([n, m]), sorted([m, n])),
    "branch": lambda n, m: 1 if n == m else 2,
    "rounded": lambda n, m: (math.floor(n / 1), math.ceil(n / 1), int(n / 1), n / 3, n // m),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", MIXED)
def test_ints_beside_floats_from_outside(name, dynamic):
    def program(x, n, m):
        return x + 1, MIXED[name](n, m)

    compiled = dynamo.compile(program, backend="eager", dynamic=dynamic)
    for n, m in PAIRS:
        x = torch.ones(2)
        assert repr(compiled(x, n, m)) == repr(program(x, n, m)), (n, m)


@pytest.mark.parametrize("name", ["equal", "order", "extremes", "branch", "rounded"])
def test_ints_beside_floats_from_data(name):
    def program(n, m):
        return n + 1, MIXED[name](n.item(), m.item())

    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(program, backend="eager")
        for n, m in PAIRS:
            args = torch.tensor(n), torch.tensor(m, dtype=torch.float64)
            assert repr(compiled(*args)) == repr(program(*args)), (n, m)
