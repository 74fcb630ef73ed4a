"""Directives of users: how single functions are to be captured.

Keyed by identity; each entry keeps its function alive so that an id is never reused.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from dynamo.bytecode.cache import CodeMap

# id(fn) -> (fn, ...)
ALLOWED: dict[int, Any] = {}  # put into the graph as one call
DISALLOWED: dict[int, Any] = {}  # always a graph break
CONSTANT_RESULT: dict[int, Any] = {}  # called while capturing; the result is a constant
SUBSTITUTES: dict[int, tuple[Any, Any]] = {}  # original -> Python code traced instead
DISABLED_REASONS: dict[int, tuple[Any, str]] = {}  # a disabled wrapper -> why
SKIPPED_CODE: CodeMap[str] = CodeMap()  # disable(recursive=False): frames left alone, and why
LEFT_TO_PYTHON: CodeMap[str] = CodeMap()  # frames of torch's or ours left alone, and why


def allow_in_graph(fn: Any) -> Any:
    """Put calls of `fn` into the graph without looking inside; usable as a decorator. Takes one
    callable or several.

    `fn` must take and return tensors and constants, and have no side effect. Raises TypeError for
    an object that cannot be called.
    """
    return _mark(fn, ALLOWED, "allow_in_graph", instead_of=DISALLOWED)


def nonstrict_trace(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Put calls of `fn` into the graph without looking inside, as allow_in_graph does; a decorator
    that gives a function of its own, so that other calls of `fn` are captured as ever. Raises
    TypeError for an object that cannot be called.
    """
    check_callable("nonstrict_trace", fn)

    @functools.wraps(fn)
    def traced(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return _mark(traced, ALLOWED, "nonstrict_trace")


def disallow_in_graph(fn: Any) -> Any:
    """Break the graph at calls of `fn`, one callable or several. Raises TypeError for others."""
    return _mark(fn, DISALLOWED, "disallow_in_graph", instead_of=ALLOWED)


def assume_constant_result(fn: Any) -> Any:
    """Call `fn`, one callable or several, while capturing, and take its result as a constant from
    then on. Raises TypeError for an object that cannot be called.
    """
    return _mark(fn, CONSTANT_RESULT, "assume_constant_result")


def check_callable(name: str, fn: Any) -> None:
    """Raise TypeError unless `fn`, the argument of dynamo.<name>, can be called."""
    if not callable(fn):
        raise TypeError(f"dynamo.{name} takes a callable, not {fn!r}")


def _mark(
    fn: Any, table: dict[int, Any], name: str, instead_of: dict[int, Any] | None = None
) -> Any:
    if isinstance(fn, list | tuple):
        return [_mark(f, table, name, instead_of) for f in fn]
    check_callable(name, fn)
    if instead_of is not None:
        instead_of.pop(id(fn), None)
    table[id(fn)] = fn
    return fn


def substitute_in_graph(
    original: Callable[..., Any], *, skip_signature_check: bool = False
) -> Callable[..., Any]:
    """Decorator: capture the decorated Python function wherever `original` is called. Raises
    TypeError where one of the two cannot be called, and, unless skip_signature_check, where both
    have signatures and these differ in names, kinds or defaults of parameters.
    """
    check_callable("substitute_in_graph", original)

    def register(substitute: Callable[..., Any]) -> Callable[..., Any]:
        check_callable("substitute_in_graph", substitute)
        if not skip_signature_check:
            _check_signatures(original, substitute)
        SUBSTITUTES[id(original)] = (original, substitute)
        return substitute

    return register


def _check_signatures(original: Callable[..., Any], substitute: Callable[..., Any]) -> None:
    try:
        signatures = [inspect.signature(function) for function in (original, substitute)]
    except (TypeError, ValueError):  # of a function in C
        return
    one, other = (
        [(p.name, p.kind, repr(p.default)) for p in signature.parameters.values()]
        for signature in signatures
    )
    if one != other:
        raise TypeError(
            f"dynamo.substitute_in_graph: {original!r} takes {signatures[0]}, and {substitute!r} "
            f"{signatures[1]}; skip_signature_check=True allows that"
        )


def skip_frame(msg: str = "") -> None:
    """Have the compiled function whose frame comes here run as it is, from its start; its callees
    are compiled. `msg` is shown by explain. Does nothing outside capture.
    """


def graph_break(msg: str = "") -> None:
    """Break the graph here, for the reason `msg`; does nothing outside capture."""


def is_compiling() -> bool:
    """True inside code that is being captured, False when it runs eagerly."""
    return False
