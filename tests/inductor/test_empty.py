"""Tensors without elements, as inputs, temporaries and results: values and gradients of eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo
from tests.dynamo.test_dynamic_data import notes_of


def pooled(x):
    x = x.detach()  # eager refuses the backward
    return [
        F.adaptive_avg_pool2d(x, 0),
        F.adaptive_avg_pool2d(x, (0, 2)),
        F.adaptive_avg_pool2d(x, (3, 0)),
        F.adaptive_max_pool2d(x, (0, 2)),
        F.adaptive_avg_pool1d(x[0], 0),
    ]


def pooled_without_batch(x):
    x = x[:0]
    return [
        F.adaptive_avg_pool2d(x, 2),
        F.adaptive_avg_pool2d(x, 1),
        F.avg_pool2d(x, 2),
        F.max_pool2d(x, 2),
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, size=(3, 5), mode="bilinear"),
        F.pad(x, (1, 1, 1, 1), mode="reflect"),
    ]


def layers(x):
    x = x[:0]
    return [
        F.layer_norm(x, (6,)),
        F.group_norm(x, 2),
        F.softmax(x, 1),
        F.log_softmax(x, 0),
        F.gelu(x),
        F.normalize(x),
        F.conv2d(x, torch.ones(2, 4, 3, 3)),
        F.linear(x, torch.ones(3, 6)),
        F.scaled_dot_product_attention(x, x, x),
        F.embedding(x.long(), torch.ones(3, 2)),
    ]


def reductions(x):
    rows, columns = x[:, :0], x[..., :0]
    return [
        *(y.sum() for y in (rows, columns)),
        *(y.prod(-1) for y in (rows, columns)),
        *(y.mean((0, 1)) for y in (rows, columns)),
        *(y.cumsum(1) for y in (rows, columns)),
        columns.var(-1),
        columns.logsumexp(-1),
        rows.amax(-1),
        rows.argmin(0),
        rows.max(-1)[0],
        torch.linalg.vector_norm(columns, dim=-1),
        columns.any(-1),
        columns.all(-1),
    ]


def shaped(x):
    y = x[:0]
    return [
        torch.cat([y, x]),
        torch.cat([y, y]),
        torch.stack([y, y], 1),
        y.flatten(1).repeat(1, 2),
        y.roll(1, 2),
        y.flip(0),
        y.transpose(0, 3).contiguous(),
        x[:, torch.empty(0, dtype=torch.int64)],
        x.index_select(2, torch.empty(0, dtype=torch.int64)),
        y.gather(1, torch.zeros(0, 2, 6, 6, dtype=torch.int64)),
        x.index_add(0, torch.empty(0, dtype=torch.int64), y),
        x.scatter(0, torch.zeros(0, 4, 6, 6, dtype=torch.int64), y),
        torch.where(y > 0, y, 1.0),
        *x.split([0, 2]),
        x.unfold(3, 2, 2)[:0],
        y.new_zeros(0, 3),
        torch.arange(0) * 2,
        torch.tril(y),
        F.one_hot(torch.zeros(0, dtype=torch.int64), 3),
        y.sort(-1)[0],
        y.to(torch.float16),
        y.long() // y.long().sum(),  # zero divides nothing
    ]


def products(x):
    a, b = x[0, 0, :, :0], x[0, 0, :0]  # (6, 0), (0, 6)
    return [
        a @ b,
        (b @ a) @ b,
        (a @ b) @ (a @ b),
        torch.baddbmm(x[0], x[0], x[1]) @ a,
        (b @ a).sum(),
    ]


def losses(x):
    y = x[:0]
    return [
        F.mse_loss(y, y, reduction="sum"),
        F.l1_loss(y, y + 1, reduction="none"),
        F.mse_loss(y, y + 1),
        F.huber_loss(y, y + 1),
        F.smooth_l1_loss(y, y + 1),
        F.binary_cross_entropy_with_logits(y, y.detach()),
        F.kl_div(y, y.detach(), reduction="batchmean"),
        F.cross_entropy(y[:, :, 0, 0], torch.zeros(0, dtype=torch.int64), reduction="sum"),
    ]


PROGRAMS = [
    pooled,
    pooled_without_batch,
    layers,
    reductions,
    shaped,
    products,
    losses,
]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_elements(program, grad):
    def run(fn):
        x = torch.linspace(-1, 1, 2 * 4 * 6 * 6).view(2, 4, 6, 6).requires_grad_(grad)
        results = list(fn(x))
        watched = [y for y in results if y.requires_grad]
        if watched:
            results += torch.autograd.grad(sum((y**2).sum() for y in watched), x)
        return results

    for number, (got, wanted) in enumerate(zip(run(dynamo.compile(program)), run(program))):
        where = f"result {number}"
        assert got.shape == wanted.shape and got.requires_grad == wanted.requires_grad, where
        torch.testing.assert_close(got, wanted, equal_nan=True, msg=lambda m: f"{where}: {m}")


def test_losses_of_nothing_train():
    """Torch's rules for their backwards divide by the number of elements."""

    def loss(x):
        y = x.detach()
        return F.mse_loss(x, y) + F.huber_loss(x, y) + F.smooth_l1_loss(x, y)

    x = torch.zeros(0, 3, requires_grad=True)
    compiled = dynamo.compile(loss, backend="aot_eager")
    result = compiled(x)
    result.backward()
    assert result.isnan() and x.grad.shape == (0, 3)
    assert not notes_of(compiled)


def test_a_batch_of_nothing_through_a_model():
    """All of the plan's temporaries are empty, so that there is no arena."""
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4))).eval()
    with torch.no_grad():
        assert dynamo.compile(model)(torch.ones(0, 8)).shape == (0, 8)


def test_sizes_that_are_zero_in_some_calls():
    def fn(x, w):
        found = x.nonzero().float()
        return (found @ w) @ w.t() @ w

    w = torch.ones(1, 3)
    with dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = dynamo.compile(fn)
        for x in (torch.ones(4), torch.zeros(4), torch.ones(2)):
            torch.testing.assert_close(compiled(x, w), fn(x, w))


@pytest.mark.parametrize("groups", [1, 16])
@pytest.mark.parametrize("window", [1, 3])
def test_layouts_of_no_images(window, groups):
    """Torch's rules take no images for contiguous, kernels only some of them."""
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(16, 16, window, groups=groups).eval()

    def fn(x):
        y = convolution(x)
        gated = y * y.mean((2, 3), keepdim=True)
        results = y, y + 1, y + y, y.exp(), F.relu6(y), gated, torch.where(y > 0, y, 1.0), x * 2
        return *results, [one.stride() for one in results]

    x = torch.empty(0, 16, 9, 8).contiguous(memory_format=torch.channels_last)
    for given in (x, torch.empty(2, 16, 9, 8, memory_format=torch.channels_last)[:0]):
        with torch.no_grad():
            *got, read = dynamo.compile(fn, dynamic=False)(given)
            *wanted, strides = fn(given)
        assert [y.stride() for y in got] == [y.stride() for y in wanted] == strides == read


@pytest.mark.parametrize("given", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("wanted", [torch.contiguous_format, torch.channels_last])
def test_formats_of_copies(given, wanted):
    def copies(x):
        return [
            x.clone(memory_format=wanted),
            x.to(torch.float64, memory_format=wanted),
            torch.add(x, x.cos(), alpha=2),
        ]

    x = torch.zeros(0, 3, 4, 5).to(memory_format=given)
    got, expected = dynamo.compile(copies)(x), copies(x)
    assert [(t.dtype, t.stride()) for t in got] == [(t.dtype, t.stride()) for t in expected]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_strides_of_taken_apart_functions(backend):
    """Of functions whose rules lay an empty result out otherwise."""

    def functions(x):
        return [
            F.relu6(x),
            F.hardtanh(x),
            F.hardshrink(x),
            F.threshold(x, 1, 2.0),
            x.lerp(x, 0.5),
            x.nan_to_num(),
            x.masked_fill(x > 0, 1),
            x.tril(),
        ]

    images = torch.empty(0, 3, 2, 2).to(memory_format=torch.channels_last)
    for x in (images, torch.empty(2, 0, 3).transpose(0, -1)):
        dynamo.reset()
        got = dynamo.compile(functions, backend=backend)(x)
        assert [y.stride() for y in got] == [y.stride() for y in functions(x)]
