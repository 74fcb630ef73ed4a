"""set_stance(): how compiled functions behave from now on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

from dynamo import _hook, stances
from dynamo.api.compile import reset
from dynamo.backend_lookup import resolve
from dynamo.directives import check_callable
from dynamo.errors import InvalidOption


class set_stance:
    """How compiled functions behave from now on; also a context manager and a decorator.

    "default": compile as needed. "force_eager": run the original functions. "eager_on_recompile":
    use what is compiled, run anything else eagerly. "fail_on_recompile": an error where a
    compilation would be needed again. "eager_then_compile", "aot_eager_then_compile": the first
    call of a function runs eagerly, and the second one is compiled, with sizes and numbers that
    were others in the first call as symbols at once.

    force_backend: with "default", the backend that all functions are compiled with, whatever they
    were given; what is compiled already is forgotten, at the beginning and at the end.
    skip_guard_eval_unsafe permits to leave guards out where the program promises that they hold;
    all of them are evaluated nevertheless.

    Raises InvalidOption (a ValueError) for another stance, or for force_backend with another than
    "default".
    """

    _POLICIES: dict[str, Literal["compile", "eager", "error", "force_eager"]] = {
        "default": "compile",
        "force_eager": "force_eager",
        "eager_on_recompile": "eager",
        "fail_on_recompile": "error",
        "eager_then_compile": "compile",
        "aot_eager_then_compile": "compile",
    }

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: str | Callable[..., Any] | None = None,
    ) -> None:
        if not isinstance(skip_guard_eval_unsafe, bool):
            raise TypeError(
                f"skip_guard_eval_unsafe must be True or False, not {skip_guard_eval_unsafe!r}"
            )
        if not isinstance(stance, str) or stance not in self._POLICIES:
            known = ", ".join(self._POLICIES)
            raise InvalidOption(f"no stance {stance!r}; the stances are: {known}")
        if force_backend is not None and stance != "default":
            raise InvalidOption(f"force_backend goes with the stance 'default', not {stance!r}")
        forced = None if force_backend is None else resolve(force_backend, None, None)
        self._wanted = (
            self._POLICIES[stance],
            stances.Stance(forced, stance.endswith("_then_compile")),
        )
        self._previous = _set(*self._wanted)

    def __enter__(self) -> None:
        _set(*self._wanted)

    def __exit__(self, *exc: object) -> None:
        _set(*self._previous)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        _set(*self._previous)
        check_callable("set_stance(...)", fn)

        @functools.wraps(fn)
        def with_stance(*args: Any, **kwargs: Any) -> Any:
            before = _set(*self._wanted)
            try:
                return fn(*args, **kwargs)
            finally:
                _set(*before)

        return with_stance


def _set(policy: Any, stance: stances.Stance) -> tuple[Any, stances.Stance]:
    """Set the policy and the stance; the result is the previous pair."""
    before = stances.current()
    if before.backend is not stance.backend:
        reset()
    stances.set_current(stance)
    return _hook.set_miss_policy(policy), before
