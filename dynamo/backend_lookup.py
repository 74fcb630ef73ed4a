"""From the user's backend, mode and options to `(gm, example_inputs) -> callable`.

The one place where a backend's name is resolved. The backends package is imported when a name is,
not before: capture itself knows no backend.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from dynamo.errors import InvalidBackend, InvalidOption


def _backends() -> ModuleType:
    return importlib.import_module("backends")


def list_backends(
    exclude_tags: Sequence[str] | None = ("debug", "experimental"), *, debug: bool = False
) -> list[str]:
    """Names that `compile(backend=...)` takes, but for those registered with one of these tags;
    debug=True: all of them. Raises TypeError for tags that are no sequence of strings.
    """
    return _backends().list_backends(() if debug else exclude_tags or ())


def register_backend(
    compiler_fn: Any = None, name: str | None = None, tags: Sequence[str] = ()
) -> Any:
    """Register `(gm, example_inputs) -> callable` under a name (its __name__ by default); usable as
    a decorator. Those with the tag "debug" or "experimental" are not listed by default.

    Raises TypeError for an object that cannot be called, a name that is no string and tags that are
    no sequence of strings; ValueError for a name that another backend has, and for a backend
    without a name.
    """
    return _backends().register_backend(compiler_fn, name=name, tags=tags)


def lookup_backend(backend: str | Callable[..., Any]) -> Callable[..., Any]:
    """The backend of this name; a callable is its own. Raises InvalidBackend (a ValueError), which
    lists all names, for others, and TypeError for objects of another kind.
    """
    try:
        return _backends().lookup_backend(backend)
    except ValueError as error:
        raise InvalidBackend(str(error)) from None


_INDUCTOR = "inductor"
_chosen: list[str | Callable[..., Any]] = []  # by set_default_backend


def set_default_backend(backend: str | Callable[..., Any] | None) -> None:
    """The backend of functions that are compiled from now on without naming one; None: "inductor".

    Raises InvalidBackend (a ValueError) for a name of no backend, TypeError for an object that is
    neither a name nor callable.
    """
    if backend is not None:
        lookup_backend(backend)
    _chosen[:] = [] if backend is None else [backend]


def get_default_backend() -> str | Callable[..., Any]:
    """The backend of functions that are compiled without naming one."""
    return _chosen[0] if _chosen else _INDUCTOR


def _default() -> Any:
    return lookup_backend(_INDUCTOR)


def list_mode_options(mode: str | None = None) -> dict[str, Any]:
    """Mode -> the options that it sets, for the default backend; or the options of one mode. Raises
    InvalidOption (a ValueError) for a name of no mode.
    """
    modes = _default().modes
    if mode is None:
        return {name: dict(options) for name, options in modes.items()}
    _check(mode, modes, "mode")
    return dict(modes[mode])


def list_options() -> list[str]:
    """Names that `compile(options={...})` takes, for the default backend."""
    return sorted(_default().options)


def resolve(
    backend: str | Callable[..., Any], mode: str | None, options: dict[str, Any] | None
) -> Callable[..., Any]:
    """The backend with mode and options bound.

    A backend that declares `modes` and `options` (ours does) has them checked; any other receives
    them as keyword arguments, as with torch.compile, but for the mode "default". Raises
    InvalidBackend, InvalidOption (both ValueErrors) and TypeError.
    """
    if mode is not None and options is not None:
        raise InvalidOption(
            "give either mode or options, not both: a mode is a set of options, "
            "see dynamo.list_mode_options()"
        )
    if mode is not None and not isinstance(mode, str):
        raise TypeError(f"mode must be a string, not {type(mode).__name__}")
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"options must be a dict, not {type(options).__name__}")
    function = _backends().caller_of(lookup_backend(backend))
    declared = getattr(function, "options", None)
    if declared is None:
        mode = None if mode == "default" else mode
        extra = {k: v for k, v in (("mode", mode), ("options", options)) if v is not None}
        _check_accepts(function, extra)
        return functools.partial(function, **extra) if extra else function
    chosen = dict(options or {})
    if mode is not None:
        _check(mode, function.modes, "mode")  # type: ignore[attr-defined]
        chosen = dict(function.modes[mode])  # type: ignore[attr-defined]
    if (translate := getattr(function, "translate_options", None)) is not None:
        chosen = translate(chosen)
    for name, value in chosen.items():
        _check(name, declared, "option")
        _check_type(name, value, declared[name])
    if (check := getattr(function, "check_options", None)) is not None:
        try:
            check(chosen)
        except ValueError as error:
            raise InvalidOption(str(error)) from None
    return functools.partial(function, options=chosen) if chosen else function


def _check(name: str, known: Any, what: str) -> None:
    if name not in known:
        raise InvalidOption(f"no {what} named {name!r}; the {what}s are: {', '.join(known)}")


def _check_type(name: str, value: Any, declared: Any) -> None:
    default = declared[0]
    given = tuple(value) if isinstance(value, list) else value
    if default is not None and type(given) is not type(default):
        kind = "list" if isinstance(default, tuple) else type(default).__name__
        raise InvalidOption(
            f"option {name!r} takes {kind}, not {type(value).__name__}: {declared[1]}"
        )


def _check_accepts(function: Callable[..., Any], extra: dict[str, Any]) -> None:
    """Tell now, rather than at the first call, that a backend takes no mode or options."""
    if not extra:
        return
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    names = {p.name for p in parameters}
    for name in extra:
        if name not in names:
            raise InvalidOption(
                f"backend {getattr(function, '__name__', function)!r} takes no {name!r}; "
                "drop it, or give the backend such a keyword parameter"
            )
