"""The public functions: compile, module, export, explain; and the conversion of one frame."""
