"""Python that says what functions in C, or of torch, do: traced in their place like user code.

A module of such functions says by `mark` what their frames are. Those of a module that says nothing
are shown in tracebacks, and a graph break in them is one of the function that they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynamo import _hook

_NAME = "__polyfills__"


@dataclass(frozen=True)
class FrameKind:
    """The kind of frame that a module's functions have. hidden: they stand for C functions, so that
    the user has no such frames. breakable: a graph break may stand in them, and the rest of a call
    is a continuation, as in the program's own functions.
    """

    hidden: bool = False
    breakable: bool = False


def mark(namespace: dict[str, Any], *, hidden: bool = False, breakable: bool = False) -> None:
    """Say what the frames of the functions with these globals are."""
    namespace[_NAME] = FrameKind(hidden, breakable)
    if hidden:
        _hook.hide(namespace)


def frame_kind(namespace: Mapping[str, Any]) -> FrameKind | None:
    """The kind of frames with these globals; None: those of a program, or of a module of ours that
    says nothing.
    """
    kind = namespace.get(_NAME)
    return kind if type(kind) is FrameKind else None
