"""Contractions at listed entries: cost in proportion to the entries, not to the dense tensor."""
