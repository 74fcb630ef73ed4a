"""Install packages into the environment of the Python that runs this: by uv, or by pip without it.

    .venv/bin/python tools/install.py -c constraints.txt torch

Torch with its CUDA libraries is 4.7 GB: pip takes a minute or two for each environment, uv 13 s for
the first and 6 s for the next, whose files are links to the same ones. pip's settings (indexes,
folders of wheels, constraints, certificates) hold for uv, which does not read them.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

# Setting of pip -> variable of uv's environment.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
}
PIP = [sys.executable, "-m", "pip"]


def uv_environment(listing: str) -> dict[str, str]:
    """The variables that say to uv what `pip config list` prints, its last word on each setting.

    pip takes the newest version that any index has; so does uv when told to.
    """
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        variable = SETTINGS.get(name.rpartition(".")[2])
        if variable is not None:
            separator = "," if variable == "UV_FIND_LINKS" else " "
            found[variable] = separator.join(ast.literal_eval(value).split())
    return found


def find_uv() -> str | None:
    """uv on the path or in this environment, where pip puts it if it can."""
    here = Path(sys.executable).with_name("uv")
    found = shutil.which("uv") or shutil.which(here)
    if found is None and subprocess.run([*PIP, "install", "-q", "uv"], check=False).returncode == 0:
        found = shutil.which(here)
    return found


def main(arguments: list[str]) -> int:
    uv = find_uv()
    if uv is not None:
        listing = subprocess.run(
            [*PIP, "config", "list"], capture_output=True, text=True, check=False
        )
        environment = uv_environment(listing.stdout) | os.environ
        command = [uv, "pip", "install", "-q", "--python", sys.executable, *arguments]
        if subprocess.run(command, env=environment, check=False).returncode == 0:
            return 0
        print("uv could not install this; pip tries", file=sys.stderr)
    return subprocess.run([*PIP, "install", "-q", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
