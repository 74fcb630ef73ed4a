"""contextvars: variables are read under guards; the rewritten frame sets those that the frame
sets, together with its other writes.

A change that the frame has taken back leaves no trace. Changes that last are a chain: each is made
after the one before it, so that tokens name the replaced values.
"""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, CallSource, Source
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.objects.builtin_object import BuiltinObject
from dynamo.values.objects.exceptions import raise_python
from dynamo.values.recipes import Recipe
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_MISSING = contextvars.Token.MISSING


def has_value(variable: contextvars.ContextVar) -> bool:
    return variable in contextvars.copy_context()


def current_value(variable: contextvars.ContextVar) -> Any:
    """The variable's value in the context, else its own default."""
    return variable.get()


def default_value(variable: contextvars.ContextVar) -> Any:
    return contextvars.Context().run(variable.get)


class ContextVarValue(BuiltinObject):
    """A variable from outside."""

    def __init__(self, real: contextvars.ContextVar, source: Source) -> None:
        super().__init__(source)
        self.real = real
        self.read: Value | None = None  # its value at the frame's entry
        self.changes: list[TokenValue] = []  # those that last

    def identity(self) -> tuple[bool, Any]:
        return True, self.real

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "name":
            return ConstantValue(self.real.name)
        return super().getattr(tx, name)

    def py_get(self, tx: Interpreter, *default: Value) -> Value:
        current = self._current(tx)
        if current is not None:
            return current
        if default:
            return default[0]
        assert self.source is not None, "it was installed"
        try:
            value = default_value(self.real)
        except LookupError:
            raise_python(tx, LookupError, self)
        return tx.wrap(value, CallSource(self.source, default_value, "default"))

    def _current(self, tx: Interpreter) -> Value | None:
        """The variable's value in the context; None: not set."""
        return self.changes[-1].value if self.changes else self.at_entry(tx)

    def at_entry(self, tx: Interpreter) -> Value | None:
        """The value that the frame found; None: not set."""
        if self.read is None:
            found = has_value(self.real)

            def holds_as_captured(variable: Any) -> bool:
                return has_value(variable) is found

            assert self.source is not None, "it was installed"
            tx.guard(self.source, "predicate", holds_as_captured)
            if not found:
                return None
            self.read = tx.wrap(self.real.get(), CallSource(self.source, current_value, "value"))
        return self.read

    def py_set(self, tx: Interpreter, value: Value) -> Value:
        self._change(tx, "set")
        return self._changed(TokenValue(self, value, None))

    def py_reset(self, tx: Interpreter, token: Value) -> None:
        self._change(tx, "reset")
        if self.changes and token is self.changes[-1] and token.taken is None:
            self.changes.pop().used = True
            return
        real: Any = getattr(token, "real", None)
        if not isinstance(token, TokenValue) or token.used or not is_fresh(real, self.real):
            raise Unsupported(breaks.UncapturedCall("ContextVar.reset"))
        assert token.source is not None, "it is from outside"
        variable = self.real
        tx.guard(token.source, "predicate", lambda real: is_fresh(real, variable))
        token.used = True
        old = None
        if real.old_value is not _MISSING:
            old = tx.wrap(real.old_value, AttrSource(token.source, "old_value"))
        self._changed(TokenValue(self, old, token))

    def _change(self, tx: Interpreter, name: str) -> None:
        """Break where the earlier value, which was read before, could not be loaded any more."""
        known = self.read is None or self.read.is_constant()
        if tx.output.bodies or not known:
            raise Unsupported(breaks.UncapturedCall(f"ContextVar.{name}"))
        tx.output.side_effects.touch()
        if self not in tx.output.side_effects.context_variables:
            tx.output.side_effects.context_variables.append(self)

    def _changed(self, token: TokenValue) -> Value:
        token.before = self.changes[-1] if self.changes else None
        self.changes.append(token)
        return token


def is_fresh(token: Any, variable: contextvars.ContextVar) -> bool:
    """Whether a token of the variable is still unused by reset()."""
    of_variable = type(token) is contextvars.Token and token.var is variable
    return of_variable and not repr(token).startswith("<Token used")


class TokenValue(Value):
    """The token of set(), or a change by reset(taken). value: of the variable then; None:
    nothing.
    """

    def __init__(
        self, variable: ContextVarValue | None, value: Value | None, taken: TokenValue | None
    ) -> None:
        super().__init__()
        self.variable = variable
        self.value = value
        self.taken = taken
        self.before: TokenValue | None = None
        self.used = False
        self.real: Any = None

    def python_type(self) -> type:
        return contextvars.Token

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name not in ("var", "old_value"):
            return super().getattr(tx, name)
        if self.variable is None:
            assert self.source is not None, "it is from outside"
            found, source = getattr(self.real, name), AttrSource(self.source, name)
            if type(found) in (int, float):
                tx.output.symbols.number(found, source, "each call has another token")
            return tx.wrap(found, source)
        if name == "var":
            return self.variable
        old = self.variable.at_entry(tx) if self.before is None else self.before.value
        if old is None:
            return tx.wrap(_MISSING)
        if not old.is_constant():  # one that was read at entry could not be loaded any more
            raise Unsupported(breaks.AttributeAccess("a token", name))
        return old

    def children(self) -> Sequence[Value]:
        return [v for v in (self.variable, self.value, self.taken, self.before) if v is not None]

    def recipe(self) -> Recipe:
        if self.variable is None or (self.used and self.taken is None):
            raise Unsupported(breaks.CannotReconstruct("a token that was used"))
        before = [] if self.before is None else [self.before]
        if self.taken is not None:
            return reset_after, [self.variable, self.taken, *before]
        assert self.value is not None, "a variable is set to a value"
        return set_after, [self.variable, self.value, *before]


def set_after(variable: contextvars.ContextVar, value: Any, *before: Any) -> contextvars.Token:
    return variable.set(value)


def reset_after(variable: contextvars.ContextVar, token: contextvars.Token, *before: Any) -> None:
    variable.reset(token)


@builder(contextvars.ContextVar)
def build_variable(tx: Interpreter, obj: contextvars.ContextVar, source: Source | None) -> Value:
    if source is None:
        source = tx.output.install("variable", obj)
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, ContextVarValue(obj, source))


@builder(contextvars.Token)
def build_token(tx: Interpreter, obj: contextvars.Token, source: Source | None) -> Value:
    if source is None:
        source = tx.output.install("token", obj)
    tx.guard(source, "type", contextvars.Token)
    token = TokenValue(None, None, None)
    token.source, token.real = source, obj
    return tx.output.remember(obj, source, token)
