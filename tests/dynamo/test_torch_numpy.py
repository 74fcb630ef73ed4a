"""numpy in captured code with config.numpy_exact: numpy's dtypes and bits, the rest breaks.

What agrees within rounding: test_torch_numpy_rounded.py.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from dynamo.api.compile import compile
from dynamo.config import config
from dynamo.errors import Unsupported
from dynamo.torch.numpy_ufuncs import UFUNCS
from tests.dynamo.torch_ops import Programs
from tests.dynamo.values_support import CountingBackend

program = Programs()


@pytest.fixture(autouse=True)
def _exact():
    with config.patch(numpy_exact=True):
        yield


def described(value):
    """Type, dtype, layout and bits. Strides of dimensions of size 1 mean nothing."""
    if isinstance(value, np.ndarray):
        strides = [s for s, n in zip(value.strides, value.shape) if n > 1]
        return "array", value.dtype, value.shape, strides, value.tobytes()
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
    if isinstance(value, torch.Tensor):
        return "tensor", value.dtype, value.stride(), value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value), [described(item) for item in value]
    return type(value), value


def outcome(function, args):
    given = [a() for a in args]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = described(function(*given))
        except Unsupported:
            raise
        except Exception as error:
            found = type(error), str(error)
    return found, [described(a) for a in given]


@pytest.fixture
def check():
    def check(function, args, graphs, code):
        expected = outcome(function, args)
        if code is not None:
            with pytest.raises(Unsupported) as caught:
                outcome(compile(function, backend=CountingBackend(), fullgraph=True), args)
            assert caught.value.reason.code == code
        backend = CountingBackend()
        captured = compile(function, backend=backend, fullgraph=code is None)
        for _ in range(2):
            assert outcome(captured, args) == expected
        assert backend.graphs <= graphs

    return check


def a():
    return np.arange(6.0).reshape(2, 3) - 2.5


def ai():
    return np.arange(6).reshape(2, 3)


def af():
    return np.arange(6, dtype=np.float32)


def x():
    return torch.arange(6.0).reshape(2, 3) + 0.5


@program(a)
def arithmetic(a):
    return (
        a + 1,
        a * 2.5,
        1 - a,
        a / 3,
        -a,
        a * a,
        abs(a),
        a**2,
        a + np.float64(2),
        a > 0,
        (a > 0) & (a < 2),
        a == a,
        np.add(a, a),
        np.maximum(a > 0, a < 1),
        np.floor(a),
        np.rint(a),
        np.abs(a),
    )


@program(af)
def float32_and_constants(a):
    return (
        a * 0.1,
        a + 1,
        a / 3,
        a * np.float32(0.3),
        a * np.float64(0.3),
        a.astype(np.float64),
        a.astype(int),
        np.where(a > 2, a, 0.0),
        np.clip(a.astype(int), 1, 3),
    )


@program(ai)
def integers(a):
    return (
        a / 2,
        a + 1.5,
        a * 2,
        a.sum(),
        a.sum(axis=0),
        a.max(),
        a.argmax(axis=1),
        a.astype("float32"),
        a & 3,
        ~a,
        a.cumsum(),
        np.sum(a, axis=1, keepdims=True),
        a.prod(),
        (a > 2).any(),
        np.all(a >= 0),
        a == 3,
        a.min(1),
    )


@program(a)
def shapes(a):
    return (
        a.T,
        a.reshape(3, 2),
        a.ravel(),
        a.flatten(),
        a.transpose(1, 0),
        a[None],
        a.reshape(-1),
        np.expand_dims(a, 0),
        a.squeeze(),
        np.concatenate([a, a]),
        np.stack([a, a], axis=1),
        np.vstack((a, a)),
        np.hstack([a, a]),
        a.copy(),
        a.swapaxes(0, 1),
        np.transpose(a),
    )


@program(a)
def array_metadata(a):
    return (
        a.shape,
        a.ndim,
        a.size,
        a.dtype,
        a.dtype == np.float64,
        a.dtype == "float64",
        a.dtype != np.int32,
        a.dtype in (np.float32, np.float64),
        np.float64 == a.dtype,
        np.dtype("f8") is a.dtype,
        np.dtype(np.float32).itemsize,
        a.itemsize,
        a.nbytes,
        a.strides,
        len(a),
        a.dtype.name,
        isinstance(a, np.ndarray),
        type(a),
        a.dtype.kind,
    )


@program(a)
def array_items(a):
    return (
        a[0],
        a[0, 1],
        a[:, 1],
        a[-1, ::2],
        a[..., 0],
        a[[1, 0]],
        a[np.array([0, 1, 0])],
        a[None, :, None],
        a[0][1],
    )


@program(a)
def array_stores(a):
    a[0] = 1
    a[1, 2] = 7
    a[:, 1] = a[:, 0]
    a[a > 3] = 0
    a += 1
    return a


@program(a)
def iterates_rows(a):
    return [r + 1 for r in a], [x for x in a[0]]


@program(a)
def new_arrays(a):
    return (
        np.zeros(3),
        np.ones((2, 3)),
        np.zeros((2,), dtype=np.int32),
        np.arange(4),
        np.array([1, 2.5]),
        np.array([[1, 2], [3, 4]]),
        np.zeros_like(a),
        np.ones_like(a, dtype=int),
        np.array(a),
        np.asarray(a) is a,
        np.asarray([1, 2]),
    )


@program(x)
def tensor_to_array(x):
    n = x.numpy()
    m = n * 2
    n[0] = 9
    return m, x, torch.from_numpy(m) + 1, n


@program(a)
def array_to_tensor(a):
    t = torch.from_numpy(a)
    t.add_(1)
    return t, a, t.numpy()


@program(x)
def detached_to_array(x):
    return x.detach().cpu().numpy()


@program(lambda: torch.ones(2, requires_grad=True), breaks="NUMPY_CONVERSION")
def array_of_tensor_with_gradient(x):
    return x.numpy()


@program(a, breaks="NUMPY_CONVERSION")
def sine(a):
    return np.sin(a) + np.sqrt(a)


@program(a, breaks="NUMPY_CONVERSION")
def mean(a):
    return (a * 2).mean()


@program(a, breaks="NUMPY_CONVERSION")
def float_sum(a):
    return (a * 2).sum()


@program(a, breaks="NUMPY_CONVERSION")
def matrix_product(a):
    return a @ a.T


@program(a)
def ufunc_with_out(a):
    return np.add(a, a, out=a)


@program(a)
def selects_by_mask(a):
    return a[a > 0]


@program(a)
def transposed_operand(a):
    return a.T + 1


@program(lambda: np.float32(2.0), x)
def numpy_scalars(s, x):
    return (
        x * s,
        s * 2,
        s + 1.5,
        x + np.float64(2),
        np.int64(3) + 1,
        int(s),
        float(s),
        x[np.int64(1)],
        np.float64(2) * x,
        np.float32(2) * x,
        np.int64(2) + x,
        x.sum(int(np.int64(0))),
        range(np.int64(2)),
    )


@program(a, breaks="NUMPY_CONVERSION")
def branches_on_array(a):
    if a.sum() > 0:
        return a + 1
    return a - 1


@program(a)
def array_to_list(a):
    return (a + 1).tolist(), (a + 1).item(0)


@program(lambda: np.arange(6, dtype=np.uint8), breaks="NUMPY_CONVERSION")
def unsigned(a):
    return a + 1, a * 2, a.max(), a // 2


@program(a)
def tensor_of_array(a):
    return torch.tensor(a) + 1


@program(a)
def as_tensor_of_array(a):
    return torch.as_tensor(a) + 1


@program(a, x)
def tensor_times_array(a, x):
    return x * a


@program(a)
def same_array(a):
    return a, a.T


@program(a, a)
def two_arrays(a, b):
    a[0] = 5
    return b + 1, a is b


@program(a)
def places_of_values(a):
    return np.where(a > 0), np.nonzero(a), (a > 4).nonzero(), np.flatnonzero(a < 3)


@program(lambda: np.array([3, -1, 3, 0, 7, 0, 0], np.int32))
def distinct_numbers(a):
    pairs = np.unique(a, return_counts=True), np.unique(a, return_inverse=True)
    return pairs, np.unique(a), np.unique(a.reshape(7, 1) * 2)


@program(lambda: np.array([1.0, np.nan, np.nan, -0.0, 0.0]), breaks="NUMPY_CONVERSION")
def distinct_floats(a):
    return np.unique(a), a + 1


@program(lambda: np.zeros((2, 3)))
def no_places(a):
    return np.nonzero(a), np.unique(a.astype(np.int64)[:0])


@program(a)
def numpy_constants(a):
    return np.pi * a, np.inf, a + np.e, np.newaxis


@program(ai, breaks="NUMPY_CONVERSION")
def integer_division(a):
    return a / 0, a // 2, a % 2


@program(x)
def arrays_of_tensors(x):
    return np.asarray(x) + 1, np.array(x)


@program(a, breaks="UNCAPTURED_CALL")
def formats_array(a):
    return f"{a}", str(a.dtype)


@pytest.mark.parametrize(("function", "args", "graphs", "code"), program)
def test_program(check, function, args, graphs, code):
    check(function, args, graphs, code)


# -- every traced ufunc on the values where implementations differ ---------------------------------
SPECIAL = {
    "f": [0.0, -0.0, 1.5, -2.5, 0.1, 1e30, -1e-40, np.inf, -np.inf, np.nan, 0.5, 3.0],
    "i": [0, 1, -1, 2, 7, 100, -100, 127, -128, 3, 5, 64],
    "u": [0, 1, 2, 3, 255, 128, 7, 100, 5, 9, 64, 200],
    "b": [0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0],
}
DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float32", "float64"]
CONSTANTS = [2, 0.1, True, np.float32(0.3), np.int64(3)]


def specials(dtype):
    dtype = np.dtype(dtype)
    return np.array(SPECIAL[dtype.kind], dtype)


def same_bits(left, right):
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind != "f":
        return left.tobytes() == right.tobytes()
    nan = np.isnan(left)
    values = np.array_equal(left, right, equal_nan=True)
    return values and np.array_equal(np.signbit(left[~nan]), np.signbit(right[~nan]))


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda u: u.__name__)
def test_ufunc(ufunc):
    def call(first, rest):
        return ufunc(first, *rest)

    traced = 0
    for dtype in DTYPES:
        first = specials(dtype)
        others = [[]] if ufunc.nin == 1 else [[c] for c in CONSTANTS]
        if ufunc.nin == 2:
            others += [[specials(other)[::-1].copy()] for other in DTYPES[::2]]
        for rest in others:
            expected, _ = outcome(call, [lambda f=first: f, lambda r=rest: r])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                backend = CountingBackend()
                try:
                    found = compile(call, backend=backend)(first, rest)
                except Exception as error:
                    assert expected == (type(error), str(error))
                    continue
                assert same_bits(found, ufunc(first, *rest)), (dtype, rest, found)
            traced += backend.graphs
    assert traced >= 2


def test_arrays_are_guarded():
    backend = CountingBackend()

    def program(array):
        return array + 1

    captured = compile(program, backend=backend)
    for array in (a(), a() * 2, ai(), a()[:1], af(), np.array(["x"], dtype=object), a().T):
        try:
            expected = described(program(array))
        except TypeError:
            with pytest.raises(TypeError):
                captured(array)
            continue
        assert described(captured(array)) == expected
    assert backend.graphs == 4
    frozen = a()
    frozen.flags.writeable = False
    assert described(captured(frozen)) == described(program(frozen))


def test_scalars_are_guarded():
    def program(tensor, scalar):
        return tensor * scalar

    captured = compile(program, backend=CountingBackend(), fullgraph=True)
    for scalar in (np.float64(2), np.float64(3), np.float32(2), np.int64(2), 2):
        assert torch.equal(captured(x(), scalar), x() * scalar)


def test_memory_is_shared():
    def program(tensor, array):
        seen = tensor.numpy()
        seen[0] = 7
        other = torch.from_numpy(array)
        other.mul_(2)
        return seen, other, array[0]

    tensor, array = x(), a()
    expected = a() * 2
    seen, other, row = compile(program, backend=CountingBackend(), fullgraph=True)(tensor, array)
    assert np.array_equal(array, expected) and tensor[0].tolist() == [7, 7, 7]
    assert np.shares_memory(seen, tensor.numpy()) and np.shares_memory(row, array)
    assert np.shares_memory(other.numpy(), array)


def test_scalars_that_vary_beside_arrays():
    def program(a, scalar):
        return a / scalar, scalar * a, np.absolute(scalar), np.add(scalar, a), a[0] - scalar

    backend = CountingBackend()
    captured = compile(program, backend=backend, fullgraph=True)
    for kind in (np.float64, np.float32, np.int64):
        for number in (2, 3, 5):
            for a in (np.arange(4.0), np.arange(4, dtype=np.float32)):
                for got, expected in zip(captured(a, kind(number)), program(a, kind(number))):
                    assert type(got) is type(expected)
                    assert got.dtype == expected.dtype
                    assert np.array_equal(got, expected)
    assert backend.graphs == 6
