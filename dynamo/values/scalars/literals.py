"""Values of literals."""

from __future__ import annotations

from typing import Any

import torch

from dynamo.values.base import Value
from dynamo.values.containers.containers import ListValue, SizeValue, TupleValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.containers.ranges import RangeValue, SliceValue
from dynamo.values.containers.sets import FrozenSetValue, SetValue, detached
from dynamo.values.scalars.constant import ConstantValue


def from_constant(real: Any) -> Value:
    """The Value of a literal: scalars, and tuples, frozensets, slices and ranges of literals."""
    if type(real) is tuple:
        return TupleValue([from_constant(x) for x in real])
    if type(real) is torch.Size:
        return SizeValue([from_constant(x) for x in real])
    if type(real) is list:
        return ListValue([from_constant(x) for x in real])
    if type(real) is slice:
        start, stop, step = map(from_constant, (real.start, real.stop, real.step))
        return SliceValue(start, stop, step)
    if type(real) is range:
        return RangeValue(real)
    if type(real) in (frozenset, set):
        make = SetValue if type(real) is set else FrozenSetValue
        return make({x: from_constant(x) for x in real}, real=detached(real))
    if type(real) is dict:
        return DictValue({k: (from_constant(k), from_constant(v)) for k, v in real.items()})
    return ConstantValue(real)
