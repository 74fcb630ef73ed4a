"""How many graphs programs need that are called with 5, 1, 0, 7, 2 and 1 rows.

`python -m benchmarks.small_sizes [--order dynamic|automatic|small_first] [--train] [NAME ...]`
prints a line for each program and the sum. Results are compared with eager's on the way.
"""

from __future__ import annotations

import argparse

from tests.dynamo.size_programs import NOT_TRAINED, ORDERS, PROGRAMS, floats, graphs_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--order", choices=ORDERS, default="dynamic")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    names = args.names or list(PROGRAMS)
    if args.train:
        names = [name for name in names if floats(name) and name not in NOT_TRAINED]
    total = 0
    for name in names:
        graphs, _ = graphs_of(name, args.train, args.order)
        print(f"{graphs:3} {name}")
        total += graphs
    print(f"{total} graphs of {len(names)} programs")


if __name__ == "__main__":
    main()
