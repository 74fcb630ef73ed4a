"""The DYNAMO_LOGS channels, through the standard logging module.

DYNAMO_LOGS=graph,breaks shows those channels on stderr; a logger is named `dynamo.<channel>`
(capture) or `inductor.<channel>` (the default backend), so applications can also configure them
with `logging`.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings

# channel -> (logger, its contents)
CHANNELS = {
    "graph": ("dynamo.graph", "captured graphs as tables"),
    "graph_code": ("dynamo.graph_code", "captured graphs as Python"),
    "guards": ("dynamo.guards", "the guard tree of each compiled frame"),
    "plans": ("dynamo.plans", "each attempt to capture a frame, and why the last one was given up"),
    "breaks": ("dynamo.breaks", "each graph break with its reason and place"),
    "recompiles": ("dynamo.recompiles", "which guard failed before each recompilation"),
    "bytecode": ("dynamo.bytecode", "each frame's bytecode before and after"),
    "times": ("dynamo.times", "seconds by phase of each compilation"),
    "stages": ("inductor.times", "seconds by stage of the default backend"),
    "aot": ("inductor.aot", "functional aten graphs"),
    "schedule": ("inductor.schedule", "fusion groups"),
    "kernel": ("inductor.kernel", "generated kernels"),
    "plan": ("inductor.plan", "the plan that the runtime executes"),
}


def enable(names: str) -> None:
    """Turn on comma-separated channels ("all" for every one); unknown names give one warning."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if "all" in wanted:
        wanted = list(CHANNELS)
    unknown = [name for name in wanted if name not in CHANNELS]
    if unknown:
        warnings.warn(
            f"DYNAMO_LOGS: no channel {', '.join(unknown)}; "
            f"the channels are: {', '.join(CHANNELS)}",
            stacklevel=2,
        )
    for name in wanted:
        if name in CHANNELS:
            _show(logging.getLogger(CHANNELS[name][0]))


def _show(logger: logging.Logger) -> None:
    logger.setLevel(logging.DEBUG)
    if not any(getattr(handler, "dynamo_channel", False) for handler in logger.handlers):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
        handler.dynamo_channel = True  # type: ignore[attr-defined]
        logger.addHandler(handler)
        logger.propagate = False


def enable_from_environment() -> None:
    names = os.environ.get("DYNAMO_LOGS")
    if names:
        enable(names)
