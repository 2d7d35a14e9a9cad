"""Layers of a trained model replaced by smaller ones."""
