"""Numbers that only say who: id(x), the thread's ident. Equal to themselves; made again by the
same call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.constant import ConstantValue
from dynamo.values.operators import same_object

if TYPE_CHECKING:
    from dynamo.capture.interpreter import Interpreter
    from dynamo.reconstruct import Codegen


class TokenValue(Value):
    """`function(subject)`, or `function()`: not known while capturing, but the same for the same
    subject.
    """

    def __init__(self, function: Callable[..., Any], subject: Value | None) -> None:
        super().__init__()
        self.function = function
        self.subject = subject

    def python_type(self) -> type:
        return int

    def children(self) -> Sequence[Value]:
        return () if self.subject is None else (self.subject,)

    def truth(self, tx: Interpreter) -> bool:
        return True

    def is_same(self, other: TokenValue) -> bool:
        if self.function is not other.function:
            return False
        if self.subject is None or other.subject is None:
            return self.subject is other.subject
        return same_object(self.subject, other.subject)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if op not in ("==", "!=") or not isinstance(other, TokenValue):
            raise Unsupported(breaks.NotConstant(f"{self.function.__name__}()"))
        return ConstantValue(self.is_same(other) is (op == "=="))

    def hash_key(self, tx: Interpreter) -> Hashable:
        subject = None if self.subject is None else self.subject.hash_key_by_identity()
        return (TokenValue, self.function, subject)

    def reconstruct(self, codegen: Codegen) -> None:
        codegen.load_callable(lambda: codegen.load_const(self.function))
        if self.subject is not None:
            codegen(self.subject)
        codegen.call(len(self.children()))
