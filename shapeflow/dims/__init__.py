"""Symbolic sizes: integer expressions over named dims, their bounds, their text, and the specs that declare them."""
