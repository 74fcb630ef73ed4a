"""What may change between calls (programs/guards): the change is noticed."""

from tests.dynamo.programs import all_programs

test_program = all_programs("guards")
