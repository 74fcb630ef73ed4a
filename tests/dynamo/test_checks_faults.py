"""A graph that fails alone, where the frame runs again eagerly and eager execution goes through."""

import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

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


# -- checkpoints behind what may fail -------------------------------------------------------------
def embeds_and_checkpoints(table, rows):
    """As decoders of transformers train with gradient checkpointing."""
    try:
        hidden = table[rows]
        return checkpoint(
            lambda h: torch.nn.functional.dropout(h.sin() * table[0], 0.5),
            hidden,
            use_reentrant=False,
        )
    finally:
        LOG.append("left")


def indexes_in_a_checkpoint(table, rows):
    try:
        return checkpoint(lambda t: (t * 2)[rows], table, use_reentrant=False)
    except IndexError:
        LOG.append("caught")
        return table * 3


def writes_in_a_checkpoint(table, rows, count):
    def body(t):
        count.add_(1)
        return t * t

    try:
        hidden = checkpoint(body, table, use_reentrant=False)
        return hidden[rows]
    except IndexError:
        return table * 3


@pytest.mark.parametrize(
    ("function", "breaks"),
    [
        (embeds_and_checkpoints, 0),
        (indexes_in_a_checkpoint, 0),
        (writes_in_a_checkpoint, 1),
    ],
)
@pytest.mark.parametrize("rows", [[0, 2], [0, 7]])
def test_checkpoints_beside_operations_that_may_fail(function, breaks, rows):
    def outcome(program):
        table = torch.arange(12.0).reshape(4, 3).requires_grad_()
        count = torch.zeros(())
        extra = (count,) if function is writes_in_a_checkpoint else ()
        LOG.clear()
        torch.manual_seed(0)
        try:
            result = program(table, torch.tensor(rows), *extra)
        except IndexError as error:
            return str(error), *LOG
        result.sum().backward()
        return result.tolist(), table.grad.tolist(), count.item(), torch.rand(1).item(), *LOG

    compiled = dynamo.compile(function, backend="eager")
    assert outcome(compiled) == outcome(function)
    assert sum(len(record.breaks) for record in compiled.context.records) == breaks
