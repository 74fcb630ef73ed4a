"""Attention by masks and functions of scores, beside eager and torch.compile.

    python -m benchmarks.attention
    python -m benchmarks.attention window documents --length 4096 --heads 16 --threads 1

Milliseconds of a call, the least of several, each compiler and eager in turn; inference, float32.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from tabulate import tabulate
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import dynamo

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
ROUNDS = 5


def _flexible(mask: Callable[..., torch.Tensor], length: int) -> Attention:
    blocks = create_block_mask(mask, None, None, length, length, device="cpu")
    return lambda q, k, v: flex_attention(q, k, v, block_mask=blocks)


def _causal(length: int) -> torch.Tensor:
    places = torch.arange(length)
    return places[:, None] >= places


def _spelled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    scores = torch.where(_causal(q.shape[2]), scores, float("-inf"))
    return torch.softmax(scores, -1) @ v


def subjects(length: int) -> dict[str, Attention]:
    documents = torch.arange(length) // 512
    return {
        "window": _flexible(lambda b, h, i, j: (i >= j) & (i - j < 256), length),
        "documents": _flexible(
            lambda b, h, i, j: (documents[i] == documents[j]) & (i >= j), length
        ),
        "causal": _flexible(lambda b, h, i, j: i >= j, length),
        "distances": lambda q, k, v: flex_attention(
            q, k, v, score_mod=lambda score, b, h, i, j: score + (j - i) * 0.1
        ),
        "spelled out": _spelled,
        "a mask": lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=_causal(q.shape[2])
        ),
    }


def milliseconds(calls: list[Callable[[], torch.Tensor]]) -> list[float]:
    """The least time of a call of each, in turn."""
    least = [float("inf")] * len(calls)
    for call in calls:
        call()
    for _ in range(ROUNDS):
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            least[number] = min(least[number], time.perf_counter() - start)
    return [1e3 * seconds for seconds in least]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description=__doc__)
    parser.add_argument("subjects", nargs="*", help="by default all")
    parser.add_argument("--length", type=int, default=2048, help="queries and keys")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--size", type=int, default=64, help="elements of a head")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = subjects(options.length)
    if unknown := set(options.subjects) - set(found):
        parser.error(f"no subject {', '.join(unknown)}; the subjects are: {', '.join(found)}")
    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
    q, k, v = (torch.randn(1, options.heads, options.length, options.size) for _ in range(3))
    rows = []
    for name in options.subjects or found:
        fn = found[name]
        compiled = [fn, torch.compile(fn), dynamo.compile(fn)]
        with torch.no_grad():
            torch.testing.assert_close(compiled[2](q, k, v), fn(q, k, v), rtol=1e-4, atol=1e-5)
            eager, peer, ours = milliseconds([lambda one=one: one(q, k, v) for one in compiled])
        rows.append([name, eager, peer, ours, eager / ours, peer / ours])
    headers = ["", "eager ms", "torch.compile", "framegraph", "eager/ours", "torch.compile/ours"]
    print(tabulate(rows, headers=headers, tablefmt="github", floatfmt=".2f"))


if __name__ == "__main__":
    main()
