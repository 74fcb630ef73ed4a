"""Torch function modes that the frame enters: what they are asked, in which order and with which
classes, and what they answer; each beside eager.
"""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode, resolve_name

import dynamo
from tests.dynamo.capturing import compiled, same

SEEN: list = []


class Notes(TorchFunctionMode):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def __torch_function__(self, func, types, args=(), kwargs=None):
        SEEN.append((self.name, resolve_name(func), types))
        return func(*args, **(kwargs or {}))


class Doubles(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.add else result


class InDouble(TorchFunctionMode):
    """Constructors make float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in (torch.zeros, torch.ones):
            kwargs.setdefault("dtype", torch.float64)
        return func(*args, **kwargs)


class Refuses(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return NotImplemented if func is torch.Tensor.add else func(*args, **(kwargs or {}))


class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append(("Sub", func.__name__))
        return super().__torch_function__(func, types, args, kwargs or {})


OUTSIDE = Doubles()


def answers(x):
    with Doubles():
        return torch.add(x, 1), x + 1


def made_outside(x):
    with OUTSIDE:
        return torch.add(x, 1)


def operations(x):
    with Notes("a"):
        y = (x + 1).relu()
        y = torch.nn.functional.softmax(y, -1) * y.shape[0]
        z = torch.zeros(2)
    return y + z.sum()


def nested(x):
    with Notes("a"):
        y = x.clone()
        with Notes("b"):
            y[1] = 3
            row, size, turned = y[0], y.size(0), y.T
        y = y * size
    return y, row, turned


def of_a_subclass(x):
    with Notes("a"):
        y = x.as_subclass(Sub) + 1
    return y * 2


PARAMETER = torch.nn.Parameter(torch.ones(3))


def of_a_parameter(x):
    with Notes("a"):
        return x * PARAMETER.shape[0], PARAMETER.detach() + 1


def differentiates(x):
    with Notes("a"):
        y = x.detach().requires_grad_()
        return torch.autograd.grad((y * y).sum(), y)


def constructors(x):
    with InDouble():
        made = torch.zeros(3), torch.ones(2, dtype=torch.int32), x + torch.ones(())
    with Notes("a"):
        return made, torch.Tensor([1, 2]), torch.FloatTensor([3])


def entered_by_hand(x):
    mode = Notes("a")
    mode.__enter__()
    y = x + 1
    mode.__exit__(None, None, None)
    return y.sin()


def left_by_an_exception(x):
    try:
        with Notes("a"):
            y = x + 1
            raise ValueError
    except ValueError:
        return y * 2


def asks_for_the_stack(x):
    with Notes("a"), Notes("b"):
        length = torch._C._len_torch_function_stack()
        enabled = torch._C._is_torch_function_mode_enabled()
        name = torch.overrides._get_current_function_mode().name
    return x + length, enabled, name


def refused(x):
    with Refuses():
        return x * 2


def rows(x):
    with Notes("a"):
        first, second = x
        doubled = [row * 2 for row in x]
        counted = len(x), len(x[0]), next(iter(first)), list(zip(x, x.T))
        told = []
        for ask in (list, len):
            try:
                ask(x.sum())
            except TypeError as error:
                told.append(str(error))
    with Counts():
        return first, second, doubled, counted, told, len(x), list(x), [*x.__iter__()]


class Counts(TorchFunctionMode):
    """Each tensor has seven rows, of which the first is shown."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__len__:
            return 7
        result = func(*args, **(kwargs or {}))
        return result[:1] if func is torch.Tensor.unbind else result


WHOLE = [
    *(answers, made_outside, operations, nested, of_a_subclass, constructors, entered_by_hand),
    *(left_by_an_exception, asks_for_the_stack, refused, of_a_parameter, differentiates),
    rows,
]


# -- no graph holds these: they run as they are ---------------------------------------------------
def breaks_inside(x):
    with Notes("a"):
        y = x + 1
        torch._dynamo.graph_break()
        y = y * 2
    return y - 1


def answers_with_a_break(x):
    class Breaks(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            SEEN.append(vars(self))
            return func(*args, **(kwargs or {}))

    with Breaks():
        return x.sum().item(), len(x)


def left_entered(x):
    Notes("a").__enter__()
    return x + 1


def in_a_device(x):
    with Notes("a"), torch.device("cpu"):
        return torch.ones(2) + x


def refuses(x):
    with Refuses():
        try:
            return x.add(1)
        except TypeError:
            return x * 3


def language(x):
    with Notes("a"):
        return [row * 2 for row in x], bool((x == x).all())


BREAKING = [breaks_inside, answers_with_a_break, left_entered, in_a_device, refuses, language]


def outcome(function):
    SEEN.clear()
    x = torch.arange(4.0).reshape(2, 2)
    try:
        result = function(x)
    finally:
        left = torch._C._len_torch_function_stack()
        for _ in range(left):
            torch._C._pop_torch_function_stack()
    return result, list(SEEN), left, x


def check(function, expected):
    result, *others = outcome(function)
    assert same(result, expected[0]), (result, expected[0])
    assert others[:2] == list(expected[1:3])
    assert same(others[2], expected[3])


@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_one_graph(function):
    captured, kept = compiled(function, fullgraph=True)
    expected = outcome(function)
    for _ in range(2):
        check(captured, expected)
    assert len(kept.op_counts) == 1


@pytest.mark.parametrize("function", BREAKING, ids=lambda f: f.__name__)
def test_as_it_is(function):
    captured, _ = compiled(function)
    expected = outcome(function)
    for _ in range(2):
        check(captured, expected)


def test_handlers_of_modes_around_the_frame_are_not_compiled():
    def adds(x):
        return torch.add(x, 1).sin() + helper(x)

    def helper(x):
        return torch.add(x, x)

    x = torch.linspace(-1, 1, 4)
    function, captured = compiled(adds)
    for _ in range(2):
        asked = []
        results = []
        for called in (function, adds):
            SEEN.clear()
            with Notes("outer"), Doubles():
                results.append(called(x))
            asked.append(list(SEEN))
        assert same(*results) and asked[0] == asked[1]
    assert not captured.op_counts
    assert same(function(x), adds(x))
    assert captured.op_counts == [4]


class Ones(TorchFunctionMode):
    """Initial values are ones."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in (torch.nn.init.kaiming_uniform_, torch.nn.init.uniform_):
            result.data.fill_(1)
        return result


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_sees_how_modules_are_made(backend):
    def f(x, mode):
        with mode:
            layer = torch.nn.Linear(3, 2)
        return layer(x), layer.weight

    def g(x, mode):
        with mode:
            scale = torch.nn.Parameter(torch.ones(3))
            return torch.nn.Linear(3, 2)(x) * 2, scale

    x = torch.randn(4, 3)
    for function, mode in ((f, Ones()), (f, Notes("a")), (g, Ones()), (g, InDouble())):
        SEEN.clear()
        torch.manual_seed(0)
        expected, seen = function(x, mode), list(SEEN)
        SEEN.clear()
        torch.manual_seed(0)
        got = dynamo.compile(function, backend=backend)(x, mode)
        torch.testing.assert_close(got, expected)
        assert SEEN == seen
