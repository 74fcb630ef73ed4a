"""Corners that CPython's own tests look into (programs/corners)."""

from tests.dynamo.programs import all_programs

test_program = all_programs("corners")
