"""Print what framegraph needs with the extras named: `requirements.py test triton`, for pip's -r.

What is fetched can so be installed ahead of the build, side by side for several interpreters.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path


def needed(project: dict, extras: Iterable[str]) -> list[str]:
    """The requirements of the project and of its extras; an extra may name others of its own."""
    found = list(project["dependencies"])
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            own = re.fullmatch(rf"{project['name']}\[(.*)\]", line)
            found += needed(project, own[1].split(",")) if own else [line]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    pyproject = Path(__file__).resolve().parents[1] / "pyproject.toml"
    print("\n".join(needed(tomllib.loads(pyproject.read_text())["project"], sys.argv[1:])))
