"""A run: what is asked, what it means (plan), doing it (run)."""

# Where calls are nested at a certain depth, Python maps and frees memory for each further call, and
# NumPy makes a thousand of them as it loads: it does so here, before imports are nested further.
import numpy as numpy
