"""Trials of remedies on the user's unchanged command: one at a time, guarded, and proved against the original run."""
