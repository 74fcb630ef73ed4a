"""Context managers of torch whose methods are not captured: their meaning while capturing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import ModuleSource
from dynamo.torch.inference import enter_block, leave_block
from dynamo.values.base import Value
from dynamo.values.functions.intrinsics import INTRINSICS
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def profiler_is_off(module: Any) -> bool:
    """No profiler is running"""
    return not module.autograd._profiler_enabled()


def _start_range(tx: Interpreter, args: Sequence[Value]) -> Value:
    """A named range shows nothing where no profiler runs. Left natively, after a graph break, it
    must not look for records of it. A static graph, which cannot break, has none of
    its ranges in a profile.
    """
    manager = args[0]
    if tx.output.context.hooks is None:
        if torch.autograd._profiler_enabled():
            raise Unsupported(breaks.UncapturedCall("torch.profiler.record_function"))
        tx.guard(ModuleSource("torch"), "predicate", profiler_is_off)
    manager.setattr(tx, "run_callbacks_on_exit", ConstantValue(False))
    return manager


def _end_range(tx: Interpreter, args: Sequence[Value]) -> Value:
    records = args[0].getattr(tx, "run_callbacks_on_exit").as_constant()
    if records:
        raise Unsupported(breaks.UncapturedCall("torch.profiler.record_function"))
    args[0].setattr(tx, "run_callbacks_on_exit", ConstantValue(True))
    return ConstantValue(None)


_RANGE = torch.autograd.profiler.record_function
INTRINSICS.set(torch.inference_mode.__enter__.__code__, enter_block)
INTRINSICS.set(torch.inference_mode.__exit__.__code__, leave_block)
INTRINSICS.set(_RANGE.__enter__.__code__, _start_range)
INTRINSICS.set(_RANGE.__exit__.__code__, _end_range)
