"""Attention by generated code.

before                                          after
    r = aten._scaled_dot_product_flash_         y = framegraph.attention(q, k, v, mask, scale,
            attention_for_cpu(q, k, v)                                   causal)
    y = r[0]

One kernel for the scores, the softmax and the sum of values (codegen/attention.h). Inference alone:
a backward needs the logarithm besides. Half precision is multiplied by pairs of bfloat16 or copied
to float32, unless the library is faster on this processor, or there are few queries, as in
decoding, for which copies of all keys are too much. Left to aten: heads of more elements than the
kernel has room for.

Heads that share keys read them once, also where the program repeats the keys for each head:

    k = aten.view(aten.clone(aten.expand(aten.unsqueeze(keys, 2), ...)), ...)

Measured with AVX-512 on Zen 5, one thread (heads, heads of keys, queries x keys x size; µs of the
library, of generated code):
    12, 12, 1x128x64      20   12    12, 12, 4x1024x64   244  159    32, 8, 1x1024x128   513   203
    12, 12, 1x1024x64    118   95    12, 12, 8x1024x64   369  306    32, 8, 2x4000x64   2111  1068
and of bfloat16 with AMX, one thread (sequences and heads, queries x keys x size):
    12, 128x128x64  182  127    12, 1024x1024x64  8599  6968    128, 49x49x32  672  360
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.graph import Graph
from fxgraph.node import Node
from fxgraph.sizes import Undecided, hint
from inductor import costs, panel_sample
from inductor.lowering.symbolic import GraphSizes
from inductor.measure import Budget, Candidate, fastest
from inductor.panels import Builder, has_pairs, is_plain
from inductor.registration import operator as own_operator
from inductor.runtime import toolchain
from inductor.runtime.plan import dtype_name
from inductor.sample_plan import buffer, sample_plan

HEAD = 128  # elements of a head, at most (attention.h)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

aten = torch.ops.aten
_FLASH = aten._scaled_dot_product_flash_attention_for_cpu.default


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
) -> torch.Tensor:
    """q: (sequences, heads, queries, size); k and v: (sequences, heads, keys, size), or of fewer
    heads, each for as many of q's that follow one another; mask: added to the scores, of a size
    that expands to theirs.
    """
    return _FLASH(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)[0]


def _attention_meta(q: torch.Tensor, *rest: Any) -> torch.Tensor:
    """In the query's layout: torch's rule keeps no strides of dimensions of one element."""
    made = _attention(q, *rest)
    alone = [type(n) is int and n == 1 for n in made.shape]
    stride = [a if one else b for one, a, b in zip(alone, q.stride(), made.stride(), strict=True)]
    return made.new_empty_strided(made.shape, stride)


attention = own_operator(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, float scale, bool causal) -> Tensor",
    _attention,
    _attention_meta,
)


def generated_attention(
    functional: FunctionalGraph, *, always: bool = False
) -> tuple[FunctionalGraph, str] | None:
    """The graph with its attention by generated code, and a note; None if there is none of it, or
    no compiler. always: of few queries and of half precision, too, with no measurement.
    """
    gm = functional.graph_module
    found = {node: of for node in gm.graph.nodes if (of := _replaceable(node, always)) is not None}
    if not found or panel_sample.identity() is None:
        return None
    operands = {kind: _operands(kind, always) for kind in set(map(_dtype, found))}
    found = {node: of for node, of in found.items() if operands[_dtype(node)] is not None}
    if not found:
        return None
    replaced = set(found.values())
    graph = Graph()
    new: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        if node in found:
            new[node] = _attended(graph, node, found[node], new, operands[_dtype(node)])
        elif node not in replaced:
            new[node] = graph.node_copy(node, new.__getitem__)
    return functional.with_graph(graph), f"attention: {len(found)} by generated code"


def _replaceable(result: Node, always: bool) -> Node | None:
    """The attention whose output this node takes, if generated code can compute it."""
    if result.target is not operator.getitem or result.args[1] != 0:
        return None
    node = result.args[0]
    if not isinstance(node, Node) or node.target is not _FLASH or len(node.users) != 1:
        return None
    settings = _settings(node)
    q, k, v = (used.meta["val"] for used in node.args[:3])
    mask = settings["attn_mask"]
    used = [q, k, v, *([] if mask is None else [mask.meta["val"]])]
    if settings["dropout_p"] != 0.0 or not all(is_plain(val, *_DTYPES) for val in used):
        return None
    if not isinstance(q.shape[3], int) or not 1 <= q.shape[3] <= HEAD:
        return None
    if not (_heads(k) == _heads(v) and _share(q, k)):
        return None
    try:
        queries = hint(GraphSizes().of(q.shape[2]))
    except Undecided:
        return None
    few = q.dtype != torch.float32 and queries < costs.LEAST_QUERIES
    return node if always or not few else None


def _dtype(node: Node) -> torch.dtype:
    return node.meta["val"].dtype


def _operands(dtype: torch.dtype, always: bool) -> torch.dtype | None:
    """The dtype in which generated code computes; None if the library is faster for half precision,
    by more than generated code is ahead of it in float32.
    """
    if always or dtype == torch.float32:
        return torch.float32

    def full(kind: torch.dtype) -> torch.Tensor:
        return torch.full(_SAMPLE, 0.5, dtype=kind, device="cpu")

    def as_it_is() -> Callable[[], object]:
        x = full(dtype)
        return lambda: _attention(x, x, x, None, 1.0, False)

    def copied() -> Callable[[], object]:
        x = full(dtype)
        return lambda: _attention(x.float(), x.float(), x.float(), None, 1.0, False).to(dtype)

    key, budget = f"attention of {dtype_name(dtype)}", Budget(costs.ATTENTION_SECONDS)
    candidates: dict[str, Candidate] = {"float32": copied, "as it is": as_it_is}
    if dtype == torch.bfloat16 and has_pairs():
        key += f", by pairs of {panel_sample.identity()}"
        candidates = {"by pairs": lambda: _sample(full(dtype), budget), **candidates}
    choice = fastest(key, candidates, budget, ahead=costs.HALF_ATTENTION_AHEAD)
    if choice is None or choice.name == "as it is":
        return None
    return torch.float32 if choice.name == "float32" else dtype


_SAMPLE = (1, 4, 128, 64)
_SOURCE = """#include "attention.h"

namespace fg {
extern "C" void sample(void* const* P, int64_t begin, int64_t end) {
  const bf16* const x = (const bf16*)P[0];
  const Attention<bf16> a = {x, x, x, nullptr, (bf16*)P[1], 4, 1, 128, 128, 64,
                             {32768, 8192, 64}, {32768, 8192, 64}, {32768, 8192, 64},
                             {32768, 8192, 64}, {0, 0, 0, 0}, 128, 1.0f};
  attention<bf16>(a, begin, end);
}
}
"""


def _sample(x: torch.Tensor, budget: Budget) -> Callable[[], object]:
    """Attention of x to itself by pairs. The library is made outside of the budget."""
    with budget.pause():
        made = toolchain.load_library(_SOURCE)
    return sample_plan(made, {"x": x}, buffer("out", x), [], units=4, grain=1)


def _heads(val: torch.Tensor) -> str:
    """Sequences, heads and the size of a head: as text, so that sizes that vary get no guard."""
    return str((*val.shape[:2], val.shape[3]))


def _share(q: torch.Tensor, k: torch.Tensor) -> bool:
    """Whether as many heads of the queries share each head of the keys."""
    heads, shared = q.shape[1], k.shape[1]
    if not (isinstance(heads, int) and isinstance(shared, int)):
        return _heads(q) == _heads(k)
    alike = str((q.shape[0], q.shape[3])) == str((k.shape[0], k.shape[3]))
    return alike and shared > 0 and heads % shared == 0


def not_repeated(q: Node, k: Node, v: Node) -> list[Node]:
    """Keys and values before each of their heads was repeated for several of the queries'."""
    found = [source for one in (k, v) if (source := _repeated(one)) is not None]
    vals = [node.meta["val"] for node in found]
    if len(found) < 2 or _heads(vals[0]) != _heads(vals[1]) or not _share(q.meta["val"], vals[0]):
        return [k, v]
    return found


def _repeated(node: Node) -> Node | None:
    """(sequences, heads, length, size), of which each head is repeated in `node`."""
    val = node.meta["val"]
    steps = []
    for targets in _REPEATING:
        if node.target not in targets:
            return None
        steps.append(node)
        node = node.args[0]
    source, repeated = node.meta["val"], steps[2].meta["val"]
    if source.dim() != 4 or repeated.dim() != 5 or steps[3].args[1] not in (2, -3):
        return None
    heads, times = repeated.shape[1:3]
    if not (isinstance(heads, int) and isinstance(times, int)) or heads * times != val.shape[1]:
        return None
    alike = str((source.shape[0], *source.shape[2:])) == str((val.shape[0], *val.shape[2:]))
    return node if alike else None


# The operators that repeat heads, from the result on.
_REPEATING = (
    (aten.view.default, aten._unsafe_view.default),
    (aten.clone.default,),
    (aten.expand.default,),
    (aten.unsqueeze.default,),
)


def _settings(node: Node) -> Mapping[str, Any]:
    arguments = _FLASH._schema.arguments
    found = {argument.name: argument.default_value for argument in arguments}
    found.update(zip(found, node.args))
    return {**found, **node.kwargs}


def _attended(
    graph: Graph,
    result: Node,
    node: Node,
    new: Mapping[Node, Node],
    operands: torch.dtype | None,
) -> Node:
    settings, build = _settings(node), Builder(graph)
    size = node.args[0].meta["val"].shape[3]
    scale = settings["scale"]
    mask = settings["attn_mask"]
    given = [node.args[0], *not_repeated(*node.args[:3]), mask]
    assert operands is not None
    *given, mask = given
    args = (
        *(build.cast(new[one], operands, one.meta) for one in given),
        mask and build.cast(new[mask], torch.float32, mask.meta),
        1 / math.sqrt(size) if scale is None else scale,
        settings["is_causal"],
    )
    made = build.call(attention, args, result.meta)
    return build.cast(made, _dtype(result), result.meta)
