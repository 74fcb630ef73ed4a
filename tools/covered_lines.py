"""Prints, of each folder, the lines that the tests of `make coverage` executed.

python tools/covered_lines.py            # a row for each folder
python tools/covered_lines.py --files    # a row for each file
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import coverage
from tabulate import tabulate

ROOT = Path(__file__).parent.parent


def line_counts(measured: coverage.Coverage, by_file: bool) -> Counter[tuple[str, str]]:
    """(folder or file, "lines" or "missing") -> how many lines."""
    counts: Counter[tuple[str, str]] = Counter()
    for name in measured.get_data().measured_files():
        path = Path(name)
        _, lines, _, missing, _ = measured.analysis2(name)
        row = (path if by_file else path.parent).relative_to(ROOT).as_posix()
        counts[row, "lines"] += len(lines)
        counts[row, "missing"] += len(missing)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", action="store_true", help="a row for each file")
    measured = coverage.Coverage(config_file=ROOT / "pyproject.toml")
    measured.load()
    counts = line_counts(measured, parser.parse_args().files)
    names = sorted({name for name, _ in counts})
    rows = [[name, counts[name, "lines"], counts[name, "missing"]] for name in names]
    rows.append(["in all", *(sum(row[i] for row in rows) for i in (1, 2))])
    table = [
        [name, lines, lines - missing, 100 * (lines - missing) / max(lines, 1)]
        for name, lines, missing in rows
    ]
    headers = ["", "lines", "executed", "percent"]
    print(tabulate(table, headers=headers, floatfmt=".1f"))


if __name__ == "__main__":
    main()
