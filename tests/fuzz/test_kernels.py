"""Random programs of tensor operators: eager and compiled agree in everything that can be seen.

`make fuzz` runs more of them, with a seed of its own that it prints.
"""

import itertools

import pytest

from tests.fuzz.kernels import Programs, mismatch


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_programs(seed):
    for program in itertools.islice(Programs(seed), 3):
        assert mismatch(program) is None, program


@pytest.mark.slow
@pytest.mark.parametrize("seed", [13, 21])
def test_more_programs(seed):
    for program in itertools.islice(Programs(seed), 12):
        assert mismatch(program) is None, program
