"""Whether code holds the static inputs of its graph, seen from outside of callables around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_bound = 0


def note_bound_inputs() -> None:
    """Code was made that takes all inputs of its graph and reads some from where they were."""
    global _bound
    _bound += 1


@contextmanager
def noted_bound_inputs() -> Iterator[list[bool]]:
    """Whether such code was made in the `with`, in any thread."""
    before, found = _bound, [False]
    yield found
    found[0] = _bound != before
