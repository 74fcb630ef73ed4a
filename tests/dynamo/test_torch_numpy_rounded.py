"""numpy functions that are captured within rounding: one graph, numpy's types and effects."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import dynamo
from dynamo.config import config
from dynamo.errors import Unsupported
from dynamo.torch.numpy_ufuncs import ROUNDED_UFUNCS
from tests.dynamo.test_torch_numpy import CONSTANTS, DTYPES, outcome, specials
from tests.dynamo.values_support import CountingBackend


def a():
    return np.arange(12.0).reshape(3, 4) * 0.37 - 1.1


def single():
    return a().astype(np.float32)


def integers():
    return np.arange(12).reshape(3, 4)


def turned():
    return a().T


def every_second():
    return np.arange(48.0).reshape(6, 8)[::2, ::2] - 20


def complexes():
    return a() + 1j * a()[::-1]


def empty():
    return np.zeros((0, 3))


def row():
    return np.arange(6.0)


def large():
    return np.arange(90000.0).reshape(300, 300) / 1000


def x():
    return torch.arange(12.0).reshape(3, 4)


def writes_through(view, array):
    view[0] = 5
    return view, array


# program, operands
PROGRAMS = [
    (lambda a: (np.mean(a), a.mean(axis=0), a.mean(1, keepdims=True)), [a, single, turned, empty]),
    (
        lambda a: (np.sum(a), a.sum(-1), a.sum(axis=(0, 1))),
        [a, single, turned, every_second, empty],
    ),
    (lambda a: (np.sum(a, dtype=np.float32), a.std(), a.var(axis=0, ddof=1)), [a, turned, single]),
    (lambda a: (a - a.mean()) / np.std(a), [a, single, integers, turned]),
    (lambda a: a / np.linalg.norm(a), [a, single, turned]),
    (lambda a: np.linalg.norm(a, axis=1, ord=1), [a, every_second]),
    (lambda a: (np.linspace(0, 1, 4) + a, np.linspace(0, 1, 5, endpoint=False)), [a]),
    (lambda a: np.arange(0, 2, 0.5) + a, [a, single, integers]),
    (lambda a: np.meshgrid(a[0], a[1]), [a, integers]),
    (lambda a: (np.full_like(a, 7), np.full((2, 3), 1.5), np.full(3, 2), np.eye(3)), [a, integers]),
    (lambda a: (a.real, a.real is a), [a, integers]),
    (lambda a: (a.real, a.imag, np.abs(a), a.conj(), a * a, a / 2, np.angle(a)), [complexes]),
    (lambda a: writes_through(a.real, a), [a, complexes]),
    (lambda a: (np.fft.fft(a), np.fft.fft(a).real, np.fft.rfft(a), np.fft.fftfreq(4)), [a, turned]),
    (lambda a: np.fft.ifft(np.fft.fft(a)).real, [a, single]),
    (lambda a: a + np.finfo(np.float32).eps + np.finfo(a.dtype).max * 0, [a, single]),
    (lambda a: (np.finfo(a.dtype).bits, np.iinfo(np.int32).max, np.iinfo("int8").min), [a]),
    (lambda a: a + 1 if np.issubdtype(a.dtype, np.floating) else a - 1, [a, integers]),
    (lambda a: (np.shape(a), np.ndim(a), np.size(a), np.size(a, 0), np.isscalar(a)), [a, row]),
    (
        lambda a: (np.result_type(a, np.float32), np.can_cast(a.dtype, np.int8)),
        [a, integers, single],
    ),
    (lambda a: np.promote_types(a.dtype, "float32").name, [integers]),
    (lambda a: (np.isrealobj(a), np.iscomplexobj(a), np.isreal(a)), [a, complexes]),
    (
        lambda a: (a @ a.T, np.dot(a, a.T), np.matmul(a.T, a), a.dot(a[0])),
        [a, single, every_second],
    ),
    (lambda a: (np.inner(a, a), np.outer(a[0], a[1]), np.vdot(a, a)), [a, integers]),
    (lambda a: (np.einsum("ij,kj->ik", a, a), np.tensordot(a, a, axes=([1], [1]))), [a, single]),
    (lambda a: np.kron(a[0], a[1]), [a, integers]),
    (lambda a: (np.sort(a), np.sort(-a, axis=0), np.sort(a, axis=None)), [a, integers, turned]),
    (lambda a: np.argsort(-a, axis=0, kind="stable"), [a, integers]),
    (lambda a: (np.cumsum(a, axis=0), a.cumsum(), np.cumprod(a, 1)), [a, single]),
    (lambda a: (a // 0.5, a % 0.5, np.fmod(a, 0.7)), [a, single, turned]),
    (lambda a: (a**3, a**-1.0, 2.0**a, np.power(a, 2.5), np.float_power(a, 2)), [a, single]),
    (lambda a: (np.round(a, 1), a.round(), np.around(a, 2)), [a, single]),
    (
        lambda a: (np.tile(a, 2), np.tile(a, (2, 1)), np.repeat(a, 2), a.repeat(2, axis=0)),
        [a, turned],
    ),
    (lambda a: (np.roll(a, 1), np.roll(a, 1, axis=0), np.diff(a), np.take(a, [0, 2], axis=0)), [a]),
    (lambda a: (np.triu(a), np.tril(a, -1), np.trace(a), np.diag(a[0])), [a, integers]),
    (lambda a: (np.split(a, 3), np.split(a, [1], axis=1), np.hsplit(a, 2)), [a]),
    (lambda a: writes_through(np.split(a, 3)[1], a), [a]),
    (lambda a: writes_through(np.moveaxis(a, 0, 1), a), [a, turned]),
    (lambda a: writes_through(np.atleast_2d(a), a), [a, row]),
    (lambda a: writes_through(np.tile(a, (1, 1)), a), [a]),
    (lambda a: writes_through(np.squeeze(a[None]), a), [a]),
    (lambda a: (np.column_stack([a[0], a[1]]), np.dstack([a, a]), np.append(a, a)), [a]),
    (lambda a: (np.concatenate([a, a.T], axis=None), np.stack([a.T, a.T])), [a]),
    (lambda a: (np.clip(a, 0, 1), a.clip(min=0), a.clip(0.2), np.clip(a, None, 1)), [a, single]),
    (lambda a: (a - a.min()) / (a.max() - a.min()), [a, single, turned]),
    (lambda a: (np.amax(a, axis=(0, 1)), np.ptp(a), np.max(a), np.average(a)), [a, integers]),
    (lambda a: np.average(a, axis=0, weights=a[:, 0]), [integers]),
    (
        lambda a: (np.median(a, axis=1), np.percentile(a, 30, axis=1), np.quantile(a, 0.3, axis=0)),
        [a],
    ),
    (lambda a: (np.median(a), np.percentile(a, 50), np.quantile(a, 0.3)), [a, single, turned]),
    (lambda a: (np.median(a), np.quantile(a, 0.5)), [integers]),
    (
        lambda a: (np.percentile(a, [25, 75]), np.quantile(a, np.array([0.1, 0.9]), axis=1)),
        [a, single],
    ),
    (lambda a: (a.T + 1, a.T * a.T, np.sin(a.T), a.T + a[:3, :3].mean(), -a.T), [a, every_second]),
    (lambda a: (np.where(a.T > 0, a.T, 0), np.isnan(a.T), a.T > 0), [a]),
    (lambda a: (np.nan_to_num(a / 0.0), np.isclose(a, a + 1e-12)), [a]),
    (lambda a: (a.__add__(1), a.__rsub__(1), a.__mul__(a), a.__eq__(a)), [a]),
    (lambda a: (np.array([a[0], a[1]]), np.array([a[0, 0], a[0, 1]])), [a, integers]),
    (lambda a: (a[[0, 2], [1, 3]], a[np.array([0, 1]), np.array([1, 1])]), [a]),
    (lambda a: (np.add(a, 1, out=np.zeros_like(a)), np.multiply(a, 2, a)[0]), [a]),
    (lambda a: writes_through(np.sin(a, out=a), a), [a]),
    (lambda a: np.ascontiguousarray(a) + 1, [a, turned]),
    (lambda a: np.ascontiguousarray(a) is a, [a]),
    (lambda a: sum(r.sum() for r in a), [a]),
    (lambda a: (np.vander(a[0]), np.cross(a[:, :3], a[:, 1:])), [a]),
    (lambda x: np.sin(x.numpy()) + np.mean(x.numpy()), [x]),
    (lambda x: torch.from_numpy(np.sqrt(x.numpy())) * 2, [x]),
    (lambda a: torch.from_numpy(np.exp(a) / np.exp(a).sum(axis=1, keepdims=True)), [a, single]),
    (lambda a: np.tanh(a) / np.cosh(a) + np.hypot(a, 1) + np.arctan2(a, a), [a, single, turned]),
    (lambda a: (np.mean(a, axis=0), np.tile(a, 2), np.split(a, 3)), [large]),
    (lambda a: np.mean(a.T * 2, axis=0), [large]),
]
CASES = [(f, given) for f, operands in PROGRAMS for given in operands]
NAMES = [f"{i}-{given.__name__}" for i, (_, ops) in enumerate(PROGRAMS) for given in ops]


def close(left, right):
    """Values within rounding, everything else equal."""
    if type(left) is tuple and left and isinstance(left[0], type) and isinstance(left[-1], bytes):
        if left[0] is not right[0]:
            return False
        left, right = (np.frombuffer(side[-1], side[0]) for side in (left, right))
    elif type(left) is tuple and left and left[0] == "array":
        if left[1:4] != right[1:4]:
            return False
        left, right = (np.frombuffer(side[-1], side[1]) for side in (left, right))
    elif type(left) is tuple and left and left[0] == "tensor":
        if left[:3] != right[:3]:
            return False
        left, right = np.array(left[-1]), np.array(right[-1])
    elif isinstance(left, (list, tuple)):
        return (
            type(left) is type(right)
            and len(left) == len(right)
            and all(close(one, other) for one, other in zip(left, right))
        )
    else:
        return left == right
    single = left.dtype in (np.float32, np.complex64)
    return np.allclose(left, right, rtol=1e-4 if single else 1e-9, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(("function", "given"), CASES, ids=NAMES)
def test_program(function, given):
    expected = outcome(function, [given])
    backend = CountingBackend()
    captured = dynamo.compile(function, backend=backend, fullgraph=True)
    for _ in range(2):
        found = outcome(captured, [given])
        assert close(expected, found), (expected, found)
    assert backend.graphs <= 1


@pytest.mark.parametrize("case", [0, 1, 3, 11, 13, 22, 24, 29, 50, 59], ids=str)
def test_by_the_default_backend(case):
    function, (given, *_) = PROGRAMS[case]
    found = outcome(dynamo.compile(function, fullgraph=True), [given])
    assert close(outcome(function, [given]), found)


@pytest.mark.parametrize("ufunc", ROUNDED_UFUNCS, ids=lambda u: u.__name__)
def test_ufunc(ufunc):
    def call(first, rest):
        return ufunc(first, *rest)

    captures = 0
    for dtype in DTYPES:
        first = specials(dtype)
        others = [[]] if ufunc.nin == 1 else [[c] for c in CONSTANTS]
        if ufunc.nin == 2:
            others += [[specials(other)[::-1].copy()] for other in DTYPES[::2]]
        for rest in others:
            expected = outcome(call, [lambda f=first: f, lambda r=rest: r])
            backend = CountingBackend()
            captured = dynamo.compile(call, backend=backend)
            found = outcome(captured, [lambda f=first: f, lambda r=rest: r])
            assert close(expected, found), (dtype, rest, expected[0], found[0])
            captures += backend.graphs
    assert captures >= 1


def test_exact_setting_breaks():
    def program(a):
        return np.sin(a) + np.mean(a)

    with config.patch(numpy_exact=True), pytest.raises(Unsupported) as caught:
        dynamo.compile(program, backend="eager", fullgraph=True)(a())
    assert caught.value.reason.code == "NUMPY_CONVERSION"


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.linalg.inv(a * 0),
        lambda a: np.linalg.cholesky(-np.eye(3) + a[0, 0] * 0),
        lambda a: np.arange(4)[:, None] ** -np.arange(3),
        lambda a: np.mean(a, axis=5),
        lambda a: a @ a,
        lambda a: np.split(a, 5),
    ],
    ids=["singular", "indefinite", "negative power", "axis", "product", "split"],
)
def test_errors_are_numpys(function):
    expected = outcome(function, [a])
    assert expected == outcome(dynamo.compile(function, backend="eager"), [a])
    assert issubclass(expected[0][0], Exception)


def test_sizes_vary():
    def program(a):
        b = (a - a.mean(axis=0)) / a.std(axis=0)
        return b @ b.T, np.linalg.norm(a), np.sort(a, axis=0), np.tile(a, (2, 1))

    backend = CountingBackend()
    captured = dynamo.compile(program, backend=backend, fullgraph=True)
    for size in (5, 6, 7, 9, 200):

        def given(size=size):
            return np.random.default_rng(size).normal(size=(size, 3))

        assert close(outcome(program, [given]), outcome(captured, [given]))
    assert backend.graphs == 2


def test_readers_of_division_warnings_see_eager_values():
    def program(a):
        return a / 0.0, np.log(a * 0), np.sqrt(a)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, found = program(a()), dynamo.compile(program, backend="eager")(a())
    for one, other in zip(expected, found):
        np.testing.assert_allclose(one, other)


READS = {
    "item": lambda a: a.mean().item(),
    "float": lambda a: round(float((a > 1).mean()), 2),
    "int": lambda a: int((a > 1).sum()) + int(a.argmax()),
    "tolist": lambda a: sum(a.tolist()),
    "tolist_of_rows": lambda a: sum(map(max, a.reshape(1, 3, 1).tolist()[0])),
    "one_element": lambda a: a[1:2].item(),
    "extreme": lambda a: max(0.0, float(a.max())),
    "condition": lambda a: 2.0 if a.min().item() > 0 and int((a > 1).sum()) < 2 else 3.0,
    "small": lambda a: int(np.abs(a).astype(np.uint8).max()),
}


@pytest.mark.parametrize("name", READS)
def test_numbers_read_from_arrays(name):
    """They are read as from tensors: one graph, and the number of the time of the read."""

    def fn(x):
        a = (x * 2).numpy()
        number = READS[name](a)
        a += 1
        return x * number, number, a

    counting = CountingBackend()
    compiled = dynamo.compile(fn, backend=counting)
    for first in (1.0, -1.0, 4.0, 0.25):
        made, expected = (f(torch.tensor([first, 1.0, 0.5])) for f in (compiled, fn))
        assert torch.equal(made[0], expected[0]) and type(made[1]) is type(expected[1])
        assert made[1] == expected[1] and np.array_equal(made[2], expected[2])
    assert counting.graphs == 1
