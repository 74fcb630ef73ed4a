"""Extension modules are built against the torch in use and from the sources at hand, or say so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fxgraph import extensions

EXTENSIONS = tuple(extensions.FOLDERS)


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


def test_other_sources(extension, monkeypatch, tmp_path):
    """In a checkout, an extension that was built before its sources changed is not loaded."""
    folder = tmp_path / "csrc"
    folder.mkdir()
    (folder / "one.cpp").write_text("int one;")
    monkeypatch.setattr(extensions, "_ROOT", tmp_path)
    for shared in ("inductor/runner/integers.h", "fxgraph/csrc/built_from.h"):
        (tmp_path / shared).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / shared).write_text("")
    name = extension(torch.__version__)
    monkeypatch.setitem(extensions.FOLDERS, name, "csrc")
    path = tmp_path / "fg_stale_extension.so"
    built = extensions.hash_of_sources(tmp_path, "csrc")
    path.write_bytes(path.read_bytes() + b"framegraph, built from sources %s\0" % built.encode())
    extensions.require(name)
    (folder / "two.h").write_text("")
    with pytest.raises(ImportError, match="built from other sources.*rebuild"):
        extensions.require(name)


def test_not_built():
    with pytest.raises(ImportError, match="missing.*rebuild"):
        extensions.require("fxgraph._no_such_extension")
