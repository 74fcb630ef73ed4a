"""Options and fixtures of all tests."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDENS = Path(__file__).parent / "goldens"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="write golden files instead of comparing"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the frame hook come first: they want no other hook installed, and torch.cond in
    eager mode, which other tests compare with, leaves torch's there after an error. So do those
    that bound the growth of memory, which a process that ran thousands of tests blurs.
    """
    first = ("/test_hook", "test_robustness")
    items.sort(key=lambda item: not any(name in item.nodeid for name in first))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text): compares text with tests/goldens/<name>; --accept writes it there."""

    def check(name: str, text: str) -> None:
        path = GOLDENS / name
        if request.config.getoption("--accept"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden file {path}; write it by pytest --accept")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            lines = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), str(path), "now", lineterm=""
            )
            pytest.fail("\n".join(lines) + "\n(refresh by pytest --accept)", pytrace=False)

    return check
