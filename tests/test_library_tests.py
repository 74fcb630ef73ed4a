"""benchmarks.library_tests: what passes eagerly and fails captured, on a file of tests."""

from __future__ import annotations

from benchmarks.library_tests import main

TESTS = """
import os, unittest, torch

def captured():
    return '"captured": true' in os.environ["FRAMEGRAPH_LIBRARY_TESTS"]

def test_of_a_tensor():
    assert torch.ones(2).sum() == 2

def test_that_fails():
    assert torch.ones(2).sum() == 3

def test_that_differs():
    assert not captured()

def test_that_ends_the_process():
    if captured():
        os._exit(3)

class Tests(unittest.TestCase):
    def test_method(self):
        self.assertEqual(torch.ones(2).sum(), 2)
"""


def test_outcomes(tmp_path, capsys):
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    assert main([str(tmp_path), "--seconds", "60"]) == 1
    found = capsys.readouterr().out
    assert found.startswith("4 pass eagerly; captured 4: 2 fail, 0 faults"), found
    for outcome, name in (
        ("failed", "test_that_differs"),
        ("ended the process", "test_that_ends_the_process"),
    ):
        assert any(
            line.startswith(f"  {outcome}: ") and line.endswith(name) for line in found.splitlines()
        ), found
