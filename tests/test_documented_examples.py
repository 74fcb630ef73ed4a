"""benchmarks.documented_examples: examples of docstrings that run differently compiled."""

from __future__ import annotations

from benchmarks.documented_examples import main

MODULE = '''
import itertools, torch
from dynamo import is_compiling
_calls = itertools.count()

def same(x):
    """Add.

    Example::

        >>> import math
        >>> x = torch.ones(2)
        >>> same(x)
        tensor([2., 2.])
        >>> def twice(y):
        ...     return same(y) * 2
        ...
        >>> twice(x) + math.pi
        >>> x @ torch.ones(3)
        Traceback (most recent call last):
    """
    return x + 1

def differs():
    """
    >>> torch.ones(2) * is_compiling()
    tensor([0., 0.])
    """

class Class:
    def varies(self):
        """
        >>> next(_calls)
        0
        """

    def ends(self):
        """
        >>> torch.ones(2)
        >>> if is_compiling():
        ...     import os; os.abort()
        """

    def empty(self):
        """
        >>> missing + 1
        """
'''


def test_outcomes(tmp_path, capsys, monkeypatch):
    (tmp_path / "some_documented.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert main(["some_documented"]) == 1
    found = capsys.readouterr().out
    assert "-- some_documented.Class.ends: ended the process" in found, found
    assert "-- some_documented.differs: differs: " in found, found
    assert "1 differs, 1 empty, 1 ended the process, 1 left out, 1 same; " in found, found
