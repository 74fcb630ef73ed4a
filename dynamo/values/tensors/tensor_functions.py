"""Functions of torch that are methods of tensors, too: one handler for both forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo.values.base import Value
from dynamo.values.tensors.tensor import SPECIAL_METHODS

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# `(tx, "call_function" or "call_method", function or name, args, kwargs) -> Value`
Handler = Callable[["Interpreter", str, Any, Sequence[Value], dict[str, Value]], Value]


def function_and_method(name: str) -> Callable[[Handler], Callable[[Any], Callable[..., Value]]]:
    """Register a handler for Tensor.<name>; the decorated name makes that of a function."""

    def register(handler: Handler) -> Callable[[Any], Callable[..., Value]]:
        def method(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
            return handler(tx, "call_method", name, args, kwargs)

        def fold(function: Any) -> Callable[..., Value]:
            def call(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
                return handler(tx, "call_function", function, args, kwargs)

            return call

        SPECIAL_METHODS[name] = method
        return fold

    return register
