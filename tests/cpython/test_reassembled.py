"""CPython's own language tests, every function of theirs through normalize -> Emitter -> assemble.

What fails as compiled by CPython may fail here too; nothing else may.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import types
import unittest
from pathlib import Path

import pytest

from tests.dynamo.reassembly import reassemble_all

pytest.importorskip("test.support", reason="CPython's test package is not installed")

QUICK = [
    "test_augassign",
    "test_bool",
    "test_class",
    "test_contextlib",
    "test_decorators",
    "test_dictcomps",
    "test_exception_variations",
    "test_generator_stop",
    "test_genexps",
    "test_keywordonlyarg",
    "test_listcomps",
    "test_named_expressions",
    "test_opcodes",
    "test_patma",
    "test_positional_only_arg",
    "test_raise",
    "test_setcomps",
    "test_super",
    "test_unpack",
    "test_unpack_ex",
    "test_with",
    "test_yield_from",
]
SLOW = ["test_coroutines", "test_except_star", "test_exceptions", "test_generators", "test_grammar"]
SLOW += ["test_itertools", "test_scope", "test_fstring", "test_asyncgen"]


def run(code: types.CodeType, name: str, path: str) -> tuple[int, set[str]]:
    """(number of tests run, ids of those that did not pass)."""
    module = types.ModuleType(name)
    module.__file__ = path
    module.__package__ = name.rpartition(".")[0]
    module.__spec__ = importlib.util.find_spec(name)
    original = sys.modules.get(name)
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        result = unittest.TestResult()
        # These tests collect garbage hundreds of times; what torch and pytest hold is none of
        # theirs. All stays frozen: else the next run would go through a million objects again.
        gc.collect()
        gc.freeze()
        suite.run(result)
    finally:
        sys.modules.pop(name, None)
        if original is not None:
            sys.modules[name] = original
    return result.testsRun, {test.id() for test, _ in (*result.failures, *result.errors)}


def check(name: str) -> None:
    name = f"test.{name}"
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        pytest.skip(f"{name} is not installed")
    path = spec.origin
    code = compile(Path(path).read_text(encoding="utf-8"), path, "exec", dont_inherit=True)
    count, expected = run(code, name, path)
    new_count, failed = run(reassemble_all(code), name, path)
    assert new_count == count > 0
    assert failed <= expected


@pytest.mark.parametrize("name", QUICK)
def test_language_tests(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_slow_language_tests(name):
    check(name)
