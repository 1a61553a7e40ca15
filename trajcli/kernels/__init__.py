"""HOW it is computed: cascade, cascade_adjoint, band, band_adjoint, once per backend.

A backend is a module with these four functions. They trust their caller: shapes, values and
options have been checked, all memory is given, nothing is kept between calls.
"""
