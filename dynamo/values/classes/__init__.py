"""Classes: lookup, making classes and instances, isinstance, super()."""
