"""A process on the stand-in prints a line of JSON for each program:

    python -m tests.gpu.stand_in.running MODE GROUP [PART PARTS | NAME...]

Its environment is building.environment()'s.

It ends without the interpreter's end: threads of torch's devices abort there.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings

import torch

import dynamo
from tests.gpu.stand_in import aten, harness, launching, programs


def main(mode: str, group: str, *names: str) -> None:
    warnings.simplefilter("ignore")
    aten.install()
    launching.install(mode)
    harness.compared = mode != "launches"
    torch.backends.cudnn.allow_tf32 = False
    table = programs.GROUPS[group]()
    chosen = list(names)
    if len(names) == 2 and names[0].isdigit():
        chosen = list(table)[int(names[0]) :: int(names[1])]
    for name in chosen or table:
        started, error = time.perf_counter(), None
        dynamo.reset()
        launching.launches.counts.clear()
        try:
            table[name]()
            launching.check()
        except BaseException:
            error = traceback.format_exc()[-4000:]
        launching.forget()
        line = {
            "program": name, "error": error, "launches": launching.launches.counts.total(),
            "seconds": round(time.perf_counter() - started, 2),
        }  # fmt: skip
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException:
        traceback.print_exc()
    else:
        print(json.dumps({"program": None}))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
