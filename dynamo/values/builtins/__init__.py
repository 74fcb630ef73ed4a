"""Calls of functions in C: from storage, or as polyfills where the program's code is reached."""
