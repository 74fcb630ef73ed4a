"""Our extension modules that use torch, checked before they are loaded.

An extension built against another torch release may fail to load with an undefined symbol, or
load and crash; one built from older sources, in a checkout, may load and be wrong. So its torch
version and a hash of its sources are read from the file (fxgraph/csrc/built_from.h puts them there)
and compared first.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

import torch

_MARK = b"framegraph, built against torch "
_SOURCES_MARK = b"framegraph, built from sources "
# Extension -> the folder of its sources.
FOLDERS = {
    "dynamo._guards": "dynamo/csrc",
    "fxgraph.aot._autograd": "fxgraph/aot/csrc",
    "fxgraph.aot._recurrent": "fxgraph/aot/csrc/recurrent",
    "inductor.runtime._plan": "inductor/runtime/csrc",
}
_ROOT = Path(__file__).parent.parent
_REBUILD = (
    "rebuild it, with `python setup.py build_ext --inplace` in a checkout, else with "
    "`pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps framegraph`"
)


def require(name: str) -> None:
    """Raise ImportError unless the extension is there, built against the torch in use and, in a
    checkout, from the sources as they are.
    """
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
    folder = FOLDERS.get(name, "")
    in_checkout = bool(folder) and (_ROOT / folder).is_dir()
    if in_checkout and built_from(Path(spec.origin)) != hash_of_sources(_ROOT, folder):
        raise ImportError(
            f"{name} was built from other sources than those in {folder}: {_REBUILD}",
            name=name,
            path=spec.origin,
        )


def built_against(path: Path) -> str:
    """The torch that an extension file was built against, such as "2.13.0"; "?" if unknown."""
    return _text_behind(_MARK, path)


def built_from(path: Path) -> str:
    """The hash of the sources that an extension file was built from; "?" if unknown."""
    return _text_behind(_SOURCES_MARK, path)


def _text_behind(mark: bytes, path: Path) -> str:
    _, found, rest = path.read_bytes().partition(mark)
    return rest.partition(b"\0")[0].decode() if found else "?"


def hash_of_sources(root: Path, folder: str) -> str:
    """Of the files of one extension's folder, and of headers that extensions share."""
    found = hashlib.blake2b(digest_size=12)
    shared = [root / "inductor/runner/integers.h", *sorted((root / "fxgraph/csrc").glob("*.h"))]
    own = (path for path in (root / folder).iterdir() if path.suffix in (".c", ".cpp", ".h"))
    for path in [*sorted(own), *shared]:
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def release(version: str) -> tuple[str, ...]:
    """Major and minor: patch releases and builds for other devices share one ABI."""
    return tuple(version.split(".")[:2])
