"""Words to the user about the machine and the limits, which change no result."""

from __future__ import annotations

import logging
import warnings

_SMALL = 10_000  # bytes that are told one by one
_logger = logging.getLogger("framegraph")


def notify(text: str, category: type[Warning] = UserWarning, stacklevel: int = 2) -> None:
    """Warn; where warnings are errors, log: the program behaves as it does eagerly."""
    try:
        warnings.warn(text, category, stacklevel=stacklevel + 1)
    except category:
        _logger.warning(text)


def amount_of_memory(count: int) -> str:
    """Bytes as text: in MiB, but for a few."""
    return f"{count} bytes" if count < _SMALL else f"{count / 2**20:.2f} MiB"
