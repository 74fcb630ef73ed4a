"""Programs on a stand-in for a GPU, compiled beside eager:

    python -m tests.gpu.stand_in values                 # all groups: cuda, models, operators
    python -m tests.gpu.stand_in launches models        # one; or python, in place of launches
    python -m tests.gpu.stand_in values operators --part 0/8
    python -m tests.gpu.stand_in values cuda --only streams GRU

launching.py says what the modes are. Failed programs are told with what they raised.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.gpu.stand_in.building import environment, missing

MODES = ("values", "python", "launches")
GROUPS = ("cuda", "models", "operators")


def run(mode: str, group: str, *chosen: str) -> Iterator[dict[str, Any]]:
    """The lines of a process of its own (running.py); AssertionError where the process broke."""
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.stand_in.running", mode, group, *chosen],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(Path(folder)),
            cwd=Path(__file__).parents[3],
        ) as process:
            assert process.stdout is not None
            ended = False
            for text in process.stdout:
                if not text.startswith('{"program"'):
                    print(text, end="", file=sys.stderr)
                    continue
                line = json.loads(text)
                ended = line["program"] is None
                if not ended:
                    yield line
        if not ended:
            raise AssertionError(f"the process of {group} ended with {process.returncode}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("groups", nargs="*", metavar="GROUP", default=GROUPS)
    parser.add_argument("--part", help="of each group, such as 0/8")
    parser.add_argument("--only", nargs="+", default=[], metavar="PROGRAM")
    given = parser.parse_args()
    if (why := missing()) is not None:
        print(f"no stand-in: {why}")
        return 1
    failed = count = launches = 0
    for group in given.groups:
        for line in run(given.mode, group, *(given.part.split("/") if given.part else given.only)):
            count, launches = count + 1, launches + line["launches"]
            if line["error"]:
                failed += 1
                print(f"--- {group}: {line['program']}\n{line['error']}", flush=True)
    print(f"{given.mode}: {count} programs, {failed} failed, {launches} launches")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
