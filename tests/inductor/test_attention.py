"""Attention by generated code, beside eager; and which attention that is."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import dynamo
from dynamo.api.compile import compile_fresh
from inductor import measure
from inductor.attention import HEAD, LEAST_QUERIES, attention
from inductor.runtime import toolchain
from tests.inductor.compiling import same_layout
from tests.inductor.test_derived import notes

CLOSE = {"rtol": 1e-4, "atol": 1e-5, "equal_nan": True}
attend = F.scaled_dot_product_attention


def heads(sequences, number, length, size):
    """As a projection gives them: (sequences, length, number, size) in memory."""
    return torch.randn(sequences, length, number, size).transpose(1, 2)


def compared(fn, *args, dynamic=None, close=CLOSE):
    """Whether generated code computes the attention of `fn`, which gives eager's values."""
    compiled, context = compile_fresh(fn, dynamic=dynamic)
    with torch.no_grad():
        expected, got = fn(*args), compiled(*args)
    torch.testing.assert_close(got, expected, **close)
    assert same_layout(got, expected)
    return "attention: 1 by generated code" in notes(context)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys", "size"),
    [(16, 16, 8), (17, 1, 64), (50, 50, 20), (197, 197, 64), (300, 700, 33), (700, 300, 64),
     (96, 512, HEAD), (1000, 1000, 16), (31, 257, 1), (49, 49, 32), (60, 259, 16),
     (61, 61, 24), (108, 30, 8)],
)  # fmt: skip
def test_sizes(queries, keys, size, causal):
    torch.manual_seed(0)
    q, k, v = heads(2, 3, queries, size), heads(2, 3, keys, size), heads(2, 3, keys, size)
    assert compared(lambda q, k, v: attend(q, k, v, is_causal=causal), q, k, v)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        q, k, v = (heads(1, 2, 900, 32) for _ in range(3))
        assert compared(lambda q, k, v: attend(q, k, v, is_causal=True), q, k, v)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    "size", [(50, 70), (1, 70), (50, 1), (2, 1, 50, 70), (1, 3, 1, 70), (2, 3, 50, 70)], ids=str
)
@pytest.mark.parametrize("kind", ["added", "allowed", "sliced", "transposed"])
def test_masks(size, kind):
    torch.manual_seed(0)
    q, k, v = heads(2, 3, 50, 24), heads(2, 3, 70, 24), heads(2, 3, 70, 24)
    mask = torch.randn(size)
    if kind == "allowed":
        mask = mask > 0
    elif kind == "sliced":
        mask = torch.randn(*size[:-1], 2 * size[-1])[..., ::2]
    elif kind == "transposed":
        mask = torch.randn(*size[:-2], size[-1], size[-2]).transpose(-2, -1)
    assert compared(lambda q, k, v, m: attend(q, k, v, attn_mask=m), q, k, v, mask)


@pytest.mark.parametrize("slow", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype, slow, monkeypatch):
    monkeypatch.setattr("inductor.attention._is_slow", lambda dtype: slow)
    q, k, v = (heads(2, 3, 50, 24).to(dtype) for _ in range(3))
    mask = torch.randn(50, 50).to(dtype)
    close = {"rtol": 2e-2, "atol": 2e-2}
    for given in ((q, k, v, None), (q, k, v, mask)):
        generated = compared(lambda q, k, v, m: attend(q, k, v, m) + 1, *given, close=close)
        assert generated == slow


def test_half_precision_is_measured():
    q, k, v = (heads(1, 4, 128, 64).bfloat16() for _ in range(3))
    before = measure._remembered.copy()
    measure.forget()
    compared(lambda q, k, v: attend(q, k, v), q, k, v, close={"rtol": 2e-2, "atol": 2e-2})
    (choice,) = [c for c in measure._remembered.values() if set(c.times) == {"float32", "as it is"}]
    assert all(seconds > 0 for seconds in choice.times.values())
    measure._remembered.update(before)


def test_rows_that_see_nothing():
    """In a chunk of keys, in all but a late one, and in all."""
    q, k, v = heads(1, 2, 40, 16), heads(1, 2, 700, 16), heads(1, 2, 700, 16)
    mask = torch.randn(40, 700)
    mask[3, :300] = mask[5, 300:] = mask[7, :699] = mask[9] = -math.inf
    assert compared(lambda q, k, v, m: attend(q, k, v, attn_mask=m), q, k, v, mask)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30, 3e38])
@pytest.mark.parametrize("place", ["q", "k", "v"])
def test_special_values(place, value):
    tensors = {name: heads(2, 2, 30, 16) for name in "qkv"}
    tensors[place][0, 1, 7, 3] = value
    assert compared(lambda q, k, v: attend(q, k, v), *tensors.values())


@pytest.mark.parametrize("scale", [0.3, 0.0, -1.0, 100.0])
def test_scales(scale):
    q, k, v = (heads(1, 2, 33, 16) for _ in range(3))
    assert compared(lambda q, k, v: attend(q, k, v, scale=scale), q, k, v)


LAYOUTS = {
    "one projection": lambda x: x.view(2, 40, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0),
    "elements apart": lambda x: [y.transpose(2, 3).contiguous().transpose(2, 3) for y in
                                 x.view(2, 40, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0)],
    "heads shared": lambda x: [x.view(2, 40, 12, 16)[:, :, :1].transpose(1, 2).expand(2, 4, 40, 16)]
    * 3,
    "offset": lambda x: [y[:, :, 3:, 2:14] for y in
                         x.view(2, 40, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0)],
    "computed": lambda x: [y.sin() for y in
                           x.view(2, 40, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0)],
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    def fn(x):
        return attend(*LAYOUTS[layout](x)).transpose(1, 2).flatten(2) + 1

    found = compared(fn, torch.randn(2, 40, 192))
    assert found == (layout != "elements apart")  # eager has products and a softmax for these


def test_lengths_that_vary():
    def fn(q, k, v):
        return attend(q, k, v, is_causal=True)

    compiled, context = compile_fresh(fn)
    with torch.no_grad():
        for length in (40, 17, 300, 5, 64):
            q, k, v = (heads(2, 3, length, 16) for _ in range(3))
            for one in (q, k, v):
                dynamo.mark_dynamic(one, 2)
            torch.testing.assert_close(compiled(q, k, v), fn(q, k, v), **CLOSE)
    assert "attention: 1 by generated code" in notes(context)
    assert len(context.records) == 1


def test_what_stays_with_aten():
    few = LEAST_QUERIES - 1
    assert not compared(attend, heads(1, 2, few, 8), *[heads(1, 2, 40, 8) for _ in range(2)])
    assert not compared(attend, *[heads(1, 2, 20, HEAD + 8) for _ in range(3)])
    q, k, v = (heads(1, 2, 20, 8).double() for _ in range(3))
    assert not compared(attend, q, k, v)


def test_gradients():
    q, k, v = (heads(1, 2, 40, 8).requires_grad_() for _ in range(3))
    compiled, context = compile_fresh(lambda q, k, v: attend(q, k, v, is_causal=True))
    grad = torch.randn(1, 2, 40, 8)
    expected = torch.autograd.grad(attend(q, k, v, is_causal=True), (q, k, v), grad)
    got = torch.autograd.grad(compiled(q, k, v), (q, k, v), grad)
    torch.testing.assert_close(got, expected, **CLOSE)
    assert "attention: 1 by generated code" not in notes(context)


def test_without_a_compiler(monkeypatch):
    def none():
        raise toolchain.NoCompiler("none")

    monkeypatch.setattr("inductor.panel_sample.toolchain.find_compiler", none)
    assert not compared(attend, *[heads(1, 2, 20, 8) for _ in range(3)])


def test_the_operator_itself():
    q, k, v = heads(2, 3, 20, 8), heads(2, 3, 30, 8), heads(2, 3, 30, 8)
    mask = torch.randn(20, 30)
    given = (q, k, v, mask, 0.5, False)
    expected = attend(q, k, v, attn_mask=mask, scale=0.5)
    torch.testing.assert_close(attention(*given), expected)
    torch.library.opcheck(attention, given, test_utils="test_schema")
    torch.library.opcheck(attention, given, test_utils="test_faketensor")
