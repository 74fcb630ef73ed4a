"""Numbers as operands of tensors."""

from __future__ import annotations

import numpy as np
import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbol import SymbolValue


def number_of_operand(value: Value, dtype: torch.dtype, op: str = "") -> Value:
    """The number in an operand as tensors of `dtype` see it: in instances of subclasses of int and
    float, and in numpy's scalars. A bool that varies is 1 or 0 to other tensors than those of bool:
    graphs have no such argument. op: its operator, of which "-" takes no bool.
    """
    if value.is_constant() and isinstance(value.as_constant(), np.number):
        return ConstantValue(value.as_constant().item())
    if value.is_symbolic() and issubclass(value.python_type(), np.number):
        return value.number  # type: ignore[attr-defined]
    if isinstance(value, SymbolValue) and isinstance(value.symbolic, torch.SymBool):
        if not op.startswith("-"):
            number = torch.SymInt(value.symbolic.node.as_int())
            return value if dtype is torch.bool else SymbolValue(value.output, number)
        if value.depends_on_data():
            raise Unsupported(breaks.DataDependentValue("the subtraction of a bool"))
    storage = getattr(value, "storage", None)
    return storage if isinstance(storage, ConstantValue) else value
