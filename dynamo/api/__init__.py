"""What users call: compile, module, export, explain; and the conversion of one frame."""
