"""torch's table of operators, captured: see torch_ops.py. One graph each, or a break that is listed
here; always what eager gives.
"""

from __future__ import annotations

import collections

import pytest
import torch

from tests.dynamo import torch_ops

SHARDS = 12
# Operator -> the reasons why a call of it is not one graph.
SIZES_FROM_VALUES = "DYNAMIC_SHAPE_OP"
VALUES_READ = "DATA_DEPENDENT_VALUE"
OTHER_TENSORS = "UNKNOWN_OBJECT"
FORM_OF_INPUT = "TENSOR_METADATA"
FOREIGN_ARGUMENT = "NOT_GRAPH_ARGUMENT"
BREAKS: dict[str, set[str]] = {
    **dict.fromkeys(
        [
            "argwhere", "bincount", "combinations", "masked_select", "nonzero", "unique",
            "unique_consecutive", "linalg.lstsq", "linalg.lstsq.grad_oriented", "index_put",
            "__getitem__",
        ],
        {SIZES_FROM_VALUES},
    ),
    **dict.fromkeys(
        [
            "allclose", "corrcoef", "cov", "equal", "item", "tensor_split",
            "nn.functional.gaussian_nll_loss",
            "narrow", "repeat_interleave",
            "nn.functional.embedding_bag", "linalg.pinv.hermitian", "nn.functional.ctc_loss",
        ],
        {VALUES_READ, SIZES_FROM_VALUES},
    ),
    **dict.fromkeys(
        [
            "squeeze", "squeeze.multiple", "unsqueeze", "transpose", "t", "resize_", "resize_as_",
            "as_strided", "as_strided.partial_views", "swapaxes", "swapdims",
        ],
        {FORM_OF_INPUT},
    ),
    "nn.functional.one_hot": {VALUES_READ, "OP_ERROR"},
    "to_sparse": {"UNCAPTURED_CALL"},
    "sparse.mm.reduce": {OTHER_TENSORS},
    "torch._scaled_mm_v2": {FOREIGN_ARGUMENT},
    "nn.functional.linear_cross_entropy.chunked": {FOREIGN_ARGUMENT},
    "nn.functional.linear_cross_entropy.chunked_none": {FOREIGN_ARGUMENT},
}  # fmt: skip
if torch.__version__.startswith("2.11."):
    BREAKS |= dict.fromkeys(["quantile", "nanquantile"], {VALUES_READ})
# The table has no samples for them on a CPU, or only sparse ones.
NO_SAMPLES = {
    "sparse.sampled_addmm",
    "torch.ops.aten._flash_attention_forward",
    "torch.ops.aten._efficient_attention_forward",
    "nn.functional.batch_norm.without_cudnn",
}


def problems(name: str, limit: int, start: int = 0) -> tuple[list[str], dict]:
    """What is wrong with one operator, and how often each status was seen."""
    found = []
    counts: dict[tuple[str, str], int] = collections.Counter()
    for case in torch_ops.cases(torch_ops.operators()[name], limit, start):
        report = torch_ops.run_case(case)
        counts[report.variant, report.status] += 1
        listed = report.code in BREAKS.get(name, ())
        if report.status == "wrong" or (report.status == "break" and not listed):
            found.append(f"{name} as {report.variant}: {report.status} {report.code}")
            found.append(f"    {report.detail[:600]}")
    return found, counts


def run_shard(shard: int, limit: int, start: int = 0) -> dict:
    names = [n for n in torch_ops.operators() if n not in NO_SAMPLES]
    failures: list[str] = []
    total: dict = collections.Counter()
    for name in names[shard::SHARDS]:
        found, counts = problems(name, limit, start=start)
        failures += found
        total.update(counts)
    assert not failures, "\n".join(failures)
    return total


@pytest.mark.parametrize("shard", range(SHARDS))
def test_operators(shard, record_property):
    counts = run_shard(shard, limit=1)
    captured = sum(n for (_, status), n in counts.items() if status in ("captured", "folded"))
    record_property("captured in one graph", captured)
    print({f"{variant} {status}": n for (variant, status), n in sorted(counts.items())})
    assert captured > 100


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_operators_with_more_samples(shard):
    """Without the first one, which `test_operators` has."""
    run_shard(shard, limit=4, start=1)
