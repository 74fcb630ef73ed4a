"""Arity: the counts and names of arguments that a function takes, as far as it tells."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection
from typing import Any


@functools.cache
def _counts(function: Any) -> tuple[int, int | None, frozenset[str] | None] | None:
    """The least and the most positional arguments, and the keywords (None: any); None where the
    function has no signature.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = [p.kind for p in parameters]
    placed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in placed)
    most = None if inspect.Parameter.VAR_POSITIONAL in kinds else len(placed)
    names = frozenset(p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY)
    return least, most, None if inspect.Parameter.VAR_KEYWORD in kinds else names


def fits(function: Any, count: int, keywords: Collection[str]) -> bool:
    """Whether the function takes so many positional arguments, and these keywords."""
    counts = _counts(function)
    if counts is None:
        return True
    least, most, names = counts
    if names is not None and not names.issuperset(keywords):
        return False
    return (most is None or count <= most) and count + len(keywords) >= least
