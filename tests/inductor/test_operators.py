"""torch's own table of operators (op_db): values and gradients of samples, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import dynamo
from tests.dynamo.torch_ops import operators

pytestmark = pytest.mark.slow
PARTS = 8
LEFT_OUT = {
    **dict.fromkeys(
        ["empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"]
        + ["empty_permuted"],
        "values are what the memory held",
    ),
    "sparse.sampled_addmm": "sparse tensors have no strides to compare",
}


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def outcome(fn: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """What fn returns for copies of the arguments, and the gradients of those that have one."""

    def copied(t: torch.Tensor) -> torch.Tensor:
        return t.detach().clone().requires_grad_(t.requires_grad)

    args, kwargs = pytree.tree_map_only(torch.Tensor, copied, (args, kwargs))
    torch.manual_seed(0)
    result = fn(*args, **kwargs)
    results = [t for t in tensors_of(result) if t.requires_grad]
    if not results:
        return result, None
    generator = torch.Generator().manual_seed(1)
    tangents = [torch.randn(t.shape, generator=generator).to(t) for t in results]
    inputs = [t for t in tensors_of((args, kwargs)) if t.requires_grad]
    return result, torch.autograd.grad(results, inputs, tangents, allow_unused=True)


def assert_same(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-3, atol=1e-4)
    for a, b in zip(tensors_of(ours[0]), tensors_of(theirs[0])):
        assert a.requires_grad == b.requires_grad
        assert (a.grad_fn is None) == (b.grad_fn is None)
        assert a.stride() == b.stride() or a.numel() < 2


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    "backend, samples, dynamic",
    [
        ("aot_eager", slice(1, 2), False),  # inductor runs the functional graphs of the first
        ("aot_eager", slice(1), True),
        ("inductor", slice(1), False),
    ],
)
def test_operators(backend, samples, dynamic, part):
    wrong, compared = {}, 0
    for name, op in list(operators().items())[part::PARTS]:
        if op.name in LEFT_OUT or op.name.startswith("jiterator"):  # those need a GPU
            continue
        if not op.supports_dtype(torch.float32, "cpu"):
            continue
        given = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
        for sample in list(given)[samples]:
            dynamo.reset()
            args = sample.input, *sample.args
            compiled = dynamo.compile(op.op, backend=backend, dynamic=dynamic)
            try:
                theirs = outcome(op.op, args, sample.kwargs)
            except RuntimeError:
                continue  # a sample that eager refuses
            try:
                assert_same(outcome(compiled, args, sample.kwargs), theirs)
            except Exception as error:
                sizes = [tuple(t.shape) for t in tensors_of(args)]
                wrong[name] = f"{sizes}: {type(error).__name__}: {str(error)[:300]}"
                break
            compared += 1
    assert not wrong, "\n".join(f"{name} {text}" for name, text in wrong.items())
    assert compared > 40
