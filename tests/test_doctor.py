"""python -m dynamo doctor."""

from __future__ import annotations

import pytest

from dynamo.__main__ import main


def test_table(capsys) -> None:
    assert main(["doctor"]) == 0
    table = capsys.readouterr().out
    for what in ("Python", "torch", "C++ compiler", "cache folder", "frame capture", "C++ kernel"):
        assert what in table


def test_without_a_compiler(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert main(["doctor"]) == 0
    assert "Install g++" in capsys.readouterr().out


def test_unknown_command(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["operate"])
    assert "invalid choice" in capsys.readouterr().err
