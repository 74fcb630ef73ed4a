"""Random programs: eager and compiled agree in everything that can be seen.

`make fuzz` runs more of them, with a seed of its own that it prints.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.dynamo.differential import check
from tests.fuzz.programs import Lines, blocks, program

COMMON = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate],  # `make fuzz` looks for a smaller one that fails
}
# Parts, so that they spread over processes; the part is the seed.
PARTS = range(4)


def agree(part: int, count: int, depth: int, backend: str) -> None:
    @seed(part)
    @settings(max_examples=count, **COMMON)
    @given(body=blocks(depth))
    def test(body: Lines) -> None:
        check(program(body), graphs=None, backends=(backend,))

    test()


@pytest.mark.parametrize("part", PARTS)
def test_eager(part):
    depth = 1 + part % 2
    agree(part, 45 if depth == 1 else 7, depth, "eager")  # a deep one costs as much as ten


def test_aot_eager():
    agree(100, 15, 1, "aot_eager")


@pytest.mark.slow
def test_inductor():
    agree(101, 10, 1, "inductor")
