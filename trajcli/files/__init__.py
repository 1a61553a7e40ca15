"""What is read and written: sources, outputs, and the schema both share. Computes nothing."""
