"""The names that arguments of continuations and wrappers have in the user's own code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dynamo.bytecode.cache import CodeMap
from dynamo.continuations.resume import users_name

Names = tuple[tuple[str, str], ...]
# Code of ours -> the names of an argument, given its own and the values of all.
NAMES: CodeMap[Callable[[str, Sequence[Any]], Names]] = CodeMap()


def renamed(frame: Any, local: str) -> Names:
    """LocalSource.renamed for an argument of this frame."""
    names = NAMES.get(frame.f_code)
    if names is not None:
        return names(local, frame.f_locals_array)
    name = users_name(frame.f_code, local)
    return () if name == local else ((f"L[{local!r}]", f"L[{name!r}]"),)
