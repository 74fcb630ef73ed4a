"""Attempts to capture a frame, and the new code of the frame from the state at its end."""
