"""Reductions as they are chosen for a GPU: `python -m tests.inductor.interpreting triton_rows
[NAME...]`. Few long rows in parts, rows that lie side by side, and how many kernels each takes.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F

from tests.inductor.triton_products import compiled, everywhere, listed, planned, rand

CASES = {}


def case(*examples, launches):
    def register(fn):
        CASES[fn.__name__] = fn, examples, launches
        return fn

    return register


@case(rand(100_000), launches=2)
def whole_sum(x):
    return (x * 2).sum()


@case(rand(40, 5000).half(), launches=1)
def sum_of_many_rows(x):
    return x.float().sum(1)


@case(rand(4096, 48), launches=2)
def sum_of_columns(x):
    """The gradient of a bias."""
    return (x * 2).sum(0)


@case(rand(3, 30_000), launches=3)
def sums_of_two_kinds(x):
    return x.sum(1), x.square().sum(1)


@case(torch.cat([rand(2, 20_000), torch.full((1, 20_000), float("nan"))]), launches=2)
def maxima_with_nan(x):
    return x.amax(1)


@case(rand(2, 20_000), launches=5)
def softmax_of_few_rows(x):
    return torch.softmax(x, -1)


@case(rand(300, 40), rand(40), rand(40), launches=1)
def layer_norm(x, w, b):
    return F.layer_norm(x, (40,), w, b)


@case(rand(300, 40), rand(40), launches=1)
def rms_norm(x, w):
    return F.rms_norm(x, (40,), w)


@case(rand(300, 50), torch.randint(0, 50, (300,)), launches=2)
def cross_entropy(x, target):
    return F.cross_entropy(x, target)


@case(rand(4, 8, 30, 30), launches=1)
def batch_norm_training(x):
    return F.relu(F.batch_norm(x, None, None, training=True))


@case(rand(4, 60, 64), rand(60), rand(60), launches=1)
def norm_of_channels(x, w, b):
    """Of rows that lie side by side."""
    mean = x.mean(1, keepdim=True)
    y = (x - mean) * torch.rsqrt((x - mean).square().mean(1, keepdim=True) + 1e-5)
    return y * w[:, None] + b[:, None]


@case(rand(16, 300, 32), launches=1)
def long_columns(x):
    return torch.softmax(x, 1)


# --- softmax of rows longer than a tile: one pass for maximum and sum (triton_online.py) ---


def odd_rows(columns):
    """Rows with infinities and NaN, in one lane of the tile's, in all, or where none was before."""
    x = rand(40, columns) * 30
    x[0], x[1] = float("-inf"), float("inf")
    x[2, ::2] = float("-inf")
    x[3, columns // 2] = float("inf")
    x[4, -1] = float("nan")
    x[5, :-1] = float("-inf")
    x[6, 1:] = float("-inf")
    x[7] = torch.arange(columns) * 0.01
    x[8] = torch.arange(columns) * -0.01
    return x


@case(odd_rows(4999), launches=1)
def softmax_of_odd_rows(x):
    return torch.softmax(x, -1)


@case(odd_rows(6144).double(), launches=1)
def log_softmax_of_odd_rows(x):
    return torch.log_softmax(x, -1)


@case(rand(40, 5000).half(), launches=1)
def softmax_of_half(x):
    return torch.softmax(x, -1)


@case(rand(40, 5000), rand(5000, seed=1) > 0, launches=1)
def masked_softmax(x, keep):
    return torch.softmax((x * 0.125).masked_fill(~keep, float("-inf")), -1)


@case(rand(40, 5000), launches=1)
def logsumexp(x):
    return torch.logsumexp(x, -1)


@case(rand(260, 5000), torch.randint(0, 5000, (260,)), launches=2)
def cross_entropy_of_long_rows(x, target):
    return F.cross_entropy(x, target)


def run(name, device="cpu"):
    fn, examples, launches = CASES[name]
    inputs = [x.clone().to(device) for x in examples]
    with torch.no_grad():
        spec, plan = planned(compiled(fn, inputs))
        got, want = plan(*inputs), listed(fn(*examples))
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.cpu(), w, rtol=1e-4, atol=1e-4, equal_nan=True)
    kinds = [step.kind for step in spec.steps if step.kind not in ("view", "check")]
    # On a device an operator, with kernels before, checks what the host does here.
    assert kinds == ["launch"] * launches or device != "cpu", spec.steps


def cases(*names):
    everywhere()
    return {name: partial(run, name) for name in names or CASES}
