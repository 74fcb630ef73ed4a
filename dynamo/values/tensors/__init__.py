"""Tensors: nodes of the graph, their fakes, numbers and places that are read from them."""
