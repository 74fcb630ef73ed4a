#!/bin/sh
# find_python.sh python3.12: print an interpreter of that version that runs.
# A pyenv shim exists on PATH also for versions that are not selected, and then fails; so each candidate is tried.
wanted=$1
works() { "$1" -c 'import sys, venv' >/dev/null 2>&1; }

if works "$wanted"; then
    command -v "$wanted"
    exit 0
fi
version=${wanted#python}
if command -v pyenv >/dev/null 2>&1; then
    for candidate in "$(pyenv root)"/versions/"$version"*/bin/python; do
        if works "$candidate"; then
            echo "$candidate"
            exit 0
        fi
    done
fi
# A machine whose default python3 is new enough will do where a version was not asked for by name.
if [ "$wanted" = python3.11 ]; then
    for candidate in python3.12 python3.13 python3; do
        if works "$candidate" && "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'; then
            command -v "$candidate"
            exit 0
        fi
    done
fi
echo "no working $wanted found; install Python 3.11, 3.12 or 3.13, or pass PYTHON=/path/to/python" >&2
exit 1
