"""The standard library (programs/library)."""

from tests.dynamo.programs import all_programs

test_program = all_programs("library")
