"""Functions of many kinds, each used in many ways by its caller: eager and compiled agree."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo
from tests.fxgraph.training_support import BACKENDS, Log, backward, check, r, tensors_of


# -- functions ------------------------------------------------------------------------------------
def product(x, w):
    return x * w


def two_outputs(x, w):
    y = x * w
    return y + w, y * x


def apart(x, w):
    return x * 3 * x, w * w


def saves_nothing(x, w):
    return x + w, x - w


def shared_prefix(x, w):
    y = x * x * w
    return y * w, y, y + 1


def non_differentiable(x, w):
    return x * w, x.detach() * 2, (x > 0), x.argmax()


def unused_input(x, w):
    return (x * x,)


def view_outputs(x, w):
    y = x * w
    return y.t(), y[0], y


def view_of_input(x, w):
    return x.view(-1), x * w


def input_returned(x, w):
    return x, x * w, w


def chunks(x, w):
    return (x * w).chunk(2)


def no_grad_view(x, w):
    y = x * w
    with torch.no_grad():
        z = y.view(-1)
    return y, z


def no_grad_inside(x, w):
    y = x * w
    with torch.no_grad():
        z = y * x
    return y * z, z


def enable_grad_inside(x, w):
    with torch.no_grad():
        y = x * w
        with torch.enable_grad():
            z = x * y
    return z * w, y


def detached(x, w):
    y = x * w
    return y.detach() * w, y


def detached_view(x, w):
    y = x * w
    return y.detach(), y * 2


def written_inside(x, w):
    y = x * w
    y.mul_(x)
    y[0].add_(w[1])
    return y


def written_view(x, w):
    y = x.clone()
    y[0] = w[0]
    y.t()[1] = 2.0
    return y * w, y


def stacked(x, w):
    return torch.cat([x, w * x]), torch.stack([x, w])


def reduced(x, w):
    return (x * w).sum(), (x * x).mean(0)


def same_twice(x, w):
    y = x * w
    return y, y


def integers(x, w):
    index = torch.arange(2)
    return x[index] * w[index], index + 1


def infinite(x, w):
    z = x - x.detach()
    return x * w, z.sqrt()


def floored(x, w):
    return (x * w).floor(), x.round() * w


def complexes(x, w):
    z = torch.complex(x, w)
    return torch.view_as_real(z * z)[..., 0], z.imag * 2


def products(x, w):
    return F.relu(x @ w), (x @ w.t()).sum(0)


def dropped(x, w):
    return F.dropout(x * w, 0.5), torch.rand_like(x) * w


def transposed_in_place(x, w):
    y = x * w
    y.transpose_(0, 1)
    return y, y * 2


def view_after_a_write(x, w):
    y = x * w
    y.mul_(2)
    row = y[0]
    return row, row * 3


def views_around_a_write(x, w):
    y = x * w
    row = y[0]
    y.mul_(w)
    later = y[1]
    return row, row * 3, later, later.exp()


def graph_break(x, w):
    y = x * w
    torch._dynamo.graph_break()
    return y * y, y + w


def none_and_numbers(x, w):
    return x * w, None, 3, w * 2


FUNCTIONS = [
    product, two_outputs, apart, saves_nothing, shared_prefix, non_differentiable, unused_input,
    view_outputs, view_of_input, input_returned, chunks, no_grad_view, no_grad_inside,
    enable_grad_inside, detached, detached_view, written_inside, written_view, stacked, reduced,
    same_twice, integers, infinite, floored, complexes, products, dropped, transposed_in_place,
    view_after_a_write, views_around_a_write, graph_break, none_and_numbers,
]  # fmt: skip


# -- uses -----------------------------------------------------------------------------------------
def differentiable(result):
    return [y for y in tensors_of(result) if isinstance(y, torch.Tensor) and y.requires_grad]


def plain(result, inputs, log):
    backward(result, inputs, log)


def retained(result, inputs, log):
    backward(result, inputs, log, retain_graph=True)
    backward(result, inputs, log)


def twice(result, inputs, log):
    backward(result, inputs, log)
    log.trying(lambda: backward(result, inputs, log))


def one_by_one(result, inputs, log):
    """Each output by itself: what one backward frees, the next may need."""
    for y in differentiable(result):
        log.trying(lambda y=y: y.backward(torch.randn_like(y)))
        log(*[x.grad for x in inputs])


def last_first(result, inputs, log):
    for y in reversed(differentiable(result)):
        log.trying(lambda y=y: y.backward(torch.randn_like(y)))
        log.trying(lambda y=y: y.backward(torch.randn_like(y)))
        log(*[x.grad for x in inputs])


def first_only(result, inputs, log):
    y = differentiable(result)[0]
    wanted = [x for x in inputs if x.requires_grad]
    log(*torch.autograd.grad(y, wanted, torch.randn_like(y), allow_unused=True))


def last_only(result, inputs, log):
    y = differentiable(result)[-1]
    wanted = [x for x in inputs if x.requires_grad]
    log(*torch.autograd.grad(y, wanted, torch.randn_like(y), allow_unused=True))


def one_input(result, inputs, log):
    roots = differentiable(result)
    given = [torch.randn_like(y) for y in roots]
    log(*torch.autograd.grad(roots, inputs[1:], given, allow_unused=True))


def accumulated(result, inputs, log):
    for _ in range(3):
        backward(result, inputs, log, retain_graph=True)


def hooked(result, inputs, log):
    roots = differentiable(result)
    seen = [Log() for _ in [*roots, *inputs]]  # in which order independent hooks run is open
    for t, own in zip([*roots, *inputs], seen):
        t.register_hook(lambda g, own=own: own(g))
    roots[0].register_hook(lambda g: g * 2)
    backward(result, inputs, log)
    for own in seen:
        log(*own.seen)


def grad_retained(result, inputs, log):
    for y in differentiable(result):
        y.retain_grad()
    backward(result, inputs, log)
    log(*[y.grad for y in differentiable(result)])


def through_more(result, inputs, log):
    """The outputs go on; a non-leaf gradient arrives expanded and transposed."""
    sum((y.t() if y.dim() == 2 else y).exp().sum() for y in differentiable(result)).backward()


def refusable(result, inputs, log):
    """A backward that may raise: which gradients were accumulated by then is not compared."""
    log.trying(lambda: backward(result, inputs, log))
    if log.seen and isinstance(log.seen[-1], str):
        for x in inputs:
            x.grad = None


def output_written(result, inputs, log):
    for y in tensors_of(result):
        if isinstance(y, torch.Tensor) and y.is_floating_point():
            log.trying(lambda y=y: y.mul_(2))
    refusable(result, inputs, log)


def output_detached(result, inputs, log):
    """The first output is detached in place: an error in the backward of those that saved it."""
    y = differentiable(result)[0]
    log.trying(y.detach_)
    refusable(result, inputs, log)


def input_written(result, inputs, log):
    with torch.no_grad():
        for x in inputs:
            x.mul_(2)
    refusable(result, inputs, log)


def second(result, inputs, log):
    roots = differentiable(result)
    given = [torch.randn_like(y) for y in roots]
    first = torch.autograd.grad(roots, inputs, given, create_graph=True, allow_unused=True)
    log(*first)
    again = [g for g in first if g is not None and g.requires_grad]
    if again:
        wanted = torch.autograd.grad(again, inputs, again, allow_unused=True)
        # Where nothing reaches an input, None and zeros are one.
        log(*[torch.zeros_like(x) if g is None else g for x, g in zip(inputs, wanted)])


def anomalies(result, inputs, log):
    with torch.autograd.detect_anomaly(check_nan=False):
        backward(result, inputs, log)


USES = [
    plain, retained, twice, one_by_one, last_first, first_only, last_only, one_input, accumulated,
    hooked, grad_retained, through_more, output_written, output_detached, input_written, second,
    anomalies,
]  # fmt: skip


def inputs():
    return [r(4, 4), r(4, 4)]


# With backend eager the graph is autograd's own: there is only capture to be seen.
CAPTURE = (plain, second, output_written)
KERNELS = 3  # see uses_of


def uses_of(backend, place):
    """aot_eager meets every pair. Of the default backend, whose part is kernels, each function
    meets the plain use and a third of the others, and each use a third of the functions.
    """
    if backend == "eager":
        return CAPTURE
    if backend == "aot_eager":
        return USES
    return [use for at, use in enumerate(USES) if use is plain or (at + place) % KERNELS == 0]


def cases():
    for backend in BACKENDS:
        name = backend if isinstance(backend, str) else backend.values[0]
        marks = () if isinstance(backend, str) else backend.marks
        for place, fn in enumerate(FUNCTIONS):
            for use in uses_of(name, place):
                label = f"{name}-{fn.__name__}-{use.__name__}"
                yield pytest.param(fn, use, name, marks=marks, id=label)


@pytest.mark.parametrize("fn, use, backend", list(cases()))
@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Casting complex")
def test_use(fn, use, backend):
    calls = 2 if use is plain else 1
    if fn is dropped and use is second and backend != "eager":
        with pytest.raises(AssertionError, match="a second derivative of a compiled function"):
            check(fn, inputs, use, backend, calls=calls)
        return
    check(fn, inputs, use, backend, calls=calls)


@pytest.mark.parametrize("backend", BACKENDS)
def test_expanded_gradients(backend):
    """The gradient of a sum has one element in memory for all that were added."""

    def sums(x, y, z):
        return x.sum() + y.mean(1).sum() * 2, z.transpose(0, 1).sum(1)

    found = []
    for call in (sums, dynamo.compile(sums, backend=backend)):
        inputs = [torch.ones(size, requires_grad=True) for size in ((3, 4), (3, 4), (3, 4, 5))]
        results = call(*inputs)
        tangents = [torch.full_like(result, 2) for result in results]
        found.append(torch.autograd.grad(results, inputs, tangents))
    for expected, actual in zip(*found, strict=True):
        assert actual.stride() == expected.stride() and torch.equal(actual, expected)
