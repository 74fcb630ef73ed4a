"""Python that says what functions in C, or of torch, do: traced in their place like user code."""
