"""Fused kernels of the CPU and the kinds of input that each meets: what test_fused_kernels.py runs.

A row is a small program, the choices it needs among measured ways, and what the report tells where
the fused kernel took it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.inductor.convolution_cases import THEN, Then, innermost

Program = nn.Module
IMAGES = (2, 16, 9, 8)


class Function(nn.Module):
    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: torch.Tensor) -> Any:
        return self.fn(*args)


@dataclass(frozen=True)
class Row:
    """made: the program, after a seed. sizes: of its arguments. taken: what the report has of so
    many calls ({}).

    choose: the ways that are chosen where there is a choice, the first that there is. not_taken:
    the kinds of input that the kernel leaves to aten. none: those that eager refuses, or crashes
    at. wide: whether eager is right about NaN in float32 alone.
    """

    made: Callable[[], Program]
    sizes: Sequence[tuple[int, ...]]
    taken: str
    choose: tuple[str, ...] = ("generated",)
    not_taken: frozenset[str] = frozenset()
    none: frozenset[str] = frozenset()
    dtype: torch.dtype = torch.float32
    pairs: bool = False
    images: bool = False
    wide: bool = False
    close: float = 1e-4


def row(made: Any, *sizes: tuple[int, ...], taken: str, **more: Any) -> Row:
    for name in ("none", "not_taken"):
        more[name] = frozenset(more.get(name, "").split())
    return Row(made, sizes, taken, **more)


def of_images(made: Any, **more: Any) -> Row:
    return row(made, IMAGES, images=True, **more)


HALF: dict[str, Any] = {"dtype": torch.bfloat16, "close": 2e-2}
CONTIGUOUS = "stepped apart turned"


def function(fn: Callable[..., Any]) -> Callable[[], Program]:
    return lambda: Function(fn)


def layer(module: Callable[[], nn.Module], then: Callable[..., Any]) -> Callable[[], Program]:
    return lambda: Then(module(), then).eval()


# --- inputs ---------------------------------------------------------------------------------------


def ordinary(row: Row) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(size, generator=generator).to(row.dtype) for size in row.sizes]
    return [innermost(x) if row.images else x for x in made]


def special(x: torch.Tensor) -> torch.Tensor:
    """With NaN, infinities and a negative zero, spread over the elements."""
    made = x.clone(memory_format=torch.preserve_format)
    for place, value in enumerate((torch.nan, torch.inf, -torch.inf, -0.0)):
        number = (2 * place + 1) * made.numel() // 9
        made[torch.unravel_index(torch.tensor(number), made.shape)] = value
    return made


def in_memory_order(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    def changed(x: torch.Tensor) -> torch.Tensor:
        order = sorted(range(x.dim()), key=lambda d: -x.stride(d))
        back = [order.index(d) for d in range(x.dim())]
        return change(x.permute(order)).permute(back)

    return changed


@in_memory_order
def stepped(x: torch.Tensor) -> torch.Tensor:
    """The values at every second place of memory."""
    return x.repeat_interleave(2, -1)[..., ::2]


@in_memory_order
def apart(x: torch.Tensor) -> torch.Tensor:
    """The values in rows with a gap between them, behind an offset."""
    return F.pad(x, (3, 2))[..., 3 : 3 + x.shape[-1]]


def turned(x: torch.Tensor) -> torch.Tensor:
    """In another order: images with their pixels innermost, heads of a position side by side."""
    if not x.is_contiguous():
        return x.contiguous()
    one, other = (1, 2) if x.dim() == 4 else (0, 1)
    return x.transpose(one, other).contiguous().transpose(one, other)


# kind -> an argument of that kind, made from an ordinary one. Shared: the test gives it twice.
KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "ordinary": lambda x: x,
    "special": special,
    "empty": lambda x: x[:0],
    "stepped": stepped,
    "apart": apart,
    "turned": turned,
    "shared": lambda x: x,
}


# --- products -------------------------------------------------------------------------------------


def linear(then: Callable[..., Any]) -> Callable[[], Program]:
    return layer(lambda: nn.Linear(24, 40), then)


EPILOGUES: dict[str, Callable[[torch.Tensor], Any]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "gated": lambda y: y * y.sigmoid(),
    "hardswish": F.hardswish,
    "clamp": lambda y: y.clamp(-0.5, 0.5),
    "scale": lambda y: y * 0.125,
    "residual": lambda y: y + torch.linspace(-1, 1, 40),
    "mask": lambda y: y.masked_fill(torch.arange(40) % 3 == 0, -torch.inf),
    "cast": lambda y: y.bfloat16(),
    "layer_norm": lambda y: F.layer_norm(y, (40,)),
    "softmax": lambda y: y.softmax(-1),
    "sum": lambda y: y.sum(-1),
}


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(32, 48), nn.Linear(32, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.gate(x)) * self.up(x)


def of_two(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(x @ w.t())


def scaled(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.addmm(y, x, w.t(), beta=0.5, alpha=2.0).relu()


def batches(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (torch.bmm(x, y.transpose(1, 2)) * 0.25).softmax(-1)


def added_batches(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.baddbmm(x[..., :1], x, y.transpose(1, 2)).relu()


class Int8(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (48, 64), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(48))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch._weight_int8pack_mm(x, self.weight, self.scales.to(x.dtype))


class Narrow(nn.Module):
    """A weight of bfloat16 that products of float32 read."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(40, 24).bfloat16())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.float())


PRODUCTS = {
    **{
        f"generated {name}": row(linear(then), (12, 24), taken="product 12x24x40")
        for name, then in EPILOGUES.items()
    },
    "generated one row": row(linear(F.gelu), (1, 24), taken="product 1x24x40"),
    "gate and up": row(layer(Gated, torch.neg), (12, 32), taken="product 2 x 12x32x48"),
    "gate and up of pairs": row(
        layer(lambda: Gated().bfloat16(), torch.neg),
        (12, 32),
        taken="product 2 x 12x32x48",
        pairs=True,
        **HALF,
    ),
    "narrow weight": row(layer(Narrow, F.gelu), (12, 24), taken="product"),
    "int8": row(layer(Int8, F.silu), (12, 64), taken="product", none=CONTIGUOUS),
    "int8 by bfloat16": row(
        layer(Int8, F.silu), (12, 64), taken="product", none=CONTIGUOUS, **HALF
    ),
    "int8 by pairs": row(
        layer(Int8, F.silu), (12, 64), taken="product", none=CONTIGUOUS, pairs=True, **HALF
    ),
    "of pairs": row(
        layer(lambda: nn.Linear(32, 48).bfloat16(), F.gelu),
        (12, 32),
        taken="product",
        pairs=True,
        **HALF,
    ),
    "direct": row(
        function(of_two),
        (48, 32),
        (40, 32),
        taken="product 48x32x40",
        choose=("direct",),
        not_taken="stepped",
    ),
    "packed": row(linear(F.gelu), (12, 24), taken="by packed", choose=("packed",)),
    "plain": row(linear(F.gelu), (12, 24), taken="by plain", choose=("plain",)),
    "aten": row(linear(F.gelu), (12, 24), taken="add", choose=("aten",)),
    "addmm": row(function(scaled), (12, 24), (12, 40), (40, 24), taken="relu", none="empty"),
    "bmm": row(function(batches), (3, 12, 8), (3, 16, 8), taken="exp"),
    "baddbmm": row(function(added_batches), (3, 12, 8), (3, 16, 8), taken="relu"),
}

# --- convolutions ---------------------------------------------------------------------------------


def convolution(then: Any, *args: Any, **more: Any) -> Callable[[], Program]:
    return layer(lambda: nn.Conv2d(*args, **more), then)


def normed() -> nn.Module:
    norm = nn.BatchNorm2d(16)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    return nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), norm, nn.ReLU())


READERS = {name: THEN[name] for name in THEN if name not in ("itself", "cut")}


def convolutions(kind: str, taken: str, *args: Any, **more: Any) -> dict[str, Row]:
    """By what reads the result. Images that lie otherwise stay so where copies of them, at the
    graph's ends, would move more than the convolution's own.
    """
    choose = more.pop("choose", ("generated",))
    rows = {}
    for name, then in READERS.items():
        stays = kind == "pixel" and name != "pooled" or name in ("sum", "joined")
        rows[f"{kind} {name}"] = of_images(
            convolution(then, 16, 16, *args, **more),
            taken=taken,
            choose=choose,
            not_taken="stepped apart turned" if stays else "stepped apart",
        )
    return rows


CONVOLUTIONS = {
    **convolutions("pixel", "computes {} convolutions of one", 1),
    **convolutions("depthwise", "{} depthwise", 3, padding=1, groups=16),
    **convolutions("winograd", "and {} of other windows", 3, padding=1),
    **convolutions("library", "{} convolutions in the library", 3, padding=1, choose=("packed",)),
    "pairs": of_images(
        layer(lambda: nn.Conv2d(16, 16, 3, stride=2).bfloat16(), F.silu),
        taken="and {} of other windows",
        not_taken="stepped apart turned",
        pairs=True,
        **HALF,
    ),
    "batch norm": of_images(layer(normed, lambda y: y), taken="fold: {} batch norm"),
    "chain": of_images(
        layer(lambda: nn.Sequential(normed(), nn.MaxPool2d(2), normed()), torch.sigmoid),
        taken="of other windows",
    ),
    "grouped": of_images(convolution(F.relu, 16, 16, 3, groups=4), taken=""),
    "dilated": of_images(convolution(F.relu, 16, 16, 3, dilation=2), taken=""),
    "transposed": of_images(
        layer(lambda: nn.ConvTranspose2d(16, 8, 3, stride=2), F.relu),
        taken="",
    ),
    "1d": row(layer(lambda: nn.Conv1d(16, 8, 3), F.relu), (2, 16, 9), taken=""),
    "3d": row(layer(lambda: nn.Conv3d(4, 8, 3), F.relu), (2, 4, 5, 6, 7), taken=""),
}

# --- attention ------------------------------------------------------------------------------------

HEADS, KEYS = (2, 4, 20, 16), (2, 4, 24, 16)


def attended(**settings: Any) -> Callable[[], Program]:
    return function(functools.partial(F.scaled_dot_product_attention, **settings))


def spelled(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Program]:
    def of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return change(q @ k.transpose(-2, -1) * 0.25).softmax(-1) @ v

    return function(of)


def window(scores: torch.Tensor) -> torch.Tensor:
    i, j = torch.arange(scores.shape[-2])[:, None], torch.arange(scores.shape[-1])
    return scores.masked_fill((j > i) | (j < i - 3), -torch.inf)


ATTENTION = {
    "flash": row(attended(), HEADS, KEYS, KEYS, taken="attention: {} "),
    "causal": row(attended(is_causal=True), HEADS, HEADS, HEADS, taken="attention: {} "),
    "mask": row(attended(), HEADS, KEYS, KEYS, (2, 1, 20, 24), taken="attention: {} "),
    "one query": row(attended(), (2, 4, 1, 16), KEYS, KEYS, taken="attention: {} "),
    "grouped heads": row(
        attended(enable_gqa=True), HEADS, (2, 2, 24, 16), (2, 2, 24, 16), taken="attention: {} "
    ),
    "in bfloat16": row(
        attended(),
        HEADS,
        KEYS,
        KEYS,
        taken="attention: {} ",
        wide=True,
        choose=("float32",),
        **HALF,
    ),
    "attention by pairs": row(
        attended(),
        HEADS,
        KEYS,
        KEYS,
        taken="attention: {} ",
        wide=True,
        choose=("by pairs",),
        pairs=True,
        **HALF,
    ),
    "spelled": row(spelled(lambda s: s), HEADS, KEYS, KEYS, taken="attention: {} spelled"),
    "capped": row(
        spelled(lambda s: 3 * torch.tanh(s / 3)), HEADS, KEYS, KEYS, taken="attention: {} spelled"
    ),
    "window": row(spelled(window), HEADS, HEADS, HEADS, taken="attention: {} spelled"),
}

# --- recurrences ----------------------------------------------------------------------------------


def recurrent(kind: type[nn.RNNBase], **more: Any) -> Callable[[], Program]:
    return layer(lambda: kind(16, 24, batch_first=True, **more), lambda results: results)


RECURRENT = {
    **{
        f"{kind.__name__} {name}": row(
            recurrent(kind, **more),
            (5, 3, 16),
            taken="in the order of their steps",
        )
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
        for name, more in {
            "": {},
            "both ways": {"bidirectional": True},
            "layers": {"num_layers": 2},
        }.items()
    },
}

# --- loops ----------------------------------------------------------------------------------------


def running(x: torch.Tensor) -> Any:
    return x.cumsum(-1), x.cumsum(0), x.cumprod(-1), x.cummax(-1)[0], x.logcumsumexp(-1)


def of_all(x: torch.Tensor) -> Any:
    return x.sum(), x.mean(), x.var(), x.logsumexp((0, 1)), torch.linalg.vector_norm(x)


def of_rows(x: torch.Tensor) -> Any:
    two = x.var(-1), x.std(-1), x.logsumexp(-1), (x > 0).any(-1), x.isfinite().all(-1)
    return x.sum(-1), x.prod(-1), x.amax(-1), x.amin(-1), x.argmax(-1), x.argmin(-1), *two


def of_columns(x: torch.Tensor) -> Any:
    one = x.exp() * 2
    two = one.var(0), one.logsumexp(0), (one > 1).any(0), x.amax(0), x.argmax(0)
    return one.sum(0), one.mean(0), one.prod(0), *two


def moved(x: torch.Tensor) -> Any:
    indices = torch.arange(x.shape[1]).flip(0)
    sums = torch.zeros(x.shape[0], 5).index_add(1, indices % 5, x)
    return x.roll(2, 1), x[:, indices] * 2, torch.cat([x, -x], 1), x.flip(-1).tril(), sums


def losses(x: torch.Tensor, y: torch.Tensor) -> Any:
    place = torch.arange(x.shape[0]) % x.shape[1]
    return (
        F.cross_entropy(x, place),
        F.mse_loss(x, y),
        F.smooth_l1_loss(x, y),
        F.binary_cross_entropy_with_logits(x, y),
        F.kl_div(x, y),
        F.nll_loss(x, place),
        F.cosine_similarity(x, y),
        F.huber_loss(x, y, "none"),
    )


def pooled(x: torch.Tensor) -> Any:
    return (
        F.max_pool2d(x, 2),
        F.max_pool2d(x, 3, 2, 1),
        F.avg_pool2d(x, 2),
        F.avg_pool2d(x, 3, 2, 1),
        F.adaptive_avg_pool2d(x, 1),
        F.adaptive_avg_pool2d(x, (3, 2)),
        F.adaptive_max_pool2d(x, 2),
        F.lp_pool2d(x, 2, 2),
    )


def resized(x: torch.Tensor) -> Any:
    return (
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, size=(5, 7), mode="bilinear"),
        F.pad(x, (1, 2, 1, 0), mode="reflect"),
        F.pixel_shuffle(x, 2),
        F.interpolate(x, size=(4, 4), mode="bicubic"),
    )


def norms(x: torch.Tensor) -> Any:
    return (
        F.layer_norm(x, x.shape[1:]),
        F.rms_norm(x, x.shape[-1:]),
        F.softmax(x, -1),
        F.log_softmax(x, 0),
        F.normalize(x),
        F.softmin(x, 1),
    )


def image_norms() -> Program:
    batch, group = nn.BatchNorm2d(16), nn.GroupNorm(4, 16)
    batch.running_mean.normal_()
    norms = nn.ModuleList([batch.eval(), group, Function(F.instance_norm)])
    return Then(nn.Identity(), lambda x: [norm(x) for norm in norms])


LOOPS = {
    "pointwise": row(
        function(lambda x, y: (torch.exp(x) * y + x.clamp(-1, 1), torch.where(x > y, x, y))),
        (12, 24),
        (12, 24),
        taken="exp",
    ),
    "all": row(function(of_all), (12, 24), taken="sum"),
    "rows": row(function(of_rows), (12, 24), taken="sum"),
    "columns": row(function(of_columns), (70, 24), taken="sum", none="empty"),
    "running": row(function(running), (12, 24), taken=""),
    "moved": row(function(moved), (12, 24), taken=""),
    "losses": row(function(losses), (12, 24), (12, 24), taken=""),
    "pooled": of_images(function(pooled), taken="max"),
    "resized": of_images(function(resized), taken=""),
    "norms": row(function(norms), (12, 24), taken="exp"),
    "image norms": of_images(image_norms, taken="rsqrt"),
}

TABLES = (PRODUCTS, CONVOLUTIONS, ATTENTION, RECURRENT, LOOPS)
