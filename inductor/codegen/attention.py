"""C++ for attention: a call of the function of attention_tiles.h.

    extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
      const Attention<float> a = {(const float*)P[0] + 0, ..., 12, 128, 128, 64, {...}, ..., true};
      attention<float>(a, begin, end);
    }

The range counts blocks of queries, of each head of each sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from fxgraph.sizes import Extent, ceil_div, hint, product
from inductor import costs
from inductor.codegen.cpp_body import CPP_TYPES
from inductor.ir import Attention

# Of a block, and most of a unit (attention.h).
QUERIES = {torch.float32: (48, 768), torch.bfloat16: (64, 256)}


def unit_queries(step: Attention) -> int:
    """Queries of a unit: as many as leave enough units to all threads, since each unit puts the
    keys in panels anew; 0 if a unit has those of a group of heads.
    """
    dtype = step.q.buffer.dtype
    block, most = QUERIES[dtype]
    heads, queries = hint(product(step.q.size[:2])), hint(step.q.size[2])
    if dtype == torch.float32 and queries * group(step) <= costs.FEW_QUERIES:
        return 0
    parts = max(1, -(-costs.ATTENTION_UNITS * torch.get_num_threads() // max(heads, 1)))
    wanted = -(-queries // parts)
    return max(block, min(most, -(-wanted // block) * block))


def group(step: Attention) -> int:
    """How many heads share keys and values."""
    return hint(step.q.size[1]) // max(1, hint(step.k.size[1]))


def units(step: Attention) -> Extent:
    each = unit_queries(step)
    if each == 0:
        return product(step.k.size[:2])
    return product(step.q.size[:2]) * ceil_div(step.q.size[2], each)


def grain(step: Attention) -> int:
    """Units that are worth a thread's while."""
    each, queries = unit_queries(step), hint(step.q.size[2])
    rows = min(each, queries) if each else queries * group(step)
    work = 2 * rows * hint(step.k.size[2]) * hint(step.q.size[3]) // costs.MULTIPLICATIONS
    return max(1, costs.GRAIN_WORK // max(1, work))


def _truth(value: bool) -> str:
    return "true" if value else "false"


def label(step: Attention) -> str:
    q, k = step.q.size, step.k.size
    more = ", causal" if step.causal else ""
    if step.scores is not None:
        more = ", of a mask that is computed" if step.exact else ", of scores that are computed"
    heads = hint(product(q[:2]))
    return f"attention of {heads} heads, {hint(q[2])}x{hint(k[2])}x{hint(q[3])}{more}"


def numbers(step: Attention) -> dict[str, list[Extent]]:
    """The numbers of the kernel's description, besides pointers and settings."""
    _, heads, queries, size = step.q.size
    mask: list[Extent] = [0, 0, 0, 0] if step.mask is None else list(step.mask.stride)
    return {
        "offsets": [window.offset for window in step.operands],
        "sizes": [heads, group(step), queries, step.k.size[2], size],
        **{name: list(getattr(step, name).stride[:3]) for name in "qkv"},
        "out": list(step.target.stride[:3]),
        "mask": mask,
        "unit": [unit_queries(step)],
    }


def body(
    step: Attention, slot: Callable[[str], int], number: Mapping[str, Sequence[str]]
) -> list[str]:
    """Lines of the entry. slot: where a buffer is among the pointers. number: those of `numbers`,
    as text, and "functions", which describe the step's bodies.
    """
    given = dict(zip(map(id, step.bodies), number["functions"], strict=True))
    pointers = [
        f"(const {CPP_TYPES[window.buffer.dtype]}*)P[{slot(window.buffer.name)}] + {offset}"
        for window, offset in zip(step.operands, number["offsets"], strict=True)
    ]
    pointers += ["nullptr"] * (step.mask is None)
    kind = CPP_TYPES[step.target.dtype]
    pointers.append(f"({kind}*)P[{slot(step.target.name)}]")
    steps = [f"{{{', '.join(number[name])}}}" for name in ("q", "k", "v", "out", "mask")]
    fields = [*pointers, *number["sizes"], *steps, *number["unit"]]
    fields += [f"(float){step.scale!r}", _truth(step.causal)]
    fields += [given.get(id(one), "{}") for one in (step.scores, step.visible)]
    fields += [f"(float){step.bound!r}"]
    fields += map(_truth, (step.alike, step.exact, step.nothing_is_nan))
    return [
        f"  const Attention<{kind}> a = {{{', '.join(fields)}}};",
        f"  attention<{kind}>(a, begin, end);",
    ]
