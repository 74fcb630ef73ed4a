"""Processes that have imported torch and nothing of ours, for scripts: forks of one that waits.

A process of its own imports torch anew, seconds of processor time for each; a fork takes
milliseconds. Scripts about the start or the end of a process take subprocess instead.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
_SERVER = """
import json, os, sys, tempfile, traceback
import torch

def run(script):
    if not os.fork():
        for number in (1, 2):
            os.dup2(script["output"][number - 1], number)
        os.environ.clear()
        os.environ.update(script["environment"])
        code = 0
        try:
            exec(compile(script["code"], "<script>", "exec"), {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.wait()[1])

for line in sys.stdin:
    script = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        script["output"] = out.fileno(), err.fileno()
        code = run(script)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    print(json.dumps([code, *texts]), flush=True)
"""


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Ends with its standard input, that is with this process."""
    return subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_script(
    code: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script that has the repository's root as its folder. environment: of the process; else
    this one's.
    """
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    environment = dict(os.environ if environment is None else environment)
    script = {"code": textwrap.dedent(code), "environment": environment}
    server.stdin.write(json.dumps(script) + "\n")
    server.stdin.flush()
    status, *texts = json.loads(server.stdout.readline())
    return subprocess.CompletedProcess(code, status, *texts)
