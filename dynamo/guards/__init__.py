"""Origins of values, and assumptions about them."""
