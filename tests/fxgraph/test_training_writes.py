"""Writes to inputs, grad modes, requires_grad, parameters that change: eager and compiled agree."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo
from tests.fxgraph.training_support import BACKENDS, assert_same, backward, check, facts, r


def leaf_and_constant():
    return [r(3, 4), r(3, 4, grad=False)]


def two_leaves():
    return [r(3, 4), r(3, 4)]


def intermediate():
    return [r(3, 4) * 2, r(3, 4)]


def constants_first():
    return [r(3, 4, grad=False), r(3, 4)]


def shared_memory():
    x = r(3, 4, grad=False)
    return [x, x[1:], r(3, 4)]


def same_tensor():
    x = r(3, 4)
    return [x, x]


def write_constant(c, w):
    y = c * w
    c.add_(1)
    return y


def write_constant_first(c, w):
    c.mul_(2)
    return c * w


def write_constant_view(c, w):
    c[0].fill_(3)
    return (c * w).sum()


def write_twice(c, w):
    c.add_(1)
    y = c * w
    c.t().mul_(2)
    return y, c


def write_with_gradient(c, w):
    c.add_(w)
    return c * 2


def write_leaf(x, w):
    x.add_(1)
    return x * w


def write_leaf_no_grad(x, w):
    with torch.no_grad():
        x.add_(1)
    return x * w


def write_leaf_after_use(x, w):
    y = x * w
    with torch.no_grad():
        x.mul_(2)
    return y


def write_intermediate(x, w):
    x.mul_(w)
    return x + 1


def write_view_of_intermediate(x, w):
    x[0].add_(w[1])
    return x * w


def write_detached(x, w):
    x.detach().mul_(2)
    return x * w


def copy_into(c, w):
    c.copy_(w.detach())
    return c * w


def copy_with_gradient(c, w):
    c.copy_(w)
    return c * 3


def write_shared(c, part, w):
    y = c * w
    part.add_(1)
    return y


def read_shared(c, part, w):
    c.add_(1)
    return part * w[1:]


def write_out(c, w):
    torch.mul(w.detach(), 2, out=c)
    return c * w


def set_flag_inside(x, w):
    y = x.detach() * 2
    y.requires_grad_()
    return y * w


def flag_read(x, w):
    return x * w if x.requires_grad else x + w


def grad_mode_read(x, w):
    return x * w if torch.is_grad_enabled() else x + w


def mode_set(x, w):
    torch.set_grad_enabled(False)
    y = x * w
    torch.set_grad_enabled(True)
    return y, x * w


def no_grad_writes(x, w):
    y = x * w
    with torch.no_grad():
        y.mul_(2)
    return y + x


def overwrite_saved(x, w):
    y = x.exp()
    y.mul_(w)
    return y


def resize_own(x, w):
    y = x * w
    y.unsqueeze_(0)
    return y


def transposes(x, w):
    y = x * w
    y.t_()
    y.unsqueeze_(1)
    return y, w * 2


def integers_written(c, w):
    i = torch.arange(3)
    i.add_(1)
    return w[i - 1] * 2, i


def bfloat(x, w):
    return x.to(torch.bfloat16) * w.to(torch.bfloat16)


def casts(x, w):
    return x.float() * 2, (w * 2).long(), w.double()


def chunks_written(x, w):
    a, b = (x * w).chunk(2, dim=1)
    return a.clone().mul_(2) + b


def masked(x, w):
    y = x.clone()
    y[x > 0] = 0.0
    return y * w


def indexed_writes(x, w):
    y = x * 1
    y[:, 1] = w[:, 0]
    y[0, :2] += w[1, 2:]
    return y


def filled(x, w):
    y = torch.zeros(3, 4, dtype=x.dtype)
    y[1:] = x[1:] * w[1:]
    return y, torch.zeros_like(w).copy_(x)


ROWS = {
    "write_constant": (write_constant, constants_first),
    "write_constant_first": (write_constant_first, constants_first),
    "write_constant_view": (write_constant_view, constants_first),
    "write_twice": (write_twice, constants_first),
    "write_with_gradient": (write_with_gradient, constants_first),
    "write_leaf": (write_leaf, two_leaves),
    "write_leaf_no_grad": (write_leaf_no_grad, two_leaves),
    "write_leaf_after_use": (write_leaf_after_use, two_leaves),
    "write_leaf_constant": (write_leaf_after_use, leaf_and_constant),
    "write_intermediate": (write_intermediate, intermediate),
    "write_view_of_intermediate": (write_view_of_intermediate, intermediate),
    "write_detached": (write_detached, two_leaves),
    "copy_into": (copy_into, constants_first),
    "copy_with_gradient": (copy_with_gradient, constants_first),
    "write_shared": (write_shared, shared_memory),
    "read_shared": (read_shared, shared_memory),
    "write_out": (write_out, constants_first),
    "same_tensor": (lambda x, y: x * y + x, same_tensor),
    "set_flag_inside": (set_flag_inside, two_leaves),
    "flag_read": (flag_read, two_leaves),
    "flag_read_constant": (flag_read, constants_first),
    "grad_mode_read": (grad_mode_read, two_leaves),
    "mode_set": (mode_set, two_leaves),
    "no_grad_writes": (no_grad_writes, two_leaves),
    "overwrite_saved": (overwrite_saved, two_leaves),
    "resize_own": (resize_own, two_leaves),
    "transposes": (transposes, two_leaves),
    "integers_written": (integers_written, constants_first),
    "bfloat": (bfloat, two_leaves),
    "casts": (casts, two_leaves),
    "chunks_written": (chunks_written, two_leaves),
    "masked": (masked, two_leaves),
    "indexed_writes": (indexed_writes, two_leaves),
    "filled": (filled, two_leaves),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_write(name, backend):
    fn, make = ROWS[name]
    check(fn, make, backward, backend, loose=fn is bfloat)


# -- the same compiled function, called in changing circumstances ---------------------------------
def flags_flip(call, model):
    """requires_grad of parameters and inputs is read at each call."""
    x = r(2, 3)
    for wanted in (True, False, True):
        model.weight.requires_grad_(wanted)
        yield call(x), [x, *model.parameters()]
        yield call(x.detach()), [x, *model.parameters()]


def frozen(call, model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    x = r(2, 3)
    yield call(x), [x]
    yield call(x.detach()), [x]


def modes_flip(call, model):
    x = r(2, 3)
    for mode in (True, False, True):
        with torch.set_grad_enabled(mode):
            yield call(x), [x, *model.parameters()]
    with torch.inference_mode():
        y = call(x)
    yield y, [x]


def replaced(call, model):
    x = r(2, 3)
    yield call(x), [x, *model.parameters()]
    old = model.weight
    model.weight = torch.nn.Parameter(torch.ones(4, 3, dtype=torch.float64))
    yield call(x), [x, old, *model.parameters()]
    model.weight = old
    yield call(x), [x, old, *model.parameters()]


def data_replaced(call, model):
    x = r(2, 3)
    yield call(x), [x, *model.parameters()]
    model.weight.data = torch.ones(4, 3, dtype=torch.float64)
    yield call(x), [x, *model.parameters()]
    model.weight.data = torch.ones(3, 4, dtype=torch.float64).t()
    yield call(x), [x, *model.parameters()]


def resized(call, model):
    x = r(2, 3)
    yield call(x), [x, *model.parameters()]
    for parameter in model.parameters():
        parameter.grad = None
    model.weight.data = torch.ones(5, 3, dtype=torch.float64)
    model.bias.data = torch.ones(5, dtype=torch.float64)
    yield call(x), [x, *model.parameters()]


def cast(call, model):
    yield call(r(2, 3)), [*model.parameters()]
    model.float()
    x = r(2, 3, dtype=torch.float32)
    yield call(x), [x, *model.parameters()]


def updated(call, model):
    x = r(2, 3)
    for _ in range(3):
        yield call(x), [x, *model.parameters()]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None


def tied(call, model):
    x = r(2, 3)
    yield call(x), [x, *model.parameters()]
    model.bias = torch.nn.Parameter(model.weight.detach()[:, 0])
    yield call(x), [x, *model.parameters()]


CHANGES = [
    flags_flip, frozen, modes_flip, replaced, data_replaced, resized, cast, updated, tied,
]  # fmt: skip


class Layer(torch.nn.Linear):
    def forward(self, x):
        return F.softplus(super().forward(x)) * self.weight.sum()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters_that_change(change, backend):
    def seen(compile):
        torch.manual_seed(0)
        model = Layer(3, 4).double()
        found = []
        for result, watched in change(compile(model), model):
            if result.requires_grad:
                result.square().sum().backward()
            found += [facts(result, given=False), *[facts(t) for t in watched]]
            result = None  # with it goes what autograd knows of the parameters' sizes
        return found

    expected = seen(lambda model: model)
    assert_same(expected, seen(lambda model: dynamo.compile(model, backend=backend)))


def data_written(c, w):
    c.data.mul_(2)
    return c * w


def written_thrice(c, w):
    c.mul_(2).add_(1)
    c.data.add_(1)
    c[0].add_(2)
    return c * w


def written_as_it_was(c, w):
    c.copy_(c)
    c[:2] = c[:2]
    c[0:0] = 1
    c[:].mul_(1)
    return c * w


def shape_as_it_was(c, w):
    c.squeeze_().as_strided_((3, 4), (4, 1))
    return c * w


def leaf_written(c, w):
    with torch.no_grad():
        w.mul_(2).sub_(1)
        w.data.add_(1)
    return c * w


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "function",
    [data_written, written_thrice, written_as_it_was, shape_as_it_was, leaf_written],
)
@pytest.mark.parametrize("grad", [True, False])
def test_version_counters(function, backend, grad):
    """They move as often as eager moves them: what is written through .data, not at all."""
    dynamo.reset()
    found = []
    for call in (function, dynamo.compile(function, backend=backend)):
        inputs = [torch.ones(3, 4), torch.ones(3, 4).requires_grad_(grad)]
        for _ in range(2):
            y = call(*inputs)
        found.append(([x._version for x in inputs], [x.tolist() for x in inputs], y.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_without_gradients_may_be_written_with_gradients(backend):
    """A graph of inputs that require grad, none of whose results does."""

    def function(x):
        zeros = torch.zeros(2, 3)
        return zeros, x > 0, torch.ones(3), x.detach() * 2, torch.full((2, 2), 3.0)[0]

    compiled = dynamo.compile(function, backend=backend)
    x = r(3)
    for of_eager, result in zip(function(x), compiled(x)):
        if result.is_floating_point():
            of_eager.add_(x[0])
            result.add_(x[0])
            (wanted,) = torch.autograd.grad(of_eager.sum(), x)
            assert torch.equal(torch.autograd.grad(result.sum(), x)[0], wanted)
        assert torch.equal(result, of_eager)


def linear(x, w):
    return F.linear(x, w)


def convolution(x, w):
    return F.conv1d(x[None], w[:, :, None])


def product(x, w):
    return x * w[0]


def itself(x, w):
    return x.mm(w)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("f", [linear, convolution, product, itself])
def test_data_replaced_between_forward_and_backward(f, frozen, backend):
    def gradients(call):
        torch.manual_seed(0)
        x, w = r(3, 3), torch.nn.Parameter(r(3, 3, grad=False), requires_grad=not frozen)
        y = call(x, w)
        w.data = torch.full((3, 3), 100.0, dtype=w.dtype)
        y.sum().backward()
        return x.grad, w.grad

    torch.testing.assert_close(gradients(dynamo.compile(f, backend=backend)), gradients(f))


def chained(x, w):
    return (x * w).sin() * w


def kept_product(x, w):
    return ((x.exp() + w).tanh() * w).square()


OTHER_DATA = {
    "values": torch.full((3, 3), 2.0, dtype=torch.float64),
    "transposed": torch.arange(9, dtype=torch.float64).reshape(3, 3).t(),
    "sliced": torch.arange(18, dtype=torch.float64).reshape(3, 6)[:, ::2],
    "expanded": torch.arange(3, dtype=torch.float64).expand(3, 3),
    "other_type": torch.arange(9, dtype=torch.float32).reshape(3, 3),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("data", OTHER_DATA)
@pytest.mark.parametrize("f", [chained, kept_product, product])
def test_operators_read_new_data_and_what_is_computed_again_the_old(f, data, backend):
    def gradients(call):
        torch.manual_seed(0)
        found = []
        for replaced in (False, True, False):
            x, w = r(3, 3), r(3, 3)
            y = call(x, w)
            if replaced:
                w.data = OTHER_DATA[data]
            y.sum().backward()
            found += [x.grad, w.grad]
        return found

    torch.testing.assert_close(gradients(dynamo.compile(f, backend=backend)), gradients(f))


def elementwise(x, w):
    return x * w


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [(3,), (), (2, 5)])
def test_data_of_another_size(size, backend):
    def gradient(call):
        x, w = torch.ones(3, 3, requires_grad=True), torch.ones(3, 3, requires_grad=True)
        y = call(x, w * 1)
        y.sum().backward()
        y = call(x, w)
        w.data = torch.full(size, 2.0)
        try:
            y.sum().backward(inputs=[x])
        except RuntimeError:
            return None
        return x.grad

    torch.testing.assert_close(
        gradient(dynamo.compile(elementwise, backend=backend)), gradient(elementwise)
    )


def data_scaled_behind(x, w):
    y = x * w
    w.data.mul_(0.5)
    return y


def scaled(x, w):
    with torch.no_grad():
        w.mul_(0.5)
    return F.linear(x, w).tanh()


def replaced_by_a_result(x, w):
    new = (x * 2).exp()
    w.data.copy_(new)
    return new * x.sin()


def scaled_and_returned(x, w):
    with torch.no_grad():
        w.add_(1).mul_(2)
    return x * w, w.clone(), w


def scaled_in_inference_mode(x, w):
    y = x.mm(w)
    w.data.mul_(0.9)
    with torch.inference_mode():
        w.data.mul_(0.9)
    return y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "f",
    [
        data_scaled_behind,
        scaled,
        replaced_by_a_result,
        scaled_and_returned,
        scaled_in_inference_mode,
    ],
)
def test_inputs_written_in_the_graph_and_behind(f, transposed, backend):
    def seen(call, write):
        torch.manual_seed(0)
        x, w = r(3, 3), r(3, 3, grad=False)
        w = torch.nn.Parameter(w.t() if transposed else w)
        found, errors = [], []
        for _ in range(2):
            results = call(x, w)
            write(w)
            y = results if isinstance(results, torch.Tensor) else results[0]
            try:
                y.sum().backward()
            except RuntimeError as error:
                errors.append(str(error).partition(":")[0])
            found += [y, x.grad, w.grad, w.detach().clone()]
        return found, errors

    def by_data(w):
        w.data.mul_(3)

    def in_place(w):
        with torch.no_grad():
            w.mul_(3)

    compiled = dynamo.compile(f, backend=backend)
    for write in (by_data, in_place, lambda w: None):
        (found, errors), (wanted, refused) = seen(compiled, write), seen(f, write)
        torch.testing.assert_close(found, wanted)
        assert errors == refused


SECOND_KEEPS_LESS = {
    "result": lambda x, w: (x * w, x.relu()),
    "result of a result": lambda x, w: (x * w, (x * 2).relu()),
    "flags": lambda x, w: (x * w, x * (x > 1)),
    "places": lambda x, w: (x * w, x[x > 1]),
    "nothing": lambda x, w: (x * w, x + x.detach().sin()),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("name", SECOND_KEEPS_LESS)
def test_inputs_are_needed_by_the_results_for_which_eager_saves_them(name, kept, backend):
    """An input is written after the call: an error where the result's backward reads it."""
    function = SECOND_KEEPS_LESS[name]
    seen = []
    for run in (function, dynamo.compile(function, backend=backend)):
        leaf, w = torch.tensor([1.0, 0.5, 2.0, 3.0], requires_grad=True), torch.ones(4)
        x = leaf * 1
        results = run(x, w.requires_grad_())
        with torch.no_grad():
            x[:2] += 1
        try:
            results[kept].sum().backward()
            seen.append([leaf.grad.tolist(), w.grad is None])
        except RuntimeError as error:
            seen.append(str(error)[:70])
    assert seen[0] == seen[1]
    assert isinstance(seen[0], str) is (kept == 0)
