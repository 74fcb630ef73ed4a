"""Time of the processor, which other processes do not lengthen as they do that of the clock."""

from __future__ import annotations

import resource
import time


def seconds() -> float:
    """Of this process with all threads, and of processes that it started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
