"""Kinds of layers whose weight can be a network: what `compress` must know of each."""
