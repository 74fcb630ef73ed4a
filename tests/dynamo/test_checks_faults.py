"""A graph that fails alone, where the frame runs again eagerly and eager execution goes through."""

import warnings

import pytest
import torch

import dynamo
from tests.dynamo.test_checks import (
    FITS,
    GOOD,
    LOG,
    TOO_FAR,
    index_caught,
    index_suppressed,
    outcome,
    same,
)


def in_a_try_block(x, rows):
    try:
        return x[rows] + 1
    finally:
        LOG.append("left")


def in_a_with_block(x, rows):
    with torch.no_grad():
        return x[rows] + 1


def checked_first(x, rows):
    if (x > 100).any():
        raise ValueError("too large")
    return x + 1


@pytest.mark.parametrize("function", [in_a_try_block, in_a_with_block, checked_first])
def test_a_backend_that_fails_alone_is_told_of_once_where_eager_has_the_last_word(function):
    def backend(module, examples):
        def run(*inputs):
            raise ArithmeticError("wrong code")

        return run

    program = dynamo.compile(function, backend=backend)
    expected = function(GOOD, FITS)
    with pytest.warns(RuntimeWarning, match=f"(?s){function.__name__}.*wrong code") as caught:
        results = [program(GOOD, FITS), program(GOOD, FITS)]
    assert all(same(expected, result) for result in results)
    assert len(caught) == 1


def test_what_the_program_catches_is_no_fault():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function in (index_caught, index_suppressed):
            found = outcome(dynamo.compile(function, backend="eager"), (GOOD, TOO_FAR))
            assert same(outcome(function, (GOOD, TOO_FAR)), found)
