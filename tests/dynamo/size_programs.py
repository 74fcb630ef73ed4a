"""Programs whose inputs have 0, 1 and many rows: name -> (function, shapes of its inputs).

A shape is a text in which n is the size of the call: "n 4" floats, "i n" integers from 0 to 3,
"b n" a mask. Several are separated by commas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import dynamo
from backends.aot_eager import aot_eager
from tests.dynamo.dynamic_support import Counting, same

torch.manual_seed(0)
LINEAR, NORM, BATCH_NORM = nn.Linear(4, 4), nn.LayerNorm(4), nn.BatchNorm1d(4)
BATCH_NORM_EVAL = nn.BatchNorm1d(4).eval()
GROUP_NORM, CONV1, CONV2 = nn.GroupNorm(2, 4), nn.Conv1d(4, 6, 3, padding=1), nn.Conv2d(4, 3, 3)
UP = nn.ConvTranspose1d(4, 3, 3)
EMBEDDING, RMS = nn.Embedding(4, 4), nn.RMSNorm(4)
BAG = nn.EmbeddingBag(4, 4)
ATTENTION = nn.MultiheadAttention(4, 2, batch_first=True)
ENCODER = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
GRU, LSTM = nn.GRU(4, 3, batch_first=True), nn.LSTM(4, 3)
BILINEAR, PRELU = nn.Bilinear(4, 4, 2), nn.PReLU()
MLP = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4), nn.LayerNorm(4))


def heads(x: torch.Tensor) -> torch.Tensor:
    b, t, c = x.shape
    q = x.view(b, t, 2, c // 2).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(b, t, c)


def causal(x: torch.Tensor) -> torch.Tensor:
    scores = x @ x.transpose(-1, -2) / math.sqrt(x.shape[-1])
    mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    return scores.masked_fill(mask, -9.0).softmax(-1) @ x


def padded_batch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    longest = max(len(x), len(y))
    return torch.stack([F.pad(t, (0, 0, 0, longest - len(t))) for t in (x, y)])


def grown(x: torch.Tensor) -> torch.Tensor:
    out = x.new_zeros(len(x) + 2, 4)
    out[1:-1] = x
    return out


def standardised(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:, 1:3] += 1
    y.relu_()
    return y


def written(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x + 1


def asks_empty(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.numel() == 0 else x.amax(0)


def asks_one(x: torch.Tensor) -> torch.Tensor:
    return x.squeeze(0) + 1 if x.shape[0] == 1 else x * 2


def loops(x: torch.Tensor) -> torch.Tensor:
    total = x.new_zeros(4)
    for row in x:
        total = total * 0.5 + row
    return total


def rope(x: torch.Tensor) -> torch.Tensor:
    angle = torch.arange(x.shape[1])[:, None] * torch.tensor([0.1, 0.2])
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def nearest(x: torch.Tensor) -> torch.Tensor:
    return torch.cdist(x, x).sort(-1).values


def contrastive(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    scores = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).t()
    return F.cross_entropy(scores, torch.arange(len(x)))


Program = tuple[Callable[..., Any], str]
PROGRAMS: dict[str, Program] = {
    # -- by element, broadcasting
    "pointwise": (lambda x: (x * 2 + 1).relu(), "n 4"),
    "of_one_dimension": (lambda x: x.sin() + 1, "n"),
    "inner": (lambda x: x.exp() * 2, "4 n"),
    "both": (lambda x: x.tanh() - x, "n n"),
    "middle": (lambda x: F.gelu(x), "2 n 4"),
    "with_a_row": (lambda x, y: x + y, "n 4, 4"),
    "with_a_column": (lambda x, y: x * y, "n 4, n 1"),
    "with_alike": (lambda x, y: x * y + y, "n 4, n 4"),
    "outer": (lambda x, y: x[:, None] * y[None], "n, n"),
    "plane": (lambda x, y: x[:, None] - y[None], "n 4, 3 4"),
    "where": (lambda x: torch.where(x > 0, x, 0.0), "n 4"),
    "masked": (lambda x, m: x.masked_fill(m[:, None], -1.0), "n 4, b n"),
    "clamped": (lambda x: x.clamp(-1, 1) + x.clamp_min(0), "n 4"),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), "n 4, n 4"),
    "addcmul": (lambda x, y: torch.addcmul(x, x, y, value=0.5), "n 4, n 4"),
    "to_double": (lambda x: x.double() + x.half(), "n 4"),
    "compared": (lambda x: (x > 0) & (x < 1), "n 4"),
    "logic": (lambda x: (x > 0).all() | (x < 0).any(), "n 4"),
    "arithmetic_of_integers": (lambda i: i // 2 + i % 3, "i n"),
    "complex": (lambda x: torch.complex(x, x).abs(), "n 4"),
    "prelu": (lambda x: PRELU(x), "n 4"),
    "glu": (lambda x: F.glu(x, -1), "n 4"),
    # -- reductions
    "sums": (lambda x: (x.sum(0), x.sum(1), x.sum()), "n 4"),
    "means": (lambda x: (x.mean(0), x.mean(1), x.mean()), "n 4"),
    "maximum_inside": (lambda x: x.amax(1) + x.max(1).values, "n 4"),
    "maximum": (lambda x: x.amax(0), "n 4"),
    "maximum_of_all": (lambda x: x.max(), "n 4"),
    "argmax": (lambda x: x.argmax(0), "n 4"),
    "argmax_inside": (lambda x: x.argmax(1), "n 4"),
    "variance": (lambda x: x.var(0), "n 4"),
    "deviation": (lambda x: x.std(0, correction=0), "n 4"),
    "standardised": (standardised, "n 4"),
    "products": (lambda x: (x.prod(0), x.prod()), "n 4"),
    "norms": (lambda x: (x.norm(dim=0), x.norm(dim=1), torch.linalg.vector_norm(x)), "n 4"),
    "normalized": (lambda x: F.normalize(x, dim=0) + F.normalize(x, dim=1), "n 4"),
    "logsumexp": (lambda x: (x.logsumexp(1), x.logsumexp(0)), "n 4"),
    "softmax": (lambda x: x.softmax(0) + x.log_softmax(1), "n 4"),
    "softmax_of_sequence": (lambda x: x.softmax(-1), "2 n"),
    "median": (lambda x: x.median(1).values, "n 4"),
    "quantile": (lambda x: x.quantile(0.5, 1), "n 4"),
    "all_and_any": (lambda x: ((x > 0).all(0), (x > 0).any(1)), "n 4"),
    "counted": (lambda x: torch.count_nonzero(x, 0), "n 4"),
    "cumulated": (lambda x: x.cumsum(0) + x.cumsum(1), "n 4"),
    "cumulated_products": (lambda x: x.cumprod(0), "n 4"),
    "cumulated_maxima": (lambda x: x.cummax(0).values, "n 4"),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), "n 4"),
    "differences": (lambda x: x.diff(dim=0), "n 4"),
    "sorted": (lambda x: x.sort(0).values + x.sort(1, descending=True).values, "n 4"),
    "largest": (lambda x: x.topk(2, 1).values, "n 4"),
    # -- products
    "linear": (lambda x: LINEAR(x), "n 4"),
    "linear_of_planes": (lambda x: LINEAR(x), "2 n 4"),
    "linear_of_batches": (lambda x: LINEAR(x), "n 3 4"),
    "linear_of_both": (lambda x: LINEAR(x), "n n 4"),
    "mlp": (lambda x: MLP(x), "n 4"),
    "gram": (lambda x: x @ x.t(), "n 4"),
    "inner_gram": (lambda x: x.t() @ x, "n 4"),
    "times_vector": (lambda x, v: x @ v, "n 4, 4"),
    "vector_times": (lambda x, v: v @ x, "n 4, n"),
    "dot": (lambda x, y: x @ y, "n, n"),
    "batched": (lambda x, y: x @ y, "n 3 4, n 4 2"),
    "batched_sequence": (lambda x, y: x @ y, "2 n 4, 2 4 n"),
    "batched_by_matrix": (lambda x, y: x @ y, "n 3 4, 4 2"),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), "n 3 4, n 4 2"),
    "einsum_of_heads": (lambda x, y: torch.einsum("nc,mc->nm", x, y), "n 4, n 4"),
    "einsum_outer": (lambda x, y: torch.einsum("n,m->nm", x, y), "n, n"),
    "bilinear": (lambda x, y: BILINEAR(x, y), "n 4, n 4"),
    "addmm": (lambda b, x, y: torch.addmm(b, x, y), "n 4, n 4, 4 4"),
    "baddbmm": (lambda b, x, y: torch.baddbmm(b, x, y, beta=0.5), "n 3 2, n 3 4, n 4 2"),
    "outer_product": (lambda x, y: torch.outer(x, y), "n, n"),
    "kron": (lambda x: torch.kron(x, torch.eye(2)), "n 4"),
    "distances": (lambda x: torch.cdist(x, x), "n 4"),
    "cosine": (lambda x, y: F.cosine_similarity(x, y), "n 4, n 4"),
    "nearest": (nearest, "n 4"),
    # -- layers
    "layer_norm": (lambda x: NORM(x), "n 4"),
    "layer_norm_of_planes": (lambda x: NORM(x) + x, "2 n 4"),
    "rms_norm": (lambda x: RMS(x), "n 4"),
    "batch_norm": (lambda x: BATCH_NORM(x), "n 4"),
    "batch_norm_eval": (lambda x: BATCH_NORM_EVAL(x), "n 4"),
    "batch_norm_of_sequence": (lambda x: BATCH_NORM(x), "2 4 n"),
    "group_norm": (lambda x: GROUP_NORM(x), "n 4 3"),
    "instance_norm": (lambda x: F.instance_norm(x), "n 4 3"),
    "convolution": (lambda x: CONV1(x).relu(), "n 4 5"),
    "convolution_of_sequence": (lambda x: CONV1(x), "2 4 n"),
    "convolution_2d": (lambda x: CONV2(x).relu(), "n 4 5 5"),
    "transposed_convolution": (lambda x: UP(x), "n 4 5"),
    "max_pool": (lambda x: F.max_pool1d(x, 2), "n 4 6"),
    "max_pool_2d": (lambda x: F.max_pool2d(x, 2), "n 4 6 6"),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2), "n 4 6 6"),
    "adaptive_pool": (lambda x: F.adaptive_avg_pool2d(x, 1), "n 4 6 6"),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), "n 4 5"),
    "interpolate_linear": (lambda x: F.interpolate(x, size=7, mode="linear"), "n 4 5"),
    "interpolate_sequence": (lambda x: F.interpolate(x, scale_factor=2), "2 4 n"),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), "n 4 3 3"),
    "unfold_windows": (lambda x: F.unfold(x, 2), "n 4 4 4"),
    "embedding": (lambda i: EMBEDDING(i), "i n"),
    "embedding_of_sequences": (lambda i: EMBEDDING(i).mean(1), "i 2 n"),
    "bag": (lambda i: BAG(i), "i n 3"),
    "one_hot": (lambda i: F.one_hot(i, 4), "i n"),
    "dropout_eval": (lambda x: F.dropout(x, 0.5, False) * 2, "n 4"),
    "attention": (heads, "n 3 4"),
    "attention_of_sequence": (heads, "2 n 4"),
    "attention_of_both": (heads, "n n 4"),
    "multihead": (lambda x: ATTENTION(x, x, x)[0], "n 3 4"),
    "multihead_of_sequence": (lambda x: ATTENTION(x, x, x, need_weights=False)[0], "2 n 4"),
    "encoder": (lambda x: ENCODER(x), "n 3 4"),
    "encoder_of_sequence": (lambda x: ENCODER(x), "2 n 4"),
    "gru": (lambda x: GRU(x)[0], "n 3 4"),
    "gru_of_sequence": (lambda x: GRU(x)[0], "2 n 4"),
    "lstm": (lambda x: LSTM(x)[0], "3 n 4"),
    "causal": (causal, "n 3 4"),
    "causal_of_sequence": (causal, "2 n 4"),
    "rope": (rope, "2 n 4"),
    # -- losses
    "squares": (lambda x, y: F.mse_loss(x, y), "n 4, n 4"),
    "smooth_l1": (lambda x, y: F.smooth_l1_loss(x, y), "n 4, n 4"),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), "n 4, i n"),
    "cross_entropy_of_sequence": (
        lambda x, t: F.cross_entropy(x.view(-1, 4), t.view(-1)),
        "2 n 4, i 2 n",
    ),
    "cross_entropy_sum": (lambda x, t: F.cross_entropy(x, t, reduction="sum"), "n 4, i n"),
    "likelihood": (lambda x, t: F.nll_loss(x.log_softmax(1), t), "n 4, i n"),
    "with_logits": (lambda x: F.binary_cross_entropy_with_logits(x, x.detach() * 0), "n 4"),
    "divergence": (
        lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
        "n 4, n 4",
    ),
    "contrastive": (contrastive, "n 4, n 4"),
    "triplet": (lambda x, y: F.triplet_margin_loss(x, y, y.flip(1)), "n 4, n 4"),
    # -- views and copies
    "transposed": (lambda x: x.t() * 2, "n 4"),
    "transposed_copy": (lambda x: (x * 2).t().contiguous(), "n 4"),
    "permuted": (lambda x: (x * 2).permute(2, 0, 1), "n 3 4"),
    "permuted_sum": (lambda x: (x.permute(1, 2, 0) + 1).sum(0), "n 3 4"),
    "flattened": (lambda x: (x * 2).flatten(1), "n 3 4"),
    "flattened_all": (lambda x: (x * 2).flatten(), "n 4"),
    "viewed": (lambda x: (x * 2).view(-1, 2), "n 4"),
    "viewed_by_rows": (lambda x: x.view(len(x), -1) * 2, "n 3 4"),
    "reshaped_by_rows": (lambda x: x.reshape(-1, len(x)) * 2, "n 4"),
    "split_heads": (lambda x: x.view(x.shape[0], 2, 2).transpose(0, 1) + 1, "n 4"),
    "alias": (lambda x: (x.view(-1), x * 2), "n 4"),
    "slice_alias": (lambda x: (x[:, :2], x * 2), "n 4"),
    "expanded": (lambda x: x[:, None].expand(-1, 3, -1) * 2, "n 4"),
    "expanded_rows": (lambda x, y: y.expand(len(x), -1) + x, "n 4, 1 4"),
    "repeated": (lambda x: x.repeat(2, 1) + 1, "n 4"),
    "tiled": (lambda x: x.tile(2), "n 4"),
    "interleaved": (lambda x: x.repeat_interleave(2, 0), "n 4"),
    "squeezed": (lambda x: x.squeeze(0) * 2, "n 4"),
    "unsqueezed": (lambda x: x.unsqueeze(1).unsqueeze(0) * 2, "n 4"),
    "concatenated": (lambda x, y: torch.cat([x, y]), "n 4, 3 4"),
    "concatenated_alike": (lambda x, y: torch.cat([x, y * 2]), "n 4, n 4"),
    "concatenated_columns": (lambda x, y: torch.cat([x, y], 1), "n 4, n 2"),
    "concatenated_vectors": (lambda x, y: torch.cat([x, y]), "n, n 4"),
    "stacked": (lambda x: torch.stack([x, x * 2]), "n 4"),
    "stacked_inside": (lambda x: torch.stack([x, x * 2], -1), "n 4"),
    "chunks": (lambda x: sum(x.chunk(2, 1)), "n 4"),
    "split": (lambda x: x.split([1, 3], 1)[1] * 2, "n 4"),
    "unbound": (lambda x: x.unbind(1)[2] + 1, "n 4"),
    "windows": (lambda x: x.unfold(1, 2, 1).sum(-1), "n 4"),
    "first": (lambda x: x[0] * 2, "n 4"),
    "last": (lambda x: x[-1] * 2, "n 4"),
    "last_of_sequence": (lambda x: x[:, -1] * 2, "2 n 4"),
    "tail": (lambda x: x[1:] * 2, "n 4"),
    "shifted": (lambda x: x[1:] - x[:-1], "n 4"),
    "head": (lambda x: x[:2] + 1, "n 4"),
    "every_other": (lambda x: x[::2] + 1, "n 4"),
    "narrowed": (lambda x: x.narrow(1, 1, 2) * 2, "n 4"),
    "selected_column": (lambda x: x[:, 1] * 2, "n 4"),
    "gathered": (lambda x, i: x.gather(1, i[:, None]), "n 4, i n"),
    "indexed": (lambda x, i: x[i] * 2, "4 4, i n"),
    "indexed_pairs": (lambda x, i: x[torch.arange(len(x)), i], "n 4, i n"),
    "index_select": (lambda x, i: x.index_select(1, i), "4 4, i n"),
    "index_add": (lambda x, i: torch.zeros(4, 4).index_add(0, i, x), "n 4, i n"),
    "scattered": (lambda x, i: torch.zeros(4).scatter_add(0, i, x), "n, i n"),
    "index_put": (lambda x, i: x.new_zeros(4).index_put((i,), x, True), "n, i n"),
    "rolled": (lambda x: x.roll(1, 0), "n 4"),
    "rolled_inside": (lambda x: x.roll(1, 1), "n 4"),
    "flipped": (lambda x: x.flip(0) + x.flip(1), "n 4"),
    "padded": (lambda x: F.pad(x, (0, 0, 1, 2)), "n 4"),
    "padded_batch": (padded_batch, "n 4, 3 4"),
    "reflected": (lambda x: F.pad(x, (1, 1), mode="reflect"), "n 4"),
    "reflected_sequence": (lambda x: F.pad(x, (1, 1), mode="reflect"), "2 n"),
    "triangles": (lambda x: x.tril() + x.triu(1), "n n"),
    "diagonal": (lambda x: x.diagonal() * 2, "n n"),
    "diag_embed": (lambda x: torch.diag_embed(x), "n 4"),
    "rotated": (lambda x: torch.rot90(x), "n 4"),
    "meshgrid": (lambda x, y: sum(torch.meshgrid(x, y, indexing="ij")), "n, n"),
    # -- creation
    "counted_up": (lambda x: torch.arange(len(x)) * 2, "n 4"),
    "positions": (lambda x: x + torch.arange(x.shape[0])[:, None], "n 4"),
    "made": (lambda x: torch.zeros(len(x), 3) + x.new_ones(3), "n 4"),
    "made_square": (lambda x: torch.eye(len(x)) + 1, "n 4"),
    "spaced": (lambda x: torch.linspace(0, 1, len(x)) + x, "n"),
    "made_like": (lambda x: torch.zeros_like(x) + torch.full_like(x, 2), "n 4"),
    "scaled_by_size": (lambda x: x / len(x) if len(x) else x, "n 4"),
    "number_of_rows": (lambda x: x * x.shape[0] + x.numel(), "n 4"),
    "root_of_size": (lambda x: x * math.sqrt(x.shape[0]), "n 4"),
    # -- writes
    "in_place": (in_place, "n 4"),
    "written": (written, "n 4"),
    "grown": (grown, "n 4"),
    "zeroed": (lambda x: x.clone().zero_() + 1, "n 4"),
    "filled_row": (lambda x: x.index_fill(1, torch.tensor([1]), 0.0), "n 4"),
    # -- questions
    "asks_empty": (asks_empty, "n 4"),
    "asks_one": (asks_one, "n 4"),
    "asks_contiguous": (lambda x: x * 2 if x.is_contiguous() else x * 3, "n 4"),
    "loops": (loops, "n 4"),
}


SIZES = (5, 1, 0, 7, 2, 1)
ORDERS = {
    "dynamic": (SIZES, True),
    "automatic": (SIZES, None),
    "small_first": ((1, 0, 5, 2, 1), None),
}
# Not compared in training: torch's backward of pixel_shuffle fails for no rows, and compiled code
# does not; of one row, gradients of `transposed` and `einsum` have another stride in the dimension
# of size 1.
NOT_TRAINED = {"pixel_shuffle", "transposed", "einsum"}


def made(shape: str, n: int) -> torch.Tensor:
    """The tensor of a shape, as the table writes it."""
    kind, *dims = shape.split() if shape.split()[0] in "ib" else ("f", *shape.split())
    size = [n if dim == "n" else int(dim) for dim in dims]
    count = torch.Size(size).numel()
    if kind == "f":
        return torch.linspace(-1, 1, count).view(size) if count else torch.empty(size)
    numbers = (torch.arange(count) * 3 % 4).view(size)
    return numbers if kind == "i" else numbers > 1


def leaves(found: Any) -> list[torch.Tensor]:
    return [t for t in (found if isinstance(found, tuple) else (found,)) if t is not None]


def outcome(function: Callable[..., Any], given: list[torch.Tensor], train: bool) -> Any:
    """The effect of one call: results, gradients, inputs after it, or the exception."""
    tensors = [t.clone().requires_grad_(train and t.is_floating_point()) for t in given]
    torch.manual_seed(0)
    try:
        found = leaves(function(*[t * 1 if t.requires_grad else t for t in tensors]))
        if train:
            total = sum((t.float() * t).sum() for t in found if t.requires_grad)
            if isinstance(total, torch.Tensor):
                total.backward()
    except Exception as error:
        return type(error), str(error)
    return [t.detach() for t in found], [t.grad for t in tensors], [t.detach() for t in tensors]


def agrees(name: str, n: int, plain: Any, mine: Any) -> None:
    if isinstance(plain[0], type) or isinstance(mine[0], type):
        assert plain == mine, (name, n, plain, mine)
        return
    try:
        same(plain, mine)
    except AssertionError as error:
        raise AssertionError(f"{name} at {n}: {error}") from error


def floats(name: str) -> bool:
    return any(shape.strip()[0] not in "ib" for shape in PROGRAMS[name][1].split(","))


def graphs_of(
    name: str, train: bool, order: str, backend: Callable[..., Any] = aot_eager
) -> tuple[int, list[Any]]:
    """How many graphs the sizes of an order need, and why; results are compared with eager's."""
    function, shapes = PROGRAMS[name]
    sizes, dynamic = ORDERS[order]
    counting = Counting(backend)
    compiled = dynamo.compile(function, backend=counting, dynamic=dynamic)
    for n in sizes:
        given = [made(shape.strip(), n) for shape in shapes.split(",")]
        agrees(name, n, outcome(function, given, train), outcome(compiled, given, train))
    return len(counting.graphs), [r.recompile_reason for r in compiled.context.records]
