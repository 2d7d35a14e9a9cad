"""Observations in partitions: tables that are never in one place."""
