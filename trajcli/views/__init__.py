"""Numbers → something to look at."""
