"""The table of differences of CPython's own tests with the hook from those without.

python -m tests.cpython test_dict test_with     of some modules
python -m tests.cpython test_dict =update       of tests with this in their id, in full
python -m tests.cpython --all                   of every module that is listed
"""

from __future__ import annotations

import sys

from tests.cpython.hooked import compare, full_name
from tests.cpython.test_hooked import EXPLAINED, FULL, QUICK, SLOW


def main(modules: list[str]) -> bool:
    """Print the table of differences. Whether each row has an explanation."""
    only = modules.pop()[1:] if modules[-1].startswith("=") else ""
    if modules == ["--all"]:
        modules = sorted({*QUICK, *SLOW, *FULL})
    wrong = []
    for module in modules:
        if not full_name(module):
            print(f"{module}: not in this Python")
            continue
        plain, hooked, rows = compare(module, only)
        broken = plain.broken or hooked.broken
        new = [row for row in rows if row.test.removeprefix("test.") not in EXPLAINED]
        if broken or hooked.faults or new:
            wrong.append(module)
        print(
            f"{module}: {len(hooked.ran)} of {len(plain.ran)} tests, {len(rows)} differences "
            f"({len(new)} unexplained), {len(hooked.faults)} faults, "
            f"{plain.seconds:.1f} s -> {hooked.seconds:.1f} s",
            broken,
            flush=True,
        )
        for row in rows:
            last = row.text.strip().rpartition("\n")[2]
            why = EXPLAINED.get(row.test.removeprefix("test."), row.text if only else last)
            print(f"    {row.test}: {row.plain} -> {row.hooked}: {why}")
        for fault in dict.fromkeys(hooked.faults):
            print(f"    fault: {fault if only else fault.strip().rpartition(chr(10))[2]}")
    print("Not as without the hook:", ", ".join(wrong) or "nothing that is not explained")
    return not wrong


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1:]))
