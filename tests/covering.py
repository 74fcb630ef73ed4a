"""A plugin of pytest for `make coverage`: capture runs under the trace function of coverage.py,
and each line is recorded with the tests that execute it, in their processes and below them.

The frame hook hides capture from trace functions, which are the program's. Here they are ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import coverage
import pytest

from dynamo import _hook
from dynamo.api import convert
from dynamo.framestate.attempts import Capture

CONTEXT = "FRAMEGRAPH_COVERED_BY"  # of subprocesses: pyproject.toml makes it their context
TRACER = sys.gettrace()  # of coverage.py


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any) -> Any:
        return _hook.with_tracing(function, *args)

    return call


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    measured = coverage.Coverage.current()
    if sys.gettrace() is not TRACER:  # an earlier test has set its own
        sys.settrace(TRACER)
    os.environ[CONTEXT] = item.nodeid
    if measured is not None:
        measured.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        del os.environ[CONTEXT]
        if measured is not None:
            measured.switch_context("")


Capture.run = traced(Capture.run)  # type: ignore[method-assign]
convert.finish = traced(convert.finish)  # type: ignore[attr-defined]
convert.keep_original = traced(convert.keep_original)  # type: ignore[attr-defined]
