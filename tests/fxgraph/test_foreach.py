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


WRITES = {
    "multiplied": lambda t: torch._foreach_mul_([t], 2.0),
    "copied": lambda t: torch._foreach_copy_([t], [torch.zeros(3)]),
    "cleared": lambda t: torch._foreach_zero_([t]),
    "largest": lambda t: torch._foreach_maximum_([t], [torch.ones(3)]),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("write", WRITES)
def test_writes_count(write, backend):
    """What a backward needs, and has been written since, is refused, as in eager."""

    def given(x, w):
        y = x * w
        WRITES[write](x)
        return y

    def made(x, w):
        t = x + 1
        y = t * w
        WRITES[write](t)
        return y

    def result(x, w):
        t = w.exp()
        with torch.no_grad():
            WRITES[write](t)
        return t

    for function in (given, made, result):
        versions = []
        for called in (function, dynamo.compile(function, backend=backend)):
            x, w = torch.ones(3), torch.ones(3, requires_grad=True)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                called(x, w).sum().backward()
            versions.append(x._version)
        assert versions[0] == versions[1]
