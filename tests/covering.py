"""A plugin of pytest for `make coverage`: capture runs under the trace function of coverage.py.

The frame hook hides capture from trace functions, which are the program's. Here they are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from dynamo import _hook
from dynamo.api import convert
from dynamo.framestate.attempts import Capture


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any) -> Any:
        return _hook.with_tracing(function, *args)

    return call


Capture.run = traced(Capture.run)  # type: ignore[method-assign]
convert.finish = traced(convert.finish)  # type: ignore[attr-defined]
convert.keep_original = traced(convert.keep_original)  # type: ignore[attr-defined]
