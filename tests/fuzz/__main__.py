"""python -m tests.fuzz [--programs N] [--seed S] [--depth D] [--backend B]: random programs.

Prints the seed, and for a failure the smallest program that still fails.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import warnings

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.dynamo.differential import check
from tests.fuzz.programs import Lines, blocks, program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--depth", type=int, default=2, help="how deep statements nest")
    parser.add_argument("--backend", default="eager")
    options = parser.parse_args()
    print(f"--seed {options.seed} --programs {options.programs} --depth {options.depth}")
    counted = [0]
    smallest: list[str] = []

    @hypothesis.seed(options.seed)
    @settings(
        max_examples=options.programs,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        print_blob=False,
    )
    @given(body=blocks(options.depth))
    def agree(body: Lines) -> None:
        counted[0] += 1
        try:
            check(program(body), graphs=None, backends=(options.backend,))
        except Exception:
            smallest[:] = body
            raise

    warnings.simplefilter("ignore")
    try:
        agree()
    except Exception as error:
        print("\n".join(smallest))
        print(f"{type(error).__name__}: {error}")
        return 1
    print(f"{counted[0]} programs agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
