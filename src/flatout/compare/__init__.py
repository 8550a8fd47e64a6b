"""Comparison of two trainings: the faster one, the ratio with its interval, and the accounts that differ."""
