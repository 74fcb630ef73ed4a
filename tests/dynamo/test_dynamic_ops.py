"""Operators over sizes that vary: the second size compiles for all."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import dynamo
from backends.aot_eager import aot_eager
from tests.dynamo.dynamic_support import Counting, check

WEIGHT = torch.randn(5, 8)
BIAS = torch.randn(5)
KERNEL = torch.randn(4, 3, 3, 3)
KERNEL_1D = torch.randn(4, 8, 3)
TABLE = torch.randn(11, 6)

# One tensor of size (n, 8); n varies.
ROWS = {
    "add": lambda x: x + 1,
    "mul_size": lambda x: x * x.size(0),
    "div_size": lambda x: x / x.shape[0],
    "sub_size": lambda x: x.shape[0] - x,
    "mean_by_hand": lambda x: x.sum() / x.numel(),
    "sum": lambda x: x.sum(0),
    "sum_last": lambda x: x.sum(-1, keepdim=True),
    "mean": lambda x: x.mean(0),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(0),
    "max": lambda x: x.max(0),
    "min": lambda x: x.min(1).indices,
    "amax": lambda x: x.amax((0, 1)),
    "argmax": lambda x: x.argmax(0),
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "linspace": lambda x: torch.linspace(0, 1, x.size(0)) * x[:, 0],
    "linspace_down": lambda x: torch.linspace(3, -1.5, steps=x.size(0) + 1, dtype=torch.float64),
    "linspace_between": lambda x: torch.linspace(1 / x.size(0), x.size(0), 2 * x.size(0) - 1),
    "linspace_with_gradient": lambda x: (
        torch.linspace(-1, 1, x.size(0), requires_grad=True) + x[0, 0]
    ),
    "tensor_of_size": lambda x: x * torch.tensor(x.size(0)),
    "tensor_of_sizes": lambda x: x.sum() * torch.tensor([[x.size(0), 2], [3.5, 8 / x.size(0)]]),
    "tensor_of_tensors": lambda x: torch.tensor([x.size(0), x.sum(), 3]),
    "tensor_of_dtype": lambda x: torch.tensor([x.size(0) / 3], dtype=torch.float64),
    "tensor_of_half": lambda x: torch.tensor(x.size(0) / 3, dtype=torch.bfloat16) * x,
    "new_tensor_of_sizes": lambda x: x.new_tensor(x.shape).prod() + x,
    "as_tensor_of_size": lambda x: torch.as_tensor([1e300 * x.size(0)]) + x,
    "broadcast_shapes": lambda x: x[:, 0].expand(torch.broadcast_shapes(x.shape[:1], (3, 1), ())),
    "broadcast_sizes": lambda x: x.new_ones(torch.broadcast_shapes(x.shape, x.shape[:1] + (1,), 8)),
    "logsumexp": lambda x: x.logsumexp(0),
    "cumsum": lambda x: x.cumsum(0),
    "prod": lambda x: x.prod(1),
    "norm": lambda x: x.norm(),
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "where": lambda x: torch.where(x > 0, x, -x),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
    "linear": lambda x: F.linear(x, WEIGHT, BIAS),
    "matmul": lambda x: x @ x.t(),
    "matmul_t": lambda x: x.t() @ x,
    "mv": lambda x: x @ torch.ones(8),
    "outer": lambda x: torch.outer(x[:, 0], x[0]),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "rms_norm": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "normalize": lambda x: F.normalize(x, dim=1),
    "view_flat": lambda x: x.view(-1),
    "view_split": lambda x: x.view(x.size(0), 2, 4),
    "view_size": lambda x: x.view(x.size(0) * 2, 4),
    "view_inferred": lambda x: x.view(-1, 4),
    "reshape": lambda x: x.t().reshape(-1),
    "flatten": lambda x: x.view(-1, 2, 4).flatten(1),
    "unflatten": lambda x: x.unflatten(1, (2, 4)),
    "transpose": lambda x: x.transpose(0, 1).contiguous(),
    "t_add": lambda x: x.t() + 1,
    "permute": lambda x: x.view(x.size(0), 2, 4).permute(2, 0, 1).contiguous(),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "expand": lambda x: x.unsqueeze(0).expand(3, -1, -1) + 0,
    "expand_size": lambda x: torch.ones(1, 8).expand(x.size(0), 8) + x,
    "expand_as": lambda x: torch.ones(1, 8).expand_as(x) * x,
    "repeat": lambda x: x.repeat(2, 1),
    "repeat_size": lambda x: torch.ones(8).repeat(x.size(0), 1) + x,
    "tile": lambda x: x.tile((1, 2)),
    "cat": lambda x: torch.cat([x, x]),
    "cat_mixed": lambda x: torch.cat([x, torch.zeros(2, 8)]),
    "cat_last": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x], 1),
    "vstack": lambda x: torch.vstack([x, x]),
    "slice_head": lambda x: x[:2],
    "slice_tail": lambda x: x[-2:],
    "slice_one": lambda x: x[1:],
    "slice_but_last": lambda x: x[:-1],
    "slice_inner": lambda x: x[1:-1],
    "slice_half": lambda x: x[: x.size(0) // 2],
    "slice_column": lambda x: x[:, 2:5],
    "slice_step": lambda x: x[:, ::2],
    "select": lambda x: x[0],
    "select_last": lambda x: x[-1],
    "select_size": lambda x: x[x.size(0) - 1],
    "narrow": lambda x: x.narrow(0, 1, 2),
    "narrow_size": lambda x: x.narrow(0, 1, x.size(0) - 1),
    "split_columns": lambda x: x.split(4, dim=1),
    "chunk_columns": lambda x: x.chunk(2, dim=1),
    "unbind_columns": lambda x: x.unbind(1)[0],
    "gather": lambda x: x.gather(0, torch.zeros(2, 8, dtype=torch.long)),
    "index_select": lambda x: x.index_select(0, torch.tensor([0, 1])),
    "index": lambda x: x[torch.tensor([0, 2])],
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "triu": lambda x: x.triu(),
    "tril": lambda x: x.tril(1),
    "diagonal": lambda x: (x @ x.t()).diagonal(),
    "pad": lambda x: F.pad(x, (1, 1)),
    "pad_rows": lambda x: F.pad(x, (0, 0, 1, 2), value=1.0),
    "zeros": lambda x: torch.zeros(x.size(0), 3),
    "ones_like": lambda x: torch.ones_like(x) + x,
    "full": lambda x: torch.full((x.size(0),), 2.0),
    "full_size": lambda x: torch.full((2,), x.size(0)),
    "empty_fill": lambda x: torch.empty(x.shape).fill_(1.0),
    "fill_diagonal": lambda x: (x * 2).fill_diagonal_(3.5),
    "new_zeros": lambda x: x.new_zeros(x.size(0) + 1),
    "arange": lambda x: torch.arange(x.size(0)),
    "arange_from": lambda x: torch.arange(1, x.size(0) + 1),
    "arange_float": lambda x: torch.arange(x.size(0), dtype=torch.float32) + x[:, 0],
    "eye": lambda x: torch.eye(x.size(0)),
    "causal_mask": lambda x: torch.ones(x.size(0), x.size(0)).tril(),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "attention_by_hand": lambda x: (x @ x.t() / math.sqrt(x.size(1))).softmax(-1) @ x,
    "sort": lambda x: x.sort(0),
    "topk": lambda x: x.topk(2, 0),
    "any": lambda x: (x > 1).any(0),
    "all": lambda x: (x > -10).all(),
    "eq_sum": lambda x: (x == x.max()).sum(),
    "broadcast": lambda x: x + torch.arange(8),
    "broadcast_rows": lambda x: x * x[:, :1],
    "one_hot": lambda x: F.one_hot(x[:, 0].long() * 0, 3),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(x.size(0), dtype=torch.long)),
    "mse": lambda x: F.mse_loss(x, torch.zeros_like(x)),
    "dropout_eval": lambda x: F.dropout(x, 0.5, training=False) + 1,
    "bmm": lambda x: torch.bmm(x.view(-1, 2, 4), x.view(-1, 4, 2)),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "addmm": lambda x: torch.addmm(BIAS, x, WEIGHT.t()),
    "conv1d": lambda x: F.conv1d(x.t()[None], KERNEL_1D, padding=1),
    "avg_pool1d": lambda x: F.avg_pool1d(x[None], 2),
    "cumulative": lambda x: x.cumsum(0) / torch.arange(1, x.size(0) + 1)[:, None],
    "inplace_add": lambda x: x.add_(1),
    "inplace_row": lambda x: x[0].mul_(2),
    "inplace_slice": lambda x: x[1:].zero_(),
    "setitem": lambda x: x.__setitem__(0, 1.0),
    "setitem_column": lambda x: x.__setitem__((slice(None), 0), 0.0),
    "copy": lambda x: torch.empty_like(x).copy_(x),
    "clone_strided": lambda x: x.t().clone(),
    "to_double": lambda x: x.double(),
    "long": lambda x: (x * 10).long(),
    "type_promotion": lambda x: x.half() + 1.5,
    "lerp": lambda x: torch.lerp(x, x * 2, 0.5),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "diff": lambda x: x[1:] - x[:-1],
    "movedim": lambda x: x.movedim(0, 1) * 1,
    "swapaxes": lambda x: x.swapaxes(0, 1).sum(0),
    "meshgrid": lambda x: torch.meshgrid(x[:, 0], x[0], indexing="ij"),
    "cdist": lambda x: torch.cdist(x, x),
    "cosine": lambda x: F.cosine_similarity(x, x * 2),
    "embedding": lambda x: F.embedding(x[:, :2].long().clamp(0, 10), TABLE),
    "view_as": lambda x: (x * 2).view_as(x),
    "numel_scaled": lambda x: x * (1.0 / x.numel()),
    "glu": lambda x: F.glu(x, 1),
    "std_mean": lambda x: torch.std_mean(x, 0),
    "clamp_min": lambda x: x.clamp_min(0.1),
    "fold_heads": lambda x: x.view(1, -1, 2, 4).transpose(1, 2).reshape(2, -1, 4),
    "as_returned": lambda x: (x, x.t(), x[1:]),
    "empty_result": lambda x: x[:0],
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(name):
    torch.manual_seed(0)
    fn = ROWS[name]
    check(lambda x: fn(x), [(torch.randn(n, 8),) for n in (4, 7, 3, 12)], compiles=2)


@pytest.mark.parametrize("device", [None, "meta"])
def test_linspace_is_torchs_own_to_the_last_bit(device):
    """The kernel's vectors decide last bits: the graph calls it, on the default device."""

    def fn(n):
        return torch.linspace(0, 1, n), torch.linspace(
            -1.5, 2, n, dtype=torch.float64, device="cpu"
        )

    counting = Counting(lambda gm, _: gm)
    compiled = dynamo.compile(fn, backend=counting)
    torch.set_default_device(device)
    try:
        for n in (4, 5, 10, 30, 1, 0):
            for made, wanted in zip(compiled(n), fn(n)):
                assert made.device == wanted.device and made.shape == wanted.shape
                assert made.is_meta or torch.equal(made, wanted)
    finally:
        torch.set_default_device(None)
    assert len(counting.graphs) <= 4


def test_reading_a_tensor_of_sizes():
    """Its values are those of the call: read, they are constants, and nothing breaks."""

    def fn(x):
        sizes = torch.tensor([x.size(0), 3])
        return x * sizes.max().item(), x[: sizes[0] - 1]

    check(fn, [(torch.randn(n, 2),) for n in (4, 7, 5, 4)], compiles=3)


# Two sizes vary: (n, m).
GRIDS = {
    "matmul": lambda x: x @ x.t(),
    "flatten": lambda x: x.flatten(),
    "reshape": lambda x: x.t().reshape(-1),
    "view": lambda x: x.view(x.size(1), x.size(0)),
    "cat_rows": lambda x: torch.cat([x, x[:1]]),
    "cat_columns": lambda x: torch.cat([x, x[:, :1]], 1),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "cond_of_values": lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)),
    "root_of_size": lambda x: x * x.size(0) ** 0.5,
    "mean": lambda x: x.mean(),
    "size_product": lambda x: x * (x.size(0) * x.size(1)),
    "size_sum": lambda x: torch.zeros(x.size(0) + x.size(1)),
    "sum_of_both": lambda x: x.sum(0).sum() + x.sum(1).sum(),
    "transposed": lambda x: x.t().contiguous().view(-1),
    "expanded": lambda x: x[:, None, :].expand(-1, 2, -1).reshape(-1, x.size(1)),
    "pairs": lambda x: x[:, None] - x[None, :],
    "softmax": lambda x: x.softmax(0) + x.softmax(1),
    "outer": lambda x: torch.outer(x[:, 0], x[0]),
    "mask": lambda x: torch.ones(x.size(0), x.size(1)).triu() * x,
    "norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "pad": lambda x: F.pad(x, (0, 3, 1, 0)),
    "arange": lambda x: torch.arange(x.numel()).view(x.shape) + x,
    "unfolded": lambda x: x.unsqueeze(2).repeat(1, 1, 2).flatten(1),
    "sizes": lambda x: (x + 1, x.size(), x.shape[0], x.numel(), x.nbytes),
    "stacked": lambda x: torch.stack([x, x]).permute(1, 2, 0).contiguous(),
    "einsum": lambda x: torch.einsum("ij,ij->i", x, x),
    "bmm": lambda x: torch.bmm(x[None], x.t()[None]),
}


@pytest.mark.parametrize("name", GRIDS)
def test_grids(name):
    torch.manual_seed(0)
    fn = GRIDS[name]
    sizes = [(3, 4), (5, 7), (9, 2), (2, 11)]
    check(lambda x: fn(x), [(torch.randn(*size),) for size in sizes], compiles=2)


def test_a_conditional_on_sizes():
    """One graph for each side, once sizes vary."""

    def fn(x):
        return torch.cond(x.size(0) > 4, lambda y: y + 1, lambda y: y - 1, (x,))

    check(fn, [(torch.randn(n),) for n in (3, 5, 9, 2, 4, 6)], compiles=3)


IMAGES = {
    "conv": lambda x: F.conv2d(x, KERNEL),
    "conv_padded": lambda x: F.conv2d(x, KERNEL, padding=1),
    "conv_strided": lambda x: F.conv2d(x, KERNEL, stride=2, padding=1),
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "avg_pool": lambda x: F.avg_pool2d(x, 3, stride=1, padding=1),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)),
    "group_norm": lambda x: F.group_norm(x, 3),
    "patches": lambda x: x.unfold(2, 2, 2).sum(-1),
    "flatten": lambda x: x.flatten(2).transpose(1, 2).contiguous(),
    "mean": lambda x: x.mean((2, 3)),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images(name):
    torch.manual_seed(0)
    fn = IMAGES[name]
    sizes = [(2, 3, 8, 10), (3, 3, 12, 6), (5, 3, 6, 14)]
    check(lambda x: fn(x), [(torch.randn(*size),) for size in sizes], compiles=2)


@pytest.mark.parametrize("draw", [torch.rand, torch.randn, partial(torch.randint, 0, 9)])
def test_draws_without_a_generator(draw):
    def fn(x, generator=None):
        return x + draw(x.shape, generator=generator, dtype=x.dtype, layout=torch.strided)

    counting = Counting(aot_eager)
    compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
    for n in (4, 7, 3):
        x = torch.ones(n, 2)
        torch.manual_seed(n)
        expected = fn(x)
        torch.manual_seed(n)
        assert torch.equal(compiled(x), expected)
    assert len(counting.graphs) == 2
