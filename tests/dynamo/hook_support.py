"""What the frame hook's tests share: trivial converts that do not depend on capture."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from dynamo import _hook


class Context:
    """Stands for a compile context; takes attributes and weak references as the real one does."""


def replace_const(code: types.CodeType, old: Any, new: Any, extra_stack: int = 0) -> types.CodeType:
    """`code` with one constant exchanged; a larger stack makes frames that have no room for it."""
    consts = tuple(new if type(c) is type(old) and c == old else c for c in code.co_consts)
    return code.replace(co_consts=consts, co_stacksize=code.co_stacksize + extra_stack)


def always(*args: Any) -> bool:
    return True


def type_guard(frame: Any) -> Callable[..., bool]:
    """A guard on the types of the frame's parameters."""
    expected = [type(value) for value in frame.f_locals_array]

    def guard(values: tuple[Any, ...], globals: dict[str, Any], closure: tuple[Any, ...]) -> bool:
        return [type(v) for v in values] == expected[: len(values)]

    return guard


class Converter:
    """A convert that exchanges the constant 1000 for 2000; it skips functions without it."""

    def __init__(
        self,
        guard: Callable[[Any], Callable[..., bool]] | None = None,
        needs_hook: bool = False,
        extra_stack: int = 0,
    ) -> None:
        self.guard = guard or (lambda frame: always)
        self.needs_hook = needs_hook
        self.extra_stack = extra_stack
        self.names: list[str] = []
        self.failed: list[int] = []

    def __call__(self, frame: Any, context: Any) -> Any:
        self.names.append(frame.f_code.co_name)
        self.failed.append(len(frame.failed_entries))
        if 1000 not in frame.f_code.co_consts:
            return None
        new = replace_const(frame.f_code, 1000, 2000, self.extra_stack)
        return _hook.GuardedCode(new, self.guard(frame), self.needs_hook, f"0/{len(self.names)}")


def compiled(fn: Any, convert: Any = None, context: Any = None, **kwargs: Any) -> Any:
    return _hook.compiled(fn, context or Context(), convert or Converter(**kwargs))
