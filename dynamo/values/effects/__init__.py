"""Side effects, replayed by the rewritten frame, and questions to the system."""
