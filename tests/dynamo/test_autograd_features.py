"""What people do with autograd, under compile: their own functions, derivatives of derivatives,
hooks, checks of gradients, anomaly mode, the profiler.
"""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.autograd.gradcheck import GradcheckError

import dynamo

BACKENDS = ["aot_eager", "inductor"]


class Exp(Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * result


class GradCoeff(Function):
    @staticmethod
    def forward(ctx, x, coeff):
        ctx.coeff = coeff
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.coeff * grad_output, None


class Sigmoid(Function):
    @staticmethod
    def forward(ctx, x):
        output = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (output,) = ctx.saved_tensors
        return output * (1 - output) * grad_output


class Split(Function):
    """Two outputs, one of them without a gradient; setup_context of its own."""

    @staticmethod
    def forward(x):
        return x.sin(), x > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad_output, grad_mask):
        (x,) = ctx.saved_tensors
        return grad_output * x.cos() * 2


class Once(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        left = grad_output * w if ctx.needs_input_grad[0] else None
        return left, grad_output * x if ctx.needs_input_grad[1] else None


SCALE = 3.0


class ReadsGlobal(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * SCALE


class Counts(Function):
    calls: list[str] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad_output):
        Counts.calls.append("backward")
        return grad_output * 5


def exp(x, y):
    return Exp.apply(x) * y


def grad_coeff(x, y):
    return GradCoeff.apply(x, -0.1) * y


def sigmoid(x, y):
    return Sigmoid.apply(x * y) + Sigmoid.apply(y)


def split(x, y):
    value, mask = Split.apply(x)
    return value * mask * y


def once(x, y):
    return Once.apply(x, y).exp()


def view_of_input(x, y):
    return GradCoeff.apply(x, -0.1)


def view_of_value(x, y):
    return GradCoeff.apply(Exp.apply(x * y), -0.1)


def view_of_output(x, y):
    z = x * y
    return z + GradCoeff.apply(z, -0.1), GradCoeff.apply(z, 2.0), z


def leaves(dtype=torch.float64):
    torch.manual_seed(0)
    return [torch.randn(4, dtype=dtype, requires_grad=True) for _ in range(2)]


def op_by_op(compiled):
    reports = [g.report or {} for record in compiled.context.records for g in record.graphs]
    notes = [note for report in reports for note in report.get("notes", ())]
    return [note for note in notes if "op by op" in note or "runs as it is" in note]


def compiled_with(function, backend):
    dynamo.reset()
    return dynamo.compile(function, backend=backend, fullgraph=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [exp, grad_coeff, sigmoid, split, once])
def test_custom_function(function, backend):
    compiled = compiled_with(function, backend)
    inputs = leaves()
    weights = torch.linspace(1, 2, 4, dtype=torch.float64)
    for _ in range(2):
        expected = torch.autograd.grad((function(*inputs) * weights).sum(), inputs)
        found = torch.autograd.grad((compiled(*inputs) * weights).sum(), inputs)
        torch.testing.assert_close(found, expected)
    assert not op_by_op(compiled)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [view_of_input, view_of_value, view_of_output])
def test_returned_view_of_custom_function(function, backend):
    """The view's gradient goes through the function, not straight to what it is a view of."""
    compiled = compiled_with(function, backend)
    inputs = leaves()

    def gradients(run):
        results = run(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        total = sum((k + 1) * result.square().sum() for k, result in enumerate(results))
        return torch.autograd.grad(total, inputs, allow_unused=True)

    torch.testing.assert_close(gradients(compiled), gradients(function))


@pytest.mark.parametrize("function", [exp, grad_coeff, sigmoid])
def test_second_derivative_of_custom_function(function):
    compiled = compiled_with(function, "aot_eager")
    inputs = leaves()
    results = []
    for run in (function, compiled):
        first = torch.autograd.grad(run(*inputs).sum(), inputs, create_graph=True)
        total = sum(g.square().sum() for g in first)
        results.append(torch.autograd.grad(total, inputs, allow_unused=True))
    torch.testing.assert_close(results[1], results[0])


def test_backward_that_reads_a_global():
    """It reads it when backward runs, whatever it was in forward."""
    global SCALE
    compiled = compiled_with(lambda x: ReadsGlobal.apply(x) * 2, "aot_eager")
    (x, _) = leaves()
    assert torch.equal(torch.autograd.grad(compiled(x).sum(), x)[0], torch.full_like(x, 6.0))
    y = compiled(x)
    try:
        SCALE = 4.0
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.full_like(x, 8.0))
    finally:
        SCALE = 3.0
    assert op_by_op(compiled)


def test_backward_with_a_side_effect():
    compiled = compiled_with(lambda x: Counts.apply(x) * 2, "aot_eager")
    (x, _) = leaves()
    Counts.calls.clear()
    for _ in range(3):
        torch.autograd.grad(compiled(x).sum(), x)
    assert len(Counts.calls) == 3


@pytest.mark.parametrize("function", [exp, sigmoid])
def test_gradcheck(function):
    """Numerical against compiled gradients, in double."""
    compiled = compiled_with(function, "inductor")
    assert torch.autograd.gradcheck(compiled, leaves(), eps=1e-6)


def test_gradgradcheck():
    compiled = compiled_with(lambda x, y: (x * y).sin().sum(0), "aot_eager")
    assert torch.autograd.gradgradcheck(compiled, leaves())


def test_gradcheck_finds_a_wrong_backward():
    compiled = compiled_with(grad_coeff, "aot_eager")
    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(compiled, leaves())


@pytest.mark.parametrize("backend", BACKENDS)
def test_grad_of_an_intermediate(backend):
    def f(a, b):
        c = a * b
        return c, c.exp()

    compiled = compiled_with(f, backend)
    a, b = leaves()
    results = []
    for run in (f, compiled):
        c, d = run(a, b)
        results.append(torch.autograd.grad(d.sum(), (c, a)))
    torch.testing.assert_close(results[1], results[0])


def test_grad_inside():
    def f(a, b):
        d = (a * b).exp().sum()
        first, second = torch.autograd.grad(d, (a, b))
        return first * 2 + second

    compiled = compiled_with(f, "inductor")
    a, b = leaves()
    torch.testing.assert_close(compiled(a, b), f(a, b))
    assert not op_by_op(compiled)


def test_jacobian_and_hessian():
    pool = torch.nn.AvgPool2d(kernel_size=2)

    def matrix(x):
        return pool(x.reshape((1, 1, *x.shape))).reshape(2, 2) ** 2

    def scalar(x):
        return torch.sum(x**2 * x)

    x = torch.randn(4, 4, dtype=torch.float64)
    jacobian, hessian = torch.autograd.functional.jacobian, torch.autograd.functional.hessian
    found = jacobian(compiled_with(matrix, "aot_eager"), x)
    torch.testing.assert_close(found, jacobian(matrix, x))
    found = hessian(compiled_with(scalar, "aot_eager"), x)
    torch.testing.assert_close(found, hessian(scalar, x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_hook_on_an_output(backend):
    def f(a, b):
        return a * b

    def run(function):
        a, b = leaves()
        seen = []
        c = function(a, b)
        handle = c.register_hook(lambda g: seen.append(g) or g * 2)
        c.exp().sum().backward()
        handle.remove()
        return [*seen, a.grad, b.grad]

    torch.testing.assert_close(run(compiled_with(f, backend)), run(f))


def test_hook_in_the_frame():
    seen = []

    def f(a, b):
        c = a * b
        c.register_hook(seen.append)
        return c.exp().sum()

    def run(function):
        seen.clear()
        a, b = leaves()
        function(a, b).backward()
        return [*seen, a.grad, b.grad]

    dynamo.reset()
    compiled = dynamo.compile(f, backend="aot_eager")
    torch.testing.assert_close(run(compiled), run(f))
    assert len(seen) == 1


class Fails(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        raise RuntimeError("Some error in backward")


def test_anomaly_mode_names_the_forward():
    def run_fn(a):
        return Fails.apply(a).sum()

    dynamo.reset()
    compiled = dynamo.compile(run_fn, backend="aot_eager")
    x = torch.rand(10, requires_grad=True)
    with pytest.raises(RuntimeError, match="Some error in backward"):
        compiled(x).backward()
    with torch.autograd.detect_anomaly(check_nan=True):
        out = compiled(x)
        with (
            pytest.warns(UserWarning, match="Traceback of forward call that caused the error"),
            pytest.raises(RuntimeError, match="Some error in backward"),
        ):
            out.backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_anomaly_mode_finds_nan(backend):
    compiled = compiled_with(lambda x: (x.sqrt() * 0).sum(), backend)
    x = torch.zeros(3, requires_grad=True)
    compiled(x).backward()
    assert x.grad.isnan().all()
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan values"):
        compiled(x).backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_grad_and_eval(backend):
    """no_grad turns gradients off, eval turns dropout off: either without the other."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Dropout(0.5))
    dynamo.reset()
    compiled = dynamo.compile(model, backend=backend)
    x = torch.ones(1, 4)
    for training in (True, False):
        for grad in (True, False):
            model.train(training)
            with torch.set_grad_enabled(grad):
                y = compiled(x)
                assert y.requires_grad is grad
                zeros = int((y == 0).sum())
                assert (zeros > 0) is training
                if grad:
                    y.sum().backward()
                    assert model[0].bias.grad.bool().logical_not().sum() == zeros
                    model.zero_grad()


@pytest.mark.parametrize("backend", BACKENDS)
def test_profiler_names_compiled_regions(backend):
    def normalised(x, w):
        return torch.softmax(x * w, -1)

    compiled = compiled_with(normalised, backend)
    x, w = leaves()
    compiled(x, w).sum().backward()
    with torch.autograd.profiler.profile() as profile:
        compiled(x, w).sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert {"framegraph::normalised", "framegraph::normalisedBackward"} <= names, sorted(names)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_and_detached_results_of_a_leaf_without_grad_mode(backend):
    def fn(x):
        return x.view(-1), x.detach(), x.t(), x[1:].detach()

    compiled = dynamo.compile(fn, backend=backend)
    for asks in (False, True, False):
        x = torch.ones(4, 2, requires_grad=asks)
        with torch.no_grad():
            expected, found = fn(x), compiled(x)
        for one, other in zip(expected, found):
            assert torch.equal(one, other)
            assert one.requires_grad == other.requires_grad
            assert one.data_ptr() == other.data_ptr()


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_derivative_behind_a_break_in_autocast(backend):
    """A part of a function that starts inside a region differentiates as it ran, in the region, and
    one that ends there leaves it as it was.
    """
    w = torch.eye(4).mul(0.5).requires_grad_()

    def f(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = (x @ w) * 2
            dynamo.graph_break()
            return (y * y) @ w

    found = []
    for run in (f, dynamo.compile(f, backend=backend)):
        (first,) = torch.autograd.grad(run(torch.ones(2, 4)).sum(), w, create_graph=True)
        found.append([first, *torch.autograd.grad(first.sum(), w)])
        assert not torch.is_autocast_enabled("cpu")
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=0.02, atol=0.02)


class ByName(Function):
    """Its arguments may be given by name; backward tells of how many torch knows."""

    @staticmethod
    def forward(ctx, x, factor=2.0, shift=3.0):
        ctx.count, ctx.factor = len(ctx.needs_input_grad), factor
        return x * factor + shift

    @staticmethod
    def backward(ctx, grad_output):
        return (grad_output * ctx.factor * ctx.count, None, None)[: ctx.count]


class ByNameSetUp(Function):
    @staticmethod
    def forward(x, factor=2.0, shift=3.0):
        return x * factor + shift

    @staticmethod
    def setup_context(ctx, inputs, output):
        _x, ctx.factor, ctx.shift = inputs

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor * ctx.shift, None, None


@pytest.mark.parametrize("backend", ["eager", *BACKENDS])
@pytest.mark.parametrize("function", [ByName, ByNameSetUp])
@pytest.mark.parametrize(
    "apply",
    [
        lambda cls, x: cls.apply(x=x),
        lambda cls, x: cls.apply(x, factor=4.0),
        lambda cls, x: cls.apply(shift=1.0, factor=4.0, x=x),
        lambda cls, x: cls.apply(x),
        lambda cls, x: cls.apply(x, shift=4.0),
        lambda cls, x: cls.apply(x, x=x),
        lambda cls, x: cls.apply(x, other=4.0),
        lambda cls, x: cls.apply(shift=x),
    ],
)
def test_arguments_by_name_and_defaults_of_functions(apply, function, backend):
    def outcome(run, asks):
        x = torch.ones(3, requires_grad=asks)
        try:
            result = run(function, x)
        except TypeError as error:
            return str(error)
        if asks:
            result.sum().backward()
        return result.requires_grad, result.tolist(), x.grad.tolist() if asks else None

    dynamo.reset()
    compiled = dynamo.compile(apply, backend=backend)
    for asks in (True, False):
        assert outcome(compiled, asks) == outcome(apply, asks)
