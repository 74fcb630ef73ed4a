"""The symbolic interpreter: frames, the output graph, inlined calls."""
