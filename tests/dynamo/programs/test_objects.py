"""Objects, modules, subclasses of built-in types (programs/objects)."""

from tests.dynamo.programs import all_programs

test_program = all_programs("objects")
