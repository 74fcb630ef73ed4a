"""Lists the handlers below which functions of the program were captured on our own stack, where no
graph break can stand.

    python -m pytest -p tools.nested_frames tests/dynamo/programs/test_users.py

`structure.py --calls` reads the sources of handlers; this looks at what captured programs did: it
sees special methods, too, for which operations ask by other ways than a call.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dynamo
from dynamo.interp.interpreter import Interpreter
from dynamo.values.functions.monkey_patches import is_programs_code

ROOT = Path(dynamo.__file__).parent
# Of the frames between a handler and the function: what hands the call on.
_MEANS = frozenset(
    ["call", "call_at_end", "call_function", "call_handler", "call_method", "call_or_tail_call"]
)
_MEANS |= {"finish_call", "inline", "inline_call", "push_call", "special", "tail_call"}


@contextlib.contextmanager
def recorded() -> Iterator[Counter[str]]:
    """In the block, the places (`file:Class.method`) of such handlers are counted."""
    places: Counter[str] = Counter()
    run = Interpreter.run

    def counting(frame: Any) -> None:
        if _is_nested(frame):
            places[_handler()] += 1
        run(frame)

    Interpreter.run = counting  # type: ignore[method-assign]
    try:
        yield places
    finally:
        Interpreter.run = run  # type: ignore[method-assign]


def _is_nested(frame: Any) -> bool:
    """Whether no break can stand in the program's frame, although one can in its caller's."""
    if not _is_programs(frame) or _can_stand_in(frame):
        return False
    caller = frame.parent
    while caller is not None and not _is_programs(caller):
        caller = caller.parent
    return caller is None or _can_stand_in(caller)


def _is_programs(frame: Any) -> bool:
    return not frame.hidden and is_programs_code(frame.code)


def _can_stand_in(frame: Any) -> bool:
    while frame.parent is not None:
        if frame.pushed is None and frame.resumption is None:
            return False
        frame = frame.parent
    return True


def _handler() -> str:
    """The place of the innermost frame of ours that does more than to hand the call on."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT) and frame.f_code.co_name not in _MEANS:
            return f"{path.relative_to(ROOT).as_posix()}:{frame.f_code.co_qualname}"
        frame = frame.f_back
    raise LookupError("a frame has a handler")


# -- as a plugin of pytest ------------------------------------------------------------------------
_open = contextlib.ExitStack()
_places: Counter[str] = Counter()


def pytest_configure(config: Any) -> None:
    global _places
    _places = _open.enter_context(recorded())


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.section("functions of the program on our own stack")
    for place, count in _places.most_common():
        terminalreporter.write_line(f"{count:8} {place}")


def pytest_unconfigure(config: Any) -> None:
    _open.close()
