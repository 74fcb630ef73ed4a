"""Options of the default backend: `dynamo.compile(fn, options={"fusion": False})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Options:
    """fusion: share loops between operators; without it every operator has a kernel of its own.
    aten_ops: operators that stay aten calls, by name ("aten.gelu"); to bisect a wrong result.
    parallel_compile: compile the kernels of a large graph in two translation units at once.
    """

    fusion: bool = True
    aten_ops: tuple[str, ...] = ()
    parallel_compile: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        """Raises ValueError, listing what exists, for an unknown name."""
        given = dict(given or {})
        known = names()
        if unknown := sorted(given.keys() - set(known)):
            raise ValueError(
                f"unknown option {', '.join(unknown)}; the options are: {', '.join(known)}"
            )
        if "aten_ops" in given:
            given["aten_ops"] = tuple(given["aten_ops"])
        return cls(**given)


def names() -> list[str]:
    return [f.name for f in fields(Options)]


def describe() -> dict[str, tuple[Any, str]]:
    """Option name -> (default, meaning)."""
    lines = [line.strip() for line in (Options.__doc__ or "").splitlines() if line.strip()]
    meanings = dict(line.split(": ", 1) for line in lines)
    return {f.name: (f.default, meanings[f.name]) for f in fields(Options)}
