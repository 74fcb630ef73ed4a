"""Classes, generators, coroutines, exceptions, scopes, patterns (programs/language)."""

from tests.dynamo.programs import all_programs

test_program = all_programs("language")
