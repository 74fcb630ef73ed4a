"""Instances: attributes, descriptors, storage of built-in bases, exceptions, copies, reflection."""
