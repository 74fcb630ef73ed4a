"""torch._foreach_*: each operator of torch's tables, and that in place, over lists of tensors."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch

import dynamo
from tests.dynamo.torch_ops import operators

TABLES = ("unary", "binary", "pointwise", "reduce", "other")
SAMPLES = 4  # of each operator, spread over the kinds of arguments


def foreach_operators():
    """(name, what describes it, function)."""
    operators()  # which makes the table importable
    from torch.testing._internal import common_methods_invocations as table

    for info in itertools.chain(*(getattr(table, f"foreach_{t}_op_db") for t in TABLES)):
        for operator in (info.method_variant, info.inplace_variant):
            if operator is not None:
                yield operator.__name__, info, operator


def samples(info):
    made = list(info.sample_inputs("cpu", torch.float32, num_input_tensors=[2]))
    return made[:: max(1, len(made) // SAMPLES)]


def check(name, operator, sample):
    def applied(tensors, args, kwargs):
        return operator(tensors, *args, **kwargs), tensors

    dynamo.reset()
    compiled = dynamo.compile(applied, backend="aot_eager")
    given = (list(sample.input), sample.args, sample.kwargs)
    expected, found = copy.deepcopy(given), copy.deepcopy(given)
    try:
        result = applied(*expected)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            compiled(*found)
        return
    torch.testing.assert_close(compiled(*found), result, equal_nan=True)


def test_operators():
    failed, count = {}, 0
    for name, info, operator in foreach_operators():
        for sample in samples(info):
            count += 1
            try:
                check(name, operator, sample)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
    assert count > 200
    assert not failed, "\n".join(f"{name}: {text}" for name, text in failed.items())
