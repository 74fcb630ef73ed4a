"""Random programs with state that changes between calls: each call sees what eager sees.

`make fuzz` runs more of them, with a seed of its own that it prints.
"""

import itertools

import pytest

from tests.fuzz import alike
from tests.fuzz.state import Programs, mismatch


def disagreements(seed: int, count: int, backend: str, made: type[Programs] = Programs) -> str:
    drawn = itertools.islice(made(seed), count)
    told = [(program, mismatch(program, backend)) for program in drawn]
    return "\n".join(f"{program}\n{text}" for program, text in told if text)


@pytest.mark.parametrize("seed", range(4))
def test_programs(seed):
    wrong = disagreements(seed, 15, "eager")
    assert not wrong, wrong


def test_aot_eager():
    wrong = disagreements(100, 6, "aot_eager")
    assert not wrong, wrong


@pytest.mark.parametrize("seed", range(2))
def test_what_is_compiled_one_by_one(seed):
    wrong = disagreements(seed, 10, "eager", alike.Programs)
    assert not wrong, wrong


@pytest.mark.slow
def test_inductor():
    wrong = disagreements(101, 5, "inductor")
    assert not wrong, wrong
