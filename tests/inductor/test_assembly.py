"""Slices written into tensors, and joined tensors: each element once, in place if may be."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import dynamo
from inductor.boxes import Range, difference, intersection
from inductor.ir import Loops
from tests.inductor.compiling import check, clones, staged

aten = torch.ops.aten


def make(*size, seed=0, dtype=torch.float32):
    x = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return (x * 3).to(dtype)


def circular(x):
    return (F.pad(x, (2, 1, 0, 3), mode="circular"),)


def shifted(x):
    out = torch.zeros_like(x)
    out[:, :-1, :2] = x[:, 1:, :2]
    out[:, 1:, 2:4] = x[:, :-1, 2:4]
    out[:, :, 4:] = x[:, :, 4:]
    return (out,)


def covered(x):
    out = torch.empty_like(x)
    out[:, :, :3] = x[:, :, :3] * 2
    out[:, :, 3:] = x[:, :, 3:].exp()
    return (out.relu(), out[:, :, 3:5] + 1)


def overlapping(x):
    out = x.clone()
    out[1:, 1:-1] = x[1:, 1:-1].sin()
    out[:, :2, 2:] = 7
    out[0] += out[1]
    return (out,)


def borders(x):
    out = x.new_zeros(x.shape[0], x.shape[1] + 2, x.shape[2] + 2)
    out[:, 1:-1, 1:-1] = x
    out[:, 0] = out[:, -2]
    out[:, -1] = out[:, 1]
    out[:, :, 0] = out[:, :, -2]
    out[:, :, -1] = out[:, :, 1]
    return (out,)


def alternating(x):
    out = torch.empty_like(x)
    out[:, 0::2] = -x[:, 1::2]
    out[:, 1::2] = x[:, 0::2]
    return (out,)


def one_of_three(x):
    out = torch.ones_like(x)
    out[..., 1::3] = x[..., 1::3].exp()
    out[..., 4:6] = x[..., :2]
    return (out * 2,)


def columns(x):
    out = torch.empty_like(x)
    for i in range(x.shape[2]):
        out[:, :, i] = x[:, :, -1 - i] * (i + 1)
    return (out,)


def turned(x):
    out = torch.zeros(x.shape[2], x.shape[1], x.shape[0])
    out.transpose(0, 2)[:, 1:3] = x[:, 1:3]
    out.permute(1, 2, 0)[3, :, 2:] = 5
    return (out,)


def joined(x):
    both = torch.cat([x.sin(), torch.cat([x[:, :2], x[:, 2:] * 2], 1)], 2)
    return (both[:, :, 3:9] + 1, both[:, 0], both.unsqueeze(0)[:, :, 1:3])


def joined_and_written(x):
    both = torch.cat([x, -x], 1)
    both[:, 2:5] = x[:, :3].exp()
    return (both, both[:, 4] * 2)


def sums_of_pads(x):
    return (F.pad(x[:, :3], (0, 0, 0, 3)) + F.pad(x[:, 2:], (0, 0, 2, 0)),)


def read_back(x):
    out = torch.zeros_like(x)
    out[:, 0] = x[:, 0]
    for i in range(1, x.shape[1]):
        out[:, i] = out[:, i - 1] * 0.5 + torch.sin(x[:, i]).exp()
    return (out, out.sum(1))


def narrower(x):
    out = torch.zeros(x.shape, dtype=torch.bfloat16)
    out[:, 1:3] = x[:, 1:3]
    out[:, :, 2] = x[:, :, 2].half()
    return (out,)


PROGRAMS = [
    circular, shifted, covered, overlapping, borders, alternating, one_of_three, columns, turned,
    joined, joined_and_written, sums_of_pads, read_back, narrower,
]  # fmt: skip


def named(functions):
    return pytest.mark.parametrize("fn", functions, ids=lambda fn: fn.__name__)


def check_compiled(fn, *args, **options):
    ours, theirs = clones(args), clones(args)
    for x in (*ours, *theirs):
        x.requires_grad_(x.is_floating_point() and options.get("train", False))
    got, expected = dynamo.compile(fn)(*ours), fn(*theirs)
    for g, e in zip([*got, *ours], [*expected, *theirs], strict=True):
        assert (g.dtype, g.stride()) == (e.dtype, e.stride())
        torch.testing.assert_close(g, e)
    if options.get("train"):
        for results in (got, expected):
            sum((r.float() * r.float()).sum() for r in results).backward()
        for x, y in zip(ours, theirs, strict=True):
            torch.testing.assert_close(x.grad, y.grad)


@named(PROGRAMS)
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_programs(fn, train):
    dynamo.reset()
    check_compiled(fn, make(3, 6, 7), train=train)


@named([shifted, covered, borders, joined, circular])
def test_sizes_that_vary(fn):
    dynamo.reset()
    compiled = dynamo.compile(fn, dynamic=True)
    for x in make(3, 6, 7), make(4, 8, 9), make(2, 5, 12):
        for got, expected in zip(compiled(x), fn(x), strict=True):
            torch.testing.assert_close(got, expected)


def written(c, name):
    """How many elements the loops of a program write to a buffer."""
    loops = [s for s in c.program.steps if isinstance(s, Loops) and s.target.name == name]
    return sum(math.prod(v.size for v in s.dims) for s in loops)


@named([circular, shifted, overlapping, borders, alternating, columns, joined_and_written])
def test_each_element_is_written_once(fn):
    dynamo.reset()
    graphs = []

    def keep(gm, inputs):
        graphs.append((gm, inputs))
        return gm.forward

    x = make(3, 6, 7)
    out = dynamo.compile(fn, backend=keep)(x)[0]
    c = staged(graphs[0][0].forward, [x], until="schedule")
    result = c.program.outputs[0] if c.program.outputs else None
    loops = [s for s in c.program.steps if isinstance(s, Loops)]
    total = sum(math.prod(v.size for v in s.dims) for s in loops)
    assert result is None or written(c, result.name) == out.numel()
    assert total < 2 * out.numel()


# --- in place ------------------------------------------------------------------------------------


def cached_slice(k, new, at):
    k[:, 2:3] = new
    return (torch.softmax(k, -1), k[:, 2] + 1)


def cached_column(k, new, at):
    k[:, :, 1] = new[:, 0, 0, None]
    return (k * 2,)


def cached_copy(k, new, at):
    k.index_copy_(1, at, new)
    return (k @ k.mT,)


def cached_put(k, new, at):
    k[:, at] = new
    k[:, at - 1] = new * 2
    return (k.sum(0),)


def added(k, new, at):
    k.index_add_(1, at, new)
    return (k.exp(),)


def read_before(k, new, at):
    old = k * 2
    first = k[:, 0]
    k[:, 2:3] = new + old[:, 1:2]
    return (old, first + 1, k.sum())


def moved(k, new, at):
    k[:, 1:] = k[:, :-1].clone()
    k[:, 0] = k[:, -1] + new[:, 0]
    return (k.sum(),)


def crossing(k, new, at):
    k[:, :3] = k[:, 1:4] * 2
    return (k + 0,)


def failing_later(k, new, at):
    k[:, 1:2] = new
    return (k[:, at] * 2,)


def both_written(k, new, at):
    k[:, 1:2] = new
    new[:] = k[:, :1]
    return (k.cos(),)


def copied_and_filled(k, new, at):
    copy = torch.stack([k], 3)
    k[:, :, 1:2] -= 8
    copy[:, 0, -1, :] = 3
    return (copy.sum((0, 3)),)


def turned_and_filled(k, new, at):
    turned = k.flip(1)
    k[2:, :, :1] = 4
    turned[:2, :, -1] = 3
    return (k + 0, turned.sum(0))


def scattered_and_filled(k, new, at):
    source = k * 2 + 1
    k.scatter_(1, at.view(1, 1, 1).expand(3, 1, 7), source[:, :1])
    k[1:2, 2:3] = source[:1, 1:2]
    return (k.sum(),)


@named(
    [cached_slice, cached_column, cached_copy, cached_put, added, read_before, moved, crossing]
    + [failing_later, both_written, copied_and_filled, turned_and_filled, scattered_and_filled]
)
def test_written_inputs(fn):
    dynamo.reset()
    check_compiled(fn, make(3, 6, 7), make(3, 1, 7, seed=1), torch.tensor([4]))


@named([cached_slice, cached_column, cached_copy, cached_put, added])
def test_written_inputs_of_sizes_that_vary(fn, monkeypatch):
    dynamo.reset()
    monkeypatch.setattr(dynamo.config, "strict", True)
    compiled = dynamo.compile(fn, dynamic=True)
    for rows in 3, 5:
        args = make(rows, rows + 3, 7), make(rows, 1, 7, seed=1), torch.tensor([4])
        ours, theirs = clones(args), clones(args)
        for got, expected in zip([*compiled(*ours), *ours], [*fn(*theirs), *theirs], strict=True):
            torch.testing.assert_close(got, expected)


@named([cached_slice, cached_column, cached_copy, added])
def test_in_place(fn):
    """No more of the input than its new elements is written."""
    dynamo.reset()
    graphs = []

    def keep(gm, inputs):
        graphs.append((gm, inputs))
        return gm.forward

    args = make(3, 6, 7), make(3, 1, 7, seed=1), torch.tensor([4])
    dynamo.compile(fn, backend=keep)(*clones(args))
    gm, inputs = graphs[0]
    c = staged(gm.forward, clones(inputs), until="schedule")
    place = next(k for k, x in enumerate(inputs) if tuple(x.shape) == (3, 6, 7))
    assert 0 < written(c, f"arg{place}") <= 3 * 7


def test_a_graph_that_fails_has_written_nothing():
    dynamo.reset()
    k, new = make(3, 6, 7), make(3, 1, 7, seed=1)

    def fn(k, new, at):
        k[:, 1:2] += new
        return k[:, at]

    compiled = dynamo.compile(fn)
    for at in torch.tensor([4]), torch.tensor([9]):
        ours, theirs = k.clone(), k.clone()
        outcomes = []
        for call, x in (compiled, ours), (fn, theirs):
            try:
                outcomes.append(call(x, new, at).sum().item())
            except IndexError:
                outcomes.append("IndexError")
        assert outcomes[0] == pytest.approx(outcomes[1])
        torch.testing.assert_close(ours, theirs)


def test_nothing_written():
    def fn(x, y):
        ones = torch.ones(0, 5, 7)
        ones[:, 1:4] = 2
        repeated = y.mT.repeat(1, 1, 2)
        x[:, 4] = 7
        x[:, 4:5, :2] += 5
        y[:, 2:4] = 8
        return (ones, repeated, x + 1)

    check(fn, torch.ones(0, 5, 7), torch.ones(0, 5, 7))


def test_functional_scatters():
    x = make(3, 6, 7)
    check(
        lambda x: (
            aten.slice_scatter(x, x[:, :3] * 2, 1, 0, 5, 2),
            aten.slice_scatter(aten.slice_scatter(x, x[:, :2], 1, 1, 6, 3), x[:, :3], 1, 0, 6, 2),
            aten.select_scatter(aten.slice_scatter(x, x[:, :2] + 1, 1, -2), x[:, 0], 1, -1),
        ),
        x,
    )


# --- boxes ---------------------------------------------------------------------------------------


def elements(r):
    return set(range(r.low, r.low + r.count * r.step, r.step))


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("outer", [Range(0, 9), Range(1, 4, 2), Range(2, 5)])
def test_ranges(outer, step):
    for low in range(6):
        for count in range(1, 4):
            r = Range(low, count, step if count > 1 else 1)
            coarse, fine = (r, outer) if r.step >= outer.step else (outer, r)
            if coarse.step % fine.step:
                continue
            found = intersection((outer,), (r,))
            common = elements(outer) & elements(r)
            assert (elements(found[0]) if found else set()) == common
            if r.step < outer.step and r.count > 1 and found and found[0].step != outer.step:
                continue
            rest = difference((outer,), (r,))
            assert sum(b.count for (b,) in rest) == outer.count - len(common)
            assert set().union(*(elements(b) for (b,) in rest)) == elements(outer) - common
