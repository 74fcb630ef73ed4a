"""tools/install.py: pip's settings said to uv, and pip where uv fails."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "tools" / "install.py"
TOOL = runpy.run_path(str(SCRIPT))

LISTING = """\
global.cert='/etc/certificates.crt'
global.extra-index-url='https://one.example/simple\\n\\thttps://two.example/simple'
global.find-links='/wheels /more'
site.find-links='/own'
:env:.disable-pip-version-check='1'
:env:.no-index='true'
"""


def test_settings_of_pip_hold_for_uv():
    assert TOOL["uv_environment"](LISTING) == {
        "SSL_CERT_FILE": "/etc/certificates.crt",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_FIND_LINKS": "/own",
        "UV_NO_INDEX": "true",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_folders_are_separated_as_uv_separates_them():
    found = TOOL["uv_environment"]("global.find-links='/wheels /more'\n")
    assert found["UV_FIND_LINKS"] == "/wheels,/more"


@pytest.mark.parametrize("status", [0, 2])
def test_pip_takes_over_where_uv_fails(tmp_path, status):
    """A uv that keeps its arguments and ends with `status`; pip finds the requirement met."""
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/arguments\nexit {status}\n')
    uv.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    run = subprocess.run(
        [sys.executable, SCRIPT, "--no-index", "pytest"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    given = (tmp_path / "arguments").read_text().split()
    assert given == ["pip", "install", "-q", "--python", sys.executable, "--no-index", "pytest"]
    assert ("pip tries" in run.stderr) == (status != 0)
