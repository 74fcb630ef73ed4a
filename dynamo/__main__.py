"""python -m dynamo doctor: the tools of this machine, and the parts of framegraph that work on it.

python -m dynamo breaks: every reason for a graph break.

python -m dynamo show FILE: the inputs, results, graphs and data of a saved program.

python -m dynamo runner: the arguments for a C++ compiler that builds the runner of saved programs.
"""

from __future__ import annotations

import argparse
import platform
import sys

from tabulate import tabulate


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dynamo")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "doctor", help="print the environment as a table, and try the compiler once"
    )
    commands.add_parser("breaks", help="list every reason for a graph break, with its hint")
    shown = commands.add_parser("show", help="what a saved program takes, returns, runs and holds")
    shown.add_argument("file")
    built = commands.add_parser(
        "runner", help="flags and sources of the C++ runner: g++ -O2 main.cpp $(...)"
    )
    built.add_argument("--folder", action="store_true", help="the folder of its sources alone")
    built.add_argument(
        "--libtorch", action="store_true", help="with what calls operators of the installed torch"
    )
    arguments = parser.parse_args(argv)
    if arguments.command == "show":
        return show_program(arguments.file)
    if arguments.command == "runner":
        return runner(arguments.folder, arguments.libtorch)
    return {"doctor": doctor, "breaks": list_breaks}[arguments.command]()


def show_program(path: str) -> int:
    """Print a saved program; 1 for a file that is none."""
    from dynamo.errors import ProgramError
    from dynamo.saved.loading import show

    try:
        print(show(path))
    except ProgramError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def runner(folder: bool, libtorch: bool) -> int:
    """Print the flags for one compiler line, or the folder of the sources."""
    import importlib

    room = importlib.import_module("inductor.runner")
    print(room.FOLDER if folder else room.flags(libtorch))
    return 0


def list_breaks() -> int:
    """Print code, text and hint of each reason."""
    from dynamo.breaks import Break

    reasons = sorted(Break.__subclasses__(), key=lambda reason: reason.code)
    for reason in reasons:
        print(f"{reason.code}\n  {reason.text}\n  hint: {reason.hint}")
    return 0


def doctor() -> int:
    """Print the table; 0 if everything needed works, 1 if not."""
    import importlib

    doctors = importlib.import_module("inductor.runtime.doctor")
    rows = [
        ("Python", f"{platform.python_version()} ({sys.executable})", ""),
        ("platform", f"{platform.system()} {platform.machine()}", ""),
        *doctors.environment(),
        _capture_row(),
        *doctors.trials(),
    ]
    print(tabulate(rows, headers=["what", "found", "works"], tablefmt="simple", maxcolwidths=80))
    return int(any(works == "no" for _, _, works in rows))


def _capture_row() -> tuple[str, str, str]:
    try:
        import torch

        import dynamo

        def double(x: torch.Tensor) -> torch.Tensor:
            return x + x

        compiled = dynamo.compile(double, backend="eager", fullgraph=True)
        ok = torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
        return ("frame capture", "compiled x + x", "yes" if ok else "no")
    except Exception as error:
        return ("frame capture", f"{type(error).__name__}: {error}", "no")


if __name__ == "__main__":
    sys.exit(main())
