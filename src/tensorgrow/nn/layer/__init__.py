"""A linear layer whose weight is a network, and how it is applied."""
