"""Operations that fail on the values of tensors: one graph, and eager's exception (test_checks.py).

PYTEST_DONT_REWRITE: the programs' assertions are Python's own.
"""

from __future__ import annotations

import contextlib

import pytest
import torch

import dynamo
from tests.dynamo.capturing import compiled, outcome, same
from tests.dynamo.test_checks import GOOD, LOG, checks_of, registry

PROGRAMS, program = registry()
FITS, TOO_FAR = torch.tensor([0, 2]), torch.tensor([1, 9])
TABLE = torch.arange(12.0).reshape(4, 3)
SINGULAR = torch.zeros(3, 3)


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def effects_before_an_index(x, index):
    LOG.append("before")
    y = x.sin()[index]
    LOG.append("behind")
    return y * 2


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def index_caught(x, index):
    try:
        y = x.sin()[index]
        LOG.append("fits")
    except IndexError as error:
        LOG.append(str(error))
        y = x
    finally:
        LOG.append("left")
    return y * 2


def looked_up(x, index):
    LOG.append("inside")
    return x.index_select(0, index)


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def index_caught_by_the_caller(x, index):
    try:
        return looked_up(x + 1, index) * 2
    except IndexError:
        return x - 1


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def index_suppressed(x, index):
    y = x + 1
    with contextlib.suppress(IndexError):
        y = y[index]
        LOG.append("fits")
    return y * 2


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def shown_before_an_index(x, index):
    print("looking up")
    y = x[index]
    print("found")
    return y + 1


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def drawn_and_caught(x, index):
    noise = torch.rand(4)
    try:
        y = (x + noise)[index]
    except IndexError:
        y = x + torch.rand(4)
    return y + torch.rand(())


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def drawn_and_raised(x, index):
    LOG.append("before")
    return torch.nn.functional.dropout(x)[index] + torch.rand(())


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def modes_of_a_failed_graph(x, index):
    with torch.no_grad():
        y = x[index]
    LOG.append("left")
    return y


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def written_before_it_is_caught(x, index):
    x.add_(1)
    try:
        y = x[index] + 1
    except IndexError:
        y = x + 2
    return y * 3


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def written_behind_what_is_caught(x, index):
    try:
        y = x.sin()[index]
    except IndexError:
        y = x + 2
    x.add_(1)
    return y * 3


@program(1, (GOOD, FITS))
def caught_for_other_reasons(x, index):
    """No break: none of the clauses is for what an index raises."""
    try:
        try:
            x.index_copy_(0, index, x[:2] + 1)
        except (NotImplementedError, KeyError):
            x[index] = 1.0
        except OSError as error:
            LOG.append(error)
    finally:
        LOG.append("left")
    return x + 1


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def intermediates_written(x, index):
    y = x + 1
    y.mul_(2)
    LOG.append("before")
    return y[index]


@program(1, (TABLE, FITS), (TABLE, TOO_FAR))
def rows_of_a_table(table, index):
    LOG.append("before")
    return torch.nn.functional.embedding(index, table) * 2


@program(1, (TABLE[:2], FITS), (TABLE[:2], TOO_FAR))
def targets_of_a_loss(x, target):
    LOG.append("before")
    return torch.nn.functional.cross_entropy(x, target) * 2


@program(1, (GOOD, FITS), (GOOD, TOO_FAR), (GOOD, FITS - 1))
def classes_counted(x, index):
    LOG.append("before")
    try:
        return x[:3] * torch.nn.functional.one_hot(index, 3)
    except RuntimeError:
        return x - 1


@program(1, (GOOD, FITS))
def no_classes(x, index):
    LOG.append("before")
    return x * torch.nn.functional.one_hot(index, 0).sum()


@program(1, (torch.eye(3),), (SINGULAR,))
def inverse_caught(x):
    try:
        y = torch.linalg.inv(x)
    except torch.linalg.LinAlgError:
        LOG.append("singular")
        y = torch.linalg.pinv(x)
    return y + 1


@program(1, (torch.eye(3),), (-torch.eye(3),))
def factors_of_what_is_not_definite(x):
    LOG.append("before")
    return torch.linalg.cholesky(x * 2) + 1


@program(1, (torch.eye(3),), (-torch.eye(3),))
def result_that_nothing_uses(x):
    try:
        torch.linalg.cholesky(x)
    except RuntimeError:
        return x - 1
    return x + 1


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def only_the_size_is_used(x, index):
    try:
        count = len((x + 1)[index])
    except IndexError:
        count = 0
    return x * count


@program(1, (GOOD, FITS), (GOOD, TOO_FAR))
def stored_where_nothing_reads(x, index):
    try:
        made = torch.zeros(4)
        made[index] = 1.0
    except IndexError:
        return x - 1
    return x + 1


@program(1, (torch.tensor([3, 4]), FITS + 1), (torch.tensor([3, 4]), FITS))
def divided_by_zero(x, by):
    LOG.append("before")
    try:
        y = x // by
    finally:
        LOG.append("left")
    return y + 1


@program(2, (GOOD, FITS), (GOOD, TOO_FAR))
def index_behind_a_break(x, index):
    y = x + 1
    dynamo.graph_break()
    LOG.append("before")
    return y[index] * 2


test_program = checks_of(PROGRAMS)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_backends_fail_as_eager_does(backend):
    for function, args in [
        (index_caught, (GOOD, TOO_FAR)),
        (effects_before_an_index, (GOOD, TOO_FAR)),
        (rows_of_a_table, (TABLE, TOO_FAR)),
        (targets_of_a_loss, (TABLE[:2], TOO_FAR)),
        (classes_counted, (GOOD, TOO_FAR)),
        (no_classes, (GOOD, FITS)),
        (result_that_nothing_uses, (-torch.eye(3),)),
        (only_the_size_is_used, (GOOD, TOO_FAR)),
        (stored_where_nothing_reads, (GOOD, TOO_FAR)),
    ]:
        compiled_function = dynamo.compile(function, backend=backend)
        LOG.clear()
        expected = outcome(function, args), list(LOG)
        LOG.clear()
        found = outcome(compiled_function, args), list(LOG)
        assert same(expected, found), (function, expected, found)


def test_a_backend_that_fails_alone_is_heard():
    """The program itself goes through: the fault is the graph's."""

    def backend(module, examples):
        def run(*inputs):
            raise ArithmeticError("wrong code")

        return run

    with pytest.raises(ArithmeticError, match="wrong code"):
        dynamo.compile(effects_before_an_index, backend=backend)(GOOD, FITS)


def fills_by_a_mask(x, value):
    try:
        x[x > 0] = value
    except (IndexError, RuntimeError) as error:
        return str(error)
    return x + 1


@pytest.mark.parametrize(
    ("value", "codes"),
    [(1.0, []), (torch.tensor(6.0), []), (torch.tensor([5.0, 6.0]), [])],
)
def test_masks_choose_whatever_is_in_them(value, codes):
    """They fit by their shape, and a number fits any places; as many as they choose need not."""
    capturing, captured = compiled(fills_by_a_mask)
    x = torch.tensor([1.0, -2.0, 3.0])
    assert same(fills_by_a_mask(x.clone(), value), capturing(x.clone(), value))
    assert captured.codes == codes
