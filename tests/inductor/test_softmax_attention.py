"""Attention that programs spell out, flex_attention and masks that are expressions, beside eager:
values, what is in memory; and which attention stays products and a softmax."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import dynamo
from dynamo.api.compile import compile_fresh
from inductor.softmax_attention import attention_of_scores, attention_scores
from tests.inductor.test_attention import CLOSE, heads
from tests.inductor.test_derived import notes

LOWEST = -math.inf


def compared(fn, *args, dynamic=None, close=CLOSE):
    """Whether generated code computes the attention of `fn`, which gives eager's values."""
    compiled, context = compile_fresh(fn, dynamic=dynamic)
    with torch.no_grad():
        expected, got = fn(*args), compiled(*args)
    torch.testing.assert_close(got, expected, **close)
    assert got.stride() == expected.stride()
    return any(note.startswith("attention: 1 ") for note in notes(context))


def _kernels(explanation):
    return sum(graph.report["kernels"] for frame in explanation.frames for graph in frame.graphs)


def spelled(q, k, v, change=lambda s: s):
    return torch.softmax(change(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])), -1) @ v


def causal(s):
    i, j = torch.arange(s.shape[-2])[:, None], torch.arange(s.shape[-1])
    return s.masked_fill(j > i, LOWEST)


def capped(s):
    return 3 * torch.tanh(s / 3)


def biased(s):
    slopes = torch.arange(1.0, 1 + s.shape[1])[:, None, None] / 8
    return s + slopes * (torch.arange(s.shape[-1]) - torch.arange(s.shape[-2])[:, None])


CHANGES = {
    "nothing": lambda s: s,
    "causal": causal,
    "capped": capped,
    "biased": biased,
    "several": lambda s: causal(capped(biased(s))),
    "sees nothing": lambda s: torch.where(torch.arange(s.shape[-2])[:, None] % 3 == 0, LOWEST, s),
    "of a view": lambda s: (s.unflatten(0, (1, -1)) + torch.ones(s.shape[-1])).flatten(0, 1),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "sizes", [(2, 3, 7, 5, 8), (1, 2, 1, 300, 20), (2, 2, 300, 600, 16)], ids=str
)
@pytest.mark.parametrize("name", CHANGES)
def test_changed_scores(name, sizes, dynamic):
    torch.manual_seed(0)
    sequences, number, queries, keys, size = sizes
    q, k, v = (heads(sequences, number, n, size) for n in (queries, keys, keys))
    fn = lambda q, k, v: spelled(q, k, v, CHANGES[name])  # noqa: E731
    assert compared(fn, q, k, v, dynamic=dynamic) == (not dynamic)  # a size of heads that varies


def test_scores_that_are_in_memory_after_all():
    """More is added than one kernel reads."""
    masks = [torch.randn(40, 40) for _ in range(15)]
    q, k, v = (heads(1, 2, 40, 8) for _ in range(3))
    compiled, context = compile_fresh(
        lambda q, k, v, *masks: spelled(q, k, v, lambda s: sum(masks, s))
    )
    with torch.no_grad():
        expected = spelled(q, k, v, lambda s: sum(masks, s))
        torch.testing.assert_close(compiled(q, k, v, *masks), expected, **CLOSE)
    assert not any("fault" in note for note in notes(context))


def test_several_scores_in_memory():
    masks = [torch.randn(40, 40) for _ in range(15)]

    def fn(q, k, v, *masks):
        one = (q.sin() @ k.cos().mT, v)
        other = (k.exp() @ q.tan().mT, v.sin())
        changed = [sum(masks, scores) for scores, _ in (one, other)]
        return sum(torch.softmax(s, -1) @ v for s, (_, v) in zip(changed, (one, other)))

    assert not compared(fn, *(heads(1, 2, 40, 8) for _ in range(3)), *masks)


def test_without_heads():
    q, k, v = torch.randn(6, 50, 20), torch.randn(6, 70, 20), torch.randn(6, 70, 20)
    assert compared(lambda q, k, v: spelled(q, k, v, causal), q, k, v)
    assert compared(lambda q, k, v: torch.bmm(torch.softmax(torch.bmm(q, k), 2), v), q, k.mT, v)


def window(b, h, i, j):
    return (i >= j) & (i - j < 100)


def flexible(length, mask=window, **more):
    blocks = create_block_mask(mask, None, None, length, length, device="cpu")
    return lambda q, k, v: flex_attention(q, k, v, block_mask=blocks, **more)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention():
    q, k, v = (torch.randn(1, 4, 600, 16) for _ in range(3))
    documents = torch.arange(600) // 130
    slopes = torch.rand(4)

    def same(b, h, i, j):
        return documents[i] == documents[j]

    def sloped(score, b, h, i, j):
        return score + slopes[h] * (j - i)

    few = [k[:, ::2], v[:, ::2]]
    assert compared(flexible(600), q, k, v)
    assert compared(flexible(600, same), q, k, v)
    assert compared(flexible(600, score_mod=sloped), q, k, v)
    assert compared(flexible(600, enable_gqa=True), q, *few)
    with torch.no_grad():
        found = dynamo.explain(flexible(600, score_mod=sloped))(q, k, v)
    assert _kernels(found) == 2  # no mask, no scores; one checks the index of slopes


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_of_half_precision():
    q, k, v = (torch.randn(1, 2, 300, 16).bfloat16() for _ in range(3))
    compared(flexible(300), q, k, v, close={"rtol": 2e-2, "atol": 2e-2})


def padded(q, k, v, there):
    i = torch.arange(q.shape[2])
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=(i[:, None] >= i) & there[:, None, None, :]
    )


def test_a_mask_that_is_an_expression():
    q, k, v = (heads(2, 2, 700, 16) for _ in range(3))
    there = torch.ones(2, 700, dtype=torch.bool)
    there[1, :400] = False
    assert compared(padded, q, k, v, there)
    with torch.no_grad():
        assert _kernels(dynamo.explain(padded)(q, k, v, there)) == 1


VALUES = (math.nan, math.inf, -math.inf, 3e38)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("place", ["q", "k", "v"])
def test_special_values_that_a_mask_hides(place, value):
    """0 times infinity counts; and so does NaN + -inf, where a mask is added."""
    tensors = {name: heads(1, 2, 600, 16) for name in "qkv"}
    tensors[place][0, 1, 590, 3] = tensors[place][0, 0, 5, 2] = value
    for name in ("causal", "several"):
        assert compared(lambda q, k, v: spelled(q, k, v, CHANGES[name]), *tensors.values())
    hidden = torch.full((600, 600), LOWEST).triu(1)
    assert compared(lambda q, k, v: spelled(q, k, v, lambda s: s + hidden), *tensors.values())
    attend = F.scaled_dot_product_attention
    assert compared(lambda q, k, v: attend(q, k, v, attn_mask=hidden), *tensors.values())


def test_masks_of_each_sequence_and_head():
    torch.manual_seed(0)
    q, k, v = heads(3, 2, 130, 8), heads(3, 2, 900, 8), heads(3, 2, 900, 8)
    for size in ((3, 1, 4), (1, 2, 4), (3, 2, 4), (1, 1, 4)):
        kept = (torch.rand(size) > 0.5).repeat_interleave(225, 2)[:, :, None]
        assert compared(
            lambda q, k, v, m: spelled(q, k, v, lambda s: torch.where(m, s, LOWEST)), q, k, v, kept
        )


def test_lengths_that_vary():
    compiled, context = compile_fresh(lambda q, k, v: spelled(q, k, v, causal))
    with torch.no_grad():
        for length in (40, 17, 300, 5, 64):
            q, k, v = (heads(2, 3, length, 16) for _ in range(3))
            for one in (q, k, v):
                dynamo.mark_dynamic(one, 2)
            torch.testing.assert_close(compiled(q, k, v), spelled(q, k, v, causal), **CLOSE)
    assert len(context.records) == 1


def _seen(q, k, v):
    weights = torch.softmax(q @ k.mT, -1)
    return weights @ v + weights.sum()


STAY = {
    "weights that are seen": _seen,
    "another dimension": lambda q, k, v: torch.softmax(q @ k.mT, -2) @ v,
    "scores that are seen": lambda q, k, v: spelled(q, k, v, lambda s: s + s.amax()),
    "values of another size": lambda q, k, v: spelled(q, k, torch.cat([v, v], -1)),
    "double": lambda q, k, v: spelled(q.double(), k.double(), v.double()),
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays_products(name):
    assert not compared(STAY[name], *(heads(1, 2, 20, 8) for _ in range(3)))


def test_the_operators_themselves():
    q, k, v = heads(2, 4, 20, 8), heads(2, 2, 30, 8), heads(2, 2, 30, 8)
    scores = attention_scores(q, k)
    scores[0, 0, 0] = LOWEST
    for of_nothing in (True, False):
        got = attention_of_scores(scores, scores, q, k, v, of_nothing)
        assert bool(got[0, 0, 0].isnan().all()) == of_nothing
        softmax = torch.softmax if of_nothing else torch._safe_softmax
        expected = softmax(scores, -1) @ v.repeat_interleave(2, 1)
        torch.testing.assert_close(got, expected, equal_nan=True)
    torch.library.opcheck(attention_scores, (q, k), test_utils="test_faketensor")
