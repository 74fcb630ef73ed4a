"""Extension modules are built against the torch in use, or say so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fxgraph import extensions

EXTENSIONS = (
    "dynamo._guards",
    "fxgraph.aot._autograd",
    "fxgraph.aot._recurrent",
    "inductor.runtime._plan",
)


@pytest.fixture
def extension(tmp_path, monkeypatch):
    """Writes an extension file that says it was built against the given torch."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(version: str | None) -> str:
        mark = b"" if version is None else b"framegraph, built against torch %s" % version.encode()
        (tmp_path / "fg_stale_extension.so").write_bytes(b"\x7fELF..." + mark + b"\0...")
        return "fg_stale_extension"

    return write


@pytest.mark.parametrize("name", EXTENSIONS)
def test_ours_name_the_torch_in_use(name):
    extensions.require(name)
    path = Path(extensions.find_spec(name).origin)
    assert extensions.release(extensions.built_against(path)) == extensions.release(
        torch.__version__
    )


@pytest.mark.parametrize("version", ["1.13.1", None])
def test_another_torch(extension, version):
    with pytest.raises(ImportError, match="built against torch .*rebuild") as caught:
        extensions.require(extension(version))
    assert torch.__version__ in str(caught.value)


def test_a_patch_release_is_the_same_torch(extension):
    major, minor = extensions.release(torch.__version__)
    extensions.require(extension(f"{major}.{minor}.99+cu999"))


def test_not_built():
    with pytest.raises(ImportError, match="missing.*rebuild"):
        extensions.require("fxgraph._no_such_extension")
