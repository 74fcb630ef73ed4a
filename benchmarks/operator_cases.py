"""Operators and small groups of them: a function, its inputs at three sizes, whether it trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.layer_cases import LAYERS
from benchmarks.snippet_cases import SNIPPETS

Case = tuple[Callable[..., Any], Callable[[int], list[torch.Tensor]], bool]

ROWS = [(8, 16), (128, 256), (2048, 1024)]
IMAGES = [(1, 4, 8, 8), (2, 16, 32, 32), (4, 32, 112, 112)]
SIGNALS = [(1, 4, 16), (4, 32, 128), (8, 64, 2048)]
VOLUMES = [(1, 2, 4, 4, 4), (1, 8, 8, 16, 16), (2, 16, 16, 32, 32)]


def matrix(function: Callable[..., Any], trains: bool = True) -> Case:
    return function, lambda size: [torch.randn(ROWS[size])], trains


def image(function: Callable[..., Any], trains: bool = True) -> Case:
    return function, lambda size: [torch.randn(IMAGES[size])], trains


def signal(function: Callable[..., Any], trains: bool = True) -> Case:
    return function, lambda size: [torch.randn(SIGNALS[size])], trains


def volume(function: Callable[..., Any], trains: bool = True) -> Case:
    return function, lambda size: [torch.randn(VOLUMES[size])], trains


def with_row(function: Callable[..., Any]) -> Case:
    def make(size: int) -> list[torch.Tensor]:
        width = ROWS[size][1]
        return [torch.randn(ROWS[size]), torch.randn(width), torch.randn(width)]

    return function, make, True


def with_channels(function: Callable[..., Any], shapes: list[Any] = IMAGES) -> Case:
    def make(size: int) -> list[torch.Tensor]:
        c = shapes[size][1]
        return [torch.randn(shapes[size]), torch.randn(c), torch.randn(c)]

    return function, make, True


def labelled(function: Callable[..., Any]) -> Case:
    def make(size: int) -> list[torch.Tensor]:
        n, c = ROWS[size]
        return [torch.randn(n, c), torch.randint(c, (n,))]

    return function, make, True


def pair(function: Callable[..., Any], trains: bool = True) -> Case:
    return function, lambda size: [torch.randn(ROWS[size]), torch.randn(ROWS[size])], trains


def convolution(
    function: Callable[..., Any], shapes: list[Any], weight: Callable[[int], Any]
) -> Case:
    def make(size: int) -> list[torch.Tensor]:
        w = torch.randn(weight(shapes[size][1])) * 0.1
        return [torch.randn(shapes[size]), w]

    return function, make, True


def indexed(function: Callable[..., Any], trains: bool = True) -> Case:
    """A table, indices of its rows, and a source of as many rows."""

    def make(size: int) -> list[torch.Tensor]:
        rows, width = [(16, 8), (1000, 64), (20000, 256)][size]
        count = [6, 256, 4096][size]
        return [torch.randn(rows, width), torch.randint(rows, (count,)), torch.randn(count, width)]

    return function, make, trains


def products(function: Callable[..., Any], *shapes: Callable[[int, int], tuple[int, ...]]) -> Case:
    def make(size: int) -> list[torch.Tensor]:
        b, n = [(2, 4), (8, 32), (16, 128)][size]
        return [torch.randn(shape(b, n)) * 0.2 for shape in shapes]

    return function, make, True


def quantized(size: int) -> list[torch.Tensor]:
    n = [16, 256, 1024][size]
    return [torch.randn(1, n), torch.randint(-128, 127, (n, n), dtype=torch.int8), torch.rand(n)]


def grid(size: int) -> list[torch.Tensor]:
    n, c, h, w = IMAGES[size]
    return [torch.randn(n, c, h, w), torch.rand(n, h, w, 2) * 2 - 1]


def bags(size: int) -> list[torch.Tensor]:
    rows, width = [(16, 8), (1000, 64), (20000, 256)][size]
    count = [6, 256, 4096][size]
    return [torch.randn(rows, width), torch.randint(rows, (count // 2, 4))]


NORMS: dict[str, Case] = {
    "layer_norm": with_row(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b)),
    "layer_norm_plain": matrix(lambda x: F.layer_norm(x, x.shape[-1:])),
    "rms_norm": with_row(lambda x, w, b: F.rms_norm(x, x.shape[-1:], w)),
    "rms_by_hand": with_row(lambda x, w, b: w * (x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6))),
    "group_norm": with_channels(lambda x, w, b: F.group_norm(x, 2, w, b)),
    "group_norm_silu": with_channels(lambda x, w, b: F.silu(F.group_norm(x, 2, w, b))),
    "batch_norm_train": with_channels(lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
    "instance_norm": with_channels(lambda x, w, b: F.instance_norm(x, None, None, w, b)),
    "batch_norm_1d": with_channels(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True), SIGNALS
    ),
    "batch_norm_rows": with_row(lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
    "local_response_norm": image(lambda x: F.local_response_norm(x, 2)),
    "normalize": matrix(lambda x: F.normalize(x, dim=-1)),
    "normalize_columns": matrix(lambda x: F.normalize(x, dim=0)),
    "weight_norm": with_row(lambda x, w, b: x * (w / x.norm(dim=0))),
}

SOFTMAX: dict[str, Case] = {
    "softmax": matrix(lambda x: x.softmax(-1)),
    "softmax_columns": matrix(lambda x: x.softmax(0)),
    "softmax_channels": image(lambda x: x.softmax(1)),
    "log_softmax": matrix(lambda x: x.log_softmax(-1)),
    "log_softmax_columns": matrix(lambda x: x.log_softmax(0)),
    "softmin": matrix(lambda x: F.softmin(x, -1)),
    "logsumexp": matrix(lambda x: x.logsumexp(-1)),
    "logsumexp_columns": matrix(lambda x: x.logsumexp(0)),
    "gumbel": matrix(lambda x: ((x - (-x.sigmoid().log()).log()) / 0.5).softmax(-1)),
    "cross_entropy": labelled(lambda x, y: F.cross_entropy(x, y)),
    "cross_entropy_none": labelled(lambda x, y: F.cross_entropy(x, y, reduction="none")),
    "cross_entropy_smooth": labelled(lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)),
    "cross_entropy_soft": pair(lambda x, y: F.cross_entropy(x, y.softmax(-1))),
    "nll_loss": labelled(lambda x, y: F.nll_loss(x, y)),
    "bce_logits": pair(lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid())),
    "kl_div": pair(lambda x, y: F.kl_div(x, y, reduction="batchmean", log_target=True)),
    "mse": pair(lambda x, y: F.mse_loss(x, y)),
    "smooth_l1": pair(lambda x, y: F.smooth_l1_loss(x, y)),
    "cosine": pair(lambda x, y: F.cosine_similarity(x, y)),
    "margin": labelled(lambda x, y: F.multi_margin_loss(x, y)),
    "triplet": pair(lambda x, y: F.triplet_margin_loss(x, y, x.flip(0))),
}

SCANS: dict[str, Case] = {
    "cumsum": matrix(lambda x: x.cumsum(-1)),
    "cumsum_columns": matrix(lambda x: x.cumsum(0)),
    "cumprod": matrix(lambda x: x.cumprod(-1)),
    "cummax": matrix(lambda x: x.cummax(-1)),
    "logcumsumexp": matrix(lambda x: x.logcumsumexp(-1)),
    "sort": matrix(lambda x: x.sort(-1)),
    "sort_columns": matrix(lambda x: x.sort(0)),
    "argsort": matrix(lambda x: x.argsort(-1), False),
    "topk": matrix(lambda x: x.topk(4, -1)),
    "topk_columns": matrix(lambda x: x.topk(4, 0)),
    "median": matrix(lambda x: x.median(-1)),
    "kthvalue": matrix(lambda x: x.kthvalue(3, -1)),
    "diff": matrix(lambda x: x.diff(dim=-1)),
    "trapezoid": matrix(lambda x: torch.trapezoid(x, dim=-1)),
    "mode_softmax_topk": matrix(lambda x: x.softmax(-1).topk(2, -1)),
}

REDUCTIONS: dict[str, Case] = {
    "sum": matrix(lambda x: x.sum()),
    "sum_rows": matrix(lambda x: x.sum(-1)),
    "sum_columns": matrix(lambda x: x.sum(0)),
    "mean_images": image(lambda x: x.mean((2, 3))),
    "mean_channels": image(lambda x: x.mean(1, keepdim=True)),
    "prod": matrix(lambda x: x.prod(-1)),
    "argmax": matrix(lambda x: x.argmax(-1), False),
    "argmax_columns": matrix(lambda x: x.argmax(0), False),
    "argmin_all": matrix(lambda x: x.argmin(), False),
    "max": matrix(lambda x: x.max()),
    "max_rows": matrix(lambda x: x.max(-1)),
    "max_columns": matrix(lambda x: x.max(0)),
    "amax": matrix(lambda x: x.amax(-1)),
    "amin_columns": matrix(lambda x: x.amin(0)),
    "aminmax": matrix(lambda x: torch.aminmax(x), False),
    "min_max": matrix(lambda x: (x - x.min()) / (x.max() - x.min())),
    "std": matrix(lambda x: x.std(-1)),
    "var_columns": matrix(lambda x: x.var(0)),
    "std_mean": matrix(lambda x: torch.std_mean(x, -1)),
    "norm": matrix(lambda x: x.norm()),
    "norm_rows": matrix(lambda x: x.norm(dim=-1)),
    "norm_one": matrix(lambda x: torch.linalg.vector_norm(x, 1, dim=-1)),
    "norm_columns": matrix(lambda x: x.norm(dim=0)),
    "any": matrix(lambda x: (x > 2).any(-1), False),
    "all_columns": matrix(lambda x: (x < 2).all(0), False),
    "count_nonzero": matrix(lambda x: torch.count_nonzero(x > 0, -1), False),
    "isnan_any": matrix(lambda x: x.isnan().any(), False),
    "cdist": products(lambda x, y: torch.cdist(x, y), lambda b, n: (b * n, n), lambda b, n: (n, n)),
    "cdist_one": products(
        lambda x, y: torch.cdist(x, y, p=1), lambda b, n: (4 * n, n), lambda b, n: (n, n)
    ),
    "pairwise": pair(lambda x, y: F.pairwise_distance(x, y)),
}

INDEXING: dict[str, Case] = {
    "embedding": indexed(lambda t, i, s: F.embedding(i, t)),
    "embedding_padding": indexed(lambda t, i, s: F.embedding(i, t, padding_idx=0)),
    "embedding_scaled": indexed(lambda t, i, s: F.embedding(i, t) * 8 + s),
    "embedding_bag_sum": (lambda t, i: F.embedding_bag(i, t, mode="sum"), bags, True),
    "embedding_bag_mean": (lambda t, i: F.embedding_bag(i, t, mode="mean"), bags, True),
    "embedding_bag_max": (lambda t, i: F.embedding_bag(i, t, mode="max"), bags, True),
    "index_select": indexed(lambda t, i, s: t.index_select(0, i)),
    "index": indexed(lambda t, i, s: t[i]),
    "index_add": indexed(lambda t, i, s: t.index_add(0, i, s)),
    "index_copy": indexed(lambda t, i, s: t.index_copy(0, i, s)),
    "index_put": indexed(lambda t, i, s: t.index_put((i,), s)),
    "index_put_sum": indexed(lambda t, i, s: t.index_put((i,), s, accumulate=True)),
    "index_fill": indexed(lambda t, i, s: t.index_fill(0, i, 0.5)),
    "gather": indexed(lambda t, i, s: t[: len(i)].gather(1, i[:, None] % t.shape[1])),
    "gather_wide": indexed(lambda t, i, s: t.gather(0, i[:, None].expand(-1, t.shape[1]))),
    "scatter": indexed(lambda t, i, s: t.scatter(0, i[:, None].expand_as(s), s)),
    "scatter_add": indexed(lambda t, i, s: t.scatter_add(0, i[:, None].expand_as(s), s)),
    "scatter_reduce_mean": indexed(
        lambda t, i, s: t.scatter_reduce(0, i[:, None].expand_as(s), s, "mean")
    ),
    "scatter_reduce_max": indexed(
        lambda t, i, s: t.scatter_reduce(0, i[:, None].expand_as(s), s, "amax")
    ),
    "one_hot": indexed(lambda t, i, s: F.one_hot(i % 16, 16).float() + 0, False),
    "take_along": indexed(lambda t, i, s: s.take_along_dim(s.argsort(-1), -1)),
    "bincount": indexed(lambda t, i, s: torch.bincount(i, minlength=len(t)), False),
    "masked_fill": pair(lambda x, y: x.masked_fill(y > 0, -1e9)),
    "where": pair(lambda x, y: torch.where(x > 0, x, y)),
    "triu": matrix(lambda x: x.triu()),
    "tril_mask": matrix(lambda x: x.masked_fill(torch.ones_like(x).tril() == 0, 0)),
    "diagonal": matrix(lambda x: x.diagonal() * 2),
    "diag_embed": matrix(lambda x: torch.diag_embed(x[:32, :32])),
    "bucketize": pair(lambda x, y: torch.bucketize(x, y[0].sort().values), False),
    "searchsorted": pair(lambda x, y: torch.searchsorted(y.sort(-1).values, x), False),
    "isin": indexed(lambda t, i, s: torch.isin(i, torch.arange(8)), False),
    "embedding_positions": indexed(
        lambda t, i, s: F.embedding(i, t) + t[torch.arange(len(i)) % len(t)]
    ),
}

POOLING: dict[str, Case] = {
    "max_pool1d": signal(lambda x: F.max_pool1d(x, 2)),
    "avg_pool1d": signal(lambda x: F.avg_pool1d(x, 3, 2, 1)),
    "max_pool2d": image(lambda x: F.max_pool2d(x, 2)),
    "max_pool2d_3": image(lambda x: F.max_pool2d(x, 3, 2, 1)),
    "max_pool2d_indices": image(lambda x: F.max_pool2d(x, 2, return_indices=True)),
    "avg_pool2d": image(lambda x: F.avg_pool2d(x, 2)),
    "avg_pool2d_3": image(lambda x: F.avg_pool2d(x, 3, 1, 1)),
    "max_pool3d": volume(lambda x: F.max_pool3d(x, 2)),
    "avg_pool3d": volume(lambda x: F.avg_pool3d(x, 2)),
    "adaptive_avg1d": signal(lambda x: F.adaptive_avg_pool1d(x, 4)),
    "adaptive_avg2d_one": image(lambda x: F.adaptive_avg_pool2d(x, 1)),
    "adaptive_avg2d_seven": image(lambda x: F.adaptive_avg_pool2d(x, 7)),
    "adaptive_avg3d": volume(lambda x: F.adaptive_avg_pool3d(x, 2)),
    "adaptive_max2d": image(lambda x: F.adaptive_max_pool2d(x, 3)),
    "adaptive_max1d": signal(lambda x: F.adaptive_max_pool1d(x, 5)),
    "lp_pool2d": image(lambda x: F.lp_pool2d(x, 2, 2)),
    "max_unpool2d": image(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)),
}

RESIZING: dict[str, Case] = {
    "nearest": image(lambda x: F.interpolate(x, scale_factor=2)),
    "nearest_exact": image(lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact")),
    "bilinear": image(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")),
    "bilinear_corners": image(
        lambda x: F.interpolate(x, size=(24, 24), mode="bilinear", align_corners=True)
    ),
    "bilinear_down": image(lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear")),
    "bilinear_antialias": image(
        lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)
    ),
    "bicubic": image(lambda x: F.interpolate(x, scale_factor=2, mode="bicubic")),
    "area": image(lambda x: F.interpolate(x, size=(7, 7), mode="area")),
    "linear": signal(lambda x: F.interpolate(x, scale_factor=2, mode="linear")),
    "nearest_1d": signal(lambda x: F.interpolate(x, scale_factor=2)),
    "trilinear": volume(lambda x: F.interpolate(x, scale_factor=2, mode="trilinear")),
    "nearest_3d": volume(lambda x: F.interpolate(x, scale_factor=2)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), grid, True),
    "grid_sample_nearest": (
        lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=False),
        grid,
        True,
    ),
    "grid_sample_border": (
        lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True),
        grid,
        True,
    ),
    "affine_grid": image(lambda x: F.affine_grid(x[:, 0, :2, :3], list(x.shape))),
    "pixel_shuffle": image(lambda x: F.pixel_shuffle(x, 2)),
    "pixel_unshuffle": image(lambda x: F.pixel_unshuffle(x, 2)),
    "channel_shuffle": image(lambda x: F.channel_shuffle(x, 2)),
}

VIEWS: dict[str, Case] = {
    "pad": image(lambda x: F.pad(x, (1, 2, 1, 2))),
    "pad_negative": image(lambda x: F.pad(x, (-1, 2, 1, -2), value=1.0)),
    "pad_reflect": image(lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect")),
    "pad_replicate": image(lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate")),
    "pad_circular": image(lambda x: F.pad(x, (1, 2, 2, 1), mode="circular")),
    "roll": image(lambda x: x.roll((1, 2), (2, 3))),
    "flip": image(lambda x: x.flip(3)),
    "flip_rows": image(lambda x: x.flip(2)),
    "rot90": image(lambda x: x.rot90(1, (2, 3))),
    "unfold": image(lambda x: F.unfold(x, 3, padding=1)),
    "unfold_patches": image(lambda x: F.unfold(x, 4, stride=4)),
    "fold": image(lambda x: F.fold(F.unfold(x, 2, stride=2), x.shape[2:], 2, stride=2)),
    "unfold_view": signal(lambda x: x.unfold(-1, 8, 4).mean(-1)),
    "cat": pair(lambda x, y: torch.cat([x, y], -1)),
    "cat_rows": pair(lambda x, y: torch.cat([x, y], 0)),
    "cat_three_relu": pair(lambda x, y: torch.cat([x, y.relu(), x * y], -1)),
    "stack": pair(lambda x, y: torch.stack([x, y])),
    "stack_last": pair(lambda x, y: torch.stack([x, y], -1)),
    "transpose": matrix(lambda x: x.t().contiguous()),
    "permute": image(lambda x: x.permute(0, 2, 3, 1).contiguous()),
    "channels_last": image(lambda x: x.contiguous(memory_format=torch.channels_last)),
    "repeat": matrix(lambda x: x.repeat(2, 2)),
    "repeat_interleave": matrix(lambda x: x.repeat_interleave(2, 0)),
    "tile_expand": matrix(lambda x: x[:, None].expand(-1, 2, -1).reshape(-1, x.shape[1])),
    "split": matrix(lambda x: [p + 1 for p in x.chunk(4, -1)]),
    "slice_step": matrix(lambda x: x[:, ::2] * x[:, 1::2]),
    "rotary": matrix(lambda x: torch.cat([-x.chunk(2, -1)[1], x.chunk(2, -1)[0]], -1) * 2 + x),
    "dropout": matrix(lambda x: F.dropout(x, 0.1, True)),
    "dropout2d": image(lambda x: F.dropout2d(x, 0.1, True)),
    "clone": matrix(lambda x: x.clone()),
    "to_double": matrix(lambda x: x.double()),
    "to_half": matrix(lambda x: x.half()),
    "to_int": matrix(lambda x: x.int(), False),
    "meshgrid": matrix(lambda x: torch.meshgrid(x[0], x[1], indexing="ij")[0] * 1),
    "window_partition": image(
        lambda x: x.unflatten(3, (-1, 4)).unflatten(2, (-1, 4)).permute(0, 2, 4, 3, 5, 1).clone()
    ),
}

POINTWISE: dict[str, Case] = {
    "add": pair(lambda x, y: x + y),
    "add_scalar": matrix(lambda x: x + 1),
    "relu": matrix(lambda x: x.relu()),
    "gelu": matrix(lambda x: F.gelu(x)),
    "gelu_tanh": matrix(lambda x: F.gelu(x, approximate="tanh")),
    "silu_gate": pair(lambda x, y: F.silu(x) * y),
    "glu": matrix(lambda x: F.glu(x)),
    "mish": matrix(lambda x: F.mish(x)),
    "softplus": matrix(lambda x: F.softplus(x)),
    "elu": matrix(lambda x: F.elu(x)),
    "selu": matrix(lambda x: F.selu(x)),
    "hardswish": matrix(lambda x: F.hardswish(x)),
    "leaky_relu": matrix(lambda x: F.leaky_relu(x)),
    "prelu": (
        lambda x, w: F.prelu(x, w),
        lambda size: [torch.randn(IMAGES[size]), torch.rand(IMAGES[size][1])],
        True,
    ),
    "pow": matrix(lambda x: x.abs() ** 1.7),
    "pow_tensor": pair(lambda x, y: x.abs() ** y),
    "exp_log": matrix(lambda x: (x.abs() + 1).log().exp()),
    "sin_cos": matrix(lambda x: x.sin() + x.cos()),
    "atan2": pair(lambda x, y: torch.atan2(x, y)),
    "tan": matrix(lambda x: x.tan()),
    "asin": matrix(lambda x: (x * 0.1).asin()),
    "erfinv": matrix(lambda x: (x * 0.1).erfinv()),
    "lgamma": matrix(lambda x: (x.abs() + 1).lgamma()),
    "digamma": matrix(lambda x: (x.abs() + 1).digamma()),
    "expm1_log1p": matrix(lambda x: x.abs().log1p() + x.expm1()),
    "sinh": matrix(lambda x: x.sinh() + x.cosh()),
    "log2": matrix(lambda x: x.abs().log2() + x.abs().log10()),
    "remainder": matrix(lambda x: x % 0.7),
    "fmod": matrix(lambda x: x.fmod(0.7)),
    "floor_divide": matrix(lambda x: x // 0.3, False),
    "round": matrix(lambda x: x.round() + x.floor() + x.trunc()),
    "clamp": matrix(lambda x: x.clamp(-1, 1)),
    "lerp": pair(lambda x, y: torch.lerp(x, y, 0.3)),
    "logaddexp": pair(lambda x, y: torch.logaddexp(x, y)),
    "xlogy": pair(lambda x, y: torch.xlogy(x.abs(), y.abs())),
    "hypot": pair(lambda x, y: torch.hypot(x, y)),
    "sigmoid_log": matrix(lambda x: F.logsigmoid(x)),
    "erfc": matrix(lambda x: x.erfc()),
    "sinc": matrix(lambda x: torch.sinc(x)),
    "nan_to_num": matrix(lambda x: x.nan_to_num()),
    "integers": indexed(lambda t, i, s: (i * 3 + 1) % 7, False),
    "complex": pair(
        lambda x, y: torch.view_as_complex(torch.stack([x.float(), y.float()], -1)) * 2j
    ),
    "polar": pair(lambda x, y: torch.polar(x.float().abs(), y.float()).real),
    "rotary_complex": pair(
        lambda x, y: torch.view_as_real(
            torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
            * torch.view_as_complex(y.float().unflatten(-1, (-1, 2)))
        ).flatten(-2)
    ),
    "adam": pair(lambda x, y: x - 0.1 * y / ((y * y * 0.001).sqrt() + 1e-8), False),
    "uniform": matrix(lambda x: torch.rand_like(x) + x),
    "normal": matrix(lambda x: torch.randn_like(x) + x),
    "bernoulli": matrix(lambda x: torch.bernoulli(x.sigmoid()) * x),
}

PRODUCTS: dict[str, Case] = {
    "bmm": products(lambda x, y: x @ y, lambda b, n: (b, n, n), lambda b, n: (b, n, n)),
    "bmm_transposed": products(
        lambda x, y: x @ y.mT, lambda b, n: (b, n, n), lambda b, n: (b, n, n)
    ),
    "bmm_broadcast": products(lambda x, y: x @ y, lambda b, n: (b, 2, n, n), lambda b, n: (n, n)),
    "bmm_one": products(lambda x, y: x @ y, lambda b, n: (b, 2, n, n), lambda b, n: (1, 2, n, n)),
    "bmm_vector": products(lambda x, y: x @ y, lambda b, n: (b, n, n), lambda b, n: (b, n, 1)),
    "mv": products(lambda x, y: x @ y, lambda b, n: (4 * n, 4 * n), lambda b, n: (4 * n,)),
    "dot": products(lambda x, y: x @ y, lambda b, n: (4 * n,), lambda b, n: (4 * n,)),
    "outer": products(lambda x, y: torch.outer(x, y), lambda b, n: (4 * n,), lambda b, n: (n,)),
    "linear": products(
        lambda x, w, b: F.linear(x, w, b),
        lambda b, n: (b * n, 2 * n),
        lambda b, n: (4 * n, 2 * n),
        lambda b, n: (4 * n,),
    ),
    "linear_gelu": products(
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        lambda b, n: (b * n, 2 * n),
        lambda b, n: (4 * n, 2 * n),
        lambda b, n: (4 * n,),
    ),
    "linear_row": products(
        lambda x, w: F.linear(x, w), lambda b, n: (1, 8 * n), lambda b, n: (8 * n, 8 * n)
    ),
    "bilinear_form": products(
        lambda x, y, w: F.bilinear(x, y, w),
        lambda b, n: (b, n),
        lambda b, n: (b, n),
        lambda b, n: (8, n, n),
    ),
    "einsum_heads": products(
        lambda x, y: torch.einsum("bihd,bjhd->bhij", x, y),
        lambda b, n: (b, n, 4, 16),
        lambda b, n: (b, n, 4, 16),
    ),
    "einsum_values": products(
        lambda x, y: torch.einsum("bhij,bjhd->bihd", x, y),
        lambda b, n: (b, 4, n, n),
        lambda b, n: (b, n, 4, 16),
    ),
    "einsum_diagonal": products(
        lambda x, y: torch.einsum("bij,bij->b", x, y),
        lambda b, n: (b, n, n),
        lambda b, n: (b, n, n),
    ),
    "einsum_chain": products(
        lambda x, y, z: torch.einsum("bi,ij,bj->b", x, y, z),
        lambda b, n: (b, n),
        lambda b, n: (n, n),
        lambda b, n: (b, n),
    ),
    "baddbmm": products(
        lambda x, y, z: torch.baddbmm(z, x, y, alpha=0.5),
        lambda b, n: (b, n, n),
        lambda b, n: (b, n, n),
        lambda b, n: (b, n, n),
    ),
    "kron": products(lambda x, y: torch.kron(x, y), lambda b, n: (n, n), lambda b, n: (4, 4)),
    "attention": products(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        *[lambda b, n: (b, 4, n, 32)] * 3,
    ),
    "attention_causal": products(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *[lambda b, n: (b, 4, n, 32)] * 3,
    ),
    "attention_by_hand": products(
        lambda q, k, v: (q @ k.mT * 0.2).softmax(-1) @ v, *[lambda b, n: (b, 4, n, 32)] * 3
    ),
    "attention_one_query": products(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        lambda b, n: (b, 4, 1, 32),
        *[lambda b, n: (b, 4, n, 32)] * 2,
    ),
    "int8_row": (lambda x, w, s: torch.ops.aten._weight_int8pack_mm(x, w, s), quantized, False),
    "int8_by_hand": (lambda x, w, s: F.linear(x, w.to(x.dtype)) * s, quantized, False),
}

CONVOLUTIONS: dict[str, Case] = {
    "conv1d": convolution(lambda x, w: F.conv1d(x, w, padding=1), SIGNALS, lambda c: (2 * c, c, 3)),
    "conv1d_depthwise": convolution(
        lambda x, w: F.conv1d(x, w, padding=3, groups=len(w)), SIGNALS, lambda c: (c, 1, 7)
    ),
    "conv1d_causal": convolution(
        lambda x, w: F.conv1d(F.pad(x, (3, 0)), w, groups=len(w)), SIGNALS, lambda c: (c, 1, 4)
    ),
    "conv1d_dilated": convolution(
        lambda x, w: F.conv1d(x, w, padding=4, dilation=4), SIGNALS, lambda c: (c, c, 3)
    ),
    "conv1d_strided": convolution(
        lambda x, w: F.conv1d(x, w, stride=2), SIGNALS, lambda c: (c, c, 5)
    ),
    "conv2d": convolution(lambda x, w: F.conv2d(x, w, padding=1), IMAGES, lambda c: (c, c, 3, 3)),
    "conv2d_one": convolution(lambda x, w: F.conv2d(x, w), IMAGES, lambda c: (2 * c, c, 1, 1)),
    "conv2d_strided": convolution(
        lambda x, w: F.conv2d(x, w, stride=2, padding=1), IMAGES, lambda c: (c, c, 3, 3)
    ),
    "conv2d_patches": convolution(
        lambda x, w: F.conv2d(x, w, stride=4), IMAGES, lambda c: (4 * c, c, 4, 4)
    ),
    "conv2d_depthwise": convolution(
        lambda x, w: F.conv2d(x, w, padding=1, groups=len(w)), IMAGES, lambda c: (c, 1, 3, 3)
    ),
    "conv2d_grouped": convolution(
        lambda x, w: F.conv2d(x, w, padding=1, groups=2), IMAGES, lambda c: (c, c // 2, 3, 3)
    ),
    "conv2d_dilated": convolution(
        lambda x, w: F.conv2d(x, w, padding=2, dilation=2), IMAGES, lambda c: (c, c, 3, 3)
    ),
    "conv2d_relu": convolution(
        lambda x, w: F.conv2d(x, w, padding=1).relu(), IMAGES, lambda c: (c, c, 3, 3)
    ),
    "conv3d": convolution(
        lambda x, w: F.conv3d(x, w, padding=1), VOLUMES, lambda c: (c, c, 3, 3, 3)
    ),
    "conv3d_one": convolution(lambda x, w: F.conv3d(x, w), VOLUMES, lambda c: (c, c, 1, 1, 1)),
    "conv3d_patches": convolution(
        lambda x, w: F.conv3d(x, w, stride=2), VOLUMES, lambda c: (4 * c, c, 2, 2, 2)
    ),
    "conv_transpose1d": convolution(
        lambda x, w: F.conv_transpose1d(x, w, stride=2), SIGNALS, lambda c: (c, c, 4)
    ),
    "conv_transpose2d": convolution(
        lambda x, w: F.conv_transpose2d(x, w, stride=2), IMAGES, lambda c: (c, c, 2, 2)
    ),
    "conv_transpose2d_4": convolution(
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), IMAGES, lambda c: (c, c, 4, 4)
    ),
    "conv_transpose3d": convolution(
        lambda x, w: F.conv_transpose3d(x, w, stride=2), VOLUMES, lambda c: (c, c, 2, 2, 2)
    ),
}

GROUPS: dict[str, dict[str, Case]] = {
    "norms": NORMS,
    "softmaxes": SOFTMAX,
    "scans": SCANS,
    "reductions": REDUCTIONS,
    "indexing": INDEXING,
    "pooling": POOLING,
    "resizing": RESIZING,
    "views": VIEWS,
    "pointwise": POINTWISE,
    "products": PRODUCTS,
    "convolutions": CONVOLUTIONS,
    "layers": LAYERS,
    "snippets": SNIPPETS,
}
