"""Kernels of the operators of recurrent.py, which loading registers (csrc/recurrent/)."""
