"""A run: what is asked, what it means (plan), doing it (run)."""
