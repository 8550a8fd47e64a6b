"""Padding in batches: how much there is, and batches without it."""
