"""numpy.errstate, said by numpy.seterr."""

from __future__ import annotations

from typing import Any

import numpy as np


class ErrorState:
    """In place of numpy.errstate, which keeps a token of C."""

    def __init__(self, **kinds: Any) -> None:
        self.kinds = kinds

    def __enter__(self) -> None:
        self.before = np.seterr(**self.kinds)

    def __exit__(self, *exc: object) -> None:
        np.seterr(**self.before)
