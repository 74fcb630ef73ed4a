"""Fusion: how many kernels programs take, and that what must not be fused is not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from inductor.schedule.align import common_cut
from tests.inductor.compiling import check, kernels


def t(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


ROWS = t(64, 96)
IMAGE = t(4, 8, 12, 12)
CHANNEL = t(8).abs() + 0.5


def chain(x, w, b):
    return (torch.softmax(F.gelu(F.layer_norm(x, (96,), w, b)), -1),)


CASES = {
    "pointwise": (lambda x: ((x * 2 + 1).exp().log1p(),), [ROWS], 1),
    "used twice": (lambda x: ((y := (x * 2).exp()) + y.sin(),), [ROWS], 1),
    "softmax": (lambda x: (torch.softmax(x, -1),), [ROWS], 1),
    "softmax of columns": (lambda x: (torch.softmax(x, 0),), [ROWS], 1),
    "log_softmax": (lambda x: (torch.log_softmax(x + 1, -1),), [ROWS], 1),
    "layer norm": (lambda x: (F.layer_norm(x, (96,)),), [ROWS], 1),
    "layer norm, gelu, softmax": (chain, [ROWS, t(96), t(96, seed=1)], 1),
    "residual, layer norm": (
        lambda x, y: ((z := x + y), F.layer_norm(z, (96,))), [ROWS, t(64, 96, seed=1)], 1),
    "moments": (lambda x: torch.var_mean(x, 1), [ROWS], 1),
    "sibling reductions": (lambda x: (x.sum(1), x.amax(1), x.mean(1)), [ROWS], 1),
    "reduction of a computation": (lambda x: (((x - 1) ** 2).sum(1),), [ROWS], 1),
    "reduction and its input": (lambda x: ((y := x.exp()), y.sum(1)), [ROWS], 1),
    "batch norm, relu": (
        lambda x, m, v: (F.relu(F.batch_norm(x, m, v)),), [IMAGE, CHANNEL, CHANNEL], 1),
    "cat, batch norm, relu": (
        lambda x, y, m, v: (F.relu(F.batch_norm(torch.cat([x, y], 1), m, v)),),
        [IMAGE[:, :3].contiguous(), IMAGE[:, 3:].contiguous(), CHANNEL, CHANNEL], 1),
    "batch norm of a batch": (lambda x: (F.batch_norm(x, None, None, training=True),), [IMAGE], 1),
    "group norm": (lambda x: (F.group_norm(x, 2),), [IMAGE], 1),
    "global pool": (lambda x: (F.relu(x).mean((2, 3)),), [IMAGE], 1),
    "reshape between": (lambda x: (((x + 1).view(8, 8, 96).exp().view(-1) * 2),), [ROWS], 1),
    "one row per token": (lambda x: (F.layer_norm((x + 1).view(8, 8, 96), (96,)),), [ROWS], 1),
    "rms norm": (lambda x, w: (F.rms_norm(x, (96,), w, 1e-6),), [ROWS, t(96)], 1),
    "sums of rows and a cast": (lambda x: (x.sum(1), x.bfloat16()), [ROWS], 1),
    "sums of columns and a cast": (lambda x: (x.sum(0), x.bfloat16()), [t(320, 480)], 2),
    "sums of columns and a product, of which one has a multiple of the other's rows": (
        lambda x, y, w, r: ((x * w).exp(), (x * y * r).sum(0)),
        [t(128, 32), t(128, 32, seed=1), t(32), t(128, 1)], 2),
    "independent": (lambda x, y: (x + 1, y * 2), [ROWS, t(7)], 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_number_of_kernels(name: str) -> None:
    fn, args, count = CASES[name]
    c = check(fn, *args, rtol=1e-5, atol=1e-5)
    assert kernels(c) == count, "\n".join(map(str, c.items))


def test_gradients_of_a_layer_norm_keep_no_rows() -> None:
    """Those of rows and those of weight and bias read the same values, made of what is given."""

    def fn(grad, x, w, mean, rstd):
        y, g = (x - mean) * rstd, grad * w
        of_rows = (g * 96 - g.sum(1, True) - y * (g * y).sum(1, True)) * (rstd / 96)
        return of_rows, (grad * y).sum(0), grad.sum(0)

    args = t(64, 96), t(64, 96, seed=1), t(96), t(64, 1), t(64, 1, seed=1)
    for dtype in (torch.float32, torch.bfloat16):
        close = 1e-4 if dtype == torch.float32 else 0.1
        c = check(fn, *(x.to(dtype) for x in args), rtol=close, atol=close)
        assert kernels(c) == 2
        assert not [b for b in c.spec.buffers if b.kind == "temp" and b.size == (64, 96)]


def test_an_operator_in_between_keeps_the_order() -> None:
    def fn(x, w):
        y = (x + 1).relu()
        z = y @ w
        return z.relu() + y, y

    c = check(fn, t(16, 16), t(16, 16, seed=1), fallbacks=["mm.default"], rtol=1e-4, atol=1e-4)
    assert kernels(c) == 2


def test_an_operator_reads_a_view_of_joined_parts_without_a_copy() -> None:
    def fn(x, y, w):
        joined = torch.cat([x.unsqueeze(0), y])
        return (joined.flatten(0, 1).t() @ w,)

    args = t(4, 16), t(31, 4, 16, seed=1), t(128, 8, seed=2)
    c = check(fn, *args, fallbacks=["mm.default"], rtol=1e-4, atol=1e-4)
    assert kernels(c) == 1


def test_a_kernel_waits_for_what_its_later_steps_read() -> None:
    """The product of rows joins the first kernel, which then runs behind the second one; so nothing
    that reads the first may join the second.
    """

    def fn(x, y):
        few, many = x.sum(1), y.sum(1)
        return few * many[:16], many * few[0]

    c = check(fn, t(16, 48), t(40, 48), rtol=1e-4, atol=1e-4)
    assert kernels(c) == 3, "\n".join(map(str, c.items))


def test_a_transposed_reader_is_not_fused_wrongly() -> None:
    def fn(x):
        y = x.exp()
        return y + y.t(), y.sum(1)

    check(fn, t(48, 48), rtol=1e-5)


def test_products_read_a_cast_and_its_transpose_from_one_buffer(monkeypatch) -> None:
    monkeypatch.setattr("inductor.widen._way", lambda kind, budget: None)

    def fn(x, y, z):
        w = x.bfloat16()
        return w.t() @ z, w @ y

    args = ROWS, t(96, 5).bfloat16(), t(64, 7).bfloat16()
    c = check(fn, *args, rtol=2e-2, atol=2e-2, fallbacks=["mm.default"])
    assert kernels(c) == 1, "\n".join(map(str, c.items))


def test_shifted_readers() -> None:
    def fn(x):
        y = (x * 2).exp()
        return y[1:] + y[:-1], y.sum(0)

    check(fn, t(40, 33), rtol=1e-5)


def test_reduction_over_different_dimensions() -> None:
    check(
        lambda x: (x - x.mean(0) + x.mean(1, keepdim=True) - x.sum(),),
        t(32, 48),
        rtol=1e-4,
        atol=1e-4,
    )


def test_reduction_of_a_reduction() -> None:
    check(lambda x: ((x.softmax(-1) * x).sum(-1).softmax(0), x.amax(1).sum()), t(32, 48), rtol=1e-5)


def test_long_rows_spill_to_memory() -> None:
    c = check(lambda x: (torch.softmax(x.sin() * 2, -1),), t(9, 40_000), rtol=1e-5, atol=1e-7)
    assert kernels(c) == 1


def test_dead_steps_are_dropped() -> None:
    c = check(lambda x: (torch.var_mean(x, 1)[1], x.max(1)[0]), ROWS, rtol=1e-5)
    assert c.spec is not None and "argmax" not in c.spec.source


def test_without_fusion_results_are_the_same() -> None:
    fn, args, _ = CASES["layer norm, gelu, softmax"]
    c = check(fn, *args, rtol=1e-5, atol=1e-6, fusion=False)
    assert kernels(c) > 3


def test_common_cut() -> None:
    assert common_cut([8, 512, 768], [4096, 768]) == [8, 512, 768]
    assert common_cut([6, 4], [4, 6]) is None
    assert common_cut([], [1]) == []
    assert common_cut([24], [2, 3, 4]) == [2, 3, 4]
    assert common_cut([24], [25]) is None


def test_peak_memory_of_a_chain() -> None:
    def fn(x):
        for _ in range(6):
            x = torch.softmax(x, -1).t().contiguous()
        return (x,)

    x = t(256, 256)
    c = check(fn, x, rtol=1e-5)
    assert c.compiled.peak_bytes <= 3 * x.numel() * 4


def test_a_widened_value_is_kept_as_narrow_as_it_is() -> None:
    def sums(x, y):
        narrow = (x.float().sin() * y.float().cos().exp()).to(x.dtype)
        wide = narrow.float()
        return wide.sum(0), wide.sum(1)

    x, y = t(256, 256).bfloat16(), t(256, 256, seed=1).bfloat16()
    c = check(sums, x, y, rtol=1e-5, atol=1e-4)
    assert c.compiled.peak_bytes < x.numel() * 4


def test_nothing_is_made_long_before_it_is_wanted() -> None:
    def dense_block(x, w):
        parts = [F.avg_pool2d(x, 2)]
        for k in range(8):
            parts.append(F.conv2d(torch.cat(parts, 1).relu(), w[:, : 16 + 8 * k]))
        return (parts[-1],)

    c = check(
        dense_block, t(4, 16, 64, 64), t(8, 80, 1, 1) * 0.2,
        fallbacks=["convolution.default"] * 8, rtol=1e-4, atol=1e-4,
    )  # fmt: skip
    every_cat = sum(4 * (16 + 8 * k) * 32 * 32 * 4 for k in range(8))
    assert c.compiled.peak_bytes < every_cat
