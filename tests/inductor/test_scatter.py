"""Scatters, gradients that gather, and the loss of classes: kernels of ours against eager."""

from __future__ import annotations

import ctypes
import math

import pytest
import torch
import torch.nn.functional as F

import dynamo
from dynamo.api.compile import compile_fresh
from inductor.ir import Loops
from inductor.runtime import toolchain
from tests.inductor.compiling import check, staged
from tests.inductor.symbolic import Symbolic, resized

aten = torch.ops.aten
f32, f64, f16, bf16, i64 = torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64


def make(*size, dtype=f32, seed=0):
    x = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=f64)
    return x.to(dtype) if dtype.is_floating_point else (x * 5).to(dtype)


def positions(high, *size, seed=0):
    return torch.randint(0, high, size, generator=torch.Generator().manual_seed(seed))


ROWS = positions(9, 4, 6)  # with repetitions
SIGNED = torch.where(ROWS % 2 == 0, ROWS - 9, ROWS)
COLUMNS = positions(7, 4, 6, seed=1)
ALONG = positions(7, 9, 5, seed=2)
ONCE = torch.randperm(9, generator=torch.Generator().manual_seed(3))[:5]


def put(x, at, v, add=True):
    return aten.index_put(x, at, v, add)


# Of x (9, 7), values for rows v (4, 6, 7), values along a dimension w (9, 5), flat values (4, 6).
SCATTERS = {
    "rows": lambda x, v, w, f: put(x, [ROWS], v),
    "signed rows": lambda x, v, w, f: put(x, [SIGNED], v * 2),
    "columns": lambda x, v, w, f: put(x, [None, COLUMNS], f),
    "both": lambda x, v, w, f: put(x, [ROWS, COLUMNS], f),
    "broadcast": lambda x, v, w, f: put(x, [ROWS[:, :1], COLUMNS[0]], f),
    "apart": lambda x, v, w, f: put(
        x[:, None].expand(-1, 3, -1), [ROWS, None, COLUMNS], f[..., None]
    ),
    "last wins": lambda x, v, w, f: put(x, [ROWS], v, False),
    "once": lambda x, v, w, f: put(x, [ONCE], x[:5].abs(), False),
    "transposed": lambda x, v, w, f: put(x.t(), [COLUMNS], v.sum(2)[..., None]),
    "index_add": lambda x, v, w, f: x.index_add(0, ROWS[0], v[0], alpha=2),
    "index_add columns": lambda x, v, w, f: x.index_add(1, ONCE[:3] % 7, x[:, 2:5]),
    "index_copy": lambda x, v, w, f: x.index_copy(0, ONCE, x[2:7] * 2),
    "index_fill": lambda x, v, w, f: x.index_fill(1, COLUMNS[0] - 7, 3),
    "scatter_add": lambda x, v, w, f: x.scatter_add(1, ALONG, w),
    "scatter_add part": lambda x, v, w, f: x.scatter_add(1, ALONG[:4, :3], w * 2),
    "scatter_add rows": lambda x, v, w, f: x.scatter_add(0, ROWS[:, :5], w),
    "scatter_add expanded": lambda x, v, w, f: x.scatter_add(
        0, ROWS[0][:5, None].expand(-1, 5), w.t()[:, :5]
    ),
    "scatter_add flat": lambda x, v, w, f: x[:, 0].scatter_add(0, ROWS.flatten(), f.flatten()),
    "scatter": lambda x, v, w, f: x.scatter(1, ALONG[:, :2], w),
    "scatter value": lambda x, v, w, f: x.scatter(0, ROWS[:2, :4], 2.0),
    "one of a row": lambda x, v, w, f: x.scatter(1, ALONG[:, :1], w[:, :1]),
    "itself": lambda x, v, w, f: (x * 2).index_add(0, ONCE, (x * 2)[4:]) - x * 2,
    "amax": lambda x, v, w, f: x.scatter_reduce(1, ALONG, w, "amax"),
    "amin": lambda x, v, w, f: x.scatter_reduce(1, ALONG, w, "amin", include_self=False),
    "prod": lambda x, v, w, f: x.scatter_reduce(1, ALONG, w, "prod"),
    "sum": lambda x, v, w, f: x.scatter_reduce(1, ALONG, w, "sum", include_self=False),
}


@pytest.mark.parametrize("dtype", [f32, f64, bf16, i64])
def test_scatters(dtype) -> None:
    def every(x, v, w, f):
        return tuple(fn(x, v, w, f) for fn in SCATTERS.values())

    args = [
        make(*s, dtype=dtype, seed=k) for k, s in enumerate([(9, 7), (4, 6, 7), (9, 5), (4, 6)])
    ]
    rtol = 6e-2 if dtype == bf16 else None  # eager rounds after each addition
    check(every, *args, names=list(SCATTERS), rtol=rtol, atol=rtol)


def test_nan_and_infinity() -> None:
    nan, inf = float("nan"), float("inf")
    v = torch.tensor([[nan, 1.0, inf], [-inf, inf, 2.0], [1.0, nan, -inf]])
    at = torch.tensor([[0, 0, 1], [1, 1, 1], [2, 2, 0]])
    for how in ("sum", "amax", "amin", "prod"):
        check(lambda x, v: (x.scatter_reduce(1, at, v, how),), torch.zeros(3, 3), v)  # noqa: B023


def test_order_is_that_of_eager_wherever_the_range_is_cut() -> None:
    """Sums are taken in the order of the rows, to the last bit, in every division among threads."""
    grad, at = make(400, 70, seed=1), positions(5, 400)
    fns = [
        lambda g, i: (aten.embedding_dense_backward(g, i, 5, -1, False),),
        lambda g, i: (g.new_zeros(70, 5).scatter_add(1, i[:70, None].expand(70, 70), g[:70]),),
    ]
    for fn in fns:
        c = staged(fn, [grad, at])
        (expected,) = fn(grad, at)
        assert torch.equal(c.compiled(grad, at)[0], expected)
        run = ctypes.CDLL(str(toolchain.compile_library(c.spec.units or c.spec.source)))
        step = [s for s in c.spec.steps if s.kind == "kernel"][-1]
        for pieces in (1, 3, step.total):
            out = torch.zeros_like(expected)
            known = {"arg0": grad, "arg1": at}
            pointers = (ctypes.c_void_p * len(step.args))(
                *(known.get(name, out).data_ptr() for name, _ in step.args)
            )
            cuts = [step.total * k // pieces for k in range(pieces + 1)]
            for begin, end in zip(cuts, cuts[1:]):
                run[step.symbol](pointers, ctypes.c_int64(begin), ctypes.c_int64(end))
            assert torch.equal(out, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("looks", [(4, 30), (300,), (1,), (0,)], ids=str)
@pytest.mark.parametrize("padding", [-1, 3])
def test_few_rows_of_a_large_table_of_half_type(dtype, looks, padding) -> None:
    """The sums are of float32 and rounded once, and no table of float32 is made."""
    generator = torch.Generator().manual_seed(0)
    grad = torch.randn(*looks, 33, generator=generator).to(dtype)
    at = torch.randint(0, 6, looks, generator=generator)
    at.view(-1)[-1:] = 699
    grad.view(-1, 33)[:1, 5] = float("inf")

    def fn(grad, at):
        return (aten.embedding_dense_backward(grad, at, 700, padding, False),)

    c = staged(fn, [grad, at])
    (expected,) = fn(grad.float(), at)
    (got,) = c.compiled(grad, at)
    assert got.dtype == dtype and torch.equal(got, expected.to(dtype))
    if looks != (0,):
        assert not any(b.dtype == "float32" and 700 in b.size for b in c.spec.buffers)


def test_producers_are_computed_where_they_are_added() -> None:
    def fn(x, v):
        return (x.index_add(0, ROWS[0], torch.sigmoid(v) * 2 + 1),)

    c = check(fn, make(9, 7), make(6, 7))
    scatters = [s for s in c.program.steps if isinstance(s, Loops) and s.mode]
    assert [set(s.reads) for s in scatters] == [{"arg1", "const0", scatters[0].target.name}]


# --- training ------------------------------------------------------------------------------------


def gradients(fn, *args):
    """Results and all gradients of `fn` compiled, against eager's; what was left to aten."""

    def joined(*leaves):  # of one result the backward is compiled at once, and so in the report
        return torch.cat([r.flatten() for r in fn(*leaves)])

    compiled, context = compile_fresh(joined)
    found = []
    for call in (joined, compiled):
        leaves = [a.detach().clone().requires_grad_(a.is_floating_point()) for a in args]
        result = call(*leaves)
        (result * torch.arange(len(result)).cos()).sum().backward()
        found.append([result, *(x.grad for x in leaves)])
    for e, g in zip(*found, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-5)
        assert e.stride() == g.stride()
    return {op for r in context.records for g in r.graphs for op in g.report["fallback_ops"]}


def test_gradients_of_lookups() -> None:
    def fn(w, x, v):
        return (
            F.embedding(ROWS, w),
            F.embedding(ROWS, w, padding_idx=3),
            w[SIGNED] * 2,
            x[ROWS, :, COLUMNS],
            x[:, :, COLUMNS],
            w.index_select(0, ROWS[0]),
            w.gather(1, ALONG),
            w.scatter_add(1, ALONG, v).sin(),
            w.index_add(0, ONCE, v.t()[:, :7]),
            w.take_along_dim(ALONG, 1),
        )

    assert not gradients(fn, make(9, 7), make(9, 3, 7), make(9, 5, seed=1))


POOLED = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max overlapping": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max dilated": lambda x: F.max_pool2d(x, 2, 1, 0, dilation=2),
    "max dilated apart": lambda x: F.max_pool2d(x, 2, 2, dilation=2),
    "max dilated 1d": lambda x: F.max_pool1d(x[0], 2, 2, dilation=2),
    "max 1d": lambda x: F.max_pool1d(x[0], 3, 2, 1),
    "max ceil": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "avg": lambda x: F.avg_pool2d(x, 2),
    "avg padded": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "avg inside": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "avg ceil": lambda x: F.avg_pool2d(x, 3, 3, 1, ceil_mode=True, count_include_pad=False),
    "avg divisor": lambda x: F.avg_pool2d(x, (2, 3), divisor_override=5),
    "avg 1d": lambda x: F.avg_pool1d(x[0], 2),
    "avg 3d": lambda x: F.avg_pool3d(x, 2),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
    "uneven": lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    "more": lambda x: F.adaptive_avg_pool2d(x, (11, 4)),
    "one": lambda x: F.adaptive_avg_pool2d(x, 1),
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradients_of_pooling(layout) -> None:
    def fn(x):
        return tuple(pool(x) for pool in POOLED.values())

    left = gradients(fn, make(2, 4, 8, 9).to(memory_format=layout))
    if layout is torch.contiguous_format:
        assert left == {"_adaptive_avg_pool2d_backward.default"}  # of windows of several sizes


@pytest.mark.parametrize("window", [(3, 2, 1), (3, 3, 1, 1, True), (5, 2, 2)])
def test_positions_of_maxima(window) -> None:
    """Of those that are equal the first; none in the padding, though all around is -inf."""
    x = make(2, 3, 9, 8).round()
    x[0, 0], x[1, 0, :5], x[1, 1, 2:] = -torch.inf, -torch.inf, torch.inf
    x[0, 1, :4], x[1, 2, :, 3] = torch.nan, torch.nan
    check(lambda x: F.max_pool2d(x, *window, return_indices=True), x)


def test_resizing_to_the_same_size() -> None:
    """Eager multiplies by weights of nothing, too."""
    x = torch.zeros(1, 1, 3, 3)
    x[0, 0, 1, 1] = torch.inf
    check(lambda x: (F.interpolate(x, size=(3, 3), mode="bilinear"),), x)


def test_resizing_around_infinities() -> None:
    """Those beside each other stay, as no difference of them is taken."""
    x = make(1, 2, 4, 6)
    x[0, 0, 1:3, 2:5], x[0, 1, 0, :2] = torch.inf, -torch.inf

    def fn(x):
        return (
            F.interpolate(x[0], scale_factor=1.7, mode="linear"),
            F.interpolate(x, scale_factor=1.7, mode="bilinear"),
            F.interpolate(x[None], size=(3, 5, 4), mode="trilinear", align_corners=True),
        )

    check(fn, x)


def test_gradients_of_resizing_and_padding() -> None:
    def fn(x):
        return (
            F.interpolate(x, scale_factor=2),
            F.interpolate(x[0], scale_factor=3),
            F.interpolate(x, scale_factor=1.6),
            F.interpolate(x, size=(3, 9)),
            F.interpolate(x[:, :, None], scale_factor=2),
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, size=(3, 9), mode="bilinear", align_corners=True),
            F.interpolate(x, scale_factor=1.7, mode="bilinear"),
            F.interpolate(x, size=(1, 4), mode="bilinear", align_corners=True),
            F.interpolate(x[0], scale_factor=2, mode="linear"),
            F.interpolate(x[:, :, None], size=(2, 7, 3), mode="trilinear"),
            F.pad(x[0], (2, 1), mode="reflect"),
            F.pad(x, (2, 1, 0, 3)),
            F.pad(x, (-1, 2), value=3.0),
        )

    assert not gradients(fn, make(2, 3, 5, 4))


def test_gradients_of_padding_that_aten_computes() -> None:
    def fn(x):
        return (
            F.pad(x, (2, 1, 3, 0), mode="reflect"),
            F.pad(x, (2, 1, 3, 1), mode="replicate"),
            F.pad(x[0], (1, 2), mode="replicate"),
        )

    gradients(fn, make(2, 3, 5, 4))


def test_gradients_of_biases() -> None:
    def fn(x, w, b, line):
        return (
            F.relu(F.conv2d(x, w, b)),
            F.conv_transpose2d(x, w.transpose(0, 1), b),
            F.conv1d(line, w[:, :, 0], b, groups=1),
        )

    left = gradients(fn, make(2, 3, 6, 6), make(4, 3, 3, 3), make(4), make(2, 3, 7))
    assert left == {"convolution.default", "convolution_backward.default"}
    alone = [None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, False, True]]
    check(
        lambda g, x, w: (aten.convolution_backward(g, x, w, *alone)[2],),
        make(2, 4, 3, 3),
        make(2, 3, 5, 5),
        make(4, 3, 3, 3),
    )


# --- sizes ---------------------------------------------------------------------------------------


def test_symbolic_sizes() -> None:
    def fn(x, v, at):
        return (
            x.index_put((at,), v, accumulate=True),
            x.index_add(0, at, v),
            aten.embedding_dense_backward(v, at, 11, 2, False),
            F.avg_pool2d(x[None], 1),
        )

    args = [make(9, 7), make(6, 7), positions(9, 6)]
    traced = Symbolic(fn, args, lambda argument, dim: argument != 2 or dim == 0)
    c = traced.compile()
    for change in (lambda n: n, lambda n: n + 2, lambda n: 3 * n):
        inputs = resized(args, change)
        inputs[2] = positions(9, *inputs[2].shape, seed=5)
        assert traced.allows(inputs)
        for g, e in zip(c.compiled(*traced.arguments(inputs)), fn(*inputs), strict=True):
            torch.testing.assert_close(g, e)


@pytest.mark.parametrize("size", [(0, 7), (9, 0)])
def test_nothing_to_add_to(size) -> None:
    at = torch.zeros(0, dtype=i64)
    check(
        lambda x, v: (x.index_put((at,), v, accumulate=True), x.index_add(0, at, v)),
        torch.zeros(size),
        torch.zeros(0, size[1]),
        fallbacks=["index_put.default", "index_add.default"],
    )


def test_nothing_to_add() -> None:
    at = torch.zeros(0, dtype=i64)
    check(
        lambda x, v: (
            x.index_put((at,), v, accumulate=True),
            x.scatter_add(0, at[:, None].expand(0, 7), v),
        ),
        make(9, 7),
        torch.zeros(0, 7),
    )


# --- positions out of range ----------------------------------------------------------------------

RAISES = {
    "index_put": lambda x, i: x.index_put((i,), x[:3], accumulate=True),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None].expand(-1, 7), x),
    "scatter": lambda x, i: x.scatter(1, i[None], 1.0),
    "index_add": lambda x, i: x.index_add(0, i, x[:3]),
    "index_copy": lambda x, i: x.index_copy(1, i, x[:, :3]),
    "index_fill": lambda x, i: x.index_fill(1, i, 2.0),
    "lookup": lambda x, i: x[i],
}


@pytest.mark.parametrize("name", RAISES)
def test_positions_out_of_range(name) -> None:
    """Negative ones too, where eager does not count them from the end."""
    fn = RAISES[name]
    compiled = dynamo.compile(fn)
    x = make(9, 7)
    for wrong in (0, -1, 9, -10, 2**63 - 1, -(2**63)):
        i = torch.tensor([0, wrong, 1])
        try:
            expected = fn(x, i)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)) as raised:
                compiled(x, i)
            assert str(raised.value) == str(error)
        else:
            torch.testing.assert_close(compiled(x, i), expected)


# --- losses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [f32, bf16])
def test_classes(dtype) -> None:
    t, w = torch.tensor([1, 4, -100, 2]), make(5, dtype=dtype).abs()
    many = torch.stack([t % 5] * 6).view(3, 2, 4).permute(2, 0, 1).contiguous()

    def fn(x, y, z):
        return (
            F.cross_entropy(x, t),
            F.cross_entropy(x, t, w, reduction="sum"),
            F.nll_loss(x, t, w, reduction="none"),
            F.cross_entropy(x, t, label_smoothing=0.1),
            F.cross_entropy(y, many, w, ignore_index=4),
            F.nll_loss(y, many, reduction="none"),
            F.cross_entropy(z, t[0], w),
            F.cross_entropy(x, torch.full((4,), -100)),
        )

    args = [make(*size, dtype=dtype) for size in ((4, 5), (4, 5, 3, 2), (5,))]
    rtol = 2e-2 if dtype == bf16 else None
    check(fn, *args, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", [f32, bf16])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_gradients_of_classes(dtype, reduction) -> None:
    """Nothing but an element's class gets a number, even where the gradient is no number."""
    t, w = torch.tensor([1, 4, -100, 2]), make(5, dtype=dtype).abs()
    many = torch.stack([t % 5] * 6).view(3, 2, 4).permute(2, 0, 1).contiguous()
    flat, images = aten.nll_loss_backward.default, aten.nll_loss2d_backward.default
    for grad in (make(4, dtype=dtype), torch.tensor([math.nan, 1, math.inf, -0.0]).to(dtype)):

        def fn(x, y, z, grad):
            total = (w * 2).sum()
            each = grad[:, None, None].expand(4, 3, 2) if reduction == 0 else grad[0]
            flat_grad = grad if reduction == 0 else grad[0]
            made = (
                flat(flat_grad, x, t, w, reduction, -100, total),
                flat(flat_grad, x, t % 5, None, reduction, 4, total),
                flat(grad[0], z, t[0], w, reduction, -100, total),
                images(each, y, many, w, reduction, 4, total),
            )
            return tuple(map(torch.neg, made))

        args = [make(*size, dtype=dtype) for size in ((4, 5), (4, 5, 3, 2), (5,))]
        check(fn, *args, grad, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [f32, bf16, torch.float16])
def test_gradients_of_classes_that_nothing_reads(dtype) -> None:
    """Rows of a 16-bit type are aten's to fill: it rounds one element of each."""
    op = aten.nll_loss_backward.default
    args = make(4, 5, dtype=dtype), torch.tensor([1, 4, -100, 2]), torch.tensor(3.0, dtype=dtype)

    def fn(x, t, total):
        return (op(total / 7, x, t, None, 1, -100, total),)

    def read(x, t, total):
        return (-fn(x, t, total)[0],)

    c = check(fn, *args, fallbacks=["nll_loss_backward.default"], rtol=0, atol=0)
    assert bool(c.program.fallbacks) == (dtype is not f32)
    assert not check(read, *args, rtol=0, atol=0).program.fallbacks


def test_class_out_of_range() -> None:
    c = staged(lambda x, t: (F.cross_entropy(x, t),), [make(2, 5), torch.ones(2).long()])
    for wrong in (5, -1):
        with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds."):
            c.compiled(make(2, 5), torch.tensor([1, wrong]))


def put_rows(at, values):
    return torch.zeros(6, 2).index_put((at,), values[:, None] * 2)


@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers_of_values_that_change(dynamic) -> None:
    """One value serves all positions; others than one, or as many, are refused, and not read."""
    compiled = dynamo.compile(put_rows, dynamic=dynamic)
    for count, given in ((3, 3), (4, 4), (3, 5), (5, 3), (3, 1), (1, 3), (0, 2), (4, 2), (5, 5)):
        at, values = torch.arange(count), torch.arange(1.0, given + 1)
        if given in (1, count):
            assert torch.equal(compiled(at, values), put_rows(at, values))
        else:
            with pytest.raises(RuntimeError, match="shape mismatch: value tensor of shape"):
                compiled(at, values)
