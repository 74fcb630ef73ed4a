"""What can be compiled besides plain functions, what inspect says of it, and reset() in the middle
of it all.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import inspect
import warnings

import pytest
import torch

import dynamo

X = torch.arange(3.0)


def compiled(function):
    return dynamo.compile(function, backend="eager")


def plain(x):
    """Doc."""
    return x + 1


def generator(x):
    for i in range(3):
        yield x + i


async def coroutine(x):
    await asyncio.sleep(0)
    return x + 1


async def async_generator(x):
    yield x + 1


class Callable:
    def __call__(self, x):
        return x + 1


async def collect(items):
    return [item async for item in items]


@pytest.mark.parametrize("function", [plain, generator, coroutine, async_generator])
def test_inspect_says_the_same(function):
    made = compiled(function)
    for ask in (
        inspect.iscoroutinefunction,
        asyncio.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
        inspect.signature,
        inspect.getdoc,
        inspect.unwrap,
        callable,
    ):
        assert ask(made) == ask(function)
    assert (made.__name__, made.__qualname__) == (function.__name__, function.__qualname__)


def test_generators_and_coroutines_work_as_eager():
    for _ in range(2):
        assert torch.equal(
            torch.stack(list(compiled(generator)(X))), torch.stack(list(generator(X)))
        )
        assert torch.equal(asyncio.run(compiled(coroutine)(X)), X + 1)
        (item,) = asyncio.run(collect(compiled(async_generator)(X)))
        assert torch.equal(item, X + 1)


def test_coroutines_that_never_begin():
    """Warnings as of the original: none after a close, one where it is dropped."""

    def warnings_of(function, close):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = function(X)
            if close:
                made.close()
            del made
            gc.collect()
        return [str(warning.message) for warning in caught]

    for close in (False, True):
        expected = warnings_of(coroutine, close)
        assert len(expected) == (not close)
        assert warnings_of(compiled(coroutine), close) == expected


def test_functions_that_make_them():
    @compiled
    def returns_generator(x):
        return generator(x + 1)

    @compiled
    def returns_coroutine(x):
        return coroutine(x), x * 2

    for _ in range(2):
        assert torch.equal(next(returns_generator(X)), X + 1)
        made, double = returns_coroutine(X)
        assert torch.equal(asyncio.run(made), X + 1)
        assert torch.equal(double, X * 2)


def test_classes_without_calls_are_refused():
    for cls in (argparse.Namespace, list):
        with pytest.raises(TypeError, match=r"takes a function, .* an nn\.Module, not <class"):
            dynamo.compile(cls)


def test_classes():
    """Calls of their instances are compiled, those of subclasses too."""

    class Scale:
        factor = 2

        def __call__(self, x):
            return x * self.factor + dynamo.is_compiling()

    class Layer(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + dynamo.is_compiling()

    assert compiled(Scale) is Scale and compiled(Layer) is Layer
    scale, layer = Scale(), type("Child", (Layer,), {})(3, 3)
    for factor in (2, 5):
        scale.factor = factor
        assert torch.equal(scale(X), X * factor + 1)
    for _ in range(2):
        assert torch.equal(layer(X), torch.nn.functional.linear(X, layer.weight, layer.bias) + 1)
        layer.weight.data.mul_(2)


@pytest.mark.parametrize(
    "function", [Callable(), functools.partial(torch.add, 1), functools.partial(plain), torch.relu]
)
def test_other_callables(function):
    made = compiled(function)
    for _ in range(2):
        assert torch.equal(made(X), function(X))


def test_methods_of_every_kind():
    class Model:
        @compiled
        def method(self, x):
            return x + 1

        @staticmethod
        @compiled
        def static(x):
            return x + 2

        @classmethod
        @compiled
        def of_class(cls, x):
            return cls.static(x) + 1

        @compiled
        async def later(self, x):
            return self.method(x) + 3

    model = Model()
    assert inspect.iscoroutinefunction(model.later)
    for _ in range(2):
        results = [model.method(X), model.static(X), model.of_class(X), asyncio.run(model.later(X))]
        assert [(r - X)[0].item() for r in results] == [1, 2, 3, 4]


def test_reset_while_running():
    @compiled
    def resets(x):
        y = x + 1
        dynamo.reset()
        z = y * 2
        dynamo.reset()
        return z + 1

    @compiled
    def recursive(x, n):
        if n == 0:
            dynamo.reset()
            return x
        return recursive(x + 1, n - 1) * 2

    for _ in range(3):
        assert torch.equal(resets(X), (X + 1) * 2 + 1)
        assert torch.equal(recursive(X, 3), (X + 3) * 8)


def test_reset_while_compiling():
    def backend(gm, example_inputs):
        dynamo.reset()
        return gm.forward

    function = dynamo.compile(plain, backend=backend)
    for _ in range(3):
        assert torch.equal(function(X), X + 1)
