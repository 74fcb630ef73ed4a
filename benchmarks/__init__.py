"""Side-by-side against eager and torch.compile. A fault of ours is an error here."""

import compileall
import os
from pathlib import Path

os.environ.setdefault("DYNAMO_STRICT", "1")

# Modules come from bytecode, as those of installed packages do, whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
for _package in ("dynamo", "fxgraph", "inductor", "backends"):
    compileall.compile_dir(Path(__file__).parents[1] / _package, quiet=2)
