"""Functions of the program as arguments of `autograd.Function.apply`, as of checkpoints and
reversible layers: eager's results and gradients, and the graphs.
"""

from __future__ import annotations

import functools
import gc
import weakref

import pytest
import torch
from torch import nn

import dynamo
from backends.aot_eager import aot_eager
from backends.inductor import inductor
from tests.dynamo.values_support import CountingBackend


class Mapped(torch.autograd.Function):
    """A function that the backward runs again, as reversible layers and checkpoints do."""

    @staticmethod
    def forward(ctx, x, function, *parameters):
        ctx.function, ctx.parameters = function, parameters
        ctx.save_for_backward(x)
        return function(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.function(x)
        found = torch.autograd.grad(y, (x, *ctx.parameters), gradient)
        return (found[0], None, *found[1:])


class Scaler(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.linear, self.by = nn.Linear(3, 3), by

    def scaled(self, x):
        return self.linear(x) * self.by

    def forward(self, x):
        return Mapped.apply(x * 2, self.scaled, *self.linear.parameters()) + 1


def gradients_of(function, model, x):
    given = x.clone().requires_grad_()
    result = function(given)
    return [result.detach(), *torch.autograd.grad(result.sum(), [given, *model.parameters()])]


def test_a_method_given_to_an_autograd_function():
    backend, model = CountingBackend(), Scaler(2)
    compiled = dynamo.compile(model, backend=backend)
    for by in (2, 2, 3, 3.5, 3.5):
        model.by, x = by, torch.randn(4, 3)
        torch.testing.assert_close(gradients_of(compiled, model, x), gradients_of(model, model, x))
    assert backend.graphs <= 3
    model.scaled = (lambda linear: lambda y: linear(y) - 1)(model.linear)
    for x in torch.randn(3, 4, 3):
        torch.testing.assert_close(gradients_of(compiled, model, x), gradients_of(model, model, x))
    reference = weakref.ref(model)
    del model, compiled
    gc.collect()
    assert reference() is None


FUNCTIONS = {
    "a_method": lambda number, model: model.scaled,
    "methods": lambda number, model: Scaler(number).scaled,
    "nested": lambda number, model: lambda y: y * number,
    "partials": lambda number, model: functools.partial(torch.mul, float(number)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_given_to_an_autograd_function(name):
    def mapped(x, function):
        return Mapped.apply(x * 2, function) + 1

    backend, model = CountingBackend(), Scaler(2)
    compiled = dynamo.compile(mapped, backend=backend)
    counts = []
    for number in range(12):
        x, function = torch.randn(4, 3), FUNCTIONS[name](number, model)
        found = []
        for run in (mapped, compiled):
            given = x.clone().requires_grad_()
            result = run(given, function)
            found += [result.detach(), *torch.autograd.grad(result.sum(), given)]
        torch.testing.assert_close(found[:2], found[2:])
        counts.append(backend.graphs)
    assert counts[-1] == counts[-5] <= 7  # those of the functions' own frames among them
    assert name != "a_method" or counts[-1] == 1


# -- functions that the frame makes ---------------------------------------------------------------
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.by, self.mask = nn.Linear(3, 3), 2.0, torch.ones(3)
        self.more = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])

    def mapped(self, x, function):
        return Mapped.apply(x * 2, function, *self.parameters()) + 1

    def times(self, x, by, *, shift=0.0):
        used = sum(layer(x) for layer in self.more)
        return self.linear(x) * by + shift + used

    def a_lambda(self, x):
        return self.mapped(x, lambda y: self.times(y, self.by))

    def a_partial(self, x):
        return self.mapped(x, functools.partial(self.times, by=3, shift=1.0))

    def a_partial_of_a_lambda(self, x):
        return self.mapped(x, functools.partial(lambda by, y: self.times(y, by), 4))

    def defaults(self, x):
        def run(y, by=2, *, shift=3.0):
            return self.times(y, by, shift=shift)

        return self.mapped(x, run)

    def blocks(self, x):
        def custom(start, end):
            def run(y):
                for layer in self.more[start:end]:
                    y = layer(y).sin()
                return self.times(y, start)

            return run

        for i in range(2):
            x = self.mapped(x, custom(i, i + 2))
        return x

    def a_function_of_functions(self, x):
        def scaled(y):
            return self.times(y, 3)

        return self.mapped(x, lambda y: scaled(y) + scaled(y * 2))

    def a_parameter(self, x):
        weight = self.linear.weight
        return self.mapped(x, lambda y: self.times(y, 2) + y @ weight)

    def a_parameter_swept(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        y = Swept.apply(x * 2, lambda y: (y @ weight).sin() * 3 + bias)
        return self.mapped(y, lambda y: self.times(y, 2) + y @ weight) + weight.sum()

    def a_tensor(self, x):
        mask = (x > 0).float().detach()
        return self.mapped(x, lambda y: self.times(y, 2) * mask)


WHOLE = [name for name in vars(Layer) if name not in ("__init__", "mapped", "times")]
WHOLE = [name for name in WHOLE if not name.startswith("_")]


@pytest.mark.parametrize("backend", ["counting", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", WHOLE)
def test_functions_that_the_frame_makes(name, backend):
    made = {"counting": CountingBackend(), "aot_eager": aot_eager, "inductor": inductor}[backend]
    model = Layer()
    function = getattr(model, name)
    compiled = dynamo.compile(function, backend=made, fullgraph=True)
    for x in torch.randn(3, 4, 3):
        torch.testing.assert_close(
            gradients_of(compiled, model, x), gradients_of(function, model, x)
        )
    assert backend != "counting" or made.graphs == 1
    model.by = 5.0
    torch.testing.assert_close(gradients_of(compiled, model, x), gradients_of(function, model, x))
    reference = weakref.ref(model)
    del model, compiled, function
    gc.collect()
    assert reference() is None


def a_variable_written_later(model, x):
    by = 2.0
    y = model.mapped(x, lambda y: model.times(y, by))
    by = 3.0
    return y * by


def a_variable_written_behind_a_break(model, x):
    by = 2.0
    y = model.mapped(x, lambda y: model.times(y, by))
    dynamo.graph_break()
    by = 3.0
    return y * by


def the_variable_of_a_loop(model, x):
    for i in range(3):
        x = model.mapped(x, lambda y: model.times(y, i))  # noqa: B023
    return x


def a_variable_that_the_function_writes(model, x):
    count = 0

    def run(y):
        nonlocal count
        count += 1
        return model.times(y, count)

    return model.mapped(x, run) * count


def a_list(model, x):
    factors = [2.0]

    def run(y):
        return model.times(y, factors[0])

    y = model.mapped(x, run)
    factors[0] = 4.0
    return y


def a_default_that_is_a_list(model, x):
    def run(y, factors=[2.0]):  # noqa: B006
        return model.times(y, factors[0])

    y = model.mapped(x, run)
    run.__defaults__[0][0] = 5.0
    return y


def a_function_that_calls_itself(model, x):
    def run(y, depth=1):
        return run(y.sin(), depth - 1) if depth else model.times(y, 2)

    return model.mapped(x, run)


def a_tensor_with_a_gradient(model, x):
    scale = x.sum()
    return Swept.apply(x * 2, lambda y: model.times(y, 2) * scale) + 1


def a_tensor_written_later(model, x):
    mask = (x > 0).float().detach()
    y = model.mapped(x, lambda y: model.times(y, 2) * mask)
    mask.mul_(3)
    return y * 2


def a_tensor_written_before_and_later(model, x):
    mask = torch.ones_like(x, requires_grad=False)
    mask.add_(1)
    y = model.mapped(x, lambda y: model.times(y, 2) * mask)
    z = mask * 2
    mask.add_(x.detach())
    return y * z * mask


def an_input_written_later(model, x):
    mask = model.mask
    y = model.mapped(x, lambda y: model.times(y, 2) * mask)
    model.mask.add_(1)
    return y * 2


def an_object_of_the_frame(model, x):
    class Settings:
        by = 2.0

    settings = Settings()

    def run(y):
        return model.times(y, settings.by)

    y = model.mapped(x, run)
    settings.by = 7.0
    return y


def a_backward_in_the_frame(model, x):
    by = 2.0
    y = model.mapped(x, lambda y: model.times(y, by))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    by = 3.0
    return x * gradient * by


def a_cell_from_outside(model, x):
    return outer(model)(x)


def outer(model):
    by = 2.0

    @dynamo.disable
    def change():
        nonlocal by
        by += 1

    def run(x):
        y = model.mapped(x, lambda y: model.times(y, by))
        change()
        return y

    return run


class Swept(torch.autograd.Function):
    """Its backward reaches whatever the function reads."""

    @staticmethod
    def forward(ctx, x, function):
        ctx.function = function
        ctx.save_for_backward(x)
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            torch.autograd.backward(ctx.function(x), gradient, retain_graph=True)
        return x.grad, None


CHANGED = [
    a_variable_written_later,
    a_variable_written_behind_a_break,
    the_variable_of_a_loop,
    a_variable_that_the_function_writes,
    a_list,
    a_default_that_is_a_list,
    a_function_that_calls_itself,
    a_tensor_with_a_gradient,
    a_tensor_written_later,
    a_tensor_written_before_and_later,
    an_input_written_later,
    an_object_of_the_frame,
    a_backward_in_the_frame,
    a_cell_from_outside,
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", CHANGED, ids=lambda function: function.__name__)
def test_what_functions_read_and_the_frame_changes(function, backend):
    torch.manual_seed(0)
    model = Layer()
    compiled = dynamo.compile(function, backend=backend)
    for x in torch.randn(3, 4, 3):
        found = []
        for run in (function, compiled):
            model.zero_grad()
            model.mask = torch.ones(3)
            given = x.clone().requires_grad_()
            result = run(model, given)
            result.sum().backward()
            found.append([result, given.grad, *(p.grad for p in model.parameters())])
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


def a_writer_of_the_variable(model, x):
    by = 2.0

    def write():
        nonlocal by
        by = 7.0

    return model.mapped(x, lambda y: model.times(y, by)), write


def a_generator_that_writes_the_variable(model, x):
    by = 2.0

    def written():
        nonlocal by
        yield
        by = 7.0
        yield

    steps = written()
    next(steps)
    return model.mapped(x, lambda y: model.times(y, by)), lambda: next(steps)


def the_function_itself(model, x):
    by = 2.0

    def run(y):
        return model.times(y, by)

    def write(cell):
        cell.cell_contents = 7.0

    return model.mapped(x, run), functools.partial(write, run.__closure__[0])


def keywords_of_a_partial(model, x):
    given = functools.partial(model.times, by=2.0)
    return model.mapped(x, given), functools.partial(given.keywords.update, by=7.0)


def keywords_behind_a_break(model, x):
    given = functools.partial(model.times, by=2.0)
    y = model.mapped(x, given)
    dynamo.graph_break()
    given.keywords["by"] = 7.0
    return y, int


def a_default(model, x):
    def run(y, by=2.0):
        return model.times(y, by)

    y = model.mapped(x, run)
    run.__defaults__ = (7.0,)
    return y, int


def a_keywords_default(model, x):
    def run(y, *, by=2.0):
        return model.times(y, by)

    y = model.mapped(x, run)
    run.__kwdefaults__["by"] = 7.0
    return y, int


def the_code(model, x):
    def run(y):
        return model.times(y, 2.0)

    y = model.mapped(x, run)
    run.__code__ = (lambda y: model.times(y, 7.0)).__code__
    return y, int


KEPT = [
    a_default,
    a_keywords_default,
    the_code,
    a_writer_of_the_variable,
    a_generator_that_writes_the_variable,
    the_function_itself,
    keywords_of_a_partial,
    keywords_behind_a_break,
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", KEPT, ids=lambda function: function.__name__)
def test_what_functions_read_and_the_program_changes_before_the_backward(function, backend):
    model = Layer()
    model.mask = torch.ones(3)
    compiled = dynamo.compile(function, backend=backend)
    for x in torch.randn(3, 4, 3):
        found = []
        for run in (function, compiled):
            given = x.clone().requires_grad_()
            result, change = run(model, given)
            change()
            result.sum().backward()
            found.append([result, given.grad])
        torch.testing.assert_close(found[1], found[0])


# -- containers -----------------------------------------------------------------------------------
class Convolution(torch.autograd.Function):
    """Its settings are lists, which the backward reads."""

    @staticmethod
    def forward(ctx, x, weight, stride, options):
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.options = stride, options
        return nn.functional.conv1d(x, weight, stride=stride, padding=options["padding"])

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        given = gradient, ctx.stride, ctx.options["padding"]
        return (
            nn.grad.conv1d_input(x.shape, weight, *given),
            nn.grad.conv1d_weight(x, weight.shape, *given),
            None,
            None,
        )


class Ordered(torch.autograd.Function):
    """Arguments of several kinds, in turn."""

    @staticmethod
    def forward(ctx, first, x, function, number, options, y):
        ctx.first, ctx.options, ctx.function = first, options, function
        return function(x) * first[0] - y * options["by"] + number

    @staticmethod
    def backward(ctx, gradient):
        own = ctx.function(gradient) * ctx.first[0]
        return None, own, None, None, None, -gradient * ctx.options["by"]


class Convolving(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 1, 2))
        self.stride, self.options, self.kept = [1], {"padding": [1]}, None
        self.fixed = {"padding": 1}

    def made_here(self, x):
        return Convolution.apply(x[:, None], self.weight, [1], {"padding": [1]})

    def of_the_module(self, x):
        return Convolution.apply(x[:, None], self.weight, self.stride, self.fixed)

    def beside_functions(self, x):
        return Ordered.apply([2], x, lambda y: y * self.weight.shape[0], 3, {"by": 5}, x + 1)

    def copied(self, x):
        stride = list(self.stride)
        return Convolution.apply(x[:, None], self.weight, stride, {**self.fixed}) * stride[0]


def written_later(model, x):
    stride = [1]
    y = Convolution.apply(x[:, None], model.weight, stride, model.fixed)
    stride[0] = 2
    return y


def returned(model, x):
    stride = [1]
    return Convolution.apply(x[:, None], model.weight, stride, model.fixed), stride


def kept_by_the_module(model, x):
    model.kept = [1]
    return Convolution.apply(x[:, None], model.weight, model.kept, model.fixed)


def kept_later(model, x):
    stride = [1]
    y = Convolution.apply(x[:, None], model.weight, stride, model.fixed)
    model.kept = stride
    return y


def kept_over_a_break(model, x):
    stride = [1]
    y = Convolution.apply(x[:, None], model.weight, stride, model.fixed)
    dynamo.graph_break()
    stride.append(2)
    return y * len(stride)


def nested_of_the_module(model, x):
    return Convolution.apply(x[:, None], model.weight, [1], model.options)


SETTINGS = [Convolving.made_here, Convolving.of_the_module, Convolving.copied]
SETTINGS += [Convolving.beside_functions]
CONTAINERS = [written_later, returned, kept_by_the_module, kept_later, kept_over_a_break]
CONTAINERS += [nested_of_the_module]


def results_of(function, model, x, change):
    """Results and gradients, where a list of the program's is changed before the backward."""
    given = x.clone().requires_grad_()
    result = function(model, given)
    lists = [one for one in [model.kept, *result[1:]] if isinstance(one, list)]
    result = result[0] if isinstance(result, tuple) else result
    for one in lists if change else ():
        one[0] = 3
    total = result.sum() + model.weight.sum()
    try:
        found = [result.detach(), *torch.autograd.grad(total, [given, model.weight])]
    except (RuntimeError, ValueError) as error:
        found = [result.detach(), torch.tensor(len(str(error)))]
    model.kept = None
    return found


@pytest.mark.parametrize("backend", ["counting", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", SETTINGS + CONTAINERS, ids=lambda function: function.__name__)
def test_containers(function, backend):
    made = {"counting": CountingBackend(), "aot_eager": aot_eager, "inductor": inductor}[backend]
    model = Convolving()
    compiled = dynamo.compile(function, backend=made, fullgraph=function in SETTINGS)
    for change in (False, True, False):
        x = torch.randn(4, 3)
        found = results_of(compiled, model, x, change)
        torch.testing.assert_close(found, results_of(function, model, x, change))
    assert backend != "counting" or function not in SETTINGS or made.graphs == 1
    model.stride[0] = model.fixed["padding"] = 2
    torch.testing.assert_close(
        results_of(compiled, model, x, False), results_of(function, model, x, False)
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_list_of_the_module_that_is_changed_before_the_backward(backend):
    model, function, texts = Convolving(), Convolving.of_the_module, []
    for run in (function, dynamo.compile(function, backend=backend, fullgraph=True)):
        result = run(model, torch.randn(4, 3, requires_grad=True))
        model.stride.append(1)
        with pytest.raises((RuntimeError, ValueError)) as caught:
            result.sum().backward()
        texts.append(str(caught.value))
        model.stride.pop()
    assert texts[0] == texts[1]
