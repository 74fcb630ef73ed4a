"""numpy functions that are captured: which object they give, of which type and layout, what they
raise, and numpy's error state.
"""

from __future__ import annotations

import operator
import warnings

import numpy as np
import pytest
import torch

import dynamo
from tests.dynamo.test_torch_numpy import outcome
from tests.dynamo.test_torch_numpy_rounded import (
    a,
    close,
    complexes,
    every_second,
    integers,
    row,
    single,
    turned,
)
from tests.dynamo.values_support import CountingBackend


def put_along(a, indices, axis, value):
    made = a.copy()
    return np.put_along_axis(made, indices, value, axis=axis), made, indices


# program, operands: whether results are new arrays, views, the operand itself or scalars, and of
# which dtype and strides.
FORMS = [
    (lambda a: (np.squeeze(a) is a, np.real(a) is a, np.atleast_1d(a) is a), [a, row, turned]),
    (lambda a: np.shares_memory(np.conjugate(a), a), [a, integers]),
    (lambda a: (a**2.0, a ** np.float64(2), a ** np.int64(2), a**2), [a, single, integers]),
    (lambda a: (a > 0) ** 2, [a, row]),
    (lambda a: (np.imag(a).flags.writeable, np.imag(a)), [a, integers]),
    (
        lambda a: (a.sum().copy(), np.sum(a).T, np.squeeze(a.sum()), np.asarray(a.sum())),
        [a, single],
    ),
    (lambda a: np.where(a.sum() > 0, a.max(), a.min()), [a, single]),
    (lambda a: (a.max().reshape(()), np.reshape(a.max(), (1,)), a.max().reshape(1, -1)), [a]),
    (lambda a: np.ascontiguousarray(a[0, 0, ...]), [a, integers]),
    (lambda a: torch.asarray(a[0, 0, ...]).fill_(9.0).shape and a, [a]),
    (lambda a: (2**a, 1e10**a), [turned, every_second]),
    (lambda a: np.angle(a * -0.0), [a]),
    (lambda a: np.clip(a, 1, None), [complexes]),
    (lambda a: np.fft.fft(a[:, :0].T), [a]),
    (lambda a: a * complex("nan+infj"), [complexes]),
    (lambda a: (b := np.broadcast_to(a[..., None], (*a.shape, 2)), b.reshape(-1, 2), b + 1), [a]),
    (lambda a: np.broadcast_to(a[:1].copy(), a.shape).reshape(-1) * 2, [a, integers]),
    (lambda a: (b := np.broadcast_to(a, a.shape), b.reshape(-1), b[0], b.T + 1), [a, row]),
    (lambda a: (b := np.broadcast_to(a, (2, *a.shape)), operator.iadd(a, 1), b * 2), [a, row]),
    (lambda a: (b := np.broadcast_to(a, (3, *a.shape)), b.astype(np.float32), b * 2), [a]),
    (lambda a: np.broadcast_to(a[:0], (2, *a[:0].shape)).reshape(0, 8), [a]),
    (lambda a: put_along(a, np.argsort(a, 0)[:2], 0, 7.5), [a, row]),
    (lambda a: put_along(a > 9, np.argmax(a, axis=-1)[..., None], -1, -1), [a, turned]),
    (lambda a: put_along(a, (a * 0).astype(np.uint8), axis=-2, value=3), [a, integers]),
    (lambda a: (a * complex(-0.0, 2), a + complex(0.0, -2)), [complexes]),
]


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_forms(number):
    program, operands = FORMS[number]
    for make in operands:
        captured = dynamo.compile(program, backend="eager")
        assert close(outcome(program, [make]), outcome(captured, [make]))


def spans(x, count=3, length=4):
    """The masks of time steps with which speech models are trained."""
    rows, steps = x.shape
    starts = [np.random.choice(steps - length + 1, count, replace=False) for _ in range(rows)]
    shape = rows, count, length
    places = np.broadcast_to(np.array(starts)[:, :, None], shape).reshape(rows, count * length)
    ahead = np.broadcast_to(np.arange(length)[None, None], shape).reshape(rows, count * length)
    mask = np.zeros((rows, steps), dtype=bool)
    np.put_along_axis(mask, places + ahead, -1, -1)
    return x * torch.tensor(mask, dtype=torch.bool)


def test_masks_of_spans_are_one_graph():
    compiled = dynamo.compile(spans, backend="eager", fullgraph=True)
    for seed in range(2):
        np.random.seed(seed)
        theirs = spans(torch.ones(2, 20))
        np.random.seed(seed)
        assert torch.equal(compiled(torch.ones(2, 20)), theirs)


ERRORS = [
    lambda a: np.broadcast_to(a, (7, 7, 7)),
    lambda a: operator.setitem(np.broadcast_to(a, (2, *a.shape)), 0, 1),
    lambda a: np.put_along_axis(a, np.full_like(a, 99).astype(int), 1, 0),
    lambda a: np.put_along_axis(a, np.ones((5, 5), int), 1, 0),
    lambda a: np.put_along_axis(a, a, 1, 0),
    lambda a: np.sum(a)[...].__setitem__(0, 1),
    lambda a: operator.setitem(np.sum(a), ..., a[0, 0]),
    lambda a: np.sum(a).T[0],
    lambda a: a.squeeze(0),
    lambda a: a[0, 0, ...].swapaxes(0, -1),
    lambda a: operator.setitem(a.astype(np.uint8), slice(0, 1), -1),
    lambda a: operator.setitem(a.astype(np.int64), slice(0, 1), float("nan")),
    lambda a: operator.ipow(a > 0, 2),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    program = ERRORS[number]
    with pytest.raises(Exception) as expected:  # noqa: PT011
        program(a())
    with pytest.raises(type(expected.value)) as found:
        dynamo.compile(program, backend="eager")(a())
    assert str(found.value) == str(expected.value)


def test_stores_read_first():
    """An array is stored into one that it overlaps with as if it were copied before."""

    def program(array):
        array[1:] = array[:-1]
        whole = np.expand_dims(array, 0)
        whole[:1] = array[:1]
        array[:-1] += array[1:]
        return array

    compiled = dynamo.compile(program, backend="eager", fullgraph=True)
    assert np.array_equal(compiled(row()), program(row()))


@pytest.mark.parametrize("how", ["raise", "call"])
def test_error_state(how):
    """What numpy raises or calls for floating-point errors is compared at each call."""
    seen = []

    def program(array):
        return np.log(array) + 1

    captured = dynamo.compile(program, backend="eager")
    assert np.array_equal(captured(row() + 1), program(row() + 1))
    with np.errstate(all=how, call=lambda *about: seen.append(about)):
        if how == "raise":
            with pytest.raises(FloatingPointError, match="divide by zero"):
                captured(row())
        else:
            captured(row())
            assert [about[0] for about in seen] == ["divide by zero"]
    assert np.isneginf(captured(row())[0])


def test_error_state_in_the_frame():
    def program(array):
        with np.errstate(all="raise"):
            return np.sqrt(array)

    with pytest.raises(FloatingPointError):
        dynamo.compile(program, backend="eager")(row() - 1)


def test_warnings_that_are_errors():
    captured = dynamo.compile(lambda array: np.log(array), backend="eager")
    captured(row() + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="divide by zero"):
            captured(row())


# program of an array and one to write to, the latter's shape and dtype.
WRITTEN = [
    (lambda a, out: np.sum(a, 0, None, out), (4,), float),
    (lambda a, out: a.mean(0, None, out), (4,), float),
    (lambda a, out: np.any(a > 7, 0, out), (4,), bool),
    (lambda a, out: a.argmax(0, out), (4,), np.int64),
    (lambda a, out: np.cumsum(a, 0, None, out), (3, 4), float),
    (lambda a, out: a.clip(2, 5, out), (3, 4), float),
    (lambda a, out: np.clip(a, 2, 5, a), (), float),
    (lambda a, out: np.concatenate((a, a), 0, out), (6, 4), float),
    (lambda a, out: np.dot(a, a.T.copy(), out), (3, 3), float),
    (lambda a, out: np.isposinf(a / 0, out), (3, 4), bool),
]


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize(("program", "shape", "dtype"), WRITTEN)
def test_results_written_to_an_argument_in_its_place(program, shape, dtype):
    def f(a, out):
        given = program(a * 1, out)
        return given, out * 1, given is out

    a = np.arange(12.0).reshape(3, 4) + 0.5
    got = dynamo.compile(f, backend="eager")(a, np.zeros(shape, dtype))
    for one, other in zip(got, f(a, np.zeros(shape, dtype)), strict=True):
        np.testing.assert_allclose(one, other)


def stored(a, key, values):
    a = a.copy()
    a[key] = values
    return a


PLACES = np.array([3, 0, 3, 1])
LARGE = np.random.default_rng(0).integers(0, 1000, 200_000)
STORES = [
    (np.ones(5), PLACES, np.arange(4)),  # values of another dtype
    (np.ones(5, int), PLACES, np.arange(4) + 0.75),
    (np.ones(5), np.arange(5) > 2, np.arange(2)),
    (np.ones((5, 2)), PLACES, np.arange(8).reshape(4, 2)),
    (np.ones(1000), LARGE, np.arange(200_000)),  # the last of several at one place stays
]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(("a", "key", "values"), STORES)
def test_stores_at_index_arrays(a, key, values, backend):
    compiled = dynamo.compile(stored, backend=backend)
    np.testing.assert_array_equal(compiled(a, key, values), stored(a, key, values))


def test_numbers_that_the_dtype_does_not_have():
    def f(a):
        return a < 2**70, a == -(2**70), 2**64 > a

    a = np.arange(3)
    for one, other in zip(dynamo.compile(f, backend="eager")(a), f(a), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(OverflowError):
        dynamo.compile(lambda a: np.where(a > 1, a, 2**70), backend="eager")(a)


def test_items_without_bytes():
    def f(a, b):
        return (b * 2).sum(), a.dtype, a[1]

    given = np.zeros(3, [("a", "S0")])["a"], np.ones(3)
    assert dynamo.compile(f, backend="eager")(*given) == f(*given)


@pytest.mark.parametrize("f", [np.median, np.percentile, np.quantile])
def test_an_input_that_may_be_overwritten(f):
    def reordered(a):
        b = a.copy() * 1
        found = f(b, *([] if f is np.median else [0.5]), axis=1, overwrite_input=True)
        return found, b

    a = np.array([[10.0, 7, 4], [3, 2, 1]])
    compiled = dynamo.compile(reordered, backend="eager")
    for one, other in zip(compiled(a), reordered(a), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "shaped",
    [
        lambda scalar: scalar.reshape(1),
        lambda scalar: scalar.reshape(1, 1)[0],
        lambda scalar: scalar.ravel(),
        lambda scalar: np.expand_dims(scalar, 0),
    ],
)
def test_arrays_of_a_scalar_are_copies(shaped):
    def program(a):
        scalar = a.max()
        made = shaped(scalar)
        made[0] = 9.0
        return scalar, made

    scalar, made = dynamo.compile(program, backend="eager")(a())
    assert scalar == a().max()
    assert made.tolist() == [9.0]


# Of an array of n rows and 4 columns; two graphs serve all sizes.
OF_SIZES = {
    "arange": lambda a: np.arange(len(a)) * 2 + np.arange(1, a.shape[0] + 1)[::-1],
    "arange_down": lambda a: np.arange(a.shape[0], 0, -1),
    "zeros": lambda a: (np.zeros(len(a)), np.zeros((a.shape[0], 3), dtype=np.float32)),
    "ones": lambda a: np.ones(a.shape) + a,
    "empty": lambda a: (np.empty(len(a) // 2).shape, a + 1),
    "reshape": lambda a: a.reshape(a.shape[0] * 2, 2) + 1,
    "reshape_turned": lambda a: a.T.reshape((a.shape[0] * 2, 2)) + 1,
    "reversed": lambda a: a[::-1].copy() + a[..., ::-1],
    "flip": lambda a: np.flip(a, 1).copy() * np.flipud(a),
    "rows": lambda a: a[np.arange(len(a))[::-1].copy()],
    "grid": lambda a: np.meshgrid(np.arange(a.shape[0]), np.arange(3))[0],
    "to_torch": lambda a: torch.from_numpy(np.arange(len(a))).numpy() + 1,
}


@pytest.mark.parametrize("name", OF_SIZES)
def test_arrays_of_sizes_that_vary(name):
    backend = CountingBackend()
    captured = dynamo.compile(OF_SIZES[name], backend=backend)
    for rows in (6, 9, 5, 12):
        x = np.random.default_rng(rows).normal(size=(rows, 4))
        assert close(outcome(OF_SIZES[name], [lambda: x]), outcome(captured, [lambda: x]))
    assert backend.graphs <= 2
    assert len(captured.context.records) == 2


def test_sizes_that_no_array_has():
    def program(a):
        return np.zeros(len(a) - 4), np.arange(len(a) - 8), np.arange(7, len(a))

    captured = dynamo.compile(program, backend="eager")
    for rows in (9, 10, 7, 5, 3):
        given = [lambda: np.ones(rows)]
        assert close(outcome(program, given), outcome(captured, given))
