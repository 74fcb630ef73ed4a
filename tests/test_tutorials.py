"""Each tutorial runs from start to end as a script; its own assertions check it. The examples of
README.md run as one program.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "tutorials").glob("tutorial_*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_tutorial(script: Path, tmp_path: Path) -> None:
    run(script, tmp_path)


@pytest.mark.slow
def test_readme(tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    script = tmp_path / "readme.py"
    script.write_text("".join(examples))
    run(script, tmp_path)


def run(script: Path, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_there_are_tutorials() -> None:
    assert SCRIPTS
