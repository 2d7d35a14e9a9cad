"""Files of every kind that some version wrote, and what they must hold."""
