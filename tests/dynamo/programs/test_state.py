"""State that changes between calls and back (programs/state): each call sees what eager sees."""

from tests.dynamo.programs import all_programs

test_program = all_programs("state")
