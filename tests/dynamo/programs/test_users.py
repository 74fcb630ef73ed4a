"""What users of torch.compile write around their models (programs/users)."""

from tests.dynamo.programs import all_programs

test_program = all_programs("users")
