"""Leaks, threads, tools that trace, and torch.compile in the same process."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import psutil
import pytest
import torch

import dynamo


@pytest.fixture(autouse=True)
def fresh():
    dynamo.reset()
    yield
    dynamo.reset()


def steady_growth(step, rounds: int) -> tuple[int, int]:
    """Objects and bytes of resident memory gained between the middle and the end of the rounds."""
    process = psutil.Process()
    for _ in range(rounds // 2):
        step()
    gc.collect()
    objects, memory = len(gc.get_objects()), process.memory_info().rss
    for _ in range(rounds - rounds // 2):
        step()
    gc.collect()
    return len(gc.get_objects()) - objects, process.memory_info().rss - memory


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_calls_do_not_leak(backend: str) -> None:
    def f(x, y):
        return torch.relu(x * y + 1), x

    compiled = dynamo.compile(f, backend=backend, fullgraph=True)
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    with torch.no_grad():
        compiled(x, y)
        gc.collect()  # what earlier tests left refers to None, too
        before = sys.getrefcount(x), sys.getrefcount(y), sys.getrefcount(f), sys.getrefcount(None)
        objects, memory = steady_growth(lambda: compiled(x, y), 10_000)
        after = sys.getrefcount(x), sys.getrefcount(y), sys.getrefcount(f), sys.getrefcount(None)
    assert objects < 50
    assert memory < 4 * 2**20
    assert [b - a for a, b in zip(before[:3], after[:3])] == [0, 0, 0]
    assert abs(after[3] - before[3]) < 5000  # noise of the collector; a leak would be 10,000


def test_recompiles_do_not_leak() -> None:
    def f(x, n):
        return x * n

    compiled = dynamo.compile(f, backend="eager")
    numbers = iter(range(10_000))
    x = torch.randn(4)

    def recompile() -> None:
        compiled(x, next(numbers))
        if next(numbers) % 8 == 7:
            dynamo.reset()

    with dynamo.config.patch(recompile_limit=1000):
        objects, memory = steady_growth(recompile, 200)
    dynamo.reset()
    gc.collect()
    assert objects < 20_000  # up to 8 live entries more or less
    assert memory < 16 * 2**20


def test_model_dies_with_its_last_reference() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    compiled = dynamo.compile(model)
    with torch.no_grad():
        compiled(torch.ones(2, 4))
    gone = weakref.ref(model[0].weight)
    del model, compiled
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_eight_threads_compile_and_call_one_function(backend: str) -> None:
    def f(x, n):
        y = x
        for _ in range(n):
            y = torch.sin(y) + n
        return y

    compiled = dynamo.compile(f, backend=backend)
    errors: list[BaseException] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        try:
            start.wait()
            with torch.no_grad():
                for i in range(40):
                    n = (seed + i) % 4 + 1
                    x = torch.full((8,), float(i))
                    torch.testing.assert_close(compiled(x, n), f(x, n))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_tracing_sees_the_users_lines() -> None:
    def f(x):
        y = x + 1
        print(end="")
        return y * 2

    compiled = dynamo.compile(f, backend="eager")
    lines: set[int] = set()

    def tracer(frame, event, arg):
        if frame.f_code.co_filename == __file__ and event == "line":
            lines.add(frame.f_lineno - f.__code__.co_firstlineno)
        return tracer

    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        first = compiled(torch.ones(2))
        second = compiled(torch.ones(2))
    finally:
        sys.settrace(old)
    assert torch.equal(first, torch.full((2,), 4.0)) and torch.equal(second, first)
    assert 2 in lines


def test_recursion() -> None:
    @dynamo.compile(backend="eager")
    def f(x, depth):
        if depth == 0:
            return x + 1
        return f(x * 2, depth - 1)

    assert torch.equal(f(torch.ones(2), 5), torch.full((2,), 33.0))


def test_generator_called_from_compiled_code() -> None:
    def numbers(n):
        for i in range(n):
            yield i

    @dynamo.compile(backend="eager")
    def f(x):
        for i in numbers(3):
            x = x + i
        return x

    assert torch.equal(f(torch.zeros(2)), torch.full((2,), 3.0))


@pytest.mark.slow
def test_torch_compile_in_the_same_process() -> None:
    def f(x):
        return torch.sin(x) + 1

    def outer(x):
        return theirs(x) * 2

    ours = dynamo.compile(f, backend="eager")
    theirs = torch.compile(f, backend="eager")
    ours_around_theirs = dynamo.compile(outer, backend="eager")
    theirs_around_ours = torch.compile(lambda x: ours(x) * 2, backend="eager")
    x = torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(ours(x), f(x))
        torch.testing.assert_close(theirs(x), f(x))
        torch.testing.assert_close(ours_around_theirs(x), f(x) * 2)
        torch.testing.assert_close(theirs_around_ours(x), f(x) * 2)


def test_modules_are_made_in_captured_code_after_torch_compile() -> None:
    """torch.compile wraps nn.Module.__init__ for the rest of the process."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    layers = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Tanh(), torch.nn.Sigmoid()])

    @dynamo.compile(backend="eager", fullgraph=True)
    def f(x):
        for layer in layers[:2]:
            x = layer(x)
        return x

    x = torch.randn(4)
    assert torch.equal(f(x), layers[1](layers[0](x)))
