"""Random numbers of Python and numpy in captured frames: drawn before the graph, in the program's
order, and inputs of the graph.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import dynamo

_other = random.Random(3)


def in_floats(x):
    return x * random.random() + random.uniform(1, 2), random.gauss(0, 1), random.random()


def in_ints(x):
    return x * random.randint(1, 5) + random.randrange(0, 10, 3) - random.getrandbits(8)


def from_an_object(x):
    return x * _other.random() + _other.randint(1, 3)


def seeded(x):
    random.seed(4)
    return x * random.random()


def in_comprehensions(x):
    return [random.random() for _ in range(5)], x + 1


def as_text(x):
    return x + 1, f"{random.random():.2f}"


def in_tensors(x):
    return torch.rand(3) * random.random() + x, torch.rand(1)


def of_numpy(x):
    np.random.seed(3)
    array = np.random.rand(3) + np.random.randint(0, 10, size=(2, 3))[0]
    return x * np.random.rand() + np.random.uniform(1.0, 2.0), array, torch.from_numpy(array)


def decided(x):
    value = random.random()
    return x + 1 if value > 0.5 else x - value


def chosen(x):
    items = [1, 2, 3]
    random.shuffle(items)
    return x * random.choice(items) + random.random(), items


def as_sizes(x):
    count = random.randint(1, 2)
    return x[:count], torch.zeros(count), x[count]


def checked_before(x):
    assert x.sum() > 0
    return x * random.random()


def checked_behind(x):
    value = random.random()
    assert x.sum() > 0
    return x * value


def refused(x):
    try:
        random.randint(3, 1)
    except ValueError as error:
        return x + 1, str(error)[:11]


def in_a_branch(x):
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)) * random.random()


WHOLE = [in_floats, in_ints, from_an_object, seeded, in_comprehensions, as_text, in_tensors]
WHOLE += [of_numpy, in_a_branch]
BROKEN = [decided, chosen, as_sizes, checked_before, checked_behind, refused]


def results(f: Callable[..., Any], calls: int = 4) -> list[Any]:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    _other.seed(3)
    found = [f(torch.ones(3)) for _ in range(calls)]
    return [found, random.random(), np.random.rand(), torch.rand(1), _other.random()]


def same(got: Any, expected: Any) -> bool:
    if isinstance(expected, list | tuple):
        return len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, torch.Tensor):
        return torch.equal(got, expected) and got.dtype == expected.dtype
    if isinstance(expected, np.ndarray):
        return np.array_equal(got, expected) and got.dtype == expected.dtype
    return type(got) is type(expected) and got == expected


@pytest.mark.parametrize("f", WHOLE, ids=lambda f: f.__name__)
def test_one_graph(f):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    assert same(results(dynamo.compile(f, backend=backend, fullgraph=True)), results(f))
    assert len(graphs) == 1


@pytest.mark.parametrize("f", BROKEN, ids=lambda f: f.__name__)
def test_what_breaks_draws_the_same(f):
    assert same(results(dynamo.compile(f, backend="eager"), 6), results(f, 6))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_backends_take_the_numbers(backend):
    def f(x):
        scale, array = random.uniform(1, 2), np.random.rand(3)
        return x * scale + random.randint(1, 5), torch.from_numpy(array) * scale

    got, expected = results(dynamo.compile(f, backend=backend, fullgraph=True)), results(f)
    for one, other in zip(got[0], expected[0]):
        assert all(map(torch.allclose, one, other))
    assert same(got[1:], expected[1:])


def test_a_replaced_method_is_captured():
    generator = random.Random(1)
    generator.random = lambda: 0.5  # type: ignore[method-assign]
    compiled = dynamo.compile(lambda x: x * generator.random(), backend="eager", fullgraph=True)
    assert compiled(torch.ones(1)).item() == 0.5


def test_subclasses_draw_in_their_own_way():
    class Loaded(random.Random):
        def random(self):
            return 0.25

    generator = Loaded()
    f = lambda x: x * generator.random() + generator.uniform(0, 4)  # noqa: E731
    assert torch.equal(dynamo.compile(f, backend="eager")(torch.ones(1)), f(torch.ones(1)))


def test_numbers_of_static_shapes_break():
    f = lambda x: x * random.random()  # noqa: E731
    compiled = dynamo.compile(f, backend="eager", dynamic=False)
    assert same(results(compiled), results(f))
