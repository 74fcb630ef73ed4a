"""Lookup of the inputs that a setting names."""

from __future__ import annotations

import re

from dynamo.guards.sources import (
    AttrSource,
    InstanceDictSource,
    LocalSource,
    Source,
    readable_name,
)


def is_argument(source: Source) -> bool:
    """An argument of the frame, or an item in one (not the attribute of an object)."""
    step: Source | None = source
    while step is not None:
        if isinstance(step, AttrSource | InstanceDictSource):
            return False
        if isinstance(step, LocalSource):
            return True
        step = step.base
    return False


def is_named(source: Source, among: str) -> bool:
    """Whether a list of names has the input, as guards or as the program name it."""
    if not among:  # as for nearly every program: names are texts made by regular expressions
        return False
    names = [name.strip() for name in among.split(",")]
    known = (source.name, readable_name(source))
    return any(name in known or _matches(name, known) for name in names if name)


def _matches(pattern: str, names: tuple[str, ...]) -> bool:
    try:
        return any(re.fullmatch(pattern, name) for name in names)
    except re.error:  # a plain name with brackets
        return False
