"""torch as captured programs see it: calls, modes, modules, autograd, transforms, numpy."""
