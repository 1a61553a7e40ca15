"""Computes programs, forward and adjoint, once for each backend: torch, C++ and Triton.

A backend is a module with ``forward`` and ``adjoint``. They trust their caller: shapes, values
and options have been checked, and the caller owns all memory.
"""
