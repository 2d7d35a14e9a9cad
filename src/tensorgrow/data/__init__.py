"""What comes in: accepted, converted, refused."""
