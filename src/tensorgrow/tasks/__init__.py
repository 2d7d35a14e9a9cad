"""What users call: from data through a search to a result."""
