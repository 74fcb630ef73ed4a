"""Python functions whose calls mean something of their own while capturing: their code is not
captured. torch/context_managers.py fills the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dynamo.bytecode.cache import CodeMap
from dynamo.values.base import Value

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

Intrinsic = Callable[["Interpreter", Sequence[Value]], Value]
INTRINSICS: CodeMap[Intrinsic] = CodeMap()
