"""Pictures with matplotlib (extra `plot`)."""
