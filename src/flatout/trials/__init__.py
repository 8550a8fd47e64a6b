"""Trials: remedies are tried on the user's unchanged command, one at a time, guarded, and proved against the run."""
