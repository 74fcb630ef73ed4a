"""Options, marks and settings that programs written for torch.compile pass: guard filters, sources
that vary, sizes without assumptions, functions that stay whole, compiled functions in others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import dynamo
from dynamo.guards.filters import GuardFilterEntry
from tests.dynamo.values_support import CountingBackend

OFFSET = 3


class Counter:
    """A backend that counts its graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: Any, inputs: Any) -> Any:
        self.graphs += 1
        return gm


@pytest.fixture
def counter() -> Counter:
    return Counter()


# -- guard filters ---------------------------------------------------------------------------------
def test_dropped_guards_are_not_compared(counter):
    box = [1]

    def f(x):
        return x + box[0]

    def only_tensors(entries):
        assert all(isinstance(entry, GuardFilterEntry) for entry in entries)
        return [entry.guard_type == "TENSOR_MATCH" for entry in entries]

    compiled = dynamo.compile(f, backend=counter, options={"guard_filter_fn": only_tensors})
    assert compiled(torch.zeros(1)).item() == 1
    box[0] = 5
    assert compiled(torch.zeros(1)).item() == 1  # the promise was broken
    assert compiled(torch.zeros(2)).tolist() == [5, 5]  # tensors are compared
    assert counter.graphs == 2


def test_filters_of_torch(counter, monkeypatch):
    def f(x):
        return x + OFFSET

    choose = torch.compiler.skip_guard_on_globals_unsafe
    compiled = dynamo.compile(f, backend=counter, options={"guard_filter_fn": choose})
    assert compiled(torch.zeros(1)).item() == 3
    monkeypatch.setitem(globals(), "OFFSET", 9)
    assert compiled(torch.zeros(1)).item() == 3
    assert counter.graphs == 1


def test_entries_name_values(counter):
    seen: list[GuardFilterEntry] = []

    def choose(entries):
        seen.extend(entries)
        return [True] * len(entries)

    def f(x, n):
        return x * n + OFFSET

    dynamo.compile(f, backend=counter, options={"guard_filter_fn": choose})(
        torch.ones(1), "a" != ""
    )
    found = {entry.name: entry for entry in seen if entry.guard_type == "CONSTANT_MATCH"}
    assert found["L['n']"].value is True and not found["L['n']"].is_global
    assert found["G['OFFSET']"].value == 3 and found["G['OFFSET']"].is_global


def test_filter_of_another_length(counter):
    compiled = dynamo.compile(
        lambda x: x + 1, backend=counter, options={"guard_filter_fn": lambda entries: []}
    )
    with pytest.raises(dynamo.errors.InvalidOption, match="returned 0 bools for"):
        compiled(torch.ones(2))


def test_filter_that_raises(counter):
    compiled = dynamo.compile(
        lambda x: x + 1, backend=counter, options={"guard_filter_fn": lambda entries: entries[1e9]}
    )
    with pytest.raises(dynamo.errors.InvalidOption, match="raised TypeError: list indices"):
        compiled(torch.ones(2))


def test_filter_that_is_no_function():
    with pytest.raises(TypeError, match="guard_filter_fn"):
        dynamo.compile(lambda x: x, backend="eager", options={"guard_filter_fn": 3})


def test_other_options_reach_the_backend():
    def backend(gm, inputs, options):
        seen.append(options)
        return gm

    seen: list[Any] = []
    options = {"guard_filter_fn": lambda entries: [True] * len(entries), "level": 2}
    dynamo.compile(lambda x: x + 1, backend=backend, options=options)(torch.ones(2))
    assert seen == [{"level": 2}]


# -- settings --------------------------------------------------------------------------------------
def test_error_on_recompile(counter):
    compiled = dynamo.compile(lambda x: x * 2, backend=counter)
    with dynamo.config.patch(error_on_recompile=True):
        compiled(torch.ones(2))
        compiled(torch.zeros(2))
        with pytest.raises(dynamo.errors.RecompileLimitExceeded, match="dimension 0 was 2, is 3"):
            compiled(torch.ones(3))
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))


@pytest.mark.parametrize("names", ["x,L['n']", r"L\['x'\], n", ".*"])
def test_dynamic_sources(counter, names):
    def f(x, n):
        return x * n + x.shape[0]

    with dynamo.config.patch(dynamic_sources=names):
        compiled = dynamo.compile(f, backend=counter)
        for size, n in ((2, 3), (5, 4), (7, 9)):
            assert torch.equal(compiled(torch.ones(size), n), f(torch.ones(size), n))
    assert counter.graphs == 1


def test_unbacked_sources(counter):
    def f(x, n, scale):
        return x * n + x.shape[0] * scale

    with dynamo.config.patch(unbacked_sources="x, n, L['scale']"):
        compiled = dynamo.compile(f, backend=counter, fullgraph=True)
        for size, n, scale in ((2, 3, 0.5), (0, 0, 1.5), (1, 1, -2.5)):
            assert torch.equal(compiled(torch.ones(size), n, scale), f(torch.ones(size), n, scale))
        assert counter.graphs == 1
        deciding = dynamo.compile(lambda x, n: x if n > 1 else -x, backend="eager")
        for n in (0, 1, 2):
            assert deciding(torch.ones(1), n).item() == (1 if n > 1 else -1)


@pytest.mark.parametrize(
    "backend",
    ["aot_eager_decomp_partition", "pre_dispatch_eager", "aot_eager_default_partitioner"],
)
def test_backends_of_torch(backend):
    compiled = dynamo.compile(lambda x: torch.softmax(x * 2, 0), backend=backend)
    x = torch.arange(3.0, requires_grad=True)
    assert torch.allclose(compiled(x), torch.softmax(x * 2, 0))


@pytest.mark.parametrize(
    ("name", "values"), [("specialize_int", (2, 3, 4)), ("specialize_float", (2.5, 3.5, 4.5))]
)
def test_numbers_that_stay_constants(counter, name, values):
    with dynamo.config.patch(**{name: True}):
        compiled = dynamo.compile(lambda x, n: x * n, backend=counter)
        for value in values:
            assert torch.equal(compiled(torch.ones(2), value), torch.ones(2) * value)
    assert counter.graphs == len(values)


def test_guards_are_evaluated_under_the_stance(counter):
    compiled = dynamo.compile(lambda x: x + x.shape[0], backend=counter)
    compiled(torch.zeros(2))
    with dynamo.set_stance(skip_guard_eval_unsafe=True):
        assert compiled(torch.zeros(3)).tolist() == [3, 3, 3]
    with pytest.raises(TypeError, match="skip_guard_eval_unsafe"):
        dynamo.set_stance(skip_guard_eval_unsafe=1)


# -- marks -----------------------------------------------------------------------------------------
def test_one_graph_for_every_size(counter):
    def f(x):
        return (x * 2 + x.shape[0]).sum(0)

    compiled = dynamo.compile(f, backend=counter, fullgraph=True)
    for size in (3, 0, 1, 7):
        x = torch.ones(size, 2)
        dynamo.mark_unbacked(x, 0)
        assert torch.equal(compiled(x), f(x))
    assert counter.graphs == 1


@pytest.mark.parametrize("system", [dynamo, torch._dynamo.decorators])
@pytest.mark.parametrize("mark", ["mark_unbacked", "mark_dynamic"])
def test_bounds_answer_what_is_asked_of_a_marked_size(counter, system, mark):
    def f(x):
        return x * 2 + x.shape[0] if x.shape[0] > 3 else x * 3

    compiled = dynamo.compile(f, backend=counter, fullgraph=True)
    for size, graphs in ((5, 1), (8, 1), (4, 1), (3, 2)):
        x = torch.ones(size, 2)
        if size > 3:
            getattr(system, mark)(x, 0, min=4, max=8)
        assert torch.equal(compiled(x), f(x))
        assert counter.graphs == graphs
    x = torch.ones(9, 2)
    getattr(system, mark)(x, 0, min=4, max=8)
    with pytest.raises(dynamo.errors.ConstraintViolation, match="from 4 to 8"):
        dynamo.compile(f, backend="eager")(x)


def test_a_question_about_an_unbacked_size_breaks():
    def f(x):
        return x + 1 if x.shape[0] > 2 else x - 1

    x = torch.ones(3)
    dynamo.mark_unbacked(x, 0)
    assert torch.equal(dynamo.compile(f, backend="eager")(x), f(x))
    with pytest.raises(dynamo.errors.Unsupported, match="x.size\\(0\\)"):
        dynamo.compile(f, backend="eager", fullgraph=True)(x)


def test_backends_find_the_mark_of_the_address():
    marks = []

    def backend(gm, inputs):
        marks.extend(getattr(value, "_dynamo_static_input_type", None) for value in inputs)
        return gm

    x, y = torch.ones(2), torch.ones(2)
    dynamo.mark_static_address(x)
    assert torch.equal(dynamo.compile(lambda x, y: x + y, backend=backend)(x, y), x + y)
    assert marks == ["guarded", None]
    with pytest.raises(TypeError, match="a tensor is marked"):
        dynamo.mark_static_address([1])


# -- functions that stay whole ---------------------------------------------------------------------
@pytest.mark.parametrize(
    "decorate",
    [dynamo.nonstrict_trace, torch._dynamo.nonstrict_trace, torch.compiler.allow_in_graph],
    ids=["dynamo", "torch", "torch.compiler"],
)
def test_whole_functions(decorate):
    targets = []

    def backend(gm, inputs):
        targets.extend(n.target.__name__ for n in gm.graph.nodes if n.op == "call_function")
        return gm

    @decorate
    def whole(x):
        return x.sin() * 3

    x = torch.ones(2, requires_grad=True)
    compiled = dynamo.compile(lambda x: whole(x) + 1, backend=backend, fullgraph=True)
    result = compiled(x)
    assert torch.equal(result, x.sin() * 3 + 1)
    result.sum().backward()
    assert torch.allclose(x.grad, 3 * x.detach().cos())
    assert targets == ["whole", "add"]


def test_nonstrict_trace_takes_functions():
    with pytest.raises(TypeError, match="takes a callable"):
        dynamo.nonstrict_trace(3)


# -- compiled functions inside of others -----------------------------------------------------------
def test_compiled_functions_are_part_of_the_graph(counter):
    class Scale:
        factor = 3

        def apply(self, x):
            return x * self.factor

    scale = Scale()
    inner = dynamo.compile(lambda x: x * 2, backend="eager")
    method = dynamo.compile(scale.apply, backend="eager")
    layer = dynamo.compile(torch.nn.Linear(2, 2), backend="eager")

    def f(x):
        return inner(x) + method(x) + layer(x), inner.__name__, [inner][0]

    compiled = dynamo.compile(f, backend=counter, fullgraph=True)
    x = torch.ones(2, 2)
    for factor in (3, 5):
        scale.factor = factor
        (result, name, same), (expected, *_) = compiled(x), f(x)
        assert torch.allclose(result, expected)
        assert name == "<lambda>" and same is inner
    assert counter.graphs == 2


def test_breaks_of_inner_functions(counter):
    @dynamo.compile(backend="eager")
    def inner(x):
        y = x + 1
        dynamo.graph_break()
        return y * 2

    compiled = dynamo.compile(lambda x: inner(x) - 3, backend=counter)
    assert compiled(torch.ones(2)).tolist() == [1, 1]
    assert counter.graphs == 2


# -- numpy's scalars -------------------------------------------------------------------------------
def test_numpy_reduces_sizes_that_vary():
    """To numbers that vary: two graphs for all sizes."""

    def f(x):
        count, total = np.prod(x.shape), np.sum(x.shape[:2])
        known = type(count), count + 1, total * 2, np.prod(x.size()[1:])
        return x.reshape(np.prod(x.shape[:2]), -1) * count, *known, int(total)

    backend = CountingBackend()
    compiled = dynamo.compile(f, backend=backend)
    for size in (4, 5, 6, 7):
        x = torch.randn(size, 2, 3)
        (got, *told), (expected, *numbers) = compiled(x), f(x)
        assert torch.equal(got, expected) and told == numbers
        assert list(map(type, told)) == list(map(type, numbers))
    assert backend.graphs == 2


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.float64, np.float32])
def test_scalars_of_numpy_compile_once(counter, kind):
    def f(x, n):
        return x + n, n * x, x**2 * n, x < n, n - x, x * int(n), x * float(n), n.item() + x

    compiled = dynamo.compile(f, backend=counter, fullgraph=True)
    for value in (3, 1, 7, 5):
        for got, expected in zip(
            compiled(torch.ones(3), kind(value)), f(torch.ones(3), kind(value))
        ):
            assert torch.equal(got, expected) and got.dtype == expected.dtype
    assert counter.graphs == 1


@pytest.mark.parametrize("kind", [np.int32, np.float64])
def test_scalars_of_numpy_as_arguments(counter, kind):
    def f(x, n):
        root = np.sqrt(x.shape[0])  # a float64 that capture computes
        return torch.add(x, x, alpha=n), x.clamp(max=n), torch.where(x > 1, x, root)

    compiled = dynamo.compile(f, backend=counter, fullgraph=True)
    for value in (3, 1, 7):
        arguments = torch.arange(9.0), kind(value)
        for got, expected in zip(compiled(*arguments), f(*arguments)):
            assert torch.equal(got, expected) and got.dtype == expected.dtype
    assert counter.graphs == 1


@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor, torch.asarray])
@pytest.mark.parametrize("kind", [np.int32, np.float64])
def test_tensors_of_scalars_of_numpy_have_their_types(make, kind):
    def f(x, n):
        return make(n) + x.sum().to(torch.uint8), make([n, n])

    compiled = dynamo.compile(f, backend="eager")
    for got, expected in zip(compiled(torch.ones(2), kind(3)), f(torch.ones(2), kind(3))):
        assert torch.equal(got, expected) and got.dtype == expected.dtype


def test_what_scalars_of_numpy_are_asked(counter):
    def f(x, n):
        known = {n: 1}, [5, 6, 7, 8][n], range(n), hash(n), n == 3, n > 2
        texts = str(n), repr(n), f"{n}", f"{n:>3}"
        return (
            x * 2,
            n,
            n + 1,
            -n,
            n.dtype,
            n.real,
            type(n),
            isinstance(n, np.integer),
            known,
            texts,
        )

    compiled = dynamo.compile(f, backend=counter, fullgraph=True)
    for value in (3, 2):
        got, expected = compiled(torch.ones(3), np.int64(value)), f(torch.ones(3), np.int64(value))
        assert torch.equal(got[0], expected[0]) and got[1:] == expected[1:]
        assert [type(item) for item in got] == [type(item) for item in expected]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_scalars_of_numpy_in_backends(backend):
    compiled = dynamo.compile(lambda x, n: x * n, backend=backend, fullgraph=True)
    for n in (np.int64(3), np.int64(0), np.float64(2.5), np.float64(-3.5), np.float32(0.1)):
        assert torch.equal(compiled(torch.ones(3), n), torch.ones(3) * n)


def test_scalars_of_numpy_as_sizes(counter):
    def f(x, n):
        made = torch.tensor([n, n]), torch.tensor(n), torch.full((2,), n), torch.eye(n)
        return (
            x.reshape(n, -1),
            torch.zeros(n),
            x.sum(n - 2),
            x[:n],
            x[n - 1],
            torch.arange(n),
            *made,
        )

    compiled = dynamo.compile(f, backend=counter, fullgraph=True)
    for value in (2, 4, 2):
        x = torch.arange(64.0).reshape(4, 4, 4)
        for got, expected in zip(compiled(x, np.int64(value)), f(x, np.int64(value)), strict=True):
            assert torch.equal(got, expected) and got.dtype == expected.dtype


# -- numpy's arrays --------------------------------------------------------------------------------
def test_arrays_as_indices_of_tensors(counter):
    def f(x, i):
        y = x.clone()
        y[i] = 7
        y[:, np.array([1])] = 3
        return x[i], x[i, np.array([0, 1])], x[:, i], y, x[np.array([0, 1])]

    compiled = dynamo.compile(f, backend=counter, fullgraph=True)
    for i in (np.array([1, 2]), np.array([2, 0])):
        x = torch.arange(12.0).reshape(3, 4)
        for got, expected in zip(compiled(x, i), f(x, i), strict=True):
            assert torch.equal(got, expected)
    assert counter.graphs == 1


@pytest.mark.parametrize(
    "index",
    [np.array([[0, 1], [1, 2]]), np.array([1], dtype=np.int32), np.array([True, False, True])],
    ids=["rows", "int32", "mask"],
)
def test_other_arrays_as_indices(index):
    x = torch.arange(12.0).reshape(3, 4)
    compiled = dynamo.compile(lambda x, index: x[index], backend="eager")
    assert torch.equal(compiled(x, index), x[index])


def test_arrays_without_content(counter):
    def f(x):
        array = x.numpy(force=True)
        out, made = np.empty_like(array), np.empty((2, 3))
        made[:] = 1
        same = np.add(array, 1, out=out)
        return out, made, np.empty(3).shape, same is out

    compiled = dynamo.compile(f, backend=counter, fullgraph=True)
    x = torch.arange(3.0).requires_grad_()
    for got, expected in zip(compiled(x), f(x), strict=True):
        assert np.array_equal(got, expected)
