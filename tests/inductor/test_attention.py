"""Attention by generated code, beside eager; and which attention that is."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import dynamo
from dynamo.api.compile import compile_fresh
from inductor import measure
from inductor.attention import HEAD, attention
from inductor.costs import LEAST_QUERIES
from inductor.runtime import toolchain
from tests.inductor.compiling import kernels, same_layout, staged
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


FEW = {
    "one": (1, 3, 3, 50, 24),
    "one of many keys": (1, 2, 2, 700, 64),
    "several": (5, 3, 3, 300, 33),
    "more than lie together": (7, 1, 1, 257, 16),
    "of short heads": (3, 2, 2, 40, 5),
    "grouped": (1, 8, 2, 290, 24),
    "several, grouped": (2, 6, 3, 17, HEAD),
    "many, grouped": (40, 6, 3, 60, 24),
    "one key": (1, 4, 1, 1, 16),
}


@pytest.mark.parametrize("masked, causal", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("name", FEW)
def test_few_queries_and_heads_that_share_keys(name, masked, causal):
    torch.manual_seed(0)
    queries, number, shared, keys, size = FEW[name]
    q, k, v = (
        heads(2, number, queries, size),
        heads(2, shared, keys, size),
        heads(2, shared, keys, size),
    )
    mask = None
    if masked:
        mask = torch.randn(2, number, queries, keys)
        mask[:, 0, 0, : keys // 2] = mask[1, :, 0] = -math.inf

    def fn(q, k, v, mask):
        return attend(q, k, v, mask, is_causal=causal, enable_gqa=number != shared)

    assert compared(fn, q, k, v, mask)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30, 3e38])
@pytest.mark.parametrize("place", ["q", "k", "v"])
def test_special_values_with_few_queries(place, value):
    tensors = {"q": heads(2, 4, 1, 20), "k": heads(2, 2, 30, 20), "v": heads(2, 2, 30, 20)}
    tensors[place][0, 1, 0, 3] = tensors[place][1, 0, 0, 17] = value
    assert compared(lambda q, k, v: attend(q, k, v, enable_gqa=True), *tensors.values())


def _expanded(x, times):
    sequences, number, length, size = x.shape
    repeated = x[:, :, None].expand(sequences, number, times, length, size)
    return repeated.reshape(sequences, number * times, length, size)


REPEATED = {
    "expanded": _expanded,
    "interleaved": lambda x, times: x.repeat_interleave(times, 1),
    "one after another": lambda x, times: x.repeat(1, times, 1, 1),
    "tiled inside": lambda x, times: x[:, None].expand(-1, times, -1, -1, -1).flatten(1, 2),
}


@pytest.mark.parametrize("queries", [1, 30])
@pytest.mark.parametrize("name", REPEATED)
def test_keys_that_are_repeated_for_heads(name, queries):
    torch.manual_seed(0)
    q, k, v = heads(2, 6, queries, 16), heads(2, 3, 40, 16), heads(2, 3, 40, 16)
    repeat = REPEATED[name]
    fn = lambda q, k, v: attend(q, repeat(k, 2), repeat(v, 2))  # noqa: E731
    assert compared(fn, q, k, v)
    assert compared(lambda q, k, v: attend(q, repeat(k, 2), v.repeat(1, 2, 1, 1)), q, k, v)
    read_once = name in ("expanded", "interleaved")
    assert (kernels(staged(lambda q, k, v: (fn(q, k, v),), (q, k, v), "codegen")) == 1) == read_once


def test_caches_that_grow():
    def fn(q, k, v):
        return attend(q, k, v, enable_gqa=True)

    compiled, context = compile_fresh(fn)
    with torch.no_grad():
        for length in (40, 17, 300, 5, 64):
            q, k, v = heads(2, 4, 1, 16), heads(2, 2, length, 16), heads(2, 2, length, 16)
            for one in (k, v):
                dynamo.mark_dynamic(one, 2)
            torch.testing.assert_close(compiled(q, k, v), fn(q, k, v), **CLOSE)
    assert "attention: 1 by generated code" in notes(context)
    assert len(context.records) == 1


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


ROUNDED = {"rtol": 2e-2, "atol": 2e-2, "equal_nan": True}


@pytest.mark.parametrize("operands", [None, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype, operands, monkeypatch):
    operands = operands if operands != torch.bfloat16 else dtype
    if operands == torch.float16:
        pytest.skip("of bfloat16 alone")
    monkeypatch.setattr("inductor.attention._operands", lambda dtype, always: operands)
    q, k, v = (heads(2, 3, 50, 24).to(dtype) for _ in range(3))
    mask = torch.randn(50, 50).to(dtype)
    for given in ((q, k, v, None), (q, k, v, mask)):
        generated = compared(lambda q, k, v, m: attend(q, k, v, m) + 1, *given, close=ROUNDED)
        assert generated == (operands is not None)


@pytest.fixture
def pairs(monkeypatch):
    """Half precision is multiplied by pairs, on every processor."""
    monkeypatch.setattr("inductor.attention._operands", lambda dtype, always: dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys", "size"),
    [(16, 1, 64), (17, 33, 7), (50, 50, 20), (197, 197, 64), (300, 700, 33), (64, 257, HEAD),
     (90, 40, 1), (600, 300, 16)],
)  # fmt: skip
def test_sizes_by_pairs(pairs, queries, keys, size, causal):
    torch.manual_seed(0)
    q, k, v = (heads(2, 3, n, size).bfloat16() for n in (queries, keys, keys))
    fn = lambda q, k, v: attend(q, k, v, is_causal=causal)  # noqa: E731
    assert compared(fn, q, k, v, close=ROUNDED)


def test_masks_by_pairs(pairs):
    """Some keys that nobody sees, and some queries that see none."""
    q, k, v = (heads(2, 3, n, 24).bfloat16() for n in (40, 700, 700))
    mask = torch.randn(2, 1, 40, 700).bfloat16()
    mask[:, :, :, 100:400] = mask[0, :, 7] = mask[1, :, 5, :600] = -math.inf
    assert compared(lambda q, k, v, m: attend(q, k, v, m), q, k, v, mask, close=ROUNDED)


def test_heads_that_share_keys_by_pairs(pairs):
    q, k, v = heads(2, 6, 40, 16), heads(2, 2, 40, 16), heads(2, 2, 40, 16)
    fn = lambda q, k, v: attend(q, k, v, enable_gqa=True)  # noqa: E731
    assert compared(fn, q.bfloat16(), k.bfloat16(), v.bfloat16(), close=ROUNDED)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("place", ["q", "k", "v"])
def test_special_values_by_pairs(pairs, place, value):
    """As in float32: of keys that are infinite, torch's kernel for bfloat16 loses NaN."""
    tensors = {name: heads(2, 2, 30, 16).bfloat16() for name in "qkv"}
    tensors[place][0, 1, 7, 3] = value
    compiled, context = compile_fresh(lambda q, k, v: attend(q, k, v))
    with torch.no_grad():
        got, expected = compiled(**tensors), attend(*(x.float() for x in tensors.values()))
    torch.testing.assert_close(got, expected.bfloat16(), **ROUNDED)
    assert "attention: 1 by generated code" in notes(context)


def test_half_precision_is_measured():
    q, k, v = (heads(1, 4, 128, 64).bfloat16() for _ in range(3))
    before = measure._remembered.copy()
    measure.forget()
    compared(lambda q, k, v: attend(q, k, v), q, k, v, close={"rtol": 2e-2, "atol": 2e-2})
    found = measure._remembered.values()
    (choice,) = [c for c in found if {"float32", "as it is"} <= set(c.times)]
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
    few = [heads(1, 2, n, 8).bfloat16() for n in (LEAST_QUERIES - 1, 40, 40)]
    assert not compared(attend, *few, close={"rtol": 2e-2, "atol": 2e-2})
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


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 5, 4), (2, 8, 33, 16)], ids=str)
def test_results_of_another_shape(size, dynamic):
    def fn(x):
        def attended():
            return F.scaled_dot_product_attention(x, x, x)

        heads = x.transpose(1, 2)
        swapped = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2)
        return attended().transpose(1, 2), attended().flatten(1), attended().mT, swapped

    x = torch.randn(size)
    for got, expected in zip(dynamo.compile(fn, dynamic=dynamic)(x), fn(x), strict=True):
        torch.testing.assert_close(got, expected)
        assert got.stride() == expected.stride()


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (1, 2, 0, 3)], ids=str)
def test_the_strides_of_one_query(order):
    """Those of eager's result, of its dimension of one element too."""
    size, back = [2, 3, 1, 8], [order.index(d) for d in range(4)]
    q = torch.randn([size[d] for d in order]).permute(back)
    k, v = heads(2, 3, 9, 8), heads(2, 3, 9, 8)
    compiled, context = compile_fresh(attend)
    with torch.no_grad():
        expected, got = attend(q, k, v), compiled(q, k, v)
    torch.testing.assert_close(got, expected, **CLOSE)
    assert got.stride() == expected.stride()
    assert "attention: 1 by generated code" in notes(context)
