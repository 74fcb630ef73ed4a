"""`python3 tools/overlay.py FOLDER`: a virtual environment over the packages of this interpreter.

What is installed there later hides what this interpreter has, and changes nothing of that. venv's
own option --system-site-packages would show the packages of the interpreter under an environment,
not those of the environment, where torch often is. pip is this interpreter's, so that a Python
without ensurepip will do.
"""

from __future__ import annotations

import sys
import venv
from pathlib import Path


def overlay(folder: Path) -> None:
    venv.EnvBuilder(system_site_packages=True, with_pip=False, symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    names = ("site-packages", "dist-packages")
    below = [path for path in dict.fromkeys(sys.path) if Path(path).name in names]
    # A line that begins with `import` is run: the files *.pth of those folders count, too.
    lines = [f"import site; site.addsitedir({path!r})\n" for path in below]
    (packages / "overlay.pth").write_text("".join(lines))


if __name__ == "__main__":
    overlay(Path(sys.argv[1]).resolve())
