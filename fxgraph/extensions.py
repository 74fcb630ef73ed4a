"""Our extension modules that use torch, checked before they are loaded.

An extension built against another torch release may fail to load with an undefined symbol, or
load and crash. So its torch version is read from the file (fxgraph/csrc/torch_version.h puts it
there) and compared first.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

_MARK = b"framegraph, built against torch "
_REBUILD = (
    "rebuild it, with `python setup.py build_ext --inplace` in a checkout, else with "
    "`pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps framegraph`"
)


def require(name: str) -> None:
    """Raise ImportError unless the extension is there, built against the torch in use."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ImportError(f"{name} is missing for this Python: {_REBUILD}", name=name)
    built = built_against(Path(spec.origin))
    if release(built) != release(torch.__version__):
        raise ImportError(
            f"{name} was built against torch {built}, but this is torch {torch.__version__}: "
            + _REBUILD,
            name=name,
            path=spec.origin,
        )


def built_against(path: Path) -> str:
    """The torch that an extension file was built against, such as "2.13.0"; "?" if unknown."""
    _, mark, rest = path.read_bytes().partition(_MARK)
    return rest.partition(b"\0")[0].decode() if mark else "?"


def release(version: str) -> tuple[str, ...]:
    """Major and minor: patch releases and builds for other devices share one ABI."""
    return tuple(version.split(".")[:2])
