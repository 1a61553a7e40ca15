"""Reads sources and writes outputs. Computes nothing."""
