"""What `make gpu-install` does before anything is built; needs no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"


def test_a_machine_without_a_gpu_is_told_of(tmp_path):
    """In one line, before anything is built."""
    done = subprocess.run(
        [sys.executable, TOOLS / "gpu.py", tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("make gpu: ") and done.stderr.count("\n") == 1


OVERLAY = TOOLS / "overlay.py"


def test_an_environment_over_an_environment(tmp_path):
    """torch is often in an environment, whose packages are seen, those of *.pth files too."""
    below, folder, elsewhere = tmp_path / "below", tmp_path / "over", tmp_path / "elsewhere"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(below)
    (packages,) = below.glob("lib/python*/site-packages")
    elsewhere.mkdir()
    (packages / "linked.pth").write_text(f"{elsewhere}\n")
    for path, value in ((packages / "plain.py", 1), (elsewhere / "far.py", 2)):
        path.write_text(f"value = {value}\n")
    subprocess.run([below / "bin/python", OVERLAY, folder], check=True)
    program = "import far, plain, sys; print(plain.value, far.value, sys.version_info[:2])"
    for newer in (False, True):  # what is installed above hides what is below
        if newer:
            (above,) = folder.glob("lib/python*/site-packages")
            (above / "plain.py").write_text("value = 3\n")
        done = subprocess.run(
            [folder / "bin/python", "-c", program], capture_output=True, text=True, check=True
        )
        assert done.stdout.split()[:2] == ["3" if newer else "1", "2"]
        assert done.stdout.strip().endswith(str(sys.version_info[:2]))
