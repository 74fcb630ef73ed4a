"""torch's own table of operators between layouts, with a matrix product on each side: values and
gradients as in eager.

The slow tests take a few operators of each layout in turn; `EVERY_LAYOUT=1 python -m pytest
tests/inductor/test_layouts.py` all of all, in about an hour of one core.
"""

from __future__ import annotations

import os
import warnings

import pytest
import torch

import dynamo
from tests.inductor.layout_cases import LAYOUTS, Batch, case_of, cases, outcome
from tests.inductor.test_operators import LEFT_OUT, operators, tensors_of

EVERY = bool(os.environ.get("EVERY_LAYOUT"))
PARTS, SIZE = 8, 32
SPREAD = 1 if EVERY else 4  # of so many operators one is taken, with one layout
NAMES = list(LAYOUTS)


def assert_same(name, ours, theirs):
    torch.testing.assert_close(
        ours, theirs, equal_nan=True, rtol=1e-3, atol=1e-4, msg=lambda text: f"{name}: {text}"
    )
    for a, b in zip(tensors_of(ours[0]), tensors_of(theirs[0])):
        assert a.requires_grad == b.requires_grad, name
        assert (a.grad_fn is None) == (b.grad_fn is None), name


def layouts(number):
    if EVERY:
        return NAMES
    return [NAMES[number // SPREAD % len(NAMES)]] if number % SPREAD == 0 else []


def check(batch):
    dynamo.reset()
    program = Batch(batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = outcome(dynamo.compile(program), batch), outcome(program, batch)
    for case, a, b in zip(batch, ours, theirs, strict=True):
        assert_same(case.name, a, b)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_operators_between_layouts(part):
    found = list(cases(LEFT_OUT, lambda n: layouts(n // PARTS) if n % PARTS == part else []))
    assert len(found) >= 8
    for start in range(0, len(found), SIZE):
        check(found[start : start + SIZE])


@pytest.mark.slow
def test_views_and_pools():
    """Operators whose backward goes through strides, in every layout."""
    names = ["nn.functional.adaptive_avg_pool1d", "nn.functional.adaptive_avg_pool2d"]
    names += ["as_strided", "nn.functional.dropout"]
    found = [case_of(name, operators()[name], layout) for name in names for layout in LAYOUTS]
    found = [case for case in found if case is not None]
    assert len(found) > 20
    check(found)
