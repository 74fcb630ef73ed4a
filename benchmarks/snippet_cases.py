"""Snippets that models are written with, and rows of few elements: cases as of operator_cases."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, randn

Case = tuple[Any, Any, bool]
COUNTS = [4, 32, 256]


def rotary(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = q.chunk(2, -1)
    return q * cos + torch.cat([-b, a], -1) * sin


def rotary_pairs(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b, cos, sin = q[..., ::2], q[..., 1::2], cos[..., ::2], sin[..., ::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def gated(x: Tensor, w: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w
    return x + F.linear(F.silu(F.linear(h, gate)) * F.linear(h, up), down)


def top_p(logits: Tensor) -> Tensor:
    ordered, order = logits.sort(descending=True, dim=-1)
    p = ordered.softmax(-1)
    drop = p.cumsum(-1) - p > 0.9
    return logits.masked_fill(drop.scatter(1, order, drop), -float("inf")).softmax(-1)


def focal(x: Tensor, y: Tensor) -> Tensor:
    p, hit = x.sigmoid(), (y > 1).to(x.dtype)
    loss = F.binary_cross_entropy_with_logits(x, hit, reduction="none")
    return (loss * (1 - p * hit - (1 - p) * (1 - hit)) ** 2).mean()


def contrastive(a: Tensor, b: Tensor) -> Tensor:
    scores = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t() / 0.07
    t = torch.arange(len(a))
    return (F.cross_entropy(scores, t) + F.cross_entropy(scores.t(), t)) / 2


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    low, high = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    side = (high - low).clamp(min=0)
    both = side[..., 0] * side[..., 1]
    areas = [(x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b)]
    return both / (areas[0][:, None] + areas[1] - both)


def scan(u: Tensor, step: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    decay = torch.exp(-step.abs()[..., None] * a.abs())
    new, h, rows = (step * u)[..., None] * b[:, :, None], 0, []
    for t in range(u.shape[1]):
        h = decay[:, t] * h + new[:, t]
        rows.append((h * c[:, t, None]).sum(-1))
    return torch.stack(rows, 1)


def adamw(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v.abs() + 0.001 * g * g
    return p * (1 - 1e-4) - 1e-3 * (m / 0.5) / ((v / 0.3).sqrt() + 1e-8), m, v


def newton_schulz(g: Tensor) -> Tensor:
    x = g / (g.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.t()
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x


def _of(*sizes: Any) -> Any:
    """Inputs: n, of the size of a run, stands for None."""
    return lambda size: [randn([n or COUNTS[size] for n in s]) * 0.3 for s in sizes]


SNIPPETS: dict[str, Case] = {
    "rotary_heads": (rotary, _of((2, 8, None, 64), (None, 64), (None, 64)), True),
    "rotary_pairs": (rotary_pairs, _of((2, 8, None, 64), (None, 64), (None, 64)), True),
    "gated_mlp": (gated, _of((None, 256), (256,), (688, 256), (688, 256), (256, 688)), True),
    "top_p": (top_p, _of((4, None)), False),
    "focal": (focal, _of((64, None), (64, None)), True),
    "contrastive": (contrastive, _of((None, 128), (None, 128)), True),
    "box_iou": (box_iou, _of((None, 4), (None, 4)), True),
    "selective_scan": (
        scan,
        _of((2, 16, None), (2, 16, None), (None, 16), (2, 16, 16), (2, 16, 16)),
        True,
    ),
    "adamw": (adamw, _of(*[(256, None)] * 4), False),
    "newton_schulz": (newton_schulz, _of((128, None)), False),
    "softmax_of_three": (lambda x: x.softmax(-1), _of((64, None, 3)), True),
    "points_norm": (lambda x: x.norm(dim=-1), _of((64, None, 3)), True),
    "colours": (lambda x, m, b: x * m + b, _of((64, None, 3), (3,), (3,)), True),
    "cross_product": (torch.linalg.cross, _of((64, None, 3), (64, None, 3)), True),
}
