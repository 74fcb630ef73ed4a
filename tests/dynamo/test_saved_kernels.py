"""Kernels in the file, for a machine that has no compiler."""

from __future__ import annotations

import warnings

import pytest
import torch

import dynamo
from dynamo.errors import ProgramError
from dynamo.saved.container import Container
from tests.dynamo.damaging import forge, program_of


def chain(x):
    return torch.softmax(torch.nn.functional.gelu(x * 3 + 1), -1)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "chain.fg"
    dynamo.export(chain)(torch.randn(8, 16)).save(path, targets=["x86-64-v2", "x86-64-v3"])
    return path


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    yield
    from inductor.runtime import shipped, toolchain

    shipped._known.clear()
    monkeypatch.setattr(toolchain, "instead_of_compiler", lambda sources: None)


def kernels(program):
    (compiled,) = program._compiled.values()
    return compiled.run.compile_report["kernels"]


def test_they_serve_where_there_is_no_compiler(file, no_compiler):
    x = torch.randn(8, 16)
    program = dynamo.load(file, trust_kernels=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(program(x), chain(x))
    assert kernels(program) > 0


def test_they_are_not_loaded_unless_trusted(file, no_compiler):
    x = torch.randn(8, 16)
    with pytest.warns(UserWarning) as heard:
        program = dynamo.load(file)
        torch.testing.assert_close(program(x), chain(x))
        program(x)
    (text,) = (str(one.message) for one in heard)
    for part in (str(file), "no-such-compiler", "trust_kernels=True) runs them", "machine code"):
        assert part in text
    assert heard[0].filename == __file__


@pytest.mark.parametrize("standalone", [False, True])
@pytest.mark.parametrize("trust", [False, True])
def test_a_file_without_them_says_how_to_have_some(tmp_path, monkeypatch, trust, standalone):
    """Those of the runner are not for Python."""
    dynamo.export(chain)(torch.randn(8, 16)).save(tmp_path / "m.fg", standalone=standalone)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(UserWarning, match=r"save\(path, targets=\[...\]\) puts them in") as heard:
        program = dynamo.load(tmp_path / "m.fg", trust_kernels=trust)
        x = torch.randn(8, 16)
        torch.testing.assert_close(program(x), chain(x))
    assert len(heard) == 1


def test_a_damaged_library_is_not_loaded(file, no_compiler, tmp_path):
    sections = {n: b"\x7fELF" for n in Container(file).names if n.startswith("kernels/")}
    x = torch.randn(8, 16)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        program = dynamo.load(
            forge(file, tmp_path / "forged.fg", program_of(file), **sections), trust_kernels=True
        )
        torch.testing.assert_close(program(x), chain(x))
    assert kernels(program) == 0


def test_a_flipped_bit_of_a_library_is_an_error(file, no_compiler, tmp_path):
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    (tmp_path / "damaged.fg").write_bytes(data)
    with pytest.raises(ProgramError, match="another hash"):
        dynamo.load(tmp_path / "damaged.fg", trust_kernels=True)


def test_an_unknown_target_is_refused(tmp_path):
    exported = dynamo.export(chain)(torch.randn(8, 16))
    with pytest.raises(ValueError, match="x86-64-v4"):
        exported.save(tmp_path / "x.fg", targets=["sparc"])
