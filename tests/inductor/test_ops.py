"""The vocabulary of loop bodies: recording, simplification, handlers."""

from __future__ import annotations

import math

import torch

from inductor.index import Index, Var
from inductor.ops import Tape, ops, print_tape, recording


def test_equal_operations_are_recorded_once() -> None:
    tape = Tape()
    i = Index.of(Var("i", 10))
    with recording(tape):
        a = ops.exp(ops.load("x", i, torch.float32))
        b = ops.exp(ops.load("x", i, torch.float32))
        c = ops.exp(ops.load("x", i + 1, torch.float32))
    assert a is b and a is not c
    assert len(tape.values) == 4


def test_half_types_compute_in_float32() -> None:
    tape = Tape()
    with recording(tape):
        x = ops.load("x", Index.of(0), torch.bfloat16)
        y = ops.to_dtype(x, torch.float16)
    assert x.dtype == torch.float32 and y.dtype == torch.float32
    assert y is not x, "an explicit conversion rounds"


def test_simplifications_are_exact() -> None:
    with recording(Tape()):
        x = ops.load("x", Index.of(0), torch.float32)
        zero, one = ops.constant(0.0, torch.float32), ops.constant(1.0, torch.float32)
        assert ops.mul(x, one) is x
        assert ops.add(x, zero) is not x, "-0.0 + 0.0 is 0.0"
        n = ops.load("n", Index.of(0), torch.int64)
        assert ops.add(n, ops.constant(0, torch.int64)) is n
        assert ops.constant(-0.0, torch.float32) is not zero
        assert ops.constant(math.nan, torch.float32) is ops.constant(math.nan, torch.float32)
        true = ops.constant(True, torch.bool)
        assert ops.where(true, x, zero) is x


def test_bounds_decide_masks() -> None:
    i = Index.of(Var("i", 10))
    with recording(Tape()):
        at = ops.index_expr(i + 2, torch.int32)
        assert ops.ge(at, ops.constant(0, torch.int32)).attr is True
        assert ops.lt(at, ops.constant(2, torch.int32)).attr is False
        assert ops.lt(at, ops.constant(5, torch.int32)).op == "lt"


def test_masked_loads_do_not_touch_memory_elsewhere() -> None:
    tape = Tape()
    i = Index.of(Var("i", 10))
    with recording(tape):
        at = ops.index_expr(i, torch.int32)
        inside = ops.lt(at, ops.constant(5, torch.int32))
        v = ops.masked(inside, lambda: ops.load("x", i, torch.float32), 7.0)
    loads = [v for v in tape.values if v.op == "load"]
    assert loads[0].attr.masked and loads[0].args[0] is inside
    assert v.op == "where"


def test_integers_wrap() -> None:
    with recording(Tape()):
        assert ops.constant(300, torch.uint8).attr == 44
        assert ops.constant(200, torch.int8).attr == -56


def test_printing() -> None:
    tape = Tape()
    with recording(tape):
        x = ops.load("x", Index.of(Var("i", 10)) * 4 + 1, torch.float16)
        ops.where(ops.gt(x, ops.constant(0.5, torch.float32)), x, ops.neg(x))
    assert print_tape(tape).splitlines() == [
        "v0: float32 = x[4*i + 1]",
        "v1: float32 = 0.5",
        "v2: bool = gt(v0, v1)",
        "v3: float32 = neg(v0)",
        "v4: float32 = where(v2, v0, v3)",
    ]
