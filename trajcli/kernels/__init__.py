"""HOW it is computed: forward and adjoint of a cascade or a band, once per backend.

A backend is a module with ``forward`` and ``adjoint``. They trust their caller: shapes, values
and options have been checked, and the caller owns all memory.
"""
