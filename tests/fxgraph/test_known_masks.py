"""Masks of attention that the graph alone decides: none, or `is_causal`."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo
from fxgraph.passes import known_masks

ATTENTION = F.scaled_dot_product_attention


def captured(fn, *args, **options):
    found = []

    def backend(gm, inputs):
        found.append(gm)
        return gm.forward

    dynamo.reset()
    with torch.no_grad():
        dynamo.compile(fn, backend=backend, **options)(*args)
    (gm,) = found
    return gm


def qkv(queries=5, keys=5, batch=2):
    torch.manual_seed(0)
    return [torch.randn(batch, 2, n, 4) for n in (queries, keys, keys)]


def settings(gm):
    """(mask, is_causal) of each attention."""
    nodes = gm.graph.find_nodes(op="call_function", target=ATTENTION)
    return [
        (
            node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask"),
            bool(node.kwargs.get("is_causal", False)),
        )
        for node in nodes
    ]


def check(fn, *args, meaning):
    """The graph with known masks computes what the function does."""
    gm = captured(fn, *args)
    known, count = known_masks(gm)
    assert (count, known is gm) == ((0, True) if meaning is None else (1, False))
    ((mask, causal),) = settings(known)
    assert (mask is None, causal) == (meaning is not None, meaning == "causal")
    used = [n for n in gm.graph.nodes if n.op == "placeholder"]
    assert len([n for n in known.graph.nodes if n.op == "placeholder"]) == len(used)
    results = []

    def backend(gm, inputs):
        changed, _ = known_masks(gm)
        results.append(changed)
        return changed.forward

    dynamo.reset()
    with torch.no_grad():
        torch.testing.assert_close(dynamo.compile(fn, backend=backend)(*args), fn(*args))
    return known


def positions(n):
    return torch.arange(n)[:, None], torch.arange(n)[None]


def causal(q, k, v):
    i, j = positions(5)
    return ATTENTION(q, k, v, attn_mask=(j <= i)[None, None].expand(2, 1, -1, -1))


def causal_by_numbers(q, k, v):
    hidden = torch.full((5, 5), torch.finfo(q.dtype).min).triu(1)
    return ATTENTION(q, k, v, hidden, 0.0)


def causal_by_infinity(q, k, v):
    hidden = torch.zeros(5, 5).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf)
    return ATTENTION(q, k, v, attn_mask=hidden)


def everything(q, k, v):
    seen = torch.ones(2, 5, dtype=torch.bool)
    at = torch.arange(2)[:, None, None, None], torch.arange(5)[None, None, None, :]
    return ATTENTION(q, k, v, attn_mask=seen[at].expand(2, 1, 5, 5), scale=0.3)


def packed(q, k, v):
    """As models tell sequences that are packed into one: of one, here."""
    at = torch.arange(5)[None]
    sequence = (torch.diff(at, prepend=at[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    i, j = positions(5)
    same = sequence[0][i] == sequence[0][j]
    return ATTENTION(q, k, v, attn_mask=at.new_ones((), dtype=torch.bool) & same & (j <= i))


def window(q, k, v):
    i, j = positions(5)
    return ATTENTION(q, k, v, attn_mask=(j <= i) & (i - j < 3))


def backwards(q, k, v):
    i, j = positions(5)
    return ATTENTION(q, k, v, attn_mask=j >= i)


def bias(q, k, v):
    i, j = positions(5)
    return ATTENTION(q, k, v, attn_mask=(j - i).to(q.dtype))


def drawn(q, k, v):
    return ATTENTION(q, k, v, attn_mask=torch.rand(5, 5) >= 0)


def written(q, k, v):
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[0, 1:] = False
    return ATTENTION(q, k, v, attn_mask=mask)


def written_through_a_view(q, k, v):
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask.t().logical_and_(k[0, 0, :, :1] < 9)
    return ATTENTION(q, k, v, attn_mask=mask)


@pytest.mark.parametrize(
    ("fn", "meaning"),
    [
        (causal, "causal"),
        (causal_by_numbers, "causal"),
        (causal_by_infinity, "causal"),
        (packed, "causal"),
        (everything, "all"),
        (window, None),
        (backwards, None),
        (bias, None),
        (drawn, None),
        (written, None),
        (written_through_a_view, None),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_mask(fn, meaning):
    check(fn, *qkv(), meaning=meaning)


@pytest.mark.parametrize("queries", [3, 1, 7])
def test_fewer_and_more_queries_than_keys(queries):
    """`is_causal` lets query i see the keys up to i, from the first on."""

    def fn(q, k, v):
        i, j = torch.arange(queries)[:, None], torch.arange(5)[None]
        return ATTENTION(q, k, v, attn_mask=j <= i)

    check(fn, *qkv(queries), meaning="causal")


def test_a_mask_of_an_input_stays():
    mask = torch.ones(5, 5, dtype=torch.bool)

    def fn(q, k, v, mask):
        i, j = positions(5)
        return ATTENTION(q, k, v, attn_mask=(j <= i) & mask)

    check(fn, *qkv(), mask, meaning=None)


def test_a_length_that_varies_stays():
    def fn(q, k, v):
        i, j = positions(q.shape[-2])
        return ATTENTION(q, k, v, attn_mask=j <= i)

    gm = captured(fn, *qkv(), dynamic=True)
    assert known_masks(gm) == (gm, 0)


def test_what_only_the_mask_read_goes_and_the_rest_stays():
    def fn(q, k, v):
        i, j = positions(5)
        seen = j <= i
        return ATTENTION(q, k, v, attn_mask=seen), i + 1

    gm = captured(fn, *qkv())
    known, count = known_masks(gm)
    names = [node.name for node in known.graph.nodes if node.op.startswith("call")]
    assert count == 1 and "le" not in names and any("arange" in name for name in names)
    assert (
        len(gm.graph.find_nodes(op="call_function", target=ATTENTION)[0].kwargs) == 1
    )  # as it was


@pytest.mark.parametrize("training", [False, True])
def test_compiled(training):
    """By the default backend, with gradients."""
    with torch.set_grad_enabled(training):
        given = [x.requires_grad_(training) for x in qkv(40, 40)]

        def fn(q, k, v):
            i, j = positions(40)
            seen = j <= i
            return ATTENTION(q, k, v, attn_mask=seen) + ATTENTION(q, v, k, attn_mask=~(j > i))

        dynamo.reset()
        explained = dynamo.explain(dynamo.compile(fn))(*given)
        result, want = dynamo.compile(fn)(*given), fn(*given)
        torch.testing.assert_close(result, want)
        if training:
            got = torch.autograd.grad(result.square().sum(), given)
            for mine, theirs in zip(
                got, torch.autograd.grad(want.square().sum(), given), strict=True
            ):
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
        else:
            assert "attention: 2 masks known from the graph alone" in str(explained)
