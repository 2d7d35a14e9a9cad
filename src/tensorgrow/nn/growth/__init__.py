"""Layers that grow while a model is trained."""
